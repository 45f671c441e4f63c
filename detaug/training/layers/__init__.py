"""Losses, pooling and up-sampling with the same bytes every time, and PyTorch's signatures.

`make_deterministic` swaps them into a model; `deterministic_functions` redirects calls of PyTorch's
functions. What is not here either does not vary in PyTorch, is handled by its deterministic mode,
or raises in it.
"""
