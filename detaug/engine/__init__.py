"""The process engine: workers that make batches, and the parent's side that puts them in order.

This module imports nothing, so that a fresh helper process starts in milliseconds.
"""
