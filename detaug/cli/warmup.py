"""`detaug warmup`: compile every kernel ahead, once for this machine."""

from __future__ import annotations

import time

import click

from detaug.cli.options import Target


@click.command(short_help="Compile the transforms' kernels ahead.")
def warmup() -> None:
    """Compile the transforms' kernels, so that no training waits for it.

    Without it each kernel is compiled when it is first used, once for this machine and this version. Compiled code is
    kept in the package's own folder or, where that is read-only, in the user's cache folder; the environment variable
    NUMBA_CACHE_DIR chooses another place. Run it while building a container's image, and its processes only load.
    """
    from detaug.kernels.ahead import compile_ahead
    from detaug.kernels.cache import cache_folder
    from detaug.kernels.compiling import all_kernels

    console = Target().console()
    began = time.perf_counter()
    kernels = all_kernels()
    compiled = compile_ahead(kernels, load=False)
    seconds = time.perf_counter() - began
    console.print(
        f"{len(kernels)} kernels: {compiled} compiled, {len(kernels) - compiled} already there, in {seconds:.1f} s",
        highlight=False,
    )
    folder = cache_folder()
    kept = f"kept in {folder}" if folder else "not kept: no folder can be written to, so every process compiles its own"
    console.print(f"Compiled code is {kept}", highlight=False, soft_wrap=True)
