"""A Ray cluster as executor."""
