"""A batch as a pure function of (pipeline, seed, epoch, step).

`producer` makes it; `plan` says which stream and turn a step is; `streams` steps loaders forward
that keep state, and `loader_states` spares it some of that; `identity` says whether two pipelines
are the same.
"""
