"""Fresh interpreters for workers: with this one's options, import path and folder, one thread, and
one hash seed.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from dataclasses import dataclass, field

import psutil

from detaug.system import at_fork

#: Libraries read these when they are loaded, which may be long after a worker was started.
THREAD_VARIABLES = (
    "OMP_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "MKL_NUM_THREADS",
    "BLIS_NUM_THREADS",
    *(("VECLIB_MAXIMUM_THREADS",) if sys.platform == "darwin" else ()),
    "NUMEXPR_NUM_THREADS",
    "NUMBA_NUM_THREADS",
    "ITK_GLOBAL_DEFAULT_NUMBER_OF_THREADS",
    "OPENCV_FOR_THREADS_NUM",
    "POLARS_MAX_THREADS",
)

#: Held while an interpreter is started, and at every fork: a process that is forked between the
#: making of Popen's pipe and the child's exec keeps the pipe open, and the thread that called Popen
#: would wait for that process's end.
_starting = threading.RLock()
at_fork(
    before=_starting.acquire, after_in_parent=_starting.release, after_in_child=_starting.release
)


@dataclass(frozen=True)
class Surrounding:
    """What a fresh interpreter is given, as it was when the engine started, whatever the program
    has changed since: environment, current folder (None: it is gone), and ``sys.argv``, which
    loaders and the modules that a worker imports may read.
    """

    environment: dict[str, str] = field(repr=False)
    folder: str | None
    arguments: tuple[str, ...]

    @staticmethod
    def here(hash_seed: int | None = None) -> Surrounding:
        """That of this process, now; with another hash seed than its own."""
        return Surrounding(
            worker_environment(hash_seed), _folder(), tuple(map(str, sys.argv)) or ("",)
        )

    def start(
        self, code: str, descriptors: tuple[int, ...], quiet: bool = False
    ) -> subprocess.Popen[bytes]:
        """Run `code` in a new interpreter that inherits these descriptors. `quiet`: what it prints
        is not seen.
        """
        folder = self.folder if self.folder is not None and os.path.isdir(self.folder) else None
        with _starting:
            return subprocess.Popen(
                [
                    *interpreter_command(
                        f"import sys; sys.argv[0] = {self.arguments[0]!r}; {code}"
                    ),
                    *self.arguments[1:],
                ],
                pass_fds=descriptors,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL if quiet else None,
                stderr=subprocess.DEVNULL if quiet else None,
                env=self.environment,
                cwd=folder,
            )


def code_of(module: str, *arguments: object) -> str:
    """The code with which a fresh interpreter runs ``main(*arguments)`` of a module of ours."""
    return f"from {module} import main; main({', '.join(map(repr, arguments))})"


def interpreter_command(code: str) -> list[str]:
    """The command line that runs `code` in an interpreter with this one's options."""
    options = subprocess._args_from_interpreter_flags()  # type: ignore[attr-defined]
    # It has to read PYTHONPATH and PYTHONHASHSEED.
    return [
        sys.executable,
        *(option for option in options if option not in ("-I", "-E")),
        "-c",
        code,
    ]


def worker_environment(hash_seed: int | None = None) -> dict[str, str]:
    """The environment of a fresh worker: one thread for every mathematics library, this process's
    import path, and a hash seed that is fixed (`hash_seed`, or this interpreter's own where it is
    known, or 0), so that sets of strings have one order in all workers and all runs.
    """
    if hash_seed is None:
        hash_seed = known_hash_seed()
    return {
        **os.environ,
        **dict.fromkeys(THREAD_VARIABLES, "1"),
        "PYTHONPATH": os.pathsep.join(path or _folder() or os.devnull for path in sys.path),
        "PYTHONHASHSEED": str(hash_seed or 0),
    }


def _folder() -> str | None:
    """The current one; None: it is gone, and so is what could be imported from it."""
    try:
        return os.getcwd()
    except OSError:
        return None


def known_hash_seed() -> int | None:
    """The PYTHONHASHSEED that this interpreter was started with; None if its strings' hashes are
    random. What the program has set since (``os.environ["PYTHONHASHSEED"] = "0"``) has no effect on
    its hashes.
    """
    if not sys.flags.hash_randomization:
        return 0
    if sys.flags.ignore_environment:
        return None
    try:
        text = psutil.Process().environ().get("PYTHONHASHSEED", "")
    except (psutil.Error, OSError):  # it has become another user, or may open no file more
        text = os.environ.get("PYTHONHASHSEED", "")
    return int(text) if text.isdecimal() else None
