"""A ledger: what batches a run has had, line by line, so that others can compare, check and cite it
(docs/ledger.md).
"""
