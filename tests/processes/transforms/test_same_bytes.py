"""The bytes of every pipeline and transform are the committed ones, whatever the CPU offers."""

from __future__ import annotations

import json
import os
import sys
from functools import lru_cache
from pathlib import Path
from typing import Any

import pytest

from detaug.versions import NUMERICS
from tests.support.transforms import golden
from tests.support.waiting import run_program

ROOT = Path(__file__).parents[3]

# seconds: another CPU's kernels are compiled in the first slow run, and kept for all later ones
COMPILING = 1200
pytestmark = pytest.mark.timeout(COMPILING + 60)

# Those that belong to its baseline cannot be disabled.
NUMPY_FEATURES = " ".join(golden.numpy_features())
# glibc 2.33 and later / before
LIBM_FEATURES = ",".join(
    f"-{name},-{name}_Usable" for name in ("AVX512F", "AVX512VL", "AVX2", "FMA", "FMA4", "AVX")
)

ONE_THREAD = {"DETAUG_TEST_THREADS": "1", "NUMBA_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
TWO_THREADS = {"DETAUG_TEST_THREADS": "2", "NUMBA_NUM_THREADS": "2", "OMP_NUM_THREADS": "2"}

# What does not exclude each other, in one process; the one nearer to what a CPU has is a slow case.
SETTINGS: dict[str, dict[str, str]] = {
    "no vectors, one thread": {
        "ATEN_CPU_CAPABILITY": "default",
        **ONE_THREAD,
        "NPY_DISABLE_CPU_FEATURES": NUMPY_FEATURES,
        "OPENBLAS_CORETYPE": "Nehalem",
        "GLIBC_TUNABLES": f"glibc.cpu.hwcaps={LIBM_FEATURES}",
    },
    "torch with AVX2, two threads, BLAS for Prescott": {
        "ATEN_CPU_CAPABILITY": "avx2",
        **TWO_THREADS,
        "OPENBLAS_CORETYPE": "Prescott",
    },
}
ALL_AT_ONCE = {**SETTINGS["no vectors, one thread"], "NUMBA_CPU_NAME": "generic"}


@pytest.fixture(scope="module")
def committed() -> dict[str, str]:
    record = json.loads(golden.FILE.read_text())
    assert record["numerics"] == NUMERICS, (
        "the committed fingerprints belong to another numerics version"
    )
    fingerprints: dict[str, str] = record["fingerprints"]
    return fingerprints


@pytest.fixture
def numba_cache(request: pytest.FixtureRequest) -> Path:
    """Kept between test runs: kernels for another CPU take a few minutes to compile."""
    cache = request.config.cache
    assert cache is not None
    return Path(cache.mkdir("numba"))


def made_with(environment: dict[str, str]) -> dict[str, Any]:
    kept = {
        k: v for k, v in os.environ.items() if k not in ("ATEN_CPU_CAPABILITY", "NUMBA_CPU_NAME")
    }
    done = run_program(
        [sys.executable, "-m", "tests.support.transforms.golden"],
        timeout=COMPILING,
        cwd=ROOT,
        env={**kept, "PYTHONPATH": str(ROOT), **environment},
    )
    assert done.returncode == 0, done.stderr
    made: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return made


@lru_cache
def surroundings_as_they_are() -> dict[str, Any]:
    return golden.surroundings()


def differing(made: dict[str, str], committed: dict[str, str]) -> list[str]:
    return sorted(
        name for name in made.keys() | committed.keys() if made.get(name) != committed.get(name)
    )


def test_this_process_makes_the_committed_bytes(committed: dict[str, str]) -> None:
    assert differing(golden.fingerprints(), committed) == []


def test_seeds_give_different_bytes(committed: dict[str, str]) -> None:
    pipelines = [name for name in committed if "seed" in name and not name.startswith("validation")]
    assert len({committed[name] for name in pipelines}) == len(pipelines)


@pytest.mark.parametrize(
    "environment",
    [
        pytest.param(each, id=name, marks=() if "no vectors" in name else pytest.mark.slow)
        for name, each in SETTINGS.items()
    ],
)
def test_settings_make_the_committed_bytes(
    environment: dict[str, str], committed: dict[str, str]
) -> None:
    made = made_with(environment)
    assert_took_effect(environment, made["surroundings"])
    assert differing(made["fingerprints"], committed) == []


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_all_settings_at_once_make_the_committed_bytes(
    committed: dict[str, str], numba_cache: Path
) -> None:
    made = made_with({**ALL_AT_ONCE, "NUMBA_CACHE_DIR": str(numba_cache)})
    assert_took_effect(ALL_AT_ONCE, made["surroundings"])
    assert differing(made["fingerprints"], committed) == []


def assert_took_effect(environment: dict[str, str], found: dict[str, Any]) -> None:
    """A setting that is silently ignored would prove nothing."""
    usual = surroundings_as_they_are()
    if environment.get("ATEN_CPU_CAPABILITY") == "default":
        assert found["torch"] in ("DEFAULT", "NO AVX")
    if "NPY_DISABLE_CPU_FEATURES" in environment:
        assert found["numpy"] == []
    if environment.get("OPENBLAS_CORETYPE") == "Nehalem" and usual["blas"]:
        assert found["blas"] == ["Nehalem"]
    if environment.get("NUMBA_CPU_NAME") == "generic":
        assert found["numba"] == "generic"
    if "GLIBC_TUNABLES" in environment and usual["numpy"] and sys.platform == "linux":
        assert found["libm"] != usual["libm"]
    if "DETAUG_TEST_THREADS" in environment:
        assert found["torch threads"] == int(environment["DETAUG_TEST_THREADS"])
