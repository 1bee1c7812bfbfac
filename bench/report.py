"""A run as text: for each part its tables, what had to be reached, and the machine."""

from __future__ import annotations

import importlib.metadata
import json
import os
import platform
import sqlite3
import statistics
import subprocess
import sysconfig
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from bench.figures import Figure, as_markdown, table
from bench.parts import PARTS
from bench.samples import Column, Sample, Scale, medians, per_round

__all__ = ["Measured", "as_json", "machine", "reached", "report", "versions"]

Measured = Mapping[str, Sequence[Sample]]
"""Samples by the letter of their part."""

_SERVERS: Final = ("waitress", "gunicorn", "uwsgi", "granian", "uvicorn", "uvloop", "httptools")
_REPAIRS: Final = """\
gSOAP's *queue* is `bench/gsoap/server.c` with the plug-ins of the installed gSOAP: the two loops of the mq plug-in's
documentation, with what keeps those from working repaired. Its own loop of the server serves each message once and
reads it from its own bytes each time it is looked at (documented: headers and body in two segments, or more than a
buffer, are lost or read past the end; a one-way operation ends the connection). Each connection has a context and
plug-ins of its own (documented: all share the buffer that is being read). Copies of a context are parted from the
socket before they are done with (documented: each closes it, which ends keep-alive and hits other connections), and
a connection's context is freed at its end. What it does is as it was: everything in memory, 160 KB for each message
until the connection ends; acknowledged before it is run; what is held is looked at again when the connection ends."""


def report(measured: Measured, scale: Scale, seconds: float, busy: float, *, plotted: bool = False) -> str:
    """``seconds`` is how long it took, ``busy`` the system's load average before. ``plotted``: there are plots."""
    figures = list(reached(measured))
    parts = [
        "# What it costs",
        f"{machine()} {scale.rounds} alternating {'rounds' if scale.rounds > 1 else 'round'} in"
        f" {seconds / 60:.0f} minutes, the load average {busy:.1f} when they began; medians, in parentheses the lowest"
        f" and highest round. {_fsync(measured)}"
        f" {_generator(measured)} A rate with ≥ was held there for the generator's sake: the server could do more.",
        f"{versions()}",
    ]
    if figures:
        parts += ["## What it has to reach", as_markdown(figures)]
    for letter, samples in measured.items():
        part = PARTS[letter]
        parts += [f"## ({letter}) {part.title}", part.about]
        for case in dict.fromkeys(sample.case for sample in samples):
            parts += [f"**{case}**", _table(case, samples, part.columns)]
        if plotted and part.plotted:
            parts += [f"![{part.title}](plots/{letter}.svg)"]
    if any(sample.subject.startswith("gSOAP") for samples in measured.values() for sample in samples):
        parts += ["## The repairs to gSOAP", _REPAIRS]
    return "\n\n".join(parts) + "\n"


def reached(measured: Measured) -> Iterable[Figure]:
    """What the parts have to reach."""
    for letter, samples in measured.items():
        yield from PARTS[letter].reach(samples)


def as_json(measured: Measured, seconds: float) -> str:
    samples = {letter: [sample._asdict() for sample in of_part] for letter, of_part in measured.items()}
    about = {"machine": machine(), "versions": versions(), "seconds": round(seconds)}
    return json.dumps({**about, "samples": samples}, indent=1, default=dict) + "\n"


def _table(case: str, samples: Sequence[Sample], columns: Sequence[Column]) -> str:
    subjects = list(dict.fromkeys(sample.subject for sample in samples if sample.case == case))
    values = {subject: medians(samples, case, subject) for subject in subjects}
    shown = [column for column in columns if any(column.key in row for row in values.values())]
    rows = [
        (subject, *(_cell(column, row, per_round(samples, case, subject, column.key)) for column in shown))
        for subject, row in values.items()
    ]
    return table(("", *(column.heading for column in shown)), rows)


def _cell(column: Column, row: Mapping[str, float], rounds: Sequence[float]) -> str:
    if column.key not in row:
        return ""
    limits = {"rate": "most", "null_rate": "null_most"}
    text = ("≥ " if row.get(limits.get(column.key, ""), 0) else "") + column.form.format(row[column.key])
    if column.spread and len(rounds) > 1:
        text += f" ({column.form.format(min(rounds))} – {column.form.format(max(rounds))})"
    return text


def _all(measured: Measured, key: str) -> list[float]:
    return [s.values[key] for samples in measured.values() for s in samples if key in s.values]


def _fsync(measured: Measured) -> str:
    taken = _all(measured, "fsync_us")
    if not taken:
        return ""
    return f"fsync of a page: median {statistics.median(taken):,.0f} µs ({min(taken):,.0f} – {max(taken):,.0f})."


def _generator(measured: Measured) -> str:
    taken = _all(measured, "generator")
    if not taken:
        return ""
    return f"The load generator used {statistics.median(taken):.0f} % of a core, at most {max(taken):.0f} %."


def machine() -> str:
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return (
        f"{os.cpu_count()} cores ({platform.machine()}) for server, generator and all else, {memory:.0f} GB, "
        f"{platform.system()} {platform.release().split('-')[0]}."
    )


def versions(packages: Sequence[str] = _SERVERS) -> str:
    """``packages``: of Python's, those that are installed."""
    named: dict[str, Any] = {"Python": _python(), "SQLite": sqlite3.sqlite_version}
    for package in packages:
        try:
            named[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    if packages is _SERVERS:
        named["gSOAP"] = _first_line("soapcpp2", "-V")
        named["gcc"] = _first_line("gcc", "-dumpfullversion")
    return ", ".join(f"{name} {version}" for name, version in named.items() if version) + "."


def _python() -> str:
    """As distributions build it, it is the faster one: with the profile of a run (PGO)."""
    options = sysconfig.get_config_var("CONFIG_ARGS") or ""
    return platform.python_version() + ("" if "--enable-optimizations" in options else " (built without PGO)")


def _first_line(*command: str) -> str:
    try:
        done = subprocess.run(command, capture_output=True, text=True)
    except FileNotFoundError:
        return ""
    return next(iter((done.stdout or done.stderr).splitlines()), "").split()[-1]
