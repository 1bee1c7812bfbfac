"""The format ``wsrm`` of Spark: ``spark.read.format("wsrm").load("/stores/*.db")``.

Spark finds it through the package ``pyspark_wsrm``, which it imports in every session: so nothing else is imported
here before it is used.
"""

from __future__ import annotations

import functools
import json
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSource

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

    from wsrm_mq.spark.reader import Reader

_PUSHDOWN: str = "spark.sql.python.filterPushdown.enabled"


class DefaultSource(DataSource):
    """Options are in ``options.OPTIONS``."""

    @classmethod
    def name(cls) -> str:
        return "wsrm"

    def schema(self) -> StructType:
        from wsrm_mq.spark.reader import parse, schema_of

        return schema_of(parse(self.options).columns)

    def reader(self, schema: StructType) -> Reader:
        from wsrm_mq.spark.reader import PushingReader, Reader, check, parse

        options = parse(self.options, tuple(schema.fieldNames()))
        check(schema, options.columns)
        return PushingReader(options) if options.pushdown else Reader(options)


def read(spark: SparkSession, *paths: str, table: str = "messages", **options: Any) -> DataFrame:
    """A table of stores and exports; ``options`` are the format's, by name: lists as sequences, or with commas between.
    Filters go to the stores where the session lets them; segments of Parquet are read by Spark itself, which prunes
    their columns and groups of rows."""
    from wsrm_mq.spark.reader import divided, parse, schema_of

    pushes = spark.conf.get(_PUSHDOWN, "false") == "true"
    given = {"table": table, "pushdown": pushes, **options}
    told = {
        name: ",".join(value) if isinstance(value, list | tuple) else str(value)
        for name, value in given.items()
        if value is not None
    }
    known = parse({**told, "paths": json.dumps([str(path) for path in paths])})
    segments, others = divided(known)
    frames: list[DataFrame] = []
    if segments:
        # The directories of an archive look like Hive's partitions, and are none: the columns are in the segments.
        reader = spark.read.schema(schema_of(known.columns)).option("recursiveFileLookup", "true")
        frames.append(reader.parquet(*segments))
    if others:
        frames.append(spark.read.format(DefaultSource.name()).options(**told).load(list(others)))
    return functools.reduce(lambda one, other: one.unionByName(other), frames)
