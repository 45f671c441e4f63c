"""What a program has set is so in every worker, and in batches made in the calling process,
whatever the start method.
"""

from __future__ import annotations

import locale
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import Dataset, IterableDataset

import detaug
from detaug import DeterministicAugmenter, current
from detaug.system.process_settings import ProcessSettings, denormals_are_flushed
from tests.processes.engine import settings_pipelines as pipelines
from tests.support.augmenters import workers
from tests.support.logs import records_of
from tests.support.preloaded import run_code
from tests.support.waiting import run_program

pytestmark = pytest.mark.timeout(180)


Setting = Callable[[], AbstractContextManager[Any]]


def set_and_back(change: Callable[[Any], Any], value: Any, read: Callable[[], Any]) -> Setting:
    @contextmanager
    def inside() -> Iterator[None]:
        before = read()
        change(value)
        try:
            yield
        finally:
            change(before)

    return inside


def other_locale() -> AbstractContextManager[Any]:
    wanted = "C.UTF-8" if locale.setlocale(locale.LC_CTYPE) == "C" else "C"
    return set_and_back(
        lambda name: locale.setlocale(locale.LC_ALL, name),
        wanted,
        partial(locale.setlocale, locale.LC_ALL),
    )()


def set_deterministic(warns: bool) -> None:
    torch.use_deterministic_algorithms(warns, warn_only=warns)


#: what sets it, and what is then seen; None: anything, as long as it is the same everywhere.
SETTINGS: dict[str, tuple[Setting, Any]] = {
    "denormals": (set_and_back(torch.set_flush_denormal, True, denormals_are_flushed), True),
    "dtype": (
        set_and_back(torch.set_default_dtype, torch.float64, torch.get_default_dtype),
        torch.float64,
    ),
    "deterministic": (
        set_and_back(set_deterministic, True, torch.are_deterministic_algorithms_enabled),
        (True, True),
    ),
    "matmul_precision": (
        set_and_back(
            torch.set_float32_matmul_precision, "high", torch.get_float32_matmul_precision
        ),
        "high",
    ),
    "onednn": (lambda: torch.backends.mkldnn.flags(enabled=False), False),
    "grad": (torch.no_grad, False),
    "numpy_errors": (partial(np.errstate, divide="raise"), None),
    "locale": (other_locale, None),
    "recursion_limit": (set_and_back(sys.setrecursionlimit, 2345, sys.getrecursionlimit), 2345),
    "denormals of torch and NumPy": (nullcontext, bytes(32)),
    # in the default dtype, which is set as well
    "autocast": (partial(torch.autocast, "cpu", dtype=torch.bfloat16), "torch.float64"),
    "threads": (
        set_and_back(torch.set_num_threads, 2, torch.get_num_threads),
        (1, ["1", "1", "1"]),
    ),
}
#: With it nothing can be computed.
on_meta = set_and_back(torch.set_default_device, "meta", lambda: None)


@pytest.mark.parametrize(
    "method", ["fork", "spawn", pytest.param("forkserver", marks=pytest.mark.slow)]
)
def test_all_settings_are_the_same_in_workers_and_here(method: str) -> None:
    with ExitStack() as stack:
        for change, _ in SETTINGS.values():
            stack.enter_context(change())
        seen = []
        for number in (0, 2):
            options: dict[str, Any] = {
                "seed": 1,
                "stateless": True,
                "executor": workers(number, method),
            }
            augmenter = DeterministicAugmenter(
                pipelines.Counter(), pipelines.Shows(pipelines.settings), number, **options
            )
            with augmenter:
                seen += [next(augmenter)["seen"] for _ in range(2)]
        set_here = ProcessSettings.here().values
    assert seen[1:] == seen[:1] * 3
    assert {name: seen[0][name] for name in set_here} == set_here
    assert [
        name for name, (_, expected) in SETTINGS.items() if expected not in (None, seen[0][name])
    ] == []


def test_workers_have_the_default_device() -> None:
    with on_meta():
        transform = pipelines.Shows(pipelines.default_device)
        with DeterministicAugmenter(pipelines.Counter(), transform, 1, seed=1) as augmenter:
            assert next(augmenter)["seen"] == "meta"


@pytest.mark.parametrize("num_processes", [0, 1])
def test_what_the_program_sets_later_does_not_reach_batches(num_processes: int) -> None:
    transform = pipelines.Shows(pipelines.default_dtype)
    with DeterministicAugmenter(pipelines.Counter(), transform, num_processes, seed=1) as augmenter:
        seen = [next(augmenter)["seen"]]
        with SETTINGS["dtype"][0]():
            seen += [next(augmenter)["seen"] for _ in range(4)] + [augmenter.replay(0, 0)["seen"]]
            assert torch.get_default_dtype() == torch.float64
    assert seen == [4] * 6


def test_batches_made_here_leave_every_setting_as_it_was() -> None:
    changes = [change for change, _ in SETTINGS.values()]
    for change in (*changes, on_meta):
        with change():  # torch adds a variable of its own to the environment the first time
            pass
    before = ProcessSettings.here(), torch.get_num_threads(), dict(os.environ)
    with DeterministicAugmenter(pipelines.Counter(), None, 0, seed=1) as augmenter:
        next(augmenter)
        for change in changes:
            with change():
                settings = ProcessSettings.here()
                next(augmenter)
                assert ProcessSettings.here() == settings
    assert (ProcessSettings.here(), torch.get_num_threads(), dict(os.environ)) == before


LAZY = """
import sys
import numpy as np
from detaug import DeterministicAugmenter, LocalProcesses
from tests.processes.engine.settings_pipelines import Counter, Shows

name, number = sys.argv[1], int(sys.argv[2])
assert name not in sys.modules

def threads():
    if name == "numexpr":
        import numexpr
        return numexpr.get_num_threads()
    import SimpleITK
    return SimpleITK.ProcessObject.GetGlobalDefaultNumberOfThreads()

with DeterministicAugmenter(Counter(), Shows(threads), number, seed=1, check=False) as augmenter:
    print([next(augmenter)["seen"] for _ in range(3)])
"""


def environment_with(**variables: str) -> dict[str, str]:
    root = str(Path(detaug.__file__).parents[1])
    environment = {
        k: v for k, v in os.environ.items() if k not in ("PYTHONHASHSEED", "OMP_NUM_THREADS")
    }
    return {**environment, "PYTHONPATH": root, **variables}


def run_python(code: str, *arguments: str, **variables: str) -> str:
    """In an interpreter of its own, for what it reads from the environment when it starts."""
    run = run_program([sys.executable, "-c", code, *arguments], env=environment_with(**variables))
    assert run.returncode == 0, run.stderr
    return run.stdout


def run_preloaded(folder: Path, code: str, *arguments: str, **variables: str) -> str:
    """In one that has imported detaug, torch and NumPy already."""
    run = run_code(
        code, *arguments, folder=folder, environment=environment_with(**variables), timeout=120
    )
    assert run.returncode == 0, run.stderr
    return run.stdout


@pytest.mark.parametrize("number", [pytest.param("0", marks=pytest.mark.slow), "1"])
@pytest.mark.parametrize("name", ["SimpleITK", "numexpr"])
def test_library_imported_in_the_first_batch_has_one_thread(
    name: str, number: str, tmp_path: Path
) -> None:
    pytest.importorskip(name)
    assert run_preloaded(tmp_path, LAZY, name, number) == "[1, 1, 1]\n"


PARALLEL = """
import sys
assert "numba" not in sys.modules  # it reads the number of threads when it is imported
import numba
from detaug import DeterministicAugmenter
from tests.processes.engine.settings_pipelines import Counter, Shows

@numba.njit(parallel=True)
def parallel_sum():
    total = 0.0
    for i in numba.prange(100_001):
        total += i
    return total, numba.get_num_threads()

with DeterministicAugmenter(
    Counter(), Shows(parallel_sum), int(sys.argv[1]), seed=1, check=False  # which would compile it again
) as augmenter:
    print([next(augmenter)["seen"] for _ in range(3)])
print(numba.get_num_threads() == numba.config.NUMBA_NUM_THREADS)
"""


def test_numba_kernel_has_one_thread_but_for_the_call_that_starts_its_threads_here(
    tmp_path: Path,
) -> None:
    here, worker = (
        run_preloaded(tmp_path, PARALLEL, number, NUMBA_NUM_THREADS="2") for number in ("0", "1")
    )
    assert (here.count(", 1)"), worker.count(", 1)")) == (2, 3)
    assert here.endswith("True\n")


@pytest.mark.parametrize("number", [0, 1])
def test_batch_that_changes_the_number_of_threads_does_not_change_the_next(number: int) -> None:
    transform = pipelines.Shows(pipelines.threads_of_torch_then_changed)
    with DeterministicAugmenter(pipelines.Counter(), transform, number, seed=1) as augmenter:
        assert [next(augmenter)["seen"] for _ in range(4)] == [1] * 4


@pytest.fixture
def numexpr() -> Iterator[Any]:
    module = pytest.importorskip("numexpr")
    before = module.get_num_threads()
    yield module
    module.set_num_threads(before)


@pytest.mark.parametrize(
    ("before", "function", "calls"),
    [
        (1, pipelines.threads_of_numexpr, []),
        (1, pipelines.threads_of_numexpr_then_changed, [2, 1] * 3),
        (2, pipelines.threads_of_numexpr, [1, 2] * 3),
        (2, pipelines.threads_of_numexpr_then_changed, [1, 2] * 3),
    ],
)
def test_a_batch_made_here_sets_a_number_of_threads_only_where_it_differs(
    numexpr: Any,
    monkeypatch: pytest.MonkeyPatch,
    before: int,
    function: Callable[[], int],
    calls: list[int],
) -> None:
    """Ending threads and starting others takes some milliseconds."""
    numexpr.set_num_threads(before)
    numbers = []
    set_num_threads = numexpr.set_num_threads

    def count(number: int) -> Any:
        numbers.append(number)
        return set_num_threads(number)

    monkeypatch.setattr(numexpr, "set_num_threads", count)
    transform = pipelines.Shows(function)
    with DeterministicAugmenter(pipelines.Counter(), transform, 0, seed=1, check=False) as aug:
        seen = [next(aug)["seen"] for _ in range(3)]
    assert seen == [1] * 3
    assert numexpr.get_num_threads() == before
    assert numbers == calls


@pytest.mark.skipif(not os.path.isdir("/proc/self/task"), reason="threads are counted in /proc")
def test_forked_worker_has_one_thread_whatever_the_programs_linear_algebra_has(
    tmp_path: Path,
) -> None:
    code = """if True:
        import os
        import numpy as np
        from threadpoolctl import threadpool_limits
        from detaug import DeterministicAugmenter, LocalProcesses
        from tests.processes.engine.settings_pipelines import Counter, Shows, threads_there_are
        threadpool_limits(4)
        np.ones((300, 300)) @ np.ones((300, 300))
        print(threads_there_are() > 1 or os.cpu_count() == 1)
        with DeterministicAugmenter(Counter(), Shows(threads_there_are), 2, seed=1) as augmenter:
            print([next(augmenter)["seen"] for _ in range(4)])
        """
    assert run_preloaded(tmp_path, code).splitlines() == ["True", "[1, 1, 1, 1]"]


HASHES = """
import os, sys
os.environ["PYTHONHASHSEED"] = sys.argv[2] or os.environ.get("PYTHONHASHSEED", "")
from detaug import DeterministicAugmenter, LocalProcesses
from detaug.system.interpreters import known_hash_seed
from tests.processes.engine.settings_pipelines import Counter, Shows, order_of_a_set
with DeterministicAugmenter(
    Counter(), Shows(order_of_a_set), 2, seed=1, executor=LocalProcesses(sys.argv[1]), stateless=True, check=False
) as aug:
    print({tuple(next(aug)["seen"]) for _ in range(6)} | {tuple(order_of_a_set())})
print(known_hash_seed())
"""


@pytest.mark.parametrize("method", ["spawn", pytest.param("forkserver", marks=pytest.mark.slow)])
@pytest.mark.parametrize(
    ("given", "set_later"),
    [
        pytest.param("77", "", marks=pytest.mark.slow),
        ("77", "5"),
        pytest.param("0", "5", marks=pytest.mark.slow),
    ],
)
def test_sets_have_the_parents_order_in_fresh_workers(
    method: str, given: str, set_later: str
) -> None:
    orders, known = run_python(HASHES, method, set_later, PYTHONHASHSEED=given).splitlines()
    assert orders.count("(") == 1, f"several orders: {orders}"
    assert known == given


class Leaks:
    """Changes a setting of the process at one step, and leaves it so."""

    def __init__(self, change: Callable[[], object], step: int) -> None:
        self.change = change
        self.step = step

    def __call__(self, **batch: Any) -> dict[str, Any]:
        now = {"dtype": str(torch.zeros(2).dtype), "errors": np.geterr()["over"]}
        if current().step == self.step:
            self.change()
        return {**batch, **now}


@pytest.mark.parametrize(
    ("change", "name"),
    [
        (partial(torch.set_default_dtype, torch.float64), "torch's default dtype"),
        (partial(np.seterr, all="raise"), "NumPy's handling of floating-point errors"),
    ],
)
@pytest.mark.parametrize("processes", [0, 1])
def test_a_setting_that_a_batch_leaves_changed_is_put_back_and_told(
    processes: int, change: Callable[[], object], name: str, caplog: pytest.LogCaptureFixture
) -> None:
    before = ProcessSettings.here()
    transform = Leaks(change, step=2)
    with DeterministicAugmenter(
        pipelines.Counter(), transform, processes, seed=1, batches_per_epoch=6, check=False
    ) as augmenter:
        batches = list(augmenter)
    assert len({(batch["dtype"], batch["errors"]) for batch in batches}) == 1
    (record,) = records_of(caplog)
    assert record.message.startswith(f"a batch changed {name} from ")
    assert "put back" in record.message
    assert ProcessSettings.here() == before


class Dtypes(Dataset[Any]):
    """Gives the default dtype of each sample."""

    def __len__(self) -> int:
        return 12

    def __getitem__(self, index: int) -> str:
        return str(torch.zeros(1).dtype)


class DtypesInOrder(IterableDataset[Any]):
    """The same, in an order of its own."""

    def __iter__(self) -> Iterator[str]:
        for _ in range(12):
            yield str(torch.zeros(1).dtype)


def sets_the_dtype(_: int) -> None:
    torch.set_default_dtype(torch.bfloat16)


@pytest.mark.parametrize("dataset", [Dtypes(), DtypesInOrder()])
@pytest.mark.parametrize("processes", [0, 1, 2])
def test_what_worker_init_fn_sets_holds_for_all_batches(
    dataset: Any, processes: int, caplog: pytest.LogCaptureFixture
) -> None:
    with DeterministicAugmenter.from_dataset(
        dataset, 2, num_processes=processes, seed=6, worker_init_fn=sets_the_dtype
    ) as augmenter:
        batches = [*augmenter, *augmenter, augmenter.replay(0, 3)]
    assert batches == [["torch.bfloat16"] * 2] * 13
    assert torch.get_default_dtype() is torch.float32
    assert not [record for record in records_of(caplog) if "left it so" in record.message]
