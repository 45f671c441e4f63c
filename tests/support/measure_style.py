"""Measure how dense a package's code is: tokens on a line, conditional expressions, lambdas ...

Usage: python -m tests.support.measure_style [FOLDER or FILE]    (default: detaug)
"""

import ast
import io
import sys
import tokenize
from collections import Counter
from collections.abc import Callable
from pathlib import Path

LAYOUT = {tokenize.NEWLINE, tokenize.NL, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)


def is_nested(node: ast.AST) -> bool:
    """Return whether a node is a comprehension with two loops or with an inner comprehension."""
    if not isinstance(node, COMPREHENSIONS):
        return False
    inner = [child for child in ast.walk(node) if isinstance(child, COMPREHENSIONS)]
    return len(inner) > 1 or len(node.generators) > 1


def is_parallel_assignment(node: ast.AST) -> bool:
    """Return whether a node is ``a, b = x, y``, unless it exchanges values."""
    if not isinstance(node, ast.Assign) or not isinstance(node.value, ast.Tuple):
        return False
    if not isinstance(node.targets[0], ast.Tuple):
        return False
    targets = {ast.unparse(target) for target in node.targets[0].elts}
    return targets.isdisjoint(ast.unparse(value) for value in node.value.elts)


def is_starred_group(node: ast.AST) -> bool:
    """Return whether a node is ``*(a, b)``."""
    return isinstance(node, ast.Starred) and isinstance(node.value, (ast.Tuple, ast.List))


def is_private_attribute(node: ast.AST) -> bool:
    """Return whether a node is ``thing._name`` of anything but ``self`` and ``cls``."""
    if not isinstance(node, ast.Attribute):
        return False
    is_private = node.attr.startswith("_") and not node.attr.startswith("__")
    is_own = isinstance(node.value, ast.Name) and node.value.id in ("self", "cls")
    return is_private and not is_own


def is_conditional(node: ast.AST) -> bool:
    """Return whether a node is ``a if b else c``."""
    return isinstance(node, ast.IfExp)


def is_lambda(node: ast.AST) -> bool:
    """Return whether a node is a lambda."""
    return isinstance(node, ast.Lambda)


def is_walrus(node: ast.AST) -> bool:
    """Return whether a node is ``a := b``."""
    return isinstance(node, ast.NamedExpr)


#: Forms that make code dense.
FORMS: dict[str, Callable[[ast.AST], bool]] = {
    "conditional expressions": is_conditional,
    "nested comprehensions": is_nested,
    "lambdas": is_lambda,
    "parallel assignments": is_parallel_assignment,
    "walrus": is_walrus,
    "starred groups": is_starred_group,
    "private attributes of others": is_private_attribute,
}


def count_syntax(tree: ast.Module, counts: Counter[str]) -> None:
    """Count the forms that make code dense."""
    for node in ast.walk(tree):
        for name, is_form in FORMS.items():
            counts[name] += is_form(node)


def docstring_lines(tree: ast.Module) -> set[int]:
    """Return the numbers of all lines of docstrings."""
    lines: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, (ast.Module, ast.ClassDef, *FUNCTIONS)) and ast.get_docstring(node):
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
        tree = ast.parse(source)
        counts["files"] += 1
        count_lines(source, docstring_lines(tree), counts)
        count_syntax(tree, counts)
        for node in ast.walk(tree):
            if isinstance(node, FUNCTIONS):
                function_lengths.append(node.end_lineno - node.lineno + 1)
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
