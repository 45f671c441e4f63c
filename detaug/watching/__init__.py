"""Watch a running program: intercept calls, and find unseeded generators."""
