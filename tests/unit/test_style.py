"""The code stays as plain as it is: limits that only ever fall."""

from pathlib import Path

import pytest

from tests.support.measure_style import measure

_ROOT = Path(__file__).parents[2]

#: The largest value of each measure. Lower them when the code allows it; never raise them.
PACKAGE_LIMITS = {
    "tokens per code line": 8.2,
    "long, % of lines": 0.1,
    "conditional expressions / 1,000": 8.0,
    "nested comprehensions / 1,000": 0.2,
    "lambdas / 1,000": 0.5,
    "parallel assignments / 1,000": 0.3,
    "starred groups / 1,000": 0.0,
}
TESTS_LIMITS = {
    "tokens per code line": 8.9,
    "long, % of lines": 0.2,
    "conditional expressions / 1,000": 3.2,
    "nested comprehensions / 1,000": 1.2,
    "lambdas / 1,000": 5.8,
    "parallel assignments / 1,000": 1.5,
}


def test_a_single_file_is_measured_without_functions_as_well(tmp_path: Path) -> None:
    path = tmp_path / "module.py"
    path.write_text("# Why.\nx = 1 if True else 2\n", encoding="utf-8")
    measures = measure(path)
    assert measures["lines"] == 2
    assert measures["conditional expressions / 1,000"] == 1000
    assert measures == measure(tmp_path)


def test_a_folder_without_code_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="has no Python code"):
        measure(tmp_path)


@pytest.mark.parametrize(
    ("folder", "limits"), [("detaug", PACKAGE_LIMITS), ("tests", TESTS_LIMITS)]
)
def test_the_code_gets_no_denser(folder: str, limits: dict[str, float]) -> None:
    measures = measure(_ROOT / folder)
    too_dense = {name: measures[name] for name, limit in limits.items() if measures[name] > limit}
    assert not too_dense
