"""Which tests carry a marker, read from their source: nothing is imported and nothing runs.

The rules of a marker are those of ``claims``. What a source does not say is in which versions a test with ``rm`` runs:
here it stands for all of them, and only a run (``make conformance``) knows better.
"""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .claims import KEYWORDS, claims
from .tables import VERSIONS, Cell, Tables


@dataclass(frozen=True, slots=True)
class Written:
    """A marker as it stands in a source: what ``claims`` reads of a ``pytest.Mark``."""

    name: str
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]


def shown_by(root: Path, tables: Tables) -> dict[Cell, list[str]]:
    """The tests under ``root``/tests that name a half of a row, as ``path::name``, in the order of their paths."""
    found: dict[Cell, list[str]] = defaultdict(list)
    for path in sorted((root / "tests").rglob("test_*.py")):
        for function, marks in _marked_tests(path):
            cells = {cell for rm in VERSIONS for cell in claims(marks, tables, _rm(marks, rm)).cells}
            for half in sorted({Cell(cell.id, cell.half) for cell in cells}):
                found[half].append(f"{path.relative_to(root).as_posix()}::{function}")
    return dict(found)


def _rm(marks: list[Written], version: str) -> str | None:
    """What ``rm`` is in one of the test's runs: a marker with versions= stands on a test that takes none."""
    return None if any("versions" in mark.kwargs for mark in marks) else version


def _marked_tests(path: Path) -> Iterator[tuple[str, list[Written]]]:
    text = path.read_text(encoding="utf-8")
    if "mark." not in text:
        return
    for node in ast.parse(text).body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_"):
            marks = [mark for decorator in node.decorator_list for mark in written_marks(decorator)]
            if marks:
                yield node.name, marks


def written_marks(tree: ast.AST) -> Iterator[Written]:
    """Each ``pytest.mark.spec("D-SEQ-004", versions="all")`` in ``tree``, and its like."""
    for node in ast.walk(tree):
        match node:
            case ast.Call(ast.Attribute(ast.Attribute(ast.Name("pytest"), "mark"), name), args, keywords):
                if name in KEYWORDS:
                    said = {word.arg or "**": ast.literal_eval(word.value) for word in keywords}
                    yield Written(name, tuple(map(ast.literal_eval, args)), said)
