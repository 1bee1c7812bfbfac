"""This code against an older commit, in pairs: what a change costs on the path of every message.

    python -m bench.against COMMIT [--pairs 15] [--seconds 2] [--front uvicorn] [--connections 8 32] [--directory DIR]

Each pair measures both one after the other, the older one first in every second pair, and the server alone for both:
own CPU is what a server needs more with the middleware than without. Exit status 1: a bound was missed, or the run is
void.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NamedTuple

from bench.load import RunIsVoid
from bench.process import THIS_TREE
from bench.sides import Amount, Side, bare, reliable

_MOST_CPU: Final = 1.05
_LEAST_RATE: Final = 0.9


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


def pairs(front: str, connections: int, count: int, amount: Amount, older: Path, directory: Path) -> Iterator[Pair]:
    for index in range(count):
        trees = (older, THIS_TREE) if index % 2 == 0 else (THIS_TREE, older)
        sides = {tree: _side(front, connections, amount, tree, directory) for tree in trees}
        with bare(front, b"x" * round(sides[older].load.answer_bytes)) as null:
            null.warm_up(amount)
            yield Pair(sides[older], sides[THIS_TREE], null.side(connections, amount))


def _side(front: str, connections: int, amount: Amount, tree: Path, directory: Path) -> Side:
    with reliable(front, directory / "against.db", tree=tree) as server:
        server.warm_up(amount)
        return server.side(connections, amount)


def main() -> int:
    options = argparse.ArgumentParser(prog="python -m bench.against", description="This code against an older commit.")
    options.add_argument("commit", help="the older one")
    options.add_argument("--pairs", type=int, default=15)
    options.add_argument("--seconds", type=float, default=2.0, help="of load, for each side of a pair")
    options.add_argument("--front", default="uvicorn")
    options.add_argument("--connections", type=int, nargs="+", default=[8, 32])
    options.add_argument("--directory", type=Path, default=THIS_TREE, help="where the stores are put: a real disk")
    chosen = options.parse_args()
    is_kept = True
    temporary = tempfile.TemporaryDirectory(prefix="stores-", dir=chosen.directory)
    with temporary as made, checkout(chosen.commit, Path(made)) as older:
        amount = Amount(chosen.seconds)
        for connections in chosen.connections:
            done = []
            for pair in pairs(chosen.front, connections, chosen.pairs, amount, older, Path(made)):
                done.append(pair)
                print(_line(connections, pair), flush=True)
            cpu, rate = (statistics.median(getattr(pair, what) for pair in done) for what in ("cpu", "rate"))
            is_kept = is_kept and cpu <= _MOST_CPU and rate >= _LEAST_RATE
            print(
                f"{connections} connections, {len(done)} pairs: own CPU {cpu:.3f} (at most {_MOST_CPU}), "
                f"rate {rate:.3f} (at least {_LEAST_RATE}), medians"
            )
    return 0 if is_kept else 1


def _line(connections: int, pair: Pair) -> str:
    older, newer = (side.cpu_us - pair.bare.cpu_us for side in (pair.older, pair.newer))
    stolen = max(side.stolen for side in pair)
    return (
        f"{connections:3} connections  own CPU {older:4.0f} -> {newer:4.0f} us ({pair.cpu:.3f})  "
        f"rate {pair.older.load.rate:5.0f} -> {pair.newer.load.rate:5.0f} ({pair.rate:.3f})  "
        f"fsync {pair.newer.fsync_us:4.0f} us  stolen {stolen:.1%}"
    )


if __name__ == "__main__":
    try:
        sys.exit(main())
    except RunIsVoid as reason:
        sys.exit(f"VOID: {reason}")
