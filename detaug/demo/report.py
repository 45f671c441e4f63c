"""What the demo shows and writes down of its runs."""

from __future__ import annotations

from typing import Any

from rich import box
from rich.markup import escape
from rich.table import Table

from detaug.demo.run import BATCH_SIZE, NATIVE, NUM_CACHED, OURS, STOCK, Plan, Run, Settings, all_same, speed_up

#: Enough hexadecimal digits to tell any two runs apart by eye.
DIGITS = 8


def table(runs: list[Run]) -> Table:
    """One row per run, the two augmenters apart; it fits into 60 columns."""
    shown = Table(title="The same pipeline and the same seed in every run", title_style="bold", box=box.SIMPLE_HEAD)
    shown.add_column("run", overflow="fold")
    shown.add_column("pro-\ncesses", justify="right", no_wrap=True)
    shown.add_column("fingerprint", style="cyan", no_wrap=True)
    shown.add_column("same as\nfirst?", justify="center", no_wrap=True)
    shown.add_column("batches\nper s", justify="right", no_wrap=True)
    for number, run in enumerate(runs):
        last_of_its_kind = number + 1 < len(runs) and runs[number + 1].plan.augmenter != run.plan.augmenter
        shown.add_row(
            f"  with {run.plan.circumstance}" if run.plan.circumstance else run.plan.augmenter,
            str(run.plan.processes),
            run.fingerprint[:DIGITS],
            {None: "first", True: "[green]yes[/]", False: "[red]no[/]"}[run.same_as_first],
            f"{run.batches_per_second:.1f}",
            end_section=last_of_its_kind,
        )
    return shown


def describe(plan: Plan) -> str:
    """The run's name for the reader."""
    name = f"{OURS} {NATIVE}" if plan.augmenter == NATIVE else plan.augmenter
    return name + (f" with {plan.circumstance}" if plan.circumstance else "")


def notices(runs: list[Run]) -> str:
    """What was logged or warned about meanwhile, a line each, in rich's markup."""
    return "".join(f"[dim]{describe(run.plan)}: {escape(notice)}[/]\n" for run in runs for notice in run.notices)


def verdict(runs: list[Run]) -> str:
    """One sentence per augmenter, in rich's markup."""
    ours = [run for run in runs if run.plan.augmenter != STOCK]
    stock_same = all(run.same_as_first is not False for run in runs if run.plan.augmenter == STOCK)
    stock = f"{STOCK}: two runs with the same seeds [bold]{'agree this time' if stock_same else 'differ'}[/]."
    if all_same(runs):
        agree = f"{stock}\n{OURS}: [bold green]all {len(ours)} runs agree[/], byte for byte and in the same order."
        faster = speed_up(runs)
        if faster is None:
            return agree
        return (
            f"{agree}\nDetaug's transforms make [bold]{faster:.1f} times[/] the batches per second of batchgenerators' (0 "
            "processes). They interpolate images linearly, batchgenerators by cubic splines."
        )
    others = sum(run.same_as_first is False for run in ours)
    return f"{stock}\n{OURS}: [bold red]{others} of {len(ours)} runs differ[/] from the first. This is a bug in detaug."


def as_json(runs: list[Run], settings: Settings) -> dict[str, Any]:
    """The settings and all runs, in plain types."""
    return {
        "batches": settings.batches,
        "warm_up_batches": settings.warm_up,
        "batch_size": BATCH_SIZE,
        "patch_size": [settings.patch] * 3,
        "num_cached": NUM_CACHED,
        "seed": settings.seed,
        "deterministic": all_same(runs),
        "speed_up_with_own_transforms": speed_up(runs),
        "runs": [
            {
                "augmenter": run.plan.augmenter,
                "processes": run.plan.processes,
                "circumstance": run.plan.circumstance,
                "fingerprint": run.fingerprint,
                "same_as_first": run.same_as_first,
                "batches_per_second": round(run.batches_per_second, 3),
                "processes_seen": len(run.pids),
                "notices": run.notices,
            }
            for run in runs
        ],
    }
