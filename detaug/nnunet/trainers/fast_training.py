"""`FastTraining`: detaug's batches, and the arithmetic as fast as nnU-Net's own."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from detaug.nnunet.trainers.detaug_loading import DetAugLoading
from detaug.nnunet.trainers.mixin import DeterministicTraining
from detaug.nnunet.trainers.run_record import RunRecord


class FastTraining(DetAugLoading):
    """A mixin: `DetAugLoading` with nnU-Net's own cuDNN, compile and thread settings, and its own layers.

    Batches and first weights follow from the seed, also after ``--c``; sums on the GPU, and kernels that are chosen by
    timing, do not, so that two trainings with one seed are alike and not equal.
    """

    def _do_i_compile(self) -> bool:
        compiles: bool = super(DeterministicTraining, self)._do_i_compile()  # type: ignore[misc]
        return compiles

    def _set_switches(self) -> None:
        """None."""

    def _swap_layers(self, what: str, module: Any) -> None:
        """None."""

    def _record(self) -> RunRecord:
        return replace(super()._record(), cpu_threads=0)  # any number of them will do
