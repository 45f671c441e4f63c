"""Which key of a call plays which role, and whole batches as samples.

A role is a key of a sample as transforms know it: ``image``, ``segmentation`` ... An array of the image's spatial shape
under a key without a role would stay as it is while the image is turned and mirrored. So it is an error. A batch is as
batchgenerators has it: ``data`` with ``seg`` or ``target``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from detaug.seeding.current import current
from detaug.transforms.building import draws

if TYPE_CHECKING:
    from detaug.transforms.building.base import Transform


#: A sample's keys. The first three are arrays of shape (channels, *space).
ROLES = ("image", "segmentation", "regression_target", "keypoints", "bbox")
_VOXELS = ROLES[:3]
#: A whole batch's keys, as batchgenerators and nnU-Net name them -> the role.
BATCH_ROLES = {
    "data": "image",
    "seg": "segmentation",
    "target": "segmentation",
    "regression_target": "regression_target",
    "keypoints": "keypoints",
    "bbox": "bbox",
}

#: The caller's name -> a role, a batch's key, or None for what is left as it is.
Keys = Mapping[str, str | None]


def checked_keys(keys: Keys | None) -> dict[str, str | None]:
    """A copy of a pipeline's ``keys=``; empty for None.

    Raises:
        TypeError: no mapping of strings to strings or None.
        ValueError: a role that there is not.
    """
    if keys is None:
        return {}
    if not isinstance(keys, Mapping) or not all(isinstance(name, str) for name in keys):
        raise TypeError(f"keys must map names to roles, as in {_EXAMPLE}, got {keys!r}")
    for name, role in keys.items():
        if role is not None and role not in (*ROLES, *BATCH_ROLES):
            raise ValueError(
                f"keys maps {name!r} to {role!r}, which is no role. Roles are {', '.join(ROLES)} (for whole batches also "
                "data, seg, target), and None for what is left as it is"
            )
    return dict(keys)


def is_batch(arrays: Mapping[str, Any], keys: Keys) -> bool:
    """Whether this is a batch (it has ``data``, or what ``keys`` calls so) rather than one sample.

    Raises:
        ValueError: it has a sample's keys as well, or both ``seg`` and ``target``.
    """
    if not any(keys.get(name) == "data" for name in arrays) and not ("data" in arrays and keys.get("data", "data")):
        return False
    if any(name in arrays and name not in keys for name in ("image", "segmentation")):
        raise ValueError("pass a batch (data, seg or target) or a sample (image, segmentation), not a mixture of both")
    if all(arrays.get(name) is not None and name not in keys for name in ("seg", "target")):
        raise ValueError("a batch may have seg or target as its segmentation, not both")
    return True


def sample_roles(arrays: Mapping[str, Any], keys: Keys) -> dict[str, str]:
    """The role of each of a sample's keys that has one.

    Raises:
        ValueError: a key without a role holds an array that should have one, or two keys have one role.
    """
    return _roles(arrays, keys, {role: role for role in ROLES}, lambda value: value)


def batch_roles(batch: Mapping[str, Any], keys: Keys) -> dict[str, str]:
    """The role of each of a batch's keys that has one and holds something. Raises as `sample_roles`."""
    roles = _roles(batch, keys, BATCH_ROLES, lambda value: value[0])
    return {name: role for name, role in roles.items() if batch[name] is not None}


def _roles(
    arrays: Mapping[str, Any], keys: Keys, known: Mapping[str, str], one_sample: Callable[[Any], Any]
) -> dict[str, str]:
    roles = {name: known[name] for name in arrays if name in known and name not in keys}
    roles |= {name: BATCH_ROLES.get(role, role) for name, role in keys.items() if role is not None and name in arrays}
    found: dict[str, str] = {}
    for name, role in roles.items():
        if arrays[name] is not None and found.setdefault(role, name) != name:
            raise ValueError(
                f"{found[role]} and {name} are both {role}: join them along their channels and pass one array, as "
                f"numpy.concatenate([{found[role]}, {name}]) makes it"
            )
    _refuse_unknown(arrays, roles, keys, known, one_sample)
    return roles


def check_dimensions(arrays: Mapping[str, Any], roles: Mapping[str, str], dims: int | None) -> None:
    """All arrays of voxels have as many spatial axes as each other, and as the pipeline is made for.

    Args:
        dims: 2 or 3; None: the pipeline does not say.

    Raises:
        ValueError: one has not; most probably its channel axis is missing.
    """
    expected = None if dims is None else (dims, f"this pipeline is made for {dims}-D samples")
    for name, role in roles.items():
        number = len(getattr(arrays[name], "shape", ())) - 1
        if role not in _VOXELS or number not in (2, 3):
            continue  # which has an error of its own
        if expected is None:
            expected = number, f"{name} has {number} spatial axes"
        if number != expected[0]:
            advice = f"if its channel axis is missing, pass {name}[None]"
            if number > expected[0]:
                advice = f'if it is a whole batch, say so by the pipeline\'s keys={{"{name}": "data"}}'
            raise ValueError(
                f"{name} of shape {tuple(arrays[name].shape)} does not fit: it must be (C, {', '.join('XYZ'[: expected[0]])}), "
                f"for {expected[1]}; {advice}"
            )


def by_role(
    arrays: Mapping[str, Any], roles: Mapping[str, str], function: Callable[[dict[str, Any]], dict[str, Any]]
) -> dict[str, Any]:
    """Call a function of a sample under its roles, and give the result under the caller's names."""
    if all(name == role for name, role in roles.items()) and all(name in roles or name not in ROLES for name in arrays):
        return function(dict(arrays))
    names = {role: name for name, role in roles.items() if arrays[name] is not None}
    left = {name: value for name, value in arrays.items() if value is None or (name not in roles and name in ROLES)}
    sample = {name: value for name, value in arrays.items() if name not in roles and name not in left}
    sample |= {role: arrays[name] for role, name in names.items()}
    found = {**{names.get(key, key): value for key, value in function(sample).items()}, **left}
    return {**{name: found[name] for name in arrays if name in found}, **found}


_EXAMPLE = 'keys={"image": "image", "label": "segmentation"}'


def _refuse_unknown(
    arrays: Mapping[str, Any],
    roles: Mapping[str, str],
    keys: Keys,
    known: Iterable[str],
    one_sample: Callable[[Any], Any],
) -> None:
    unknown = [name for name in arrays if name not in roles and name not in keys]
    if not unknown:
        return
    space: tuple[int, ...] = ()
    for name, role in roles.items():
        if role in _VOXELS and arrays[name] is not None:
            shape = tuple(getattr(one_sample(arrays[name]), "shape", ()))
            if len(shape) > 2 and (not space or role == "image"):
                space, reference = shape[1:], name
    nothing_known = not any(arrays[name] is not None for name in roles)
    known = [*(name for name, role in keys.items() if role is not None), *(name for name in known if name not in keys)]
    for name in unknown:
        for shape in _shapes_in(arrays[name]):
            if space and (shape[-len(space) :] == space or shape[: len(space)] == space):
                raise ValueError(
                    f"{name} is an array of shape {shape}, with the spatial shape of {reference}, but no key that this "
                    f"pipeline knows: it would stay as it is while {reference} is transformed. "
                    + _advice(name, roles, known, "segmentation")
                )
            if nothing_known and len(shape) > 1:
                raise ValueError(
                    f"{name} is an array of shape {shape}, but no key that this pipeline knows, nor is any other of this "
                    "call: nothing would be transformed. " + _advice(name, roles, known, "image")
                )


def _advice(name: str, roles: Mapping[str, str], known: Iterable[str], guess: str) -> str:
    declared = {**{each: role for each, role in roles.items() if role in _VOXELS}, name: guess}
    said = ", ".join(f'"{each}": "{role}"' for each, role in declared.items())
    return (
        f"Known keys are {', '.join(known)}. Say what yours are by the pipeline's argument keys, e.g. "
        f'Compose([...], keys={{{said}}}); "{name}": None leaves it as it is.'
    )


def _shapes_in(value: Any) -> list[tuple[int, ...]]:
    """Of an array, or of the arrays in a list of them."""
    items = value if isinstance(value, (list, tuple)) else [value]
    return [tuple(item.shape) for item in items if isinstance(item, (np.ndarray, torch.Tensor))]


def apply_to_batch(transform: Transform, batch: Mapping[str, Any], rng: np.random.Generator | None) -> dict[str, Any]:
    """Each sample separately, with its own Generator: of the running augmenter's sample children, or, with ``rng``,
    one keyed by a draw from it.

    Raises:
        ValueError: no samples, or not the same number of them under every key; and as `Transform.__call__`.
    """
    image = next(name for name in batch if transform.keys.get(name, name) == "data" or name == "data")
    count = len(batch[image])
    if count == 0:
        raise ValueError(f"the batch is empty: {image} has no samples")
    roles = batch_roles(batch, transform.keys)
    for name in roles:
        if len(batch[name]) != count:
            raise ValueError(f"{image} has {count} samples, but {name} has {len(batch[name])}")
    samples = [{name: batch[name][index] for name in roles} for index in range(count)]
    results = []
    for sample in samples:
        generator = (
            draws.generator_of(draws.key(rng))
            if rng is not None
            else generator_of_this_sample(type(transform).__name__)
        )
        results.append(transform.of_sample(sample, roles, generator))
    changed = {name: _as_batch([result[name] for result in results], batch[name]) for name in roles}
    added = {name: [result[name] for result in results] for name in results[0] if name not in batch}
    return {**batch, **changed, **added}


def generator_of_this_sample(name: str) -> np.random.Generator:
    """That of the next sample of the batch that is made here, for a transform of that name."""
    try:
        batch = current()
    except RuntimeError:
        raise RuntimeError(
            f"{name} was called without rng= and outside a DeterministicAugmenter. Pass the Generator to draw from, for "
            f"example {name}(...)(image=image, rng=detaug.SeedTree(seed).generator(epoch, step, sample=0)). There is no "
            "fall-back to a global random state."
        ) from None
    return batch.next_sample_generator()


def _as_batch(samples: list[Any], given: Any) -> Any:
    """Samples as one batch: stacked if the batch was an array, level by level for deep supervision, else a list."""
    if isinstance(samples[0], list):
        return [_as_batch([sample[level] for sample in samples], given) for level in range(len(samples[0]))]
    if isinstance(given, (list, tuple)):
        return type(given)(samples)
    if isinstance(samples[0], torch.Tensor):
        return torch.stack(samples)
    return np.stack(samples)
