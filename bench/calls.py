"""What a one-way message asks of Python: this code against an older commit, counted the same way on both.

    python -m bench.calls [COMMIT] [--lines COMMIT] [--most 20]

Counts calls in the package, with ``bench/calling.py``: of a message alone, and of messages on several connections,
which share a commit; and the package's lines of code, against another commit. Exit status 1: a bound was missed.
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import subprocess
import sys
import tempfile
import tokenize
from pathlib import Path
from typing import Final

from bench.against import BEFORE, checkout
from bench.figures import Bound, Figure, as_markdown, status
from bench.process import THIS_TREE

__all__ = ["code_lines", "counted"]

_LINES_BEFORE: Final = "8bca559"
"""What came between the two added to what the package does."""
_FRONTS: Final = ("wsgi", "asgi")
_CONNECTIONS: Final = {1: "alone", 8: "8 connections", 32: "32 connections"}
_CALLS: Final = Bound("<=", 0.6)
_LONGEST: Final = Bound("<=", 60)
_SMALLER: Final = Bound("<", 1)
_NO_CODE: Final = {
    *(tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT),
    *(tokenize.ENCODING, tokenize.ENDMARKER),
}


def counted(tree: Path, front: str, connections: int, most: int = 0) -> dict[str, float]:
    """What ``calling`` prints of the package in ``tree``. ``most``: so many of the functions that are called most are
    told on standard error."""
    command = [sys.executable, "-P", str(Path(__file__).with_name("calling.py")), front, str(connections), str(most)]
    done = subprocess.run(
        command, cwd=tree, env={**os.environ, "PYTHONPATH": str(tree)}, stdout=subprocess.PIPE, check=True
    )
    return dict(json.loads(done.stdout))


def code_lines(package: Path) -> int:
    """Lines of its modules that are neither empty nor only comment or docstring."""
    return sum(map(_code_lines, package.rglob("*.py")))


def _code_lines(module: Path) -> int:
    with tokenize.open(module) as file:
        tree = ast.parse(file.read())
    with module.open("rb") as raw:
        lines = {
            line
            for token in tokenize.tokenize(raw.readline)
            if token.type not in _NO_CODE
            for line in range(token.start[0], token.end[0] + 1)
        }
    return len(lines.difference(*map(_docstring, ast.walk(tree))))


def _docstring(node: ast.AST) -> range:
    """The lines of a text that stands alone: what documents a module, a class, a function or an attribute."""
    match node:
        case ast.Expr(value=ast.Constant(value=str()), lineno=begin, end_lineno=int(end)):
            return range(begin, end + 1)
    return range(0)


def _figures(case: str, now: dict[str, float], before: dict[str, float]) -> list[Figure]:
    return [
        Figure(case, "Python calls a message", [now["calls"]]),
        Figure(case, "… to those before", [now["calls"] / before["calls"]], "×", _CALLS),
        Figure(case, "… from another module", [now["from_elsewhere"]]),
        Figure(case, "… from another room", [now["changes"]]),
        Figure(case, "… to those before", [now["changes"] / before["changes"]], "×"),
        Figure(case, "modules", [now["modules"]]),
        Figure(case, "rooms", [now["rooms"]]),
        Figure(case, "longest function, lines", [now["longest"]], "", _LONGEST),
    ]


def main() -> int:
    options = argparse.ArgumentParser(prog="python -m bench.calls", description="Python calls of a one-way message.")
    options.add_argument("commit", nargs="?", default=BEFORE, help="the older one")
    options.add_argument("--lines", default=_LINES_BEFORE, help="the one whose lines of code are held against these")
    options.add_argument("--most", type=int, default=0, help="tell so many of the functions that are called most")
    chosen = options.parse_args()
    figures: list[Figure] = []
    with tempfile.TemporaryDirectory() as made:
        with checkout(chosen.commit, Path(made)) as older:
            for front in _FRONTS:
                for connections, name in _CONNECTIONS.items():
                    sides = [(THIS_TREE, chosen.most), (older, 0)]
                    now, before = (counted(tree, front, connections, most) for tree, most in sides)
                    figures += _figures(f"{front}, {name}", now, before)
        with checkout(chosen.lines, Path(made)) as older:
            lines = [code_lines(tree / "wsrm_mq") for tree in (THIS_TREE, older)]
    figures += [
        Figure("the package", "lines of code", [lines[0]]),
        Figure("the package", "… to those before", [lines[0] / lines[1]], "×", _SMALLER),
    ]
    print(as_markdown(figures))
    return status(figures)


if __name__ == "__main__":
    sys.exit(main())
