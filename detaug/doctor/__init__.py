"""The record of a machine, and what to change on it: `detaug doctor`."""
