"""`detaug preview` as a user meets it."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner
from PIL import Image

from detaug.tools.cli import main

PIPELINE = """
import numpy as np
from detaug.transforms import Compose, GaussianNoise, Mirror

class Loader:
    def __next__(self):
        return {"data": np.random.rand(2, 1, 8, 8, 8).astype(np.float32)}

def make():
    return Loader(), Compose([Mirror((0, 1, 2)), GaussianNoise()])
"""


@pytest.fixture
def pipeline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "previewed.py").write_text(PIPELINE)
    return "previewed.py:make"


def run(*arguments: str) -> tuple[int, str]:
    done = CliRunner().invoke(main, ["preview", *arguments])
    return done.exit_code, done.output


def test_sheet_is_written_and_told(pipeline: str) -> None:
    code, output = run(pipeline, "-o", "sheet.png", "--samples", "2", "--seed", "7")
    assert code == 0, output
    assert (
        output.splitlines()[-1]
        == f"{Path('sheet.png').absolute()}: 2 samples, 2 transforms that changed them"
    )
    assert Image.open("sheet.png").size[0] > 600


def test_without_a_pipeline_it_is_the_demo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("nilearn")
    monkeypatch.chdir(tmp_path)
    code, output = run("--samples", "1")
    assert code == 0, output
    assert Path("preview.png").stat().st_size > 10_000


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ("previewed.py:made",),
            (
                "there is no 'made' in previewed.py; it has Compose, GaussianNoise, Loader, Mirror, "
                "make"
            ),
        ),
        (("previewed.py:make", "--nnunet", "1", "2d"), "give MODULE:FACTORY or --nnunet, not both"),
        (("previewed.py:make", "-o", "."), "'.' is a folder"),
        (
            ("previewed.py:make", "-o", "nowhere/a.png"),
            "cannot write 'nowhere/a.png': its folder does not exist",
        ),
        (("previewed.py:make", "-o", "a.jpg"), "'a.jpg' does not end with .png or .svg or .pdf"),
        (("previewed.py:make", "-o", "/proc/a.png"), "cannot write '/proc/a.png'"),
        (("previewed.py:make", "--channel", "1"), "there is no channel 1: the image has 1"),
    ],
)
def test_what_cannot_be_done_is_one_message_and_status_2(
    pipeline: str, arguments: tuple[str, ...], message: str
) -> None:
    code, output = run(*arguments)
    assert code == 2
    assert message in " ".join(output.split())
    assert not list(Path().glob("*.png"))
    assert "Traceback" not in output


@pytest.mark.parametrize(("name", "start"), [("a.svg", b"<?xml"), ("a.pdf", b"%PDF")])
def test_sheet_is_drawn_in_the_format_of_its_name(pipeline: str, name: str, start: bytes) -> None:
    code, output = run(pipeline, "-o", name, "--samples", "1")
    assert code == 0, output
    assert ": 1 sample, " in output
    assert Path(name).read_bytes().startswith(start)


def test_a_sheet_for_a_talk_is_wider_than_high(pipeline: str) -> None:
    code, output = run(pipeline, "-o", "talk.png", "--samples", "1", "--only-applied")
    assert code == 0, output
    width, height = Image.open("talk.png").size
    assert width > height
