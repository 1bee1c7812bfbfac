"""The acts of a program or an operator on the open sequences of requests to one destination."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Final

from wsrm_mq.delivery.outgoing_messages import tell_end_of_outbound
from wsrm_mq.errors import NotAllowed, NotFound
from wsrm_mq.queue import operate, requests
from wsrm_mq.queue.outbound import lanes_of
from wsrm_mq.queue.ownership import Claim
from wsrm_mq.sequence.elements import CloseSequence, TerminateSequence
from wsrm_mq.sequence.outbound_states import OutboundState
from wsrm_mq.store import channels, entries
from wsrm_mq.store import outbound as outbounds
from wsrm_mq.store.applications import source_queue
from wsrm_mq.store.outbound import OutboundRecord
from wsrm_mq.store.records import Lane
from wsrm_mq.store.transaction import Transaction

RESENT: Final = "requests_resent"
"""The event of the ledger that says that an operator has had what waits for a destination tried now."""


def open_to(tx: Transaction, to: str | None) -> list[OutboundRecord]:
    """The sequences of requests to ``to`` that have not ended; ``None``: to whatever destination is served here."""
    tx.write_lanes()  # another act of the same transaction may have ended some
    queue = None if to is None else tx.queue_named(source_queue(to))
    found = [tx.outbound(key) for (key,) in tx.execute(outbounds.REQUESTING).fetchall()]
    return [one for one in found if one is not None and (tx.serves(one.queue) if to is None else one.queue == queue)]


def _told(tx: Transaction, ends: Iterable[CloseSequence | TerminateSequence | None]) -> list[Claim]:
    """Store what tells destinations of these ends; answers the claims that send it."""
    return [claim for end in ends if end is not None for claim in tell_end_of_outbound(tx, end).claims]


def close(tx: Transaction, to: str) -> list[Claim]:
    """See ``RMSource.close_sequence``."""
    return _told(tx, (requests.close(tx, one) for one in open_to(tx, to)))


def close_created(tx: Transaction, keys: list[int]) -> list[Claim]:
    """Close the sequences with these keys that are still open. One with a request that is done, and waits for its
    reply, stays: its destination may not reply to it there once it is closed."""
    created = (one for one in map(tx.outbound, keys) if one is not None and one.value.state is OutboundState.CREATED)
    return _told(tx, (requests.close(tx, one) for one in created if not any(requests.unreplied(tx, one))))


def terminate(tx: Transaction, to: str) -> list[Claim]:
    """See ``RMSource.terminate``."""
    return _told(tx, (requests.terminate(tx, one) for one in open_to(tx, to)))


def _lanes(tx: Transaction, outbound: OutboundRecord) -> list[Lane]:
    """The lanes of the requests of a sequence, and of what is said about it."""
    beside = [tx.lane(key) for (key,) in tx.execute(channels.CHANNELS_BESIDE, {"outbound": outbound.id}).fetchall()]
    return [*lanes_of(tx, outbound), *filter(None, beside)]


def try_now(tx: Transaction, to: str | None = None) -> bool:
    """Have all that waits for its next try, be it for a host that is away, leave now and take the steps of failures
    anew: to ``to``, or to every destination. What an operator holds stays. Answers whether anything waited."""
    has_waited = False
    for outbound in open_to(tx, to):
        for lane in _lanes(tx, outbound):
            if lane.on_hold_since is None:
                tried = tx.execute(entries.TRY_NOW, {"lane": lane.id, "lower": lane.cursor, "upper": lane.limit})
                has_waited = has_waited or lane.retry_at is not None or tried.rowcount > 0
                lane.wait(tx.now, None)
    return has_waited


def _resend(tx: Transaction, to: str, *, actor: str, reason: str) -> None:
    """Do the same, and have the programs that send forget which hosts were away: they read the ledger."""
    if not try_now(tx, to):
        raise NotAllowed(f"Nothing of it waits for its next try. {_EXPLAINED}")
    tx.add_ledger(RESENT, tx.queue_named(source_queue(to)), actor=actor, reason=reason)


_EXPLAINED: Final = "`wsrm-mq source explain` says what waits, and why."


def _each_lane(verb: Callable[..., object], otherwise: str) -> Callable[..., None]:
    def each(tx: Transaction, to: str, *, actor: str, reason: str) -> None:
        is_done = False
        for outbound in open_to(tx, to):
            for lane in _lanes(tx, outbound):
                with suppress(NotAllowed):
                    verb(tx, lane.identifier, actor=actor, reason=reason)
                    is_done = True
        if not is_done:
            raise NotAllowed(f"{otherwise} {_EXPLAINED}")

    return each


def _ending(verb: Callable[[Transaction, str], list[Claim]], event: str) -> Callable[..., None]:
    def end(tx: Transaction, to: str, *, actor: str, reason: str) -> None:
        verb(tx, to)
        tx.add_ledger(event, tx.queue_named(source_queue(to)), actor=actor, reason=reason)

    return end


OF_OPERATOR: Final[dict[str, Callable[..., None]]] = {
    "hold": _each_lane(operate.hold, "Nothing of it waits that is not held already."),
    "resume": _each_lane(operate.resume, "Nothing of it is held, or waits for its next attempt."),
    "resend": _resend,
    "close": _ending(close, "requests_closed"),
    "terminate": _ending(terminate, "requests_terminated"),
}
"""Name → the act on a destination, with its row in the ledger."""


def act(tx: Transaction, name: str, to: str, *, actor: str, reason: str) -> int:
    """Do an act of ``OF_OPERATOR``. Answers how many sequences are open there. Raises ``NotFound`` where none is, and
    ``NotAllowed`` where there is nothing to do."""
    count = len(open_to(tx, to))
    if not count:
        raise NotFound(f"No sequence of requests to {to} is open: `wsrm-mq source list` has those that are.")
    OF_OPERATOR[name](tx, to, actor=actor, reason=reason)
    return count
