"""fingerprint: equal iff keys, types, dtypes, shapes and bytes are equal, where all NaNs are;
stable everywhere.
"""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from numpy.lib.recfunctions import repack_fields

from detaug import fingerprint
from tests.processes.engine.test_surroundings import run_python

DTYPES = st.sampled_from(["u1", "i2", "<i4", ">i4", "i8", "f2", "f4", "f8", "c8", "?"])
ARRAYS = DTYPES.flatmap(
    lambda dtype: hnp.arrays(
        dtype, hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=3)
    )
)


def bytes_of(array: np.ndarray) -> bytes:
    """With one NaN in place of all."""
    if array.dtype.kind not in "fc":
        return array.tobytes()
    parts = np.stack([array.real, array.imag])
    parts[np.isnan(parts)] = np.nan
    return parts.tobytes()


@settings(max_examples=200, deadline=None)
@given(ARRAYS, st.data())
def test_any_bit_of_any_array_counts_but_those_of_a_nan(
    array: np.ndarray, data: st.DataObject
) -> None:
    if array.nbytes == 0:
        return
    raw = bytearray(array.tobytes())
    bit = data.draw(st.integers(0, 8 * len(raw) - 1))
    raw[bit // 8] ^= 1 << bit % 8
    flipped = np.frombuffer(bytes(raw), array.dtype).reshape(array.shape)
    assert (fingerprint({"a": flipped}) == fingerprint({"a": array})) is (
        bytes_of(flipped) == bytes_of(array)
    )


PAIRS: dict[str, tuple[Any, Any]] = {
    "list and tuple": ([1, 2], (1, 2)),
    "int and float": (1, 1.0),
    "int and bool": (1, True),
    "None and its name": (None, "None"),
    "int and its digits": (1, "1"),
    "int and NumPy's": (1, np.int64(1)),
    "NumPy scalar and array of no dimensions": (np.float32(1), np.array(1, np.float32)),
    "float and NumPy's": (1.0, np.float64(1.0)),
    "text and bytes": ("a", b"a"),
    "minus zero as a float": (0.0, -0.0),
    "array and tensor": (np.ones(3, np.float32), torch.ones(3)),
    "dtypes of one size": (np.zeros(2, np.int32), np.zeros(2, np.float32)),
    "tensor dtypes of one size": (torch.zeros(2, dtype=torch.float16), torch.zeros(2, dtype=torch.bfloat16)),
    "byte orders": (np.zeros(2, ">i4"), np.zeros(2, "<i4")),
    "shapes of one size": (np.zeros((2, 3)), np.zeros((3, 2))),
    "widths of strings": (np.array(["a"], "U1"), np.array(["a"], "U2")),
    "where one text ends and the next begins": (["ab", "c"], ["a", "bc"]),
    "where one list ends and the next begins": ([[1], [2]], [[1, 2]]),
    "nothing at different depths": ([[]], [[], []]),
    "empty containers": ([], ()),
    "where arrays are cut": ([np.zeros(1), np.zeros(3)], [np.zeros(2), np.zeros(2)]),
    "keys": ({"a": 1}, {"b": 1}),
    "types of keys": ({1: "x"}, {"1": "x"}),
    "values of swapped keys": ({"a": 1, "b": 2}, {"a": 2, "b": 1}),
    "huge ints": (10**5000, 10**5000 + 1),
    "numbers of items without bytes": (np.zeros(3, "V0"), np.zeros(2, "V0")),
    "ints of either sign": (255, -1),
}  # fmt: skip


@pytest.mark.parametrize("what", PAIRS)
def test_difference_shows_in(what: str) -> None:
    one, other = PAIRS[what]
    assert fingerprint(one) != fingerprint(other)
    assert fingerprint({"a": [one]}) != fingerprint({"a": [other]})


def holding(bits: int) -> dict[str, Any]:
    """A float32 of these bits and a one, in what the arrays of hypothesis are not."""
    array = np.array([bits, 0x3F800000], np.uint32).view(np.float32)
    aligned = np.zeros(
        2, np.dtype([("b", "i1"), ("x", "f4"), ("in", [("y", "f4", (2,))])], align=True)
    )
    aligned["x"] = array
    aligned["in"]["y"] = array[:, None]
    return {
        "many": np.repeat(array, 50_000),
        "scalar": array[0],
        "float": float(array[0]),
        "complex": complex(0, array[0]),
        "packed": np.rec.fromarrays([array, np.arange(2)], dtype=[("x", "f4"), ("n", "i4")]),
        "aligned": aligned,
        "objects": np.array([array], dtype=object),
        "tensor": torch.from_numpy(array),
        "complex tensor": torch.from_numpy(array.view("c8")),
        "bfloat16": torch.from_numpy(
            np.array([bits >> 16 | bits & 1], np.uint16).view(np.int16)
        ).view(torch.bfloat16),
    }


@pytest.mark.parametrize("bits", [0xFFC00000, 0x7F800001, 0xFFFFFFFF], ids=hex)
def test_all_nans_of_a_dtype_count_as_one(bits: int) -> None:
    """Of either sign, signaling ones too; infinities do not."""
    nan, infinity, minus = (holding(each) for each in (0x7FC00000, 0x7F800000, 0xFF800000))
    for name, form in holding(bits).items():
        before = pickle.dumps(form)
        assert fingerprint(form) == fingerprint(nan[name]), name
        assert pickle.dumps(form) == before, name
        assert len({fingerprint(each[name]) for each in (nan, infinity, minus)}) == 3, name


#: As they were when the bits of a NaN still counted, in every interpreter.
AS_EVER: dict[str, tuple[Any, str]] = {
    "float16": (np.arange(5, dtype=np.float16), "08e6a26dfcfea12a2243e3bbb11d4b16"),
    "float32": (
        np.array([1, np.inf, -np.inf, np.nan, -0.0], np.float32),
        "b24289dcb35e2873387609347c2b5f7d",
    ),
    "float64": (np.arange(12.0).reshape(3, 4).T, "2dc4bc6f35f292ee48c393b33305e928"),
    "other byte order": (np.arange(5, dtype=">f4"), "ebbd8a48ceaf49fc3371f367c9fe8a53"),
    "complex": (np.arange(3) * 1j, "ca4a6b610effea7539fb3ab8dd600310"),
    "structure": (
        np.zeros(2, np.dtype([("a", "i1"), ("b", "f8", (2,))], align=True)),
        "9d13156ecbd0ac241d5cd03f46a6b58b",
    ),
    "bfloat16": (torch.arange(5, dtype=torch.bfloat16), "ac56f2a53dcb8759469e4fa7d727c2d1"),
    "tensor": (torch.tensor([1.0, np.nan]), "bf3f58f886850c65cf7ea85d3069d7b9"),
    "batch": (
        {
            "z": np.zeros(2),
            "a": [torch.arange(3), ("x", None, 2.5, True, 2**70)],
            3: {"k": b"b"},
            "n": np.array(["c_1"]),
        },
        "603103046eac3e0933f20dd471dc9133",
    ),
    "scalars": (
        [1.5, np.nan, complex(2, np.nan), np.float32(3)],
        "0b0538de40d6fb832bf5e41f0ac57144",
    ),
}


@pytest.mark.parametrize("what", AS_EVER)
def test_fingerprints_stay_what_they_are(what: str) -> None:
    value, expected = AS_EVER[what]
    assert fingerprint(value) == expected


def test_layout_in_memory_does_not_count() -> None:
    array = np.random.default_rng(0).random((4, 6, 5))
    expected = fingerprint(array)
    assert fingerprint(np.asfortranarray(array)) == expected
    assert fingerprint(np.repeat(array, 2, axis=1)[:, ::2]) == expected
    assert fingerprint(array[::-1].copy()[::-1]) == expected
    tensor = torch.from_numpy(array)
    expected = fingerprint(tensor)
    assert fingerprint(tensor.permute(2, 0, 1).contiguous().permute(1, 2, 0)) == expected
    assert fingerprint(tensor.repeat_interleave(2, 0)[::2]) == expected


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.bool, torch.complex64, torch.uint8, torch.uint16,
                                   torch.float8_e4m3fn, torch.float8_e5m2, torch.complex32])  # fmt: skip
@pytest.mark.filterwarnings("ignore")
def test_tensors_of_every_dtype_have_one(dtype: torch.dtype) -> None:
    one, other = (torch.full((8,), value, dtype=torch.uint8).view(dtype) for value in (0, 1))
    assert fingerprint(one) == fingerprint(one.clone())
    assert fingerprint(one) != fingerprint(other)
    assert fingerprint(one) != fingerprint(one[:-1])
    assert fingerprint(one[0]) != fingerprint(one[:1])


ALIGNED = np.dtype([("a", "u1"), ("b", "f8"), ("c", "i2")], align=True)
NESTED = np.dtype([("x", "u1"), ("y", ALIGNED, (2, 3)), ("z", "c16")], align=True)
OUT_OF_ORDER = np.dtype(
    {"names": ["b", "a"], "formats": ["i4", "u1"], "offsets": [4, 1], "itemsize": 10}
)


def filled_with(byte: int, dtype: Any, count: int = 70_000) -> np.ndarray:
    """Zeros, field by field, in memory that held `byte` before."""
    array = np.full(count * dtype.itemsize, byte, np.uint8).view(dtype)
    array[...] = np.zeros(count, repack_fields(dtype, recurse=True))
    return array


@pytest.mark.parametrize(
    "dtype", [ALIGNED, NESTED, OUT_OF_ORDER, NESTED.newbyteorder(">")], ids=str
)
def test_bytes_that_no_value_stands_in_do_not_count(dtype: Any) -> None:
    one, other = filled_with(0, dtype), filled_with(0xAA, dtype)
    assert one.tobytes() != other.tobytes()
    assert fingerprint(one) == fingerprint(other)
    assert fingerprint(one[5:9]) == fingerprint(other[5:9])
    assert fingerprint(one[7]) == fingerprint(other[7])
    assert fingerprint(np.rec.array(one)) != fingerprint(other[:-1])
    other[dtype.names[0]][-1] = 101
    assert fingerprint(one) != fingerprint(other)


class Sub(torch.Tensor):
    @classmethod
    def __torch_function__(
        cls, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        if function is torch.Tensor.contiguous:
            raise AssertionError("a fingerprint must not run a subclass's operations")
        return super().__torch_function__(function, types, args, kwargs)


def test_subclasses_of_tensors_are_known_by_class_and_bytes() -> None:
    one, other = (torch.full((3,), value).as_subclass(Sub) for value in (1.0, 2.0))
    assert fingerprint(one) == fingerprint(torch.ones(3).as_subclass(Sub))
    assert (
        len(
            {
                fingerprint(each)
                for each in (one, other, torch.ones(3), torch.nn.Parameter(torch.ones(3)))
            }
        )
        == 4
    )


def test_masked_arrays_are_known_by_what_they_show() -> None:
    def masked(values: Any, mask: Any, fill: int | None = None) -> Any:
        return np.ma.array(values, mask=mask, fill_value=fill)

    assert fingerprint(masked([1, 2], [0, 1])) == fingerprint(masked([1, 3], [0, 1]))
    assert fingerprint(masked([1, 2], [0, 1])) != fingerprint(masked([2, 2], [0, 1]))
    assert fingerprint(masked([1, 2], [0, 1])) != fingerprint(masked([1, 2], [1, 0]))
    assert fingerprint(masked([1, 2], [0, 1], 7)) != fingerprint(masked([1, 2], [0, 1], 8))
    assert fingerprint(masked([1, 2], [0, 0])) != fingerprint(np.array([1, 2]))


OBJECTS = """
import collections, decimal, pandas
table = pandas.DataFrame({"age": [7, 5], "sex": ["f", None]}, index=["a", "b"])
values = [table, collections.deque([decimal.Decimal("0.1")]), collections.UserDict(a={"x", "y"})]
"""


def test_fingerprints_of_objects_are_the_same_in_another_process() -> None:
    names: dict[str, Any] = {}
    exec(OBJECTS, names)
    code = f"{OBJECTS}\nfrom detaug import fingerprint\nprint(fingerprint(values))"
    assert run_python(code, PYTHONHASHSEED="5").strip() == fingerprint(names["values"])
