"""Product names of CPUs, for pages: results keep what the kernel says."""

from __future__ import annotations

import re

#: A record's text: what the kernel calls the CPU, and the numbers that say what it is.
_RECORD = re.compile(r"(?P<name>.+), family (?P<family>\d+), model (?P<model>\d+)")

#: (family, model) → product, from AMD's and Intel's lists of CPUID signatures. Virtual machines
#: often hide the number of the product, and never the family.
_PRODUCTS = {
    (23, 1): "AMD EPYC 7001",
    (23, 49): "AMD EPYC 7002",
    (25, 1): "AMD EPYC 7003",
    (25, 17): "AMD EPYC 9004",
    (25, 160): "AMD EPYC 9004",
    (26, 2): "AMD EPYC 9005",
    (26, 17): "AMD EPYC 9005",
    (6, 85): "Intel Xeon Scalable, 1st or 2nd generation",
    (6, 106): "Intel Xeon Scalable, 3rd generation",
    (6, 143): "Intel Xeon Scalable, 4th generation",
    (6, 207): "Intel Xeon Scalable, 5th generation",
    (6, 173): "Intel Xeon 6",
}


def product_name(record: str) -> str:
    """Return the name under which the CPU of a result is sold.

    Args:
        record: ``environment["cpu"]`` of a result: "AMD EPYC, family 25, model 17".
    """
    parts = _RECORD.fullmatch(record)
    if parts is None:
        return record
    name = parts["name"]
    if re.search(r"\d{4}", name):  # the product's own number: "AMD EPYC 9654 96-Core Processor"
        return name
    return _PRODUCTS.get((int(parts["family"]), int(parts["model"])), record)
