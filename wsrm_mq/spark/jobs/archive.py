"""How the rows of an archive lie in its files: by day and queue, those of a sequence together and in its order."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F

from wsrm_mq.export.schema import TABLES

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_TOGETHER: Final = ("queue", "sequence")
_ORDER: Final = (*_TOGETHER, "number")


def ordered(rows: DataFrame, table: str, parts: int) -> DataFrame:
    """The rows of a ``table`` of exports in ``parts`` partitions, each sorted by day (UTC), queue, sequence, number and
    key, as far as the table has them. A sequence of a day is in one partition."""
    its = TABLES[table]
    day = [F.to_date(its.moment)] if its.moment is not None else []
    named = [F.col(name) for name in _ORDER if name in rows.columns]
    keys = [F.col(name) for name in its.key]
    together = [*day, *(F.col(name) for name in _TOGETHER if name in rows.columns)] if day else keys[:1]
    return rows.repartition(parts, *together).sortWithinPartitions(*day, *named, *keys)
