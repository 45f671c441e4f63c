"""`detaug replay`: what one batch of a ledger went through."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner, Result

from detaug import fingerprint
from detaug.cli import main
from detaug.ledger.notes import prints_of
from detaug.ledger.reading import read_header
from detaug.pictures.palette import OKABE_ITO
from detaug.pictures.samples import sheet_of
from detaug.remaking.pipelines import remaker_of
from detaug.remaking.stages import Watch
from detaug.versions import NUMERICS
from tests.support.ledgers import pipelines
from tests.support.ledgers.runs import lines, rewritten, run
from tests.support.preloaded import run_code

PIPELINES = "tests.support.ledgers.pipelines"


def replay(ledger: Path, factory: str, *more: Any, epoch: int = 1, step: int = 2, **options: Any) -> Result:
    arguments = ["replay", ledger, f"{PIPELINES}:{factory}", "--epoch", epoch, "--step", step, *more]
    return CliRunner().invoke(main, [str(each) for each in arguments], **options)


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("kept")
    found = {}
    for name in ("native", "foreign"):
        loader, transform = getattr(pipelines, name)()
        found[name] = run(folder / f"{name}.jsonl", 8, loader=loader, transform=transform)
    return found


def test_every_transforms_params_and_the_fingerprint_behind_it_are_shown(kept: dict[str, Path]) -> None:
    done = replay(kept["native"], "native")
    assert done.exit_code == 0, done.output
    assert done.output.count("sample ") == 2
    assert re.search(
        r"^  ([0-9a-f]{12}|-           )  +GaussianNoise: (not applied|apply_to_channel=\[0\], sigmas=\[0\.)",
        done.output,
        re.M,
    )
    assert re.search(r"^  [0-9a-f]{12}  +(Mirror: axes=\[|InvertImage: apply=True)", done.output, re.M)
    (line,) = (each for each in lines(kept["native"]) if (each.get("epoch"), each.get("step")) == (1, 2))
    assert f"epoch 1, step 2: {line['whole']}\n  'data': {line['keys']['data']}\n" in done.output
    assert done.output.endswith("as the ledger has it\n")


def test_programs_get_the_same_as_json(kept: dict[str, Path], tmp_path: Path) -> None:
    done = replay(kept["native"], "native", "--json", tmp_path / "found.json")
    found = json.loads((tmp_path / "found.json").read_text())
    (line,) = (each for each in lines(kept["native"]) if (each.get("epoch"), each.get("step")) == (1, 2))
    assert (found["ok"], found["compared"], found["differs"]) == (True, True, [])
    assert (found["whole"], found["keys"]) == (line["whole"], line["keys"])
    assert all(stage["text"] in done.output for stage in found["stages"])
    assert {stage["sample"] for stage in found["stages"]} == {0, 1}
    done = replay(kept["native"], "native", "--json", "-")
    assert json.loads(done.stdout) == found
    assert "as the ledger has it" in done.stderr


def test_transforms_of_other_libraries_are_shown_too(kept: dict[str, Path]) -> None:
    done = replay(kept["foreign"], "foreign")
    assert done.exit_code == 0, done.output
    for name in ("GaussianNoiseTransform", "MirrorTransform", "Compose"):
        assert re.search(rf"^  [0-9a-f]{{12}}  +{name}$", done.output, re.M)


def test_one_sample_is_shown_alone(kept: dict[str, Path]) -> None:
    both, second = replay(kept["native"], "native"), replay(kept["native"], "native", "--sample", "1")
    assert "sample 0" not in second.output
    assert second.output == both.output[both.output.index("sample 1") :]


def test_watching_changes_nothing_and_keeps_what_was_before_and_after(kept: dict[str, Path]) -> None:
    header = read_header(kept["native"])
    remaker = remaker_of(pipelines.native, header)
    plain = remaker.make(1, 2)
    watch = Watch(keeps=True)
    with watch.watching() as seen:
        watched = remaker.make(1, 2)
    assert fingerprint(watched) == fingerprint(plain)
    for sample in (0, 1):
        assert np.array_equal(seen.after[sample]["image"], watched["data"][sample])
        assert not np.array_equal(seen.before[sample]["image"], watched["data"][sample])
        last = [stage for stage in seen.stages if stage.sample == sample][-1]
        arrays = {"image": watched["data"][sample], "segmentation": watched["seg"][sample]}
        assert last.fingerprint == prints_of(arrays)[0]


def test_a_batch_that_differs_exits_with_1_and_names_its_keys(kept: dict[str, Path], tmp_path: Path) -> None:
    def change(found: list[dict[str, Any]]) -> None:
        next(each for each in found if (each.get("epoch"), each.get("step")) == (1, 2))["keys"]["seg"] = "0" * 32

    done = replay(rewritten(kept["native"], tmp_path / "run.jsonl", change), "native")
    assert done.exit_code == 1
    assert "not as the ledger has it: it differs in 'seg'" in done.output


@pytest.mark.parametrize(
    ("more", "options", "why"),
    [
        ((), {"step": 9}, "has no batch of epoch 1, step 9; its last is epoch 1, step 3"),
        (("--sample", "7"), {}, "no transform was met in sample 7"),
        (("--break-at", "Gamma"), {}, "no transform 'Gamma' was met; there were GaussianNoise, "),
        (("--pictures", "{}/file/folder"), {}, "cannot write to"),
    ],
)
def test_what_cannot_be_shown_exits_with_2(
    kept: dict[str, Path], tmp_path: Path, more: tuple[str, ...], options: dict[str, int], why: str
) -> None:
    (tmp_path / "file").touch()
    done = replay(kept["native"], "native", *(each.format(tmp_path) for each in more), **options)
    assert done.exit_code == 2, done.output
    assert why in done.output


def test_another_pipeline_and_other_numerics_are_refused(kept: dict[str, Path], tmp_path: Path) -> None:
    done = replay(kept["native"], "foreign")
    assert done.exit_code == 2
    assert "this is another pipeline than the ledger's: transform" in done.output
    other = rewritten(kept["native"], tmp_path / "run.jsonl", lambda found: found[0].update(numerics=1))
    assert f"numerics version: the ledger has 1, this detaug has {NUMERICS}" in replay(other, "native").output


@pytest.mark.parametrize(
    ("factory", "transform", "what"),
    [("native", "OneOf", "sorted(workspace.present())"), ("foreign", "mirrortransform", "sorted(data_dict)")],
)
def test_the_debugger_stops_in_the_transform_before_it_is_applied(
    kept: dict[str, Path], factory: str, transform: str, what: str
) -> None:
    """In an interpreter of its own, as pytest has other ideas of a debugger's terminal."""
    arguments = ["replay", str(kept[factory]), f"{PIPELINES}:{factory}", "--epoch", "1", "--step", "2", "--sample", "0"]
    code = f"""
import io, sys
sys.stdin = io.StringIO("p 'in', type(self).__name__\\np {what}\\nc\\n")
sys.argv = ["detaug", *{[*arguments, "--break-at", transform]!r}]
from detaug.cli import main
main()
"""
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[3]), "COLUMNS": "200"}
    done = run_code(code, folder=Path(__file__).parents[3], environment=environment)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"('in', '{'OneOf' if factory == 'native' else 'MirrorTransform'}')" in done.stdout
    assert ("['image', 'segmentation']" if factory == "native" else "['data', 'seg']") in done.stdout
    assert "as the ledger has it" in done.stdout


# --- pictures


def test_pictures_of_before_and_after_are_saved(kept: dict[str, Path], tmp_path: Path) -> None:
    from matplotlib.image import imread

    done = replay(kept["native"], "native", "--pictures", tmp_path / "new" / "folder")
    assert done.exit_code == 0, done.output
    files = sorted((tmp_path / "new" / "folder").iterdir())
    assert [file.name for file in files] == ["epoch1_step2_sample0.png", "epoch1_step2_sample1.png"]
    picture = imread(files[0])[..., :3]
    height, width = picture.shape[:2]
    outline = np.array([int(OKABE_ITO[0][at : at + 2], 16) / 255 for at in (1, 3, 5)])
    marked = np.abs(picture - outline).max(-1) < 0.1
    assert height > width / 2, "three planes, one below another"
    for half in (slice(0, width // 2), slice(width // 2, None)):
        assert marked[:, half].sum() > 20, "before and after have the outlines of the label"


def test_where_there_is_no_image_no_folder_is_made(tmp_path: Path) -> None:
    done = replay(run(tmp_path / "run.jsonl", 8), "plain", "--pictures", tmp_path / "pictures")
    assert done.exit_code == 2
    assert "there is no image in the batch that could be drawn" in done.output
    assert not (tmp_path / "pictures").exists()


def test_images_are_found_in_samples_and_batches() -> None:
    image, labels = np.zeros((1, 5, 6, 7), np.float32), np.ones((1, 5, 6, 7), np.int16)
    for arrays in (
        {"image": image, "segmentation": labels},
        {"data": image[None], "target": [labels[None]]},
        {"x": image, "seg": labels},
        {"img": image, "label": labels},
        {"image": image, "mask": labels},
    ):
        sheet = sheet_of("", [("", arrays)])
        assert sheet is not None
        assert list(sheet.legend) == ["label 1"]
        assert sheet.rows[0].cells[0].caption == ["1 × 5 × 6 × 7"]
        assert len(sheet.rows[0].cells[0].pictures) == 3
    assert sheet_of("", [("", {"labels": labels, "number": 5})]) is None
    flat = sheet_of("flat", [("", {"image": np.zeros((1, 4, 4), np.float32)})])
    assert flat is not None
    assert flat.png().startswith(b"\x89PNG")


SCRIPT = """
import sys
import numpy as np
from detaug import DeterministicAugmenter, current

class Loader:
    def __init__(self, size):
        self.size = size
    def __iter__(self):
        return self
    def __next__(self):
        return {"data": current().generator.standard_normal(self.size)}

def make(size=3, **options):
    return DeterministicAugmenter(Loader(size), None, 0, seed=1, batches_per_epoch=4, stateless=True, **options)

def longer():
    return make(4)

if __name__ == "__main__":
    with make(ledger="run.jsonl") as augmenter:
        print(len(list(augmenter)))
"""


def test_a_training_that_was_run_as_a_script_is_imported_from_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "script_that_trains.py").write_text(SCRIPT)
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[3])}
    done = run_code(tmp_path / "script_that_trains.py", folder=tmp_path, environment=environment)
    assert done.stdout == "4\n", done.stderr
    assert "data_loader = __main__.Loader" in read_header(tmp_path / "run.jsonl")["declared"]
    monkeypatch.syspath_prepend(tmp_path)
    made: list[Any] = ["replay", tmp_path / "run.jsonl", "--epoch", 0, "--step", 1]
    for factory, code, text in (
        ("make", 0, "as the ledger has it\n"),
        ("longer", 2, "size: here 4, in the ledger 3\n"),
    ):
        found = CliRunner().invoke(main, [str(each) for each in (*made, f"script_that_trains:{factory}")])
        assert (found.exit_code, found.output.endswith(text)) == (code, True), found.output
