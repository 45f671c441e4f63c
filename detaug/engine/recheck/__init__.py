"""The run-time check: some batches are made a second time, and compared.

`policy` chooses the batches; `requests` has the requests and what handles them in the process that
makes the batches; `rechecker` sends requests and reports mismatches; `hash_seed` makes a batch
under other hash seeds; `mismatch` has the texts for the user.
"""
