"""Measurements of detaug against its peers: ratios within one run, never numbers carried over from another."""
