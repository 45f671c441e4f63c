"""Choose functions and docstrings at random, for a reader who did not write them.

Usage: python -m tests.support.reading_sample [SEED]    (default: 0)
"""

import ast
import random
import sys
from pathlib import Path

_PACKAGE = Path(__file__).parents[2] / "detaug"
#: Number of functions, and of docstrings, that are chosen.
_COUNT = 30
#: Functions of fewer lines are left out.
_SHORTEST = 4
_DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)


def sample(seed: int) -> tuple[list[str], list[str]]:
    """Return (functions, docstrings), each as ``path:line name``, in the order drawn."""
    functions = []
    docstrings = []
    for file in sorted(_PACKAGE.rglob("*.py")):
        path = file.relative_to(_PACKAGE.parent)
        for node in ast.walk(ast.parse(file.read_text())):
            if not isinstance(node, _DEFINITIONS):
                continue
            label = f"{path}:{node.lineno} {node.name}"
            is_long = node.end_lineno is not None and node.end_lineno - node.lineno >= _SHORTEST
            if is_long and not isinstance(node, ast.ClassDef):
                functions.append(label)
            if ast.get_docstring(node):
                docstrings.append(label)
    rng = random.Random(seed)
    return rng.sample(functions, _COUNT), rng.sample(docstrings, _COUNT)


if __name__ == "__main__":
    seed = int(sys.argv[1]) if sys.argv[1:] else 0
    for kind, labels in zip(("functions", "docstrings"), sample(seed), strict=True):
        print(f"{kind}:")
        for label in labels:
            print(f"  {label}")
