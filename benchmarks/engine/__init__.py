"""The engine against other systems: `python -m benchmarks engine`. One file for each row."""
