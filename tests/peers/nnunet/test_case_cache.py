"""The case cache: the same batches with it as without, whatever becomes of its folder, and what describes one."""

from __future__ import annotations

import logging
import os
import resource
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from nnunetv2.training.dataloading.nnunet_dataset import nnUNetDatasetBlosc2
from nnunetv2.utilities.label_handling.label_handling import LabelManager

from detaug import DeterministicAugmenter, fingerprint
from detaug.errors import BatchError
from detaug.nnunet import training_transforms
from detaug.nnunet.loading import PatchSource, case_cache
from detaug.nnunet.loading.case_cache import CaseCache, chosen_cache

LABELS = LabelManager({"background": 0, "one": 1, "two": 2}, None)
FINAL, PATCH = (12, 14, 16), (17, 20, 23)
SHAPES = {"small": (9, 30, 22), "case": (28, 25, 31), "large": (40, 33, 29)}


def write_case(folder: Path, name: str, seed: int) -> None:
    rng = np.random.default_rng(seed)
    image = rng.normal(size=(2, *SHAPES[name])).astype(np.float32)
    labels = rng.integers(0, 3, (1, *SHAPES[name])).astype(np.int8)
    properties = {"class_locations": {label: np.argwhere(labels == label)[::7] for label in (1, 2)}}
    for file in (*folder.glob(f"{name}*"), *(folder / "previous").glob(f"{name}*")):
        file.unlink()
    sizes: dict[str, Any] = {"chunks": (1, 8, 16, 16), "blocks": (1, 8, 8, 8)}
    nnUNetDatasetBlosc2.save_case(image, labels, properties, str(folder / name), **sizes)
    nnUNetDatasetBlosc2.save_seg(np.roll(labels[0], 1, axis=0), str(folder / "previous" / name))


@pytest.fixture
def cases(tmp_path: Path) -> Path:
    folder = tmp_path / "cases"
    (folder / "previous").mkdir(parents=True)
    for number, name in enumerate(SHAPES):
        write_case(folder, name, number)
    return folder


@pytest.fixture(autouse=True)
def as_in_a_new_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DETAUG_CASE_CACHE", raising=False)
    case_cache._told.clear()


def batches(cases: Path, cache: str | None, processes: int = 0, patch: tuple[int, ...] = PATCH) -> list[str]:
    final = FINAL[-len(patch) :]
    scales = [[1.0] * len(final), [0.5] * len(final)]
    transforms = training_transforms(final, (-0.5, 0.5), scales, tuple(range(len(final))), False, is_cascaded=True,
                                     foreground_labels=[1, 2])  # fmt: skip
    source = PatchSource(
        cases, 2, patch, final, LABELS, 0.33, transforms=transforms, previous_stage=cases / "previous", case_cache=cache
    )
    with DeterministicAugmenter(source, None, processes, seed=4) as augmenter:
        return [fingerprint(next(augmenter)) for _ in range(8)]


def entries(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.npy"))


@pytest.mark.parametrize("patch", [PATCH, PATCH[1:]])
@pytest.mark.parametrize("processes", [0, 2])
def test_batches_are_the_same_with_a_cache(cases: Path, tmp_path: Path, patch: tuple[int, ...], processes: int) -> None:
    expected = batches(cases, None, 0, patch)
    cold = batches(cases, f"1GB:{tmp_path}/cache", processes, patch)
    made = {file: file.stat().st_ino for file in entries(tmp_path / "cache")}
    warm = batches(cases, f"1GB:{tmp_path}/cache", processes, patch)
    assert expected == cold == warm
    assert len(made) == 9, "of each case an image, a segmentation and one of the stage before"
    assert made == {file: file.stat().st_ino for file in entries(tmp_path / "cache")}


def test_a_warm_cache_reads_nothing_of_the_compressed_file(cases: Path, tmp_path: Path) -> None:
    cache = CaseCache.from_text(f"1GB:{tmp_path}/cache")
    file = cases / "large.b2nd"
    before = cache.array(str(file))
    state, content = file.stat(), bytearray(file.read_bytes())
    content[2**16 : -(2**16)] = bytes(len(content) - 2**17)  # all but the ends, by which it is known
    file.write_bytes(content)
    os.utime(file, ns=(state.st_atime_ns, state.st_mtime_ns))
    cache.forget(str(file))
    after = cache.array(str(file))
    assert after is not before
    assert np.array_equal(after, before)


def test_a_case_that_changes_has_another_entry(cases: Path, tmp_path: Path) -> None:
    cache = CaseCache.from_text(f"1GB:{tmp_path}/cache")
    file = str(cases / "case.b2nd")
    before = cache.array(file)
    write_case(cases, "case", 77)
    assert cache.array(file) is before, "as an open file stays what it was"
    cache.forget(file)
    after = cache.array(file)
    assert after is not None
    assert before is not None
    assert np.array_equal(after, nnUNetDatasetBlosc2(str(cases)).load_case("case")[0][:])
    assert not np.array_equal(after, before)


def test_another_time_of_change_is_another_case(cases: Path, tmp_path: Path) -> None:
    cache = CaseCache.from_text(f"1GB:{tmp_path}/cache")
    file = cases / "case.b2nd"
    for nanoseconds in (0, 1):
        os.utime(file, ns=(0, 10**18 + nanoseconds))
        cache.forget(str(file))
        assert cache.array(str(file)) is not None
    assert len(entries(tmp_path / "cache")) == 2


def test_a_full_cache_goes_on_without(cases: Path, tmp_path: Path) -> None:
    expected = batches(cases, None)
    assert batches(cases, f"0.2MB:{tmp_path}/cache") == expected
    kept = entries(tmp_path / "cache")
    assert 0 < len(kept) < 9
    assert sum(file.stat().st_size for file in kept) <= 200_000


def test_a_full_disk_goes_on_without(cases: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    expected = batches(cases, None)
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (30_000, before[1]))
    try:
        assert batches(cases, f"1GB:{tmp_path}/cache") == expected
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert [record.levelno for record in caplog.records] == [logging.WARNING], "said once"
    assert "cases are read from their own files: OSError(" in caplog.text


def test_a_folder_that_vanishes_is_made_again(cases: Path, tmp_path: Path) -> None:
    cache = CaseCache.from_text(f"1GB:{tmp_path}/cache")
    (tmp_path / "cache").rmdir()
    assert cache.array(str(cases / "case.b2nd")) is not None


def test_a_damaged_case_fails_as_without_a_cache(cases: Path, tmp_path: Path) -> None:
    for file in cases.glob("*[a-z].b2nd"):
        file.write_bytes(file.read_bytes()[:2000])
    seen = []
    for cache in (None, f"1GB:{tmp_path}/cache"):
        with pytest.raises(BatchError) as error:
            batches(cases, cache)
        seen.append(repr(error.value.original))
    assert seen[0] == seen[1]
    assert not entries(tmp_path / "cache")


# --- what describes one -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "limit"),
    [("20GB", 20 * 10**9), ("1.5 TB", 15 * 10**11), ("500MiB", 500 * 2**20), (" 2 GiB ", 2**31), ("1MB:", 10**6)],
)
def test_a_size_alone_is_a_folder_of_ones_own(
    text: str, limit: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    cache = CaseCache.from_text(text)
    assert cache.limit == limit
    folder = Path(cache.folder)
    assert folder.parent == tmp_path
    assert folder.stat().st_mode & 0o777 == 0o700


def test_size_and_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert Path("/dev/shm") == case_cache._IN_MEMORY
    monkeypatch.setattr(case_cache, "_IN_MEMORY", tmp_path / "memory")
    (tmp_path / "memory").mkdir()
    assert CaseCache.from_text(f"20GB:{tmp_path}/a/b") == CaseCache(f"{tmp_path}/a/b", 20 * 10**9)
    assert Path(CaseCache.from_text("20GB:memory").folder).parent == tmp_path / "memory"
    assert str(CaseCache(f"{tmp_path}", 20 * 10**9)) == f"up to 20 GB of decompressed cases in {tmp_path}"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("20", "a size in MB, GB, TB, MiB, GiB, TiB"),
        ("GB", "a size"),
        ("20gb", "a size"),
        ("-1GB", "a size"),
        ("0GB", "a size"),
        ("many GB", "a size"),
        ("/scratch", "a size"),
        ("20GB:scratch", "must be an absolute path, got 'scratch'"),
        ("20GB:/dev/null/cases", "cannot be used: .*Not a directory"),
    ],
)
def test_bad_values_are_refused(text: str, message: str, monkeypatch: pytest.MonkeyPatch, cases: Path) -> None:
    with pytest.raises(ValueError, match=message):
        PatchSource(cases, 2, PATCH, FINAL, LABELS, case_cache=text)
    monkeypatch.setenv("DETAUG_CASE_CACHE", text)
    with pytest.raises(ValueError, match=f"DETAUG_CASE_CACHE in the environment: .*{message}"):
        PatchSource(cases, 2, PATCH, FINAL, LABELS)


def test_a_folder_that_others_may_write_to_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    folder = Path(CaseCache.from_text("1GB").folder)
    folder.chmod(0o777)
    with pytest.raises(ValueError, match="is not this user's alone"):
        CaseCache.from_text("1GB")


def test_something_else_than_a_text_is_refused(cases: Path) -> None:
    with pytest.raises(TypeError, match="case_cache must be a text, such as '20GB', got 20"):
        PatchSource(cases, 2, PATCH, FINAL, LABELS, case_cache=20)  # type: ignore[arg-type]


def test_the_environment_is_used_where_no_argument_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert chosen_cache(None) is None
    monkeypatch.setenv("DETAUG_CASE_CACHE", f"1GB:{tmp_path}/environment")
    assert chosen_cache(None) == CaseCache(f"{tmp_path}/environment", 10**9)
    assert chosen_cache(f"2GB:{tmp_path}/argument") == CaseCache(f"{tmp_path}/argument", 2 * 10**9)


def test_a_pipeline_is_the_same_with_a_cache(cases: Path, tmp_path: Path) -> None:
    def state(cache: str | None) -> dict[str, Any]:
        source = PatchSource(cases, 2, PATCH, FINAL, LABELS, case_cache=cache)
        with DeterministicAugmenter(source, None, 0, seed=4) as augmenter:
            return augmenter.state_dict()

    assert state(None) == state(f"1GB:{tmp_path}/cache")
