"""An Offer: the replies go out in the offered sequence, numbered once, and kept until they are acknowledged."""

from __future__ import annotations

import sqlite3
import time
import uuid
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest

from tests.support.orders import Orders
from tests.support.orders_server import OrdersServer
from tests.support.source import OPPOSITES, Source, each_rm, every_version, in_1_0, in_1_1
from wsrm_mq.testing import HTTPAnswer, Place
from wsrm_mq.versions import MAX_MESSAGE_NUMBER

from .conftest import Servers
from .test_arriving_faults import rm_fault

RANGE = '<wsrm:AcknowledgementRange Lower="1" Upper="1"/>'
TO = "http://Service.Example:80/orders?a=1&amp;b=%20"


def new_name() -> str:
    return uuid.uuid4().urn


def offering(source: Source, **options: Any) -> tuple[str, str]:
    """A sequence and the one that was offered with it, which has to be accepted."""
    offered = new_name()
    created = source.post(source.speak.create_sequence(offer=offered, **options)).reply.created
    assert created is not None
    assert created.accept is not None
    return created.identifier, offered


def place(answer: HTTPAnswer) -> Place:
    found = answer.reply.sequence
    assert found is not None, answer.body
    return found


def outgoing(source: Source, offered: str) -> dict[str, Any]:
    """The row of an offered sequence."""
    names = ("state", "given", "acknowledged", "unacknowledged", "last_number", "waiting_since")
    (row,) = source.store.rows(f"select {', '.join(names)} from outbound_sequence where identifier = ?", offered)
    return dict(zip(names, row, strict=True))


# accepted or not


@pytest.mark.spec("D-CRE-017", "D-CRE-019", "D-CRE-020", "D-CRE-033")
@every_version
def test_an_offer_is_accepted_with_the_address_that_the_source_used_byte_for_byte(source: Source) -> None:
    answer = source.post(source.speak.having(to=TO).create_sequence(offer=new_name()))
    assert answer.reply.created is not None
    assert f">{TO}</Address></wsrm:AcksTo></wsrm:Accept>".encode() in answer.body
    without = source.post(source.speak.having(to=TO).create_sequence())
    assert b"Accept" not in without.body


@pytest.mark.spec("D-CRE-027", "D-CRE-033")
@each_rm
def test_a_create_sequence_that_comes_again_is_accepted_again(source: Source) -> None:
    request = source.speak.create_sequence(offer=new_name(), message_id=new_name())
    first, second = (source.post(request).reply.created for _ in range(2))
    assert first is not None
    assert first.accept is not None
    assert first == second


@pytest.mark.peer("P-11")
@pytest.mark.spec("D-CRE-016", "D-CRE-017", "D-CRE-018", "D-CRE-021")
@pytest.mark.parametrize(
    "options", [{"offer_endpoint": None}, {"offer_endpoint": "none"}, {"offer_endpoint": "http://back.example/"}]
)
@in_1_1
def test_an_offer_whose_messages_would_need_another_channel_is_declined(
    options: dict[str, Any], source: Source
) -> None:
    created = source.post(source.speak.create_sequence(offer=new_name(), **options)).reply.created
    assert created is not None
    assert created.accept is None
    answer = source.echo(created.identifier, 1, "one")
    assert answer.reply.sequence is None
    assert b"one" in answer.body


@pytest.mark.spec("D-CRE-020", "D-CRE-021")
@pytest.mark.parametrize("to", [None, "anonymous"])
@in_1_1
def test_an_offer_of_a_source_that_does_not_say_where_it_sends_acknowledgements_is_declined(
    to: str | None, source: Source
) -> None:
    speak = source.speak.having(to=source.speak.anonymous if to else None)
    created = source.post(speak.create_sequence(offer=new_name())).reply.created
    assert created is not None
    assert created.accept is None


@pytest.mark.spec("D-CRE-003", "D-CRE-027")
@each_rm
def test_an_offer_that_is_made_again_before_it_was_used_is_accepted_for_the_newest_sequence(source: Source) -> None:
    """The response to the first CreateSequence was lost, and the source asks under another MessageID (Metro, CXF)."""
    offered = new_name()
    first, second = (source.post(source.speak.create_sequence(offer=offered)).reply.created for _ in range(2))
    assert first is not None
    assert second is not None
    assert (first.accept, second.accept) == (source.speak.to, source.speak.to)
    assert first.identifier != second.identifier
    assert place(source.echo(second.identifier, 1, "one")) == (offered, 1, False)
    third = source.post(source.speak.create_sequence(offer=offered)).reply.created
    assert third is not None
    assert third.accept is None, "it is in use by now"
    assert place(source.echo(second.identifier, 2, "two")) == (offered, 2, False)
    assert source.echo(first.identifier, 1, "one").reply.sequence is None


@pytest.mark.spec("SEC-033")
@each_rm
def test_an_offer_of_another_principal_is_not_taken_over_before_it_was_used(
    server: OrdersServer, speak: Orders
) -> None:
    offered = new_name()
    with (
        Source(server, speak, fields=("X-User: alice",)) as alice,
        Source(server, speak, fields=("X-User: bob",)) as bob,
    ):
        mine = alice.post(speak.create_sequence(offer=offered)).reply.created
        theirs = bob.post(speak.create_sequence(offer=offered)).reply.created
        assert mine is not None
        assert theirs is not None
        assert (mine.accept, theirs.accept) == (speak.to, None)
        assert place(alice.echo(mine.identifier, 1, "one")) == (offered, 1, False)


@pytest.mark.spec("D-CRE-023", "SEC-033")
@pytest.mark.peer("P-37")
@each_rm
def test_a_name_that_is_known_is_no_name_for_an_offered_sequence(source: Source) -> None:
    mine, offered = offering(source)
    assert place(source.echo(mine, 1, "one")).number == 1
    before = outgoing(source, offered)
    for taken in (mine, offered):
        created = source.post(source.speak.create_sequence(offer=taken)).reply.created
        assert created is not None
        assert created.accept is None
    assert outgoing(source, offered) == before
    assert place(source.echo(mine, 2, "two")) == (offered, 2, False)


# replies


@pytest.mark.spec("D-CRE-022", "H-005", "H-006", "S-SND-002", "S-SND-003")
@every_version
def test_replies_are_numbered_in_the_offered_sequence_with_the_acknowledgement_of_their_requests(
    source: Source,
) -> None:
    mine, offered = offering(source)
    for number in (1, 2, 3):
        answer = source.echo(mine, number, f"text {number}", message_id=f"urn:request:{number}")
        assert place(answer) == (offered, number, False)
        assert answer.reply.ack.identifier == mine
        assert answer.reply.ack.ranges == ((1, number),)
        assert answer.reply.relates_to == f"urn:request:{number}"
        assert len(answer.elements("Sequence")) == len(answer.elements("SequenceAcknowledgement")) == 1
        (block,) = answer.elements("Sequence")
        assert block.get(f"{{{source.speak.soap.namespace}}}mustUnderstand") == "1"
    assert outgoing(source, offered)["unacknowledged"] == 3


@pytest.mark.spec("H-009", "H-010", "S-RET-002", "S-SND-004")
@pytest.mark.peer("P-15")
@every_version
def test_a_request_that_comes_again_gets_the_same_reply_in_the_same_place_with_the_acknowledgement_of_now(
    source: Source,
) -> None:
    mine, offered = offering(source)
    envelope = source.speak.echo(mine, 1, "one")
    first = source.post(envelope)
    assert place(source.echo(mine, 2, "two")).number == 2
    again = source.post(envelope)
    assert place(again) == place(first) == (offered, 1, False)
    assert again.reply.message_id == first.reply.message_id
    assert again.reply.relates_to == first.reply.relates_to
    assert again.body.partition(b"Body>")[2] == first.body.partition(b"Body>")[2]
    assert (first.reply.ack.ranges, again.reply.ack.ranges) == (((1, 1),), ((1, 2),))
    assert source.calls(mine) == [1, 2]
    assert outgoing(source, offered)["given"] == 2


@pytest.mark.spec("H-006", "RSP-011", "S-SND-001", "S-SND-006")
@each_rm
def test_one_way_messages_take_no_place_among_the_replies(source: Source) -> None:
    mine, offered = offering(source)
    assert place(source.echo(mine, 1, "one")).number == 1
    answer = source.put(mine, 2)
    assert answer.reply.sequence is None
    assert answer.reply.ack.identifier == mine
    assert place(source.echo(mine, 3, "three")) == (offered, 2, False)


@pytest.mark.spec("S-SND-005")
@each_rm
def test_after_the_largest_number_a_reply_has_none(source: Source) -> None:
    mine, offered = offering(source)
    assert place(source.echo(mine, 1, "one")) == (offered, 1, False)
    with closing(sqlite3.connect(source.server.store, timeout=10)) as db, db:
        most = "update outbound_sequence set given = ?, acknowledged = ? where identifier = ?"
        db.execute(most, (MAX_MESSAGE_NUMBER - 1, f"1-{MAX_MESSAGE_NUMBER - 1}", offered))
    assert place(source.echo(mine, 2, "two")) == (offered, MAX_MESSAGE_NUMBER, False)
    answer = source.echo(mine, 3, "three")
    assert (answer.status, answer.text("echoResult"), answer.reply.sequence) == (200, "three", None)


@pytest.mark.spec("S-TRM-008")
@each_rm
def test_an_offered_sequence_ends_at_its_own_expires_and_replies_go_on_without_it(source: Source) -> None:
    mine, offered = offering(source, offer_more="<wsrm:Expires>PT0.05S</wsrm:Expires>")
    answers = [source.echo(mine, number, "text") for number in range(1, 9)]
    while answers[-1].reply.sequence is not None:
        answers.append(source.echo(mine, len(answers) + 1, "text"))
    assert outgoing(source, offered)["state"] == "expired"
    assert all(b"text" in answer.body for answer in answers)


# acknowledgements


@pytest.mark.spec("S-ACK-001", "S-ACK-013", "S-ACK-017")
@pytest.mark.peer("P-09", "P-14")
@every_version
def test_what_a_request_acknowledges_of_the_replies_is_taken(source: Source) -> None:
    mine, offered = offering(source)
    source.echo(mine, 1, "one")
    source.echo(mine, 2, "two")
    rider = source.speak.acknowledgement_header(offered, (1, 2))
    assert place(source.echo(mine, 3, "three", headers=rider)).number == 3
    row = outgoing(source, offered)
    assert (row["acknowledged"], row["unacknowledged"]) == ("1-2", 1)
    assert row["waiting_since"] is not None
    assert source.ask(mine, headers=source.speak.acknowledgement_header(offered, (1, 3))).reply.ack.identifier == mine
    row = outgoing(source, offered)
    assert (row["acknowledged"], row["unacknowledged"], row["waiting_since"]) == ("1-3", 0, None)


@pytest.mark.spec("H-003", "H-011")
@every_version
def test_an_acknowledgement_by_itself_is_taken_and_answered_with_nothing(source: Source) -> None:
    mine, offered = offering(source)
    source.echo(mine, 1, "one")
    answer = source.post(source.speak.acknowledgement(offered, (1, 1)))
    assert (answer.status, answer.body) == (202, b"")
    assert outgoing(source, offered)["unacknowledged"] == 0


@pytest.mark.spec("S-ACK-002", "S-ACK-010", "S-ACK-014", "S-ACK-015")
@pytest.mark.peer("P-41")
@every_version
def test_an_acknowledgement_that_cannot_be_true_stops_no_message_and_by_itself_gets_its_fault(source: Source) -> None:
    mine, offered = offering(source)
    source.echo(mine, 1, "one")
    wrong = source.speak.acknowledgement_header(offered, (1, MAX_MESSAGE_NUMBER))
    begun = time.monotonic()
    answer = source.echo(mine, 2, "two", headers=wrong)
    assert time.monotonic() - begun < 5, "it is not counted through"
    assert place(answer).number == 2
    assert outgoing(source, offered)["acknowledged"] == ""
    refused = source.post(source.speak.acknowledgement(offered, (1, 3)))
    fault = refused.reply.fault
    assert fault is not None
    assert (fault.subcode, fault.identifier) == ("InvalidAcknowledgement", offered)
    assert b'Lower="1" Upper="3"' in refused.body
    unknown = source.post(source.speak.acknowledgement(new_name(), (1, 1))).reply.fault
    assert unknown is not None
    assert unknown.subcode == "UnknownSequence"


@pytest.mark.spec("S-ACK-003", "S-ACK-004", "S-ACK-014")
@pytest.mark.parametrize(("lower", "upper"), [(2, 1), (0, 1), (3, 0)])
@every_version
def test_a_range_that_is_none_is_answered_with_invalid_acknowledgement_and_releases_nothing(
    source: Source, lower: int, upper: int
) -> None:
    """By itself it is answered with what it said; on a message it stops nothing."""
    mine, offered = offering(source)
    source.echo(mine, 1, "one")
    source.echo(mine, 2, "two")
    refused = source.post(source.speak.acknowledgement(offered, (1, 1), (lower, upper)))
    fault = refused.reply.fault
    assert fault is not None, refused
    assert (refused.status, fault.subcode, fault.identifier) == (500, "InvalidAcknowledgement", offered)
    assert f'Lower="{lower}" Upper="{upper}"'.encode() in refused.body
    rider = source.speak.acknowledgement_header(offered, (1, 1), (lower, upper))
    assert place(source.echo(mine, 3, "three", headers=rider)).number == 3
    assert outgoing(source, offered)["acknowledged"] == ""
    assert outgoing(source, offered)["unacknowledged"] == 3


@pytest.mark.spec("S-ACK-007", "S-ACK-008")
@each_rm
def test_ranges_count_in_any_order_adjacent_and_overlapping(source: Source) -> None:
    mine, offered = offering(source)
    for number in range(1, 7):
        source.echo(mine, number, "text")
    answer = source.post(source.speak.acknowledgement(offered, (5, 6), (3, 3), (1, 2), (2, 3)))
    assert (answer.status, answer.body) == (202, b"")
    assert outgoing(source, offered)["acknowledged"] == "1-3,5-6"


@pytest.mark.spec("S-ACK-005")
@in_1_0
def test_a_range_of_0_to_0_by_itself_says_that_nothing_was_received(source: Source) -> None:
    mine, offered = offering(source)
    source.echo(mine, 1, "one")
    answer = source.post(source.speak.acknowledgement(offered, (0, 0)))
    assert (answer.status, answer.body) == (202, b"")
    assert outgoing(source, offered)["unacknowledged"] == 1


@pytest.mark.spec("S-ACK-004", "S-ACK-009")
@pytest.mark.parametrize(
    "said",
    [
        "",
        "<wsrm:None/><wsrm:Nack>1</wsrm:Nack>",
        "<wsrm:Nack>1</wsrm:Nack><wsrm:Final/>",
        f"{RANGE}<wsrm:Nack>2</wsrm:Nack>",
        RANGE.replace("1", "0"),
    ],
)
@in_1_1
def test_children_that_do_not_go_together_are_answered_with_invalid_acknowledgement(source: Source, said: str) -> None:
    mine, offered = offering(source)
    source.echo(mine, 1, "one")
    source.echo(mine, 2, "two")
    header = source.speak.acknowledgement_header(offered).replace("<wsrm:None/>", said)
    action = source.speak.rm.action("SequenceAcknowledgement")
    answer = source.post(source.speak.envelope(action, "", headers=header))
    assert answer.reply.fault is not None, answer
    assert answer.reply.fault.subcode == "InvalidAcknowledgement"
    assert outgoing(source, offered)["unacknowledged"] == 2


@pytest.mark.spec("S-ACK-011", "S-ACK-012", "S-CLO-006")
@in_1_1
def test_after_final_no_reply_has_a_number_and_another_final_is_invalid(source: Source) -> None:
    """What it leaves out is told as not received."""
    mine, offered = offering(source)
    source.echo(mine, 1, "one")
    source.echo(mine, 2, "two")
    assert source.post(source.speak.acknowledgement(offered, (1, 1), final=True)).status == 202
    told = "select reason from ledger where event = 'replies_in_doubt' and reason like ?"
    assert source.store.rows(told, f"%{offered}") == [(f"not acknowledged: 2 of {offered}",)]
    assert source.echo(mine, 3, "three").reply.sequence is None
    another = source.post(source.speak.acknowledgement(offered, (1, 2), final=True)).reply.fault
    assert another is not None
    assert (another.subcode, another.identifier) == ("InvalidAcknowledgement", offered)
    assert source.post(source.speak.acknowledgement(offered, (1, 1), final=True)).status == 202
    assert outgoing(source, offered)["acknowledged"] == "1"


@pytest.mark.spec("S-ACK-006", "S-RET-003", "S-RET-006")
@each_rm
def test_a_nack_or_an_older_acknowledgement_takes_nothing_back(source: Source) -> None:
    mine, offered = offering(source)
    source.echo(mine, 1, "one")
    source.echo(mine, 2, "two")
    for said in ({"ranges": [(1, 2)]}, {"ranges": [(1, 1)]}, {"ranges": [], "nacks": (1,)}):
        source.post(source.speak.acknowledgement(offered, *said.pop("ranges"), **said))
    assert outgoing(source, offered)["acknowledged"] == "1-2"


# what a client that takes an acknowledgement for the reply is told (CXF)

CXF = "User-Agent: Apache-CXF/4.1.5"


def told(answer: HTTPAnswer) -> tuple[tuple[int, int], ...]:
    return answer.reply.ack.ranges


@pytest.fixture
def cxf(server: OrdersServer, speak: Orders) -> Iterator[Source]:
    with Source(server, speak, fields=(CXF,)) as source:
        yield source


@pytest.mark.spec("D-ACK-001", "D-ACK-029", "H-009")
@every_version
def test_cxf_is_told_of_a_request_with_its_reply_alone_until_it_acknowledges_that(cxf: Source) -> None:
    """It sends a request no more that any response has acknowledged, and its caller waits for a reply that was lost."""
    mine, offered = offering(cxf)
    assert told(cxf.echo(mine, 1, "one")) == ((1, 1),)
    assert told(cxf.echo(mine, 2, "two")) == ((2, 2),)
    assert told(cxf.put(mine, 3)) == ((3, 3),)
    again = cxf.echo(mine, 1, "one")
    assert place(again) == (offered, 1, False)
    assert told(again) == ((1, 1), (3, 3))
    assert told(cxf.ask(mine)) == ((3, 3),)
    rider = cxf.speak.acknowledgement_header(offered, (1, 1))
    assert told(cxf.echo(mine, 4, "four", headers=rider)) == ((1, 1), (3, 4))
    rider = cxf.speak.acknowledgement_header(offered, (1, 3))
    assert told(cxf.put(mine, 5, headers=rider)) == ((1, 5),)


@pytest.mark.spec("D-ACK-011", "D-CLO-002")
@in_1_1
def test_cxf_is_told_of_all_that_has_arrived_when_it_closes(cxf: Source) -> None:
    mine, _offered = offering(cxf)
    cxf.echo(mine, 1, "one")
    cxf.echo(mine, 2, "two")
    assert told(cxf.close(mine, 2)) == ((1, 2),)
    assert told(cxf.ask(mine)) == ((1, 2),)


@each_rm
def test_cxf_is_told_of_all_that_has_arrived_where_no_reply_can_be_acknowledged(cxf: Source) -> None:
    mine = cxf.create()
    cxf.echo(mine, 1, "one")
    assert told(cxf.echo(mine, 2, "two")) == ((1, 2),)
    other, offered = offering(cxf)
    cxf.echo(other, 1, "one")
    cxf.post(rm_fault(cxf.speak, "UnknownSequence", offered))
    assert told(cxf.echo(other, 2, "two")) == ((1, 2),)


@each_rm
def test_what_is_configured_of_a_partner_goes_before_what_its_user_agent_says(servers: Servers, speak: Orders) -> None:
    server = servers(partners={stack: {"path": f"/{stack}", "stack": stack} for stack in ("cxf", "wcf")})
    for stack, fields, ranges in (("cxf", (), ((2, 2),)), ("wcf", (CXF,), ((1, 2),))):
        with Source(server, speak, f"/{stack}", fields=fields) as source:
            mine, _offered = offering(source)
            source.echo(mine, 1, "one")
            assert told(source.echo(mine, 2, "two")) == ranges


# ends


@pytest.mark.spec("D-TRM-014", "S-CLO-006")
@each_rm
def test_replies_may_be_acknowledged_after_their_requests_sequence_has_ended(source: Source) -> None:
    mine, offered = offering(source)
    source.echo(mine, 1, "one")
    source.terminate(mine, 1 if source.speak.rm.has_close else None)
    assert outgoing(source, offered)["state"] == "closed"
    told = "select reason from ledger where event = 'replies_in_doubt' and reason like ?"
    assert source.store.rows(told, f"%{offered}") == [(f"not acknowledged: 1 of {offered}",)]
    rider = source.speak.acknowledgement_header(offered, (1, 1))
    assert source.put(source.create(), 1, headers=rider).reply.body is None, "it has something of its own to say"
    assert outgoing(source, offered)["state"] == "terminated"


@pytest.mark.spec("S-TRM-001", "S-TRM-003")
@pytest.mark.peer("P-35")
@in_1_1
def test_an_acknowledgement_of_all_replies_after_the_end_is_answered_with_their_end(source: Source) -> None:
    """It has no response of its own. CXF's server does so too."""
    mine, offered = offering(source)
    source.echo(mine, 1, "one")
    source.echo(mine, 2, "two")
    assert source.post(source.speak.acknowledgement(offered, (1, 2))).status == 202, "more replies may come"
    source.echo(mine, 3, "three")
    source.terminate(mine, 3)
    assert source.post(source.speak.acknowledgement(offered, (1, 2))).status == 202
    answers = [source.post(source.speak.acknowledgement(offered, (1, 3))) for _ in range(2)]
    for answer in answers:
        assert answer.status == 200
        assert (answer.reply.action, answer.reply.relates_to) == (source.speak.rm.action("TerminateSequence"), None)
        assert (answer.text("Identifier"), answer.text("LastMsgNumber")) == (offered, "3")
    assert outgoing(source, offered)["state"] == "terminated"
    confirmed = source.post(source.speak.terminate(offered).replace(b"TerminateSequence", b"TerminateSequenceResponse"))
    assert (confirmed.status, confirmed.body) == (202, b"")


@pytest.mark.spec("S-CLO-003", "S-TRM-006")
@in_1_1
def test_the_source_may_close_and_terminate_the_sequence_that_it_offered(source: Source) -> None:
    mine, offered = offering(source)
    source.echo(mine, 1, "one")
    closed = source.close(offered)
    assert closed.reply.body_name == "CloseSequenceResponse"
    assert offered.encode() in closed.body
    assert source.echo(mine, 2, "two").reply.sequence is None
    for _ in range(2):
        assert source.terminate(offered).reply.body_name == "TerminateSequenceResponse"
    assert outgoing(source, offered)["state"] == "terminated"
    assert source.put(mine, 3).reply.ack.ranges == ((1, 3),)


@pytest.mark.spec("S-ACK-010")
@pytest.mark.parametrize(("code", "state"), [("UnknownSequence", "failed"), ("SequenceTerminated", "terminated")])
@each_rm
def test_a_fault_that_says_the_offered_sequence_is_gone_ends_it_and_no_other(
    code: str, state: str, source: Source
) -> None:
    mine, offered = offering(source)
    source.echo(mine, 1, "one")
    assert source.post(rm_fault(source.speak, code, offered)).status == 202
    assert outgoing(source, offered)["state"] == state
    assert source.echo(mine, 2, "two").reply.sequence is None


# 1.0


@pytest.mark.spec("D-LST-003", "S-SND-009", "S-TRM-004", "S-TRM-005")
@in_1_0
def test_the_last_message_is_answered_with_the_last_of_the_replies_and_the_end_with_their_end(source: Source) -> None:
    mine, offered = offering(source)
    source.echo(mine, 1, "one")
    last = source.speak.last_message(mine, 2, headers=source.speak.acknowledgement_header(offered, (1, 1)))
    answers = [source.post(last) for _ in range(2)]
    for answer in answers:
        assert place(answer) == (offered, 2, True)
        assert answer.reply.action == source.speak.rm.action("LastMessage")
        assert answer.reply.body is None
        assert answer.reply.ack.ranges == ((1, 2),)
    assert answers[0].reply.message_id == answers[1].reply.message_id
    end = source.speak.terminate(mine, headers=source.speak.acknowledgement_header(offered, (1, 2)))
    for answer in (source.post(end), source.post(end)):
        assert answer.status == 200
        assert answer.reply.body_name == "TerminateSequence"
        assert offered.encode() in answer.body
        assert answer.reply.ack.identifier == mine
    assert outgoing(source, offered)["state"] == "terminated"


@pytest.mark.spec("S-TRM-004")
@in_1_0
def test_what_is_not_acknowledged_is_not_terminated_in_1_0(source: Source) -> None:
    mine, offered = offering(source)
    source.echo(mine, 1, "one")
    source.post(source.speak.last_message(mine, 2))
    answer = source.terminate(mine)
    assert (answer.status, answer.body) == (202, b"")
    assert outgoing(source, offered)["state"] == "closed"
    assert source.post(source.speak.acknowledgement(offered, (1, 1))).status == 202
    ended = source.post(source.speak.acknowledgement(offered, (1, 2)))
    assert ended.status == 200
    assert (ended.reply.body_name, ended.text("Identifier")) == ("TerminateSequence", offered)
    assert outgoing(source, offered)["state"] == "terminated"


@pytest.mark.spec("S-SND-008")
@in_1_0
def test_the_reply_to_a_request_that_is_the_last_message_is_the_last_reply(source: Source) -> None:
    mine, offered = offering(source)
    assert place(source.echo(mine, 1, "one")) == (offered, 1, False)
    request = source.speak.echo(mine, 2, "two", last=True)
    first, again = source.post(request), source.post(request)
    assert place(first) == place(again) == (offered, 2, True)


# security


@pytest.mark.spec("SEC-003")
@each_rm
def test_another_principal_neither_acknowledges_nor_ends_what_is_not_its_own(
    server: OrdersServer, speak: Orders
) -> None:
    with (
        Source(server, speak, fields=("X-User: alice",)) as alice,
        Source(server, speak, fields=("X-User: bob",)) as bob,
    ):
        mine, offered = offering(alice)
        alice.echo(mine, 1, "one")
        before = outgoing(alice, offered)
        fault = bob.post(speak.acknowledgement(offered, (1, 1))).reply.fault
        assert fault is not None
        assert fault.subcode == "UnknownSequence"
        bob.terminate(offered)
        assert outgoing(alice, offered) == before


@pytest.mark.spec("SEC-003")
@each_rm
def test_what_comes_to_another_service_or_in_another_version_says_nothing_of_an_offered_sequence(
    server: OrdersServer, source: Source
) -> None:
    mine, offered = offering(source)
    source.echo(mine, 1, "one")
    before = outgoing(source, offered)
    (other,) = (Orders(*versions) for versions in OPPOSITES if versions[0] is not source.speak.rm)
    with Source(server, source.speak, "/plain") as elsewhere, Source(server, other) as otherwise:
        for stranger in (elsewhere, otherwise):
            fault = stranger.post(stranger.speak.acknowledgement(offered, (1, 1))).reply.fault
            assert fault is not None
            assert fault.subcode == "UnknownSequence"
            stranger.terminate(offered)
    assert outgoing(source, offered) == before
