"""``wsrm-mq pipeline audit``: what must be true of every store, asked of many at once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import click

from wsrm_mq.cli.columns import Column, key
from wsrm_mq.cli.output import say, table
from wsrm_mq.cli.pipeline.work import Result, Work, job
from wsrm_mq.errors import ConfigurationError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from wsrm_mq.spark.jobs.audit import Tables

SHOWN: Final = 20
"""Violations; the table has all."""


@click.command()
@job
def audit(work: Work) -> Result:
    """Find what was lost, repeated or done out of order.

    The stores may be served meanwhile: what is found is looked for a second time, and only what is found twice is a
    violation. Exports have to be whole, made without a query.

    \b
    Example: wsrm-mq pipeline audit /stores/a.db /stores/b.db --out audit
    """
    from wsrm_mq.spark.jobs import audit as rules

    if work.options["copies"]:
        raise ConfigurationError("An audit reads each store once: leave out --copies, and name one of the files.")
    begun = _begun(work)
    tables = _look(work, begun)
    found = rules.violations(tables).persist()
    seen = found.count()
    if seen:
        found = found.intersect(rules.violations(_look(work, begun)))
    saved = work.save("violations", found)
    accounts = work.save("accounts", rules.accounts(tables.messages))
    counted = accounts.collect()
    by_invariant = {row["invariant"]: row["count"] for row in saved.groupBy("invariant").count().collect()}
    violations, ties = sum(by_invariant.values()), rules.neighbours(tables).where("settled_at = before_at").count()
    if not work.is_json:
        _tell(saved, violations, ties)
    return Result(
        {
            "stores": len({row.store for row in counted}),
            "messages": sum(row.messages for row in counted),
            "delivered": sum(row.messages for row in counted if row.state == "delivered"),
            "violations": violations,
            "by_invariant": by_invariant,
            "in_motion": seen - violations,
            "ties": ties,
            "clock_steps": rules.clock_steps(tables).count(),
        },
        is_clean=not violations,
    )


def _look(work: Work, begun: DataFrame) -> Tables:
    """The tables, as the rules want them read: first the ledger, then the messages, then the rest."""
    from wsrm_mq.spark.jobs.audit import COLUMNS, Tables

    ledger, messages = (work.table(name, *COLUMNS[name]).persist() for name in ("ledger", "messages"))
    ledger.count()
    messages.count()
    sequences, ranges = (work.table(name, *COLUMNS[name]) for name in ("sequences", "ranges"))
    return Tables(messages, sequences, ranges, ledger, begun)


def _begun(work: Work) -> DataFrame:
    """Which stores are read from an export, and when that was begun."""
    from datetime import UTC, datetime

    exports = work.exports()
    for path, manifest in exports.items():
        if manifest.archive is not None:
            raise ConfigurationError(f"{path}: is an archive, which has only what is settled. Audit the store itself.")
        if manifest.query:
            raise ConfigurationError(f"{path}: has only what fits {manifest.query!r}. Export without a query.")
    rows = [(one.store, datetime.fromtimestamp(one.begun_at / 1000, UTC)) for one in exports.values()]
    return work.spark.createDataFrame(rows, "store string, begun_at timestamp")


def _tell(violations: DataFrame, count: int, ties: int) -> None:
    some = violations.orderBy("invariant", "store", "sequence", "number").limit(SHOWN).collect()
    if some:
        columns = (key("store", rank=2), Column("sequence", 8, keeps_end=True), "number", Column("invariant"))
        rows = [(one.store, one.sequence, one.number, f"{one.invariant}: {one.detail}") for one in some]
        table(columns, rows)
    if count > len(some):
        say(f"{count - len(some)} more are in the table.")
    if ties:
        say(f"{ties} deliveries were settled in the ms of the one before them: their times do not prove their order.")
