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
from detaug.transforms.building.checks import checked_array

if TYPE_CHECKING:
    from detaug.transforms.building.base import Transform


#: A sample's keys. The first three are arrays of shape (channels, *space).
ROLES = ("image", "segmentation", "regression_target", "keypoints", "bbox")
_VOXELS = ROLES[:3]
_SAMPLE_ROLES = {role: role for role in ROLES}
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


def checked_keys(keys: Keys) -> dict[str, str | None]:
    """A copy of a pipeline's ``keys=``; a TypeError if it is no mapping of names, a ValueError for a role that there is not."""
    if not isinstance(keys, Mapping) or not all(isinstance(name, str) for name in keys):
        raise TypeError(
            f'keys must map names to roles, as in keys={{"image": "image", "label": "segmentation"}}, got {keys!r}'
        )
    for name, role in keys.items():
        if role is not None and role not in (*ROLES, *BATCH_ROLES):
            raise ValueError(
                f"keys maps {name!r} to {role!r}, which is no role. Roles are {', '.join(ROLES)} (for whole batches also "
                "data, seg, target), and None for what is left as it is"
            )
    return dict(keys)


def is_batch(arrays: Mapping[str, Any], keys: Keys) -> bool:
    """Whether this is a batch (it has ``data``, or what ``keys`` calls so) rather than one sample; a ValueError for a mixture."""
    if not any(keys.get(name) == "data" for name in arrays) and not ("data" in arrays and keys.get("data", "data")):
        return False
    if any(name in arrays and name not in keys for name in ("image", "segmentation")):
        raise ValueError("pass a batch (data, seg or target) or a sample (image, segmentation), not a mixture of both")
    if all(arrays.get(name) is not None and name not in keys for name in ("seg", "target")):
        raise ValueError("a batch may have seg or target as its segmentation, not both")
    return True


def roles_of(
    arrays: Mapping[str, Any],
    keys: Keys,
    known: Mapping[str, str] = _SAMPLE_ROLES,
    one_sample: Callable[[Any], Any] = lambda value: value,
) -> dict[str, str]:
    """The role of each key that has one.

    Args:
        known: the roles of keys that `keys` does not name. one_sample: takes a sample's array out of what a key holds.

    Raises:
        ValueError: a key without a role holds an array that should have one.
    """
    roles = {name: known[name] for name in arrays if name in known and name not in keys}
    roles |= {name: BATCH_ROLES.get(role, role) for name, role in keys.items() if role is not None and name in arrays}
    unknown = [name for name in arrays if name not in roles and name not in keys]
    if unknown:
        said = [
            *(name for name, role in keys.items() if role is not None),
            *(name for name in known if name not in keys),
        ]
        _refuse_unknown(unknown, arrays, roles, said, one_sample)
    return roles


def check_dimensions(arrays: Mapping[str, Any], roles: Mapping[str, str], dims: int | None) -> None:
    """A ValueError unless all arrays of voxels have as many spatial axes: ``dims`` where the pipeline is made for those."""
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
    """Call a function of a sample under its roles, and give the result under the caller's names.

    Several arrays of one role are one array meanwhile, joined along their first axis (channels, or rows of points); those
    that cannot be joined, or come back with another number of channels, are a ValueError.
    """
    if all(name == role for name, role in roles.items()) and all(name in roles or name not in ROLES for name in arrays):
        return function(dict(arrays))
    groups: dict[str, list[str]] = {}
    for name, role in roles.items():
        if arrays[name] is not None:
            groups.setdefault(role, []).append(name)
    untouched = [name for name in arrays if name not in roles]
    sample = {name: arrays[name] for name in untouched if name not in ROLES}
    for role, names in groups.items():
        sample[role] = arrays[names[0]] if len(names) == 1 else _joined(role, {name: arrays[name] for name in names})
    result = function(sample)
    found = {
        name: arrays[name] for name in arrays if name not in sample and (name in untouched or arrays[name] is None)
    }
    for role, names in groups.items():
        value = result.pop(role)
        found |= {names[0]: value} if len(names) == 1 else _parted(role, value, {name: arrays[name] for name in names})
    found |= {name: value for name, value in result.items() if name not in found}
    return {name: found[name] for name in [*(n for n in arrays if n in found), *(n for n in found if n not in arrays)]}


def _refuse_unknown(
    unknown: Iterable[str],
    arrays: Mapping[str, Any],
    roles: Mapping[str, str],
    known: Iterable[str],
    one_sample: Callable[[Any], Any],
) -> None:
    space: tuple[int, ...] = ()
    for name, role in roles.items():
        if role in _VOXELS and arrays[name] is not None:
            shape = tuple(getattr(one_sample(arrays[name]), "shape", ()))
            if len(shape) > 2 and (not space or role == "image"):
                space, reference = shape[1:], name
    nothing_known = not any(arrays[name] is not None for name in roles)
    for name in unknown:
        items = arrays[name] if isinstance(arrays[name], (list, tuple)) else [arrays[name]]
        for shape in [tuple(item.shape) for item in items if isinstance(item, (np.ndarray, torch.Tensor))]:
            if space and (shape[-len(space) :] == space or shape[: len(space)] == space):
                guess, why = "segmentation", f"it would stay as it is while {reference} is transformed"
                what = f"with the spatial shape of {reference}, but no key that this pipeline knows"
            elif nothing_known and len(shape) > 1:
                guess, why = "image", "nothing would be transformed"
                what = "but no key that this pipeline knows, nor is any other of this call"
            else:
                continue
            declared = {**{each: role for each, role in roles.items() if role in _VOXELS}, name: guess}
            said = ", ".join(f'"{each}": "{role}"' for each, role in declared.items())
            raise ValueError(
                f"{name} is an array of shape {shape}, {what}: {why}. Known keys are {', '.join(known)}. Say what yours are by "
                f'the pipeline\'s argument keys, e.g. Compose([...], keys={{{said}}}); "{name}": None leaves it as it is.'
            )


def _joined(role: str, arrays: Mapping[str, Any]) -> np.ndarray:
    checked = {name: checked_array(role, value) for name, value in arrays.items()}
    names = ", ".join(checked)
    if len({array.shape[1:] for array in checked.values()}) > 1:
        shapes = ", ".join(f"{name} {array.shape}" for name, array in checked.items())
        raise ValueError(f"arrays of one role ({role}) must have one spatial shape, got {shapes}")
    if role == "segmentation" and len({array.dtype for array in checked.values()}) > 1:
        dtypes = ", ".join(f"{name} {array.dtype}" for name, array in checked.items())
        raise ValueError(f"{names} are all segmentation, so they must have one dtype, got {dtypes}")
    return np.concatenate(list(checked.values()))


def _parted(role: str, value: Any, given: Mapping[str, Any]) -> dict[str, Any]:
    if isinstance(value, list):  # deep supervision's levels
        levels = [_parted(role, level, given) for level in value]
        return {name: [level[name] for level in levels] for name in given}
    counts = [len(array) for array in given.values()]
    if sum(counts) != len(value):
        raise ValueError(
            f"{', '.join(given)} are all {role}, {sum(counts)} channels together, and the pipeline made {len(value)} of "
            "them: which of them belong to which name is unknown. Pass them as one array"
        )
    found: dict[str, Any] = {}
    for (name, array), part in zip(given.items(), np.split(value, np.cumsum(counts)[:-1]), strict=True):
        as_tensor = isinstance(array, torch.Tensor)
        kind = array.numpy().dtype if as_tensor else array.dtype
        part = np.ascontiguousarray(part, kind if role in ("image", "regression_target") else None)
        found[name] = torch.from_numpy(part) if as_tensor else part
    return found


def apply_to_batch(transform: Transform, batch: Mapping[str, Any], rng: np.random.Generator | None) -> dict[str, Any]:
    """Each sample separately, with its own Generator: of the running augmenter's sample children, or, with ``rng``, one keyed
    by a draw from it. Raises as `Transform.__call__`."""
    image = next(name for name in batch if transform.keys.get(name, name) == "data" or name == "data")
    count = len(batch[image])
    if count == 0:
        raise ValueError(f"the batch is empty: {image} has no samples")
    roles = roles_of(batch, transform.keys, BATCH_ROLES, lambda value: value[0])
    roles = {name: role for name, role in roles.items() if batch[name] is not None}
    for name in roles:
        if len(batch[name]) != count:
            raise ValueError(f"{image} has {count} samples, but {name} has {len(batch[name])}")
    results = []
    for index in range(count):
        generator = (
            generator_of_this_sample(type(transform).__name__) if rng is None else draws.generator_of(draws.key(rng))
        )
        results.append(transform.of_sample({name: batch[name][index] for name in roles}, roles, generator))
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
