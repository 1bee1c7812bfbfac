"""This code against an older commit, in pairs: what a change costs on the path of every message.

    python -m bench.against [COMMIT] [--pairs 15] [--seconds 2] [--front uvicorn] [--connections 1 8 32]
                            [--directory DIR]

Each pair measures both one after the other, the older one first in every second pair, and the server alone for both:
own CPU is what a server needs more with the middleware than without. A pair that the machine disturbed is measured
again. Exit status 1: a bound was missed; 2: the run is void.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple

from bench.figures import Bound, Figure, as_markdown, status, undisturbed
from bench.load import RunIsVoid
from bench.parts.in_order import CONNECTIONS, case_of
from bench.process import THIS_TREE
from bench.sides import Amount, Side, bare, reliable

__all__ = ["BEFORE", "checkout"]

BEFORE: Final = "74321f4"
_MOST_CPU: Final = {8: Bound("<=", 0.75), 32: Bound("<=", 0.75)}
"""By connections."""
_LEAST_RATE: Final = Bound(">=", 1)


class Pair(NamedTuple):
    older: Side
    newer: Side
    bare: Side

    @property
    def cpu(self) -> float:
        return (self.newer.cpu_us - self.bare.cpu_us) / (self.older.cpu_us - self.bare.cpu_us)

    @property
    def rate(self) -> float:
        return self.newer.load.rate / self.older.load.rate

    @property
    def others(self) -> float:
        return max(side.others for side in self)


@contextmanager
def checkout(commit: str, directory: Path) -> Iterator[Path]:
    """``commit`` in a work tree of its own, removed afterwards."""
    tree = directory / "older"
    git = ["git", "-C", str(THIS_TREE), "worktree"]
    subprocess.run([*git, "add", "--quiet", "--detach", str(tree), commit], check=True)
    try:
        yield tree
    finally:
        subprocess.run([*git, "remove", "--force", str(tree)], check=True)


def _pair(front: str, connections: int, amount: Amount, trees: tuple[Path, Path], directory: Path) -> Pair:
    """``trees``: in the order in which they are measured."""
    sides = {tree: _side(front, connections, amount, tree, directory) for tree in trees}
    newer = sides.pop(THIS_TREE)
    (older,) = sides.values()
    with bare(front, b"x" * round(older.load.answer_bytes)) as null:
        null.warm_up(amount)
        return Pair(older, newer, null.side(connections, amount))


def _side(front: str, connections: int, amount: Amount, tree: Path, directory: Path) -> Side:
    with reliable(front, directory / "against.db", tree=tree) as server:
        server.warm_up(amount)
        return server.side(connections, amount)


def main() -> int:
    options = argparse.ArgumentParser(prog="python -m bench.against", description="This code against an older commit.")
    options.add_argument("commit", nargs="?", default=BEFORE, help="the older one")
    options.add_argument("--pairs", type=int, default=15)
    options.add_argument("--seconds", type=float, default=2.0, help="of load, for each side of a pair")
    options.add_argument("--front", default="uvicorn")
    options.add_argument("--connections", type=int, nargs="+", default=CONNECTIONS)
    options.add_argument("--directory", type=Path, default=THIS_TREE, help="where the stores are put: a real disk")
    chosen = options.parse_args()
    amount = Amount(chosen.seconds)
    figures: list[Figure] = []
    temporary = tempfile.TemporaryDirectory(prefix="stores-", dir=chosen.directory)
    with temporary as made, checkout(chosen.commit, Path(made)) as older:
        for connections in chosen.connections:
            done = []
            for index in range(chosen.pairs):
                trees = (older, THIS_TREE) if index % 2 == 0 else (THIS_TREE, older)
                pair = undisturbed(
                    partial(_pair, chosen.front, connections, amount, trees, Path(made)), lambda pair: pair.others
                )
                done.append(pair)
                print(_line(connections, pair), file=sys.stderr, flush=True)
            figures += _figures(f"{chosen.front}, {case_of(connections)}", connections, done)
    print(as_markdown(figures))
    return status(figures)


def _figures(case: str, connections: int, pairs: list[Pair]) -> Iterator[Figure]:
    others = [pair.others for pair in pairs]
    cpu, rate = [pair.cpu for pair in pairs], [pair.rate for pair in pairs]
    yield Figure(case, "own CPU to the older's", cpu, "×", _MOST_CPU.get(connections), others)
    yield Figure(case, "rate to the older's", rate, "×", _LEAST_RATE, others)


def _line(connections: int, pair: Pair) -> str:
    older, newer = (side.cpu_us - pair.bare.cpu_us for side in (pair.older, pair.newer))
    return (
        f"{connections:3} connections  own CPU {older:4.0f} -> {newer:4.0f} us ({pair.cpu:.3f})  "
        f"rate {pair.older.load.rate:5.0f} -> {pair.newer.load.rate:5.0f} ({pair.rate:.3f})  "
        f"fsync {pair.newer.fsync_us:4.0f} us  others {pair.others:.0%}"
    )


if __name__ == "__main__":
    try:
        sys.exit(main())
    except RunIsVoid as reason:
        print(f"VOID: {reason}", file=sys.stderr)
        sys.exit(2)
