"""The table of events: the name of each, which is stable, its level and its fields.

The logger is ``wsrm_mq.`` and the first part of the name. A field may be missing where it is not known. The page
``docs/observability.md`` shows this table, and the meaning of each event; a test holds both, and every call in the
package, against it.
"""

from __future__ import annotations

from logging import CRITICAL, DEBUG, ERROR, INFO, WARNING
from typing import Final, NamedTuple


class EventKind(NamedTuple):
    """An event that is logged: its level of ``logging``, and its fields by name. ``is_reported``: the program's
    ``on_event`` gets it as well."""

    level: int
    fields: tuple[str, ...]
    is_reported: bool


def _reported(level: int, fields: str = "") -> EventKind:
    return EventKind(level, tuple(fields.split()), is_reported=True)


def _logged(level: int, fields: str = "") -> EventKind:
    return EventKind(level, tuple(fields.split()), is_reported=False)


EVENTS: Final = {
    # requests
    "request.refused": _logged(INFO, "fault reason sequence"),
    "request.no_room": _logged(WARNING, "reason"),
    "request.body_lost": _reported(ERROR),
    "request.store_error": _logged(ERROR, "error"),
    "request.header_dropped": _logged(WARNING, "name"),
    "request.misconfigured": _reported(ERROR, "error"),
    "ack_requested.unknown": _logged(WARNING, "sequence"),
    "one_way.unknown": _reported(WARNING, "operation path reason"),
    "one_way.no_wsdl": _logged(WARNING, "path reason"),
    "wsdl.untouched": _reported(WARNING, "path reason"),
    "acknowledgement.unknown": _logged(WARNING, "sequence"),
    "acknowledgement.not_sent": _logged(WARNING, "error"),
    "acknowledgement.invalid": _logged(WARNING, "sequence"),
    "header.ignored": _logged(WARNING, "reason"),
    "answer.unreadable": _logged(WARNING, "error"),
    "fault.ignored": _logged(WARNING, "fault reason sequence action"),
    "reply.not_soap": _reported(WARNING, "sequence number content_type"),
    # deliveries
    "delivery.failed": _reported(ERROR, "sequence number position attempt error"),
    "delivery.dead": _reported(ERROR, "sequence number position error"),
    "delivery.lost": _reported(ERROR, "sequence number error"),
    "delivery.answered_with_fault": _reported(ERROR, "sequence number error"),
    "delivery.holder_died": _reported(WARNING, "sequence number attempt reason"),
    "delivery.broke_off": _reported(ERROR, "sequence number attempt reason"),
    "delivery.fence_lost": _reported(ERROR, "sequence number error"),
    "delivery.not_settled": _reported(ERROR, "sequence number error"),
    # sequences
    "sequence.created": _logged(DEBUG, "sequence"),
    "sequence.closed": _logged(DEBUG, "sequence number"),
    "sequence.ended": _logged(DEBUG, "sequence reason"),
    "sequence.fault_received": _reported(WARNING, "sequence reason"),
    "sequence.failed": _reported(ERROR, "sequence reason"),
    "sequence.blocked": _reported(ERROR, "sequence number error"),
    "sequence.released_across_gap": _reported(WARNING, "sequence reason"),
    "sequence.gap_open": _reported(WARNING, "sequence number reason"),
    "sequence.discarding": _reported(ERROR, "sequence number reason"),
    # the dispatcher
    "dispatch.failed": _reported(ERROR, "key error"),
    "dispatch.dropped": _reported(ERROR, "key"),
    "dispatch.not_given_back": _reported(ERROR, "key error"),
    "dispatch.exhausted": _reported(ERROR, "of threads waiting"),
    # queues
    "journal.skipped": _reported(WARNING, "queue reason"),
    "report.skipped": _reported(WARNING, "queue reason"),
    "queue.mode_changed": _reported(WARNING, "queue mode moved left consumed"),
    "queue.taken": _reported(ERROR, "queue messages"),
    # instances
    "instance.gone": _reported(WARNING, "name sequences"),
    "instance.files_removed": _reported(CRITICAL, "path"),
    "thread.missing": _reported(ERROR, "error"),
    "engine.fork_failed": _reported(ERROR, "error"),
    "engine.start_failed": _reported(ERROR, "error"),
    "engine.cut_off": _reported(ERROR, "path"),
    # the store
    "store.write_failed": _reported(ERROR, "error"),
    "store.overloaded": _reported(WARNING, "requests size"),
    "store.writer_failed": _reported(CRITICAL, "error"),
    "store.not_written": _reported(CRITICAL, "verbs path"),
    "store.rescued": _reported(CRITICAL, "path to"),
    "store.not_rescued": _reported(CRITICAL, "path error"),
    "store.tightened": _reported(WARNING, "path mode"),
    "store.not_private": _reported(ERROR, "path mode error"),
    "store.went_back": _reported(CRITICAL, "path"),
    "store.copy_left": _reported(ERROR, "path error"),
    "store.callback_failed": _reported(ERROR, "error"),
    "store.checkpoint_failed": _logged(WARNING, "error"),
    "watch.store_error": _reported(ERROR, "error"),
    "clock.jumped": _reported(WARNING, "seconds"),
    "watch.failed": _reported(ERROR, "error"),
    "put.refused": _logged(ERROR, "queue count error"),
    "consumer.ended": _reported(ERROR, "queue error"),
    "consumer.late": _logged(WARNING, "queue count"),
    "server.away": _logged(WARNING, "address error"),
    "server.back": _logged(INFO, "address"),
    "source.away": _reported(WARNING, "host since error"),
    "source.back": _logged(INFO, "host seconds"),
    "source.not_fetched": _reported(WARNING, "error"),
    "source.refused": _reported(ERROR, "reason"),
    "source.carried_on": _reported(WARNING, "reason"),
    "source.in_doubt": _reported(WARNING, "reason"),
    "relay.waits": _reported(ERROR, "error"),
    "route.away": _reported(WARNING, "address error"),
    "route.back": _reported(INFO, "address"),
    "route.moved": _reported(WARNING, "reason"),
    "route.forgotten": _reported(ERROR, "reason"),
    "route.broken": _reported(ERROR, "error"),
    "outbox.waits": _logged(WARNING, "error"),
    "outbox.refused": _reported(ERROR, "queue position error"),
    "outbox.gap": _reported(ERROR, "queue lower upper"),
    "express.lost": _reported(ERROR, "queue reason"),
    "express.overflow": _logged(WARNING, "size limit"),
    "express.cut_off": _logged(WARNING, "error"),
    "janitor.store_error": _reported(ERROR, "error"),
    "janitor.failed": _reported(ERROR, "error"),
    "janitor.pruned": _logged(INFO, "messages bodies size sequences ledger plans"),
    "store.witness_not_told": _reported(WARNING, "error"),
    "store.other_application": _reported(ERROR, "queue application"),
    "store.cut_off": _reported(WARNING, "path pages"),
    "store.new": _reported(WARNING, "path"),
    # `serve`
    "serve.crowded": _reported(WARNING, "connections closed refused"),
    "serve.few_files": _reported(WARNING, "connections limit"),
    "serve.no_files": _reported(ERROR, "error limit"),
    "serve.files_again": _reported(WARNING),
    # the queue server
    "login.failed": _logged(WARNING, "peer reason"),
    "login.flooded": _reported(WARNING, "peer count seconds"),
    "session.silent": _logged(WARNING, "client principal leased"),
    "server.broken": _logged(ERROR, "operation error"),
    "stomp.refused": _logged(INFO, "peer principal error"),
    "stomp.gone": _logged(WARNING, "peer principal leased"),
    "stomp.failed": _reported(ERROR, "peer principal error"),
    # what tells
    "tracing.failed": _logged(ERROR, "error"),
    "log.failed": _reported(ERROR, "event error"),
    "on_event.failed": _logged(ERROR, "event error"),
    "on_event.dropped": _logged(ERROR, "event"),
}

FROM_LEDGER: Final = {
    "created": "sequence.created",
    "closed": "sequence.closed",
    "ended": "sequence.ended",
    "fault_received": "sequence.fault_received",
    "released_across_gap": "sequence.released_across_gap",
    "gap_open": "sequence.gap_open",
    "discarding": "sequence.discarding",
    "failed": "delivery.failed",
    "blocked": "sequence.blocked",
    "dead": "delivery.dead",
    "answered_with_fault": "delivery.answered_with_fault",
    "holder_died": "delivery.holder_died",
    "broke_off": "delivery.broke_off",
    "journal_skipped": "journal.skipped",
    "report_skipped": "report.skipped",
    "express_lost": "express.lost",
    "sequence_refused": "source.refused",
    "carried_on": "source.carried_on",
    "requests_in_doubt": "source.in_doubt",
    "rerouted": "route.moved",
    "forgotten_there": "route.forgotten",
}
"""The event that is told of a row of the ledger once it is committed, by the event of the row."""
