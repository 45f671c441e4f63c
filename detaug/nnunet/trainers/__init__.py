"""Reproducible trainers for nnU-Net v2, and the mixins that make any other trainer reproducible.
They need nnU-Net.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from detaug.nnunet.compatibility import find_trainer, is_nnunets_own, require_nnunet
from detaug.nnunet.proof import not_own, patch_source_of, why_loader_stays
from detaug.nnunet.trainers.mixin import DeterministicTraining
from detaug.nnunet.transforms import validation_transforms
from detaug.nnunet.variants import TRAINING_TRANSFORMS, extended_transforms

require_nnunet()


class _Pipeline:
    """A method that is detaug's where nnU-Net's own would be called (`ours`, by the trainer that
    defines it), and the trainer's where it has one of its own.
    """

    def __init__(self, method: str, ours: Mapping[str, Callable[..., Any]]) -> None:
        self._method, self._ours = method, ours

    def __get__(self, instance: Any, trainer: type) -> Callable[..., Any]:
        behind = trainer.__mro__[trainer.__mro__.index(DetAugLoading) + 1 :]
        owner = next((base for base in behind if self._method in vars(base)), None)
        if owner is None:
            raise AttributeError(f"{trainer.__name__} has no {self._method}")
        theirs, ours = vars(owner)[self._method], self._ours
        if is_nnunets_own(owner) and owner.__name__ in ours and not_own(theirs) is None:
            return ours[owner.__name__]
        bound: Callable[..., Any] = theirs.__get__(instance, trainer)
        return bound


class DetAugLoading(DeterministicTraining):
    """A mixin: `DeterministicTraining`, and cases are read and augmented by detaug, several times
    faster.

        class MyTrainer(DetAugLoading, nnUNetTrainerDA5):
            ...

    The pipelines of nnU-Net's own trainers are replaced by detaug's of the same distribution. A
    `get_training_transforms` or `get_validation_transforms` of your own stays as it is, and gets
    the whole enlarged patch.
    """

    get_training_transforms = _Pipeline("get_training_transforms", TRAINING_TRANSFORMS)
    get_validation_transforms = _Pipeline(
        "get_validation_transforms", {"nnUNetTrainer": validation_transforms}
    )

    def _replaced(self, loader: Any, name: str) -> Any:
        why = why_loader_stays(loader)
        if why is None and not_own(self.get_training_transforms) is None:
            why = f"detaug has no pipeline in place of that of {type(self).__name__}"
        if why is None:
            return patch_source_of(loader)
        self.print_to_log_file(f"detaug: {name}: nnU-Net's way of loading stays: {why}")
        return loader


class ExtendedAugmentation(DetAugLoading):
    """A mixin: `DetAugLoading` with the stronger pipeline for MRI, whatever the trainer's own
    (docs/nnunet.md).
    """

    get_training_transforms = staticmethod(extended_transforms)


class FastTraining(DetAugLoading):
    """A mixin: `DetAugLoading` with nnU-Net's own cuDNN, compile and thread settings, and its own
    layers.

    Batches and first weights follow from the seed, also after ``--c``; sums on the GPU, and kernels
    that are chosen by timing, do not, so that two trainings with one seed are alike and not equal.
    """

    def _do_i_compile(self) -> bool:
        compiles: bool = super(DeterministicTraining, self)._do_i_compile()
        return compiles

    def _set_switches(self) -> None:
        """None."""

    def _swap_layers(self, what: str, module: Any) -> None:
        """None."""

    def _threads(self) -> int:
        return 0  # any number of them will do

    def _machine(self) -> dict[str, Any]:
        return {}  # any machine will do


#: The word in a trainer's name -> its mixin; the longest words first.
_MIXINS: dict[str, type] = {
    "DetAugExt": ExtendedAugmentation,
    "DetAugFast": FastTraining,
    "Deterministic": DeterministicTraining,
    "DetAug": DetAugLoading,
}


def name_with(base: str, word: str) -> str:
    """The name of one of nnU-Net's trainers with a word behind its "Trainer"; where there is no
    "Trainer", at its end.
    """
    before, trainer, after = base.partition("Trainer")
    return f"{before}{trainer}{word}{after}"


def __getattr__(name: str) -> Any:
    """``nnUNetTrainerDetAug_250epochs`` is ``nnUNetTrainer_250epochs`` with `DetAugLoading`; so for
    every trainer that nnU-Net comes with (``nnUNet_Primus_S_TrainerDetAug``), and for each word of
    `_MIXINS`; any other name is an AttributeError.
    """
    for word, mixin in _MIXINS.items():
        stock = name.replace(word, "", 1)
        base = find_trainer(stock) if word in name and name_with(stock, word) == name else None
        if base is not None:
            described = f"`{base.__name__}` with `{mixin.__name__}`."
            # found here again when it is unpickled
            made = globals()[name] = type(
                name, (mixin, base), {"__module__": __name__, "__doc__": described}
            )
            return made
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


__all__ = ["DetAugLoading", "DeterministicTraining", "ExtendedAugmentation", "FastTraining"]
