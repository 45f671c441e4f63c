"""What a training is made of: kept in its checkpoints, so that it is only ever continued as
itself.
"""

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

from detaug.differences import differences as differences_of
from detaug.errors import StateMismatch
from detaug.fingerprints import dense, fingerprint
from detaug.ledger.header import by_name, flat
from detaug.nnunet.loading.case_files import some_of
from detaug.reports.escaping import printable, short
from detaug.reports.untrusted import conforms, is_small
from detaug.seeding.tree import Seed
from detaug.versions import NUMERICS, SEED_SCHEME, __version__

#: The record's place in a checkpoint.
KEY = "detaug"

#: Names of parts of the record, with commas between them, in which a training may differ from the
#: one that it continues.
ALLOW_VARIABLE = "DETAUG_ALLOW"

#: Of the record: what happened to the training, and is not compared when it is continued.
_HISTORY = ("pretrained", "allowed")
#: Lines of a message on one part; one transform less moves all that follow it.
_MOST_LINES = 6
#: Of a longer array the digest is kept.
_FEW = 64


def versions() -> dict[str, str]:
    """Of the packages whose code decides a training's bytes."""
    others = {
        name: importlib.metadata.version(name)
        for name in (
            "nnunetv2",
            "batchgenerators",
            "batchgeneratorsv2",
            "acvl_utils",
            "dynamic_network_architectures",
            "torch",
            "numpy",
            "scipy",
        )
    }
    return {"detaug": __version__, **others, "torch": torch.__version__.split(" ")[0]}


@dataclass(frozen=True)
class RunRecord:
    """Everything that decides a training's bytes and that nnU-Net does not take from its
    checkpoint, as JSON can hold it.

    Each field is a part that ``DETAUG_ALLOW`` can name, but for the last two; docs/nnunet.md has a
    table of them.

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
    pretrained: str | None = None
    allowed: list[str] = field(default_factory=list)

    @classmethod
    def from_checkpoint(cls, checkpoint: Mapping[str, Any]) -> RunRecord | None:
        """The record in a checkpoint, None where it has none; a `StateMismatch` where it is of
        another version of detaug.
        """
        stored = checkpoint.get(KEY)
        if stored is None:
            return None
        names = {each.name for each in fields(cls)}
        if not isinstance(stored, Mapping) or set(stored) != names:
            found = (
                sorted(map(str, stored)) if isinstance(stored, Mapping) else type(stored).__name__
            )
            raise StateMismatch(
                f"the checkpoint's record of its training has {found}, and detaug {__version__}"
                f" reads {sorted(names)}: continue with the version of detaug that wrote it"
            )
        wrong = [
            name for name, kind in get_type_hints(cls).items() if not conforms(stored[name], kind)
        ]
        if wrong or not is_small(stored):
            raise StateMismatch(
                "the checkpoint's record of its training is damaged:"
                f" {', '.join(wrong) or 'it is nested too deeply'}"
            )
        return cls(**stored)

    def as_dict(self) -> dict[str, Any]:
        """Return the record as a checkpoint has it.

        `dataclasses.asdict` would rebuild the counters in a schedule's state as counters of pairs.
        """
        return {each.name: getattr(self, each.name) for each in fields(self)}

    def check_continues(self, earlier: RunRecord) -> list[str]:
        """What differs from the training that is to be continued, and is allowed to.

        Raises:
            StateMismatch: something else differs; the message says what, and what to do.
            ValueError: ``DETAUG_ALLOW`` names no part of the record.
        """
        allowed = allowed_parts()
        found = {
            part: told
            for part, told in _told(earlier.as_dict(), self.as_dict()).items()
            if part not in _HISTORY
        }
        refused = [part for part in found if part not in allowed]
        if refused:
            lines = [line for part in refused for line in found[part]]
            raise StateMismatch(
                "this checkpoint cannot be continued: the training would not be the one that it"
                " began as.\n  "
                + "\n  ".join(lines)
                + f"\n{ALLOW_VARIABLE}={','.join(sorted({*allowed, *refused}))} continues"
                " nevertheless, and the next checkpoints say so; the result then does not follow"
                " from the seed alone."
            )
        return [line for lines in found.values() for line in lines]


def allowed_parts() -> set[str]:
    """What ``DETAUG_ALLOW`` names; a ValueError where that is no part of the record."""
    parts = [each.name for each in fields(RunRecord) if each.name not in _HISTORY]
    names = {each.strip() for each in os.environ.get(ALLOW_VARIABLE, "").split(",") if each.strip()}
    unknown = sorted(names - set(parts))
    if unknown:
        raise ValueError(
            f"{ALLOW_VARIABLE} in the environment names {', '.join(map(repr, unknown))}; it may"
            f" name {', '.join(parts)}"
        )
    return names


def _told(earlier: Mapping[str, Any], now: Mapping[str, Any]) -> dict[str, list[str]]:
    """Part -> a line for each of its entries that differs."""
    lines: dict[str, list[str]] = {}
    if not _has_one_schedule(earlier["schedule"], now["schedule"]):
        earlier = {**earlier, "schedule": schedule_without_state(earlier["schedule"])}
        now = {**now, "schedule": schedule_without_state(now["schedule"])}
    if names := changed_cases(earlier["data"], now["data"]):
        lines["data"] = [f"data: other files of {printable(some_of(names))}{_ADVICE['data']}"]
    for path, before, after in differences(without_data(earlier), without_data(now)):
        part = path.partition(".")[0]
        if part in ("cases", "machine") and isinstance(before, list) and isinstance(after, list):
            before, after = _without(before, after), _without(after, before)
        entry = printable(path).replace(".", ": ", 1)
        text = (
            f"{entry}: {short(before)} in the checkpoint, {short(after)} now{_ADVICE.get(part, '')}"
        )
        lines.setdefault(part, []).append(text)
    for part, all_of_them in lines.items():
        if len(all_of_them) > _MOST_LINES:
            lines[part] = [
                *all_of_them[:_MOST_LINES],
                f"{part}: and {len(all_of_them) - _MOST_LINES} entries more",
            ]
    return lines


def _has_one_schedule(earlier: Mapping[str, Any], now: Mapping[str, Any]) -> bool:
    """Return whether two schedules have the same settings and are of one class by now."""
    is_set_alike = not any(
        differences(schedule_without_state(earlier), schedule_without_state(now))
    )
    return is_set_alike and _class_of_state(earlier) == _class_of_state(now)


def _class_of_state(schedule: Mapping[str, Any]) -> Any:
    """Return the class in a schedule's state; None where the record has none: it may be a file of
    anybody's.
    """
    state = schedule.get("state")
    return state.get("class") if isinstance(state, Mapping) else None


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
    return ", ".join(each for each in names if each not in others) or "no other"


def differences(one: Mapping[str, Any], other: Mapping[str, Any]) -> Iterator[tuple[str, Any, Any]]:
    """(path, value, other value) of what differs between two records or checkpoints, in their
    order.
    """
    entries, others = (dict(flat(_readable(record))) for record in (one, other))
    return differences_of(entries, others, compared_by=print_of, absent="nothing")


def _readable(record: Mapping[str, Any]) -> Mapping[str, Any]:
    """With a pipeline's description by names."""
    pipeline = record.get("pipeline")
    if not isinstance(pipeline, Mapping):
        return record
    return {**record, "pipeline": {name: by_name(lines) for name, lines in pipeline.items()}}


def print_of(value: Any) -> str:
    """`detaug.fingerprint`; of what has none, a line that says so, equal for all values of one
    class.
    """
    try:
        return fingerprint(dense(value) if isinstance(value, torch.Tensor) else value)
    except TypeError:
        return f"not compared: {type(value).__module__}.{type(value).__qualname__}"


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
    """A value as JSON can hold it, whatever process or machine it is in; of an object its class, of
    a schedule its settings.
    """
    if isinstance(value, np.generic):
        return value.item()
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, Mapping):
        return {str(name): plain(each) for name, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(each) for each in value]
    if isinstance(value, (torch.Tensor, np.ndarray)):
        array = np.ascontiguousarray(
            value.detach().cpu().numpy() if isinstance(value, torch.Tensor) else value
        )
        if array.size <= _FEW:
            return array.tolist()
        return f"{array.dtype} {array.shape} {sha256(array.tobytes()).hexdigest()}"
    if isinstance(value, (torch.dtype, torch.device)):
        return str(value)
    if isinstance(value, LRScheduler):
        return schedule_settings(value)
    named = value if hasattr(value, "__qualname__") else type(value)
    return f"{named.__module__}.{named.__qualname__}"


def optimiser_settings(optimiser: Any) -> dict[str, Any]:
    """Class, and settings of each group of parameters."""
    groups = [
        {name: each for name, each in group.items() if name != "params"}
        for group in optimiser.param_groups
    ]
    return {"class": plain(type(optimiser)), "groups": plain(groups)}


def schedule_settings(schedule: Any) -> dict[str, Any]:
    """Class and attributes, also of the schedules that one is made of, without its place and what
    versions of torch add.
    """
    left_out = {
        "optimizer",
        "last_epoch",
        "verbose",
        *(name for name in vars(schedule) if name.startswith("_")),
    }
    left_out -= {"_schedulers", "_milestones"}
    settings = {name: plain(each) for name, each in vars(schedule).items() if name not in left_out}
    return {"class": plain(type(schedule)), **settings}


def loss_settings(loss: Any) -> dict[str, Any]:
    """Class, public attributes and buffers, also of the modules that one is made of."""
    if not isinstance(loss, torch.nn.Module):
        return {"class": plain(loss)}
    found: dict[str, Any] = {}
    for name, module in loss.named_modules():
        if hasattr(module, "_orig_mod"):  # compiled; what it is made of has its own place
            continue
        attributes = {
            each: value for each, value in vars(module).items() if not each.startswith("_")
        }
        tensors = {
            **dict(module.named_parameters(recurse=False)),
            **dict(module.named_buffers(recurse=False)),
        }
        del attributes["training"]
        settings = {"class": plain(type(module)), **plain(attributes), **plain(tensors)}
        path = name.replace("_orig_mod", "").strip(".")
        found.update({path: settings} if path else settings)
    return found
