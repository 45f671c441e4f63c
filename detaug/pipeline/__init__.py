"""A batch as a pure function of (pipeline, seed, epoch, step).

`producer` makes it from copies of the pipeline (`copying`) and a source of raw batches (`sources`);
`plan` has the arithmetic of steps, streams and turns; `streams` steps loaders forward that keep
state, which `loader_states` shortens.
"""
