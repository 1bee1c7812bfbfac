"""The options of ``spark.read.format("wsrm")``, checked."""

from __future__ import annotations

import difflib
import glob
import json
import os
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from wsrm_mq.errors import ConfigurationError, StoreUnavailable
from wsrm_mq.export.manifest import is_part, on_this_machine
from wsrm_mq.export.pieces import Bounds
from wsrm_mq.export.schema import Column, Table, chosen, table_named

_KEYS: Final = re.compile(r"\d+(-\d+)?(,\d+(-\d+)?)*")


class Options(NamedTuple):
    paths: tuple[str, ...]
    """Stores, and directories of exports."""
    table: Table
    columns: tuple[Column, ...]
    node: str | None = None
    headers: tuple[str, ...] = ()
    security: bool = False
    partitions: int | None = None
    keys: tuple[Bounds, ...] | None = None
    """Ranges of the table's key, ascending."""
    copies: bool = False
    pushdown: bool = False


def _truth(value: str) -> bool:
    if value.lower() not in ("true", "false"):
        raise ValueError("is neither true nor false")
    return value.lower() == "true"


def _count(value: str) -> int:
    if not value.isdigit() or int(value) < 1:
        raise ValueError("is no whole number above 0")
    return int(value)


def _names(value: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in value.split(",") if name.strip())


def _keys(value: str) -> tuple[Bounds, ...]:
    if not _KEYS.fullmatch(value):
        raise ValueError("is no list of keys such as 1-49,60")
    ends = (one.split("-") for one in value.split(","))
    return tuple(Bounds(int(one[0]), int(one[-1])) for one in ends)


class Option(NamedTuple):
    reads: Callable[[str], Any]
    field: str
    help: str


OPTIONS: Final[dict[str, Option]] = {
    "table": Option(str, "table", "which table; default `messages`"),
    "columns": Option(_names, "columns", "only these columns, with commas between; envelopes have to be named"),
    "node": Option(
        str,
        "node",
        "what the column `node` says; default the name of each one's node, else its machine",
    ),
    "headers": Option(_names, "headers", "request headers that are given, with commas between"),
    "withSecurity": Option(_truth, "security", "`true`: envelopes keep their `wsse:Security`; default `false`"),
    "numPartitions": Option(_count, "partitions", "partitions over all stores; default one for 250,000 rows"),
    "keys": Option(
        _keys, "keys", "only rows with these keys, ascending, such as `1-49,60`; of an export only segments with such"
    ),
    "copies": Option(
        _truth, "copies", "`true`: paths with one identity, as a backup has, are all read; default `false`"
    ),
    "pushdown": Option(_truth, "pushdown", "`true`: filters go to the store; `wsrm_mq.spark.read` sets it"),
}
"""The options by name; Spark compares names without case."""

_BY_LOWER: Final = {name.lower(): (name, option) for name, option in OPTIONS.items()}
_PATHS: Final = ("path", "paths")


def parse(given: Mapping[str, str], names: tuple[str, ...] | None = None) -> Options:
    """``names``: the columns of a schema that the user gave. Raises ``ConfigurationError``, and ``StoreUnavailable``
    where a path leads nowhere."""
    read: dict[str, Any] = {}
    for key, value in given.items():
        if key.lower() in _PATHS:
            continue
        if key.lower() not in _BY_LOWER:
            near = difflib.get_close_matches(key.lower(), _BY_LOWER, 1)
            meant = f"; did you mean {_BY_LOWER[near[0]][0]}?" if near else "."
            raise ConfigurationError(f"there is no option {key}{meant} There are {', '.join(OPTIONS)}.")
        name, option = _BY_LOWER[key.lower()]
        try:
            read[option.field] = option.reads(value)
        except ValueError as error:
            raise ConfigurationError(f"the option {name}: {value!r} {error}.") from None
    table = table_named(read.pop("table", "messages"))
    wanted = names or read.pop("columns", None)
    columns = table.given if wanted is None else chosen(table, wanted)
    read.pop("columns", None)
    return Options(found_paths(_paths(given)), table, columns, **read)


def _paths(given: Mapping[str, str]) -> Sequence[str]:
    return json.loads(given["paths"]) if "paths" in given else [given["path"]] if "path" in given else []


def local(path: str) -> str:
    """A path of this machine, absolute, also of an address ``file:``. Raises ``ConfigurationError`` for any other
    address."""
    return os.path.abspath(on_this_machine(path))


def found_paths(paths: Sequence[str]) -> tuple[str, ...]:
    """The stores and exports that are meant: by ``*`` and the like, or by a directory that has several archives."""
    if not paths:
        raise ConfigurationError("there is no path: load('/stores/*.db'), or the directory of an export.")
    found: list[str] = []
    for path in paths:
        plain = local(path)
        there = [plain] if os.path.lexists(plain) else sorted(glob.glob(plain))
        if not there or not all(Path(one).exists() for one in there):
            raise StoreUnavailable(f"{path}: there is no such store or export.", "Name files that this machine has.")
        found += [each for one in there for each in _below(Path(one))]
    return tuple(dict.fromkeys(found))


def _below(path: Path) -> list[str]:
    """One that has no manifest is among them: nothing that is missing is passed over."""
    if not path.is_dir() or is_part(path):
        return [str(path)]
    return sorted(str(one) for one in path.iterdir() if one.is_dir() and is_part(one)) or [str(path)]
