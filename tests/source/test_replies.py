"""Requests that are replied to, on the response: each is sent until its reply is in the store."""

from __future__ import annotations

import pytest

from tests.source.conftest import Open, Source
from tests.source.partner import ACTION, LOST, THERE, Partner, envelope
from tests.source.test_acknowledgements import ONE
from wsrm_mq.errors import NotFound, Pending
from wsrm_mq.events.telling import Event
from wsrm_mq.outbound.posting import Answer
from wsrm_mq.sequence.faults import CreateSequenceRefused, UnknownSequence
from wsrm_mq.source import Sent
from wsrm_mq.testing import Reply


def ask(source: Source, what: str = "two seats") -> Sent:
    return source.ask(envelope(source.partner.speak, what), to=THERE, action=ACTION)


def replying(partner: Partner, received: Reply, text: str = "done", *, acknowledges: bool = True) -> Answer:
    partner.answer(received)
    said = partner.speak.acknowledgement_header(ONE, *partner.ack(ONE).ranges) if acknowledges else ""
    relates = f"<wsa:RelatesTo>{received.message_id}</wsa:RelatesTo>"
    return partner.answered(200, partner.speak.envelope(f"{ACTION}Response", f"<r>{text}</r>", headers=said + relates))


def echo(partner: Partner, **options: bool) -> None:
    partner.says = lambda received: (
        None
        if received.body is None or received.sequence is None
        else replying(partner, received, received.body.text, **options)
    )


@pytest.mark.parametrize("acknowledges", [True, False], ids=["acknowledged", "only replied to"])
def test_the_reply_on_the_response_is_given(source: Source, partner: Partner, acknowledges: bool) -> None:
    echo(partner, acknowledges=acknowledges)
    sent = [ask(source, one) for one in ("a", "b")]
    for one, text in zip(sent, "ab", strict=True):
        reply = source.reply(one, 5)
        assert (reply.status, Reply.parse(reply.content).body.text) == (200, text)
        assert source.replies(one.message_id) == reply
    assert partner.speak.anonymous.encode() in partner.bodies[1]
    assert source.states()[0][2] == "1-2"
    assert source.end(THERE, 5)
    assert partner.within(lambda: partner.saying("TerminateSequence"))


@pytest.mark.spec("S-CRE-004", "S-CRE-005")
def test_replies_in_the_offered_sequence_are_acknowledged_with_what_leaves_next(
    open_source: Open, partner: Partner
) -> None:
    """Also with the end. Of what the destination asks about that sequence nothing is said to be unknown."""
    told: list[object] = []
    source = open_source(on_event=lambda event: told.append(event.name))
    offered, endpoint = "", partner.speak.rm.has_close

    def numbered(received: Reply) -> Answer | None:
        nonlocal offered
        if received.action == partner.speak.rm.action("CreateSequence"):
            offered = received.body.findtext("{*}Offer/{*}Identifier")
            assert (received.body.findtext("{*}Offer/{*}Endpoint/{*}Address") == partner.speak.anonymous) is endpoint
        if received.sequence is None or received.action != ACTION:
            return None
        partner.answer(received)
        relates = f"<wsa:RelatesTo>{received.message_id}</wsa:RelatesTo>"
        number, action = received.sequence.number, f"{ACTION}Response"
        body = partner.speak.message(
            offered, number, "<r/>", action=action, ack_requested=True, headers=relates, reply_to=None
        )
        return partner.answered(200, body)

    partner.says = numbered
    for _ in range(2):
        source.reply(ask(source), 5)
    assert source.end(THERE, 5)
    assert partner.within(lambda: partner.saying("TerminateSequence"))
    assert offered.startswith("urn:uuid:")
    acknowledged = [(one.identifier, one.ranges) for received in partner.received for one in received.acks]
    assert acknowledged[:2] == [(offered, ((1, 1),)), (offered, ((1, 2),))]
    assert "ack_requested.unknown" not in told


@pytest.mark.peer("P-10")
def test_a_server_that_takes_no_offer_replies_in_a_sequence_of_its_own(source: Source, partner: Partner) -> None:
    """It asks for that in the place of the first reply, and is told nothing; the reply comes with the next sending."""
    refusal = partner.fault(CreateSequenceRefused("No offer is taken."))
    asks = [partner.speak.create_sequence(message_id="urn:its:own")]

    def says(received: Reply) -> Answer | None:
        if received.action == partner.speak.rm.action("CreateSequence"):
            return None if received.body.find("{*}Offer") is None else refusal
        if received.action != ACTION or received.sequence is None:
            return None
        partner.answer(received)
        if asks:
            return partner.answered(200, asks.pop())
        headers = partner.speak.acknowledgement_header(ONE, *partner.ack(ONE).ranges)
        headers += f"<wsa:RelatesTo>{received.message_id}</wsa:RelatesTo>"
        number, action = received.sequence.number, f"{ACTION}Response"
        return partner.answered(
            200, partner.speak.message("urn:its:own", number, "<r/>", action=action, headers=headers, reply_to=None)
        )

    partner.says = says
    sent = [ask(source, "a")]
    assert source.in_time()
    sent.append(ask(source, "b"))
    assert [source.reply(one, 5).status for one in sent] == [200, 200]
    assert [Reply.parse(source.reply(one, 0).content).sequence[:2] for one in sent] == [
        *(("urn:its:own", 1), ("urn:its:own", 2))
    ]
    assert partner.places == [(ONE, 1), (ONE, 1), (ONE, 2)]
    assert all(one.acks == () for one in partner.received), "nothing was offered, so nothing is acknowledged"


@pytest.mark.peer("P-13")
def test_where_a_program_ends_its_sequence_after_two_requests_the_one_for_replies_ends_too(
    source: Source, partner: Partner
) -> None:
    """The last acknowledgement goes with the end; what follows has another pair of sequences."""
    offers: list[str] = []
    rm = partner.speak.rm

    def says(received: Reply) -> Answer | bytes | None:
        if received.action == rm.action("CreateSequence"):
            offers.append(received.body.findtext("{*}Offer/{*}Identifier"))
        if received.action == rm.action("TerminateSequence") and not rm.has_close:
            return partner.speak.terminate(offers[-1])
        if received.sequence is None or received.action != ACTION:
            return None
        partner.answer(received)
        headers = f"<wsa:RelatesTo>{received.message_id}</wsa:RelatesTo>"
        number, action = received.sequence.number, f"{ACTION}Response"
        last = number == 2 and rm.has_last_message
        return partner.answered(
            200,
            partner.speak.message(
                *(offers[-1], number, "<r/>"), action=action, headers=headers, last=last, reply_to=None
            ),
        )

    partner.says = says
    for _ in range(2):
        source.reply(ask(source), 5)
    assert source.end(THERE, 5)
    assert partner.within(lambda: partner.saying("TerminateSequence"))
    (end,) = partner.saying("TerminateSequence")
    assert [(one.identifier, one.ranges) for one in end.acks] == [(offers[0], ((1, 2),))]
    source.reply(ask(source), 5)
    assert len(set(offers)) == 2
    assert partner.places[-1] == ("urn:there:2", 1)
    assert [state for state, *_ in source.states()] == ["terminated", "created"]


@pytest.mark.spec("S-CRE-006")
def test_a_request_that_is_replied_to_begins_a_sequence_with_an_offer_and_one_way_requests_follow_in_it(
    source: Source, partner: Partner
) -> None:
    """The destination has not accepted the offer: replies come without numbers."""
    partner.says = lambda received: replying(partner, received) if b">b<" in partner.bodies[-1] else None
    source.send(envelope(partner.speak, "a"), to=THERE, action=ACTION)
    assert source.flush(5)
    asked = ask(source, "b")
    source.send(envelope(partner.speak, "c"), to=THERE, action=ACTION)
    assert source.in_time()
    assert source.reply(asked, 0).status == 200
    assert [number for _identifier, number in partner.places] == [1, 1, 2]
    assert [b"Offer>" in body for body in partner.bodies if b"CreateSequence>" in body] == [False, True]


def test_a_request_that_is_acknowledged_and_not_replied_to_is_in_doubt_when_its_sequence_is_lost(
    source: Source, partner: Partner
) -> None:
    asked = ask(source)
    assert partner.within(lambda: source.states()[0][2] == "1")
    assert source.at_rest()
    gone = partner.fault(UnknownSequence("It was restarted.", ONE))
    partner.says = lambda received: (
        None
        if received.sequence is None
        else gone
        if received.sequence.identifier == ONE
        else replying(partner, received)
    )
    source.pass_time(3)
    assert source.reply(asked, 5).status == 200
    assert source.ledger("requests_in_doubt") == [f"acknowledged and not replied to: 1 of {ONE}"]


def test_a_destination_that_refuses_an_offer_which_it_has_accepted_before_is_made_another_one(
    source: Source, partner: Partner
) -> None:
    """Metro does, where its answer to the first CreateSequence was lost."""
    offers: list[str] = []
    refusal = partner.fault(CreateSequenceRefused("The offered sequence is there already."))

    def says(received: Reply) -> Answer | Exception | None:
        if received.action != partner.speak.rm.action("CreateSequence"):
            return None if received.sequence is None else replying(partner, received)
        offers.append(received.body.findtext("{*}Offer/{*}Identifier"))
        return LOST if len(offers) == 1 else refusal if offers.count(offers[-1]) > 1 else None

    partner.says = says
    sent = [ask(source), ask(source)]
    assert source.in_time()
    assert [source.reply(one, 0).status for one in sent] == [200, 200]
    assert (source.dead, len(set(offers))) == ([], 2)


@pytest.mark.parametrize("form", ["bare", "fault"])
def test_a_destination_that_takes_no_offer_is_asked_without_one_and_that_is_told(
    open_source: Open, partner: Partner, form: str
) -> None:
    told: list[Event] = []
    source = open_source(on_event=told.append)
    bad = partner.answered(400)
    if form == "fault":
        bad = partner.fault(CreateSequenceRefused("No offer is understood."), 400)

    def says(received: Reply) -> Answer | None:
        if received.action != partner.speak.rm.action("CreateSequence"):
            return None if received.body_name != "put" else replying(partner, received)
        return None if received.body.find("{*}Offer") is None else bad

    partner.says = says
    sent = [ask(source), ask(source)]
    assert source.in_time()
    assert [source.reply(one, 0).status for one in sent] == [200, 200]
    later = ask(source)
    assert source.reply(later, 5).status == 200
    assert [number for _sequence, number in partner.places] == [1, 2, 3], "and no other sequence follows"
    assert partner.within(lambda: told)
    (event,) = told
    assert event.name == "source.carried_on"
    assert "without an offer of one for replies, as it was refused: http://partner.example/orders" in event.detail
    assert source.dead == []


@pytest.mark.spec("S-RET-011")
def test_it_is_sent_again_although_it_is_acknowledged_until_it_is_replied_to(source: Source, partner: Partner) -> None:
    sent = ask(source)
    assert partner.within(lambda: source.states()[0][2] == "1")
    source.end(THERE, 0)
    with pytest.raises(Pending, match=sent.message_id):
        source.reply(sent, 0.05)
    assert source.replies(sent.message_id) is None
    assert partner.saying("TerminateSequence") == []
    echo(partner)
    source.pass_time(3)
    assert Reply.parse(source.reply(sent, 5).content).body.text == "two seats"
    first, second = (body for body in partner.bodies if b"two seats" in body)
    assert first == second
    last = partner.speak.rm.has_last_message
    assert partner.within(lambda: source.flush(0) and partner.saying("TerminateSequence")), last


@pytest.mark.spec("S-ACK-014")
def test_a_reply_is_given_although_its_acknowledgement_is_wrong(source: Source, partner: Partner) -> None:
    wrong = partner.speak.acknowledgement_header(ONE, (7, 9))
    reply = partner.speak.envelope(f"{ACTION}Response", "<r>done</r>", headers=wrong)
    partner.says = lambda received: None if received.sequence is None else reply
    sent = ask(source)
    assert Reply.parse(source.reply(sent, 5).content).body.text == "done"
    assert source.states()[0][2] == "1"


def none_left(partner: Partner, headers: str = "", status: int = 500, code: str = "Client.NoStock") -> Answer:
    """A fault with these headers."""
    soap_1_1 = f"<soap:Fault><faultcode>soap:{code}</faultcode><faultstring>none left</faultstring></soap:Fault>"
    value, _, sub = code.partition(".")
    soap_1_2 = (
        f"<soap:Fault><soap:Code><soap:Value>soap:{'Sender' if value == 'Client' else value}</soap:Value>"
        f"<soap:Subcode><soap:Value>{sub}</soap:Value></soap:Subcode></soap:Code><soap:Reason>"
        '<soap:Text xml:lang="en">none left</soap:Text></soap:Reason></soap:Fault>'
    )
    body = soap_1_1 if partner.speak.soap.label == "1.1" else soap_1_2
    return partner.answered(
        status, partner.speak.envelope(partner.speak.addressing.soap_fault_action, body, headers=headers)
    )


@pytest.mark.parametrize("shown", ["acknowledgement", "RelatesTo"])
def test_a_fault_of_the_application_is_its_reply(source: Source, partner: Partner, shown: str) -> None:
    def says(received: Reply) -> Answer | None:
        if received.sequence is None:
            return None
        acknowledgement = partner.speak.acknowledgement_header(ONE, (1, 1))
        relates = f"<wsa:RelatesTo>{received.message_id}</wsa:RelatesTo>"
        return none_left(partner, acknowledgement if shown == "acknowledgement" else relates)

    partner.says = says
    reply = source.reply(ask(source), 5)
    assert reply.status == 500
    assert b"none left" in reply.content
    assert source.dead == []


@pytest.mark.parametrize("said", ["nothing", "another acknowledgement", "a filter's fault", "503", "429"])
def test_a_fault_that_does_not_show_that_the_request_has_come_is_no_reply(
    source: Source, partner: Partner, said: str
) -> None:
    """A gateway writes it. What is behind the request waits for it there; so it is sent again."""
    faults = 2

    def says(received: Reply) -> Answer | None:
        nonlocal faults
        if received.sequence is None or (received.sequence.number == 1 and not faults):
            return None if received.sequence is None else replying(partner, received, "done")
        if received.sequence.number == 2:
            return replying(partner, received, "later")
        faults -= 1
        relates = f"<wsa:RelatesTo>{received.message_id}</wsa:RelatesTo>"
        if said.isdigit():
            return none_left(partner, status=int(said), code="Server.Busy")
        if said == "another acknowledgement":
            return none_left(partner, relates + partner.speak.acknowledgement_header(ONE, (2, 2)))
        if said == "a filter's fault":
            return none_left(partner, relates, code="Client.FailedAuthentication")
        return none_left(partner)

    partner.says = says
    sent = [ask(source, "a"), ask(source, "b")]
    assert partner.within(lambda: faults < 2)
    assert source.in_time()
    assert [Reply.parse(source.reply(one, 0).content).body.text for one in sent] == ["done", "later"]
    assert partner.places.count((ONE, 1)) == 3
    failures = source.rows("SELECT failures FROM entry WHERE lane IS NOT NULL ORDER BY failures DESC LIMIT 1")
    assert failures == [(0 if said.isdigit() else 2,)]


def test_a_reply_to_something_else_is_none(source: Source, partner: Partner) -> None:
    stray = partner.speak.envelope(
        f"{ACTION}Response", "<r>other</r>", headers="<wsa:RelatesTo>urn:another</wsa:RelatesTo>"
    )
    strays = [stray]
    partner.says = lambda received: (
        None if received.sequence is None else strays.pop() if strays else replying(partner, received)
    )
    sent = ask(source)
    assert partner.within(lambda: not strays)
    assert source.at_rest()
    with pytest.raises(Pending):
        source.reply(sent, 0.05)
    source.pass_time(3)
    assert Reply.parse(source.reply(sent, 5).content).body.text == "done"


def test_after_a_restart_the_reply_is_what_a_dead_future_would_have_got(open_source: Open, partner: Partner) -> None:
    first = open_source()
    partner.says = lambda _received: LOST
    sent = ask(first)
    first.close()
    echo(partner)
    second = open_source()
    assert second.in_time()
    reply = second.replies(sent.message_id)
    assert reply is not None
    assert Reply.parse(reply.content).body.text == "two seats"
    with pytest.raises(NotFound, match="urn:never"):
        second.replies("urn:never")


def test_a_request_without_a_reply_has_none(source: Source, partner: Partner) -> None:
    sent = source.send(envelope(partner.speak), to=THERE, action=ACTION)
    assert source.flush(5)
    with pytest.raises(NotFound, match="has no reply"):
        source.reply(sent, 1)
