"""The surroundings of a pipeline, held constant or changed: the system's randomness, clock, process number, folders, threads.

Everything is held still in two runs but for one thing: if the batches differ, that thing is what they depend on. Where
only the calls from one line are changed, it is that line.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from detaug.watching.interception import Site

#: What can be changed, by the names of the fields of `Conditions`.
FACTORS = ("randomness", "clock", "process", "folders", "threads", "global_state")


@dataclass(frozen=True)
class Conditions:
    """Each number names one state of one thing; 0 is the still one.

    Attributes:
        randomness: random bytes of the operating system.
        clock: what `time` and `datetime` say. 0: a millisecond passes from call to call; otherwise random times do.
        process: what `os.getpid` and the like say.
        folders: the order in which folders list their files. 0: sorted.
        threads: how long threads are held up. 0: not at all.
        global_state: the global generators' state when the pipeline is made.
        only: nothing is changed but what this line is given.
    """

    randomness: int = 0
    clock: int = 0
    process: int = 0
    folders: int = 0
    threads: int = 0
    global_state: int = 0
    only: Site | None = None

    def changed(self, factor: str, number: int, only: Site | None = None) -> Conditions:
        """The same but for one thing."""
        return replace(self, **{factor: number}, only=only)


@dataclass
class Calls:
    """Which lines asked for what, and by which function, in order of their first call.

    Attributes:
        sites: for each factor.
        start_over: call it before every batch, which then gets the same clock and the same random bytes at any place in
            the order of batches.
        batch: how many batches were begun.
        seeds: which lines seeded a generator while a batch was made, with which seeds, and in which batches.
    """

    sites: dict[str, dict[Site, str]] = field(default_factory=lambda: {factor: {} for factor in FACTORS})
    start_over: Callable[[], None] = lambda: None
    batch: int = 0
    seeds: dict[Site, tuple[set[str], set[int]]] = field(default_factory=dict)

    def note(self, factor: str, site: Site, function: str) -> None:
        """One call."""
        self.sites[factor].setdefault(site, function)

    def note_seed(self, site: Site | None, seed: Any) -> None:
        """A generator was seeded with a number, or several."""
        if site is None or self.batch == 0 or not isinstance(seed, (int, float, str, bytes, list, tuple)):
            return
        seeds, batches = self.seeds.setdefault(site, (set(), set()))
        seeds.add(repr(seed))
        batches.add(self.batch)

    def always_the_same(self) -> dict[Site, str]:
        """Lines that seeded a generator in several batches and always with the same seed, which is given."""
        return {
            site: next(iter(seeds))
            for site, (seeds, batches) in self.seeds.items()
            if len(seeds) == 1 and len(batches) >= min(3, self.batch) and self.batch > 1
        }
