"""`PatchSource`: nnU-Net's loader, which reads only the voxels that the transforms will look at."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from batchgenerators.dataloading.data_loader import DataLoader
from numpy.random import Generator

from detaug.nnunet.loading.case_files import Case, CaseFolder
from detaug.nnunet.loading.case_patch import CasePatch
from detaug.seeding.batch_memory import empty
from detaug.seeding.current import current
from detaug.seeding.tree import positive_int
from detaug.transforms.building import draws
from detaug.transforms.building.base import Transform
from detaug.transforms.building.checks import probability

# How a batch is made:
#
#   rng of a sample -> case, place, params of the transforms   (`draw`, `Transform.sample`)
#   `CasePatch` -> the box that the params need is read        (`Transform.__call__`)
#   transformed sample -> its place in the batch's memory      (`_put`)

#: Values of voxels outside of the case.
IMAGE_PADDING = 0.0
LABEL_PADDING = -1


class PatchSource(DataLoader):  # type: ignore[misc]  # batchgenerators has no types
    """Batches of patches of nnU-Net's preprocessed cases, drawn as ``nnUNetDataLoader`` draws them.

    It takes that loader's arguments.

    For each sample, from its own Generator: a case, the patch's place in it, then the transforms'
    params. Only then are voxels read, and of them only those that the transforms will look at:
    nnU-Net reads the enlarged patch for every sample, though most of them are neither turned nor
    scaled. What lies outside of the case, or of the enlarged patch, is padding as nnU-Net has it
    (0, and -1 for labels; then what the spatial transform puts outside).

    Hand it to a `DeterministicAugmenter` as its loader, with no transform. It keeps nothing between
    batches.

    Args:
        data: the folder of a preprocessed configuration, or one of nnU-Net's own data set objects
            of it (for a cascade, or some of the cases).
        batch_size: samples per batch.
        patch_size: what is cut for the transforms, voxels along (X, Y, Z), or (Y, Z) for planes of
            volumes; larger than `final_patch_size` where the transforms turn and scale.
        final_patch_size: what the network gets.
        label_manager: nnU-Net's, for its labels and whether there is an ignore label.
        oversample_foreground_percent: the part of a batch that is made to show foreground: its last
            samples (rounded), or, with `probabilistic_oversampling`, each sample with this
            probability. nnU-Net's trainer has 0.33.
        sampling_probabilities: one per case, summing to 1; None: all alike.
        pad_sides: further voxels around every case that patches may reach into.
        transforms: `detaug.nnunet.training_transforms` and the like, applied to every sample. Any
            other callable with batchgeneratorsv2's calling convention works as well; it is handed
            the whole enlarged patch.

    A batch is ``{"data": (B, C, X, Y, Z) float32, "target": labels or a list of them, highest
    resolution first, "keys": identifiers}``, tensors, without the X axis for 2-D patches. Without
    transforms labels are int16.

    Raises:
        FileNotFoundError, ValueError: there are no such cases, or an argument is out of range.
    """

    def __init__(
        self,
        data: Any,
        batch_size: int,
        patch_size: Sequence[int],
        final_patch_size: Sequence[int],
        label_manager: Any,
        oversample_foreground_percent: float = 0.0,
        sampling_probabilities: Sequence[float] | None = None,
        pad_sides: Sequence[int] | None = None,
        probabilistic_oversampling: bool = False,
        transforms: Any = None,
    ) -> None:
        cases = _case_folder(data)
        super().__init__(
            cases,
            positive_int("batch_size", batch_size),
            num_threads_in_multithreaded=1,
            seed_for_shuffle=None,
            return_incomplete=True,
            shuffle=False,
            infinite=True,
            sampling_probabilities=sampling_probabilities,
        )
        self.cases = cases
        self.indices = cases.identifiers
        patch, final = _sizes(patch_size, final_patch_size)
        self.patch_size_was_2d = len(patch) == 2
        missing_axes = 3 - len(patch)
        self.patch_size = (1,) * missing_axes + patch
        self.final_patch_size = (1,) * missing_axes + final
        self.pad_sides: tuple[int, ...] | None = None
        further = (0,) * len(patch)
        if pad_sides is not None:
            self.pad_sides = tuple(int(n) for n in pad_sides)
            further = self.pad_sides
        if len(further) != len(patch):
            raise ValueError(f"pad_sides must have {len(patch)} numbers, got {pad_sides!r}")
        further = (0,) * missing_axes + further
        # Patches are read larger than the final ones: this margin may lie outside the case.
        self.need_to_pad = []
        for axis in range(3):
            margin = self.patch_size[axis] - self.final_patch_size[axis]
            self.need_to_pad.append(margin + further[axis])
        self.annotated_classes_key = (-1, *label_manager.all_labels)
        self.has_ignore = bool(label_manager.has_ignore_label)
        self.oversample_foreground_percent = probability(
            "oversample_foreground_percent", oversample_foreground_percent
        )
        self.probabilistic_oversampling = bool(probabilistic_oversampling)
        self.sampling_probabilities = sampling_probabilities
        _cumulative(sampling_probabilities, len(self.indices))
        self.transforms = transforms

    def generate_train_batch(self) -> dict[str, Any]:
        """Return the batch that the running augmenter wants.

        Its sample n is made from the batch's sample child n.

        Raises:
            RuntimeError: no `DeterministicAugmenter` is making a batch here; `sample` makes single
                samples anywhere.
        """
        batch = current()
        arrays: list[np.ndarray] = []
        keys = []
        for number in range(self.batch_size):
            # Each from its own child: what one sample draws changes no other.
            sample = self.sample(batch.next_sample_generator(), number)
            levels = sample["segmentation"]
            has_levels = isinstance(levels, list)
            if not has_levels:
                levels = [levels]
            parts = [np.asarray(part) for part in (sample["image"], *levels)]
            if not arrays:
                # In a worker, their memory lies where the batch will travel: it is not copied.
                arrays = [empty((self.batch_size, *part.shape), part.dtype) for part in parts]
            # Each sample goes to its place while it is still in the CPU's cache.
            for part, array in zip(parts, arrays, strict=True):
                _put(part, array, number)
            keys.append(sample["key"])
        data, *targets = map(torch.from_numpy, arrays)
        batch_of_samples = {"data": data, "target": targets, "keys": keys}
        if not has_levels:
            batch_of_samples["target"] = targets[0]
        return batch_of_samples

    def sample(self, rng: Generator, number: int = 0) -> dict[str, Any]:
        """Return one sample of a batch.

        Args:
            rng: where everything about it is drawn from.
            number: which sample of the batch it is; the last ones show foreground.

        Returns:
            ``image``, ``segmentation`` and whatever else the transforms add; ``key``, the case's
                name.
        """
        identifier, _, volumes = self.draw(rng, number)
        arrays: dict[str, Any]
        if isinstance(self.transforms, Transform):
            # They read from the volumes themselves, and only what they need.
            arrays = self.transforms(rng=rng, **volumes)
        else:
            arrays = {name: torch.from_numpy(volume.read_all()) for name, volume in volumes.items()}
            if self.transforms is not None:
                arrays = self.transforms(**arrays)
        return {**arrays, "key": identifier}

    def draw(self, rng: Generator, number: int = 0) -> tuple[str, list[int], dict[str, CasePatch]]:
        """Draw a case and a patch of it, and read nothing yet. Arguments as `sample`.

        Returns:
            The case's name, the first voxel of the patch, and the return value of `patch`.
        """
        # The order of these draws must stay: a seed's patches depend on it.
        identifier = self.indices[self._draw_case(rng)]
        foreground = self._wants_foreground(rng, number)
        case = self.cases.open(identifier)
        start = self._draw_start(rng, case, foreground)
        return identifier, start, self.patch(case, start)

    def patch(self, case: Case, start: Sequence[int]) -> dict[str, CasePatch]:
        """Return ``image`` and ``segmentation`` of the patch that begins at a voxel of a case.

        They are not read yet. The previous stage's segmentation is the second channel of
        ``segmentation``.
        """
        labels = [case.segmentation]
        if case.previous_stage is not None:
            labels.append(case.previous_stage)
        box = (start, self.patch_size)
        is_flat = self.patch_size_was_2d
        return {
            "image": CasePatch([case.image], *box, IMAGE_PADDING, np.float32, is_flat),
            "segmentation": CasePatch(labels, *box, LABEL_PADDING, np.int16, is_flat),
        }

    def _draw_case(self, rng: Generator) -> int:
        """Draw the index of a case."""
        shares = _cumulative(self.sampling_probabilities, len(self.indices))
        if shares is None:
            return draws.integer(rng, len(self.indices))
        # side="right": a case of probability 0 is never drawn, not even by a 0 exactly.
        index = np.searchsorted(shares, draws.uniform(rng), side="right")
        return int(index.clip(0, len(shares) - 1))

    def _wants_foreground(self, rng: Generator, number: int) -> bool:
        """Return True if a sample is to show foreground, which may be drawn."""
        if self.probabilistic_oversampling:
            return draws.happens(rng, self.oversample_foreground_percent)
        first = round(self.batch_size * (1 - self.oversample_foreground_percent))
        return bool(number >= first)

    def _draw_start(self, rng: Generator, case: Case, foreground: bool) -> list[int]:
        """Draw the first voxel of a patch, as nnU-Net v2.8's ``nnUNetDataLoader.get_bbox`` does.

        Anywhere in the padded case, each place as likely as the others; with `foreground`, about a
        random voxel of a random class of those that the case has; with an ignore label and without
        `foreground`, about a random annotated voxel.
        """
        space = case.image.shape[1:]
        sizes = self.patch_size
        # For both sides together; a case that is smaller than the patch is padded to its size.
        pads = []
        for wanted, size, n in zip(self.need_to_pad, sizes, space, strict=True):
            pads.append(max(wanted, size - n))
        lowest = [-pad // 2 for pad in pads]
        voxels = None
        if foreground or self.has_ignore:
            voxels = self._draw_class(rng, case, foreground)
        if voxels is None:
            start = []
            for n, pad, size, low in zip(space, pads, sizes, lowest, strict=True):
                high = n + pad // 2 + pad % 2 - size
                start.append(low + draws.integer(rng, high - low + 1))
            return start
        # The first number of a voxel is the channel.
        _, *centre = voxels[draws.integer(rng, len(voxels))]
        # No upper limit, as in nnU-Net: what lies outside the case is padding.
        start = []
        for low, index, size in zip(lowest, centre, sizes, strict=True):
            start.append(max(low, int(index) - size // 2))
        return start

    def _draw_class(self, rng: Generator, case: Case, foreground: bool) -> Any:
        """Return the voxels of the class that the patch is to show; None: the case has none."""
        annotated = self.annotated_classes_key
        if not foreground:
            voxels = case.annotated_locations(annotated)
            if len(voxels) == 0:
                warnings.warn(
                    "a case has no annotated voxels: its patch is placed anywhere", stacklevel=2
                )
                return None
            return voxels
        of_classes = case.locations()
        present = [key for key, voxels in of_classes.items() if len(voxels) > 0]
        # The key of all annotated voxels is no class, unless there is nothing else to show.
        if annotated in present and len(present) > 1:
            present.remove(annotated)
        if not present:
            return None
        return of_classes[draws.choice(rng, present)]


def _case_folder(data: Any) -> CaseFolder:
    """Return a folder of cases, made from its path or from nnU-Net's own object."""
    if isinstance(data, CaseFolder):
        return data
    if isinstance(data, (str, Path)):
        return CaseFolder(data)
    try:
        return CaseFolder(
            data.source_folder, data.identifiers, data.folder_with_segs_from_previous_stage
        )
    except AttributeError:
        raise TypeError(
            "data must be a folder of preprocessed cases or one of nnU-Net's data set objects, got"
            f" {type(data).__name__}"
        ) from None


def _sizes(
    patch_size: Sequence[int], final_patch_size: Sequence[int]
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return both sizes as tuples of two or three numbers."""
    patch = _size("patch_size", patch_size)
    final = _size("final_patch_size", final_patch_size)
    if len(patch) not in (2, 3) or len(patch) != len(final):
        raise ValueError(
            f"patch_size and final_patch_size must have two or three numbers each, got {patch} and"
            f" {final}"
        )
    return patch, final


def _size(name: str, size: Sequence[int]) -> tuple[int, ...]:
    return tuple(positive_int(name, n) for n in np.asarray(size).tolist())


def _cumulative(probabilities: Sequence[float] | None, cases: int) -> np.ndarray | None:
    """Return the running sums of the cases' probabilities, up to 1; None: all are alike."""
    if probabilities is None:
        return None
    shares = np.asarray(probabilities, dtype=np.float64)
    # Not `any(shares < 0)`, which would accept NaN.
    is_valid = shares.shape == (cases,) and np.all(shares >= 0)
    if not is_valid or abs(float(shares.sum()) - 1) > 1e-6:
        raise ValueError(
            f"sampling_probabilities must be {cases} numbers, one per case, that sum to 1"
        )
    total = np.cumsum(shares)
    # Their sum may have been rounded, and the last case must reach up to 1.
    total /= total[-1]
    return total


def _put(sample: np.ndarray, batch: np.ndarray, number: int) -> None:
    """Put a sample into the batch's array."""
    if sample.shape != batch.shape[1:] or sample.dtype != batch.dtype:
        raise ValueError(
            f"sample {number} of a batch is {tuple(sample.shape)} of {sample.dtype}, those before"
            f" it are {tuple(batch.shape[1:])} of {batch.dtype}: the transforms must give all"
            " samples one shape"
        )
    batch[number] = sample
