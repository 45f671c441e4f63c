"""What is saved of an augmenter: a handful of integers and strings."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from detaug.engine.schedule import Position
from detaug.errors import StateMismatch
from detaug.pipeline import identity
from detaug.seeding.tree import Seed, checked_seed, non_negative_int, spawn_key_element
from detaug.versions import NUMERICS, SEED_SCHEME

_FORMAT = 1
_NUMBERS = ("epoch", "step", "taken", "rank", "world_size", "num_streams", "seed_scheme", "numerics")


@dataclass(frozen=True)
class State:
    """A position in one stream of batches, and what stream it is.

    Attributes:
        seed, name: the branch of the seed tree.
        epoch, step: what is due next.
        taken: batches this rank took in the epoch.
        rank, world_size, num_streams: how steps are shared out.
        pipeline: declared parameters, a line each (see `detaug.pipeline.identity`).
        loader_states: where a loader's copies stand (see `detaug.pipeline.loader_states`); empty: that is not known.
        skipped: batches that were left out directly before the position.
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
    skipped: int = 0

    def as_dict(self) -> dict[str, Any]:
        """Plain integers and strings."""
        state: dict[str, Any] = {"format": _FORMAT}
        state.update({name: getattr(self, name) for name in _NUMBERS})
        state.update(seed=self.seed, name=self.name, pipeline="\n".join(self.pipeline))
        if self.loader_states:
            state["loader_states"] = self.loader_states
        if self.skipped:
            state["skipped"] = self.skipped
        return state

    @staticmethod
    def from_dict(state: Any) -> State:
        """Read a state dict.

        Raises:
            TypeError: it is no dict.
            ValueError: something is missing or of the wrong kind.
        """
        if not isinstance(state, dict):
            raise TypeError(f"a state dict is a dict, got {type(state).__name__}")
        missing = [key for key in ("format", "seed", "name", "pipeline", *_NUMBERS) if key not in state]
        if missing:
            raise ValueError(
                f"this is no state dict of a DeterministicAugmenter: {', '.join(map(repr, missing))} missing "
                f"(it has {', '.join(map(repr, list(state)[:8])) or 'nothing'})"
            )
        if state["format"] != _FORMAT:
            raise ValueError(f"the state dict has format {state['format']!r}, this version of detaug reads {_FORMAT}")
        for key in ("name", "pipeline", "loader_states"):
            if not isinstance(state.get(key, ""), str):
                raise TypeError(f"the state dict's {key!r} must be a string, got {state[key]!r}")
        numbers = {key: non_negative_int(f"the state dict's {key!r}", state[key]) for key in _NUMBERS}
        spawn_key_element("the state dict's 'epoch'", numbers["epoch"])
        for key in ("world_size", "num_streams"):
            if numbers[key] == 0:
                raise ValueError(f"the state dict's {key!r} must be at least 1, got 0")
        spawn_key_element("the turn of the state dict's 'step'", numbers["step"] // numbers["num_streams"])
        if numbers["step"] % numbers["world_size"] != numbers["rank"]:
            raise ValueError(
                f"the state dict's step {numbers['step']} is none of rank {numbers['rank']} of {numbers['world_size']}"
            )
        return State(
            seed=checked_seed(state["seed"]),
            name=state["name"],
            pipeline=state["pipeline"].split("\n"),
            loader_states=state.get("loader_states", ""),
            skipped=non_negative_int("the state dict's 'skipped'", state.get("skipped", 0)),
            **numbers,
        )

    def check_belongs_to(self, ours: State, any_seed: bool) -> None:
        """Refuse what another augmenter saved.

        Raises:
            StateMismatch: the message says what differs.
        """
        wrong = []
        for name, what in (
            ("seed_scheme", "seed scheme"),
            ("numerics", "numerics version"),
            ("num_streams", "number of streams (num_streams)"),
            ("name", "name"),
        ):
            if getattr(self, name) != getattr(ours, name):
                wrong.append(f"{what}: here {getattr(ours, name)!r}, in the state {getattr(self, name)!r}")
        if not any_seed and self.seed != ours.seed:
            wrong.append(f"seed: here {ours.seed!r}, in the state {self.seed!r}")
        if self.pipeline != ours.pipeline:
            wrong.append(f"pipeline: {identity.differences(ours.pipeline, self.pipeline)}")
        if wrong:
            raise StateMismatch(
                "this state dict was saved by another pipeline, and going on from it would give other batches. "
                + ". ".join(wrong)
            )

    def position_for(self, rank: int, world_size: int) -> Position:
        """The position at which `rank` of `world_size` continues: all ranks of a run stand in the same round of steps.

        Raises:
            StateMismatch: the round does not begin at a multiple of the new world size.
        """
        first = self.step - self.rank
        if first % world_size:
            raise StateMismatch(
                f"the state was saved at step {first} by {self.world_size} ranks; {world_size} ranks can go on only "
                f"where the step is a multiple of {world_size}. Save at an epoch's start to change the number of ranks."
            )
        taken = self.taken * self.world_size // world_size
        return Position(self.epoch, first + rank, taken)
