"""What is saved of an augmenter: a handful of integers and strings."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from detaug.engine.outcomes import Position
from detaug.errors import StateMismatch
from detaug.objects import description as identity
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
    """A position in one stream of batches, and what stream it is.

    Attributes:
        epoch, step: what is due next.
        taken: batches this rank took in the epoch, since there are so many ranks.
        pipeline: declared parameters, a line each (see `detaug.objects.description`).
        loader_states: where a loader's copies stand (see `detaug.pipeline.loader_states`); empty:
            that is not known.
        values: what no parameter declares, a line each (see `detaug.pipeline.undeclared`).
        skipped: batches that were left out directly before the position.
        before: batches that all ranks took in the epoch when there were more or fewer of them;
            None: it was begun by as many ranks as there are.
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
        """Plain integers and strings."""
        state: dict[str, Any] = {
            "format": _FORMAT,
            **{name: getattr(self, name) for name in _NUMBERS},
        }
        state |= {"seed": self.seed, "name": self.name, "pipeline": "\n".join(self.pipeline)}
        optional = {
            "loader_states": self.loader_states or None,
            "values": "\n".join(self.values) or None,
            "skipped": self.skipped or None,
            "before": self.before,
        }
        return state | {name: value for name, value in optional.items() if value is not None}

    @staticmethod
    def from_dict(state: Any) -> State:
        """Read a state dict. A TypeError or ValueError says what is missing or of the wrong kind."""
        if not isinstance(state, dict):
            raise TypeError(f"a state dict is a dict, got {type(state).__name__}")
        missing = [
            key for key in ("format", "seed", "name", "pipeline", *_NUMBERS) if key not in state
        ]
        if missing:
            raise ValueError(
                "this is no state dict of a DeterministicAugmenter: "
                f"{', '.join(map(repr, missing))} missing "
                f"(it has {', '.join(map(repr, list(state)[:8])) or 'nothing'})"
            )
        if state["format"] != _FORMAT:
            raise ValueError(
                f"the state dict has format {state['format']!r}, this version of detaug reads "
                f"{_FORMAT}"
            )
        for key in ("name", "pipeline", "loader_states", "values"):
            if not isinstance(state.get(key, ""), str):
                raise TypeError(f"the state dict's {key!r} must be a string, got {state[key]!r}")
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
        before = (
            non_negative_int("the state dict's 'before'", state["before"])
            if "before" in state
            else None
        )
        first = numbers["step"] - numbers["rank"]
        if (
            numbers["rank"] >= numbers["world_size"]
            or first < 0
            or (before is None and first % numbers["world_size"])
        ):
            raise ValueError(
                f"the state dict's step {numbers['step']} is none of rank {numbers['rank']} of "
                f"{numbers['world_size']}"
            )
        return State(
            seed=checked_seed(state["seed"]),
            name=state["name"],
            pipeline=state["pipeline"].split("\n"),
            loader_states=state.get("loader_states", ""),
            values=tuple(filter(None, state.get("values", "").split("\n"))),
            skipped=non_negative_int("the state dict's 'skipped'", state.get("skipped", 0)),
            before=before,
            **numbers,
        )

    def check_belongs_to(self, ours: State, any_seed: bool, any_pipeline: bool = False) -> None:
        """Refuse what another augmenter saved: a StateMismatch says what differs.

        Args:
            ours: of the augmenter that is to continue.
            any_seed: the seed is not compared: it is taken from the state.
            any_pipeline: nothing is compared that follows from the pipeline, which may yet change.
        """
        compared = {"seed_scheme": "seed scheme", "numerics": "numerics version"}
        if not any_pipeline:
            compared["num_streams"] = "number of streams (num_streams)"
        compared["name"] = "name"
        if not any_seed:
            compared["seed"] = "seed"
        wrong = [
            f"{what}: here {getattr(ours, name)!r}, in the state {getattr(self, name)!r}"
            for name, what in compared.items()
            if getattr(self, name) != getattr(ours, name)
        ]
        if not any_pipeline and self.pipeline != ours.pipeline:
            wrong.append(f"pipeline: {identity.differences(ours.pipeline, self.pipeline)}")
        if wrong:
            raise StateMismatch(
                "this state dict was saved by another pipeline, and going on from it would give "
                "other batches. " + ". ".join(wrong)
            )

    def position_for(self, rank: int, world_size: int) -> Position:
        """Return the position at which `rank` of `world_size` continues.

        All ranks of a run stand in the same round of steps, so any rank's state says where.
        """
        before = self.before or 0
        step = self.step - self.rank + rank
        if world_size == self.world_size:
            return Position(self.epoch, step, self.taken, before, self.skipped)
        taken_by_all = before + self.taken * self.world_size
        return Position(self.epoch, step, 0, taken_by_all, self.skipped)
