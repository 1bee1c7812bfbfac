"""The figures of the package, against servers without it and against gSOAP.

    python -m bench [--quick] [--only a,b,…] [--fronts uvicorn,…] [--rounds N] [--directory DIR]

Prints a run's text. A full run writes bench/results.md, results.json and plots/; one of some parts or fronts, or a
quick one, writes the first two below build/bench/. Exit status 1: a bound was missed; 2: the run is void.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Final

from bench.compiler import NoCompiler
from bench.figures import status
from bench.fronts import FRONTS
from bench.load import RunIsVoid
from bench.parts import PARTS
from bench.report import as_json, reached, report
from bench.samples import Sample, Scale
from bench.sides import Amount

_HERE: Final = Path(__file__).parent
_ELSEWHERE: Final = _HERE.parent / "build" / "bench"

_ALL: Final = ("uvicorn", "serve-wrapped", "granian-asgi", "granian", "uWSGI", "waitress", "gunicorn")
"""The first follow gSOAP at once: it is them that are held against it."""
_MAIN: Final = ("uvicorn", "granian")

FULL: Final = Scale(
    rounds=5,
    amount=Amount(1.5),
    gsoap_messages=9_000,
    open_sequences=(1, 20_000, 100_000),
    gsoap_open_sequences=20_000,
    held=(100_000, 1_000_000),
    mixed=600,
    slow={1.0: 1_000, 10.0: 120},
    fronts=_ALL,
    main_fronts=_MAIN,
    directory=_HERE,
)
QUICK: Final = FULL._replace(
    rounds=1,
    main_fronts=("uvicorn",),
    amount=Amount(0.4),
    gsoap_messages=2_000,
    open_sequences=(1, 2_000, 10_000),
    gsoap_open_sequences=2_000,
    held=(10_000, 50_000),
    mixed=100,
    slow={1.0: 200, 10.0: 32},
)


def main(arguments: list[str] | None = None) -> int:
    chosen = _chosen(arguments)
    scale = _scale(chosen)
    begun, busy = time.monotonic(), os.getloadavg()[0]
    measured: dict[str, list[Sample]] = {}
    broken, reason = 0, ""
    try:
        with tempfile.TemporaryDirectory(prefix="stores-", dir=chosen.directory) as stores:
            run(chosen.only or list(PARTS), scale._replace(directory=Path(stores)), measured)
    except RunIsVoid as error:
        broken, reason = 2, f"VOID: {error}"
    except (NoCompiler, RuntimeError) as error:
        broken, reason = 1, f"FAILED: {error}"
    is_whole = not (broken or chosen.quick or chosen.only or chosen.fronts or chosen.rounds)
    if any(measured.values()):
        text = report(measured, scale, time.monotonic() - begun, busy, plotted=is_whole)
        _write(text, as_json(measured, time.monotonic() - begun), _HERE if is_whole else _ELSEWHERE)
        print(text)
    if is_whole:
        from bench.plots import draw  # with matplotlib, which nothing else here needs

        draw(measured, _HERE / "plots")
    print(reason, end="\n" if reason else "", file=sys.stderr)
    return broken or status(reached(measured))


def _chosen(arguments: list[str] | None) -> argparse.Namespace:
    options = argparse.ArgumentParser(prog="python -m bench", description="The figures of the package.")
    options.add_argument("--quick", action="store_true", help="everything once, small; two minutes")
    options.add_argument("--only", type=_of(PARTS), help=f"parts, of {','.join(PARTS)}")
    options.add_argument("--fronts", type=_of(FRONTS), help=f"servers, of {','.join(FRONTS)}")
    options.add_argument("--rounds", type=int, help="alternating rounds")
    options.add_argument("--directory", type=Path, default=_HERE, help="where the stores are put: a real disk")
    return options.parse_args(arguments)


def _of(known: Collection[str]) -> Callable[[str], list[str]]:
    def split(text: str) -> list[str]:
        names = text.split(",")
        for name in names:
            if name not in known:
                raise argparse.ArgumentTypeError(f"{name} is none of {', '.join(known)}")
        return names

    return split


def _scale(chosen: argparse.Namespace) -> Scale:
    scale = QUICK if chosen.quick else FULL
    if chosen.rounds:
        scale = scale._replace(rounds=chosen.rounds)
    if chosen.fronts:
        scale = scale._replace(fronts=chosen.fronts, main_fronts=chosen.fronts)
    return scale


def run(letters: list[str], scale: Scale, measured: dict[str, list[Sample]]) -> None:
    """Measure these parts into ``measured``; what is going on is told on standard error."""
    for letter in letters:
        print(f"({letter}) {PARTS[letter].title}", file=sys.stderr, flush=True)
        measured[letter] = []
        for sample in PARTS[letter].measure(scale):
            measured[letter].append(sample)
            rate = f"{sample.values['rate']:,.0f} msg/s" if "rate" in sample.values else ""
            print(f"    {sample.round + 1}: {sample.case}, {sample.subject}: {rate}", file=sys.stderr, flush=True)


def _write(text: str, as_json: str, where: Path) -> None:
    where.mkdir(parents=True, exist_ok=True)
    (where / "results.md").write_text(text)
    (where / "results.json").write_text(as_json)


if __name__ == "__main__":
    sys.exit(main())
