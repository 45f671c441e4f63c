"""The engine against other systems."""
