"""The words that a column may have, for the constraints of tables and for queries; and how tables are described."""

from __future__ import annotations

from typing import Any, Final

from sqlalchemy import BigInteger, CheckConstraint, Column, Identity, Index, Integer, text

from wsrm_mq.sequence.outbound_states import OutboundState

QUEUE_KINDS: Final = ("app", "dead_letter", "outgoing", "subscription", "topic", "journal", "report")
QUEUE_MODES: Final = ("dispatch", "pull")
OUTCOMES: Final = ("delivered", "dead", "discarded", "purged")
LANE_KINDS: Final = ("rm", "connection", "replay", "outgoing", "group")
OPEN_STATES: Final = ("created", "closed")
"""States of a sequence that has not ended."""
SEQUENCE_STATES: Final = (*OPEN_STATES, "ended")
OUTBOUND_STATES: Final = tuple(OutboundState)
DEFAULT_PRIORITY: Final = 4
"""The priority of what is put without one."""
PLAN_STATES: Final = ("planned", "running", "done", "cancelled")
LATE: Final = ("accept", "refuse")
ANSWERED_WITH_FAULT: Final = "answered_with_fault"
"""The service took a one-way message and answered a fault, which the source does not read: an event of the ledger, the
reason of an entry, and the kind of a failure where ``on_fault`` puts the message aside."""
REPLAYED: Final = "replayed"
"""Reason of what was not delivered and is settled: its replay is delivered in its place."""
ATTEMPTS: Final = ("failed", "holder_died", "broke_off", "lease_ended", ANSWERED_WITH_FAULT)
"""Events of the ledger: attempts that did not go well."""
EVENTS: Final = (
    *ATTEMPTS,
    *("adopted", "application_renamed", "archive_withdrawn", "archived", "begun_anew", "blocked", "closed"),
    *("confirmed", "created", "dead", "discarded", "discarding", "ended", "express_lost", "fault_received"),
    *("forced", "forgotten_there", "gap_open", "held", "instance_gone", "journal_skipped"),
    *("lost_after_delivery", "message_confirmed", "mode_changed", "node_named", "noted", "pruned", "purged"),
    *("redriven", "report_skipped", "released_across_gap", "replayed", "carried_on", "requests_in_doubt"),
    *("sequence_refused", "bound", "published", "put", "queue_declared", "queue_deleted", "queue_purged"),
    *("subscription_dropped", "taken_by_hand", "unbound", "replay_began", "replay_cancelled", "replay_ended"),
    *("replay_planned", "replay_skipped", "replay_stopped", "repeated", "rerouted", "route_added"),
    *("route_dropped", "replies_in_doubt", "restored", "resumed", "retried", "skipped", "terminated"),
    *("token_added", "token_revoked", "unrouted"),
)
"""Events of the ledger."""
REASONS: Final = (
    ANSWERED_WITH_FAULT,
    REPLAYED,
    *("by_operator", "edited", "empty_last_message", "first_gap", "forced_expire", "express_lost"),
    *("hop_count_exceeded", "incomplete_sequence", "late", "late_refused", "loop", "max_cancels"),
    *("max_deliveries", "max_failures", "max_held_bytes", "never_answered", "not_acknowledged"),
    *("not_allowed", "not_fetched", "not_replied_to", "not_told", "quota", "reach_by", "receive_by"),
    *("refused_there", "rejected", "replay_cancelled", "sequence_ended", "sequence_failed"),
    *("sequence_refused", "sequence_terminated", "skipped", "store_adopted", "taken"),
    *("terminated_by_operator", "too_large", "ttl_expired", "unknown_destination", "unreadable"),
)
"""Reasons of outcomes."""


# How tables and their columns are described: once, for SQLite and for PostgreSQL.

Number: Final = Integer().with_variant(BigInteger(), "postgresql")
"""64 bits: a key, a number, or a time in ms since the epoch."""


def given_key() -> Column[Any]:
    """A key that the database gives, once."""
    return Column("id", Number, Identity(), primary_key=True)


def columns(names: str, *kind: Any, **options: Any) -> tuple[Column[Any], ...]:
    """Columns that differ in their names alone."""
    return tuple(Column(name, *kind, **options) for name in names.split(", "))


def one_of(column: str, words: tuple[str, ...]) -> CheckConstraint:
    listed = ", ".join(f"'{word}'" for word in words)
    return CheckConstraint(f"{column} IN ({listed})", name=f"{column}_is_a_word")


def index(name: str, *columns: Any, where: str = "", unique: bool = False) -> None:
    """Add an index of the rows ``where`` that is true; of all rows without it."""
    condition = text(where) if where else None
    Index(name, *columns, unique=unique, sqlite_where=condition, postgresql_where=condition)
