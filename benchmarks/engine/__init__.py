"""The engine's benchmark: `python -m benchmarks.engine`. One file for each row of its table."""
