"""Labels resampled through an affine map: per voxel the label with the largest interpolated weight.

This is the argmax over interpolated one-hot channels, without making them: where all neighbours have one label, that is
the answer; elsewhere the few labels among the neighbours are weighed in float64.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from detaug.kernels.compiling import inlined, kernel
from detaug.kernels.coordinates import (
    CONSTANT,
    FRACTIONS,
    LINE,
    NEAREST,
    ORIGIN,
    PIECE,
    PITCH,
    PLANE,
    Map,
    Sampling,
    distance_ahead,
    nearest_voxel,
    place_and_split,
    place_voxel,
    tap_piece,
    touches_nothing,
)
from detaug.kernels.pointers import load_label_pair
from detaug.kernels.tiles import (
    DEPTH,
    LENGTH,
    LINES,
    SHEET,
    expect_sheet,
    fetch,
    is_tiled,
    next_tile,
    number_of,
    place_tile,
    put_sheet,
    start_of,
)

# How equal weights are settled.
TIE_NEAREST, TIE_LOWEST, TIE_HIGHEST = 0, 1, 2

# Weights (of a whole of 1) closer than this are equal: far above the rounding of float64.
TIE = 2.0**-30

# Voxels whose neighbours differ are weighed in bundles of at most this many: a length whose rows do not all fall into the
# same lines of a CPU's cache.
BUNDLE = 2 * PIECE + 24
# In place of a label: there are more than three; it takes float64 to tell.
_MORE, _UNSETTLED = np.int32(1 << 20), np.int32(1 << 21)
# Weights are sums of eight products of float32 numbers from 0 to 1: this is far above their rounding, and above `TIE`.
_MAJORITY = np.float32(0.5 + 2.0**-16)


class Bundle(NamedTuple):
    """Voxels whose neighbours differ, as columns of flat arrays whose parts are `BUNDLE` apart.

    Attributes:
        pairs: four parts, uint32: the neighbours, two in each (see `load_label_pair`).
        places: int64, where the label goes.
        positions: x, y, z in the source, float64.
        chosen: int32, the label.
    """

    pairs: Any
    places: Any
    positions: Any
    chosen: Any


@inlined
def new_bundle() -> Any:
    """An empty one."""
    return Bundle(
        np.empty(4 * BUNDLE, np.uint32),
        np.empty(BUNDLE, np.int64),
        np.empty(3 * BUNDLE, np.float64),
        np.empty(BUNDLE, np.int32),
    )


@inlined
def _gather(source: Any, count: Any, shape: Any, flat: Any, index: Any, pairs: Any) -> None:
    """The neighbours of a piece's voxels, two in each of four parts; in a plane there are two parts."""
    line = np.intp(shape[LINE])
    if flat:
        for k in range(count):
            p = np.intp(index[k])
            pairs[k] = load_label_pair(source, p)
            pairs[PITCH + k] = load_label_pair(source, p + line)
        return
    plane = np.intp(shape[PLANE])
    for k in range(count):
        p = np.intp(index[k])
        pairs[k] = load_label_pair(source, p)
        pairs[PITCH + k] = load_label_pair(source, p + line)
        pairs[2 * PITCH + k] = load_label_pair(source, p + plane)
        pairs[3 * PITCH + k] = load_label_pair(source, p + plane + line)


@inlined
def add_to_bundle(
    bundle: Any, n: Any, pair0: Any, pair1: Any, pair2: Any, pair3: Any, x: Any, y: Any, z: Any, place: Any
) -> None:
    """Fill column n."""
    pairs, places, positions, _ = bundle
    pairs[n] = pair0
    pairs[BUNDLE + n] = pair1
    pairs[2 * BUNDLE + n] = pair2
    pairs[3 * BUNDLE + n] = pair3
    positions[n] = x
    positions[BUNDLE + n] = y
    positions[2 * BUNDLE + n] = z
    places[n] = place


def _majority_source(flat: bool) -> str:
    """A function that settles, in float32, the voxels of a piece of which one label has more than half of the weight.

    Looked for are the first neighbour's label, and the first other one. In a plane there are four neighbours.
    """
    halves = 1 if flat else 2
    corners, pairs = range(4 * halves), ", ".join(f"pairs{number}" for number in range(2 * halves))
    axes = ((1, "y"), (2, "z")) if flat else ((0, "x"), (1, "y"), (2, "z"))
    lines = [
        f"def settle({pairs}, parts, count, chosen):",
        "for n in range(count):",
        *(f"    {a}1 = parts[{number} * FRACTIONS + n]" for number, a in axes),
        *(f"    {a}0 = f32(1.0) - {a}1" for _, a in axes),
        *(f"    w{yz} = y{yz >> 1} * z{yz & 1}" for yz in range(4)),
        *(f"    pair{number} = pairs{number}[n]" for number in range(2 * halves)),
    ]
    for c in corners:
        lines.append(
            f"    l{c} = u32(pair{c // 2} >> u32(16))" if c % 2 else f"    l{c} = u32(pair{c // 2} & u32(0xFFFF))"
        )
    lines.append("    b = l0")
    lines += [f"    b = l{c} if l{c} != l0 else b" for c in reversed(corners[1:])]
    for name, label in (("a", "l0"), ("b", "b")):
        for x in range(halves):
            shares = [f"(w{yz} if l{4 * x + yz} == {label} else f32(0.0))" for yz in range(4)]
            lines.append(f"    of_{name}{x} = ({shares[0]} + {shares[1]}) + ({shares[2]} + {shares[3]})")
    of_a, of_b = ("of_a0", "of_b0") if flat else ("x0 * of_a0 + x1 * of_a1", "x0 * of_b0 + x1 * of_b1")
    lines += [
        f"    label = i32(b) if {of_b} > MAJORITY else UNSETTLED",
        f"    chosen[n] = i32(l0) if {of_a} > MAJORITY else label",
    ]
    return "\n    ".join(lines)


def _settle_majorities(flat: bool) -> Any:
    names: dict[str, Any] = {
        "i32": np.int32, "u32": np.uint32, "f32": np.float32, "FRACTIONS": FRACTIONS, "MAJORITY": _MAJORITY,
        "UNSETTLED": _UNSETTLED,
    }  # fmt: skip
    exec(_majority_source(flat), names)
    return inlined(names["settle"])


_settle_majorities_of, _settle_majorities_of_flat = _settle_majorities(False), _settle_majorities(True)


@inlined
def settle_piece(
    pairs0: Any, pairs1: Any, pairs2: Any, pairs3: Any, parts: Any, flat: Any, out: Any, chosen: Any, unsettled: Any
) -> Any:
    """The labels of a piece's voxels, but for those that it takes float64 to tell: their numbers go to ``unsettled``, and how
    many there are is the result.

    Args:
        pairs0 ... pairs3: the neighbours of each voxel, two in each (see `load_label_pair`).
        parts: how far each voxel lies from its lowest neighbour along x, y and z, `FRACTIONS` apart.
        flat: in a plane: only ``pairs0`` and ``pairs1``, and the parts along y and z, count.
        chosen: int32, scratch.
    """
    count = out.shape[0]
    different = np.uint32(0)
    if flat:
        for n in range(count):
            a = pairs0[n]
            different |= np.uint32((a ^ pairs1[n]) | ((a ^ (a >> np.uint32(16))) & np.uint32(0xFFFF)))
    else:
        for n in range(count):
            a = pairs0[n]
            within = np.uint32((a ^ (a >> np.uint32(16))) & np.uint32(0xFFFF))
            different |= np.uint32((a ^ pairs1[n]) | (a ^ pairs2[n]) | (a ^ pairs3[n]) | within)
    if different == 0:
        for n in range(count):
            out[n] = np.int16(pairs0[n])
        return 0
    if flat:
        _settle_majorities_of_flat(pairs0, pairs1, parts, count, chosen)
    else:
        _settle_majorities_of(pairs0, pairs1, pairs2, pairs3, parts, count, chosen)
    missing = np.int32(0)
    for n in range(count):
        missing |= np.int32(chosen[n] & _UNSETTLED)
        out[n] = np.int16(chosen[n])
    found: Any = 0
    if missing != 0:
        for n in range(count):
            unsettled[found] = n
            found += np.intp(chosen[n] == _UNSETTLED)
    return found


def _column_source() -> str:
    """A function that chooses among the neighbours of each column, written out for the compiler to use vectors.

    Up to three labels are looked for: the first neighbour's, and the first ones that are different. The weights of each are
    added in the order of the neighbours.
    """
    corners = range(8)
    lines = [
        "def settle(pairs, positions, count, last_x, last_y, last_z, sign, to_nearest, chosen):",
        "for n in range(count):",
        *(f"    {a} = positions[{number} * BUNDLE + n]" for number, a in enumerate("xyz")),
        *(f"    i{a} = min(i32({a}), last_{a})" for a in "xyz"),
        *(f"    {a}1 = {a} - f64(i{a})" for a in "xyz"),
        *(f"    {a}0 = 1.0 - {a}1" for a in "xyz"),
        *(f"    upper_{a} = nearest_voxel({a}) - f64(i{a}) > 0.5" for a in "xyz"),
        *(f"    pair{number} = pairs[{number} * BUNDLE + n]" for number in range(4)),
    ]
    for c in corners:
        shifted = f"i32(pair{c // 2})" if c % 2 else f"i32(u32(pair{c // 2} << u32(16)))"
        lines.append(f"    l{c} = i32({shifted} >> i32(16))")
        lines.append(f"    w{c} = x{c >> 2} * y{c >> 1 & 1} * z{c & 1}")
    lines.append("    a = b = c = l0")
    lines += [f"    b = l{c} if l{c} != a else b" for c in reversed(corners)]
    lines += [f"    c = l{c} if (l{c} != a) & (l{c} != b) else c" for c in reversed(corners)]
    lines.append("    more = " + " | ".join(f"((l{c} != a) & (l{c} != b) & (l{c} != c))" for c in corners))
    for name in "abc":
        lines.append(f"    score_{name} = 0.0")
        lines += [f"    score_{name} += w{c} if l{c} == {name} else 0.0" for c in corners]
    lines += [
        "    least = max(max(score_a, score_b), score_c) - TIE",
        "    best = i32(32769)",
        *(f"    best = min(best, i32(sign * {name})) if score_{name} >= least else best" for name in "abc"),
        *(f"    yz{yz} = (l{2 * yz + 1} if upper_z else l{2 * yz})" for yz in range(4)),
        "    nearest = (yz3 if upper_y else yz2) if upper_x else (yz1 if upper_y else yz0)",
        *(
            f"    best = i32(sign * {name}) if to_nearest & (score_{name} >= least) & ({name} == nearest) else best"
            for name in "abc"
        ),
        "    chosen[n] = MORE if more else i32(sign * best)",
    ]
    return "\n    ".join(lines)


def _settle_columns() -> Any:
    names: dict[str, Any] = {
        "i32": np.int32, "u32": np.uint32, "f64": np.float64, "nearest_voxel": nearest_voxel, "TIE": TIE,
        "BUNDLE": BUNDLE, "MORE": _MORE,
    }  # fmt: skip
    exec(_column_source(), names)
    return inlined(names["settle"])


_settle_columns_of = _settle_columns()


@inlined
def settle_bundle(out: Any, count: Any, shape: Any, tiebreak: Any, bundle: Any, labels: Any, scores: Any) -> None:
    """Write the label of the largest summed weight for each column of a bundle."""
    pairs, places, positions, chosen = bundle
    sign = np.int32(-1 if tiebreak == TIE_HIGHEST else 1)
    to_nearest = tiebreak == TIE_NEAREST
    last_x, last_y, last_z = (
        np.int32(max(shape[0] - 2, 0)),
        np.int32(shape[1] - 2),
        np.int32(shape[2] - 2),
    )
    _settle_columns_of(pairs, positions, count, last_x, last_y, last_z, sign, to_nearest, chosen)
    for n in range(count):
        if chosen[n] == _MORE:
            chosen[n] = _among_many(pairs, positions, n, last_x, last_y, last_z, tiebreak, labels, scores)
        out[places[n]] = np.int16(chosen[n])


@inlined
def _among_many(
    pairs: Any, positions: Any, n: Any, last_x: Any, last_y: Any, last_z: Any, tiebreak: Any, labels: Any, scores: Any
) -> Any:
    """The label of a column with more than three."""
    x, y, z = positions[n], positions[BUNDLE + n], positions[2 * BUNDLE + n]
    ix, iy, iz = min(np.int32(x), last_x), min(np.int32(y), last_y), min(np.int32(z), last_z)
    fx, fy, fz = x - np.float64(ix), y - np.float64(iy), z - np.float64(iz)
    near = (
        4 * (np.int64(nearest_voxel(x)) - ix) + 2 * (np.int64(nearest_voxel(y)) - iy) + np.int64(nearest_voxel(z)) - iz
    )
    nearest = np.int16(0)
    known = np.intp(0)
    for corner in range(8):
        a, b, c = corner >> 2, (corner >> 1) & 1, corner & 1
        pair = pairs[(corner >> 1) * BUNDLE + n]
        label = np.int16(pair >> np.uint32(16)) if c else np.int16(pair)
        if corner == near:
            nearest = label
        m = 0
        while m < known and labels[m] != label:
            m += 1
        if m == known:
            labels[m] = label
            scores[m] = 0.0
            known += 1
        scores[m] += (fx if a else 1.0 - fx) * (fy if b else 1.0 - fy) * (fz if c else 1.0 - fz)
    return _winner(known, labels, scores, nearest, tiebreak)


@inlined
def _winner(known: Any, labels: Any, scores: Any, nearest: Any, tiebreak: Any) -> Any:
    """The label with the largest score."""
    best = scores[0]
    for n in range(1, known):
        best = max(best, scores[n])
    winner = np.int32(-32769 if tiebreak == TIE_HIGHEST else 32768)
    for n in range(known):
        if scores[n] >= best - TIE:
            label = np.int32(labels[n])
            if (tiebreak == TIE_NEAREST) & (label == nearest):
                return label
            winner = max(winner, label) if tiebreak == TIE_HIGHEST else min(winner, label)
    return winner


@inlined
def _settle_taps(
    source: Any, out: Any, rows: Any, length: Any, sampling: Any, pad: Any, tiebreak: Any, count: Any, index: Any,
    weight: Any, near: Any, labels: Any, scores: Any,
) -> None:  # fmt: skip
    """The voxels of a piece of one channel, one at a time."""
    shape, _, padding, _, flat = sampling
    for k in range(length):
        if padding == CONSTANT and touches_nothing(rows, k, shape, count // 2 - 1, flat):
            out[k] = pad
            continue
        x = 0 if flat else near[k]
        y = near[4 * PITCH + k]
        z = near[8 * PITCH + k]
        nearest = pad if (x < 0) | (y < 0) | (z < 0) else source[x * shape[PLANE] + y * shape[LINE] + z - shape[ORIGIN]]
        known = np.intp(0)
        for a in range(1 if flat else count):
            x = 0 if flat else index[a * PITCH + k]
            wx = 1.0 if flat else weight[a * PITCH + k]
            for b in range(count):
                y = index[(4 + b) * PITCH + k]
                wy = wx * weight[(4 + b) * PITCH + k]
                for c in range(count):
                    z = index[(8 + c) * PITCH + k]
                    share = wy * weight[(8 + c) * PITCH + k]
                    if share == 0.0:
                        continue
                    label = pad
                    if not ((x < 0) | (y < 0) | (z < 0)):
                        label = source[x * shape[PLANE] + y * shape[LINE] + z - shape[ORIGIN]]
                    n = 0
                    while n < known and labels[n] != label:
                        n += 1
                    if n == known:
                        labels[n] = label
                        scores[n] = 0.0
                        known += 1
                    scores[n] += share
        out[k] = np.int16(_winner(known, labels, scores, nearest, tiebreak))


@kernel(
    "void(int16[:, ::1], int16[:, :, :, ::1], int64[::1], float64[:, ::1], float64[::1], float32[:, :, :, ::1],"
    " int64, int64, int64, int64, int16, int64, boolean, boolean)"
)
def resample_labels(
    source: Any, out: Any, shape: Any, matrix: Any, offset: Any, displacement: Any,
    first: Any, last: Any, mode: Any, padding: Any, pad: Any, tiebreak: Any, align_corners: Any, flat: Any,
) -> None:  # fmt: skip
    """Planes ``first`` to ``last`` (excluded) of a patch of labels, all channels.

    Args: as `detaug.kernels.resampling.resample_images`, and
        mode: `LINEAR` or `CUBIC` of `detaug.kernels.coordinates`.
        pad: the label outside, with a constant border.
        tiebreak: which label wins among those whose weights are equal.
    """
    rows = np.empty(3 * PITCH, np.float64)
    index = np.empty(PIECE, np.int32)
    parts = np.zeros(3 * FRACTIONS, np.float32)
    pairs = np.zeros(4 * PITCH, np.uint32)
    chosen = np.empty(PIECE, np.int32)
    unsettled = np.empty(PIECE + 1, np.int64)
    labels = np.empty(64, np.int16)
    scores = np.empty(64, np.float64)
    bundle = new_bundle()
    tap_index = np.zeros(12 * PITCH, np.int64)
    near_index = np.zeros(12 * PITCH, np.int64)
    tap_weight = np.empty(12 * PITCH, np.float64)
    steps = np.empty(3 * LENGTH, np.float64)
    sheet = np.empty(SHEET, np.int16)
    rows_ahead = distance_ahead(matrix, shape)
    patch_map = Map(matrix, offset, displacement, first)
    sampling = Sampling(shape, mode, padding, align_corners, flat)
    nearest = Sampling(shape, NEAREST, padding, align_corners, flat)
    lines, length = out.shape[2], out.shape[3]
    columns, pieces, tiles = number_of(lines, LINES), number_of(length, PIECE), number_of(length, LENGTH)
    blocks = number_of(last - first, DEPTH) * columns
    for c in range(source.shape[0]):
        channel = source[c]
        whole = out[c].reshape(-1)
        bundled = 0
        for block in range(blocks):
            i0 = first + block // columns * DEPTH
            i1 = min(i0 + DEPTH, last)
            j0 = start_of(block % columns, lines, LINES)
            j1 = min(j0 + LINES, lines)
            tiled = is_tiled(patch_map, i0, i1, j0, j1, out[0].size, length, sampling, source.shape[1])
            if not tiled:
                j0 = block % columns * LINES
            parts_of_block = tiles if tiled else (j1 - j0) * pieces
            for number in range((i1 - i0) * parts_of_block):
                # a sheet of a tile, or a piece of a row, of `size` voxels from voxel (i, j, begin) on
                if tiled:
                    tile = number // (i1 - i0)
                    i, j, size = i0 + number % (i1 - i0), j0, SHEET
                    begin = start_of(tile, length, LENGTH)
                    next_j, next_k, ahead = next_tile(tile, j0, length, matrix, shape)
                    expect_sheet(out[c, i], next_j, next_k)
                    place_tile(patch_map, i, i + 1, j, begin, shape, steps, index, parts)
                    start, stop, low, high, placed = 0, SHEET, 0, SHEET, False
                    line = sheet
                else:
                    i, j = i0 + number // parts_of_block, j0 + number % parts_of_block // pieces
                    begin = number % pieces * PIECE
                    size = min(PIECE, length - begin)
                    ahead = rows_ahead
                    start, stop, low, high, placed = place_and_split(
                        rows, patch_map, i, j, begin, size, sampling, source.shape[1], index, parts
                    )
                    line = out[c, i, j, begin : begin + size]
                if stop > start:
                    count = stop - start
                    if flat:
                        _gather(channel, count, shape, True, index, pairs)
                    else:
                        fetch(channel, count, shape, index, ahead)
                        _gather(channel, count, shape, False, index, pairs)
                    found = settle_piece(
                        pairs, pairs[PITCH:], pairs[2 * PITCH :], pairs[3 * PITCH :], parts, flat, line[start:stop], chosen,
                        unsettled,
                    )  # fmt: skip
                    for m in range(found):
                        n = unsettled[m]
                        at_j, at_k = (j + n // LENGTH, begin + n % LENGTH) if tiled else (j, begin + start + n)
                        if placed:
                            x, y, z = rows[start + n], rows[PITCH + start + n], rows[2 * PITCH + start + n]
                        else:
                            x, y, z = place_voxel(patch_map, i, at_j, at_k)
                        upper = 0 if flat else 2 * PITCH  # in a plane the upper neighbours are the lower ones once more
                        add_to_bundle(
                            bundle, bundled + m, pairs[n], pairs[PITCH + n], pairs[upper + n], pairs[upper + PITCH + n],
                            0.0 if flat else x, y, z, (i * lines + at_j) * length + at_k,
                        )  # fmt: skip
                    bundled += found
                if tiled:
                    put_sheet(sheet, out[c, i], j, begin)
                else:
                    line[:low] = pad
                    line[high:] = pad
                    for side in range(2):
                        one, other = (low, start) if side == 0 else (stop, high)
                        if one < other:
                            part = rows[one:]
                            tap_piece(part, other - one, nearest, near_index, tap_weight)
                            count = tap_piece(part, other - one, sampling, tap_index, tap_weight)
                            _settle_taps(
                                channel, line[one:other], part, other - one, sampling, pad, tiebreak, count, tap_index,
                                tap_weight, near_index, labels, scores,
                            )  # fmt: skip
                if (bundled > PIECE) | ((block == blocks - 1) & (number == (i1 - i0) * parts_of_block - 1)):
                    settle_bundle(whole, bundled, shape, tiebreak, bundle, labels, scores)
                    bundled = 0
