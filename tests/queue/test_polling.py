"""What waits to be fetched: to whom it is lent, for how long, and when it is gone."""

from __future__ import annotations

from typing import Any

import pytest

from tests.queue.build import USUAL, Instance, Node, sender
from wsrm_mq.queue.arrival import Fetched
from wsrm_mq.queue.ending import expire_due
from wsrm_mq.queue.outbound import give_number, hear_of
from wsrm_mq.queue.polling import fetch, leave_to_fetch, taken
from wsrm_mq.queue.sending import LENT_FOR, OutgoingMessage, send
from wsrm_mq.sequence.elements import EndpointReference, SequenceAcknowledgement
from wsrm_mq.store.channels import is_anything_waiting
from wsrm_mq.store.invariants import all_findings
from wsrm_mq.store.outbound import OutboundRecord
from wsrm_mq.store.records import SequenceRecord
from wsrm_mq.store.transaction import Transaction
from wsrm_mq.versions import MAKE_CONNECTION

HOME = EndpointReference(f"{MAKE_CONNECTION.anonymous}one")
OFFERED = "urn:offered"
ENVELOPE = b"<Envelope/>"
AN_HOUR = 3_600_000


def about(tx: Transaction, identifier: str) -> SequenceRecord:
    record = tx.sequence_named(identifier)
    assert record is not None
    return record


def offered(tx: Transaction) -> OutboundRecord:
    record = tx.outbound_named(OFFERED)
    assert record is not None
    return record


def put(one: Instance, identifier: str, name: str, number: int | None = None, *, is_awaited: bool = False) -> int:
    """Have a message wait for ``HOME``; its position."""
    message = OutgoingMessage(HOME, f"urn:{name}", "urn:said", "text/xml", ENVELOPE)

    sent = one.run(lambda tx: send(tx, about(tx, identifier), message, number, is_awaited=is_awaited))
    assert sent.claim is None, "no process runs what is fetched"
    assert sent.position is not None
    return int(sent.position)


def poll(one: Instance, **who: str) -> Fetched | None:
    return one.run(lambda tx: fetch(tx, sender(**who), HOME.address, USUAL)).fetched


def is_waiting(one: Instance, principal: str | None = None) -> bool:
    return is_anything_waiting(one.db, HOME.address, principal, sender().peer, one.clock())


def to_send(one: Instance) -> list[dict[str, Any]]:
    """The sequences of what leaves that have something to send, as far as their cursors tell."""
    assert list(all_findings(one.db)) == []
    return one.rows("""SELECT id FROM lane WHERE kind = 'outgoing' AND cursor < "limit" """)


@pytest.mark.spec("MC-001", "MC-006", versions="all")
def test_the_oldest_is_lent_first_and_to_one_at_a_time(node: Node, one: Instance) -> None:
    identifier = one.create().terms.identifier
    positions = [put(one, identifier, name) for name in ("first", "second")]
    first, second = poll(one), poll(node.start())
    assert first is not None
    assert second is not None
    assert [first.position, second.position] == positions
    assert (first.is_pending, second.is_pending) == (True, False)
    assert (first.body, first.content_type, first.place) == (ENVELOPE, "text/xml", None)
    assert poll(one) is None
    assert not is_waiting(one)


@pytest.mark.spec("MC-010", versions="all")
def test_what_was_not_taken_is_lent_again_and_what_was_is_gone(one: Instance) -> None:
    position = put(one, one.create().terms.identifier, "first")
    assert poll(one) is not None
    one.clock.advance(LENT_FOR - 1)
    assert poll(one) is None
    one.clock.advance(1)
    assert is_waiting(one)
    assert poll(one) is not None
    one.run(lambda tx: taken(tx, position))
    one.run(lambda tx: taken(tx, position))
    one.clock.advance(AN_HOUR)
    assert poll(one) is None
    (entry,) = one.rows("SELECT outcome, deliveries FROM entry")
    assert entry == {"outcome": "delivered", "deliveries": 2}
    assert to_send(one) == []


@pytest.mark.spec("MC-010", versions="all")
def test_a_numbered_one_is_lent_until_it_is_acknowledged(one: Instance) -> None:
    identifier = one.create(offer=OFFERED).terms.identifier
    header = one.run(lambda tx: give_number(tx, offered(tx), is_last=False))
    assert header is not None
    put(one, identifier, "first", header.number)
    for _ in range(3):
        found = poll(one)
        assert found is not None
        assert found.place == header
        one.clock.advance(LENT_FOR)
    said = SequenceAcknowledgement(OFFERED, ((1, 1),))
    one.run(lambda tx: hear_of(tx, offered(tx), said))
    assert poll(one) is None
    assert to_send(one) == []


@pytest.mark.spec("MC-011", versions="all")
def test_what_may_leave_on_its_own_response_is_lent_to_that_first(one: Instance) -> None:
    put(one, one.create().terms.identifier, "first", is_awaited=True)
    assert poll(one) is None
    one.clock.advance(LENT_FOR)
    assert poll(one) is not None


@pytest.mark.spec("MC-019", "SEC-029", versions="all")
def test_it_is_its_principals(one: Instance) -> None:
    put(one, one.create().terms.identifier, "first")
    assert not is_waiting(one, "mallory")
    assert poll(one, principal="mallory") is None
    assert poll(one) is not None


@pytest.mark.spec("MC-009", versions="all")
@pytest.mark.parametrize("expires", [AN_HOUR, 1_000])
def test_what_is_never_fetched_is_forgotten_with_its_sequence_but_not_at_once(one: Instance, expires: int) -> None:
    put(one, one.create(expires=expires).terms.identifier, "first")
    kept_for = max(expires, 600_000)
    one.clock.advance(kept_for - 1)
    one.run(lambda tx: expire_due(tx, 10))
    assert is_waiting(one)
    one.clock.advance(1)
    one.run(lambda tx: expire_due(tx, 10))
    assert not is_waiting(one)
    (entry,) = one.rows("SELECT outcome, reason FROM entry")
    assert entry == {"outcome": "discarded", "reason": "not_fetched"}
    assert [row["reason"] for row in one.ledger("discarded")] == ["not_fetched: 1"]


def test_a_request_that_gave_up_leaves_its_reply_to_the_next_poll(one: Instance) -> None:
    identifier = one.create().terms.identifier
    position = one.take(identifier, 1, wants_reply=True, waits=True).position
    assert position is not None
    assert one.entry(one.record(identifier).id, 1)["waiter"] == one.name
    one.run(lambda tx: leave_to_fetch(tx, position))
    assert one.entry(one.record(identifier).id, 1)["waiter"] is None
