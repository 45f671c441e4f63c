"""The order of batches, without processes or clocks: which comes next, what became of it, where streams end.

This module imports nothing, so that a fresh helper process starts in milliseconds.
"""
