"""The reader of stores and exports in Spark: partitions where a query is planned, batches on the executors.

A store is divided by keys, up to the last key at the time of planning; an export by its segments. An executor gets
paths, numbers and filters, and opens the store itself, only for reading.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pyspark.sql import types as t
from pyspark.sql.datasource import DataSourceReader, Filter, InputPartition

from wsrm_mq.errors import ConfigurationError
from wsrm_mq.export.contents import Exposure
from wsrm_mq.export.manifest import Manifest, load
from wsrm_mq.export.pieces import Bounds, Origin, Reading, before, bounds, opened, origin, pieces
from wsrm_mq.export.schema import Column, Kind
from wsrm_mq.export.segments import files_of, rows
from wsrm_mq.spark.filters import condition, is_selective, narrowed
from wsrm_mq.spark.options import Options

if TYPE_CHECKING:
    from pyarrow import RecordBatch

KEYS: Final = 250_000
"""The keys of a partition."""
PATTERN: Final = re.compile(r"[*?\[\]{}\\]")
"""Characters that Spark takes for a pattern in the name of a file."""
_TYPES: Final[dict[Kind, t.DataType]] = {
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
                within, keys = narrowed(self.options.table, self.filters, within), self.options.keys
                if keys is not None:
                    within = Bounds(max(within.lower, keys[0].lower), min(within.upper, keys[-1].upper))
                stores.append(OfStore(path, source, within, keys or (within,)))
        if not self.options.copies:
            check_once(found)
        return exports + list(self._divided(stores))

    def _divided(self, stores: list[OfStore]) -> Iterator[OfStore]:
        count = sum(one.within.upper - one.within.lower + 1 for one in stores)
        each = -(-count // self.options.partitions) if self.options.partitions is not None else KEYS
        if is_selective(self.options.table, self.filters):
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
        from wsrm_mq.export.arrow import batch, schema, stored_batches

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
        wanted = tuple(made for made in (condition(table, one) for one in self.filters) if made is not None)
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
        taken = tuple(one for one in filters if condition(self.options.table, one) is not None)
        self.filters = taken
        return [one for one in filters if not any(one is other for other in taken)]


# schemas


def schema_of(columns: Iterable[Column]) -> t.StructType:
    """The columns of an export as Spark has them."""
    return t.StructType([t.StructField(column.name, _TYPES[column.kind]) for column in columns])


def check(given: t.StructType, columns: Iterable[Column]) -> None:
    """Raises ``ConfigurationError`` where a schema that a user gave has other types."""
    for field, column in zip(given, columns, strict=True):
        wanted = _TYPES[column.kind]
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
