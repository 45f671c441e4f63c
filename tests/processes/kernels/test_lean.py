"""Interpreters that only compile do it with less work, and what they compile computes the same bytes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.timeout(240)

PROGRAM = """
import sys
import numpy as np
from numba.core.codegen import JITCPUCodegen
from detaug import fingerprint
from detaug.kernels import bits, gamma, limits
from detaug.kernels.lean import compile_lean

if sys.argv[1] == "lean":
    compile_lean()
bits.pack.compile()  # and what Numba makes once for all

made = []
add = JITCPUCodegen._add_module
JITCPUCodegen._add_module = lambda self, module: made.append(module.name) or add(self, module)
gamma.measured_gamma_curve.compile()
limits.copy_and_measure.compile()
print(len(made))

values = np.random.Generator(np.random.PCG64(5)).random((40, 999), np.float32)
copy, bent = np.empty_like(values), np.empty(values.size, np.float32)
found = limits.copy_and_measure(values, copy)
parts = gamma.power_parts(1.3)
found += gamma.measured_gamma_curve(values.reshape(-1), bent, *map(np.float32, (0, 1, 1.3)), *parts, np.float32(0.5))
print(fingerprint([copy, bent, [float(number) for number in found]]))
"""


def output(how: str, cache: Path) -> list[str]:
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(cache)}
    done = subprocess.run([sys.executable, "-c", PROGRAM, how], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


def test_no_machine_code_is_made_of_what_is_only_linked_and_bytes_are_the_same(tmp_path: Path) -> None:
    count, made = output("lean", tmp_path / "lean")
    count_by_numba, made_by_numba = output("as ever", tmp_path / "as ever")
    assert count == "2"
    assert int(count_by_numba) > 2
    assert made == made_by_numba


def test_what_was_compiled_lean_is_loaded_as_ever(tmp_path: Path) -> None:
    _, made = output("lean", tmp_path)
    _, made_by_loaded = output("as ever", tmp_path)
    assert made == made_by_loaded


SLICES = """
import numba
import numpy as np
from detaug.kernels.lean import compile_lean

compile_lean()

@numba.njit
def assign(values, given):
    values[1:3] = given

values = np.zeros(4)
assign(values, np.ones(2))
print(*values.astype(int))
try:
    assign(values, np.ones(3))
except ValueError as error:
    print(error)
"""


def test_a_slice_of_another_shape_is_an_error_that_shows_no_shapes() -> None:
    done = subprocess.run([sys.executable, "-c", SLICES], capture_output=True, text=True)
    assert done.stdout.splitlines() == ["0 1 1 0", "cannot assign slice from input of different size"], done.stderr
