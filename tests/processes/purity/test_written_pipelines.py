"""Pipelines as researchers write them, most of them impure, in the settings that must not matter: none differs silently.

Every run is in a process of its own, since impure pipelines leave something behind in theirs.
"""

from __future__ import annotations

import json
import os
import signal
import time
from itertools import islice
from typing import Any

import pytest

from detaug import fingerprint
from detaug.purity.reports import prints_of
from tests.processes.purity import written_pipelines as pipelines
from tests.processes.purity.fuzzing import in_a_fork
from tests.processes.purity.ways import listening

pytestmark = pytest.mark.slow
BATCHES, BEFORE = 24, 7
WAYS: dict[str, tuple[int, dict[str, Any]]] = {
    "0": (0, {}),
    "2": (2, {}),
    "3, one killed": (3, {}),
    "1, resumed": (1, {}),
}


def run(name: str, way: str) -> tuple[list[tuple[int, str]], list[str]]:
    """24 batches' (number, fingerprint), and what detaug said."""
    num_processes, options = WAYS[way]
    made: list[tuple[int, str]] = []
    with listening() as heard:
        try:
            state = None
            if "resumed" in way:
                with pipelines.augmenter(name, 0) as first:
                    assert len(list(islice(first, BEFORE))) == BEFORE
                    state = json.loads(json.dumps(first.state_dict()))
            with pipelines.augmenter(name, num_processes, **options) as augmenter:
                if state is not None:
                    augmenter.load_state_dict(state)
                number = 0 if state is None else BEFORE
                while number < BATCHES:
                    for batch in islice(augmenter, BATCHES - number):
                        made.append((number, fingerprint(prints_of(batch))))
                        number += 1
                        if "killed" in way and number == 5:
                            os.kill(augmenter._engine.worker_pids()[0], signal.SIGKILL)
                # These few milliseconds may end before a check does. Nobody trains for so short a time.
                until = time.monotonic() + 60
                while not heard and not augmenter.stats()["informative"] and time.monotonic() < until:
                    time.sleep(0.01)
        except Exception as error:
            heard.append(f"{type(error).__name__}: {error}")
    return made, heard


def findings(name: str) -> tuple[dict[str, dict[int, str]], dict[str, list[str]]]:
    """(fingerprints, what was said), by way."""
    made, heard = {}, {}
    for way in WAYS:
        prints, heard[way] = in_a_fork(lambda way=way: run(name, way))
        made[way] = dict(prints)
    return made, heard


@pytest.mark.parametrize("name", pipelines.CORRECT)
def test_a_correct_pipeline_is_the_same_in_all_settings_without_a_word(name: str) -> None:
    made, heard = findings(name)
    assert not any(heard.values()), heard
    for way, prints in made.items():
        assert list(prints) == list(range(BEFORE if "resumed" in way else 0, BATCHES)), way
        assert prints == {number: made["0"][number] for number in prints}, way


@pytest.mark.parametrize("name", pipelines.IMPURE)
def test_an_impure_pipeline_is_made_pure_or_told_of(name: str) -> None:
    made, heard = findings(name)
    for one in WAYS:
        for other in WAYS:
            if not heard[one] and not heard[other]:
                shared = made[one].keys() & made[other].keys()
                assert [number for number in sorted(shared) if made[one][number] != made[other][number]] == [], (
                    one,
                    other,
                )
