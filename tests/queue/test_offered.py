"""The sequence that a source offers: how long it lives, and which process may take what is said of it."""

from __future__ import annotations

import pytest

from tests.queue.build import USUAL, Node, sender
from wsrm_mq.queue.creation import create
from wsrm_mq.queue.lifecycle import lifecycle
from wsrm_mq.queue.outbound import acknowledged_with, give_number, spoken_of
from wsrm_mq.sequence.elements import CreateSequence, Offer, SequenceAcknowledgement
from wsrm_mq.sequence.faults import UnknownSequence
from wsrm_mq.store.applications import Serving
from wsrm_mq.store.transaction import Transaction

OFFERED = "urn:offered"


@pytest.mark.parametrize("wished", [None, USUAL.max_expires + 1, 10**15])
def test_an_offered_sequence_lives_no_longer_than_a_sequence_that_is_granted(node: Node, wished: int | None) -> None:
    one = node.start()
    request = CreateSequence(None, None, Offer(OFFERED, expires=wished))
    one.run(lambda tx: create(tx, sender(), request, None, USUAL))
    (row,) = one.rows("SELECT expires_at FROM outbound_sequence")
    assert row["expires_at"] == one.clock() + USUAL.max_expires


def test_what_is_for_another_application_is_not_acknowledged_here(node: Node) -> None:
    orders, bills = (node.start(Serving(application=name)) for name in ("orders:app", "bills:app"))
    orders.create(offer=OFFERED)

    def numbered(tx: Transaction) -> object:
        record = spoken_of(tx, sender(), OFFERED)
        assert record is not None
        return give_number(tx, record, is_last=False)

    orders.run(numbered)
    said = (SequenceAcknowledgement(OFFERED, ((1, 1),)),)

    def asked(tx: Transaction) -> object:
        nothing = lifecycle(tx, sender(), None, USUAL, ())
        return acknowledged_with(tx, lambda _tx: nothing, sender(), said).wrong_acknowledgements

    (wrong,) = bills.run(asked)  # type: ignore[misc]
    assert isinstance(wrong, UnknownSequence)
    assert orders.rows("SELECT acknowledged FROM outbound_sequence") == [{"acknowledged": ""}]
    assert orders.run(asked) == ()
    assert orders.rows("SELECT acknowledged FROM outbound_sequence") == [{"acknowledged": "1"}]
