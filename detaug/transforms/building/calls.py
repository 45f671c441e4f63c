"""A call of a transform: the roles of its arrays, and whole batches as samples.

A role is a key of a sample as transforms know it: ``image``, ``segmentation`` ... An array of the
image's spatial shape under a key without a role would stay as it is while the image is rotated and
mirrored, so it is an error. A batch has the form that batchgenerators uses: ``data`` with ``seg``
or ``target``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import numpy as np
import torch
from numpy.random import Generator

from detaug.seeding.current import current
from detaug.transforms.building import draws
from detaug.transforms.building.gate import VOXEL_KEYS
from detaug.transforms.building.grids import VoxelGrid
from detaug.transforms.building.stages import Applicable, apply_observed
from detaug.transforms.building.workspace import Workspace

#: The keys of a whole batch, as batchgenerators and nnU-Net name them -> the role.
BATCH_ROLES = {
    "data": "image",
    "seg": "segmentation",
    "target": "segmentation",
    "regression_target": "regression_target",
}
#: Keys whose values would have to move with the voxels, and do not.
_POINTS = ("keypoints", "bbox", "bboxes")

#: The caller's name -> a role, a batch's key, or None for an array that is left as it is.
Keys = Mapping[str, str | None]


class CallableTransform(Applicable, Protocol):
    """The part of a transform that a call uses (see `Transform` for the attributes)."""

    @property
    def keys(self) -> Keys: ...

    @property
    def moves_voxels(self) -> bool: ...

    @property
    def spatial_dims(self) -> int | None: ...

    def sample(self, rng: Generator, shapes: Any) -> dict[str, Any]:
        """Draw params for arrays of these shapes."""


def checked_keys(keys: Keys) -> dict[str, str | None]:
    """Return a copy of a pipeline's argument ``keys``.

    Raises:
        TypeError: it is no mapping of names.
        ValueError: it maps a name to something that is no role.
    """
    if not isinstance(keys, Mapping) or not all(isinstance(name, str) for name in keys):
        raise TypeError(
            'keys must map names to roles, as in keys={"image": "image", "label": "segmentation"},'
            f" got {keys!r}"
        )
    for name, role in keys.items():
        if role is not None and role not in (*VOXEL_KEYS, *BATCH_ROLES):
            raise ValueError(
                f"keys maps {name!r} to {role!r}, which is no role. Roles are"
                f" {', '.join(VOXEL_KEYS)} (for whole batches also data, seg, target), and None for"
                " what is left as it is"
            )
    return dict(keys)


def _is_batch(arrays: Mapping[str, Any], keys: Keys) -> bool:
    """Return whether this is a batch: it has ``data``, or the name that `keys` gives to it.

    Raises:
        ValueError: a mixture of batch and sample, or a batch with two segmentations.
    """
    has_renamed_data = any(keys.get(name) == "data" for name in arrays)
    has_data = "data" in arrays and bool(keys.get("data", "data"))
    if not has_renamed_data and not has_data:
        return False
    # A name in `keys` is the user's own, and may mean something else.
    if any(name in arrays and name not in keys for name in ("image", "segmentation")):
        raise ValueError(
            "pass a batch (data, seg or target) or a sample (image, segmentation), "
            "not a mixture of both"
        )
    if all(arrays.get(name) is not None and name not in keys for name in ("seg", "target")):
        raise ValueError("a batch may have seg or target as its segmentation, not both")
    return True


def roles_of(
    transform: CallableTransform, arrays: Mapping[str, Any], of_batch: bool = False
) -> dict[str, str]:
    """Return the role of each key that has one.

    Args:
        transform: the transform that is called.
        arrays: a sample's or a batch's arrays by the caller's names.
        of_batch: they are a batch.

    Raises:
        ValueError: a key without a role has an array that should have one, or points that should
            move with the voxels.
    """
    keys = transform.keys
    # `keys` goes before the usual meaning of a name.
    known = {role: role for role in VOXEL_KEYS}
    if of_batch:
        known = BATCH_ROLES
    roles = {name: known[name] for name in arrays if name in known and name not in keys}
    for name, role in keys.items():
        if role is not None and name in arrays:
            roles[name] = BATCH_ROLES.get(role, role)
    for name in arrays:
        if name in roles or name in keys:
            continue
        if name in _POINTS and arrays[name] is not None and transform.moves_voxels:
            raise ValueError(
                f"{name} would stay where they are while {type(transform).__name__} moves the"
                " voxels: detaug transforms no points and no boxes. Leave them out, or pass them on"
                f' as they are by keys={{"{name}": None}}'
            )
        known_names = list(dict.fromkeys((*keys, *known)))
        _check_unknown(name, arrays, roles, known_names, of_batch)
    return roles


def _check_unknown(
    name: str,
    arrays: Mapping[str, Any],
    roles: Mapping[str, str],
    known_names: Sequence[str],
    of_batch: bool,
) -> None:
    """Raise a ValueError if a value without a role seems to be an image or a segmentation."""
    present = {}
    for known_name, role in roles.items():
        if arrays[known_name] is not None:
            present[role] = arrays[known_name]
    reference = next((present[role] for role in VOXEL_KEYS if role in present), None)
    # Compare with the first sample, since the batch axis is no part of the shape. An empty batch,
    # which the caller refuses, has none.
    if of_batch and reference is not None:
        reference = next(iter(reference), None)
    space = tuple(getattr(reference, "shape", ()))[1:]
    # A list may hold the levels of deep supervision.
    items = arrays[name]
    if not isinstance(items, (list, tuple)):
        items = [items]
    for item in items:
        shape: tuple[int, ...] = ()
        if isinstance(item, (np.ndarray, torch.Tensor)):
            shape = tuple(item.shape)
        # The channel axis of an unknown array may be the first or the last one.
        fits = bool(space) and space in (shape[-len(space) :], shape[: len(space)])
        if fits or (not present and len(shape) > 1):
            role = "segmentation" if fits else "image"
            raise ValueError(
                f"{name} is an array of shape {shape}, but no key that this pipeline knows: it"
                f" would stay as it is. Known keys are {', '.join(known_names)}. Say what yours are"
                " by the pipeline's argument keys, e.g. Compose([...],"
                f' keys={{"{name}": "{role}"}}); "{name}": None leaves it as it is.'
            )


def _check_dimensions(
    arrays: Mapping[str, Any], roles: Mapping[str, str], dims: int | None
) -> None:
    """Raise a ValueError unless all arrays of voxels have the same number of spatial axes.

    Args:
        arrays: a sample's arrays by the caller's names.
        roles: the caller's name -> the role.
        dims: the number of axes that the pipeline is made for. None: that of the first array.
    """
    # Without `dims` the first array decides, and the error names the first that differs from it.
    expected = dims
    reason = f"this pipeline is made for {dims}-D samples"
    for name in roles:
        num_axes = len(getattr(arrays[name], "shape", ())) - 1
        if num_axes not in (2, 3):
            # `checked_array` has an error for it.
            continue
        if expected is None:
            expected = num_axes
            reason = f"{name} has {num_axes} spatial axes"
        if num_axes == expected:
            continue
        # The two usual mistakes: an array without channels, and a batch in place of a sample.
        advice = f"if its channel axis is missing, pass {name}[None]"
        if num_axes > expected:
            advice = f'if it is a whole batch, say so by the pipeline\'s keys={{"{name}": "data"}}'
        raise ValueError(
            f"{name} of shape {tuple(arrays[name].shape)} does not fit: it must be (C,"
            f" {', '.join('XYZ'[:expected])}), for {reason}; {advice}"
        )


def call(
    transform: CallableTransform, arrays: Mapping[str, Any], rng: Generator | None
) -> dict[str, Any]:
    """Implement `Transform.__call__`."""
    # With a seed instead of a Generator all samples would get the same params.
    if rng is not None and not isinstance(rng, Generator):
        seed = rng if isinstance(rng, int) else "seed"
        raise TypeError(
            f"rng must be a numpy.random.Generator, got {type(rng).__name__}: pass"
            f" detaug.SeedTree({seed}).generator(epoch, step, sample=0), or"
            f" numpy.random.default_rng({seed})"
        )
    if _is_batch(arrays, transform.keys):
        return _apply_to_batch(transform, arrays, rng)
    output, _ = call_on_grid(transform, arrays, roles_of(transform, arrays), rng)
    return output


def call_on_grid(
    transform: CallableTransform,
    arrays: Mapping[str, Any],
    roles: Mapping[str, str],
    rng: Generator | None,
    grid: VoxelGrid | None = None,
) -> tuple[dict[str, Any], VoxelGrid | None]:
    """Sample and apply params; return the resulting arrays and the grid of their voxels.

    Args:
        transform: the transform.
        arrays: the sample's arrays by the caller's names.
        roles: the caller's name -> the role.
        rng: the Generator to draw from. None: the batch's next sample child.
        grid: where the voxels of the arrays lie. None: unknown.
    """
    if rng is None:
        rng = _next_sample_generator(transform)
    workspace = _open_workspace(transform, arrays, roles, grid)
    params = transform.sample(rng, workspace.shapes())
    apply_observed(transform, workspace, params)
    return workspace.result(), workspace.grid


def _next_sample_generator(transform: CallableTransform) -> Generator:
    try:
        return current().next_sample_generator()
    except RuntimeError:
        name = type(transform).__name__
        raise RuntimeError(
            f"{name} was called without rng= and outside a DeterministicAugmenter. Pass the"
            f" Generator to draw from, for example {name}(...)(image=image,"
            " rng=detaug.SeedTree(seed).generator(epoch, step, sample=0)). There is no fall-back to"
            " a global random state."
        ) from None


def apply_with_roles(
    transform: CallableTransform,
    arrays: Mapping[str, Any],
    roles: Mapping[str, str],
    params: dict[str, Any],
) -> dict[str, Any]:
    """Apply params to one sample whose arrays' roles are known."""
    workspace = _open_workspace(transform, arrays, roles, None)
    apply_observed(transform, workspace, params)
    return workspace.result()


def _open_workspace(
    transform: CallableTransform,
    arrays: Mapping[str, Any],
    roles: Mapping[str, str],
    grid: VoxelGrid | None,
) -> Workspace:
    """Return a workspace with one sample's arrays, of the dimensions that the transform takes."""
    _check_dimensions(arrays, roles, transform.spatial_dims)
    return Workspace(arrays, roles, grid)


def _apply_to_batch(
    transform: CallableTransform, batch: Mapping[str, Any], rng: Generator | None
) -> dict[str, Any]:
    """Apply the transform to each sample of a batch, each with a Generator of its own.

    Args:
        transform: the transform.
        batch: arrays of shape (B, C, X, Y[, Z]) by the caller's names, and entries without a role.
        rng: each sample's Generator is keyed by a draw from it. None: they are the sample children
            of the running augmenter.
    """
    all_roles = roles_of(transform, batch, of_batch=True)
    roles = {name: role for name, role in all_roles.items() if batch[name] is not None}
    if not roles:
        raise ValueError(f"the batch has no arrays: {', '.join(all_roles)} are None")
    results = []
    for index in range(_count_samples(batch, roles)):
        sample = {name: batch[name][index] for name in roles}
        sample_rng = None
        if rng is not None:
            # Every sample takes one key from `rng`, whatever its transforms draw.
            sample_rng = draws.generator_of(draws.key(rng))
        result, _ = call_on_grid(transform, sample, roles, sample_rng)
        results.append(result)
    return _join_samples(results, batch, roles)


def _count_samples(batch: Mapping[str, Any], roles: Mapping[str, str]) -> int:
    """Return the number of samples, which is the same in all arrays that have a role.

    Raises:
        ValueError: it differs, or is 0.
    """
    # Errors compare with the image where there is one.
    names = [name for name, role in roles.items() if role == "image"]
    reference, *others = [*names, *roles]
    num_samples = len(batch[reference])
    # The shape and kind of the new batch are those of its samples' results.
    if num_samples == 0:
        raise ValueError(f"the batch is empty: {reference} has no samples")
    for name in others:
        if len(batch[name]) != num_samples:
            raise ValueError(
                f"{reference} has {num_samples} samples, but {name} has {len(batch[name])}"
            )
    return num_samples


def _join_samples(
    results: list[dict[str, Any]], batch: Mapping[str, Any], roles: Mapping[str, str]
) -> dict[str, Any]:
    """Return the batch with the results of its samples; entries without a role pass unchanged."""
    output = {name: value for name, value in batch.items() if name not in roles}
    for name in results[0]:
        samples = [result[name] for result in results]
        output[name] = samples
        if name in roles:
            output[name] = _as_batch(samples, batch[name])
    # In the caller's order; a key that the transform added comes last.
    order = dict.fromkeys((*batch, *output))
    return {name: output[name] for name in order if name in output}


def _as_batch(samples: list[Any], original: Any) -> Any:
    """Return samples as one batch, in the form of the original.

    Arrays are stacked, the levels of deep supervision one by one; a list or tuple stays one.
    """
    # Levels of deep supervision differ in shape: each becomes a batch of its own.
    if isinstance(samples[0], list):
        levels = []
        for level in range(len(samples[0])):
            levels.append(_as_batch([sample[level] for sample in samples], original))
        return levels
    if isinstance(original, (list, tuple)):
        return type(original)(samples)
    if isinstance(samples[0], torch.Tensor):
        return torch.stack(samples)
    return np.stack(samples)
