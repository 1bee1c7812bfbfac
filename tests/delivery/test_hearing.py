"""What an endpoint's answer says of its sequence has its effect at once."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest

from tests.queue.build import USUAL, arrival, sender
from wsrm_mq.delivery.delivery import Delivery, Heard
from wsrm_mq.delivery.hearing import Hearing
from wsrm_mq.delivery.posted import Posted
from wsrm_mq.events.telling import Events
from wsrm_mq.queue.accept import accept
from wsrm_mq.queue.arrival import Body, Receipt
from wsrm_mq.queue.creation import create
from wsrm_mq.queue.hearing import Said
from wsrm_mq.sequence.elements import (
    AckRequested,
    CreateSequence,
    EndpointReference,
    SequenceAcknowledgement,
    SequenceFault,
)
from wsrm_mq.store.channels import Channel
from wsrm_mq.store.store import Store
from wsrm_mq.store.transaction import Transaction
from wsrm_mq.versions import WSRM_1_0, WSRM_1_1, RMVersion


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    store = Store(tmp_path / "store.db")
    store.open()
    yield store
    store.close()


def test_what_an_answer_releases_is_handed_over_at_once(store: Store) -> None:
    """The source says that it does not know its sequence any more: that ends, and what is held is delivered across the
    gap. Else it would wait until the watch looks."""
    created = store.call(lambda tx: create(tx, sender(), CreateSequence(None, None), None, USUAL)).created
    assert created is not None
    identifier = created.terms.identifier
    held = store.call(lambda tx: accept(tx, arrival(identifier, 2)))
    assert held.claim is None
    handed: list[Receipt] = []
    hearing = Hearing(lambda _partner: USUAL, Events(), handed.append)
    said = Said(WSRM_1_1, fault=SequenceFault("UnknownSequence", identifier))
    what = hearing.heard(Channel(EndpointReference("http://source.example/"), held.lane), Posted(said=said))
    assert what is not None
    store.call(what.verb, committed=what.committed)
    assert [receipt.claim is not None for receipt in handed] == [True]


def heard(
    number: int, ranges: list[tuple[int, int]] | None, attempt: int = 1, rm: RMVersion = WSRM_1_1
) -> Heard | None:
    """What is acknowledged in answer to a message; ``ranges``: ``None`` where nothing is said."""
    hearing = Hearing(lambda _partner: USUAL, Events(), lambda _receipt: None)
    channel = Channel(EndpointReference("http://partner.example/"), None, 1, is_numbered=True)
    said = None if ranges is None else Said(rm, (SequenceAcknowledgement("urn:s", tuple(ranges)),))
    versions = ("1.1", "1.2", "1.0")
    sent = Delivery(
        *(number, number, "urn:s", None, *versions, "urn:put", f"urn:{number}", "{}", None, None, Body(b""), False),
        attempt=attempt,
    )
    return hearing.heard(channel, Posted(said=said), sent)


def test_the_answer_to_the_last_sending_is_heard_before_the_message_is_given_up() -> None:
    last = len(USUAL.resend.ladder) + 1
    told = [heard(3, [(1, 3)], attempt) for attempt in (last - 1, last)]
    assert [one is not None and one.is_plain for one in told] == [True, False]
    assert heard(3, None, last - 1) is None
    silence = heard(3, None, last)
    assert silence is not None
    assert not silence.is_plain


def test_an_answer_of_1_0_is_committed_before_the_next_message_leaves() -> None:
    """Its sequence may be closed meanwhile, and is not asked then for what it has: that would be sent in another."""
    told = [heard(3, [(1, 3)], rm=rm) for rm in (WSRM_1_0, WSRM_1_1)]
    assert [one is not None and one.is_plain for one in told] == [False, True]


@pytest.mark.parametrize(
    ("earlier", "later", "is_said_again"),
    [
        ([(1, 2)], [(1, 3)], True),
        ([(1, 1), (3, 3)], [(1, 1), (3, 4)], True),
        ([(1, 2)], [(2, 3)], False),
        ([(1, 2)], [], False),
        ([(1, 9)], [(1, 9)], False),
        ([(1, 3)], [(1, 9)], False),
    ],
    ids=["more", "more behind a gap", "not all", "nothing", "more than was sent", "more than it may say"],
)
def test_the_next_answer_is_taken_in_the_place_of_one_where_it_acknowledges_the_same(
    earlier: list[tuple[int, int]], later: list[tuple[int, int]], is_said_again: bool
) -> None:
    first, second = heard(3, earlier), heard(4, later)
    assert first is not None
    assert second is not None
    second.follow(first)
    assert (first.later, second.later) == (second if is_said_again else None, None)


def test_an_answer_that_asks_something_is_heard_by_itself() -> None:
    assert Said(WSRM_1_1).is_plain(3)
    assert not Said(WSRM_1_1, ack_requested=(AckRequested("urn:s"),)).is_plain(3)
    assert not Said(WSRM_1_1, fault=SequenceFault("UnknownSequence", "urn:s")).is_plain(3)


def test_of_answers_that_say_the_same_the_last_is_taken_once_in_a_transaction() -> None:
    """One that is rolled back has taken none."""
    first, last = heard(3, [(1, 3)]), heard(4, [(1, 4)])
    assert first is not None
    assert last is not None
    taken = []

    def take(tx: Any) -> Receipt:
        receipt = Receipt()
        receipt.acknowledged = (3, 4) if tx not in taken else ()
        taken.append(tx)
        return receipt

    last.verb = take
    last.follow(first)
    rolled_back, committed = object(), object()
    for tx in (rolled_back, committed):
        receipts = [one.take(cast(Transaction, tx)) for one in (first, last)]
        assert [one.acknowledged for one in receipts] == [(3, 4), ()]
        assert [first.has_settled(3), last.has_settled(4), last.has_settled(5)] == [True, True, False]
    assert taken == [rolled_back, committed]
