"""What a patch reads of its source lies in the box that its region gives."""

from __future__ import annotations

import numpy as np
import pytest

from detaug.transforms.building.affine import rotation_and_scaling
from detaug.transforms.geometry.resampling import PatchMap

PATCH, SPACE = (9, 12, 10), (24, 30, 26)


@pytest.mark.parametrize("bent", [False, True])
def test_every_neighbour_of_every_point_is_in_the_box(bent: bool) -> None:
    rng = np.random.default_rng(1)
    for _ in range(30):
        matrix = rotation_and_scaling(list(rng.uniform(-3, 3, 3)), list(rng.uniform(0.3, 2.5, 3)))
        elastic = {"key": 5, "sigmas": [2.0] * 3, "magnitudes": [3.0, 1.0, 0.0]} if bent else None
        center = [float(c) for c in rng.uniform(-5, 35, 3)]  # also far outside
        starts, stops = PatchMap(SPACE, PATCH, matrix, elastic, center).region([("bicubic", "border")])
        grid = np.stack(np.meshgrid(*map(np.arange, PATCH), indexing="ij"), -1).reshape(-1, 3).astype(float)
        middle = [(n - 1) / 2 for n in PATCH]
        points = (grid - middle) @ np.array(matrix).T + center - 0.5
        if bent:
            moved = rng.uniform(-1, 1, points.shape) * [3.0, 1.0, 0.0]
            points += moved @ np.array(matrix).T
        seen = np.zeros(SPACE, bool)
        seen[tuple(slice(a, b) for a, b in zip(starts, stops, strict=True))] = True
        for step in np.ndindex(4, 4, 4):
            taps = np.floor(points).astype(int) + np.array(step) - 1
            assert seen[tuple(np.clip(taps, 0, np.array(SPACE) - 1).T)].all()
