"""The number of processes that train together is read from the launcher's variables."""

from __future__ import annotations

import pytest

from detaug.seeding.ranks import LAUNCHERS, check_all_are_known

#: Pairs of the launcher's variables and the least number of processes that train together.
LAUNCHED = [
    ({}, 1),
    ({"RANK": "0", "WORLD_SIZE": "3"}, 3),
    ({"WORLD_SIZE": "1", "LOCAL_RANK": "0"}, 1),
    ({"LOCAL_RANK": "2"}, 3),
    ({"LOCAL_RANK": "-1"}, 1),
    ({"RANK": "2"}, 3),
    ({"RANK": "1", "LOCAL_RANK": "3"}, 4),
    ({"RANK": "five", "WORLD_SIZE": "six"}, 1),
]


@pytest.fixture(autouse=True)
def no_launcher(monkeypatch: pytest.MonkeyPatch) -> None:
    """Remove all variables of a launcher that has started the tests themselves."""
    for variables in (*LAUNCHERS, ("LOCAL_RANK",)):
        for variable in variables:
            monkeypatch.delenv(variable, raising=False)


@pytest.mark.parametrize(("variables", "processes"), LAUNCHED)
def test_more_processes_than_are_known_of_are_an_error(
    monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], processes: int
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    check_all_are_known(processes)
    if processes == 1:
        return
    with pytest.raises(ValueError, match=f"{processes} processes train together"):
        check_all_are_known(processes - 1)
