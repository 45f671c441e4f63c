"""`PatchSource`: nnU-Net's loader, reading only the voxels that the transforms will look at."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from batchgenerators.dataloading.data_loader import DataLoader

from detaug.memory.batch_memory import empty
from detaug.nnunet.loading.case_files import Case, CaseFolder
from detaug.nnunet.loading.case_patch import CasePatch
from detaug.seeding.current import current
from detaug.seeding.tree import positive_int
from detaug.transforms.building import draws
from detaug.transforms.building.base import Transform
from detaug.transforms.building.checks import probability

IMAGE_PADDING, LABEL_PADDING = 0.0, -1


class PatchSource(DataLoader):  # type: ignore[misc]  # batchgenerators has no types
    """Batches of patches of nnU-Net's preprocessed cases, drawn as ``nnUNetDataLoader`` draws them
    and with its arguments.

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
            1,
            None,
            True,
            False,
            True,
            sampling_probabilities,
        )
        self.cases = cases
        self.indices = cases.identifiers
        patch, final = _sizes(patch_size, final_patch_size)
        self.patch_size_was_2d = len(patch) == 2
        lift = (1,) * (3 - len(patch))
        self.patch_size, self.final_patch_size = lift + patch, lift + final
        self.pad_sides = tuple(int(n) for n in pad_sides) if pad_sides is not None else None
        sides = (0,) * len(lift) + (self.pad_sides or (0,) * len(patch))
        if len(sides) != 3:
            raise ValueError(f"pad_sides must have {len(patch)} numbers, got {pad_sides!r}")
        self.need_to_pad = [
            p - f + s for p, f, s in zip(self.patch_size, self.final_patch_size, sides, strict=True)
        ]
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
        """The batch that the running augmenter wants: its sample n is made from the batch's sample
        child n.

        Raises:
            RuntimeError: no `DeterministicAugmenter` is making a batch here; `sample` makes single
                samples anywhere.
        """
        batch = current()
        made: list[np.ndarray] = []
        keys = []
        for number in range(self.batch_size):
            sample = self.sample(batch.next_sample_generator(), number)
            levels = sample["segmentation"]
            parts = [
                np.asarray(each)
                for each in (sample["image"], *(levels if isinstance(levels, list) else [levels]))
            ]
            # where the batch will travel, in a worker: it is then not copied any more
            made = made or [empty((self.batch_size, *each.shape), each.dtype) for each in parts]
            # each sample goes to its place while it is still in the CPU's cache
            for part, array in zip(parts, made, strict=True):
                _put(part, array, number)
            keys.append(sample["key"])
        data, *targets = map(torch.from_numpy, made)
        return {
            "data": data,
            "target": targets if isinstance(levels, list) else targets[0],
            "keys": keys,
        }

    def sample(self, rng: np.random.Generator, number: int = 0) -> dict[str, Any]:
        """One sample of a batch.

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
            arrays = self.transforms(rng=rng, **volumes)
        else:
            arrays = {name: torch.from_numpy(volume.read_all()) for name, volume in volumes.items()}
            if self.transforms is not None:
                arrays = self.transforms(**arrays)
        return {**arrays, "key": identifier}

    def draw(
        self, rng: np.random.Generator, number: int = 0
    ) -> tuple[str, list[int], dict[str, CasePatch]]:
        """(a case's name, the first voxel of a patch, what `patch` gives for it): nothing is read
        yet. Arguments as `sample`.
        """
        identifier = self.indices[self._draw_case(rng)]
        foreground = self._wants_foreground(rng, number)
        case = self.cases.open(identifier)
        start = self._draw_start(rng, case, foreground)
        return identifier, start, self.patch(case, start)

    def patch(self, case: Case, start: Sequence[int]) -> dict[str, CasePatch]:
        """``image`` and ``segmentation`` of the patch that begins at a voxel of a case, not read
        yet. The previous stage's segmentation is the second channel of ``segmentation``.
        """
        labels = [
            case.segmentation,
            *([case.previous_stage] if case.previous_stage is not None else []),
        ]
        box = (start, self.patch_size)
        return {
            "image": CasePatch(
                [case.image], *box, IMAGE_PADDING, np.float32, self.patch_size_was_2d
            ),
            "segmentation": CasePatch(
                labels, *box, LABEL_PADDING, np.int16, self.patch_size_was_2d
            ),
        }

    def _draw_case(self, rng: np.random.Generator) -> int:
        shares = _cumulative(self.sampling_probabilities, len(self.indices))
        if shares is None:
            return draws.integer(rng, len(self.indices))
        return int(
            np.searchsorted(shares, draws.uniform(rng), side="right").clip(0, len(shares) - 1)
        )

    def _wants_foreground(self, rng: np.random.Generator, number: int) -> bool:
        if self.probabilistic_oversampling:
            return draws.happens(rng, self.oversample_foreground_percent)
        return bool(number >= round(self.batch_size * (1 - self.oversample_foreground_percent)))

    def _draw_start(self, rng: np.random.Generator, case: Case, foreground: bool) -> list[int]:
        """The first voxel of a patch, by the rules of nnU-Net v2.8's ``nnUNetDataLoader.get_bbox``.

        Anywhere in the padded case, each place as likely as the others; with `foreground`, about a
        random voxel of a random class of those that the case has; with an ignore label and without
        `foreground`, about a random annotated voxel.
        """
        # for both sides together; a case that is smaller than the patch is padded to its size
        space, sizes = case.image.shape[1:], self.patch_size
        pads = [
            max(wanted, size - n)
            for wanted, size, n in zip(self.need_to_pad, sizes, space, strict=True)
        ]
        lowest = [-pad // 2 for pad in pads]
        places = self._places(rng, case, foreground) if foreground or self.has_ignore else None
        if places is None:
            highest = [
                n + pad // 2 + pad % 2 - size
                for n, pad, size in zip(space, pads, sizes, strict=True)
            ]
            return [
                low + draws.integer(rng, high - low + 1)
                for low, high in zip(lowest, highest, strict=True)
            ]
        voxel = places[draws.integer(rng, len(places))]
        # the first number is the channel
        return [
            max(low, int(at) - size // 2)
            for low, at, size in zip(lowest, voxel[1:], sizes, strict=True)
        ]

    def _places(self, rng: np.random.Generator, case: Case, foreground: bool) -> Any:
        """Return the voxels of the class that the patch is to show; None where the case has
        none.
        """
        annotated = self.annotated_classes_key
        if not foreground:
            places = case.annotated_locations(annotated)
            if len(places) == 0:
                warnings.warn(
                    "a case has no annotated voxels: its patch is cut anywhere", stacklevel=2
                )
                return None
            return places
        of_classes = case.locations()
        present = [key for key, places in of_classes.items() if len(places) > 0]
        if annotated in present and len(present) > 1:
            present.remove(annotated)
        return of_classes[draws.choice(rng, present)] if present else None


def _case_folder(data: Any) -> CaseFolder:
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
    patch = tuple(positive_int("patch_size", n) for n in np.asarray(patch_size).tolist())
    final = tuple(
        positive_int("final_patch_size", n) for n in np.asarray(final_patch_size).tolist()
    )
    if len(patch) not in (2, 3) or len(patch) != len(final):
        raise ValueError(
            f"patch_size and final_patch_size must have two or three numbers each, got {patch} and"
            f" {final}"
        )
    return patch, final


def _cumulative(probabilities: Sequence[float] | None, cases: int) -> np.ndarray | None:
    if probabilities is None:
        return None
    shares = np.asarray(probabilities, dtype=np.float64)
    if shares.shape != (cases,) or not np.all(shares >= 0) or abs(float(shares.sum()) - 1) > 1e-6:
        raise ValueError(
            f"sampling_probabilities must be {cases} numbers, one per case, that sum to 1"
        )
    total = np.cumsum(shares)
    total /= total[-1]
    return total


def _put(sample: np.ndarray, batch: np.ndarray, number: int) -> None:
    if sample.shape != batch.shape[1:] or sample.dtype != batch.dtype:
        raise ValueError(
            f"sample {number} of a batch is {tuple(sample.shape)} of {sample.dtype}, those before"
            f" it are {tuple(batch.shape[1:])} of {batch.dtype}: the transforms must give all"
            " samples one shape"
        )
    batch[number] = sample
