"""The pages' table of ratios over machines, made from `benchmarks/results`."""
