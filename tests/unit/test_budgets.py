"""Each room of the package has a budget of lines. A commit that raises one says why.

``python -m tests.unit.test_budgets`` prints what each room has.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import detaug

#: Lines of each room's files, docstrings and blank lines too; ``.`` is the files that lie in no room.
BUDGETS = {
    ".": 608,
    "bench": 375,
    "cli": 748,
    "demo": 461,
    "doctor": 195,
    "engine": 4_502,
    "kernels": 3_515,
    "ledger": 872,
    "loops": 441,
    "memory": 310,
    "nnunet": 3_674,
    "pictures": 181,
    "pipeline": 1_219,
    "previews": 464,
    "processes": 583,
    "purity": 1_628,
    "ray": 610,
    "remaking": 335,
    "reports": 281,
    "seeding": 953,
    "sources": 1_132,
    "training": 1_517,
    "transforms": 6_055,
    "transport": 816,
    "verification": 1_206,
    "watching": 295,
}


def lines_of_rooms() -> Counter[str]:
    """Room → lines of its files."""
    root = Path(detaug.__file__).parent
    found: Counter[str] = Counter()
    for file in root.rglob("*.py"):
        room = file.relative_to(root).parts[0] if file.parent != root else "."
        found[room] += len(file.read_text(encoding="utf-8").splitlines())
    return found


def test_no_room_has_more_lines_than_its_budget() -> None:
    over = {
        room: (lines, BUDGETS.get(room, 0)) for room, lines in lines_of_rooms().items() if lines > BUDGETS.get(room, 0)
    }
    assert over == {}, "shorten it, or raise its budget in a commit that says why"


def test_no_budget_is_kept_for_a_room_that_is_gone() -> None:
    assert set(BUDGETS) <= set(lines_of_rooms())


if __name__ == "__main__":
    table = lines_of_rooms()
    for room, lines in sorted(table.items()):
        print(f"{room:14} {lines:6,} of {BUDGETS.get(room, 0):6,}")
    print(f"{'all':14} {table.total():6,} of {sum(BUDGETS.values()):6,}")
