"""Measurements of detaug against what it replaces; every ratio is taken within one run."""
