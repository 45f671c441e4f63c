"""`detaug doctor`: the environment, and what to change in it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import click

from detaug.cli.options import Target

if TYPE_CHECKING:
    from rich.table import Table

    from detaug.doctor.advice import Advice

_STYLES = {"ok": "green", "note": "yellow", "warning": "bold red"}


@click.command(short_help="Print this machine's record and what to change.")
@click.option("--json", "as_json", is_flag=True, help='Print only JSON: {"environment": …, "advice": […]}.')
@click.option("--strict", is_flag=True, help="Exit with status 1 where there is a warning.")
def doctor(as_json: bool, strict: bool) -> None:
    """Print what results on this machine depend on, with advice.

    Versions, CPU, GPU, threads, determinism switches, shared memory and the kernels' compile cache. It shows the
    defaults of a fresh process: a training's own switches are in what
    detaug.training.environment() returns inside it. There is no host or user name in it, so it can go into a bug report as it is.
    """
    from detaug.doctor.advice import advice
    from detaug.doctor.machine import environment

    record = environment()
    lines = advice(record)
    if as_json:
        found = [{"level": each.level, "topic": each.topic, "text": each.text} for each in lines]
        click.echo(json.dumps({"environment": record, "advice": found}, indent=2, allow_nan=False))
    else:
        _print(record, lines)
    if strict and any(each.level == "warning" for each in lines):
        raise click.exceptions.Exit(1)


def _print(record: dict[str, Any], lines: list[Advice]) -> None:
    console = Target().console()
    console.print(_record_table(record))
    console.print()
    console.print(_advice_table(lines))
    counts = {level: sum(each.level == level for each in lines) for level in ("warning", "note", "ok")}
    plural = "" if counts["warning"] == 1 else "s"
    console.print(f"\n{counts['warning']} warning{plural}, {counts['note']} to note, {counts['ok']} ok")


def _table() -> Table:
    from rich.table import Table

    return Table(show_header=False, box=None, pad_edge=False, padding=(0, 2, 0, 0))


def _record_table(record: dict[str, Any]) -> Table:
    from rich.text import Text

    table = _table()
    table.add_column(no_wrap=True, style="bold")
    table.add_column(overflow="fold")
    for title, value in _rows(record):
        table.add_row(title, Text(value))
    return table


def _advice_table(lines: list[Advice]) -> Table:
    from rich.text import Text

    table = _table()
    table.add_column(no_wrap=True)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for each in lines:
        table.add_row(Text(each.level, style=_STYLES[each.level]), each.topic, Text(each.text))
    return table


def _rows(record: dict[str, Any]) -> list[tuple[str, str]]:
    detaug, system, cpu, gpu = record["detaug"], record["system"], record["cpu"], record["gpu"]
    packages = [f"{name} {version}" for name, version in record["packages"].items() if version]
    cards = [f"{card['name']} ({_size(card['memory'])})" if card["memory"] else card["name"] for card in gpu["devices"]]
    features = record["numpy"]["cpu_features"] or []
    pools = [f"{pool['internal_api']} {pool['version'] or ''}".strip() for pool in record["blas"]]
    switches = record["switches"]
    shared, limits, cache = record["shared_memory"], record["open_files"], record["kernel_cache"]
    methods = record["multiprocessing"]
    quota = f", quota {cpu['quota']:g}" if cpu["quota"] is not None else ""
    rows = [
        ("detaug", f"{detaug['version']}, seed scheme {detaug['seed_scheme']}, numerics {detaug['numerics']}"),
        ("Python", f"{record['python']['version']} ({record['python']['implementation']})"),
        ("system", _joined(system["name"], system["release"], system["distribution"], system["libc"])),
        ("packages", ", ".join(packages)),
        ("CPU", _joined(cpu["model"], cpu["architecture"])),
        ("cores", f"{cpu['usable_cores']} usable of {cpu['logical_cores']} (affinity {cpu['affinity']}{quota})"),
        ("dispatch", f"torch {cpu['torch_capability']}; NumPy {', '.join(features) or 'unknown'}"),
        ("BLAS, OpenMP", ", ".join(pools) or "none loaded"),
        ("GPU", ", ".join(cards) or "none"),
        ("CUDA", _joined(gpu["cuda"] or "none", gpu["cudnn"] and f"cuDNN {gpu['cudnn']}", _driver(gpu["driver"]))),
        ("threads", f"torch {record['threads']['torch']}, between operations {record['threads']['torch_interop']}"),
        ("memory", f"{_size(record['memory']['available'])} available of {_size(record['memory']['total'])}"),
        ("/dev/shm", f"{_size(shared['free'])} free of {_size(shared['total'])}" if shared else "none"),
        ("open files", f"{limits['soft'] or 'no limit'}, at most {limits['hard'] or 'any'}" if limits else "unknown"),
        ("start method", methods["start_method"] or f"{methods['default_start_method']} (the default)"),
        ("compile cache", f"{cache['compiled']} of {cache['kernels']} kernels in {cache['folder']}"),
    ]
    rows += [("switches" if not i else "", f"{name} = {value}") for i, (name, value) in enumerate(switches.items())]
    variables = record["variables"] or {"none of those that matter is set": ""}
    return rows + [
        ("variables" if not i else "", f"{name}={value}" if value else name)
        for i, (name, value) in enumerate(variables.items())
    ]


def _driver(driver: str | None) -> str | None:
    return f"driver {driver}" if driver else None


def _joined(*parts: str | None) -> str:
    return ", ".join(part for part in parts if part)


def _size(number: int | None) -> str:
    return "unknown" if number is None else f"{number / 2**30:.1f} GiB"
