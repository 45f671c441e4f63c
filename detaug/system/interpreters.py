"""Fresh interpreters for workers, with this one's options, path and hash seed, and one thread."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from dataclasses import dataclass, field

import psutil

from detaug.system.platform import at_fork

#: Libraries read these when they are loaded, which may be long after a worker was started.
THREAD_VARIABLES: tuple[str, ...] = (
    "OMP_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "MKL_NUM_THREADS",
    "BLIS_NUM_THREADS",
    "NUMEXPR_NUM_THREADS",
    "NUMBA_NUM_THREADS",
    "ITK_GLOBAL_DEFAULT_NUMBER_OF_THREADS",
    "OPENCV_FOR_THREADS_NUM",
    "POLARS_MAX_THREADS",
)
if sys.platform == "darwin":
    THREAD_VARIABLES += ("VECLIB_MAXIMUM_THREADS",)

#: Held while an interpreter is started, and at every fork: a process that is forked between the
#: making of Popen's pipe and the child's exec keeps the pipe open, and the thread that called Popen
#: would wait for that process's end.
_starting = threading.RLock()
at_fork(
    before=_starting.acquire, after_in_parent=_starting.release, after_in_child=_starting.release
)


@dataclass(frozen=True)
class InterpreterOptions:
    """The state of this process that a fresh interpreter starts with.

    It is as it was when the engine started, whatever the program has changed since.

    Attributes:
        environment: environment variables.
        folder: the current folder; None: it is gone.
        arguments: ``sys.argv``, which loaders and the modules that a worker imports may read.
    """

    environment: dict[str, str] = field(repr=False)
    folder: str | None
    arguments: tuple[str, ...]

    @staticmethod
    def here(hash_seed: int | None = None) -> InterpreterOptions:
        """Return the state of this process, now; `hash_seed`: another one than its own."""
        arguments = tuple(map(str, sys.argv)) or ("",)
        return InterpreterOptions(worker_environment(hash_seed), _folder(), arguments)

    def start(
        self, code: str, descriptors: tuple[int, ...], quiet: bool = False
    ) -> subprocess.Popen[bytes]:
        """Run `code` in a new interpreter.

        Args:
            code: Python source.
            descriptors: file descriptors that it inherits.
            quiet: its output is discarded.
        """
        folder = self.folder
        if folder is not None and not os.path.isdir(folder):
            folder = None
        name, *further_arguments = self.arguments
        command = interpreter_command(f"import sys; sys.argv[0] = {name!r}; {code}")
        output = subprocess.DEVNULL if quiet else None
        with _starting:
            return subprocess.Popen(
                [*command, *further_arguments],
                pass_fds=descriptors,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env=self.environment,
                cwd=folder,
            )


def code_of(module: str, *arguments: object) -> str:
    """Return code that runs ``main(*arguments)`` of a module of ours in a fresh interpreter."""
    return f"from {module} import main; main({', '.join(map(repr, arguments))})"


def interpreter_command(code: str) -> list[str]:
    """Return the command line that runs `code` in an interpreter with this one's options."""
    options = subprocess._args_from_interpreter_flags()  # type: ignore[attr-defined]
    # Without these two: it has to read PYTHONPATH and PYTHONHASHSEED.
    kept_options = [option for option in options if option not in ("-I", "-E")]
    return [sys.executable, *kept_options, "-c", code]


def worker_environment(hash_seed: int | None = None) -> dict[str, str]:
    """Return the environment of a fresh worker.

    It has one thread for every mathematics library, this process's import path, and a fixed hash
    seed, so that sets of strings have one order in all workers and all runs.

    Args:
        hash_seed: None: this interpreter's own where it is known, else 0.
    """
    if hash_seed is None:
        hash_seed = known_hash_seed()
    environment = {**os.environ, **dict.fromkeys(THREAD_VARIABLES, "1")}
    folders = [path or _folder() or os.devnull for path in sys.path]
    environment["PYTHONPATH"] = os.pathsep.join(folders)
    environment["PYTHONHASHSEED"] = str(hash_seed or 0)
    return environment


def _folder() -> str | None:
    """Return the current folder; None: it is gone, and with it anything that could be imported."""
    try:
        return os.getcwd()
    except OSError:
        return None


def known_hash_seed() -> int | None:
    """Return the PYTHONHASHSEED that this interpreter was started with; None: it is random.

    A value that the program has set since (``os.environ["PYTHONHASHSEED"] = "0"``) has no effect on
    its hashes.
    """
    if not sys.flags.hash_randomization:
        return 0
    if sys.flags.ignore_environment:
        return None
    try:
        text = psutil.Process().environ().get("PYTHONHASHSEED", "")
    except (psutil.Error, OSError):
        # This process has become another user, or may open no further file.
        text = os.environ.get("PYTHONHASHSEED", "")
    if not text.isdecimal():
        return None
    return int(text)
