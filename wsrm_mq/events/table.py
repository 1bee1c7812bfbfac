"""Every event that is told: its name, which is stable, its level, its fields and what it means.

The logger is ``wsrm_mq.`` and the first part of the name. A field may be missing where it is not known. The page
``docs/observability.md`` shows this table; a test holds both, and every call in the package, against it.
"""

from __future__ import annotations

from logging import CRITICAL, DEBUG, ERROR, INFO, WARNING
from typing import Final, NamedTuple

__all__ = ["EVENTS", "FROM_LEDGER", "Kind"]


class Kind(NamedTuple):
    """``is_heard``: ``on_event`` gets it too."""

    level: int
    fields: tuple[str, ...]
    meaning: str
    is_heard: bool


def _heard(level: int, fields: str, meaning: str) -> Kind:
    return Kind(level, tuple(fields.split()), meaning, True)


def _logged(level: int, fields: str, meaning: str) -> Kind:
    return Kind(level, tuple(fields.split()), meaning, False)


EVENTS: Final = {
    # requests
    "request.refused": _logged(
        INFO, "fault reason sequence", "A request was answered with a fault; nothing of it was stored"
    ),
    "request.no_room": _logged(
        WARNING, "reason", "A message was answered 503: it is over a limit. Its sender comes again"
    ),
    "request.store_error": _logged(
        ERROR, "error", "A request was answered 503: the store could not be written. Its sender comes again"
    ),
    "ack_requested.unknown": _logged(
        WARNING, "sequence", "An AckRequested beside a message names a sequence that is not known here"
    ),
    "one_way.unknown": _logged(
        WARNING, "reason", '`one_way="auto"` asks a Spyne application, and this is none: no operation is one-way'
    ),
    # deliveries
    "delivery.failed": _heard(
        ERROR,
        "sequence number attempt error",
        "The application has not taken a message",
    ),
    "delivery.dead": _heard(
        ERROR, "sequence number error", "An acknowledged message went to the dead letters; the error says why"
    ),
    "delivery.lost": _heard(
        ERROR, "sequence number error", "At most once: a message failed that is settled already. Nothing repeats it"
    ),
    "delivery.answered_with_fault": _heard(
        ERROR, "sequence number error", "A one-way message was taken and answered with a fault that nobody else reads"
    ),
    "delivery.holder_died": _heard(
        WARNING, "sequence number attempt", "A process died while it ran this message; it is delivered again"
    ),
    "delivery.fence_lost": _heard(
        ERROR, "sequence number error", "A sequence went to another owner while it was run; the settlement was refused"
    ),
    "delivery.not_settled": _heard(
        ERROR, "sequence number error", "A delivered message could not be settled; it may be delivered again"
    ),
    # sequences
    "sequence.created": _logged(DEBUG, "sequence", "A sequence was created"),
    "sequence.closed": _logged(DEBUG, "sequence number", "A sequence was closed; the number is its last"),
    "sequence.ended": _logged(DEBUG, "sequence reason", "A sequence ended: terminated, expired or refused"),
    "sequence.failed": _heard(ERROR, "sequence reason", "A sequence was given up: a message of it cannot be delivered"),
    "sequence.blocked": _heard(
        ERROR, "sequence number error", "The last try of a message has failed: its sequence waits for an operator"
    ),
    "sequence.released_across_gap": _heard(
        WARNING, "sequence reason", "An incomplete sequence ended; what was held is delivered across the gap"
    ),
    "sequence.discarding": _heard(
        ERROR, "sequence number reason", "What a sequence has from this number on goes to the dead letters"
    ),
    # the dispatcher
    "dispatch.failed": _heard(
        ERROR, "key error", "A run of a sequence broke off, for no fault of a message; it is run again"
    ),
    "dispatch.not_given_back": _heard(
        ERROR, "key error", "A sequence could not be given back: the store is closed. The next start finds it"
    ),
    "dispatch.exhausted": _heard(
        ERROR,
        "of threads waiting",
        "Every thread that may call the application does; sequences, or two-way requests, wait for one",
    ),
    # instances
    "instance.gone": _heard(WARNING, "name sequences", "Another process died; the sequences that it ran are free"),
    "instance.files_removed": _heard(
        CRITICAL, "path", "The lock file of this process was removed and is made again: nobody may remove it"
    ),
    "engine.fork_failed": _heard(ERROR, "", "What has to be done around a fork failed"),
    "engine.start_failed": _heard(
        ERROR, "error", "A worker that uWSGI forked could not start; its first request tries again"
    ),
    "engine.cut_off": _heard(
        ERROR, "path", "The process ends and an operation still runs: it will be delivered again, marked"
    ),
    # the store
    "store.write_failed": _heard(ERROR, "error", "The store cannot be written; told again every minute while it lasts"),
    "store.overloaded": _heard(
        WARNING, "requests size", "So many requests, of so many bytes, wait to be written that others get 503 at once"
    ),
    "store.writer_failed": _heard(CRITICAL, "error", "The writer met an error of its own; what waited was refused"),
    "store.not_written": _heard(CRITICAL, "verbs path", "The store was closed before all that waited could be written"),
    "store.rescued": _heard(CRITICAL, "path to", "The store's file is gone; a copy of what was in it was saved"),
    "store.not_rescued": _heard(CRITICAL, "path error", "The store's file is gone and could not be saved"),
    "store.copy_left": _heard(
        ERROR, "path error", "The store's file is back, and the copy that was saved could not be removed: remove it"
    ),
    "store.callback_failed": _heard(ERROR, "", "Somebody could not be told that his transaction is committed"),
    "store.checkpoint_failed": _logged(WARNING, "error", "The write-ahead log could not be moved into the file"),
    "watch.store_error": _heard(
        ERROR, "error", "The watch cannot use the store; told again every minute while it lasts"
    ),
    "watch.failed": _heard(ERROR, "", "A turn of the watch failed; the next one follows"),
    "janitor.store_error": _heard(
        ERROR, "error", "The janitor cannot use the store; told again every minute while it lasts"
    ),
    "janitor.failed": _heard(ERROR, "", "A turn of the janitor failed; the next one follows"),
    "janitor.pruned": _logged(INFO, "messages bodies size sequences", "What was kept long enough was deleted"),
    "store.witness_not_told": _heard(
        WARNING, "error", "The witness beside the store could not be written: it lags behind, which loses nothing"
    ),
    "store.new": _heard(WARNING, "path", "A store without any sequence was opened where another one was before"),
    # the hook itself
    "on_event.failed": _logged(ERROR, "event", "`on_event` raised an error; nothing else follows from it"),
    "on_event.dropped": _logged(ERROR, "event", "`on_event` is too slow: events are dropped until it has caught up"),
}

FROM_LEDGER: Final = {
    "created": "sequence.created",
    "closed": "sequence.closed",
    "ended": "sequence.ended",
    "released_across_gap": "sequence.released_across_gap",
    "discarding": "sequence.discarding",
    "failed": "delivery.failed",
    "blocked": "sequence.blocked",
    "dead": "delivery.dead",
    "answered_with_fault": "delivery.answered_with_fault",
    "holder_died": "delivery.holder_died",
}
"""What is told of a row of the ledger, once it is committed."""
