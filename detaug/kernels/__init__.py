"""Compiled loops over arrays, one concept a file.

They know arrays and numbers, no transforms and no Python objects.
"""
