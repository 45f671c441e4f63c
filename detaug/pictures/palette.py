"""Colours that people with any kind of colour vision tell apart."""

from __future__ import annotations

#: Okabe and Ito (2008), Color Universal Design, without black and in an order that begins with what stands out from grey.
OKABE_ITO = ("#E69F00", "#56B4E9", "#009E73", "#F0E442", "#CC79A7", "#D55E00", "#0072B2")

#: Of labels below 0: what lies outside of a case (nnU-Net's -1).
OUTSIDE = "#999999"

#: Of voxels that are NaN or infinite.
NOT_FINITE = "#CC79A7"

Colour = tuple[int, int, int]


def colour_of(label: int) -> str:
    """A label's colour; after seven labels they begin anew."""
    return OUTSIDE if label < 0 else OKABE_ITO[(label - 1) % len(OKABE_ITO)]


def rgb(colour: str) -> Colour:
    """``"#E69F00"`` → (230, 159, 0)."""
    return int(colour[1:3], 16), int(colour[3:5], 16), int(colour[5:7], 16)
