"""Makes a ledger's batches again, here: to check a receipt, and to see into one batch."""
