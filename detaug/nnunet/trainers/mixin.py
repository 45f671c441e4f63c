"""`DeterministicTraining`: a mixin that makes nnU-Net's trainers reproducible.

All of it is hooks around nnU-Net's own methods, of any subclass; no code of nnU-Net is copied.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial, partialmethod
from hashlib import sha256
from pathlib import Path
from types import MappingProxyType
from typing import Any
from unittest import mock

import torch
from torch.nn.parallel import DistributedDataParallel

from detaug.augmenter.augmenter import DeterministicAugmenter
from detaug.engine.arguments import Check
from detaug.engine.executor import Executor
from detaug.ledger.header import portable
from detaug.nnunet.compatibility import (
    AVERAGES,
    BEST_AVERAGE,
    EPOCH_TIMES,
    LOGGED,
    Trainer,
    best_average,
    check_nnunet_version,
    is_checkpoint,
    is_nnunets_own,
    switched_on,
)
from detaug.nnunet.loading import PatchSource
from detaug.nnunet.machine import machine_of
from detaug.nnunet.run_record import (
    KEY,
    RunRecord,
    allowed_parts,
    loss_settings,
    optimiser_settings,
    plain,
    schedule_settings,
)
from detaug.nnunet.schedules import recorded_schedule, restore
from detaug.nnunet.trainers.cases import check_ground_truth, checked_fold
from detaug.nnunet.trainers.late_augmenter import (
    AugmenterRequest,
    LateAugmenter,
    requests_instead_of_augmenters,
)
from detaug.nnunet.trainers.output_folder import (
    CHECKPOINTS,
    checks_line,
    detaugs_log_to,
    ledger_in,
    named,
    opening_line,
    read_checkpoint,
    write_checkpoint,
)
from detaug.nnunet.trainers.seeded_methods import SeededMethods
from detaug.nnunet.trainers.unsaved_state import UnsavedState
from detaug.seeding.generators import seed_global_generators
from detaug.seeding.ranks import common_seed
from detaug.seeding.tree import SEED_VARIABLE, Seed, SeedTree, positive_int, text_of_seed
from detaug.system.atomic_files import remove_unfinished
from detaug.training.layers.swapping import swap_layers
from detaug.training.switches import Mode, compiles_reproducibly, set_deterministic_mode
from detaug.transforms.building.base import Transform
from detaug.versions import __version__

#: The number of threads that torch computes with on a CPU. Sums change with it: the checkpoint has
#: the number, and is not continued with another.
CPU_THREADS_VARIABLE = "DETAUG_CPU_THREADS"
#: The URL of an executor.
EXECUTOR_VARIABLE = "DETAUG_EXECUTOR"
#: Set to 1, every loader keeps a ledger next to the checkpoints.
LEDGER_VARIABLE = "DETAUG_LEDGER"

#: Entries of dataset.json by which labels are read.
LABELS = ("labels", "regions_class_order", "channel_names")
#: Attributes of a trainer by which patches are drawn.
SAMPLING = ("batch_size", "oversample_foreground_percent", "probabilistic_oversampling")

logger = logging.getLogger("detaug")


class DeterministicTraining(SeededMethods, Trainer):  # type: ignore[misc]
    """A mixin that makes any trainer of nnU-Net reproducible.

        class MyTrainer(DeterministicTraining, nnUNetTrainer):
            ...

    The seed comes from ``DETAUG_SEED``; without it one is drawn, and written to the log and the
    checkpoints. A continued training takes its checkpoint's. Two trainings with one seed write the
    same checkpoints, byte for byte, on one kind of machine (GPU, CPU, versions of torch and
    nnU-Net), with any number of loader processes, even if one of them was stopped or killed and
    continued with ``--c``.

    What each hook changes, and why, is a table in docs/nnunet.md. Whatever detaug logs during
    `run_training` goes to nnU-Net's log, with a line on what the training is made of and one on its
    checks; no process survives it.

    Attributes:
        deterministic_mode: as for `detaug.training.deterministic_mode`: True, or "warn" for
            networks with operations that are nondeterministic in torch (their results then differ
            from run to run).
    """

    deterministic_mode: Mode = True

    _check: Check = Check(guard=True)
    _run_seed: Seed | None = None
    _cases: Mapping[str, str] = MappingProxyType({})
    _split: Mapping[str, list[str]] = MappingProxyType({})
    _begun_with: Mapping[str, Any] = MappingProxyType({"optimiser": {}, "schedule": {}, "loss": {}})
    _continued: RunRecord | None = None
    _allowed: Sequence[str] = ()
    _first_weights: str | None = None
    _pretrained: str | None = None
    _unsaved: UnsavedState | None = None

    def __init_subclass__(cls, **options: Any) -> None:
        """Raise a TypeError where a trainer of nnU-Net's stands before the mixin.

        The mixin's hooks would then never run.
        """
        super().__init_subclass__(**options)
        bases = cls.__mro__[: cls.__mro__.index(DeterministicTraining)]
        late = next((base.__name__ for base in bases if is_nnunets_own(base)), None)
        if late is None:
            return
        mixin = next(
            base.__name__ for base in cls.__bases__ if issubclass(base, DeterministicTraining)
        )
        raise TypeError(
            f"{mixin} must come before {late} among the bases of {cls.__name__}, or it has no"
            f" effect and nothing is seeded: class {cls.__name__}({mixin}, ...)"
        )

    # --- seed -------------------------------------------------------------------------------------

    @property
    def run_seed(self) -> Seed:
        """The seed of the run, a non-negative integer or a list of them."""
        if self._run_seed is None:
            self._run_seed = self.seed_at_start
            if self._run_seed is None or os.environ.get(SEED_VARIABLE):
                # Asked again where it is in the environment: now its origin goes to nnU-Net's log.
                rank = self.local_rank if self.is_ddp else None
                self._run_seed = common_seed(rank)
            seed = text_of_seed(self._run_seed)
            self.print_to_log_file(
                f"detaug {__version__}: seed {seed} ({SEED_VARIABLE}={seed} repeats this training)",
                add_timestamp=False,
            )
        return self._run_seed

    def _seed_globals(self, branch: str, *epoch: int) -> None:
        """Seed Python's, NumPy's and torch's generators from a branch of the run's tree.

        The loaders have the branches "train" and "val".
        """
        seed_global_generators(SeedTree(self.run_seed).child(branch).sequence(*epoch))

    def _number_of_ranks(self) -> int:
        if self.is_ddp:
            return torch.distributed.get_world_size()
        return 1

    def _threads(self) -> int:
        """Return the number of torch's threads on a CPU; 0 on a GPU."""
        if self.device.type == "cpu":
            return torch.get_num_threads()
        return 0

    def _machine(self) -> dict[str, Any]:
        """Return the properties of this machine that decide the training's bytes."""
        loaders = (self.dataloader_train, self.dataloader_val)
        batches_vary = not all(map(_makes_its_own_bytes, loaders))
        return machine_of(self.device, self.network, batches_vary=batches_vary)

    # --- network ----------------------------------------------------------------------------------

    def initialize(self) -> None:
        if not self.was_initialized:
            check_nnunet_version()
            self._set_switches()
            self._seed_globals("initialization")
        # Otherwise DDP rebuilds its buckets after a process's first step. From three ranks on a
        # gradient's place in its bucket decides in which order ranks are summed, so that the first
        # step of a resumed training would round in another way.
        keeps_buckets = partialmethod(DistributedDataParallel.__init__, find_unused_parameters=True)
        with mock.patch.object(DistributedDataParallel, "__init__", keeps_buckets):
            super().initialize()
        self._swap_layers("network", self.network)
        # Before a checkpoint is loaded, and with it the optimiser's settings.
        self._begun_with = {
            "optimiser": optimiser_settings(self.optimizer),
            "schedule": schedule_settings(self.lr_scheduler),
            "loss": loss_settings(self.loss),
        }
        self._first_weights = _digest_of_weights(self.network)

    def _build_loss(self) -> Any:
        loss = super()._build_loss()
        self._swap_layers("loss", loss)
        return loss

    def _do_i_compile(self) -> bool:
        """Return nnU-Net's decision, or False where torch would choose kernels by timing."""
        return bool(super()._do_i_compile()) and compiles_reproducibly()

    def _swap_layers(self, name: str, module: Any) -> None:
        """Swap in deterministic layers, and log a report to nnU-Net's file."""
        if not isinstance(module, torch.nn.Module):
            return
        report = swap_layers(module)
        if report.swapped or report.could_not:
            self.print_to_log_file(
                f"detaug: {name}: {report}", add_timestamp=False, also_print_to_console=False
            )

    def _set_switches(self) -> None:
        """Set torch's switches for good: this process trains.

        nnU-Net resets them whenever it makes a predictor.
        """
        set_deterministic_mode(self.deterministic_mode, tf32=None)
        if self.device.type == "cpu":
            torch.set_num_threads(cpu_threads())

    # --- data -------------------------------------------------------------------------------------

    def get_dataloaders(self) -> tuple[Any, Any]:
        with requests_instead_of_augmenters(type(self)):
            train, val = super().get_dataloaders()
        return (
            self._augmenter(train, "train", self.num_iterations_per_epoch),
            self._augmenter(val, "val", self.num_val_iterations_per_epoch),
        )

    def _replaced(self, loader: Any, name: str) -> Any:
        """Return the source that makes the batches of nnU-Net's loader for "train" or "val"."""
        return loader

    def _augmenter(self, request: Any, name: str, iterations: int) -> Any:
        """Return the augmenter for "train" or "val".

        Args:
            request: from nnU-Net's `get_dataloaders`; anything but a request is returned itself.
            name: "train" or "val".
            iterations: batches of an epoch, for each rank.
        """
        if not isinstance(request, AugmenterRequest):
            return request
        ledger = None
        if switched_on(LEDGER_VARIABLE):
            ledger = ledger_in(Path(self.output_folder), name)
        augmenter = LateAugmenter(
            request.data_loader,
            request.transform,
            request.num_processes,
            # nnU-Net keeps that number in each of two queues; costly batches come in bursts.
            request.num_cached * 3 // 2,
            pin_memory=request.pin_memory,
            seed=self.run_seed,
            name=name,
            batches_per_epoch=iterations * self._number_of_ranks(),
            rank=self.local_rank if self.is_ddp else 0,
            world_size=self._number_of_ranks(),
            check=self._check,
            executor=_executor(name),
            ledger=ledger,
            replaced=partial(self._replaced, name=name),
            facts={"data": dict(self._cases)},
        )
        augmenter.set_epoch(self.current_epoch)
        return augmenter

    def _prepare_cases(self) -> None:
        """Check and fingerprint the cases of this fold."""
        fold = checked_fold(self)
        self._cases = fold.fingerprints
        self._split = {"training": fold.training, "validation": fold.validation}

    # --- the training's course --------------------------------------------------------------------

    def run_training(self) -> None:
        with detaugs_log_to(self.print_to_log_file):
            try:
                super().run_training()
            finally:
                self._close_loaders()

    def on_train_start(self) -> None:
        if not self.was_initialized:
            self.initialize()
        self._set_switches()
        # A wrong name in the environment is an error at once.
        allowed_parts()
        self._prepare_cases()
        check_ground_truth(self, self._split["validation"])
        if self.local_rank == 0:
            remove_unfinished(Path(self.output_folder))
        super().on_train_start()
        # Settled before the record is made, which describes what loads the batches.
        for loader in (self.dataloader_train, self.dataloader_val):
            if isinstance(loader, LateAugmenter):
                loader.settle()
        if self._continued is not None:
            self._check_continues(self._continued)
        else:
            self._keep_pretrained_weights()
            if Path(self.output_folder, CHECKPOINTS[0]).exists():
                logger.warning(
                    "%s in %s is of an earlier training: --c would continue that one and not this;"
                    " move the file away",
                    CHECKPOINTS[0],
                    self.output_folder,
                )
        loaders = {"training": self.dataloader_train, "validation": self.dataloader_val}
        self.print_to_log_file(opening_line(loaders, self._do_i_compile(), self._threads()))

    def _keep_pretrained_weights(self) -> None:
        """Write a checkpoint at once where the weights do not follow from the seed.

        ``--c`` takes no ``-pretrained_weights``, and would begin without them after a training that
        was killed before its first checkpoint.
        """
        weights = _digest_of_weights(self.network)
        if self.current_epoch != 0 or weights == self._first_weights:
            return
        self._pretrained = weights
        # As in nnU-Net's on_train_end: a checkpoint says which epoch is next.
        self.current_epoch -= 1
        try:
            self.save_checkpoint(os.path.join(self.output_folder, "checkpoint_latest.pth"))
        finally:
            self.current_epoch += 1
        self.print_to_log_file(f"detaug: begins with pretrained weights, SHA-256 {weights}")

    def _check_continues(self, earlier: RunRecord) -> None:
        """Raise unless this is the training of a checkpoint, which its first rank has written."""
        if self.local_rank != 0:
            return
        allowed = []
        for line in self._record().check_continues(earlier):
            allowed.append(f"epoch {self.current_epoch}: {line}")
        for difference in allowed:
            self.print_to_log_file(f"detaug: DETAUG_ALLOW accepts a change from {difference}")
        self._allowed = [*earlier.allowed, *allowed]

    def on_train_epoch_start(self) -> None:
        if self._unsaved is None:
            # Not in on_train_start, where a trainer of somebody's own adds what it keeps.
            self._unsaved = UnsavedState(self)
        self._unsaved.training_goes_on(Path(self.output_folder))
        self._set_switches()
        for loader in self._augmenters():
            loader.set_epoch(self.current_epoch)
        # Each rank has a seed of its own: otherwise dropout would be the same on all of them.
        self._seed_globals(f"epoch/rank/{self.local_rank}", self.current_epoch)
        super().on_train_epoch_start()

    def on_train_end(self) -> None:
        if self._unsaved is not None:
            self._unsaved.training_goes_on(Path(self.output_folder))
        super().on_train_end()
        self.print_to_log_file(checks_line(self._augmenters()))
        self._close_loaders()

    def perform_actual_validation(self, save_probabilities: bool = False) -> None:
        """Validate as nnU-Net does, with switches that its predictor does not change."""
        self._set_switches()
        self._seed_globals("final validation")

        def before_forward(*_: Any) -> None:
            self._set_switches()

        handle = self.network.register_forward_pre_hook(before_forward)
        try:
            super().perform_actual_validation(save_probabilities)
        finally:
            handle.remove()
        self._set_switches()

    def _augmenters(self) -> list[DeterministicAugmenter]:
        """Return the loaders that are detaug's."""
        loaders = (self.dataloader_train, self.dataloader_val)
        return [loader for loader in loaders if isinstance(loader, DeterministicAugmenter)]

    def _close_loaders(self) -> None:
        for loader in self._augmenters():
            loader.close()

    # --- checkpoints ------------------------------------------------------------------------------

    def save_checkpoint(self, filename: str) -> None:
        # The checkpoint's content is decided by this method and what a subclass adds to it. Only
        # the writing is ours.
        with mock.patch.object(torch, "save", self._write):
            super().save_checkpoint(filename)

    def load_checkpoint(self, filename_or_checkpoint: Any) -> None:
        checkpoint = filename_or_checkpoint
        if isinstance(checkpoint, (str, Path)):
            checkpoint = read_checkpoint(Path(checkpoint))
        record = RunRecord.from_checkpoint(checkpoint)
        if record is None:
            self.print_to_log_file(
                "detaug: this checkpoint has no record of a seed: the training before it cannot be"
                " repeated"
            )
        elif self._run_seed is None and not os.environ.get(SEED_VARIABLE):
            self._run_seed = record.seed
            self.print_to_log_file(
                f"detaug {__version__}: seed {record.seed}, from the checkpoint",
                add_timestamp=False,
            )
        # Compared with this training when it starts, and its loaders and cases are known.
        self._continued = record
        self._pretrained = None
        if record is not None:
            self._pretrained = record.pretrained
        # nnU-Net's checkpoints hold NumPy's scalars; nnUNetTrainer_warmup and its heirs forget to
        # ask for these.
        with mock.patch.object(torch, "load", partial(torch.load, weights_only=False)):
            super().load_checkpoint(filename_or_checkpoint)
        if record is not None:
            restore(self.lr_scheduler, self._begun_with["schedule"], record.schedule)
        averages = checkpoint[LOGGED].get(AVERAGES, [])
        setattr(self, BEST_AVERAGE, best_average(self, averages))

    def _record(self) -> RunRecord:
        """Return the record of the training as it is now."""
        plans = dict(self.plans_manager.plans)
        # ``--c`` sets this entry: it does not make two trainings different.
        plans.pop("continue_training", None)
        plans["configurations"] = {
            self.configuration_name: self.configuration_manager.configuration
        }
        labels = {name: self.dataset_json[name] for name in LABELS if name in self.dataset_json}
        return RunRecord(
            seed=self.run_seed,
            loading=self._loading(),
            data=dict(self._cases),
            cases=dict(self._split),
            plans=plain(plans),
            labels=plain(labels),
            pipeline={
                "train": _description(self.dataloader_train),
                "val": _description(self.dataloader_val),
            },
            sampling=plain({name: getattr(self, name, None) for name in SAMPLING}),
            optimiser=self._begun_with["optimiser"],
            schedule=recorded_schedule(self._begun_with["schedule"], self.lr_scheduler),
            loss=self._begun_with["loss"],
            iterations={
                "training": self.num_iterations_per_epoch,
                "validation": self.num_val_iterations_per_epoch,
            },
            world_size=self._number_of_ranks(),
            cpu_threads=self._threads(),
            machine=self._machine(),
            pretrained=self._pretrained,
            allowed=list(self._allowed),
        )

    def _loading(self) -> str:
        """Return whose loader makes the training's batches, whatever was asked for."""
        source = self.dataloader_train
        if isinstance(source, DeterministicAugmenter):
            source = source.generator
        if isinstance(source, PatchSource):
            return "detaug"
        if is_nnunets_own(type(source)):
            return "nnU-Net"
        return named(source)

    def _write(self, checkpoint: Any, file: Any, *_: Any, **__: Any) -> None:
        """Write the argument of `torch.save` in its canonical form.

        nnU-Net's checkpoint gets the training's record.
        """
        if is_checkpoint(checkpoint):
            logged = dict(checkpoint[LOGGED])
            # Times would make any two checkpoints different; nnU-Net only plots them.
            for name in EPOCH_TIMES:
                if name in logged:
                    logged[name] = [0.0] * len(logged[name])
            checkpoint = {**checkpoint, LOGGED: logged, KEY: self._record().as_dict()}
            if self._unsaved is not None:
                self._unsaved.checkpoint_is_written(self)
        write_checkpoint(checkpoint, file)


def _description(loader: Any) -> list[str]:
    """Return the description of a loader's pipeline."""
    if isinstance(loader, DeterministicAugmenter):
        return portable(loader.setup.declared)
    return [named(loader)]


def _makes_its_own_bytes(loader: Any) -> bool:
    """Return True if detaug's kernels make all of a loader's batches."""
    source = getattr(loader, "generator", None)
    return isinstance(source, PatchSource) and isinstance(source.transforms, Transform)


def _digest_of_weights(network: Any) -> str:
    """Return the SHA-256 of all parameters and buffers."""
    digest = sha256()
    for tensor in network.state_dict().values():
        if isinstance(tensor, torch.Tensor):
            values = tensor.detach().cpu().contiguous().flatten()
            # As bytes: NumPy has no bfloat16.
            digest.update(values.view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()


def cpu_threads() -> int:
    """Return the number of threads that torch is to compute with on a CPU.

    It is ``DETAUG_CPU_THREADS``, by default the number of all cores of this process.
    """
    text = os.environ.get(CPU_THREADS_VARIABLE)
    # In a container or under a scheduler a process may have only some of the machine's cores.
    if text is None and hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    if text is None:
        return os.cpu_count() or 1
    try:
        return positive_int(CPU_THREADS_VARIABLE, int(text))
    except ValueError:
        raise ValueError(
            f"{CPU_THREADS_VARIABLE}={text!r} in the environment must be a positive integer"
        ) from None


def _executor(name: str) -> Executor | None:
    """Return the executor of ``DETAUG_EXECUTOR`` for the loader "train" or "val"."""
    url = os.environ.get(EXECUTOR_VARIABLE)
    if not url:
        return None
    from detaug.ray.executor import RayExecutor

    executor = RayExecutor.from_url(url)
    if name == "train":
        return executor
    # Validation takes a fifth of the batches: half of the actors are enough.
    return replace(executor, num_actors=(executor.num_actors + 1) // 2)
