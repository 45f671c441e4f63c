"""Batches from a Ray cluster: the same bytes, made by other machines.

    from detaug import DeterministicAugmenter
    from detaug.ray import RayExecutor

    DeterministicAugmenter(loader, transform, 2, seed=5, executor=RayExecutor(num_actors=16,
    address="auto"))

`executor` connects and says how many actors there are and where; `engine` starts actors, replaces
those that die, hands out batches and takes them in; `actors` is what runs on the nodes; `nodes`
compares them with this one.
"""

from detaug.ray.executor import RayExecutor

__all__ = ["RayExecutor"]
