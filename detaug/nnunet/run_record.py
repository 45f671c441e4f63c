"""The record of a training, which its checkpoints keep, so that it is only continued as itself."""

from __future__ import annotations

import importlib.metadata
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from hashlib import sha256
from typing import Any, get_type_hints

import numpy as np
import torch
from torch.optim.lr_scheduler import LRScheduler

from detaug.errors import StateMismatch
from detaug.nnunet.loading.case_files import some_of
from detaug.objects.differences import differences as differences_of
from detaug.objects.differences import values_by_name
from detaug.objects.fingerprints import dense, fingerprint_or_none
from detaug.objects.walking import flat
from detaug.seeding.tree import Seed
from detaug.system.escaping import printable, short
from detaug.system.untrusted import conforms, is_small
from detaug.versions import NUMERICS, SEED_SCHEME, __version__, source_digest

#: The record's place in a checkpoint.
KEY = "detaug"

#: Names of parts of the record, with commas between them, in which a training may differ from the
#: one that it continues.
ALLOW_VARIABLE = "DETAUG_ALLOW"

#: Entries of the record that `detaug diff` shows, and that are not compared when it is continued.
_HISTORY = ("source", "pretrained", "allowed")
#: Lines of a message on one part: one transform less moves all that follow it.
_MOST_LINES = 6
#: An array with more elements than this is recorded as its digest.
_MOST_ELEMENTS = 64

#: Packages whose code decides a training's bytes.
_PACKAGES = (
    "nnunetv2",
    "batchgenerators",
    "batchgeneratorsv2",
    "acvl_utils",
    "dynamic_network_architectures",
    "torch",
    "numpy",
    "scipy",
)


def versions() -> dict[str, str]:
    """Return the versions of the packages whose code decides a training's bytes."""
    result = {"detaug": __version__}
    for name in _PACKAGES:
        result[name] = importlib.metadata.version(name)
    result["torch"] = torch.__version__.split(" ")[0]
    return result


@dataclass(frozen=True)
class RunRecord:
    """The decisive facts about a training that nnU-Net does not take from its checkpoint.

    Each of them decides the training's bytes, and JSON can hold it.

    Each field is a part that ``DETAUG_ALLOW`` can name, but for the last three; docs/nnunet.md has
    a table of them.

    Attributes:
        loading: "nnU-Net" or "detaug": whose loader and transforms.
        data: case -> a fingerprint of its files, of the training and validation cases.
        plans: nnU-Net's, of the configurations the one in use, with what it inherits and what the
            trainer has changed.
        labels: of dataset.json: labels, the order of regions, channels.
        pipeline: of the loaders "train" and "val": the description that a ledger's header has as
            "declared".
        optimiser, schedule, loss: class and settings, as at the training's start; with the schedule
            its state, as at the checkpoint.
        cpu_threads: that torch computes with, on a CPU; 0 on a GPU.
        machine: as `detaug.nnunet.machine.machine_of` has it; empty where any will do.
        source: `source_digest` of the code that trained; "" in a record of before.
        pretrained: SHA-256 of the weights with which it began; None: they follow from the seed.
        allowed: differences with which it was continued, oldest first.
    """

    seed: Seed
    loading: str
    data: dict[str, str]
    cases: dict[str, list[str]]
    plans: dict[str, Any]
    labels: dict[str, Any]
    pipeline: dict[str, list[str]]
    sampling: dict[str, Any]
    optimiser: dict[str, Any]
    schedule: dict[str, Any]
    loss: dict[str, Any]
    iterations: dict[str, int]
    world_size: int
    cpu_threads: int
    machine: dict[str, Any]
    seed_scheme: int = SEED_SCHEME
    numerics: int = NUMERICS
    versions: dict[str, str] = field(default_factory=versions)
    source: str = field(default_factory=source_digest)
    pretrained: str | None = None
    allowed: list[str] = field(default_factory=list)

    @classmethod
    def from_checkpoint(cls, checkpoint: Mapping[str, Any]) -> RunRecord | None:
        """Return the record in a checkpoint; None where it has none.

        Raises:
            StateMismatch: the record is of another version of detaug, or damaged.
        """
        stored = checkpoint.get(KEY)
        if stored is None:
            return None
        names = {part.name for part in fields(cls)}
        if not isinstance(stored, Mapping):
            raise _other_version(type(stored).__name__, names)
        # A record may lack `source`, which is only shown, never compared.
        stored = {"source": "", **stored}
        if set(stored) != names:
            raise _other_version(sorted(map(str, stored)), names)
        # It may be anybody's file: an entry of another type would fail later, without its name.
        wrong = [
            name for name, kind in get_type_hints(cls).items() if not conforms(stored[name], kind)
        ]
        if wrong or not is_small(stored):
            fault = ", ".join(wrong) or "it is nested too deeply"
            raise StateMismatch(f"the checkpoint's record of its training is damaged: {fault}")
        return cls(**stored)

    def as_dict(self) -> dict[str, Any]:
        """Return the record as a checkpoint has it.

        `dataclasses.asdict` would rebuild the counters in a schedule's state as counters of pairs.
        """
        return {part.name: getattr(self, part.name) for part in fields(self)}

    def check_continues(self, earlier: RunRecord) -> list[str]:
        """Return a line for each difference from the training that is to be continued.

        Raises:
            StateMismatch: something differs that is not allowed to; the message says what, and what
                to do.
            ValueError: ``DETAUG_ALLOW`` names no part of the record.
        """
        allowed = allowed_parts()
        lines: list[str] = []
        refused: list[str] = []
        refused_lines: list[str] = []
        for part, lines_of_part in _difference_lines(earlier.as_dict(), self.as_dict()).items():
            if part in _HISTORY:
                continue
            lines += lines_of_part
            if part not in allowed:
                refused.append(part)
                refused_lines += lines_of_part
        if refused:
            raise StateMismatch(
                "this checkpoint cannot be continued: the training is not the one that began.\n  "
                + "\n  ".join(refused_lines)
                + f"\n{ALLOW_VARIABLE}={','.join(sorted({*allowed, *refused}))} continues"
                " nevertheless. The next checkpoints record this, and the result no longer follows"
                " from the seed alone."
            )
        return lines


def _other_version(stored: object, names: set[str]) -> StateMismatch:
    """Return the error for a record with other parts than this version's."""
    return StateMismatch(
        f"the checkpoint's record of its training has {stored}, and detaug {__version__}"
        f" reads {sorted(names)}: continue with the version of detaug that wrote it"
    )


def allowed_parts() -> set[str]:
    """Return the parts of the record that ``DETAUG_ALLOW`` names.

    Raises:
        ValueError: it names something else.
    """
    parts = [part.name for part in fields(RunRecord) if part.name not in _HISTORY]
    words = [word.strip() for word in os.environ.get(ALLOW_VARIABLE, "").split(",")]
    names = {word for word in words if word}
    unknown = sorted(names - set(parts))
    if unknown:
        raise ValueError(
            f"{ALLOW_VARIABLE} in the environment names {', '.join(map(repr, unknown))}; it may"
            f" name {', '.join(parts)}"
        )
    return names


def _difference_lines(earlier: Mapping[str, Any], now: Mapping[str, Any]) -> dict[str, list[str]]:
    """Return, by part of the record, a line for each of its entries that differs."""
    # States of two kinds of schedules cannot be compared entry by entry; their settings can.
    if not _has_one_schedule(earlier["schedule"], now["schedule"]):
        earlier = {**earlier, "schedule": schedule_without_state(earlier["schedule"])}
        now = {**now, "schedule": schedule_without_state(now["schedule"])}
    lines_of: dict[str, list[str]] = {}
    # One line for all: a data set that was preprocessed again differs in every case.
    names = changed_cases(earlier["data"], now["data"])
    if names:
        text = f"data: other files of {printable(some_of(names))}{_ADVICE['data']}"
        lines_of["data"] = [text]
    for path, before, after in differences(without_data(earlier), without_data(now)):
        part = path.partition(".")[0]
        lines_of.setdefault(part, []).append(_difference_line(part, path, before, after))
    for part, lines in lines_of.items():
        num_hidden = len(lines) - _MOST_LINES
        if num_hidden > 0:
            lines_of[part] = [*lines[:_MOST_LINES], f"{part}: and {num_hidden} entries more"]
    return lines_of


def _difference_line(part: str, path: str, before: Any, after: Any) -> str:
    """Return the line on one entry that differs."""
    advice = _ADVICE.get(part, "")
    entry = printable(path).replace(".", ": ", 1)
    are_lists = isinstance(before, list) and isinstance(after, list)
    if part in ("cases", "machine") and are_lists:
        # A fold has hundreds of cases: only those are named that the other list lacks.
        removed = _without(before, after)
        added = _without(after, before)
        return f"{entry}: {short(removed)} in the checkpoint, {short(added)} now{advice}"
    return f"{entry}: {short(before)} in the checkpoint, {short(after)} now{advice}"


def _has_one_schedule(earlier: Mapping[str, Any], now: Mapping[str, Any]) -> bool:
    """Return whether two schedules have the same settings and are of one class by now."""
    settings = schedule_without_state(earlier)
    if any(differences(settings, schedule_without_state(now))):
        return False
    return bool(_class_of_state(earlier) == _class_of_state(now))


def _class_of_state(schedule: Mapping[str, Any]) -> Any:
    """Return the class in a schedule's state.

    None where the record has none: it may be a file of anybody's.
    """
    state = schedule.get("state")
    if isinstance(state, Mapping):
        return state.get("class")
    return None


def schedule_without_state(schedule: Mapping[str, Any]) -> dict[str, Any]:
    """Return a recorded schedule without its state."""
    return {name: value for name, value in schedule.items() if name != "state"}


def changed_cases(data: Mapping[str, str], other: Mapping[str, str]) -> list[str]:
    """Return the names of the cases that two records have in common and whose files differ."""
    return [name for name in data if name in other and data[name] != other[name]]


def without_data(record: Mapping[str, Any]) -> dict[str, Any]:
    """Return a record without its fingerprints of cases, which `changed_cases` compares."""
    return {name: value for name, value in record.items() if name != "data"}


def _without(names: Sequence[str], others: Sequence[str]) -> str:
    """Return the names that are not among the others, as text."""
    return ", ".join(name for name in names if name not in others) or "no other"


def differences(one: Mapping[str, Any], other: Mapping[str, Any]) -> Iterator[tuple[str, Any, Any]]:
    """Yield (path, value, other value) of each entry in which two records or checkpoints differ."""
    entries = dict(flat(_readable(one)))
    others = dict(flat(_readable(other)))
    return differences_of(entries, others, compared_by=fingerprint_or_class, absent="nothing")


def _readable(record: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a record with its pipeline's description by names."""
    pipeline = record.get("pipeline")
    if not isinstance(pipeline, Mapping):
        return record
    by_name = {name: values_by_name(lines) for name, lines in pipeline.items()}
    return {**record, "pipeline": by_name}


def fingerprint_or_class(value: Any) -> str:
    """Return a fingerprint, or a line that says that the value has none.

    That line is equal for all values of one class.
    """
    name = f"{type(value).__module__}.{type(value).__qualname__}"
    if isinstance(value, torch.Tensor):
        # Quantized and sparse tensors have no plain bytes that could be compared.
        value = dense(value)
    return fingerprint_or_none(value) or f"not compared: {name}"


_ADVICE = {
    "seed": " (unset DETAUG_SEED to take the checkpoint's)",
    "data": " (preprocessed cases of this fold: they were changed, or preprocessed again)",
    "cases": " (splits_final.json was changed)",
    "schedule": " (num_epochs and initial_lr of the trainer, where its schedule reads them)",
    "world_size": " (number of GPUs)",
    "machine": " (on another kind of machine sums are rounded in another way)",
    "cpu_threads": " (set DETAUG_CPU_THREADS to the checkpoint's number)",
    "seed_scheme": " (use the version of detaug that began it)",
    "numerics": " (use the version of detaug that began it)",
}


def plain(value: Any) -> Any:
    """Return a value as JSON can hold it, the same in all processes and on all machines.

    Of an object that is its class, of a schedule its settings.
    """
    if isinstance(value, np.generic):
        return value.item()
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, Mapping):
        return {str(name): plain(item) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    if isinstance(value, torch.Tensor):
        return _plain_array(value.detach().cpu().numpy())
    if isinstance(value, np.ndarray):
        return _plain_array(value)
    if isinstance(value, (torch.dtype, torch.device)):
        return str(value)
    if isinstance(value, LRScheduler):
        return schedule_settings(value)
    named = value if hasattr(value, "__qualname__") else type(value)
    return f"{named.__module__}.{named.__qualname__}"


def _plain_array(values: np.ndarray) -> Any:
    """Return a short array as lists, and a line with the digest of a longer one."""
    array = np.ascontiguousarray(values)
    if array.size <= _MOST_ELEMENTS:
        return array.tolist()
    return f"{array.dtype} {array.shape} {sha256(array.tobytes()).hexdigest()}"


def optimiser_settings(optimiser: Any) -> dict[str, Any]:
    """Return an optimiser's class, and the settings of each of its groups of parameters."""
    groups = []
    for group in optimiser.param_groups:
        groups.append({name: value for name, value in group.items() if name != "params"})
    return {"class": plain(type(optimiser)), "groups": plain(groups)}


def schedule_settings(schedule: Any) -> dict[str, Any]:
    """Return a schedule's class and attributes, also of the schedules that it consists of.

    Its place, and attributes that some versions of torch add, are left out.
    """
    settings = {"class": plain(type(schedule))}
    for name, value in vars(schedule).items():
        if name in ("optimizer", "last_epoch", "verbose"):
            continue
        # `SequentialLR` and `ChainedScheduler` keep what they consist of under these names.
        if name.startswith("_") and name not in ("_schedulers", "_milestones"):
            continue
        settings[name] = plain(value)
    return settings


def loss_settings(loss: Any) -> dict[str, Any]:
    """Return a loss's class, public attributes and buffers, also of the modules within it."""
    if not isinstance(loss, torch.nn.Module):
        return {"class": plain(loss)}
    result: dict[str, Any] = {}
    for name, module in loss.named_modules():
        if hasattr(module, "_orig_mod"):
            # It is compiled; the original module has its own place.
            continue
        settings = {"class": plain(type(module))}
        for attribute, value in vars(module).items():
            # "training" is the mode that torch sets on every module, not a setting of the loss.
            if not attribute.startswith("_") and attribute != "training":
                settings[attribute] = plain(value)
        for attribute, tensor in module.named_parameters(recurse=False):
            settings[attribute] = plain(tensor)
        for attribute, tensor in module.named_buffers(recurse=False):
            settings[attribute] = plain(tensor)
        # Compiled or not, a module has one path, so that the two can be compared.
        path = name.replace("_orig_mod", "").strip(".")
        if path:
            result[path] = settings
        else:
            result.update(settings)
    return result
