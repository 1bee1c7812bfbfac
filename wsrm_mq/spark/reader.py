"""The reading of stores and exports in Spark: options, partitions where a query is planned, batches on the executors.

A store is divided by keys, up to the last key at the time of planning; an export by its segments. An executor gets
paths, numbers and filters, and opens the store itself, only for reading.
"""

from __future__ import annotations

import difflib
import glob
import json
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Final, NamedTuple

from pyarrow import RecordBatch
from pyspark.sql import datasource as spark
from pyspark.sql import types as t
from pyspark.sql.datasource import DataSourceReader, Filter, InputPartition
from sqlalchemy import ColumnElement, func, not_, or_, select

from wsrm_mq.errors import ConfigurationError, StoreUnavailable
from wsrm_mq.export.arrow import batch, files_of, rows, schema, stored_batches
from wsrm_mq.export.formats import EPOCH
from wsrm_mq.export.manifest import Manifest, is_part, load, on_this_machine
from wsrm_mq.export.pieces import Bounds, Exposure, Origin, Reading, before, bounds, compared, opened, origin, pieces
from wsrm_mq.export.schema import Column, Kind, Table, chosen, table_named
from wsrm_mq.store import published as views

# The options of ``spark.read.format("wsrm")``, checked.


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


def _key_ranges(value: str) -> tuple[Bounds, ...]:
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
        _key_ranges,
        "keys",
        "only rows with these keys, ascending, such as `1-49,60`; of an export only segments with such",
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
    named = read.pop("columns", None)
    wanted = names or named
    columns = table.given if wanted is None else chosen(table, wanted)
    paths = json.loads(given["paths"]) if "paths" in given else [given["path"]] if "path" in given else []
    return Options(found_paths(paths), table, columns, **read)


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


# Filters of Spark as conditions of a statement, so that the store decides them and sends fewer rows to Spark.
#
# A filter goes to the executors as it came; the condition is made where it is used.


_CONDITIONS: Final[dict[type[spark.Filter], Callable[[ColumnElement[Any], Any], ColumnElement[bool]]]] = {
    spark.IsNull: lambda column, _: column.is_(None),
    spark.IsNotNull: lambda column, _: column.is_not(None),
    spark.EqualTo: lambda column, value: column == value,
    spark.GreaterThan: lambda column, value: column > value,
    spark.GreaterThanOrEqual: lambda column, value: column >= value,
    spark.LessThan: lambda column, value: column < value,
    spark.LessThanOrEqual: lambda column, value: column <= value,
    spark.In: lambda column, values: or_(*(column == value for value in values)),
    spark.StringStartsWith: lambda column, value: func.substr(column, 1, len(value)) == value,
    spark.StringEndsWith: lambda column, value: func.substr(column, -len(value)) == value,
    spark.StringContains: lambda column, value: func.instr(column, value) > 0,
}
_OF_TEXT: Final = (spark.StringStartsWith, spark.StringEndsWith, spark.StringContains)
_TYPES: Final = {Kind.TEXT: str, Kind.INTEGER: int, Kind.BOOLEAN: bool, Kind.TIME: datetime}


def _condition(table: Table, wanted: spark.Filter) -> ColumnElement[bool] | None:
    """The condition of ``wanted`` for rows of the store; ``None`` where Spark has to decide it."""
    if isinstance(wanted, spark.Not):
        inner = _condition(table, wanted.child)
        return not_(inner) if inner is not None else None
    make, path = _CONDITIONS.get(type(wanted)), getattr(wanted, "attribute", ())
    column = next((one for one in table.columns if path == (one.name,)), None)
    stored = compared(table, column.name) if column is not None else None
    if make is None or column is None or stored is None:
        return None
    if isinstance(wanted, spark.IsNull | spark.IsNotNull):
        return make(stored, None)
    given: Any = getattr(wanted, "value", None)
    values = [_stored(column.kind, one) for one in (given if isinstance(wanted, spark.In) else (given,))]
    if not values or None in values or (isinstance(wanted, _OF_TEXT) and not values[0]):
        return None
    if column.name == "sequence" and table.name == "messages" and isinstance(wanted, spark.EqualTo | spark.In):
        return _of_sequences(values)
    return make(stored, values if isinstance(wanted, spark.In) else values[0])


def _stored(kind: Kind, value: Any) -> Any:
    """A value as a read view has it; ``None`` where it has none that means the same."""
    if type(value) is not _TYPES.get(kind):
        return None
    if isinstance(value, datetime):
        is_exact = value.tzinfo is not None and value.microsecond % 1_000 == 0
        return (value - EPOCH) // timedelta(milliseconds=1) if is_exact else None
    return int(value) if isinstance(value, bool) else value


def _of_sequences(identifiers: list[str]) -> ColumnElement[bool]:
    """The condition for messages of these sequences, which uses the store's index of them."""
    its = views.sequence_messages.c
    return views.messages.c.position.in_(select(its.position).where(or_(*(its.sequence == one for one in identifiers))))


def _is_selective(table: Table, filters: Iterable[spark.Filter]) -> bool:
    """Whether the filters name a sequence, so that one partition can read all rows that fit."""
    return table.name == "messages" and any(
        isinstance(one, spark.EqualTo) and one.attribute == ("sequence",) for one in filters
    )


def _narrowed(table: Table, filters: Iterable[spark.Filter], within: Bounds) -> Bounds:
    """The keys that can fit."""
    lower, upper = within
    for one in filters:
        value = getattr(one, "value", None)
        if getattr(one, "attribute", ()) != (table.key[0],) or type(value) is not int:
            continue
        if isinstance(one, spark.EqualTo | spark.GreaterThanOrEqual | spark.GreaterThan):
            lower = max(lower, value)
        if isinstance(one, spark.EqualTo | spark.LessThanOrEqual | spark.LessThan):
            upper = min(upper, value)
    return Bounds(lower, upper)


KEYS: Final = 250_000
"""The number of keys in a partition."""
PATTERN: Final = re.compile(r"[*?\[\]{}\\]")
"""Characters that Spark takes for a pattern in the name of a file."""
_SPARK_TYPES: Final[dict[Kind, t.DataType]] = {
    Kind.TEXT: t.StringType(),
    Kind.INTEGER: t.LongType(),
    Kind.BOOLEAN: t.BooleanType(),
    Kind.TIME: t.TimestampType(),
    Kind.BYTES: t.BinaryType(),
}


@dataclass(frozen=True)
class OfStore(InputPartition):
    """Rows of the store at ``path`` whose keys are ``within``, and in one of ``keys``."""

    path: str
    source: Origin
    within: Bounds
    keys: tuple[Bounds, ...]


@dataclass(frozen=True)
class OfExport(InputPartition):
    """A segment; ``encoding`` is ``parquet`` or ``ndjson``."""

    file: str
    encoding: str


class Reader(DataSourceReader):
    """Reads all that was asked for; Spark filters it."""

    def __init__(self, options: Options) -> None:
        self.options = options
        self.filters: tuple[Filter, ...] = ()

    def partitions(self) -> list[InputPartition]:
        """Raises ``ConfigurationError`` where two paths are one store, ``StoreError`` where one cannot be read."""
        stores: list[OfStore] = []
        exports: list[InputPartition] = []
        found: list[tuple[str, str]] = []
        for path in self.options.paths:
            if Path(path).is_dir():
                manifest = load(Path(path))
                found.append((path, manifest.store))
                asked = self.options
                files = files_of(Path(path), manifest, asked.table.name, asked.columns, asked.keys)
                exports += [OfExport(str(file), manifest.encoding) for file in files]
                continue
            with opened(Path(path)) as db:
                source, within = origin(db, self.options.node), bounds(db, self.options.table)
            found.append((path, source.store))
            if within is not None:
                within, keys = _narrowed(self.options.table, self.filters, within), self.options.keys
                if keys is not None:
                    within = Bounds(max(within.lower, keys[0].lower), min(within.upper, keys[-1].upper))
                stores.append(OfStore(path, source, within, keys or (within,)))
        if not self.options.copies:
            check_once(found)
        return exports + list(self._divided(stores))

    def _divided(self, stores: list[OfStore]) -> Iterator[OfStore]:
        count = sum(one.within.upper - one.within.lower + 1 for one in stores)
        each = -(-count // self.options.partitions) if self.options.partitions is not None else KEYS
        if _is_selective(self.options.table, self.filters):
            each = count
        for store in stores:
            lower, upper = store.within
            for first in range(lower, upper + 1, max(each, 1)):
                within = Bounds(first, min(first + each - 1, upper))
                keys = tuple(
                    Bounds(max(one.lower, within.lower), min(one.upper, within.upper))
                    for one in store.keys
                    if one.lower <= within.upper and one.upper >= within.lower
                )
                if keys:
                    yield OfStore(store.path, store.source, within, keys)

    def read(self, partition: InputPartition) -> Iterator[RecordBatch]:
        columns = self.options.columns
        target = schema(columns)
        if isinstance(partition, OfStore):
            for piece in self._pieces(partition):
                yield batch(piece, columns, target)
        elif isinstance(partition, OfExport) and partition.encoding == "parquet":
            yield from stored_batches(Path(partition.file), target)
        elif isinstance(partition, OfExport):
            for piece in rows(Path(partition.file), columns):
                yield batch(piece, columns, target)

    def _pieces(self, partition: OfStore) -> Iterator[list[tuple[object, ...]]]:
        table, columns = self.options.table, self.options.columns
        exposure = Exposure(self.options.headers, security=self.options.security)
        wanted = tuple(made for made in (_condition(table, one) for one in self.filters) if made is not None)
        reading = Reading(table, columns, exposure, partition.source, wanted)
        with opened(Path(partition.path)) as db:
            for lower, upper in partition.keys:
                yield from pieces(db, reading, before(table, lower), upper)


class PushingReader(Reader):
    """Has the store apply filters. A session of Spark may refuse such readers (see ``read``)."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        """Takes filters of stores; answers those that Spark has to apply."""
        if any(Path(path).is_dir() for path in self.options.paths):
            return filters
        taken = tuple(one for one in filters if _condition(self.options.table, one) is not None)
        self.filters = taken
        return [one for one in filters if not any(one is other for other in taken)]


# schemas


def schema_of(columns: Iterable[Column]) -> t.StructType:
    """The columns of an export as Spark has them."""
    return t.StructType([t.StructField(column.name, _SPARK_TYPES[column.kind]) for column in columns])


def check(given: t.StructType, columns: Iterable[Column]) -> None:
    """Raises ``ConfigurationError`` where a schema that a user gave has other types."""
    for field, column in zip(given, columns, strict=True):
        wanted = _SPARK_TYPES[column.kind]
        if field.dataType != wanted:
            told = f"the column {column.name} is {wanted.simpleString()}, not {field.dataType.simpleString()}."
            raise ConfigurationError(told)


# segments of Parquet


def divided(options: Options) -> tuple[list[str], tuple[str, ...]]:
    """The segments that Spark can read by itself, and the paths that it cannot. Raises ``ConfigurationError`` where two
    paths are one store, ``ExportError`` and ``StoreError`` where one cannot be read."""
    manifests = {path: load(Path(path)) for path in options.paths if Path(path).is_dir()}
    files: list[str] = []
    others: list[str] = []
    for path in options.paths:
        manifest = manifests.get(path)
        found = _files(path, manifest, options) if manifest is not None else []
        files += found
        others += [] if found else [path]
    if files and not options.copies:
        check_once((path, _store(path, manifests)) for path in options.paths)
    return files, tuple(others)


def _files(path: str, manifest: Manifest, options: Options) -> list[str]:
    if manifest.encoding != "parquet" or PATTERN.search(path):
        return []
    return [str(file) for file in files_of(Path(path), manifest, options.table.name, options.columns, options.keys)]


def _store(path: str, manifests: dict[str, Manifest]) -> str:
    if path in manifests:
        return manifests[path].store
    with opened(Path(path)) as db:
        return origin(db, None).store


def check_once(found: Iterable[tuple[str, str]]) -> None:
    """``found``: paths, and the identities of their stores. Raises ``ConfigurationError`` where two are one."""
    seen: dict[str, str] = {}
    for path, store in found:
        if store in seen:
            raise ConfigurationError(
                f"{seen[store]} and {path} are of one store ({store}), as a copy and its original are. Name one of "
                "them, or read both with the option copies=true (`--copies`)."
            )
        seen[store] = path
