"""Reproducible trainers for nnU-Net v2, and mixins that make any other trainer reproducible.

They need nnU-Net.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from detaug.nnunet.compatibility import find_trainer, is_nnunets_own, require_nnunet
from detaug.nnunet.proof import not_own, patch_source_of, why_loader_stays
from detaug.nnunet.trainers.mixin import DeterministicTraining
from detaug.nnunet.transforms import validation_transforms
from detaug.nnunet.variants import TRAINING_TRANSFORMS

require_nnunet()


class _Pipeline:
    """A method that builds a pipeline: detaug's in place of nnU-Net's own.

    A trainer's method of its own stays.

    Args:
        method: the method's name.
        builders: detaug's functions, by the name of nnU-Net's trainer whose method they replace.
    """

    def __init__(self, method: str, builders: Mapping[str, Callable[..., Any]]) -> None:
        self._method = method
        self._builders = builders

    def __get__(self, instance: Any, trainer: type) -> Callable[..., Any]:
        # Search as `super()` does: `DetAugLoading` itself holds this descriptor.
        first = trainer.__mro__.index(DetAugLoading) + 1
        owners = (base for base in trainer.__mro__[first:] if self._method in vars(base))
        owner = next(owners, None)
        if owner is None:
            raise AttributeError(f"{trainer.__name__} has no {self._method}")
        original = vars(owner)[self._method]
        # Checked on every access: a method of nnU-Net's class may be replaced at any time.
        if is_nnunets_own(owner) and not_own(original) is None:
            builder = self._builders.get(owner.__name__)
            if builder is not None:
                return builder
        bound: Callable[..., Any] = original.__get__(instance, trainer)
        return bound


class DetAugLoading(DeterministicTraining):
    """A mixin: `DeterministicTraining`, with detaug's reading and augmentation of cases.

    They are several times faster.

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
        """Return a `PatchSource` in place of nnU-Net's loader, or the loader itself."""
        reason = why_loader_stays(loader)
        if reason is None and not_own(self.get_training_transforms) is None:
            reason = f"detaug has no pipeline in place of that of {type(self).__name__}"
        if reason is None:
            return patch_source_of(loader)
        self.print_to_log_file(f"detaug: {name}: nnU-Net's own loader is kept: {reason}")
        return loader


class FastTraining(DetAugLoading):
    """A mixin: `DetAugLoading` with nnU-Net's own layers, and cuDNN, compile and thread settings.

    Batches and first weights follow from the seed, also after ``--c``; sums on the GPU, and kernels
    that are chosen by timing, do not, so that two trainings with one seed are alike and not equal.
    """

    def _do_i_compile(self) -> bool:
        compiles: bool = super(DeterministicTraining, self)._do_i_compile()
        return compiles

    def _set_switches(self) -> None:
        """Do nothing: the switches stay as they are."""

    def _swap_layers(self, name: str, module: Any) -> None:
        """Do nothing: the layers stay as they are."""

    def _threads(self) -> int:
        """Return 0: any number of threads will do."""
        return 0

    def _machine(self) -> dict[str, Any]:
        """Return nothing: any machine will do."""
        return {}


#: The word in a trainer's name -> its mixin; the longest words first.
_MIXINS: dict[str, type] = {
    "DetAugFast": FastTraining,
    "Deterministic": DeterministicTraining,
    "DetAug": DetAugLoading,
}


def name_with(base: str, word: str) -> str:
    """Return the name of one of nnU-Net's trainers with a word after its "Trainer".

    Where there is no "Trainer", the word comes at the end.
    """
    before, trainer, after = base.partition("Trainer")
    return f"{before}{trainer}{word}{after}"


def __getattr__(name: str) -> Any:
    """Return a trainer of nnU-Net's with one of the mixins.

    ``nnUNetTrainerDetAug_250epochs`` is ``nnUNetTrainer_250epochs`` with `DetAugLoading`; so for
    every trainer that nnU-Net comes with (``nnUNet_Primus_S_TrainerDetAug``), and for each word of
    `_MIXINS`.

    Raises:
        AttributeError: there is no trainer of this name.
    """
    for word, mixin in _MIXINS.items():
        if word not in name:
            continue
        stock = name.replace(word, "", 1)
        # With the word in another place, the name is that of a trainer of the user's own.
        if name_with(stock, word) != name:
            continue
        base = find_trainer(stock)
        if base is None:
            continue
        docstring = f"`{base.__name__}` with `{mixin.__name__}`."
        trainer = type(name, (mixin, base), {"__module__": __name__, "__doc__": docstring})
        # It is found here when an object of the class is unpickled.
        globals()[name] = trainer
        return trainer
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


__all__ = ["DetAugLoading", "DeterministicTraining", "FastTraining"]
