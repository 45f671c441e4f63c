"""The run-time check: `checks` says which batches are made a second time; `making` runs where they
are made, `second_making` asks for it, `hash_order` in other interpreters; `differences` is what is
said of them.
"""
