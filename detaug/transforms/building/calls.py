"""Which key of a call plays which role, and whole batches as samples.

A role is a key of a sample as transforms know it: ``image``, ``segmentation`` ... An array of the
image's spatial shape under a key without a role would stay as it is while the image is turned and
mirrored. So it is an error. A batch is as batchgenerators has it: ``data`` with ``seg`` or
``target``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import numpy as np
import torch

from detaug.seeding.current import current
from detaug.transforms.building import draws
from detaug.transforms.building.gate import VOXEL_KEYS
from detaug.transforms.building.grids import VoxelGrid
from detaug.transforms.building.stages import Applicable, apply_observed
from detaug.transforms.building.workspace import Workspace

#: A whole batch's keys, as batchgenerators and nnU-Net name them -> the role.
BATCH_ROLES = {
    "data": "image",
    "seg": "segmentation",
    "target": "segmentation",
    "regression_target": "regression_target",
}
#: What would have to move with the voxels, and does not.
_POINTS = ("keypoints", "bbox", "bboxes")

#: The caller's name -> a role, a batch's key, or None for what is left as it is.
Keys = Mapping[str, str | None]


class CallableTransform(Applicable, Protocol):
    """What a call needs of a transform (see `Transform` for the attributes)."""

    @property
    def keys(self) -> Keys: ...

    @property
    def moves_voxels(self) -> bool: ...

    @property
    def spatial_dims(self) -> int | None: ...

    def sample(self, rng: np.random.Generator, shapes: Any) -> dict[str, Any]:
        """Draw params for arrays of these shapes."""


def checked_keys(keys: Keys) -> dict[str, str | None]:
    """A copy of a pipeline's ``keys=``; a TypeError if it is no mapping of names, a ValueError for
    a role that there is not.
    """
    if not isinstance(keys, Mapping) or not all(isinstance(name, str) for name in keys):
        raise TypeError(
            f'keys must map names to roles, as in keys={{"image": "image", "label": '
            f'"segmentation"}}, got {keys!r}'
        )
    for name, role in keys.items():
        if role is not None and role not in (*VOXEL_KEYS, *BATCH_ROLES):
            raise ValueError(
                f"keys maps {name!r} to {role!r}, which is no role. Roles are "
                f"{', '.join(VOXEL_KEYS)} (for whole batches also "
                "data, seg, target), and None for what is left as it is"
            )
    return dict(keys)


def _is_batch(arrays: Mapping[str, Any], keys: Keys) -> bool:
    """Whether this is a batch (it has ``data``, or what ``keys`` calls so) rather than one sample;
    a ValueError for a mixture.
    """
    if not any(keys.get(name) == "data" for name in arrays) and not (
        "data" in arrays and keys.get("data", "data")
    ):
        return False
    if any(name in arrays and name not in keys for name in ("image", "segmentation")):
        raise ValueError(
            "pass a batch (data, seg or target) or a sample (image, segmentation), not a mixture "
            "of both"
        )
    if all(arrays.get(name) is not None and name not in keys for name in ("seg", "target")):
        raise ValueError("a batch may have seg or target as its segmentation, not both")
    return True


def roles_of(
    transform: CallableTransform, arrays: Mapping[str, Any], of_batch: bool = False
) -> dict[str, str]:
    """The role of each key that has one; a ValueError where a key without a role holds an array
    that should have one, or points that should move with the voxels.
    """
    keys = transform.keys
    known = BATCH_ROLES if of_batch else {role: role for role in VOXEL_KEYS}
    roles = {name: known[name] for name in arrays if name in known and name not in keys}
    roles |= {
        name: BATCH_ROLES.get(role, role)
        for name, role in keys.items()
        if role is not None and name in arrays
    }
    for name in arrays:
        if name not in roles and name not in keys:
            if name in _POINTS and arrays[name] is not None and transform.moves_voxels:
                raise ValueError(
                    f"{name} would stay where they are while {type(transform).__name__} moves the "
                    "voxels: detaug transforms no "
                    "points and no boxes. Leave them out, or pass them on as they are by "
                    f'keys={{"{name}": None}}'
                )
            _check_unknown(
                name,
                arrays,
                roles,
                [*keys, *(each for each in known if each not in keys)],
                of_batch,
            )
    return roles


def _check_unknown(
    name: str,
    arrays: Mapping[str, Any],
    roles: Mapping[str, str],
    known: Sequence[str],
    of_batch: bool,
) -> None:
    present = {role: arrays[each] for each, role in roles.items() if arrays[each] is not None}
    reference = next((present[role] for role in VOXEL_KEYS if role in present), None)
    if of_batch and reference is not None:
        reference = reference[0]
    space = tuple(getattr(reference, "shape", ()))[1:]
    for item in arrays[name] if isinstance(arrays[name], (list, tuple)) else [arrays[name]]:
        shape = tuple(item.shape) if isinstance(item, (np.ndarray, torch.Tensor)) else ()
        fits = bool(space) and space in (shape[-len(space) :], shape[: len(space)])
        if fits or (not present and len(shape) > 1):
            raise ValueError(
                f"{name} is an array of shape {shape}, but no key that this pipeline knows: it "
                "would stay as it is. Known keys "
                f"are {', '.join(known)}. Say what yours are by the pipeline's argument keys, e.g. "
                "Compose([...], "
                f'keys={{"{name}": "{"segmentation" if fits else "image"}"}}); "{name}": None '
                "leaves it as it is."
            )


def _check_dimensions(
    arrays: Mapping[str, Any], roles: Mapping[str, str], dims: int | None
) -> None:
    """A ValueError unless all arrays of voxels have as many spatial axes: ``dims`` where the
    pipeline is made for those.
    """
    expected = None if dims is None else (dims, f"this pipeline is made for {dims}-D samples")
    for name in roles:
        number = len(getattr(arrays[name], "shape", ())) - 1
        if number not in (2, 3):
            continue  # which has an error of its own
        if expected is None:
            expected = number, f"{name} has {number} spatial axes"
        if number != expected[0]:
            advice = f"if its channel axis is missing, pass {name}[None]"
            if number > expected[0]:
                advice = (
                    f'if it is a whole batch, say so by the pipeline\'s keys={{"{name}": "data"}}'
                )
            raise ValueError(
                f"{name} of shape {tuple(arrays[name].shape)} does not fit: it must be (C, "
                f"{', '.join('XYZ'[: expected[0]])}), "
                f"for {expected[1]}; {advice}"
            )


def call(
    transform: CallableTransform, arrays: Mapping[str, Any], rng: np.random.Generator | None
) -> dict[str, Any]:
    """`Transform.__call__`."""
    if rng is not None and not isinstance(rng, np.random.Generator):
        seed = rng if isinstance(rng, int) else "seed"
        raise TypeError(
            f"rng must be a numpy.random.Generator, got {type(rng).__name__}: pass "
            f"detaug.SeedTree({seed}).generator(epoch, step, sample=0), or "
            f"numpy.random.default_rng({seed})"
        )
    if _is_batch(arrays, transform.keys):
        return _apply_to_batch(transform, arrays, rng)
    return call_with_roles(transform, arrays, roles_of(transform, arrays), rng)


def call_with_roles(
    transform: CallableTransform,
    arrays: Mapping[str, Any],
    roles: Mapping[str, str],
    rng: np.random.Generator | None,
) -> dict[str, Any]:
    """`Transform.__call__` for one sample, of whose arrays the roles are known."""
    return call_on_grid(transform, arrays, roles, rng, None)[0]


def call_on_grid(
    transform: CallableTransform,
    arrays: Mapping[str, Any],
    roles: Mapping[str, str],
    rng: np.random.Generator | None,
    grid: VoxelGrid | None,
) -> tuple[dict[str, Any], VoxelGrid | None]:
    """As `call_with_roles`, of arrays whose voxels lie on a grid; also return the grid of the
    result.
    """
    try:
        drawing = current().next_sample_generator() if rng is None else rng
    except RuntimeError:
        name = type(transform).__name__
        raise RuntimeError(
            f"{name} was called without rng= and outside a DeterministicAugmenter. Pass the "
            "Generator to draw from, for "
            f"example {name}(...)(image=image, rng=detaug.SeedTree(seed).generator(epoch, step, "
            "sample=0)). There is no "
            "fall-back to a global random state."
        ) from None
    workspace = _checked_workspace(transform, arrays, roles, grid)
    apply_observed(transform, workspace, transform.sample(drawing, workspace.shapes()))
    return workspace.result(), workspace.grid


def apply_with_roles(
    transform: CallableTransform,
    arrays: Mapping[str, Any],
    roles: Mapping[str, str],
    params: Any,
) -> dict[str, Any]:
    """Apply params to one sample."""
    workspace = _checked_workspace(transform, arrays, roles, None)
    apply_observed(transform, workspace, params)
    return workspace.result()


def _checked_workspace(
    transform: CallableTransform,
    arrays: Mapping[str, Any],
    roles: Mapping[str, str],
    grid: VoxelGrid | None,
) -> Workspace:
    _check_dimensions(arrays, roles, transform.spatial_dims)
    return Workspace(arrays, roles, grid)


def _apply_to_batch(
    transform: CallableTransform, batch: Mapping[str, Any], rng: np.random.Generator | None
) -> dict[str, Any]:
    """Each sample separately, with its own Generator: of the running augmenter's sample children,
    or, with ``rng``, one keyed by a draw from it. Raises as `Transform.__call__`.
    """
    image = next(
        name for name in batch if transform.keys.get(name, name) == "data" or name == "data"
    )
    count = len(batch[image])
    if count == 0:
        raise ValueError(f"the batch is empty: {image} has no samples")
    roles = roles_of(transform, batch, of_batch=True)
    roles = {name: role for name, role in roles.items() if batch[name] is not None}
    for name in roles:
        if len(batch[name]) != count:
            raise ValueError(f"{image} has {count} samples, but {name} has {len(batch[name])}")
    results = []
    for index in range(count):
        sample = {name: batch[name][index] for name in roles}
        generator = None if rng is None else draws.generator_of(draws.key(rng))
        results.append(call_with_roles(transform, sample, roles, generator))
    made: dict[str, Any] = {name: [result[name] for result in results] for name in results[0]}
    made |= {
        name: _as_batch(samples, batch[name]) for name, samples in made.items() if name in roles
    }
    return {
        name: made.get(name, batch.get(name))
        for name in (*batch, *made)
        if name in made or name not in roles
    }


def _as_batch(samples: list[Any], given: Any) -> Any:
    """Samples as one batch: stacked if the batch was an array, level by level for deep supervision,
    else a list.
    """
    if isinstance(samples[0], list):
        return [
            _as_batch([sample[level] for sample in samples], given)
            for level in range(len(samples[0]))
        ]
    if isinstance(given, (list, tuple)):
        return type(given)(samples)
    if isinstance(samples[0], torch.Tensor):
        return torch.stack(samples)
    return np.stack(samples)
