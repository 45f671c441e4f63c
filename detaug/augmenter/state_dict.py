"""The state dict of an augmenter: a few integers and strings."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from detaug.engine.outcomes import Position
from detaug.errors import StateMismatch
from detaug.objects import description
from detaug.seeding.tree import Seed, checked_seed, non_negative_int, spawn_key_element
from detaug.versions import NUMERICS, SEED_SCHEME

_FORMAT = 1
_NUMBERS = (
    "epoch",
    "step",
    "taken",
    "rank",
    "world_size",
    "num_streams",
    "seed_scheme",
    "numerics",
)


@dataclass(frozen=True)
class State:
    """A position in a stream of batches, and the identity of that stream.

    Attributes:
        seed, name: of the stream.
        epoch, step: of the batch that is due.
        taken: number of batches that this rank took in the epoch, with the current number of ranks.
        rank, world_size: of the process that saved the state.
        num_streams: number of logical workers.
        pipeline: declared parameters, one a line (see `detaug.objects.description`).
        seed_scheme, numerics: versions (see `detaug.versions`).
        loader_states: states of the loader's copies (see `detaug.pipeline.loader_states`); empty:
            not known.
        values: values that no parameter declares, one a line (see `detaug.pipeline.undeclared`).
        skipped: number of batches that were left out directly before the position.
        before: number of batches that all ranks took in the epoch with another number of ranks;
            None: the number of ranks has not changed in this epoch.
    """

    seed: Seed
    name: str
    epoch: int
    step: int
    taken: int
    rank: int
    world_size: int
    num_streams: int
    pipeline: list[str]
    seed_scheme: int = SEED_SCHEME
    numerics: int = NUMERICS
    loader_states: str = ""
    values: tuple[str, ...] = ()
    skipped: int = 0
    before: int | None = None

    def as_dict(self) -> dict[str, Any]:
        """Return the state dict: keys without a value are left out."""
        state: dict[str, Any] = {"format": _FORMAT}
        for key in _NUMBERS:
            state[key] = getattr(self, key)
        state["seed"] = self.seed
        state["name"] = self.name
        state["pipeline"] = "\n".join(self.pipeline)
        if self.loader_states:
            state["loader_states"] = self.loader_states
        values = "\n".join(self.values)
        if values:
            state["values"] = values
        if self.skipped:
            state["skipped"] = self.skipped
        # Unlike the others 0 is a value here: rounds may then begin at any step.
        if self.before is not None:
            state["before"] = self.before
        return state

    @staticmethod
    def from_dict(state: Any) -> State:
        """Return the state of a state dict.

        Raises:
            TypeError, ValueError: the message says what is missing or invalid.
        """
        # Every entry is checked here: the state may come from a file, and an error at its first use
        # would name neither key nor value.
        _check_keys(state)
        numbers = {
            key: non_negative_int(f"the state dict's {key!r}", state[key]) for key in _NUMBERS
        }
        spawn_key_element("the state dict's 'epoch'", numbers["epoch"])
        for key in ("world_size", "num_streams"):
            if numbers[key] == 0:
                raise ValueError(f"the state dict's {key!r} must be at least 1, got 0")
        spawn_key_element(
            "the turn of the state dict's 'step'", numbers["step"] // numbers["num_streams"]
        )
        before = None
        if "before" in state:
            before = non_negative_int("the state dict's 'before'", state["before"])
        _check_rank(numbers["step"], numbers["rank"], numbers["world_size"], before)
        return State(
            seed=checked_seed(state["seed"]),
            name=state["name"],
            pipeline=state["pipeline"].split("\n"),
            loader_states=state.get("loader_states", ""),
            # The text of no values has one empty line.
            values=tuple(filter(None, state.get("values", "").split("\n"))),
            skipped=non_negative_int("the state dict's 'skipped'", state.get("skipped", 0)),
            before=before,
            **numbers,
        )

    def check_belongs_to(self, current: State, any_seed: bool, any_pipeline: bool = False) -> None:
        """Raise if the state was saved by an augmenter with other batches.

        Args:
            current: the state of the augmenter that will continue.
            any_seed: do not compare the seed; the augmenter takes it from the state.
            any_pipeline: do not compare anything that follows from the pipeline, which may still
                change.

        Raises:
            StateMismatch: the message says what differs.
        """
        # Versions first: another version may be the reason for all other differences.
        labels = {"seed_scheme": "seed scheme", "numerics": "numerics version"}
        if not any_pipeline:
            labels["num_streams"] = "number of streams (num_streams)"
        labels["name"] = "name"
        if not any_seed:
            labels["seed"] = "seed"
        differences = []
        for name, label in labels.items():
            current_value = getattr(current, name)
            value = getattr(self, name)
            if value != current_value:
                differences.append(f"{label}: here {current_value!r}, in the state {value!r}")
        if not any_pipeline and self.pipeline != current.pipeline:
            differences.append(
                f"pipeline: {description.differences(current.pipeline, self.pipeline)}"
            )
        if differences:
            raise StateMismatch(
                "this state dict was saved by another pipeline, and continuing from it would give "
                "other batches. " + ". ".join(differences)
            )

    def position_for(self, rank: int, world_size: int) -> Position:
        """Return the position at which `rank` of `world_size` continues.

        All ranks of a run are in the same round of steps, so that any rank's state will do.
        """
        before = self.before or 0
        # The round's first step, and from there this rank's step.
        step = self.step - self.rank + rank
        if world_size == self.world_size:
            return Position(self.epoch, step, self.taken, before, self.skipped)
        # With another number of ranks, rounds and counts begin at the state's round.
        taken_by_all = before + self.taken * self.world_size
        return Position(self.epoch, step, 0, taken_by_all, self.skipped)


def _check_keys(state: Any) -> None:
    """Raise a TypeError or ValueError unless a state dict has its keys, format and texts."""
    if not isinstance(state, dict):
        raise TypeError(f"a state dict is a dict, got {type(state).__name__}")
    missing = [key for key in ("format", "seed", "name", "pipeline", *_NUMBERS) if key not in state]
    if missing:
        missing_keys = ", ".join(map(repr, missing))
        first_keys = ", ".join(map(repr, list(state)[:8]))
        raise ValueError(
            f"this is no state dict of a DeterministicAugmenter: {missing_keys} missing "
            f"(it has {first_keys or 'nothing'})"
        )
    if state["format"] != _FORMAT:
        raise ValueError(
            f"the state dict has format {state['format']!r}, this version of detaug reads {_FORMAT}"
        )
    for key in ("name", "pipeline", "loader_states", "values"):
        if not isinstance(state.get(key, ""), str):
            raise TypeError(f"the state dict's {key!r} must be a string, got {state[key]!r}")


def _check_rank(step: int, rank: int, world_size: int, before: int | None) -> None:
    """Raise a ValueError unless `step` is one of this rank's.

    Args:
        step, rank, world_size: of the state dict.
        before: None: rounds begin at multiples of `world_size`. Otherwise the number of ranks
            changed within the epoch, and rounds may begin at any step.
    """
    round_start = step - rank
    is_own = 0 <= rank < world_size and round_start >= 0
    if is_own and (before is not None or round_start % world_size == 0):
        return
    raise ValueError(f"the state dict's step {step} does not belong to rank {rank} of {world_size}")
