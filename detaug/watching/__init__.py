"""Watches a running program: intercepts calls, and finds unseeded generators."""
