"""The order of batches, without processes or clocks: which comes next, what became of it, where streams end."""
