"""What `detaug diff`, `detaug check` and `detaug replay` print: lines for people, and the same for programs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any

from rich.text import Text

from detaug.ledger.comparing import Comparison, HeaderDifference
from detaug.remaking.checking import Checked
from detaug.remaking.replaying import Replayed

_MOST_DIFFERENCES, _MOST_KEYS, _MOST_SAMPLES, _MOST_CHARACTERS = 8, 8, 5, 60


def _short(value: Any) -> str:
    text = str(value)
    return text if len(text) <= _MOST_CHARACTERS else text[: _MOST_CHARACTERS - 1] + "…"


#: What of a machine batches are made by: not its memory, nor the switches and threads that are a training's.
_CAN_CHANGE_BATCHES = (
    "blas.0.architecture", "cpu.architecture", "cpu.model", "detaug.", "numpy.", "packages.", "python.", "system.libc",
    "system.name", "variables",
)  # fmt: skip


def _header_lines(differences: Sequence[HeaderDifference], a: str, b: str) -> Iterator[Text]:
    for each in differences[:_MOST_DIFFERENCES]:
        yield Text(f"  {each.name}: {_short(each.a)} {a}, {_short(each.b)} {b}")
    if len(differences) > _MOST_DIFFERENCES:
        yield Text(f"  and {len(differences) - _MOST_DIFFERENCES} more")


def shown_comparison(found: Comparison, a: str, b: str) -> Iterator[Text]:
    """One screen."""
    if found.untold:
        names = ", ".join(map(repr, list(found.untold)[:_MOST_KEYS]))
        yield Text(f"not compared, without bytes that are the same everywhere: {names}", "yellow")
    if found.is_equal:
        yield Text(f"equal: all {found.equal:,} batches", "green")
        if found.header:
            yield Text("what differs in the headers has changed no batch:")
            yield from _header_lines(found.header, "in a", "in b")
        return
    assert found.first is not None
    where = {"a": f"is only in {a}", "b": f"is only in {b}", "both": "differs"}[found.first_in]
    keys = ", ".join(map(repr, found.keys[:_MOST_KEYS]))
    yield Text(f"{found.first.text} is the first batch that {where}{f', in {keys}' if keys else ''}", "bold red")
    yield Text(
        f"equal: {found.equal:,}; different: {found.different:,}; only in a: {found.only_a:,}; only in b: {found.only_b:,}"
    )
    if found.every_key:
        most = sorted(found.every_key.items(), key=lambda each: -each[1])[:_MOST_KEYS]
        yield Text(f"different, by key: {', '.join(f'{key!r} {number:,}' for key, number in most)}")
    if not found.different:
        yield Text("whatever both have is equal: one run ended earlier, left batches out, or was of another rank")
    if found.header:
        yield Text("the headers differ in (the most likely cause first):")
        yield from _header_lines(found.header, "in a", "in b")
    elif found.different:
        yield Text(
            "the headers do not differ: the pipeline itself may not be deterministic (detaug verify finds the line)"
        )


def as_json(found: Comparison) -> dict[str, Any]:
    """All of it."""
    first = None
    if found.first is not None:
        first = {"epoch": found.first.epoch, "step": found.first.place, "in": found.first_in, "keys": list(found.keys)}
    return {**asdict(found), "first": first, "first_in": None, "keys": None, "is_equal": found.is_equal}


def shown_check(found: Checked) -> Iterator[Text]:
    """The report."""
    receipt = found.receipt
    yield Text(
        f"receipt: {receipt['batches']:,} batches, seed {_short(receipt['seed'])}, {receipt['name'] or 'no name'}, rank "
        f"{receipt['rank']} of {receipt['world_size']}, digest {receipt['digest'][:16]}…, detaug "
        f"{receipt['versions'].get('detaug')}"
    )
    for fault in found.faults:
        yield Text(f"wrong: {fault}", "bold red")
    for sample in found.different[:_MOST_SAMPLES]:
        keys = f" in {', '.join(map(repr, sample.keys[:_MOST_KEYS]))}" if sample.keys else ""
        yield Text(f"wrong: epoch {sample.epoch}, step {sample.step}: made again, it differs{keys}", "bold red")
    if len(found.different) > _MOST_SAMPLES:
        yield Text(f"wrong: and {len(found.different) - _MOST_SAMPLES} more", "bold red")
    if found.different and not found.faults:
        yield Text(
            "the ledger is the receipt's: data, code behind the same names, or the machine are not what they were"
        )
    drawn = "drawn from the digest" + (f" and the salt {found.salt!r}" if found.salt else "")
    yield Text(
        f"{len(found.samples) - len(found.different):,} of {len(found.samples):,} batches, {drawn}, are as the ledger has them"
    )
    compared = dict.fromkeys(name for each in found.samples for name in each.compared)
    yield Text(f"compared: {', '.join(map(repr, compared)) or 'batches as a whole'}")
    for note in found.notes:
        yield Text(f"note: {note}", "dim")
    # of what has changed no batch here, only what may change those that were not drawn
    elsewhere = [each for each in found.elsewhere if not found.ok or each.name.startswith(_CAN_CHANGE_BATCHES)]
    if elsewhere:
        yield Text("here and there differ" + ("" if found.ok else " (the most likely cause first)") + ":")
        yield from _header_lines(
            [HeaderDifference(each.name, each.a, each.b) for each in elsewhere], "in the ledger", "here"
        )
    if not found.ok:
        yield Text("not as the receipt says", "bold red")
        return
    chances = ", ".join(f"{k:,} with {_percent(chance)}" for k, chance in found.chances())
    yield Text(
        f"had so many of its {receipt['batches']:,} batches been wrong, these samples would have found it: {chances}"
    )
    yield Text("as the receipt says", "green")


def _percent(chance: float) -> str:
    return f"{chance:.1%}" if chance >= 0.001 else f"{chance:.3%}"


def shown_replay(found: Replayed) -> Iterator[Text]:
    """Transforms, and the verdict."""
    last = None
    for stage in found.stages:
        if stage.sample != last:
            last = stage.sample
            yield Text(f"sample {stage.sample}", "bold")
        yield Text(f"  {stage.fingerprint[:12] or '-':12}  {stage.text}")
    name = f"epoch {found.epoch}, step {found.step}"
    yield Text(f"{name}: {found.whole or 'without stable bytes'}")
    for key, value in found.keys.items():
        yield Text(f"  {key!r}: {value or 'without stable bytes'}")
    if found.differs is None and found.record is not None:
        yield Text(
            "nothing of it can be compared with the ledger: it has no bytes that are the same everywhere", "yellow"
        )
    elif found.differs is None:
        yield Text("there is no ledger to compare it with")
    elif found.differs:
        yield Text(f"not as the ledger has it: it differs in {', '.join(map(repr, found.differs))}", "bold red")
    else:
        yield Text("as the ledger has it", "green")


def replayed_as_json(found: Replayed) -> dict[str, Any]:
    """What `shown_replay` shows."""
    compared = found.differs is not None
    return {"ok": not found.differs, "compared": compared, **asdict(found), "differs": list(found.differs or ())}


def checked_as_json(found: Checked) -> dict[str, Any]:
    """All of it."""
    chances = [{"wrong": k, "found": chance} for k, chance in found.chances()]
    return {"ok": found.ok, **asdict(found), "chances": chances}
