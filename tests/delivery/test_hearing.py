"""What an endpoint's answer says of its sequence has its effect at once."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.queue.build import USUAL, arrival, sender
from wsrm_mq.delivery.hearing import Hearing
from wsrm_mq.delivery.posted import Posted
from wsrm_mq.events.telling import Events
from wsrm_mq.queue.accept import accept
from wsrm_mq.queue.arrival import Receipt
from wsrm_mq.queue.creation import create
from wsrm_mq.queue.hearing import Said
from wsrm_mq.sequence.elements import CreateSequence, EndpointReference, SequenceFault
from wsrm_mq.store.channels import Channel
from wsrm_mq.store.store import Store
from wsrm_mq.versions import WSRM_1_1


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
    hearing = Hearing(store, lambda _partner: USUAL, Events(), handed.append)
    said = Said(WSRM_1_1, fault=SequenceFault("UnknownSequence", identifier))
    hearing.hear(Channel(EndpointReference("http://source.example/"), held.lane), Posted(said=said))
    assert [receipt.claim is not None for receipt in handed] == [True]
