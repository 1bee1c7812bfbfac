"""The table of events: the name of each, which is stable, its level, its fields and its meaning.

The logger is ``wsrm_mq.`` and the first part of the name. A field may be missing where it is not known. The page
``docs/observability.md`` shows this table; a test holds both, and every call in the package, against it.
"""

from __future__ import annotations

from logging import CRITICAL, DEBUG, ERROR, INFO, WARNING
from typing import Final, NamedTuple


class EventKind(NamedTuple):
    """``is_reported``: ``on_event`` gets it too."""

    level: int
    fields: tuple[str, ...]
    meaning: str
    is_reported: bool


def _reported(level: int, fields: str, meaning: str) -> EventKind:
    return EventKind(level, tuple(fields.split()), meaning, True)


def _logged(level: int, fields: str, meaning: str) -> EventKind:
    return EventKind(level, tuple(fields.split()), meaning, False)


EVENTS: Final = {
    # requests
    "request.refused": _logged(
        INFO, "fault reason sequence", "A request was answered with a fault; nothing of it was stored"
    ),
    "request.no_room": _logged(
        WARNING, "reason", "A message was answered 503: it is over a limit. Its sender comes again"
    ),
    "request.body_lost": _reported(
        ERROR,
        "",
        "The server has lost the body of a request that offers another protocol (Upgrade), as uvicorn does with "
        "httptools: serve with `wsrm-mq serve`, or with `--http h11`",
    ),
    "request.store_error": _logged(
        ERROR, "error", "A request was answered 503: the store could not be written. Its sender comes again"
    ),
    "request.header_dropped": _logged(
        WARNING,
        "name",
        "A header that is not stored, so the application does not see it; told once a name. See `keep_headers`",
    ),
    "request.misconfigured": _reported(
        ERROR, "error", "A request was answered 503: a hook of the middleware answers what it may not, or raises"
    ),
    "ack_requested.unknown": _logged(
        WARNING, "sequence", "An AckRequested beside a message names a sequence that is not known here"
    ),
    "one_way.unknown": _reported(
        WARNING,
        "operation path reason",
        "A message waited for its turn, and its sender for an answer, which was an empty 202 in the end: whether this "
        "operation has an answer is not known, as no WSDL of the service says it. Name it in `one_way` if it has none, "
        "else set `one_way = []`; told once an operation",
    ),
    "one_way.no_wsdl": _logged(
        WARNING,
        "path reason",
        "The service gives no WSDL at this path with `?wsdl`, or it cannot be read, so none of its operations is known "
        "to have no answer: all are waited for. Name those without one in `one_way`, else set `one_way = []`; told "
        "once a path",
    ),
    "wsdl.untouched": _reported(
        WARNING,
        "path reason",
        "The service answers with a WSDL that cannot be read; it went out as it is and announces nothing. Told once",
    ),
    "acknowledgement.unknown": _logged(
        WARNING,
        "sequence",
        "An acknowledgement of messages rides on a message and names a sequence that is not sent from here",
    ),
    "acknowledgement.not_sent": _logged(
        WARNING,
        "error",
        "An acknowledgement could not be sent to where its source wants it; the next one says the same",
    ),
    "acknowledgement.invalid": _logged(
        WARNING,
        "sequence",
        "An acknowledgement of replies names numbers that were not sent, or contradicts an earlier one; none was taken",
    ),
    "header.ignored": _logged(
        WARNING, "reason", "A header of WS-RM that rides on a message is malformed; the message was served without it"
    ),
    "answer.unreadable": _logged(
        WARNING,
        "error",
        "An endpoint answered a request of this side's own with what cannot be read; its status alone says whether the "
        "message was taken",
    ),
    "fault.ignored": _logged(
        WARNING,
        "fault reason sequence action",
        "A fault that arrived is about no live sequence of its sender; it changed nothing",
    ),
    "reply.not_soap": _reported(
        WARNING,
        "sequence number content_type",
        "A two-way message was answered by the service with what is no SOAP envelope, so the acknowledgement cannot "
        "ride on it: if the message comes again, it is answered by the acknowledgement alone, in turn with the reply. "
        "Where the reply was to be sent to an address, nothing is sent",
    ),
    # deliveries
    "delivery.failed": _reported(
        ERROR,
        "sequence number position attempt error",
        "The application has not taken a message, or a consumer has not; `position` where it was put into a queue",
    ),
    "delivery.dead": _reported(
        ERROR,
        "sequence number position error",
        "An acknowledged message went to the dead letters; the error says why, `position` which, if it was put into a "
        "queue",
    ),
    "delivery.lost": _reported(
        ERROR, "sequence number error", "At most once: a message failed that is settled already. Nothing repeats it"
    ),
    "delivery.answered_with_fault": _reported(
        ERROR,
        "sequence number error",
        "A one-way message was taken and answered with a fault, which its sender does not read",
    ),
    "delivery.holder_died": _reported(
        WARNING, "sequence number attempt reason", "A process died while it ran this message; it is delivered again"
    ),
    "delivery.broke_off": _reported(
        ERROR,
        "sequence number attempt reason",
        "The run of this message broke off before what came of it was recorded; it is delivered again, from the third "
        "time in a row on as a failed attempt",
    ),
    "delivery.fence_lost": _reported(
        ERROR, "sequence number error", "A sequence went to another owner while it was run; the settlement was refused"
    ),
    "delivery.not_settled": _reported(
        ERROR, "sequence number error", "A delivered message could not be settled; it may be delivered again"
    ),
    # sequences
    "sequence.created": _logged(DEBUG, "sequence", "A sequence was created"),
    "sequence.closed": _logged(DEBUG, "sequence number", "A sequence was closed; the number is its last"),
    "sequence.ended": _logged(
        DEBUG, "sequence reason", "A sequence ended: terminated, expired, refused, or by an operator"
    ),
    "sequence.fault_received": _reported(
        WARNING,
        "sequence reason",
        "A source sent a fault about its sequence; SequenceTerminated and UnknownSequence have ended that",
    ),
    "sequence.failed": _reported(
        ERROR, "sequence reason", "A sequence was given up: a message of it cannot be delivered"
    ),
    "sequence.blocked": _reported(
        ERROR, "sequence number error", "The last try of a message has failed: its sequence waits for an operator"
    ),
    "sequence.released_across_gap": _reported(
        WARNING,
        "sequence reason",
        "An incomplete sequence was closed or ended, or an operator forced it on: what was held is delivered across "
        "the gap",
    ),
    "sequence.gap_open": _reported(
        WARNING,
        "sequence number reason",
        "Messages have waited behind the missing one with this number for longer than `hold_timeout`; they are kept",
    ),
    "sequence.discarding": _reported(
        ERROR, "sequence number reason", "What a sequence has from this number on goes to the dead letters"
    ),
    # the dispatcher
    "dispatch.failed": _reported(ERROR, "key error", "A run of a sequence broke off; it is run again"),
    "dispatch.dropped": _reported(
        ERROR,
        "key",
        "A sequence was this process's and nothing ran it: an error came where none was expected. It is run again",
    ),
    "dispatch.not_given_back": _reported(
        ERROR, "key error", "A sequence could not be given back: the store is closed. The next start finds it"
    ),
    "dispatch.exhausted": _reported(
        ERROR,
        "of threads waiting",
        "Every thread that may call the application does; sequences, or two-way requests, wait for one",
    ),
    # queues
    "journal.skipped": _reported(
        WARNING,
        "queue reason",
        "A journal is full: messages go on and are not recorded in it. Each is counted; told once a minute",
    ),
    "report.skipped": _reported(
        WARNING,
        "queue reason",
        "The queue that reports on messages go into is full, or is not there: the messages go on without. Each is "
        "counted; told once a minute",
    ),
    "queue.mode_changed": _reported(
        WARNING,
        "queue mode moved left consumed",
        "What waited in the queue goes where the option `mode` says now: so many sequences, and messages in none; "
        "those left are run or leased, and follow. Programs have to consume the last number of messages",
    ),
    "queue.taken": _reported(
        ERROR,
        "queue messages",
        "Programs have put so many messages into a queue that a service is called from now, as it has the name of its "
        "path: nothing delivers them, and no program can put there. Give the service's queue a name of its own by the "
        "option `queue`, or leave it to programs by `mode`",
    ),
    # instances
    "instance.gone": _reported(WARNING, "name sequences", "Another process died; the sequences that it ran are free"),
    "instance.files_removed": _reported(
        CRITICAL, "path", "The lock file of this process was removed and is made again: leave the directory alone"
    ),
    "thread.missing": _reported(
        ERROR,
        "error",
        "A thread cannot be started: raise the limit of threads or processes. It is tried again; until then requests "
        "that need it are answered 503. Told again every minute while it lasts",
    ),
    "engine.fork_failed": _reported(ERROR, "error", "What has to be done around a fork failed"),
    "engine.start_failed": _reported(
        ERROR, "error", "A worker that uWSGI forked could not start; its first request tries again"
    ),
    "engine.cut_off": _reported(
        ERROR, "path", "The process ends and an operation still runs: it will be delivered again, marked"
    ),
    # the store
    "store.write_failed": _reported(
        ERROR, "error", "The store cannot be written; told again every minute while it lasts"
    ),
    "store.overloaded": _reported(
        WARNING, "requests size", "So many requests, of so many bytes, wait to be written that others get 503 at once"
    ),
    "store.writer_failed": _reported(CRITICAL, "error", "The writer met an error of its own; what waited was refused"),
    "store.not_written": _reported(
        CRITICAL, "verbs path", "The store was closed before all that waited could be written"
    ),
    "store.rescued": _reported(CRITICAL, "path to", "The store's file is gone; a copy of what was in it was saved"),
    "store.not_rescued": _reported(CRITICAL, "path error", "The store's file is gone and could not be saved"),
    "store.tightened": _reported(
        WARNING, "path mode", "Others could read a file of the store, or write it; its mode was this, and is tightened"
    ),
    "store.not_private": _reported(
        ERROR,
        "path mode error",
        "Others can read a file of the store, or write it; this process may not change that",
    ),
    "store.went_back": _reported(
        CRITICAL, "path", "An older state was written into the open store: what was acknowledged since is not in it"
    ),
    "store.copy_left": _reported(
        ERROR, "path error", "The store's file is back, and the copy that was saved could not be removed: remove it"
    ),
    "store.callback_failed": _reported(ERROR, "error", "The callback of a committed transaction raised an error"),
    "store.checkpoint_failed": _logged(WARNING, "error", "The write-ahead log could not be moved into the file"),
    "watch.store_error": _reported(
        ERROR, "error", "The watch cannot use the store; told again every minute while it lasts"
    ),
    "clock.jumped": _reported(
        WARNING,
        "seconds",
        "The clock is further on by that than it was a moment ago, or than the last time in the store; negative: "
        "it went back. What would expire by it, or be pruned, waits ten minutes, should it come back: `wsrm-mq doctor`",
    ),
    "watch.failed": _reported(ERROR, "error", "A turn of the watch failed; the next one follows"),
    "put.refused": _logged(
        ERROR,
        "queue count error",
        "So many messages that were put with `wait=False` were refused, and their confirmations never asked: they are "
        "in no queue, or topic. Told at once, and once a minute while the error is the same. Ask each confirmation for "
        "its `result()`, and put again what is missed",
    ),
    "consumer.ended": _reported(
        ERROR,
        "queue error",
        "A function that was called with messages of a queue is called no longer: call `consume` anew",
    ),
    "consumer.late": _logged(
        WARNING,
        "queue count",
        "Leases had ended before their acknowledgements came: these messages are delivered again",
    ),
    "server.away": _logged(
        WARNING,
        "address error",
        "The queue server of a client cannot be reached, or does not answer; it is tried again",
    ),
    "server.back": _logged(INFO, "address", "The queue server of a client answers again"),
    "source.away": _reported(
        WARNING,
        "host since error",
        "A host that requests go to cannot be reached, or answers that it takes nothing now. They wait, and it is "
        "tried again; told again every ten minutes while it lasts",
    ),
    "source.back": _logged(INFO, "host seconds", "A host that was away for so many seconds answers again"),
    "source.not_fetched": _reported(
        WARNING,
        "error",
        "The destination of requests has answered a MakeConnection with an error: it may know nothing of that. What "
        "does not come on responses does not come; it is asked again, ever less often",
    ),
    "source.refused": _reported(
        ERROR,
        "reason",
        "The destination of requests refuses to create a sequence, so they are dead letters of the RM Source; the next "
        "request asks again",
    ),
    "source.carried_on": _reported(
        WARNING,
        "reason",
        "A sequence of requests takes no more: what is not acknowledged goes on in another one, in the same order",
    ),
    "source.in_doubt": _reported(
        WARNING,
        "reason",
        "Requests had been sent and were not acknowledged, or not replied to, when nothing more could be sent in their "
        "sequence: unless their destination says that it lacks them, it may get them twice",
    ),
    "relay.waits": _reported(
        ERROR,
        "error",
        "The calls that wait in a program's own database cannot be moved into the store of its RM Source now; they "
        "stay there, and are moved later, in their order",
    ),
    "route.away": _reported(
        WARNING,
        "address error",
        "A next node does not answer, or not as nodes do: what waits for it stays, or goes by another route",
    ),
    "route.back": _reported(INFO, "address", "A next node answers again"),
    "route.moved": _reported(
        WARNING, "reason", "What waited for a next node goes by another route; where there is none it is a dead letter"
    ),
    "route.forgotten": _reported(
        ERROR,
        "reason",
        "A next node lacks messages that it had acknowledged: it was put back from an old copy, and unless it had "
        "handed them on before, they are lost. What is behind them goes on in another sequence",
    ),
    "route.broken": _reported(ERROR, "error", "What other nodes have handed over cannot be placed now; it stays"),
    "outbox.waits": _logged(
        WARNING, "error", "What is in an outbox cannot be sent now; it stays there and is sent again, in its order"
    ),
    "outbox.refused": _reported(
        ERROR,
        "queue position error",
        "The queue server refuses a message of an outbox for good: it is among the dead letters of the outbox, and "
        "those behind it go on",
    ),
    "outbox.gap": _reported(
        ERROR,
        "queue lower upper",
        "The queue server lacks messages that have left an outbox: they were refused and are among its dead letters, "
        "or the store of the server was put back to an older state",
    ),
    "express.lost": _reported(
        ERROR,
        "queue reason",
        "Express messages are lost with the process that kept them: put again what is missed",
    ),
    "express.overflow": _logged(
        WARNING,
        "size limit",
        "The express messages of this process have more bytes than the `memory_limit` of its queues together, and are "
        "in a file too: they are not consumed fast enough, or the limit is too low",
    ),
    "express.cut_off": _logged(
        WARNING, "error", "A connection to the express messages of this process was refused, or cut off: why"
    ),
    "janitor.store_error": _reported(
        ERROR, "error", "The janitor cannot use the store; told again every minute while it lasts"
    ),
    "janitor.failed": _reported(ERROR, "error", "A turn of the janitor failed; the next one follows"),
    "janitor.pruned": _logged(
        INFO, "messages bodies size sequences ledger plans", "What was kept long enough was deleted"
    ),
    "store.witness_not_told": _reported(
        WARNING, "error", "The witness beside the store could not be written: it lags behind, which loses nothing"
    ),
    "store.other_application": _reported(
        ERROR,
        "queue application",
        "Messages for another application wait on a path of this one: they stay, and nothing is taken on it meanwhile",
    ),
    "store.cut_off": _reported(
        WARNING,
        "path pages",
        "The last process ended within a transaction: so many pages of it were written and are dropped. Nothing of it "
        "was acknowledged, and all that was committed is there",
    ),
    "store.new": _reported(WARNING, "path", "A store without any sequence was opened where another one was before"),
    # `serve`
    "serve.crowded": _reported(
        WARNING,
        "connections closed refused",
        "More clients connect than `max_connections`: so many idle connections were closed for them, and so many were"
        " answered 503, since this was told; at most once a minute",
    ),
    "serve.few_files": _reported(
        WARNING,
        "connections limit",
        "The system lets this process open too few files for `max_connections`: it keeps only so many connections",
    ),
    "serve.no_files": _reported(
        ERROR, "error limit", "No file can be opened: new connections are cut off, and large bodies and the store fail"
    ),
    "serve.files_again": _reported(WARNING, "", "Files can be opened again"),
    # the queue server
    "login.failed": _logged(
        WARNING,
        "peer reason",
        "A log-in at the queue server was refused; told of the first one of a place within a minute",
    ),
    "login.flooded": _reported(
        WARNING, "peer count seconds", "More log-ins from one place have failed than are told why; once a minute"
    ),
    "session.silent": _logged(
        WARNING,
        "client principal leased",
        "A client of the queue server was not heard for its time-out: what it had leased is ready again",
    ),
    "server.broken": _logged(
        ERROR, "operation error", "A request to the queue server was answered with an error of ours; its client has 500"
    ),
    "stomp.refused": _logged(
        INFO, "peer principal error", "A client of STOMP was sent an ERROR, and has given back what it had"
    ),
    "stomp.gone": _logged(
        WARNING,
        "peer principal leased",
        "A client of STOMP has gone without DISCONNECT, or took or sent nothing and was cut off, and had leased so many"
        " messages: that counts as the death of a consumer",
    ),
    "stomp.failed": _reported(
        ERROR, "peer principal error", "A connection of STOMP has ended by what should not happen in the server"
    ),
    # what tells
    "tracing.failed": _logged(
        ERROR,
        "error",
        "A span could not be made or ended: a sampler, processor or exporter raised an error, and nothing else follows "
        "from it. Told once a minute while it lasts",
    ),
    "log.failed": _reported(
        ERROR,
        "event error",
        "A filter, handler or formatter of the log raised an error; nothing else follows from it. Each is counted, the "
        "first is told to standard error and to `on_event`",
    ),
    "on_event.failed": _logged(
        ERROR, "event error", "`on_event` raised an error, or SystemExit; nothing else follows from it"
    ),
    "on_event.dropped": _logged(ERROR, "event", "`on_event` is too slow: events are dropped until it has caught up"),
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
