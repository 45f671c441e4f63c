"""`detaug warmup`: compile every kernel ahead, once for this machine."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from rich.console import Console

    from detaug.kernels.compiling import Kernel


@click.command(short_help="Compile the transforms' kernels ahead.")
def warmup() -> None:
    """Compile the transforms' kernels, so that no training waits for it.

    Without it each kernel is compiled when it is first used, once for this machine and this version. Compiled code is
    kept in the package's own folder or, where that is read-only, in the user's cache folder; the environment variable
    NUMBA_CACHE_DIR chooses another place. Run it while building a container's image, and its processes only load.
    """
    from rich.console import Console

    from detaug.kernels.compiling import all_kernels, cache_folder

    console = Console()
    began = time.perf_counter()
    kernels = all_kernels()
    compiled = _compile_with_progress(kernels, console)
    seconds = time.perf_counter() - began
    console.print(
        f"{len(kernels)} kernels: {compiled} compiled, {len(kernels) - compiled} already there, in {seconds:.1f} s",
        highlight=False,
    )
    console.print(f"Compiled code is kept in {cache_folder()}", highlight=False, soft_wrap=True)


def _compile_with_progress(kernels: list[Kernel], console: Console) -> int:
    """Compile all; how many were not in the cache."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    from detaug.kernels.compiling import compile_kernels

    columns = (BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TextColumn("{task.description}"))
    compiled = 0
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task("", total=len(kernels))
        for each in kernels:
            progress.update(task, description=each.name)
            for kernel, _ in compile_kernels([each]):
                compiled += bool(kernel.dispatcher.stats.cache_misses)
            progress.advance(task)
    return compiled
