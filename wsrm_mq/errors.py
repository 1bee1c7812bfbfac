"""Every exception of the package, and the hints that some give.

::

    WSRMError
    ├── EnvelopeError            the request cannot be read as an RM message; carries the fault to answer
    ├── ConfigurationError       options are wrong; the message names the nearest right ones
    ├── StoreError               .hint says what to do next
    │   ├── StoreUnavailable     missing, locked, read-only, unreadable
    │   │   ├── StoreBusy        another process holds the write lock for longer than the busy timeout
    │   │   ├── KeeperGone       the process that keeps the express messages of a queue is gone
    │   │   ├── StoreFull        no space left; nothing was stored
    │   │   ├── StoreOverloaded  too many requests wait to be written; this one was not even queued
    │   │   └── ServerUnavailable  the queue server cannot be reached; nothing was sent
    │   ├── StoreLocked          not a database as SQLite reads it: encrypted, or something else
    │   ├── StoreCorrupt         a damaged database, or one of something else
    │   ├── StoreUnconfirmed     a copy, or an older state, that no operator has adopted: not served
    │   ├── OtherApplication     another application lives on the same paths of this store
    │   └── SchemaMismatch       written by a newer version of wsrm_mq
    ├── NotAuthenticated         what a request shows does not say whose it is; answered 401
    │   └── TooManyLogins        too many log-ins of a peer have failed; more of it are not told why
    ├── NotFound                 no such sequence, message, queue
    │   ├── UnknownQueue         no queue of this name is there, and none is made without being asked for
    │   └── Unrouted             no queue takes what was published
    ├── QueryError               a query (``views.query``) that cannot be read; points at the wrong word
    │   └── FilterError          a filter (``queue.filters``) that cannot be read
    ├── NotAllowed               the state of the thing forbids the verb
    │   ├── QueueChanged         the queue was declared anew while something was put there
    │   ├── QueueBusy            another consumer alone reads the queue, or has leased what is in it
    │   ├── RightMissing         a principal may do something else with the queue, and not this
    │   ├── PeekForbidden        the policy of the queue forbids to look into it
    │   ├── SubscriptionClosed   a message is asked for of a subscription that is closed; it says by whom
    │   ├── OutOfOrder           a message of a group is settled before one that comes first
    │   ├── TransactionAlreadyStarted   this thread has begun a transaction of the node, and not ended it
    │   └── TransactionNotStarted       no transaction of the node was begun by this thread
    ├── QuotaExceeded            the queue has no room for the message; nothing was stored
    ├── NameNotKnown             a host's name is to be looked up before the request can be judged
    ├── NotAnswered              an address that something was sent to gave no whole answer of HTTP
    │   ├── NameServerSilent     what a host's name stands for is not known in time
    │   ├── Unsigned             nothing was sent, as it could not be signed
    │   └── LeftAlone            nothing was sent, as its host hangs, or has not answered for the first time yet
    ├── NoQueueServer            an address answers a page, or what else no queue server answers
    ├── Pending                  a request is not acknowledged, or answered, yet; it is sent all the same
    ├── FenceLost                another owner has the sequence by now: the settlement is refused
    ├── LeaseLost                the lease of a message had ended: the settlement is refused
    ├── LaneGap                  a queue server has less of a client's outbox than that has sent
    ├── BadRequest               a request that cannot be read
    │   └── TooLarge             a request, or a message in it, has more bytes than may be
    ├── Overloaded               a server has more to do than it may: nothing was begun
    ├── SessionEnded             a client's session at a server has ended: what it had leased went back
    ├── LimitReached             a principal has as much of a server as it may have at a time
    ├── ExportError              an export cannot be written or read
    ├── SparkFailed              Spark could not do a job: its memory, its disk, its JVM
    ├── ProbeFailed              an endpoint that was to be checked does not answer
    ├── InboxError               the inbox was given a connection or an environ it cannot use
    └── OutboxError              calls cannot be written into a program's own database, or not moved out of it

What a peer does wrong is never an exception of the protocol core: it is a ``Fault`` in a ``Step``.
"""

from __future__ import annotations

import re
import shlex
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from pathlib import Path

    from wsrm_mq.sequence.faults import Fault


class WSRMError(Exception):
    """Root of all errors of this package."""


class EnvelopeError(WSRMError):
    """A request that cannot be read. ``fault`` is the fault to answer; ``context`` is an ``envelope.headers.Headers``
    with the part of the envelope that is known, or ``None`` where nothing was readable; ``status`` is the HTTP status
    that fits."""

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
    lasts = False
    """Whether trying again never helps."""

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


class KeeperGone(StoreUnavailable):
    """The process that keeps the express messages of a queue is gone, and they with it."""

    hint = 'Declare the queue, `node.declare(…, durability="express")`, in the process that is to keep them.'
    lasts = True


class StoreFull(StoreUnavailable):
    """No space is left; nothing was stored."""

    hint = "Free disk space; senders are answered 503 and resend."


class StoreOverloaded(StoreUnavailable):
    """Too many requests wait to be written; this one was not even queued."""

    hint = "Senders are answered 503 and resend; where it lasts, the disk or the processor is too slow for them."


class ServerUnavailable(StoreUnavailable):
    """The queue server cannot be reached; nothing was sent."""

    hint = "See that it runs and that its address is right, then try again; what is put into a `store` waits for it."


class StoreLocked(StoreError):
    """The file is not a database that SQLite can read: it is encrypted, or something else. It was not touched."""

    hint = (
        "An encrypted store is opened once it is decrypted; keep a store from others by the permissions of its file. "
        "Where it is another file, name the store's. Where it was a store, its first page is damaged: restore the "
        "last backup beside it."
    )


class StoreCorrupt(StoreError):
    """A damaged database, or one of something else."""

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
    """A request does not show whose it is, and is turned away, by an ``authenticate`` callable or by the queue server.
    ``challenge`` is the WWW-Authenticate value."""

    def __init__(self, message: str = "Authentication is required.", challenge: str = "Basic") -> None:
        super().__init__(message)
        self.challenge = challenge


class TooManyLogins(NotAuthenticated):
    """Too many log-ins from one place have failed. ``seconds``: after that one more may fail."""

    def __init__(self, message: str, seconds: float, challenge: str) -> None:
        super().__init__(message, challenge)
        self.seconds = seconds


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
    """The thing exists, but its state forbids the verb."""


class QueueBusy(NotAllowed):
    """Another consumer alone reads the queue, or has leased what is in it. The text names the holder."""


class QueueChanged(NotAllowed):
    """The queue was declared anew while something was put there; nothing was stored."""


class RightMissing(NotAllowed):
    """The principal that asks may use the queue, and not for this. The text says which right it has not."""


class PeekForbidden(NotAllowed):
    """The policy of the queue forbids to look into it."""


class SubscriptionClosed(NotAllowed):
    """A message is asked for of a subscription that is closed, or was meanwhile. The text says by whom."""


class OutOfOrder(NotAllowed):
    """A message of an ordered group cannot be settled before one that comes first in the group."""


class TransactionAlreadyStarted(NotAllowed):
    """This thread has begun a transaction of the node, and has not ended it."""


class TransactionNotStarted(NotAllowed):
    """This thread has begun no transaction of the node."""


class UnknownQueue(NotFound):
    """There is no queue of this name. The text says how to declare it."""


class Unrouted(NotFound):
    """No queue takes the published message; no message was stored."""


class QuotaExceeded(WSRMError):
    """The queue has no room for a message; nothing was stored. ``lasts``: there will never be room for it. ``blocks``:
    the queue's ``overflow`` has its producers wait until there is."""

    def __init__(self, message: str, *, lasts: bool = False, blocks: bool = False) -> None:
        super().__init__(message)
        self.lasts = lasts
        self.blocks = blocks


class LeaseLost(WSRMError):
    """The lease of a message had ended when it was settled: it is ready again, or another consumer has it."""


class LaneGap(WSRMError):
    """A queue server has less of a client's outbox than that has sent. ``expected``: the last number that it has."""

    def __init__(self, message: str, expected: int) -> None:
        super().__init__(message)
        self.expected = expected


class BadRequest(WSRMError):
    """A request that cannot be read: its path, its headers, or its body."""


class TooLarge(BadRequest):
    """A request, or a message in it, has more bytes than may be; the rest of it was not read."""


class Overloaded(WSRMError):
    """A server has more to do than it may have at a time: nothing of the request was begun."""


class SessionEnded(WSRMError):
    """The session of a client at a queue server has ended, or was of another principal; its leases went back."""


class LimitReached(WSRMError):
    """A principal has as much of a queue server as it may have at a time. The text names the bound."""


class NoQueueServer(WSRMError):
    """An address answers what no queue server does: another service is there, or a proxy that wants a log-in."""


class NotAnswered(WSRMError):
    """A message to an address got no answer, or none that is whole; it may have been taken."""


class Unread(NotAnswered):
    """A host has broken off the connection on which a large message came, and answers others: it does not take one of
    this size."""


class NameNotKnown(WSRMError):
    """The addresses of a host's name have to be looked up, which may take long: a caller that can wait has them looked
    up, and tries again."""

    def __init__(self, host: str) -> None:
        super().__init__(f"the name {host} has to be looked up")
        self.host = host


class NameServerSilent(NotAnswered):
    """No name server says in time where a name leads, or too many names are being looked up."""

    def __init__(self, host: str) -> None:
        super().__init__(f"no name server says in time what {host} stands for")
        self.host = host


class Unsigned(NotAnswered):
    """Nothing was sent to an address, as its signer raised, or answered a header that cannot be sent: that says
    nothing of its host."""


class LeftAlone(NotAnswered):
    """Nothing was sent to an address, as its host hangs, or is being asked for the first time. ``seconds``: after that
    it may be tried. ``is_given_up``: it has waited for long enough."""

    def __init__(self, message: str, seconds: float, *, is_given_up: bool = False) -> None:
        super().__init__(message)
        self.seconds = seconds
        self.is_given_up = is_given_up


class Pending(WSRMError):
    """A request is stored, and not acknowledged, or answered, in the time that was given; it is sent all the same.
    ``message_id`` names it; ``why`` the last attempt was in vain, where there was one."""

    def __init__(self, message_id: str, why: str | None = None) -> None:
        last = "" if why is None else f" The last attempt: {why}."
        super().__init__(f"{message_id}: is stored, and waits to be acknowledged. It is sent again until it is.{last}")
        self.message_id = message_id
        self.why = why


class FenceLost(WSRMError):
    """The sequence went to another owner meanwhile; the work of this one is recorded there as a possible redelivery."""


class ExportError(WSRMError):
    """An export or an archive cannot be read, or the place for it cannot be written."""


class SparkFailed(WSRMError):
    """Spark could not do a job, for a reason that is none of a store or an export."""


class ProbeFailed(WSRMError):
    """The address does not answer, not in time, or with too much."""


class InboxError(WSRMError):
    """The inbox was given a connection or an environ that it cannot use."""


class OutboxError(WSRMError):
    """Calls cannot be written into a program's database by this connection, or not moved out of it into this store."""


# Hints for the operator, which name commands in backquotes. A command that is copied at 3 am must not hit another
# store.
#
# A refusal of the store names its path, for it may be read in a log. The command line repeats the options that were
# typed there.


def about(store: Path, hint: str) -> str:
    """Complete ``hint``, whose commands stand in backquotes, so that each command means the store at this path wherever
    it is run."""
    return with_flags(store_flag(store), hint)


def store_flag(store: Path | str) -> str:
    """The option, with a space before it, that makes a command mean this store."""
    return f" --store {shlex.quote(str(store))}"


def with_flags(flags: str, hint: str) -> str:
    """Put ``flags`` behind each command of ``hint``."""
    return re.sub("`(wsrm-mq (?:(?! --store )[^`])*)`", lambda command: f"`{command[1]}{flags}`", hint)
