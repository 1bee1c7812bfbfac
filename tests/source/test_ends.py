"""How sequences of requests end, by this side, by their partner, by the clock; and what goes on behind them."""

from __future__ import annotations

import time

import pytest

from tests.source.conftest import Open, Source
from tests.source.partner import ACTION, LOST, THERE, Partner, Said, envelope, text
from tests.source.test_acknowledgements import ONE, sent_in_vain, silent
from tests.source.test_replies import none_left
from tests.source.test_sending import send
from wsrm_mq.envelope.fault import fault as rendered
from wsrm_mq.envelope.render import sequence_acknowledgement
from wsrm_mq.outbound.posting import Answer
from wsrm_mq.queue.policy import Resend
from wsrm_mq.sequence.elements import SequenceAcknowledgement
from wsrm_mq.sequence.faults import (
    ActionNotSupported,
    CreateSequenceRefused,
    SequenceClosed,
    SequenceTerminated,
    UnknownSequence,
)
from wsrm_mq.source.acts import act, close, terminate
from wsrm_mq.testing import Reply
from wsrm_mq.versions import WSRM_1_1, SOAPVersion

TWO = "urn:there:2"


@pytest.mark.spec("S-CRE-010")
@pytest.mark.parametrize("form", ["as it is", "only a SequenceFault", "not spoken there"])
def test_a_refused_sequence_is_told_and_its_messages_are_dead_letters(
    source: Source, partner: Partner, form: str
) -> None:
    what = ActionNotSupported("no") if form == "not spoken there" else CreateSequenceRefused("no more of them")
    refusing = partner.fault(what)
    if form == "only a SequenceFault" and partner.speak.soap is SOAPVersion.SOAP_1_1:
        code = b"<faultcode>soap:Client</faultcode>"
        content = refusing.content.partition(b"<faultcode")[0] + code + refusing.content.partition(b"</faultcode>")[2]
        refusing = refusing._replace(content=content)
    partner.says = lambda received: refusing if received.sequence is None else None
    send(source, "a", "b")
    assert partner.within(lambda: len(source.dead) == 2)
    assert {one.reason for one in source.dead} == {"sequence_refused"}
    assert all(THERE in (one.error or "") for one in source.dead)
    assert {state for state, *_ in source.states()} == {"failed"}
    assert source.flush(0)
    partner.says = lambda _received: None
    send(source, "c")
    assert source.flush(5)
    assert partner.texts() == ["c"]


def test_a_refusal_for_now_is_asked_again(source: Source, partner: Partner) -> None:
    busy = [partner.fault(CreateSequenceRefused("too many", ours=True))] if partner.speak.soap.label == "1.2" else []
    busy += [partner.answered(404), partner.answered(202)]
    partner.says = lambda _received: busy.pop(0) if busy else None
    send(source, "a")
    assert source.in_time(step=5)
    assert (source.dead, busy) == ([], [])


@pytest.mark.parametrize("code", ["Client.EndpointUnavailable", "EndpointUnavailable"])
def test_an_endpoint_that_is_unavailable_has_refused_nothing(source: Source, partner: Partner, code: str) -> None:
    """In SOAP 1.1 the code of WS-Addressing is all that there is."""
    busy = [none_left(partner, code=code), none_left(partner, code=code)]
    partner.says = lambda _received: busy.pop(0) if busy else None
    send(source, "a")
    assert source.in_time(step=5)
    assert len({one.message_id for one in partner.saying("CreateSequence")}) == 1
    assert (source.dead, busy, partner.texts()) == ([], [], ["a"])


def test_a_hold_keeps_nothing_of_a_sequence_that_is_terminated(source: Source, partner: Partner) -> None:
    partner.says = lambda _received: LOST
    send(source, "a", "b")
    source._engine.store.call(lambda tx: act(tx, "hold", THERE, actor="ann", reason="they move"))
    source.terminate(THERE)
    assert partner.within(lambda: [one.reason for one in source.dead] == ["terminated_by_operator"] * 2)
    assert source.flush(0)


def test_what_is_closed_in_the_transaction_that_terminates_it_is_not_said_to_go_on(
    source: Source, partner: Partner
) -> None:
    partner.says = lambda _received: LOST
    send(source, "a")
    source._engine.store.call(lambda tx: (terminate(tx, THERE), close(tx, THERE)))
    source.nudge()
    assert partner.within(lambda: [one.reason for one in source.dead] == ["terminated_by_operator"])


def test_closing_a_sequence_that_its_destination_has_not_created_leaves_nothing_behind(
    source: Source, partner: Partner
) -> None:
    partner.says = lambda _received: LOST
    send(source, "a", "b")
    source.close_sequence(THERE)
    send(source, "c")
    partner.says = lambda _received: None
    source.try_now()
    assert source.in_time()
    assert partner.texts() == ["a", "b", "c"]
    assert source.dead == []


def test_closing_has_what_has_not_left_yet_go_on_in_order(source: Source, partner: Partner) -> None:
    partner.takes = lambda received: received.sequence is None or received.sequence[:2] == (ONE, 1)
    send(source, *map(str, range(20)))
    assert partner.within(lambda: len(partner.places) >= 8)
    assert source.at_rest()
    source.close_sequence(THERE)
    send(source, "20")
    partner.takes = lambda _received: True
    assert source.in_time(20)
    assert list(dict.fromkeys(partner.texts())) == [*map(str, range(21))]
    assert {number for identifier, number in partner.places if identifier != ONE} == set(range(1, 21))


@pytest.mark.parametrize("said", ["fault", "401", "403"])
def test_credentials_that_are_refused_refuse_nothing_that_waits(source: Source, partner: Partner, said: str) -> None:
    """More often than the ladder has steps, at last each ten minutes."""
    refusal = none_left(partner, code="Client.FailedAuthentication")
    if said != "fault":
        refusal = partner.answered(int(said))
    partner.says = lambda _received: refusal
    send(source, "a", "b")
    for count in range(1, 14):
        assert partner.within(lambda count=count: len(partner.saying("CreateSequence")) >= count)
        assert source.at_rest()
        source.pass_time(600)
    assert (source.dead, source.waiting) == ([], 2)
    partner.says = lambda _received: None
    assert source.in_time(step=600)
    assert partner.texts() == ["a", "b"]


def test_credentials_that_are_refused_refuse_nothing_where_the_ladder_is_short(
    open_source: Open, partner: Partner
) -> None:
    source = open_source(resend=Resend((1_000, 5_000)))
    partner.says = lambda _received: partner.answered(401)
    send(source, "a", "b")
    for count in range(1, 6):
        assert partner.within(lambda count=count: len(partner.saying("CreateSequence")) >= count)
        assert source.at_rest()
        source.pass_time(5)
    assert (source.dead, source.waiting, source.ledger("sequence_refused")) == ([], 2, [])
    assert len({one.message_id for one in partner.saying("CreateSequence")}) == 1
    partner.says = lambda _received: None
    assert source.in_time()
    assert partner.texts() == ["a", "b"]


def test_a_sequence_is_created_by_an_answer_that_does_not_say_what_it_relates_to(
    source: Source, partner: Partner
) -> None:
    unspecified = f"{partner.speak.addressing.namespace}/unspecified".encode()

    def says(received: Reply) -> Said:
        if received.sequence is not None:
            return None
        return partner.answer(received).replace((received.message_id or "").encode(), unspecified)

    partner.says = says
    send(source, "a")
    assert source.in_time()
    assert partner.places == [(ONE, 1)]


@pytest.mark.parametrize("refuses", [False, True])
def test_an_answer_to_another_create_sequence_is_none_and_is_told(
    open_source: Open, partner: Partner, refuses: bool
) -> None:
    told: list[str] = []
    source = open_source(on_event=lambda event: told.append(event.name))
    relates = "<wsa:RelatesTo>urn:another</wsa:RelatesTo>"

    def says(received: Reply) -> Said:
        if received.sequence is not None:
            return None
        if refuses:
            return none_left(partner, relates)
        return partner.answer(received).replace((received.message_id or "").encode(), b"urn:another")

    partner.says = says
    send(source, "a")
    assert partner.within(lambda: "delivery.failed" in told)
    assert source.at_rest()
    source.nudge()
    assert not partner.within(lambda: len(partner.saying("CreateSequence")) > 1, 0.3)
    assert source.dead == []
    partner.says = lambda _received: None
    source.pass_time(3)
    assert source.in_time()
    assert partner.texts() == ["a"]


@pytest.mark.spec("S-CRE-008", "S-CRE-011", "S-CRE-012")
def test_its_time_is_what_was_granted_and_no_more_than_was_asked_for(open_source: Open, partner: Partner) -> None:
    source = open_source(expires=3600)
    strays = [partner.speak.having().envelope("urn:stray")]
    speak = partner.speak
    stray = partner.answer(Reply.parse(speak.create_sequence(message_id="urn:another")))
    partner.says = lambda received: strays.pop() and stray if strays and received.sequence is None else None
    partner.expires = 7_200_000
    send(source, "a")
    assert partner.within(lambda: len(partner.saying("CreateSequence")) == 1)
    assert source.at_rest()
    assert not source.flush(0.05), "a response to another request creates nothing"
    source.pass_time(3)
    assert source.flush(5)
    assert partner.places == [("urn:there:2", 1)]
    ((expires_at,),) = source.rows("SELECT expires_at FROM outbound_sequence")
    assert expires_at == source.clock.now + 3_600_000


@pytest.mark.spec("S-TRM-008")
def test_at_the_end_of_its_time_the_rest_goes_on_in_another(source: Source, partner: Partner) -> None:
    partner.expires = 600_000
    sent_in_vain(source, partner, 2)
    partner.says = lambda _received: None
    count = len(partner.places)
    source.pass_time(601)
    assert source.flush(5)
    assert [state for state, *_ in source.states()] == ["expired", "created"]
    assert partner.places[count:] in ([(TWO, 1), (TWO, 2)], [(ONE, 1), (TWO, 1)])
    assert source.ledger("requests_in_doubt") == [f"not acknowledged: 1-2 of {ONE}"]
    assert partner.saying("TerminateSequence") == []


@pytest.mark.spec("S-TRM-008")
def test_what_is_sent_when_its_time_is_over_comes_behind_what_it_has_left(source: Source, partner: Partner) -> None:
    partner.expires = 600_000
    sent_in_vain(source, partner, 2)
    partner.says = lambda _received: None
    source.clock.advance(601_000)
    send(source, "late")
    assert source.in_time()
    assert partner.texts()[-3:] == ["0", "1", "late"]


@pytest.mark.spec("S-TRM-008", "S-RET-003")
def test_what_is_acknowledged_as_its_time_passes_is_not_sent_in_another(source: Source, partner: Partner) -> None:
    """The answer is on its way when the time is over: the sequence ends once it is there."""
    partner.expires = 600_000

    def late(received: Reply) -> None:
        if received.sequence is not None:
            source.pass_time(601)
            time.sleep(0.3)
            assert source.states()[0][0] == "created"

    partner.says = late
    send(source, "a")
    assert source.flush(5)
    assert partner.within(lambda: source.states() == [("expired", 1, "1")])
    assert partner.places == [(ONE, 1)]
    assert source.ledger("requests_in_doubt") == []


def test_nothing_leaves_in_the_last_moment_of_a_sequence(source: Source, partner: Partner) -> None:
    partner.expires = 600_000
    sent_in_vain(source, partner, 1)
    partner.says = lambda _received: None
    count = len(partner.places)
    source.pass_time(599.5)
    assert partner.within(lambda: source.rows("SELECT 1 FROM entry WHERE last_error LIKE '%the time of its sequence%'"))
    assert partner.places[count:] == []
    source.pass_time(1)
    assert source.flush(5)
    assert partner.places[count:] == [(TWO, 1)]


@pytest.mark.peer("P-30")
def test_a_sequence_whose_time_is_nearly_over_is_followed_by_another(source: Source, partner: Partner) -> None:
    partner.expires = 600_000
    send(source, "a")
    assert source.flush(5)
    source.pass_time(550)
    send(source, "b")
    assert source.flush(5)
    assert partner.places == [(ONE, 1), (TWO, 1)]


def test_closing_where_the_sequence_is_not_known_has_all_that_waits_go_on(source: Source, partner: Partner) -> None:
    """CXF that was restarted without a store answers requests with an empty 200, and CloseSequence with a response that
    names no sequence. 1.0 has no close."""
    rm = partner.speak.rm
    unknown = partner.speak.envelope(
        rm.action("CloseSequenceResponse"), f'<r:CloseSequenceResponse xmlns:r="{rm.namespace}"/>'
    )

    def forgetful(received: Reply) -> bytes | Answer | None:
        if received.action == rm.action("CloseSequence"):
            return unknown
        return partner.answered(200) if received.sequence is not None and received.sequence.identifier == ONE else None

    partner.says = forgetful
    send(source, "a", "b")
    assert partner.within(lambda: len(partner.places) == 2)
    assert source.at_rest()
    source.close_sequence(THERE)
    assert source.in_time()
    assert partner.places[2:] == [(TWO, 1), (TWO, 2)]
    assert source.ledger("requests_in_doubt") == [f"not acknowledged: 1-2 of {ONE}"]


@pytest.mark.spec("S-CLO-001", "S-CLO-002", "S-CLO-005", "S-CLO-006", "S-RET-012")
def test_closing_tells_what_has_arrived_and_the_rest_goes_on(source: Source, partner: Partner) -> None:
    """1.0 has no close: there all that is not acknowledged goes on."""
    partner.takes = lambda received: received.sequence is not None and received.sequence.number != 2
    partner.says = lambda received: None if received.sequence is None else _taken_in_silence(partner, received)
    send(source, "a", "b", "c")
    assert partner.within(lambda: len(partner.places) == 3)
    assert source.at_rest()
    partner.takes, partner.says = (lambda _received: True), (lambda _received: None)
    source.close_sequence(THERE)
    send(source, "d")
    assert source.flush(5)
    closes = partner.saying("CloseSequence") if partner.speak.rm.has_close else []
    texts = [partner.received[at].body.text for at, place in _all_places(partner) if place[0] == TWO]
    if partner.speak.rm.has_close:
        (close,) = closes
        assert (text(close, "Identifier"), text(close, "LastMsgNumber")) == (ONE, "3")
        assert texts == ["b", "d"]
        assert source.ledger("requests_in_doubt") == [f"not acknowledged: 2 of {ONE}"]
        assert partner.within(lambda: partner.saying("TerminateSequence"))
        assert text(partner.saying("TerminateSequence")[0], "LastMsgNumber") == "3"
    else:
        assert texts == ["a", "b", "c", "d"]
    source.pass_time(8 * 3600)
    assert [place for place in partner.places if place[0] == ONE] == [(ONE, 1), (ONE, 2), (ONE, 3)]


def _taken_in_silence(partner: Partner, received: Reply) -> object:
    partner.answer(received)
    return partner.answered(202)


def _all_places(partner: Partner) -> list[tuple[int, tuple[str, int]]]:
    return [(at, one.sequence[:2]) for at, one in enumerate(partner.received) if one.sequence is not None]


@pytest.mark.spec("S-CLO-004")
def test_a_close_that_is_answered_without_an_acknowledgement_costs_nothing(source: Source, partner: Partner) -> None:
    if not partner.speak.rm.has_close:
        return
    sent_in_vain(source, partner, 2)
    bare = partner.speak.rm.action("CloseSequence")

    def says(received: Reply) -> object:
        if received.action != bare:
            return None
        local = '<wsrm:CloseSequenceResponse xmlns:wsrm="%s"><wsrm:Identifier>%s</wsrm:Identifier>'
        body = local % (partner.speak.rm.namespace, ONE) + "</wsrm:CloseSequenceResponse>"
        return partner.speak.envelope(f"{bare}Response", body)

    partner.says = says  # type: ignore[assignment]
    source.close_sequence(THERE)
    assert source.flush(5)
    assert partner.within(lambda: partner.saying("TerminateSequence"))
    assert partner.places[-2:] == [(TWO, 1), (TWO, 2)]


@pytest.mark.spec("S-TRM-007", "S-RET-013")
def test_a_sequence_is_terminated_at_any_time_and_what_is_unacknowledged_is_a_dead_letter(
    source: Source, partner: Partner
) -> None:
    sent_in_vain(source, partner, 2)
    source.terminate(THERE)
    assert partner.within(lambda: len(source.dead) == 2)
    if partner.speak.rm.has_close:
        assert partner.within(lambda: partner.saying("TerminateSequence"))
        assert partner.saying("CloseSequence") == []
    count = len(partner.received)
    source.pass_time(8 * 3600)
    send(source, "c")
    partner.says = lambda _received: None
    source.try_now()
    assert partner.within(lambda: (TWO, 1) in partner.places)
    assert {place for place in partner.places if place[0] == ONE} == {(ONE, 1), (ONE, 2)}
    assert [one.action for one in partner.received[count:]].count(partner.speak.rm.action("TerminateSequence")) == 0


@pytest.mark.spec("S-TRM-002", "S-TRM-003", "S-TRM-005")
def test_whatever_answers_the_end_it_has_ended(source: Source, partner: Partner) -> None:
    rm = partner.speak.rm
    odd = [LOST, partner.fault(UnknownSequence("gone", ONE))]
    partner.says = lambda received: odd.pop(0) if received.action == rm.action("TerminateSequence") and odd else None
    send(source, "a")
    assert source.end(THERE, 5)
    assert partner.within(lambda: len(partner.saying("TerminateSequence")) == 1)
    assert source.states()[0][0] == "terminated"
    assert source.at_rest()
    source.try_now()
    source.pass_time(61)
    assert partner.within(lambda: len(partner.saying("TerminateSequence")) == 2)
    source.pass_time(3600)
    assert partner.within(lambda: not source.rows("SELECT 1 FROM entry WHERE outcome IS NULL"))
    assert source.dead == []


@pytest.mark.peer("P-47")
@pytest.mark.spec("F-025", "F-026", half="source")
@pytest.mark.parametrize("what", [UnknownSequence, SequenceTerminated, SequenceClosed])
def test_a_partner_that_has_lost_a_sequence_gets_the_rest_in_another_in_order(
    source: Source, partner: Partner, what: type[UnknownSequence]
) -> None:
    """gSOAP does not say which sequence its fault is about."""
    send(source, "a", "b")
    assert source.flush(5)
    silent(partner)
    send(source, "c", "d", "e")
    assert partner.within(lambda: len(partner.places) == 5)
    assert source.at_rest()
    fault = partner.fault(what("It is not here.", ONE))
    if what is UnknownSequence:
        fault = fault._replace(content=fault.content.replace(ONE.encode(), b""))
    partner.says = lambda received: fault if received.sequence is not None and received.sequence[0] == ONE else None
    source.pass_time(3)
    assert source.flush(5)
    assert [place for place in partner.places if place[0] == TWO] == [(TWO, 1), (TWO, 2), (TWO, 3)]
    assert partner.texts()[-3:] == ["c", "d", "e"]
    assert source.ledger("requests_in_doubt") == [f"not acknowledged: 3-5 of {ONE}"]
    (carried,) = source.ledger("carried_on")
    assert carried.startswith(f"3 messages of {ONE}")
    assert source.dead == []


@pytest.mark.spec("F-025", "F-026", half="source")
@pytest.mark.parametrize("what", [UnknownSequence, SequenceTerminated])
def test_a_fault_about_a_sequence_that_has_ended_changes_nothing(
    source: Source, partner: Partner, what: type[UnknownSequence]
) -> None:
    """It comes on the response to the message of another one."""
    send(source, "a")
    assert source.end(THERE, 5)
    assert partner.within(lambda: partner.saying("TerminateSequence"))
    assert source.at_rest()
    fault = partner.fault(what("It is not here.", ONE))
    strays = [fault]
    partner.says = lambda received: strays.pop() if strays and received.sequence is not None else None
    send(source, "b")
    assert source.in_time()
    assert [state for state, *_ in source.states()] == ["terminated", "created"]
    assert set(partner.places[-2:]) == {(TWO, 1)}
    assert (source.dead, source.ledger("carried_on", "requests_in_doubt", "fault_received")) == ([], [])


only_1_1 = pytest.mark.parametrize("rm", [WSRM_1_1], ids=["rm1.1"])


@only_1_1
@pytest.mark.spec("F-028", half="source")
@pytest.mark.spec("S-ACK-011")
@pytest.mark.parametrize("how", ["SequenceClosed", "Final"])
def test_what_its_destination_closes_is_followed_by_another_with_what_the_last_acknowledgement_leaves_out(
    source: Source, partner: Partner, how: str
) -> None:
    """It comes with the fault, or is not asked for at all."""
    sent_in_vain(source, partner, 3)
    speak = partner.speak
    partner.numbers[ONE] = {1, 3}
    final = [SequenceAcknowledgement(ONE, ((1, 1), (3, 3)), final=True)]
    versions = speak.soap, speak.addressing, speak.rm
    closed = {
        "SequenceClosed": partner.answered(500, rendered(SequenceClosed("It is closed.", ONE), *versions, None, final)),
        "Final": partner.answered(200, sequence_acknowledgement(*versions, final)),
    }[how]
    partner.says = lambda received: closed if received.sequence is not None and received.sequence[0] == ONE else None
    source.pass_time(3)
    assert source.flush(5)
    send(source, "x")
    assert source.flush(5)
    assert [place for place in partner.places if place[0] == TWO] == [(TWO, 1), (TWO, 2)]
    assert [one.body.text for one in partner.received if one.sequence and one.sequence[0] == TWO] == ["1", "x"]
    assert source.ledger("requests_in_doubt") == [f"not acknowledged: 2 of {ONE}"]
    assert source.states()[0][1:] == (3, "1,3")


@only_1_1
@pytest.mark.spec("S-ACK-012")
def test_a_second_final_that_says_something_else_is_invalid(
    source: Source, partner: Partner, caplog: pytest.LogCaptureFixture
) -> None:
    sent_in_vain(source, partner, 2)
    finals = [SequenceAcknowledgement(ONE, ((1, last),), final=True) for last in (1, 2)]
    speak = partner.speak
    said = sequence_acknowledgement(speak.soap, speak.addressing, speak.rm, finals)
    partner.says = lambda received: said if received.sequence is not None and received.sequence[0] == ONE else None
    source.pass_time(3)
    assert source.flush(5)
    assert partner.within(lambda: f"acknowledgement.invalid sequence={ONE}" in caplog.text)
    assert source.states()[0][1:] == (2, "1")
    assert [one.body.text for one in partner.received if one.sequence and one.sequence[0] == TWO] == ["1"]


@pytest.mark.peer("P-34")
def test_what_a_program_ends_before_it_stops_is_told_and_nothing_of_it_is_left(
    open_source: Open, partner: Partner
) -> None:
    """In 1.0 by a last message, then the end; the store remembers it for its time, and no longer."""
    first = open_source()
    send(first, "a", "b")
    assert first.end(THERE, 5)
    assert partner.within(lambda: partner.saying("TerminateSequence"))
    first.close()
    assert [one.sequence.last for one in partner.received if one.sequence][-1] is partner.speak.rm.has_last_message
    source = open_source()
    assert (source.waiting, source.states()[0][0]) == (0, "terminated")
    other = "http://other.example/"
    source.send(envelope(partner.speak), to=other, action=ACTION)
    assert source.flush(5)
    assert source.at_rest()
    source.clock.advance(31 * 24 * 3_600_000)
    for _ in range(2):
        source._engine.janitor.sweep()
    assert source.rows("SELECT (SELECT count(*) FROM message), (SELECT count(*) FROM entry)") == [(0, 0)]
    assert source.rows("SELECT peer FROM outbound_sequence") == [(other,)]
    assert source.rows("SELECT DISTINCT address FROM channel") == [(other,)]
    assert len(partner.saying("TerminateSequence")) == 1


def test_what_waits_behind_an_end_goes_on_behind_what_that_has_left(source: Source, partner: Partner) -> None:
    sent_in_vain(source, partner, 2)
    source.end(THERE, 0)
    send(source, "x", "y")
    fault = partner.fault(UnknownSequence("It is not here.", ONE))
    partner.says = lambda received: fault if received.sequence is not None and received.sequence[0] == ONE else None
    source.pass_time(3)
    assert source.flush(5)
    assert partner.texts()[-4:] in (["0", "1", "x", "y"], ["1", "", "x", "y"])
    assert {place[0] for place in partner.places} == {ONE, TWO}


def test_two_destinations_have_nothing_to_do_with_each_other(source: Source, partner: Partner) -> None:
    silent(partner)
    send(source, "a")
    source.send(envelope(partner.speak, "b"), to="http://other.example/", action=ACTION)
    assert partner.within(lambda: len(partner.places) == 2)
    assert {place[0] for place in partner.places} == {ONE, TWO}


@pytest.mark.spec("S-RET-010", "S-SND-004")
@pytest.mark.peer("P-52")
def test_a_new_process_goes_on_where_the_last_one_was(open_source: Open, partner: Partner) -> None:
    first = open_source()
    partner.takes = lambda received: received.sequence is not None and received.sequence.number < 3
    send(first, "a", "b", "c", "d")
    assert partner.within(lambda: first.waiting == 2 and len(partner.places) == 4)
    first.close()
    partner.takes = lambda _received: True
    second = open_source()
    send(second, "e")
    second.pass_time(3)
    assert second.flush(5)
    assert sorted(partner.places[4:]) == [(ONE, 3), (ONE, 4), (ONE, 5)]
    assert set(partner.bodies[3:5]) < set(partner.bodies[5:])
    assert second.end(THERE, 5)
