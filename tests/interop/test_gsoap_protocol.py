"""What gSOAP's RM Destination gets wrong in the protocol, and its own source would not ask for."""

from __future__ import annotations

import time
import uuid

import pytest

from tests.support.orders import Orders
from tests.support.orders_server import OrdersServer
from tests.support.source import Source
from wsrm_mq.versions import SOAPVersion

from .conftest import both_versions, in_1_1


@both_versions
@pytest.mark.spec("A-002", "A-015")
def test_a_message_without_action_is_refused_and_not_acknowledged(
    source: Source, orders: OrdersServer, dialect: Orders
) -> None:
    seen = orders.mark()
    identifier = source.create()
    answer = source.put(identifier, 1, action=None)
    assert answer.status in (400, 500)
    assert answer.fault == dialect.addressing.header_required
    assert not answer.acked
    assert seen.later() == []


@both_versions
@pytest.mark.spec("D-CRE-012")
def test_a_sequence_without_acks_to_is_refused(source: Source, dialect: Orders) -> None:
    """gSOAP creates it."""
    answer = source.post(dialect.create_sequence(acks_to=None, expires="PT1M"))
    assert answer.fault == "CreateSequenceRefused"


@both_versions
@pytest.mark.spec("D-CRE-010", "D-CRE-011")
def test_pt0s_means_never_and_is_granted_as_a_finite_time(source: Source, dialect: Orders) -> None:
    """gSOAP lets such a sequence expire after a second."""
    answer = source.post(dialect.create_sequence(expires="PT0S"))
    identifier = answer.text("Identifier")
    assert identifier
    assert answer.text("Expires") not in (None, "PT0S")
    time.sleep(1.2)
    assert source.put(identifier, 1).acked == [(1, 1)]


@both_versions
@pytest.mark.spec("D-CRE-003", "D-CRE-002")
def test_identifiers_do_not_tell_the_next_one(source: Source, dialect: Orders) -> None:
    """gSOAP's are a prefix of the process and a counter."""
    identifiers = [uuid.UUID(source.create()) for _ in range(20)]
    assert len({identifier.int >> 64 for identifier in identifiers}) == 20
    assert len({identifier.int & (2**64 - 1) for identifier in identifiers}) == 20
    assert {identifier.version for identifier in identifiers} == {4}


@in_1_1
@pytest.mark.spec("NS-008", "D-CLO-002")
def test_final_stands_behind_the_ranges(source: Source, dialect: Orders) -> None:
    """gSOAP writes it before them, against the schema."""
    identifier = source.create()
    source.put(identifier, 1)
    source.put(identifier, 3)
    closed = source.post(dialect.close(identifier, 3))
    [block] = closed.elements("SequenceAcknowledgement")
    names = [str(child.tag).rpartition("}")[2] for child in block]
    assert names == ["Identifier", "AcknowledgementRange", "AcknowledgementRange", "Final"]


@in_1_1
@pytest.mark.spec("D-CLO-009", "D-CLO-004")
def test_close_without_a_last_number_stops_new_messages(source: Source, orders: OrdersServer, dialect: Orders) -> None:
    """gSOAP goes on accepting them."""
    seen = orders.mark()
    identifier = source.create()
    source.put(identifier, 1)
    assert source.post(dialect.close(identifier)).acked == [(1, 1)]
    assert source.put(identifier, 2).fault == "SequenceClosed"
    assert seen.soon([1]) == [1]
    assert seen.later() == [1]


@both_versions
@pytest.mark.spec("D-SEQ-013", "D-SEQ-017", "D-SEQ-023")
@pytest.mark.parametrize("number", ["-1", "", "abc", "1.0", "1e3", "0x1", str(2**64)])
def test_a_number_that_is_none_is_refused_and_the_sequence_lives(
    number: str, source: Source, orders: OrdersServer, dialect: Orders
) -> None:
    """With gSOAP any RM fault ends the sequence."""
    seen = orders.mark()
    identifier = source.create()
    answer = source.post(dialect.put(identifier, number, n=9))
    assert answer.fault is not None
    assert not answer.acked
    if number != str(2**64):  # a rollover, which ends a sequence of 1.0
        assert source.put(identifier, 1).acked == [(1, 1)]
        assert seen.soon([1]) == [1]


@in_1_1
@pytest.mark.spec("F-010", "F-012", "F-013", "F-017", "F-021")
def test_a_fault_has_its_action_detail_and_relates_to_in_the_form_of_its_soap_version(
    source: Source, dialect: Orders
) -> None:
    """gSOAP's faults have no Detail, no SequenceFault header, no RelatesTo and another action."""
    unknown = uuid.uuid4().urn
    message_id = uuid.uuid4().urn
    answer = source.put(unknown, 1, message_id=message_id)
    assert answer.fault == "UnknownSequence"
    assert answer.text("Action") == dialect.rm.fault_action(dialect.addressing)
    assert answer.text("RelatesTo") == message_id
    assert answer.text("Identifier") == unknown
    is_1_1 = dialect.soap is SOAPVersion.SOAP_1_1
    assert answer.status == 500
    assert bool(answer.elements("SequenceFault")) is is_1_1
    assert len(answer.elements("Detail")) == 1
    again = source.post(dialect.create_sequence())
    assert again.status == 200  # and the connection stays open
