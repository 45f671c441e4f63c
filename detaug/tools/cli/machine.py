"""Commands about this machine: `detaug warmup` and `detaug --version`."""

from __future__ import annotations

import time

import click

#: Packages that `torch.utils.collect_env` lists itself.
_LISTED_BY_TORCH = ("torch", "numpy", "pytorch-lightning")


def print_version(context: click.Context, _option: click.Parameter, is_asked: bool) -> None:
    """Print the version, with --verbose also the machine and advice, and end the program."""
    if not is_asked:
        if context.params["verbose"]:
            raise click.UsageError("--verbose has an effect with --version only", context)
        return
    from detaug.versions import __version__, source_digest

    click.echo(f"detaug, version {__version__}, source {source_digest()}")
    if context.params["verbose"]:
        _print_machine()
    # An eager option: the group's own command is not run.
    context.exit()


def _print_machine() -> None:
    """Print what results on this machine depend on, with advice; no name of a host or user."""
    from torch.utils import collect_env

    from detaug.tools.advice import advice
    from detaug.training.machine import environment

    # The record that ledgers have in their headers, so that the two can be compared.
    record = environment()
    versions = record["detaug"]
    click.echo(f"seed scheme {versions['seed_scheme']}, numerics {versions['numerics']}")
    for name, version in record["packages"].items():
        if version is not None and name not in _LISTED_BY_TORCH:
            click.echo(f"{name} {version}")
    for name, value in record["variables"].items():
        click.echo(f"{name}={value}")
    cache = record["kernel_cache"]
    folder = cache["folder"] or "no folder"
    click.echo(f"kernels: {cache['compiled']} of {cache['kernels']} compiled, in {folder}")
    click.echo(f"\n{collect_env.get_pretty_env_info().strip()}")  # type: ignore[no-untyped-call]
    sentences = list(advice(record))
    if sentences:
        click.echo("\nAdvice:")
    for sentence in sentences:
        click.echo(f"- {sentence}")


@click.command(short_help="Compile the transforms' kernels ahead of time.")
def warmup() -> None:
    """Compile the transforms' kernels ahead of time, so that no training waits for it.

    Compiled code is for this machine and this version. It is kept in the package's own folder or,
    if that is read-only, in the user's cache folder; the environment variable NUMBA_CACHE_DIR names
    another one. Run this command while you build a container's image: processes in the container
    then load the kernels.
    """
    from detaug.kernels.ahead import compile_ahead
    from detaug.kernels.cache import cache_folder
    from detaug.kernels.compiling import all_kernels

    began = time.perf_counter()
    kernels = all_kernels()
    # No kernel runs in this process, so compiled ones need not be loaded.
    compiled = compile_ahead(kernels, load=False)
    seconds = time.perf_counter() - began
    loaded = len(kernels) - compiled
    click.echo(
        f"{len(kernels)} kernels: {compiled} compiled, {loaded} already there, in {seconds:.1f} s"
    )
    folder = cache_folder()
    if folder:
        click.echo(f"Compiled code is kept in {folder}")
    else:
        click.echo(
            "Compiled code is not kept: no folder can be written to, so every process compiles"
            " its own"
        )
