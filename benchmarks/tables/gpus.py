"""Blocks of pages that show what `python -m benchmarks gpu` found."""

from __future__ import annotations

from collections.abc import Sequence

from benchmarks.markdown import Result, markdown_table, number_text

#: Of the headline's line on a GPU.
WORKERS = 8
PATCH = (128, 128, 128)


def gpu_table(results: Sequence[Result]) -> str:
    """Return every finding on every card; a sentence that says so where none was measured."""
    if not results:
        return "**Not measured yet**: no card's results are in `benchmarks/results`.\n"
    tables = []
    for result in results:
        record = result["environment"]
        rows = [
            [part, finding["name"], "<br>".join(finding["text"].splitlines())]
            for part, findings in result["parts"].items()
            for finding in findings
        ]
        introduction = (
            f"On {record['card']} (driver {record['driver']}, cuDNN {record['cudnn']}, torch "
            f"{record['packages']['torch']}, commit {record['commit']}, {record['date']}):\n\n"
        )
        tables.append(introduction + markdown_table(["part", "what", "result"], rows))
    return "\n".join(tables)


def gpu_line(results: Sequence[Result]) -> str:
    """Return the headline's line on a training step on a GPU."""
    ratios = []
    for result in results:
        milliseconds = {}
        for finding in result["parts"].get("epoch", ()):
            values = finding["values"]
            if values.get("workers") == WORKERS and tuple(values["plan"]["patch"]) == PATCH:
                milliseconds[values["system"]] = values["ms_per_step"]
        if len(milliseconds) > 1:
            ratio = milliseconds["nnUNetTrainer"] / milliseconds["nnUNetTrainerDetAugFast"]
            ratios.append(f"{number_text(ratio)}× {result['environment']['card']}")
    text = "; ".join(ratios) or "not measured"
    step = f"a training step on a GPU, 128³, batch 2, {WORKERS} workers"
    return f"| {step} | nnU-Net's own | {text} |\n"
