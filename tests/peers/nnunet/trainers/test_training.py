"""What the trainers do in nnU-Net's hooks, each with what happens without it."""

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
    return fingerprint(dict(trainer.network.state_dict()))


# --- network
# ------------------------------------------------------------------------------------------------------------


def test_the_seed_decides_the_first_weights(
    nnunet_environment: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = []
    for seed, trainer in (
        ("1", ShortDetAug),
        ("1", ShortDeterministic),
        ("2", ShortDetAug),
        ("1", Short),
        ("1", Short),
    ):
        monkeypatch.setenv("DETAUG_SEED", seed)
        made = initialized(nnunet_environment, trainer)
        found.append(weights(made))
    assert found[0] == found[1]
    assert len(set(found[1:])) == 4, "nnU-Net's are others every time"


def test_no_layer_is_left_that_cannot_repeat_itself(nnunet_environment: Path) -> None:
    made = initialized(nnunet_environment, ShortDetAug)
    kinds = {type(module) for part in (made.network, made.loss) for module in part.modules()}
    assert not kinds & {nn.CrossEntropyLoss, nn.NLLLoss, nn.AvgPool3d, nn.AvgPool2d}
    losses = [module for module in made.loss.modules() if isinstance(module, nn.CrossEntropyLoss)]
    assert losses, "nnU-Net's cross-entropy is still one"
    stock = initialized(nnunet_environment, Short)
    stock_losses = [
        type(module) for module in stock.loss.modules() if isinstance(module, nn.CrossEntropyLoss)
    ]
    assert type(losses[0]) is not stock_losses[0]


def test_networks_are_compiled_as_nnunet_decides_unless_torch_must_time_kernels(
    nnunet_environment: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    device = torch.device("cuda")
    for wanted in ("true", "false"):
        monkeypatch.setenv("nnUNet_compile", wanted)
        for trainer in (Short, ShortDetAug, ShortDeterministic):
            assert new_trainer(nnunet_environment, trainer, device=device)._do_i_compile() is (
                wanted == "true"
            )
    monkeypatch.setenv("nnUNet_compile", "true")
    initialized(nnunet_environment, ShortDetAug)
    assert torch._inductor.config.deterministic
    monkeypatch.delattr(torch._inductor.config, "deterministic")  # as in torch 2.8
    assert not new_trainer(nnunet_environment, ShortDetAug, device=device)._do_i_compile()


def test_the_fast_trainer_changes_batches_and_nothing_else(
    nnunet_environment: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class ShortFast(trainers.FastTraining, Short):
        pass

    monkeypatch.setenv("nnUNet_compile", "true")
    torch.use_deterministic_algorithms(False)
    threads = torch.get_num_threads()
    made, stock, deterministic = (
        new_trainer(nnunet_environment, kind) for kind in (ShortFast, Short, ShortDetAug)
    )
    made.initialize()
    assert not torch.are_deterministic_algorithms_enabled()
    assert torch.get_num_threads() == threads
    assert new_trainer(nnunet_environment, ShortFast, device=torch.device("cuda"))._do_i_compile()
    stock.initialize()
    assert [type(module) for module in made.loss.modules()] == [
        type(module) for module in stock.loss.modules()
    ]
    deterministic.initialize()
    assert weights(made) == weights(deterministic)
    batches = []
    for trainer in (made, deterministic):
        for loader in trainer.get_dataloaders():
            batches.append([fingerprint(next(loader)) for _ in range(len(loader))])
            loader.close()
    assert batches[:2] == batches[2:]
    assert made._record().cpu_threads == 0
    assert trainers.nnUNetTrainerDetAugFast_250epochs.__mro__[1] is trainers.FastTraining


# --- random numbers and switches
# -----------------------------------------------------------------------------------------


def drawn() -> tuple[float, float, float]:
    return random.random(), float(np.random.random()), float(torch.rand(()))


def test_every_epoch_starts_from_its_own_random_state(nnunet_environment: Path) -> None:
    made = initialized(nnunet_environment, ShortDetAug)
    found: dict[tuple[int, int], Any] = {}
    for epoch, rank in ((0, 0), (1, 0), (0, 1)):
        for _ in range(2):
            made.current_epoch, made.local_rank = epoch, rank
            made.logger.local_logger.my_fantastic_logging["lrs"] = [0.0] * epoch
            made.on_train_epoch_start()
            now = drawn()
            assert found.setdefault((epoch, rank), now) == now
    assert len({numbers for state in found.values() for numbers in state}) == 9


def switches() -> tuple[bool, bool, bool, bool]:
    return (
        torch.backends.cudnn.benchmark,
        torch.backends.cudnn.deterministic,
        torch.are_deterministic_algorithms_enabled(),
        torch.utils.deterministic.fill_uninitialized_memory,
    )


RIGHT = (False, True, True, False)


def test_switches_are_right_wherever_nnunet_computes(
    nnunet_environment: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`run_training` resets two of them after the trainer is made, nnUNetPredictor, of the final
    validation, one of them.
    """

    def predicts(self: Any, _: bool) -> None:
        nnUNetPredictor(device=torch.device("cuda"))
        assert torch.backends.cudnn.benchmark, "nnU-Net sets it"
        self.network(torch.zeros(1, 1, 28, 28, 28))

    monkeypatch.setattr(Short, "perform_actual_validation", predicts)
    made = initialized(nnunet_environment, ShortDetAug)
    assert switches() == RIGHT
    torch.backends.cudnn.deterministic, torch.backends.cudnn.benchmark = False, True
    made.on_train_epoch_start()
    assert switches() == RIGHT

    seen = []
    made.network.register_forward_hook(lambda *_: seen.append(switches()))
    made.perform_actual_validation()
    assert seen == [RIGHT]
    made.network(torch.zeros(1, 1, 28, 28, 28))


def test_torch_has_a_fixed_number_of_threads_on_a_cpu(
    nnunet_environment: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(1)
        for text, threads in (("2", 2), ("1", 1), (None, len(os.sched_getaffinity(0)))):
            if text is None:
                monkeypatch.delenv("DETAUG_CPU_THREADS")
            else:
                monkeypatch.setenv("DETAUG_CPU_THREADS", text)
            made = initialized(nnunet_environment, ShortDetAug)
            assert torch.get_num_threads() == made._record().cpu_threads == threads
        monkeypatch.setenv("DETAUG_CPU_THREADS", "all")
        with pytest.raises(ValueError, match="DETAUG_CPU_THREADS='all' in the environment must be"):
            initialized(nnunet_environment, ShortDetAug)
    finally:
        torch.set_num_threads(before)


# --- loaders
# ------------------------------------------------------------------------------------------------------------


def loaders(made: Any) -> tuple[Any, Any]:
    made.initialize()
    return made.get_dataloaders()


@BOTH
def test_loaders_begin_with_the_first_batch(nnunet_environment: Path, trainer: type) -> None:
    train, val = loaders(new_trainer(nnunet_environment, trainer))
    for loader, name, length in ((train, "train", 2), (val, "val", 1)):
        assert isinstance(loader, DeterministicAugmenter)
        assert (loader.seed, loader.name, loader.epoch, loader.step, len(loader)) == (
            1,
            name,
            0,
            0,
            length,
        )
        assert fingerprint(next(loader)) == fingerprint(loader.replay(0, 0))
    kind = PatchSource if trainer is ShortDetAug else nnUNetDataLoader
    assert type(train.generator) is kind is type(val.generator)


def test_more_batches_than_a_trainer_says_are_an_error_and_the_next_epoch_follows(
    nnunet_environment: Path,
) -> None:
    """Short's epochs have two batches."""
    train, val = loaders(new_trainer(nnunet_environment, ShortDetAug))
    with train, val:
        for epoch in (0, 1):
            train.set_epoch(epoch)
            taken = [fingerprint(next(train)) for _ in range(2)]
            assert (train.epoch, train.step) == (epoch, 2)
            assert taken == [fingerprint(train.replay(epoch, step)) for step in range(2)]
        with pytest.raises(
            RuntimeError,
            match="takes more than 2 train batches in an epoch, the number that it had set: ",
        ):
            next(train)


def test_every_trainer_of_nnunets_has_all_variants_under_its_name(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv(
        "nnUNet_extTrainer", str(Path(detaug.nnunet.__file__ or "").with_name("external"))
    )
    stock = every_trainer()
    assert len(stock) >= 77
    for name, base in stock.items():
        for word in ("DetAug", "DetAugFast", "Deterministic"):
            made = getattr(trainers, trainers.name_with(name, word))
            assert issubclass(made, (base, DeterministicTraining))
            if word == "DetAug":
                assert made.get_training_transforms.__module__.startswith("detaug."), name
    assert trainers.nnUNetTrainerDeterministic_5epochs.__mro__[1] is DeterministicTraining
    with pytest.raises(AttributeError, match="nnUNetTrainerDetAug_3epochs"):
        trainers.nnUNetTrainerDetAug_3epochs  # noqa: B018
    for name in ("nnUNet_TrainerDetAug_BS8", "nnUNet_Primus_M_TrainerDeterministic_BS8_2e4"):
        assert recursive_find_trainer_class_by_name(name).__name__ == name, "as nnU-Net finds it"


@pytest.mark.parametrize("mixin", [DeterministicTraining, DetAugLoading])
def test_a_mixin_behind_the_trainer_is_refused_with_the_right_line(mixin: type) -> None:
    class Named:
        pass

    for bases in ((Short, mixin), (Named, Short, mixin)):
        with pytest.raises(
            TypeError,
            match=rf"{mixin.__name__} must come before nnUNetTrainer among the bases of X, or it ",
        ):
            type("X", bases, {})
    assert type("X", (Named, mixin, Short), {}).__mro__.index(mixin) == 2
    assert type("X", (ShortDetAug, mixin), {}).get_dataloaders is ShortDetAug.get_dataloaders


def test_workers_end_with_a_training_that_fails(
    nnunet_environment: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("nnUNet_n_proc_DA", "2")

    class Failing(ShortDetAug):
        def train_step(self, batch: dict) -> dict:
            raise ZeroDivisionError

    made = new_trainer(nnunet_environment, Failing)
    with pytest.raises(ZeroDivisionError):
        made.run_training()
    with pytest.raises(Exception, match="closed"):
        next(made.dataloader_train)


class Troubled:
    """nnU-Net's transforms, with a generator that nothing seeds; the first worker to come here
    dies.
    """

    def __init__(self, transforms: Any, flag: Path) -> None:
        self.transforms, self.flag = transforms, flag

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

    made = new_trainer(nnunet_environment, Own)
    leftover = Path(made.output_folder) / ".detaug-0123456789abcdef.partial"
    leftover.touch()
    made.run_training()
    log = Path(made.log_file).read_text()
    opening = (
        f"detaug: training from PatchSource and {__name__}.Troubled (LocalProcesses, 2 processes, "
        "guard and check on); "
        "validation from PatchSource and Compose (LocalProcesses, 1 processes, guard and check "
        "on); torch.compile off; "
    )
    assert log.count(opening) == 1
    assert "detaug: seed=1 (from DETAUG_SEED)" in log, (
        "what is only information, as that kernels are compiled"
    )
    assert log.count("ended with signal 9 (SIGKILL)") == 1
    assert log.count("draws random numbers from the operating system, which no seed governs") == 1
    assert "the checkpoint lacks" not in log, (
        "nnU-Net's own trainers keep nothing that is not saved"
    )
    assert not leftover.exists()
    assert not list(leftover.parent.glob("ledger*")), "none is kept unless asked for"
    before = len(log)
    logging.getLogger("detaug").warning("nobody listens")
    assert len(Path(made.log_file).read_text()) == before


def test_a_loader_that_is_left_as_it_is_is_told_and_recorded(nnunet_environment: Path) -> None:
    class Own(ShortDeterministic):
        def get_dataloaders(self) -> Any:
            return nnUNetTrainer.get_dataloaders(self)

    made = new_trainer(nnunet_environment, Own)
    made.on_train_start()
    assert (
        made._record().loading
        == "batchgenerators.dataloading.single_threaded_augmenter.SingleThreadedAugmenter"
    )
    assert "training from a batchgenerators" in Path(made.log_file).read_text()


def test_detaug_nnunet_is_imported_without_nnunet(tmp_path: Path) -> None:
    program = (
        "import sys; sys.modules['nnunetv2'] = None\n"
        "import detaug.nnunet\n"
        "print(detaug.nnunet.training_transforms, detaug.nnunet.PatchSource)\n"
        "try: detaug.nnunet.nnUNetTrainerDetAug\n"
        "except ModuleNotFoundError as error: print(error)\n"
    )
    done = run_code(program, folder=tmp_path, environment=os.environ)
    assert done.returncode == 0, done.stderr
    assert "pip install 'detaug[nnunet]'" in done.stdout
