"""Measure how dense a package's code is: tokens on a line, conditional expressions, lambdas ...

Usage: python -m tests.support.measure_style [FOLDER or FILE]    (default: detaug)
"""

import ast
import io
import sys
import tokenize
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

LAYOUT = {tokenize.NEWLINE, tokenize.NL, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)


def is_nested(node: ast.AST) -> bool:
    """Return whether a comprehension has two loops, or another one in it."""
    inner = [child for child in ast.walk(node) if isinstance(child, COMPREHENSIONS)]
    return len(inner) > 1 or len(inner[0].generators) > 1


def is_parallel_assignment(node: ast.Assign) -> bool:
    """Return whether an assignment is ``a, b = x, y`` and no exchange of values."""
    if not isinstance(node.value, ast.Tuple):
        return False
    if not isinstance(node.targets[0], ast.Tuple):
        return False
    targets = {ast.unparse(target) for target in node.targets[0].elts}
    return targets.isdisjoint(ast.unparse(value) for value in node.value.elts)


def is_group(node: ast.Starred) -> bool:
    """Return whether a starred expression is ``*(a, b)``."""
    return isinstance(node.value, (ast.Tuple, ast.List))


def is_private(node: ast.Attribute) -> bool:
    """Return whether an attribute is ``thing._name`` of anything but ``self`` and ``cls``."""
    is_hidden = node.attr.startswith("_") and not node.attr.startswith("__")
    is_own = isinstance(node.value, ast.Name) and node.value.id in ("self", "cls")
    return is_hidden and not is_own


def is_any(node: ast.AST) -> bool:
    """Return True."""
    return True


class Form(NamedTuple):
    """A form that makes code dense: which nodes have it.

    Attributes:
        kinds: of nodes.
        holds: of a node of such a kind.
    """

    kinds: tuple[type[ast.AST], ...]
    holds: Callable[[Any], bool]


FORMS = {
    "conditional expressions": Form((ast.IfExp,), is_any),
    "nested comprehensions": Form(COMPREHENSIONS, is_nested),
    "lambdas": Form((ast.Lambda,), is_any),
    "parallel assignments": Form((ast.Assign,), is_parallel_assignment),
    "walrus": Form((ast.NamedExpr,), is_any),
    "starred groups": Form((ast.Starred,), is_group),
    "private attributes of others": Form((ast.Attribute,), is_private),
}


def by_kind(nodes: Iterable[ast.AST]) -> dict[type[ast.AST], list[Any]]:
    """Return the nodes of each kind."""
    groups: dict[type[ast.AST], list[Any]] = defaultdict(list)
    for node in nodes:
        groups[type(node)].append(node)
    return groups


def count_syntax(groups: Mapping[type[ast.AST], list[Any]], counts: Counter[str]) -> None:
    """Count the forms that make code dense."""
    for name, form in FORMS.items():
        for kind in form.kinds:
            counts[name] += sum(form.holds(node) for node in groups.get(kind, ()))


def docstring_lines(groups: Mapping[type[ast.AST], list[Any]]) -> set[int]:
    """Return the numbers of all lines of docstrings."""
    lines: set[int] = set()
    for kind in (ast.Module, ast.ClassDef, *FUNCTIONS):
        for node in groups.get(kind, ()):
            if ast.get_docstring(node):
                lines.update(range(node.body[0].lineno, node.body[0].end_lineno + 1))
    return lines


def count_lines(source: str, in_docstrings: set[int], counts: Counter[str]) -> None:
    """Count lines by kind, and the tokens of code."""
    code: set[int] = set()
    comments: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            comments.add(token.start[0])
        elif token.type not in LAYOUT and token.start[0] not in in_docstrings:
            counts["tokens"] += 1
            code.update(range(token.start[0], token.end[0] + 1))
    lines = source.splitlines()
    counts["lines"] += len(lines)
    counts["code"] += len(code)
    counts["long"] += sum(len(line) > 100 for line in lines)
    counts["comments"] += len(comments - code)
    counts["docstrings"] += len(in_docstrings)


def python_files(path: Path) -> list[Path]:
    """Return a file, or all Python files below a folder."""
    if path.is_file():
        return [path]
    return sorted(path.rglob("*.py"))


def measure(folder_or_file: Path) -> dict[str, float]:
    """Return the measures of a Python file, or of all below a folder.

    Raises:
        ValueError: there is no line of code.
    """
    counts: Counter[str] = Counter()
    function_lengths: list[int] = []
    for path in python_files(folder_or_file):
        source = path.read_text(encoding="utf-8")
        groups = by_kind(ast.walk(ast.parse(source)))
        counts["files"] += 1
        count_lines(source, docstring_lines(groups), counts)
        count_syntax(groups, counts)
        for kind in FUNCTIONS:
            lengths = (node.end_lineno - node.lineno + 1 for node in groups.get(kind, ()))
            function_lengths.extend(lengths)
    if not counts["code"]:
        raise ValueError(f"{folder_or_file} has no Python code: pass a file or a folder with some")
    measures: dict[str, float] = {name: counts[name] for name in ("files", "lines", "tokens")}
    measures["tokens per code line"] = counts["tokens"] / counts["code"]
    for name in ("long", "comments", "docstrings"):
        measures[f"{name}, % of lines"] = 100 * counts[name] / counts["lines"]
    if function_lengths:
        at_95 = len(function_lengths) * 95 // 100
        measures["function length, 95 %"] = sorted(function_lengths)[at_95]
    for name in FORMS:
        measures[f"{name} / 1,000"] = 1000 * counts[name] / counts["code"]
    return measures


def main() -> None:
    """Print the table.

    "long" lines have more than 100 characters; "/ 1,000" means per 1,000 lines of code.
    """
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else "detaug")
    for name, value in measure(folder).items():
        print(f"{name:36}{value:>10,.1f}")


if __name__ == "__main__":
    main()
