"""Every code block of README and docs runs as it is written, in the order of its page, as its reader would run it."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import numpy as np
import pytest
import torch

from detaug import DeterministicAugmenter
from detaug.cli import main
from detaug.training import rng_state, set_rng_state
from tests.support.preloaded import run_code

REPOSITORY = Path(__file__).parents[3]
PAGES = [REPOSITORY / "README.md", *sorted((REPOSITORY / "docs").glob("*.md"))]

BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)

#: Console lines that other tests run, or that no test can run; all others run here.
ELSEWHERE = {
    "pip install": "an installation; .ci/run makes one",
    "nnUNetv2_train": "1000 epochs; tests/peers/nnunet/trainers/test_command_line.py runs it for two",
    "detaug nnunet verify": "tests/peers/nnunet/verification runs it on a data set of its own",
    "detaug diff RESULTS": "tests/peers/nnunet/trainers/test_results.py runs it",
    "detaug nnunet export": "tests/peers/nnunet/trainers/test_results.py runs it",
    "detaug nnunet demo": "tests/peers/nnunet/test_toy_training.py runs it",
    "python -m tests.stress": "tests/stress/test_short_form.py runs the short form",
    "detaug preview my_package": "its loader has no images here; tests/processes/cli/test_preview_command.py has one that has",
    "detaug preview --nnunet": "tests/peers/nnunet/test_preview.py runs it on a data set of its own",
    "detaug bench": "tests/processes/cli/test_bench_command.py runs it for less than a minute",
    "python -m benchmarks": "tests/processes/benchmarks runs it",
}


def blocks(page: Path, *languages: str) -> list[tuple[int, str]]:
    """(line, code) of the page's blocks in these languages."""
    text = page.read_text(encoding="utf-8")
    found = [match for match in BLOCK.finditer(text) if match[1] in languages]
    return [(text.count("\n", 0, match.start(2)) + 1, match[2]) for match in found]


class Enough(Exception):
    """The reader's loop has shown what it does."""


class Loader:
    """As a reader's own: it draws from the global generators, and does not know of detaug."""

    number_of_threads_in_multithreaded = 2

    def __iter__(self) -> Loader:
        return self

    def __next__(self) -> dict[str, Any]:
        return {"data": np.random.random((1, 1, 4, 4, 4)).astype(np.float32)}


def flipped(**batch: Any) -> dict[str, Any]:
    return {**batch, "data": batch["data"][..., ::-1]}


class Training:
    """A reader's loop, for `detaug.training.compare_trainings`."""

    def __init__(self) -> None:
        torch.manual_seed(1)
        self.model = torch.nn.Linear(3, 1)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)
        self.step = 0

    def train(self, steps: int) -> None:
        while self.step < steps:
            self.step += 1
            self.optimizer.zero_grad()
            self.model(torch.rand(2, 3)).sum().backward()
            self.optimizer.step()

    def save(self, file: Path) -> None:
        torch.save({"model": self.model.state_dict(), "rng": rng_state(), "step": self.step}, file)

    def load(self, file: Path) -> None:
        checkpoint = torch.load(file, weights_only=True)
        self.model.load_state_dict(checkpoint["model"])
        set_rng_state(checkpoint["rng"])
        self.step = checkpoint["step"]


class Reader:
    """What a reader has before the first block of a page."""

    def __init__(self, folder: Path) -> None:
        self.augmenter = DeterministicAugmenter(Loader(), flipped, 0, seed=1234, name="train", batches_per_epoch=250)
        self.saved: list[dict[str, Any]] = []
        self.batches = 0
        shape = (1, 160, 160, 160)
        image, labels = np.zeros(shape, np.float32), np.zeros(shape, np.int16)
        image[:, 60:90] = labels[:, 60:90] = 1
        model = self.model()
        self.names: dict[str, Any] = {
            "DeterministicAugmenter": DeterministicAugmenter,
            "aug": self.augmenter,
            "augmenter": self.augmenter,
            "build_loss": torch.nn.CrossEntropyLoss,
            "build_model": self.model,
            "dataset": [np.full((1, 4, 4), i, np.float32) for i in range(6)],
            "checkpoint": {"data": self.augmenter.state_dict()},
            "file": folder / "checkpoint.pt",
            "image": image,
            "images": torch.randn(2, 1, 8, 8, 8),
            "inputs": torch.randn(2, 1, 8, 8, 8),
            "labels": labels,
            "loader": Loader(),
            "loss": torch.nn.CrossEntropyLoss(),
            "make": lambda: (Loader(), flipped),
            "make_training": Training,
            "model": model,
            "network": lambda patch: np.concatenate([patch, 1 - patch]),
            "optimizer": torch.optim.SGD(model.parameters(), lr=0.1),
            "save": self.save,
            "segmentation": labels,
            "target": torch.randint(0, 3, (2, 8, 8, 8)),
            "train_step": self.train_step,
            "transform": flipped,
        }

    @staticmethod
    def model() -> torch.nn.Module:
        return torch.nn.Sequential(
            torch.nn.Conv3d(1, 3, 3, padding=1), torch.nn.MaxPool3d(2), torch.nn.Upsample((8,) * 3)
        )

    def train_step(self, batch: dict[str, Any]) -> None:
        shape = np.shape(batch["data"] if isinstance(batch, dict) else batch)
        assert shape in ((1, 1, 4, 4, 4), (2, 1, 4, 4))
        self.batches += 1

    def save(self, checkpoint: dict[str, Any]) -> None:
        self.saved.append(checkpoint)
        if len(self.saved) == 2:
            raise Enough


@pytest.fixture
def reader(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Reader]:
    """A reader in a folder of their own; what a page sets for the whole program is put back."""
    monkeypatch.chdir(tmp_path)
    before = torch.random.get_rng_state(), torch.are_deterministic_algorithms_enabled(), dict(os.environ)
    made = Reader(tmp_path)
    yield made
    for each in made.names.values():
        if isinstance(each, DeterministicAugmenter):
            each.close()
    torch.random.set_rng_state(before[0])
    torch.use_deterministic_algorithms(before[1])
    os.environ.clear()
    os.environ.update(before[2])


def preprocessed_cases(folder: Path) -> None:
    """What nnU-Net's preprocessing leaves, in its own file format."""
    from nnunetv2.training.dataloading.nnunet_dataset import nnUNetDatasetBlosc2

    folder.mkdir(parents=True)
    labels = np.zeros((1, 40, 40, 40), np.int8)
    labels[:, 10:20] = 1
    for name in ("brain_000", "brain_001"):
        properties = {"class_locations": {1: np.argwhere(labels == 1)[::50]}}
        nnUNetDatasetBlosc2.save_case(labels.astype(np.float32), labels, properties, str(folder / name))


#: Pages whose blocks take half a minute.
MARKS = {"verify.md": [pytest.mark.slow], "loader.md": [pytest.mark.slow]}


@pytest.mark.parametrize(
    "page",
    [pytest.param(page, id=page.name, marks=MARKS.get(page.name, [])) for page in PAGES if blocks(page, "python")],
)
def test_python_blocks_of_a_page_run_one_after_the_other(page: Path, reader: Reader) -> None:
    if page.name in ("nnunet.md", "loader.md"):
        pytest.importorskip("nnunetv2")
    if page.name == "loader.md":
        preprocessed_cases(Path("nnUNet_preprocessed/Dataset001_Brain/nnUNetPlans_3d_fullres"))
    names = reader.names
    for line, code in blocks(page, "python"):
        if "audit(" in code:
            names["labels"] = torch.randint(0, 3, (2, 8, 8, 8))
        # lines of an error are the page's own
        compiled = compile("\n" * (line - 1) + code, str(page), "exec", dont_inherit=True)
        try:
            exec(compiled, names)
        except Enough:
            assert reader.batches == 500, "an epoch has 250 batches"
            names["aug"] = reader.augmenter  # the page's own was closed at the end of its `with` block
            names["checkpoint"] = {"data": reader.saved[-1]["data"]}


def console_lines() -> list[Any]:
    found = []
    for page in PAGES:
        for line, code in blocks(page, "bash", "console", "sh"):
            for offset, command in enumerate(code.splitlines()):
                if command.strip() and not any(part in command for part in ELSEWHERE):
                    marks = [pytest.mark.slow] if "detaug verify" in command else []
                    found.append(pytest.param(command, id=f"{page.name}:{line + offset}", marks=marks))
    return found


@pytest.fixture
def console(tmp_path: Path) -> tuple[Path, dict[str, str]]:
    """A folder with the pipeline that the pages speak of, and an environment with `detaug` on the PATH."""
    script = tmp_path / "bin" / "detaug"
    script.parent.mkdir()
    script.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m detaug "$@"\n')
    script.chmod(0o755)
    package = tmp_path / "my_package"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "pipelines.py").write_text(
        "import numpy as np\n\nclass Loader:\n    def __next__(self):\n        return {'data': np.random.rand(3)}\n\n"
        "def make():\n    return Loader(), None\n"
    )
    environment = {**os.environ, "PYTHONPATH": f"{tmp_path}{os.pathsep}{REPOSITORY}"}
    return tmp_path, {**environment, "PATH": f"{script.parent}{os.pathsep}{environment['PATH']}"}


def test_the_training_page_has_the_three_lines_first_and_the_comparison_last() -> None:
    text = (REPOSITORY / "docs" / "training.md").read_text(encoding="utf-8")
    parts = [
        "seed = seed_everything(1234, deterministic=True)",
        "make_deterministic(model)",
        '"optimizer": optimizer.state_dict()',
        "set_rng_state(checkpoint",
        "**Promised**",
        "**Not promised**",
        "**Costs**",
        "## One page per task",
        *(
            "(training-seed.md)",
            "(training-resume.md)",
            "(training-publish.md)",
            "(training-find.md)",
            "(training-gpu.md)",
        ),
        "## Side by side",
        "| what | MMEngine |",
    ]
    places = [text.index(part) for part in parts]
    assert places == sorted(places)
    assert text[: places[0]].count("\n") < 12
    assert not re.search(r"^#", text[places[-1] :], re.MULTILINE)
    assert all((REPOSITORY / "docs" / name).exists() for name in re.findall(r"\((training-\w+\.md)\)", text))


def keep_ledgers(folder: Path, environment: dict[str, str]) -> None:
    """What a reader has of a run of theirs."""
    code = """
from detaug import DeterministicAugmenter
from my_package.pipelines import make
for name in ("run", "a", "b"):
    with DeterministicAugmenter(*make(), 0, seed=1234, batches_per_epoch=4, ledger=f"{name}.jsonl") as aug:
        list(aug)
from detaug.cli import main
main(["receipt", "run.jsonl", "-o", "receipt.json"])
"""
    (folder / "checkpoint_final.pth").write_bytes(b"weights")
    done = run_code(code, folder=folder, environment=environment)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("command", console_lines())
def test_console_line_runs(command: str, console: tuple[Path, dict[str, str]]) -> None:
    folder, environment = console
    if ".jsonl" in command:
        keep_ledgers(folder, environment)
    words = shlex.split(command, comments=True)
    if words[0] == "detaug" and not set(command.partition("#")[0]) & set("|<>;&$`*?\\"):
        # what the script above does, without an interpreter of its own to import torch
        code = "from detaug.cli import main; main(prog_name='detaug')"
        done = run_code(code, *words[1:], folder=folder, environment=environment, timeout=280)
    else:
        done = subprocess.run(
            ["bash", "-euc", command], cwd=folder, env=environment, capture_output=True, text=True, timeout=280,
            check=False,
        )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr


def commands_named() -> list[str]:
    """Every command with its options, in blocks and in sentences."""
    text = "\n".join(page.read_text(encoding="utf-8") for page in PAGES)
    quoted = re.findall(r"`(detaug [a-z][^`]*)`", text)
    console = "\n".join(code for language, code in BLOCK.findall(text) if language == "bash")
    code = re.findall(r"\b(detaug [a-z][^#)\n]*)", re.sub(r"#.*", "", console))
    return sorted({" ".join(each.split()) for each in (*quoted, *code)})


@pytest.mark.parametrize("command", commands_named())
def test_commands_that_pages_name_exist_with_their_options(command: str) -> None:
    words = command.split()[1:]
    found: click.Command = main
    while isinstance(found, click.Group) and words:
        name = words.pop(0)
        assert name in found.commands, f"there is no command {name!r}"
        found = found.commands[name]
    if found.context_settings.get("ignore_unknown_options"):
        return  # the rest are another program's
    known = {name for parameter in found.params for name in (*parameter.opts, *parameter.secondary_opts)}
    assert {word for word in words if word.startswith("-") and word != "-"} <= known | {"--help"}
