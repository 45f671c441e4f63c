"""`DetAugLoading`: nnU-Net's trainer with detaug's loader and transforms."""

from __future__ import annotations

from typing import Any

from detaug.nnunet.compatibility import is_nnunets_own, minor_version
from detaug.nnunet.loading import PatchSource
from detaug.nnunet.loading.case_cache import chosen_cache
from detaug.nnunet.trainers.mixin import DeterministicTraining
from detaug.nnunet.transforms import validation_transforms
from detaug.nnunet.variants import pipelines_of


class DetAugLoading(DeterministicTraining):
    """A mixin: `DeterministicTraining`, and cases are read and augmented by detaug, several times faster.

        class MyTrainer(DetAugLoading, nnUNetTrainerDA5):
            ...

    The pipelines of nnU-Net's own trainers are replaced by detaug's of the same distribution. A `get_training_transforms`
    or `get_validation_transforms` of your own stays as it is, and gets the whole enlarged patch. With ``DETAUG_CASE_CACHE``
    cases are decompressed once per machine (`detaug.nnunet.loading.PatchSource`).
    """

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        _replace(cls, "get_training_transforms", pipelines_of(minor_version()))
        _replace(cls, "get_validation_transforms", {"nnUNetTrainer": validation_transforms})

    def get_dataloaders(self) -> tuple[Any, Any]:
        cache = chosen_cache(None)
        if cache is not None:
            self.print_to_log_file(f"detaug: case cache: {cache}", add_timestamp=False)
        return super().get_dataloaders()

    def _loader_class(self) -> Any:
        # with nnU-Net's own transforms, of a version for which detaug has none, its own loader stays as well
        return None if is_nnunets_own(_owner(type(self), "get_training_transforms")) else PatchSource


def _replace(trainer: type, method: str, ours: Any) -> None:
    """Give the class our pipeline, where it would have one of nnU-Net's own."""
    owner = _owner(trainer, method)
    if is_nnunets_own(owner) and owner.__name__ in ours:
        setattr(trainer, method, staticmethod(ours[owner.__name__]))


def _owner(trainer: type, method: str) -> type:
    """The class that defines it; object: none does."""
    return next((base for base in trainer.__mro__ if method in vars(base)), object)
