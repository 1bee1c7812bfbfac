"""LastMessage, by which a source of WS-RM 1.0 says which number is its last (group D-LST)."""

from __future__ import annotations

import pytest

from tests.support.policies import At
from tests.support.source import each_rm, in_1_0
from wsrm_mq.testing import Reply


def fault(reply: Reply) -> str:
    assert reply.fault is not None
    return reply.fault.subcode


@in_1_0
@pytest.mark.spec("D-LST-001", "D-LST-005")
def test_last_message_makes_its_number_the_last_and_its_message_is_delivered(at: At) -> None:
    source = at()
    identifier = source.create()
    source.put(identifier, 1)
    assert source.store.sequence(identifier)["last_number"] is None
    assert source.put(identifier, 2, last=True).reply.ack.ranges == ((1, 2),)
    assert source.store.sequence(identifier)["last_number"] == 2
    assert source.delivered(identifier) == [1, 2]


@in_1_0
@pytest.mark.spec("D-LST-002", "D-LST-009")
def test_a_number_beyond_the_last_ends_the_sequence(at: At) -> None:
    source = at()
    identifier = source.create()
    source.put(identifier, 1)
    source.put(identifier, 2, last=True)
    answer = source.put(identifier, 3)
    assert answer.reply.fault is not None
    assert answer.reply.fault.subcode == "LastMessageNumberExceeded"
    assert answer.reply.fault.identifier == identifier
    row = source.store.sequence(identifier)
    assert (row["state"], row["ended"]) == ("ended", "refused")
    assert fault(source.put(identifier, 2).reply) == "UnknownSequence"
    assert source.delivered(identifier) == [1, 2]
    assert sorted(source.store.outcomes(identifier)) == [1, 2]


@in_1_0
@pytest.mark.spec("D-LST-003")
def test_lower_numbers_still_missing_are_accepted_after_the_last(at: At) -> None:
    source = at()
    identifier = source.create()
    assert source.put(identifier, 4, last=True).reply.ack.ranges == ((4, 4),)
    for number in (2, 1, 3):
        assert source.put(identifier, number).status == 200
    assert source.ask(identifier).reply.ack.ranges == ((1, 4),)
    assert source.delivered(identifier) == [1, 2, 3, 4]


@in_1_0
@pytest.mark.spec("D-LST-004")
@pytest.mark.parametrize("missing", [(), (2,)], ids=["in order", "early"])
def test_the_empty_last_message_is_acknowledged_and_not_delivered(at: At, missing: tuple[int, ...]) -> None:
    source = at()
    identifier = source.create()
    for number in {1, 2}.difference(missing):
        source.put(identifier, number)
    answer = source.post(source.speak.last_message(identifier, 3, reply_to=""))
    assert answer.reply.ack.ranges[-1][1] == 3
    for number in missing:
        source.put(identifier, number)
    assert source.ask(identifier).reply.ack.ranges == ((1, 3),)
    assert source.delivered(identifier) == [1, 2]
    assert source.calls(identifier) == [1, 2]
    assert source.store.outcomes(identifier) == {1: "delivered", 2: "delivered", 3: "discarded"}


@in_1_0
@pytest.mark.spec("D-LST-006")
def test_last_message_below_an_accepted_number_is_refused(at: At) -> None:
    source = at()
    identifier = source.create()
    for number in (1, 2, 4):
        source.put(identifier, number)
    refused = fault(source.put(identifier, 3, last=True).reply)
    assert refused in ("LastMessageNumberExceeded", "SequenceTerminated")
    assert 3 not in source.store.outcomes(identifier)
    assert source.delivered(identifier) == [1, 2, 4]


@in_1_0
@pytest.mark.spec("D-LST-007")
@pytest.mark.parametrize("empty", [False, True], ids=["of the application", "empty"])
def test_the_last_message_sent_again_is_a_duplicate(at: At, empty: bool) -> None:
    source = at()
    identifier = source.create()
    source.put(identifier, 1)
    last = (
        source.speak.last_message(identifier, 2, reply_to="") if empty else source.speak.put(identifier, 2, last=True)
    )
    assert source.post(last).reply.ack.ranges == ((1, 2),)
    assert source.post(last).reply.ack.ranges == ((1, 2),)
    assert source.delivered(identifier) == ([1] if empty else [1, 2])
    assert source.store.sequence(identifier)["state"] == "created"
    assert source.store.sequence(identifier)["duplicates"] == 1


@in_1_0
@pytest.mark.spec("D-LST-008")
def test_a_sequence_run_through_leaves_no_state(at: At) -> None:
    source = at()
    identifier = source.create()
    for number in (1, 2, 3):
        source.put(identifier, number, last=number == 3)
    assert source.delivered(identifier) == [1, 2, 3]
    assert source.terminate(identifier).status == 202
    row = source.store.sequence(identifier)
    assert (row["state"], row["ended"], row["due_at"], row["owner"]) == ("ended", "terminated", None, None)
    assert set(source.store.outcomes(identifier).values()) == {"delivered"}
    for envelope in (source.speak.put(identifier, 3, last=True), source.speak.ack_requested(identifier)):
        assert fault(source.post(envelope).reply) == "UnknownSequence"
    assert source.delivered(identifier) == [1, 2, 3]


@each_rm
@pytest.mark.spec("D-LST-009")
def test_faults_of_one_version_never_occur_in_the_other(at: At) -> None:
    """Everything that makes a destination refuse a sequence's message, in the version at hand."""
    source = at()
    identifier = source.create()
    source.put(identifier, 1, last=not source.speak.rm.has_close)
    if source.speak.rm.has_close:
        source.close(identifier, 1)
    seen = {fault(source.put(identifier, 2).reply)}
    source.terminate(identifier)
    seen.add(fault(source.put(identifier, 3).reply))
    foreign = {"LastMessageNumberExceeded"} if source.speak.rm.has_close else {"SequenceClosed", "WSRMRequired"}
    assert not seen & foreign
    assert len(seen) == 2


@in_1_0
@pytest.mark.spec("D-LST-009")
def test_a_plain_message_where_rm_is_required_is_not_told_so_in_1_0(at: At) -> None:
    """WSRMRequired is a fault of 1.1; nothing in the answer may be of 1.0."""
    source = at("/needs_rm")
    answer = source.put_plain(1)
    assert answer.reply.fault is not None
    assert source.speak.rm.namespace.encode() not in answer.body
