"""The run-time check: `checks` says which batches are made a second time, and what it means where they differ; `second_making`
has an engine's processes make them; `hash_order` has one made in other interpreters."""
