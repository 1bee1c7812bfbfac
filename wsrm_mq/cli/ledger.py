"""The ledger as a table: what happened, a line an event."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from wsrm_mq.cli.columns import Column, when
from wsrm_mq.cli.output import table, write
from wsrm_mq.views.words import first_line

if TYPE_CHECKING:
    from wsrm_mq.views.rows import LedgerView

REASON: Final = 100
"""So many characters of a reason, which may be a traceback, fit a line."""


def show_ledger(events: Sequence[LedgerView]) -> None:
    """Nothing where there is none."""

    if not events:
        return
    write("")
    table(
        (
            *(when("at"), Column("event", 16), "number", Column("attempt", rank=1), Column("reason", 20)),
            *(Column("actor", rank=0), Column("instance", rank=2)),
        ),
        [
            (e.at, e.event, e.number, e.attempt, e.reason and first_line(e.reason, REASON), e.actor, e.instance)
            for e in events
        ],
    )
