"""Batches from a Ray cluster: the same bytes, made by other machines.

    from detaug import DeterministicAugmenter
    from detaug.ray import RayExecutor

    executor = RayExecutor(num_actors=16, address="auto")
    DeterministicAugmenter(loader, transform, 2, seed=5, executor=executor)

`executor` connects to the cluster, and has the number and options of actors; `engine` starts
actors, replaces those that die, assigns tasks and takes in batches; `actors` runs on the nodes;
`nodes` compares a node with the driver's.
"""

from detaug.ray.executor import RayExecutor

__all__ = ["RayExecutor"]
