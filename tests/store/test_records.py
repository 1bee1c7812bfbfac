from __future__ import annotations

from dataclasses import asdict
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wsrm_mq.sequence.elements import IncompleteSequenceBehavior
from wsrm_mq.sequence.inbound import InboundSequence
from wsrm_mq.sequence.ranges import AckRanges
from wsrm_mq.sequence.running import DeliveryState
from wsrm_mq.sequence.states import State
from wsrm_mq.sequence.terms import DeliveryAssurance, Terms
from wsrm_mq.store.lanes import LANE_COLUMNS, PROTOCOL_COLUMNS, SAVED_COLUMNS, STEADY_COLUMNS
from wsrm_mq.store.records import SequenceRecord, load
from wsrm_mq.store.tables import lane
from wsrm_mq.versions import WSA_2004, WSA_2005, WSRM_1_0, WSRM_1_1, SOAPVersion

TIME = st.integers(0, 2**53)
TERMS = st.builds(
    Terms,
    identifier=st.just("urn:uuid:1"),
    rm=st.sampled_from([WSRM_1_0, WSRM_1_1]),
    soap=st.sampled_from(SOAPVersion),
    addressing=st.sampled_from([WSA_2004, WSA_2005]),
    behavior=st.sampled_from(IncompleteSequenceBehavior),
    assurance=st.sampled_from(DeliveryAssurance),
    ordered=st.booleans(),
    expires_at=st.none() | TIME,
    inactivity=st.none() | TIME,
    incomplete_reason=st.text(max_size=5),
)
VALUES = st.builds(
    InboundSequence,
    terms=TERMS,
    active_at=TIME,
    state=st.sampled_from(State),
    received=st.builds(AckRanges.of, st.sets(st.integers(1, 20))),
    unnamed=st.builds(AckRanges.of, st.sets(st.integers(1, 20), max_size=3)),
    limit=st.integers(1, 2**63 - 1),
    last_number=st.none() | st.integers(1, 20),
    discard_from=st.none() | st.integers(1, 20),
    discard_reason=st.none() | st.text(max_size=5),
)


def test_what_is_saved_has_a_value_for_each_of_its_columns(record: SequenceRecord) -> None:
    assert len(record.saved) == len(SAVED_COLUMNS)
    assert len(record.protocol) == len(PROTOCOL_COLUMNS)


def test_what_every_message_changes_of_a_sequence_is_in_no_index() -> None:
    indexed = {column.name for index in lane.indexes for column in index.columns}
    assert indexed >= {"owner", "retry_at"}
    assert not indexed.intersection(STEADY_COLUMNS)


@given(VALUES)
def test_a_sequence_comes_back_as_it_was_written(value: InboundSequence) -> None:
    record = SequenceRecord.begin(3, value, principal="alice", peer="192.0.2.1")
    record.id = 7
    record.cursor, record.fence, record.owner, record.discarding = 4, 9, 2, True
    record.mark_written()
    protocol = {"lane": 7, **record.protocol_row}
    stored: dict[str, Any] = {**dict.fromkeys(LANE_COLUMNS), **record.row, "id": 7}
    stored |= {f"sequence_{name}": value for name, value in protocol.items()}
    again = load(tuple(stored[name] for name in LANE_COLUMNS), value.received, value.unnamed)
    assert isinstance(again, SequenceRecord)
    assert again.value == value
    assert again.row == record.row
    assert again.protocol_row == record.protocol_row
    assert asdict(again) == asdict(record)


@pytest.fixture
def record() -> SequenceRecord:
    value = InboundSequence(
        Terms("urn:uuid:1", WSRM_1_1, SOAPVersion.SOAP_1_1, WSA_2005),
        active_at=0,
        received=AckRanges.of([1, 2, 5]),
        limit=3,
    )
    return SequenceRecord.begin(1, value)


def test_the_cursor_jumps_from_received_number_to_received_number(record: SequenceRecord) -> None:
    record.passed(1)
    assert record.cursor == 2
    record.passed(2)
    assert record.cursor == record.value.limit == 3
    assert not record.has_next
    record.passed(1)
    assert record.cursor == 3, "what lies behind the cursor does not move it"


def test_a_wait_that_began_in_the_future_is_over(record: SequenceRecord) -> None:
    record.wait(1_000, 1_500)
    assert record.delivery_state(1_499) is DeliveryState.RETRYING
    assert record.delivery_state(1_500) is DeliveryState.READY
    assert record.delivery_state(999) is DeliveryState.READY, "the clock was set back"
    record.wait(1_000, None)
    assert record.delivery_state(1_000) is DeliveryState.READY
