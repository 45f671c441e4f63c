"""A ledger: the batches of a run, line by line, for others to compare, check and cite.

docs/ledger.md describes it.
"""
