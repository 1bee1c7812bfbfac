"""Conversations of a gSOAP RM Source with a wrapped Spyne service.

What counts is what the source then knows (its acknowledgements, its cache for resends) and what the service's
own database holds. gSOAP's own RM Destination gets many of these wrong; the docstrings say how.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable

import pytest

from tests.support.orders_server import OrdersServer
from wsrm_mq.versions import SOAPVersion

from .gsoap_client import GsoapClient, Step, Variant, every_variant, one_variant, rm_1_0, rm_1_1

Source = Callable[[OrdersServer], GsoapClient]


def refused(step: Step, *names: str) -> bool:
    """The step was answered with one of these RM faults and no acknowledgement of anything new."""
    return step.fault is not None and step.fault.name in names


# ---- numbers


@every_variant
@pytest.mark.spec("D-SEQ-004", "D-SEQ-029", "D-ACK-029", "H-001")
@pytest.mark.peer("P-01")
def test_messages_in_order_are_each_acknowledged_on_their_own_answer(gsoap: Source, orders: OrdersServer) -> None:
    """gSOAP answers a one-way with an empty 202: its source learns nothing before Close."""
    seen = orders.mark()
    created, *sent, state = gsoap(orders).run(["create", "send 1", "send 2", "send 3", "state"])
    assert created.state == "created"
    assert [step.acked for step in sent] == [[(1, 1)], [(1, 2)], [(1, 3)]]
    assert [step.http for step in sent] == [200, 200, 200]
    assert state.pending == []
    assert seen.soon([1, 2, 3]) == [1, 2, 3]


@every_variant
@pytest.mark.spec("D-SEQ-006", "D-DEL-004", "D-DEL-005", "D-ACK-024")
@pytest.mark.scenario("Q-038")
def test_messages_out_of_order_are_acknowledged_at_once_and_delivered_in_order(
    gsoap: Source, orders: OrdersServer
) -> None:
    """gSOAP drops 3 and 2 with a 202, and neither is acknowledged."""
    seen = orders.mark()
    with gsoap(orders).conversation() as source:
        source.step("create")
        assert source.step("send 2").acked == [(2, 2)]
        assert source.step("send 3").acked == [(2, 3)]
        assert seen.later() == []
        last = source.step("send 1")
        assert (last.acked, last.pending) == ([(1, 3)], [])
        assert seen.soon([1, 2, 3]) == [1, 2, 3]


@every_variant
@pytest.mark.spec("D-ACK-001", "D-ACK-003", "D-ACK-004", "D-SEQ-006")
def test_ranges_that_grow_downwards_are_merged_and_the_sequence_ends_without_fault(
    gsoap: Source, orders: OrdersServer
) -> None:
    """gSOAP merges ranges upwards only: 1, 5, 4, 3, 2 leaves 1-3, 4-4, 5-5, and a Terminate that faults."""
    seen = orders.mark()
    steps = gsoap(orders).run(["create", "send 1", "send 5", "send 4", "send 3", "send 2", "terminate"])
    assert [step.acked for step in steps[1:6]] == [
        [(1, 1)],
        [(1, 1), (5, 5)],
        [(1, 1), (4, 5)],
        [(1, 1), (3, 5)],
        [(1, 5)],
    ]
    assert steps[-1].fault is None
    assert steps[-1].error == 0
    assert seen.soon([1, 2, 3, 4, 5]) == [1, 2, 3, 4, 5]


@every_variant
@pytest.mark.spec("D-SEQ-007", "D-SEQ-008", "D-SEQ-010")
@pytest.mark.scenario("Q-042")
@pytest.mark.peer("P-22")
def test_a_duplicate_is_acknowledged_and_not_delivered_again(gsoap: Source, orders: OrdersServer) -> None:
    seen = orders.mark()
    steps = gsoap(orders).run(["create", "send 1 first", "dup 1 second", "send 2 third", "dup 1 fourth"])
    assert [step.acked for step in steps[1:]] == [[(1, 1)], [(1, 1)], [(1, 2)], [(1, 2)]]
    assert all(step.fault is None for step in steps)
    assert seen.soon([1, 2]) == [1, 2]
    seen.later()
    assert seen.texts() == ["first", "third"]


@every_variant
@pytest.mark.spec("D-SEQ-005", "D-ACK-015", "D-ACK-022")
@pytest.mark.peer("P-18")
def test_what_was_lost_is_resent_and_fills_the_gap(gsoap: Source, orders: OrdersServer) -> None:
    """A stand-alone AckRequested gets an empty 202 from gSOAP."""
    seen = orders.mark()
    with gsoap(orders).conversation() as source:
        source.steps("create", "send 1", "lose 2", "send 3", "lose 4")
        asked = source.step("ackreq")
        assert (asked.acked, asked.pending) == ([(1, 1), (3, 3)], [2, 4])
        assert seen.soon([1]) == [1]
        source.step("resend")
        asked = source.step("ackreq")
        assert (asked.acked, asked.pending) == ([(1, 4)], [])
    assert seen.soon([1, 2, 3, 4]) == [1, 2, 3, 4]


@every_variant
@pytest.mark.spec("H-022", "D-DEL-001", "D-SEQ-010")
def test_a_lost_answer_costs_a_resend_and_no_second_delivery(gsoap: Source, orders: OrdersServer) -> None:
    seen = orders.mark()
    steps = gsoap(orders).run(["create", "send 1", "deaf 2", "deaf 3", "state", "resend", "ackreq"])
    assert steps[4].pending == [2, 3]
    assert (steps[-1].acked, steps[-1].pending) == ([(1, 3)], [])
    assert seen.soon([1, 2, 3]) == [1, 2, 3]
    assert seen.later() == [1, 2, 3]


# ---- connections and bodies


@every_variant
@pytest.mark.spec("H-021")
@pytest.mark.scenario("Q-035")
def test_twenty_messages_and_a_fault_leave_the_one_connection_open(gsoap: Source, orders: OrdersServer) -> None:
    """D1: gSOAP's queue closes the shared socket after the first message; its faults always close."""
    seen = orders.mark()
    numbers = list(range(1, 21))
    steps = gsoap(orders).run(["create", *(f"send {n}" for n in numbers), "unknown urn:x:none", "ackreq"])
    assert steps[-2].fault is not None
    assert steps[-1].connections == 1
    assert steps[-1].acked == [(1, 20)]
    assert seen.soon(numbers) == numbers


@every_variant
def test_a_client_without_keep_alive_is_served_on_a_connection_for_each_message(
    gsoap: Source, orders: OrdersServer
) -> None:
    seen = orders.mark()
    steps = gsoap(orders).run(["keepalive off", "create", "send 1", "send 3", "send 2"])
    assert steps[-1].connections == 4
    assert steps[-1].acked == [(1, 3)]
    assert seen.soon([1, 2, 3]) == [1, 2, 3]


@every_variant
@pytest.mark.spec("H-021")
def test_chunked_requests_are_accepted(gsoap: Source, orders: OrdersServer) -> None:
    seen = orders.mark()
    steps = gsoap(orders).run(["chunked on", "create", "send 1 size=200000", "send 2", "chunked off", "send 3"])
    assert steps[-1].acked == [(1, 3)]
    assert seen.soon([1, 2, 3]) == [1, 2, 3]
    assert len(seen.texts()[0]) == 200_000


@one_variant
@pytest.mark.scenario("Q-050")
@pytest.mark.parametrize("size", [65_000, 65_535, 65_536, 65_537, 70_000, 5 * 2**20])
def test_large_bodies_arrive_whole_and_also_after_they_were_held(
    size: int, gsoap: Source, orders: OrdersServer
) -> None:
    """D4: one message of 66 KB kills the server of gSOAP's queue."""
    seen = orders.mark()
    steps = gsoap(orders).run(["create", f"send 2 size={size}", "send 1 small"])
    assert [step.acked for step in steps[1:]] == [[(2, 2)], [(1, 2)]]
    assert seen.soon([1, 2], 20) == [1, 2]
    assert seen.texts()[1] == "x" * size


# ---- close and terminate


@rm_1_1
@pytest.mark.spec("D-CLO-001", "D-CLO-002", "D-CLO-005", "D-CLO-007")
@pytest.mark.peer("P-40")
def test_close_answers_the_final_acknowledgement_and_later_numbers_are_refused(
    gsoap: Source, orders: OrdersServer
) -> None:
    """gSOAP writes no Final into CloseSequenceResponse, and one number too high ends the whole sequence."""
    seen = orders.mark()
    client = gsoap(orders)
    closed, above, again, ended = client.run(
        ["create", "send 1", "send 2", "close", "send 3", "close 2", "terminate 2"]
    )[3:]
    assert (closed.acked, closed.final, closed.fault) == ([(1, 2)], True, None)
    assert refused(above, "SequenceClosed")
    assert above.fault is not None
    assert above.fault.identifier == above.seq
    assert (above.acked, above.final) == ([(1, 2)], True)
    assert (again.acked, again.final) == ([(1, 2)], True)
    assert (ended.acked, ended.final, ended.error) == ([(1, 2)], True, 0)
    assert seen.soon([1, 2]) == [1, 2]
    assert seen.later() == [1, 2]


@rm_1_1
@pytest.mark.spec("D-CLO-003", "D-CLO-006", "D-ACK-011", "D-DEL-009")
@pytest.mark.peer("P-26")
def test_a_closed_gap_stays_in_the_final_acknowledgement_and_its_number_is_refused(
    gsoap: Source, orders: OrdersServer
) -> None:
    """gSOAP goes on taking numbers up to LastMsgNumber after Close."""
    seen = orders.mark()
    steps = gsoap(orders).run(["create", "send 1", "send 3", "send 4", "close 4", "send 2", "dup 3", "terminate 4"])
    closed, missing, duplicate, ended = steps[4:]
    assert (closed.acked, closed.final) == ([(1, 1), (3, 4)], True)
    assert refused(missing, "SequenceClosed")
    assert duplicate.acked == [(1, 1), (3, 4)]
    assert duplicate.final
    assert ended.acked == [(1, 1), (3, 4)]
    assert seen.soon([1, 3, 4]) == [1, 3, 4]
    assert seen.later() == [1, 3, 4]


@rm_1_1
@pytest.mark.spec("D-ACK-005", "D-ACK-010", "D-CLO-014")
@pytest.mark.peer("P-29")
def test_a_sequence_with_no_message_closes_with_none_and_terminates(gsoap: Source, orders: OrdersServer) -> None:
    asked, closed, ended = gsoap(orders).run(["create", "ackreq", "close", "terminate"])[1:]
    assert (asked.acked, asked.final) == ([], False)
    assert (closed.acked, closed.final) == ([], True)
    assert (ended.acked, ended.final, ended.error) == ([], True, 0)


@rm_1_1
@pytest.mark.spec("D-CLO-010")
def test_a_last_number_that_contradicts_what_arrived_is_a_fault(gsoap: Source, orders: OrdersServer) -> None:
    lower = gsoap(orders).run(["create", "send 1", "send 3", "close 2"])[-1]
    assert refused(lower, "SequenceTerminated")


@rm_1_1
@pytest.mark.spec("D-TRM-001", "D-TRM-003", "D-TRM-005", "D-TRM-008")
@pytest.mark.peer("P-35")
def test_terminate_is_answered_again_when_repeated_and_nothing_is_taken_after_it(
    gsoap: Source, orders: OrdersServer
) -> None:
    """gSOAP answers a second TerminateSequence with an empty 202."""
    seen = orders.mark()
    steps = gsoap(orders).run(["create", "send 1", "terminate", "terminate", "dup 2", "ackreq"])
    first, second, message, asked = steps[2:]
    assert (first.acked, first.final, first.error) == ([(1, 1)], True, 0)
    assert (second.http, second.acked, second.final) == (200, [(1, 1)], True)
    assert refused(message, "UnknownSequence", "SequenceTerminated")
    assert refused(asked, "UnknownSequence", "SequenceTerminated")
    assert seen.soon([1]) == [1]
    assert seen.later() == [1]


@rm_1_0
@pytest.mark.spec("D-LST-002", "D-LST-004", "D-LST-007", "D-LST-009")
@pytest.mark.peer("P-45")
def test_the_last_message_of_rm_1_0_is_acknowledged_and_not_delivered(gsoap: Source, orders: OrdersServer) -> None:
    seen = orders.mark()
    steps = gsoap(orders).run(["create", "send 1", "send 2", "close", "ackreq", "dup 3", "send 4"])
    closed, asked, duplicate, above = steps[3:]
    assert (closed.error, closed.pending) == (0, [3])
    assert (asked.acked, asked.pending) == ([(1, 3)], [])
    assert duplicate.acked == [(1, 3)]
    assert refused(above, "LastMessageNumberExceeded")
    assert seen.soon([1, 2]) == [1, 2]
    assert seen.later() == [1, 2]


@rm_1_0
@pytest.mark.spec("D-LST-001", "D-LST-003")
def test_a_gap_below_the_last_message_of_rm_1_0_can_still_be_filled(gsoap: Source, orders: OrdersServer) -> None:
    seen = orders.mark()
    steps = gsoap(orders).run(["create", "send 1", "lose 2", "send 3", "close", "resend", "ackreq"])
    assert (steps[-1].acked, steps[-1].pending) == ([(1, 4)], [])
    assert seen.soon([1, 2, 3]) == [1, 2, 3]


@rm_1_0
@pytest.mark.spec("D-TRM-002")
def test_terminate_of_rm_1_0_is_one_way_and_ends_the_sequence(gsoap: Source, orders: OrdersServer) -> None:
    seen = orders.mark()
    steps = gsoap(orders).run(["create", "send 1", "send 2", "close", "ackreq", "terminate", "dup 5"])
    ended, after = steps[5:]
    assert (ended.http, ended.error, ended.state) == (202, 0, "terminated")
    assert refused(after, "UnknownSequence", "SequenceTerminated")
    assert seen.soon([1, 2]) == [1, 2]


@every_variant
@pytest.mark.spec("D-TRM-006", "D-TRM-010", "D-DEL-010")
def test_what_was_held_when_the_sequence_is_terminated_is_delivered(gsoap: Source, orders: OrdersServer) -> None:
    """S2: gSOAP's queue drops it silently, though each message got its 202."""
    seen = orders.mark()
    steps = gsoap(orders).run(["create", "send 1", "send 5", "send 3", "terminate"])
    assert steps[-1].fault is None
    assert seen.soon([1, 3, 5]) == [1, 3, 5]


# ---- faults


@every_variant
@pytest.mark.spec("D-SEQ-002", "F-001")
@pytest.mark.scenario("Q-049")
@pytest.mark.peer("P-38")
def test_a_message_for_an_unknown_sequence_is_refused(gsoap: Source, orders: OrdersServer, variant: Variant) -> None:
    seen = orders.mark()
    identifier = uuid.uuid4().urn
    step = gsoap(orders).run([f"unknown {identifier} lost"])[0]
    assert refused(step, "UnknownSequence")
    assert step.fault is not None
    assert step.fault.code.rpartition(":")[2] in ("Sender", "Client")
    if variant.rm.wraps_fault_detail or variant.soap is SOAPVersion.SOAP_1_2:
        # of a SequenceFault gSOAP reads the detail only inside a Detail, which 1.0 does not have
        assert step.fault.identifier == identifier
    assert seen.later() == []


@every_variant
@pytest.mark.spec("D-ACK-017")
@pytest.mark.peer("P-08")
def test_an_acknowledgement_asked_for_an_unknown_sequence_is_a_fault(gsoap: Source, orders: OrdersServer) -> None:
    assert refused(gsoap(orders).run(["create", f"ackreq {uuid.uuid4().urn}"])[-1], "UnknownSequence")


@every_variant
@pytest.mark.spec("D-SEQ-012", "D-SEQ-023")
def test_number_zero_is_refused_and_the_sequence_goes_on(gsoap: Source, orders: OrdersServer) -> None:
    """gSOAP answers it with a 202 and drops it."""
    seen = orders.mark()
    zero, first = gsoap(orders).run(["create", "raw-number 0", "send 1"])[1:]
    assert zero.fault is not None
    assert zero.acked in (None, [])
    assert first.acked == [(1, 1)]
    assert seen.soon([1]) == [1]


@rm_1_1
@pytest.mark.spec("D-SEQ-016", "D-SEQ-019")
@pytest.mark.peer("P-42")
@pytest.mark.parametrize("number", [2**63, 2**64 - 1])
def test_a_number_above_the_largest_is_refused_and_lower_ones_still_taken(
    number: int, gsoap: Source, orders: OrdersServer
) -> None:
    """gSOAP accepts 2^63 to 2^64-1."""
    seen = orders.mark()
    _, first, above, second = gsoap(orders).run(["create", "send 1", f"raw-number {number}", "send 2"])
    assert above.fault is not None
    assert above.fault.name in ("MessageNumberRollover", "Sender", "Client")
    assert (first.acked, second.acked) == ([(1, 1)], [(1, 2)])
    assert seen.soon([1, 2]) == [1, 2]


@rm_1_0
@pytest.mark.spec("D-SEQ-015", "D-SEQ-020")
@pytest.mark.peer("P-42")
def test_a_number_above_the_largest_ends_a_sequence_of_rm_1_0(gsoap: Source, orders: OrdersServer) -> None:
    seen = orders.mark()
    _, _, above, second = gsoap(orders).run(["create", "send 1", f"raw-number {2**63}", "send 2"])
    assert refused(above, "MessageNumberRollover")
    assert refused(second, "UnknownSequence", "SequenceTerminated")
    assert seen.later() == [1]


# ---- lifetime


@every_variant
@pytest.mark.spec("D-CRE-008", "D-CRE-010", "D-CRE-011")
def test_the_lifetime_granted_is_finite_stated_and_no_longer_than_asked_for(
    gsoap: Source, orders: OrdersServer
) -> None:
    """gSOAP limits to one hour in silence, and takes a PT0S that it is granted for expired."""
    [hour] = gsoap(orders).run(["create expires=600000"])
    assert 0 < hour.lifetime <= 600
    for steps in (["create", "sleep 1200", "send 1"], ["create offer", "sleep 1200", "send 1"]):
        created, _, sent = gsoap(orders).run(steps)
        assert created.lifetime > 3
        assert sent.acked == [(1, 1)]


# ---- two-way


@every_variant
@pytest.mark.spec("H-004", "H-005")
def test_a_reply_comes_on_the_answer_with_the_acknowledgement(gsoap: Source, orders: OrdersServer) -> None:
    seen = orders.mark()
    steps = gsoap(orders).run(["create", "echo 1 one", "send 2", "echo 3 three"])
    assert [(step.reply, step.acked) for step in steps[1:]] == [
        ("one", [(1, 1)]),
        (None, [(1, 2)]),
        ("three", [(1, 3)]),
    ]
    assert all(step.relates_to for step in (steps[1], steps[3]))
    assert seen.texts() == ["one", "2", "three"]


@every_variant
@pytest.mark.spec("H-009", "D-DEL-020")
@pytest.mark.scenario("Q-042")
@pytest.mark.peer("P-15")
def test_a_request_repeated_gets_the_stored_reply_and_the_operation_runs_once(
    gsoap: Source, orders: OrdersServer
) -> None:
    seen = orders.mark()
    _, first, again = gsoap(orders).run(["create", "echo 1 one", "echo 1 other"])
    assert (first.reply, again.reply) == ("one", "one")
    assert first.message_id == again.message_id
    assert seen.texts() == ["one"]


@every_variant
@pytest.mark.spec("D-CRE-022", "H-005", "H-006", "H-009")
@pytest.mark.peer("P-12")
def test_the_replies_come_in_the_sequence_that_is_offered_each_once(gsoap: Source, orders: OrdersServer) -> None:
    steps = gsoap(orders).run(["create offer", "echo 1 one", "echo 2 two", "echo 2 two", "send 3", "terminate"])
    assert [step.reply for step in steps[1:4]] == ["one", "two", "two"]
    assert [step.acked for step in steps[1:5]] == [[(1, 1)], [(1, 2)], [(1, 2)], [(1, 3)]]
    assert steps[-1].received == [(1, 2)]
    assert (steps[-1].state, steps[-1].error) == ("terminated", 0)


# ---- without WS-RM


@one_variant
@pytest.mark.spec("D-SEQ-027")
@pytest.mark.scenario("Q-044")
def test_a_message_without_ws_rm_among_held_ones_is_served_at_once(gsoap: Source, orders: OrdersServer) -> None:
    seen = orders.mark()
    with gsoap(orders).conversation() as source:
        source.steps("create", "send 2", "send 3")
        plain = source.step("plain 100")
        assert (plain.fault, plain.error) == (None, 0)
        assert seen.soon([100]) == [100]
        assert source.step("send 1").acked == [(1, 3)]
        assert seen.soon([100, 1, 2, 3]) == [100, 1, 2, 3]
