"""What the trainers do in nnU-Net's hooks, and what happens without it."""

from __future__ import annotations

import logging
import os
import random
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from nnunetv2.inference.predict_from_raw_data import nnUNetPredictor
from nnunetv2.training.dataloading.data_loader import nnUNetDataLoader
from nnunetv2.training.nnUNetTrainer.nnUNetTrainer import nnUNetTrainer
from nnunetv2.utilities.find_objects import recursive_find_trainer_class_by_name
from torch import nn

import detaug.nnunet
from detaug import DeterministicAugmenter, fingerprint
from detaug.nnunet import (
    DetAugLoading,
    DeterministicTraining,
    PatchSource,
    trainers,
    training_transforms,
)
from tests.peers.nnunet.trainers.in_process import (
    Short,
    ShortDetAug,
    ShortDeterministic,
    every_trainer,
    initialized,
    new_trainer,
)
from tests.support.preloaded import run_code

BOTH = pytest.mark.parametrize("trainer", [ShortDetAug, ShortDeterministic])


def weights(trainer: Any) -> str:
    """Return the fingerprint of a trainer's weights."""
    return fingerprint(dict(trainer.network.state_dict()))


# --- network


def test_the_seed_decides_the_first_weights(
    nnunet_environment: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def first_weights(trainer: type, seed: str) -> str:
        monkeypatch.setenv("DETAUG_SEED", seed)
        return weights(initialized(nnunet_environment, trainer))

    of_seed_1 = first_weights(ShortDetAug, "1")
    assert first_weights(ShortDeterministic, "1") == of_seed_1
    of_seed_2 = first_weights(ShortDetAug, "2")
    of_nnunet = [first_weights(Short, "1") for _ in range(2)]
    assert len({of_seed_1, of_seed_2, *of_nnunet}) == 4, "nnU-Net's are others every time"


def test_no_layer_is_left_that_cannot_repeat_itself(nnunet_environment: Path) -> None:
    trainer = initialized(nnunet_environment, ShortDetAug)
    modules = [*trainer.network.modules(), *trainer.loss.modules()]
    kinds = {type(module) for module in modules}
    assert kinds.isdisjoint({nn.CrossEntropyLoss, nn.NLLLoss, nn.AvgPool3d, nn.AvgPool2d})
    losses = cross_entropies(trainer)
    assert losses, "nnU-Net's cross-entropy is still one"
    stock_losses = cross_entropies(initialized(nnunet_environment, Short))
    assert type(losses[0]) is not type(stock_losses[0])


def cross_entropies(trainer: Any) -> list[nn.CrossEntropyLoss]:
    """Return the cross-entropies in a trainer's loss."""
    return [module for module in trainer.loss.modules() if isinstance(module, nn.CrossEntropyLoss)]


def test_networks_are_compiled_as_nnunet_decides_unless_torch_must_time_kernels(
    nnunet_environment: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def compiles(trainer: type) -> bool:
        on_gpu = new_trainer(nnunet_environment, trainer, device=torch.device("cuda"))
        return on_gpu._do_i_compile()

    for trainer in (Short, ShortDetAug, ShortDeterministic):
        monkeypatch.setenv("nnUNet_compile", "true")
        assert compiles(trainer) is True
        monkeypatch.setenv("nnUNet_compile", "false")
        assert compiles(trainer) is False
    monkeypatch.setenv("nnUNet_compile", "true")
    initialized(nnunet_environment, ShortDetAug)
    assert torch._inductor.config.deterministic
    # torch 2.8 has no such setting.
    monkeypatch.delattr(torch._inductor.config, "deterministic")
    assert not compiles(ShortDetAug)


def all_batches(trainer: Any) -> list[list[str]]:
    """Return the fingerprints of an epoch's batches for training and for validation."""
    fingerprints = []
    for loader in trainer.get_dataloaders():
        fingerprints.append([fingerprint(next(loader)) for _ in range(len(loader))])
        loader.close()
    return fingerprints


def test_the_fast_trainer_changes_batches_and_nothing_else(
    nnunet_environment: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class ShortFast(trainers.FastTraining, Short):
        pass

    monkeypatch.setenv("nnUNet_compile", "true")
    torch.use_deterministic_algorithms(False)
    threads_before = torch.get_num_threads()
    fast = initialized(nnunet_environment, ShortFast)
    assert not torch.are_deterministic_algorithms_enabled()
    assert torch.get_num_threads() == threads_before
    assert new_trainer(nnunet_environment, ShortFast, device=torch.device("cuda"))._do_i_compile()

    stock = initialized(nnunet_environment, Short)
    layers = [type(module) for module in fast.loss.modules()]
    assert layers == [type(module) for module in stock.loss.modules()]

    deterministic = initialized(nnunet_environment, ShortDetAug)
    assert weights(fast) == weights(deterministic)
    assert all_batches(fast) == all_batches(deterministic)
    assert fast._record().cpu_threads == 0
    assert trainers.nnUNetTrainerDetAugFast_250epochs.__mro__[1] is trainers.FastTraining


# --- random numbers and switches


def draw() -> tuple[float, float, float]:
    """Return a number of each global generator."""
    return random.random(), float(np.random.random()), float(torch.rand(()))


def test_every_epoch_starts_from_its_own_random_state(nnunet_environment: Path) -> None:
    trainer = initialized(nnunet_environment, ShortDetAug)

    def draw_in_epoch(epoch: int, rank: int) -> tuple[float, float, float]:
        trainer.current_epoch = epoch
        trainer.local_rank = rank
        trainer.logger.local_logger.my_fantastic_logging["lrs"] = [0.0] * epoch
        trainer.on_train_epoch_start()
        return draw()

    all_numbers: set[float] = set()
    for epoch, rank in ((0, 0), (1, 0), (0, 1)):
        numbers = draw_in_epoch(epoch, rank)
        assert draw_in_epoch(epoch, rank) == numbers
        all_numbers.update(numbers)
    assert len(all_numbers) == 9


def switches() -> tuple[bool, bool, bool, bool]:
    """Return the states of torch's switches of determinism."""
    return (
        torch.backends.cudnn.benchmark,
        torch.backends.cudnn.deterministic,
        torch.are_deterministic_algorithms_enabled(),
        torch.utils.deterministic.fill_uninitialized_memory,
    )


#: What `switches` returns in a training.
RIGHT = (False, True, True, False)


def test_switches_are_right_wherever_nnunet_computes(
    nnunet_environment: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """nnU-Net resets two switches in `run_training`, and one in the final validation."""

    def predict(self: Any, _: bool) -> None:
        nnUNetPredictor(device=torch.device("cuda"))
        assert torch.backends.cudnn.benchmark, "nnU-Net sets it"
        self.network(torch.zeros(1, 1, 28, 28, 28))

    monkeypatch.setattr(Short, "perform_actual_validation", predict)
    trainer = initialized(nnunet_environment, ShortDetAug)
    assert switches() == RIGHT
    torch.backends.cudnn.deterministic = False
    torch.backends.cudnn.benchmark = True
    trainer.on_train_epoch_start()
    assert switches() == RIGHT

    seen = []

    def record_switches(*_: Any) -> None:
        seen.append(switches())

    trainer.network.register_forward_hook(record_switches)
    trainer.perform_actual_validation()
    assert seen == [RIGHT]
    trainer.network(torch.zeros(1, 1, 28, 28, 28))


def test_torch_has_a_fixed_number_of_threads_on_a_cpu(
    nnunet_environment: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def check_threads(expected: int) -> None:
        trainer = initialized(nnunet_environment, ShortDetAug)
        assert torch.get_num_threads() == expected
        assert trainer._record().cpu_threads == expected

    threads_before = torch.get_num_threads()
    try:
        torch.set_num_threads(1)
        monkeypatch.setenv("DETAUG_CPU_THREADS", "2")
        check_threads(2)
        monkeypatch.setenv("DETAUG_CPU_THREADS", "1")
        check_threads(1)
        monkeypatch.delenv("DETAUG_CPU_THREADS")
        check_threads(len(os.sched_getaffinity(0)))
        monkeypatch.setenv("DETAUG_CPU_THREADS", "all")
        with pytest.raises(ValueError, match="DETAUG_CPU_THREADS='all' in the environment must be"):
            initialized(nnunet_environment, ShortDetAug)
    finally:
        torch.set_num_threads(threads_before)


# --- loaders


def loaders_of(root: Path, trainer: type) -> tuple[Any, Any]:
    """Return a trainer's loaders for training and for validation."""
    return initialized(root, trainer).get_dataloaders()


@BOTH
def test_loaders_begin_with_the_first_batch(nnunet_environment: Path, trainer: type) -> None:
    train, val = loaders_of(nnunet_environment, trainer)
    for loader, name, length in ((train, "train", 2), (val, "val", 1)):
        assert isinstance(loader, DeterministicAugmenter)
        assert loader.seed == 1
        assert loader.name == name
        assert loader.epoch == 0
        assert loader.step == 0
        assert len(loader) == length
        assert fingerprint(next(loader)) == fingerprint(loader.replay(0, 0))
        kind = PatchSource if trainer is ShortDetAug else nnUNetDataLoader
        assert type(loader.generator) is kind


def test_more_batches_than_a_trainer_says_are_an_error_and_the_next_epoch_follows(
    nnunet_environment: Path,
) -> None:
    """The epochs of `Short` have two batches."""
    train, val = loaders_of(nnunet_environment, ShortDetAug)
    message = "takes more than 2 train batches in an epoch, the number that it had set: "
    with train, val:
        for epoch in (0, 1):
            train.set_epoch(epoch)
            batches = [fingerprint(next(train)) for _ in range(2)]
            assert train.epoch == epoch
            assert train.step == 2
            assert batches == [fingerprint(train.replay(epoch, step)) for step in range(2)]
        with pytest.raises(RuntimeError, match=message):
            next(train)


def test_every_trainer_of_nnunets_has_all_variants_under_its_name(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    external = Path(detaug.nnunet.__file__ or "").with_name("external")
    monkeypatch.setenv("nnUNet_extTrainer", str(external))
    stock = every_trainer()
    assert len(stock) >= 77
    for name, base in stock.items():
        for word in ("DetAug", "DetAugFast", "Deterministic"):
            variant = getattr(trainers, trainers.name_with(name, word))
            assert issubclass(variant, (base, DeterministicTraining))
            if word == "DetAug":
                assert variant.get_training_transforms.__module__.startswith("detaug."), name
    assert trainers.nnUNetTrainerDeterministic_5epochs.__mro__[1] is DeterministicTraining
    with pytest.raises(AttributeError, match="nnUNetTrainerDetAug_3epochs"):
        trainers.nnUNetTrainerDetAug_3epochs  # noqa: B018
    for name in ("nnUNet_TrainerDetAug_BS8", "nnUNet_Primus_M_TrainerDeterministic_BS8_2e4"):
        assert recursive_find_trainer_class_by_name(name).__name__ == name, "as nnU-Net finds it"


@pytest.mark.parametrize("mixin", [DeterministicTraining, DetAugLoading])
def test_a_mixin_behind_the_trainer_is_refused_with_the_right_line(mixin: type) -> None:
    class Other:
        """A class of the user's that is neither a mixin nor a trainer."""

    message = rf"{mixin.__name__} must come before nnUNetTrainer among the bases of X, or it "
    for bases in ((Short, mixin), (Other, Short, mixin)):
        with pytest.raises(TypeError, match=message):
            type("X", bases, {})
    assert type("X", (Other, mixin, Short), {}).__mro__.index(mixin) == 2
    assert type("X", (ShortDetAug, mixin), {}).get_dataloaders is ShortDetAug.get_dataloaders


def test_workers_end_with_a_training_that_fails(
    nnunet_environment: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("nnUNet_n_proc_DA", "2")

    class Failing(ShortDetAug):
        def train_step(self, batch: dict) -> dict:
            raise ZeroDivisionError

    trainer = new_trainer(nnunet_environment, Failing)
    with pytest.raises(ZeroDivisionError):
        trainer.run_training()
    with pytest.raises(Exception, match="closed"):
        next(trainer.dataloader_train)


class Troubled:
    """A transform that creates a generator which nothing seeds, and calls other transforms.

    The first worker that calls it is killed, as long as a flag exists.
    """

    def __init__(self, transforms: Any, flag: Path) -> None:
        self.transforms = transforms
        self.flag = flag

    def __call__(self, **sample: Any) -> Any:
        np.random.default_rng()
        if self.flag.exists():
            self.flag.unlink()
            os.kill(os.getpid(), signal.SIGKILL)
        return self.transforms(**sample)


def test_nnunets_log_tells_what_the_training_is_made_of_and_what_was_found(
    nnunet_environment: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("nnUNet_n_proc_DA", "2")
    flag = tmp_path / "flag"
    flag.touch()

    class Own(ShortDetAug):
        @staticmethod
        def get_training_transforms(*arguments: Any, **options: Any) -> Any:
            return Troubled(training_transforms(*arguments, **options), flag)

    trainer = new_trainer(nnunet_environment, Own)
    leftover = Path(trainer.output_folder) / ".detaug-0123456789abcdef.partial"
    leftover.touch()
    trainer.run_training()
    log = Path(trainer.log_file).read_text()
    opening = (
        f"detaug: training from PatchSource and {__name__}.Troubled "
        "(LocalProcesses, 2 processes, guard and check on); "
        "validation from PatchSource and Compose "
        "(LocalProcesses, 1 processes, guard and check on); torch.compile off; "
    )
    assert log.count(opening) == 1
    assert "detaug: seed=1 (from DETAUG_SEED)" in log, "records of level INFO are in it as well"
    assert log.count("ended with signal 9 (SIGKILL)") == 1
    assert log.count("draws random numbers from the operating system, which no seed governs") == 1
    assert "the checkpoint lacks" not in log, "nnU-Net's own trainers save all that they keep"
    assert not leftover.exists()
    assert not list(leftover.parent.glob("ledger*")), "none is kept unless asked for"
    logging.getLogger("detaug").warning("nobody listens")
    assert Path(trainer.log_file).read_text() == log


def test_a_loader_that_is_left_as_it_is_is_told_and_recorded(nnunet_environment: Path) -> None:
    class Own(ShortDeterministic):
        def get_dataloaders(self) -> Any:
            return nnUNetTrainer.get_dataloaders(self)

    trainer = new_trainer(nnunet_environment, Own)
    trainer.on_train_start()
    module = "batchgenerators.dataloading.single_threaded_augmenter"
    assert trainer._record().loading == f"{module}.SingleThreadedAugmenter"
    assert "training from a batchgenerators" in Path(trainer.log_file).read_text()


def test_detaug_nnunet_is_imported_without_nnunet(tmp_path: Path) -> None:
    program = """
import sys
sys.modules["nnunetv2"] = None
import detaug.nnunet

print(detaug.nnunet.training_transforms, detaug.nnunet.PatchSource)
try:
    detaug.nnunet.nnUNetTrainerDetAug
except ModuleNotFoundError as error:
    print(error)
"""
    done = run_code(program, folder=tmp_path, environment=os.environ)
    assert done.returncode == 0, done.stderr
    assert "pip install 'detaug[nnunet]'" in done.stdout
