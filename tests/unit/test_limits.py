"""The number of usable cores under limits of control groups, read from their files."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from detaug.system import limits

GROUPS = Path("/sys/fs/cgroup")

#: Name -> (texts of the files of a control group and its parent, limit of cores or None).
QUOTAS: dict[str, tuple[dict[Path, str], int | None]] = {
    "none": ({}, None),
    "no limit": ({GROUPS / "job/cpu.max": "max 100000"}, None),
    "half a core": ({GROUPS / "job/cpu.max": "50000 100000"}, 1),
    "a core and a half": ({GROUPS / "job/cpu.max": "150000 100000"}, 1),
    "of the group above": (
        {
            GROUPS / "job/cpu.max": "max 100000",
            GROUPS / "cpu.max": "100000 100000",
        },
        1,
    ),
    "of version 1": (
        {
            GROUPS / "cpu/job/cpu.cfs_quota_us": "100000",
            GROUPS / "cpu/job/cpu.cfs_period_us": "100000",
        },
        1,
    ),
    "no limit, of version 1": (
        {
            GROUPS / "cpu/job/cpu.cfs_quota_us": "-1",
            GROUPS / "cpu/job/cpu.cfs_period_us": "100000",
        },
        None,
    ),
}


@pytest.mark.parametrize(("texts", "most"), QUOTAS.values(), ids=QUOTAS)
def test_a_quota_limits_the_cores_to_whole_ones_and_at_least_one(
    monkeypatch: pytest.MonkeyPatch, texts: dict[Path, str], most: int | None
) -> None:
    files = {Path("/proc/self/cgroup"): "0::/job\n4:cpu,cpuacct:/job", **texts}

    def lines(file: str | Path) -> list[str]:
        return files.get(Path(file), "").splitlines()

    monkeypatch.setattr(limits, "lines", lines)
    num_bound = len(os.sched_getaffinity(0))
    expected = num_bound if most is None else min(num_bound, most)
    assert limits.usable_cores() == expected
