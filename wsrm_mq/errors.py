"""Every exception of the package.

::

    WSRMError
    ├── EnvelopeError            the request cannot be read as an RM message; carries the fault to answer
    ├── ConfigurationError       options are wrong; the message names the nearest right ones
    ├── StoreError               .hint says what to do next
    │   ├── StoreUnavailable     missing, locked, read-only, unreadable
    │   │   ├── StoreBusy        another process holds the write lock for longer than the busy timeout
    │   │   ├── StoreFull        no space left; nothing was stored
    │   │   └── StoreOverloaded  too many requests wait to be written; this one was not even queued
    │   ├── StoreCorrupt         not a database, or a damaged one
    │   ├── StoreUnconfirmed     a copy, or an older state, that no operator has adopted: not served
    │   ├── OtherApplication     another application lives on the same paths of this store
    │   └── SchemaMismatch       written by a newer version of wsrm_mq
    ├── NotAuthenticated         `authenticate` turns a request away; answered 401
    ├── NotFound                 no such sequence, message, queue
    │   ├── UnknownQueue         no queue of this name is there, and none is made without being asked for
    │   └── Unrouted             no queue takes what was published
    ├── QueryError               a query (``views.query``) that cannot be read; points at the wrong word
    │   └── FilterError          a filter (``queue.filters``) that cannot be read
    ├── NotAllowed               the state of the thing forbids the verb
    │   ├── QueueBusy            another consumer alone reads the queue, or has leased what is in it
    │   ├── PeekForbidden        the policy of the queue forbids to look into it
    │   ├── OutOfOrder           a message of a group is settled before one that comes first
    │   ├── TransactionAlreadyStarted   this thread has begun a transaction of the node, and not ended it
    │   └── TransactionNotStarted       no transaction of the node was begun by this thread
    ├── QuotaExceeded            the queue has no room for the message; nothing was stored
    ├── NameNotKnown             a host's name is to be looked up before the request can be judged
    ├── NotAnswered              an address that something was sent to gave no whole answer of HTTP
    │   ├── NameServerSilent     what a host's name stands for is not known in time
    │   └── LeftAlone            nothing was sent, as its host hangs, or has not answered for the first time yet
    ├── FenceLost                another owner has the sequence by now: the settlement is refused
    ├── LeaseLost                the lease of a message had ended: the settlement is refused
    ├── ExportError              an export cannot be written or read
    ├── SparkFailed              Spark could not do a job: its memory, its disk, its JVM
    ├── ProbeFailed              an endpoint that was to be checked does not answer
    └── InboxError               the inbox was given a connection or an environ it cannot use

What a peer does wrong is never an exception of the protocol core: it is a ``Fault`` in a ``Step``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from wsrm_mq.sequence.faults import Fault

__all__ = [
    "ConfigurationError",
    "EnvelopeError",
    "ExportError",
    "FenceLost",
    "FilterError",
    "InboxError",
    "LeaseLost",
    "LeftAlone",
    "NameNotKnown",
    "NameServerSilent",
    "NotAllowed",
    "NotAnswered",
    "NotAuthenticated",
    "NotFound",
    "OtherApplication",
    "OutOfOrder",
    "PeekForbidden",
    "ProbeFailed",
    "QueryError",
    "QueueBusy",
    "QuotaExceeded",
    "SchemaMismatch",
    "SparkFailed",
    "StoreBusy",
    "StoreCorrupt",
    "StoreError",
    "StoreFull",
    "StoreOverloaded",
    "StoreUnavailable",
    "StoreUnconfirmed",
    "TransactionAlreadyStarted",
    "TransactionNotStarted",
    "UnknownQueue",
    "Unrouted",
    "WSRMError",
]


class WSRMError(Exception):
    """Root of all errors of this package."""


class EnvelopeError(WSRMError):
    """A request that cannot be read. ``fault`` is what to answer; ``context`` what is known of the envelope so far
    (an ``envelope.scan.Headers``), or ``None`` where nothing was readable; ``status`` the HTTP status that fits."""

    def __init__(self, fault: Fault, context: object | None = None, status: int | None = None) -> None:
        super().__init__(fault.reason)
        self.fault = fault
        self.context = context
        self.status = status


class ConfigurationError(WSRMError):
    """Options, keys or values that cannot be used. ``problems``: each in a sentence; the text has one a line."""

    def __init__(self, *problems: str) -> None:
        super().__init__("\n".join(problems))
        self.problems = problems


class StoreError(WSRMError):
    """Something about the store. ``hint`` is the next step, for the operator."""

    hint = "Run `wsrm-mq store verify`."

    def __init__(self, message: str, hint: str | None = None) -> None:
        super().__init__(message)
        if hint is not None:
            self.hint = hint

    def __str__(self) -> str:
        return f"{self.args[0]} {self.hint}".strip()


class StoreUnavailable(StoreError):
    """Missing, locked, read-only or unreadable. A request is answered 503."""

    hint = "Check the path and its permissions, then try again."


class StoreBusy(StoreUnavailable):
    """Another process holds the write lock for longer than the busy timeout."""

    hint = "Another process holds the write lock; try again, and look for a long transaction if it stays so."


class StoreFull(StoreUnavailable):
    """No space is left; nothing was stored."""

    hint = "Free disk space; senders are answered 503 and resend."


class StoreOverloaded(StoreUnavailable):
    """Too many requests wait to be written; this one was not even queued."""

    hint = "Senders are answered 503 and resend; where it lasts, the disk or the processor is too slow for them."


class StoreCorrupt(StoreError):
    """Not a database, or a damaged one."""

    hint = "Keep the file as it is, restore the last backup beside it, and run `wsrm-mq store verify` on both."


class StoreUnconfirmed(StoreError):
    """A copy, or an older state, that no operator has adopted: it is not served."""

    hint = "See `wsrm-mq store adopt`."


class OtherApplication(StoreError):
    """Another application lives on the same paths of this store."""

    hint = (
        "Give each application a store of its own, or paths that do not overlap. Where it is one application, give "
        "both processes the same `application`."
    )


class SchemaMismatch(StoreError):
    """Written by a newer version of wsrm_mq."""

    hint = "Install the version of wsrm_mq that wrote it, or a newer one."


class NotAuthenticated(WSRMError):
    """Raised by an ``authenticate`` callable to turn a request away. ``challenge`` is the WWW-Authenticate value."""

    def __init__(self, message: str = "Authentication is required.", challenge: str = "Basic") -> None:
        super().__init__(message)
        self.challenge = challenge


class NotFound(WSRMError):
    """There is no such thing in the store."""


class QueryError(WSRMError):
    """A query that cannot be read. ``pointed``: the query and a mark below the wrong word, two lines; none where it did
    not come as a text."""

    pointed: tuple[str, ...] = ()

    def pointing(self, query: str, at: int, length: int) -> Self:
        """This error, about ``length`` characters of ``query`` from ``at`` on."""
        line = "".join(char if char.isprintable() else " " for char in query)
        self.pointed = (line, " " * at + "^" * max(length, 1))
        return self


class FilterError(QueryError):
    """A filter of messages that cannot be read. The text says what to write, and at which character."""

    def pointing(self, query: str, at: int, length: int) -> Self:
        self.args = (f"{self.args[0]} (Character {at + 1} of the filter.)",)
        return super().pointing(query, at, length)


class NotAllowed(WSRMError):
    """The thing exists, but its state forbids what was asked."""


class QueueBusy(NotAllowed):
    """Another consumer alone reads the queue, or has leased what is in it. The text names the holder."""


class PeekForbidden(NotAllowed):
    """The policy of the queue forbids to look into it."""


class OutOfOrder(NotAllowed):
    """A message of an ordered group cannot be settled before one that comes first in the group."""


class TransactionAlreadyStarted(NotAllowed):
    """This thread has begun a transaction of the node, and has not ended it."""


class TransactionNotStarted(NotAllowed):
    """This thread has begun no transaction of the node."""


class UnknownQueue(NotFound):
    """There is no queue of this name. The text says how to declare it."""


class Unrouted(NotFound):
    """No queue takes what was published; no message was stored."""


class QuotaExceeded(WSRMError):
    """The queue has no room for a message; nothing was stored. ``lasts``: there will never be room for it."""

    def __init__(self, message: str, *, lasts: bool = False) -> None:
        super().__init__(message)
        self.lasts = lasts


class LeaseLost(WSRMError):
    """The lease of a message had ended when it was settled: it is ready again, or another consumer has it."""


class NotAnswered(WSRMError):
    """What was sent to an address got no answer, or none that is whole; it may have been taken."""


class NameNotKnown(WSRMError):
    """Where a name leads has to be looked up, which may take long: whoever can wait has it looked up, and tries
    again."""

    def __init__(self, host: str) -> None:
        super().__init__(f"the name {host} has to be looked up")
        self.host = host


class NameServerSilent(NotAnswered):
    """No name server says in time where a name leads, or too many names are being looked up."""

    def __init__(self, host: str) -> None:
        super().__init__(f"no name server says in time what {host} stands for")
        self.host = host


class LeftAlone(NotAnswered):
    """Nothing was sent to an address, as its host hangs, or is being asked for the first time. ``seconds``: after that
    it may be tried. ``is_given_up``: it has waited for long enough."""

    def __init__(self, message: str, seconds: float, *, is_given_up: bool = False) -> None:
        super().__init__(message)
        self.seconds = seconds
        self.is_given_up = is_given_up


class FenceLost(WSRMError):
    """The sequence went to another owner meanwhile; what this one did is recorded there as a possible redelivery."""


class ExportError(WSRMError):
    """What was exported cannot be read, or the place for it cannot be written."""


class SparkFailed(WSRMError):
    """Spark could not do a job, for a reason that is none of a store or an export."""


class ProbeFailed(WSRMError):
    """The address does not answer, not in time, or with too much."""


class InboxError(WSRMError):
    """The inbox cannot work with what it was given."""
