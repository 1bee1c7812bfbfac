"""An RM Source with an address of its own: there it is acknowledged, replied to, and told of the ends of sequences."""

from __future__ import annotations

import socket
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Final

import pytest
from werkzeug.test import Client

from tests.source.conftest import Open, Source
from tests.source.partner import ACTION, THERE, Partner, envelope
from tests.source.test_acknowledgements import ONE
from tests.source.test_replies import ask
from wsrm_mq.errors import BadRequest, ConfigurationError, Pending
from wsrm_mq.events.telling import Event
from wsrm_mq.outbound.posting import Answer
from wsrm_mq.sequence.faults import UnknownSequence
from wsrm_mq.source import RMSource
from wsrm_mq.testing import WSRM_1_0, WSRM_1_1, HTTPAnswer, HTTPWire, Reply

HERE: Final = "http://here.example/acks"
TWO: Final = "urn:there:2"


@pytest.fixture
def source(open_source: Open) -> Source:
    return open_source(acks_to=HERE, listen=False)


def say(source: Source, body: bytes, path: str = "/acks", method: str = "POST") -> Any:
    """Post to the address of the source; the answer of its endpoint."""
    assert source.endpoint is not None
    return Client(source.endpoint).open(path, method=method, data=body, content_type=source.partner.speak.content_type)


def put(source: Source, what: str = "two seats", to: str = THERE) -> Any:
    return source.send(envelope(source.partner.speak, what), to=to, action=ACTION)


def taking(partner: Partner) -> None:
    """The partner takes messages, and says nothing on responses."""

    def taken(received: Reply) -> Answer | None:
        if received.sequence is None:
            return None
        partner.answer(received)
        return partner.answered(202)

    partner.says = taken


def reply_to(
    partner: Partner,
    request: Reply,
    offered: str | None = None,
    number: int = 1,
    what: str = "done",
    *,
    is_asking: bool = False,
) -> bytes:
    relates = f"<wsa:RelatesTo>{request.message_id}</wsa:RelatesTo>"
    body, action = f"<r>{what}</r>", f"{ACTION}Response"
    if offered is None:
        return partner.speak.envelope(action, body, headers=relates)
    if is_asking:
        relates += partner.speak.ack_requested_header(offered)
    return partner.speak.message(offered, number, body, action=action, headers=relates, reply_to=None)


def is_said(partner: Partner, local: str, *, times: int) -> bool:
    return len(partner.saying(local)) == times


def offered_by(partner: Partner) -> str:
    found = partner.saying("CreateSequence")[-1].body.findtext("{*}Offer/{*}Identifier")
    assert found
    return str(found)


@pytest.mark.spec("S-CRE-001", "S-CRE-004", "S-CRE-013")
def test_acks_to_is_where_a_sequence_is_acknowledged_and_replied_to(source: Source, partner: Partner) -> None:
    """One string is AcksTo, Endpoint of the offer and ReplyTo; the sequence itself is created on the response."""
    taking(partner)
    ask(source)
    assert partner.within(lambda: len(partner.places) == 1)
    (created,) = partner.saying("CreateSequence")
    endpoints = [one.text for one in created.body.iter("{*}Address")]
    assert endpoints == [HERE] * (2 if partner.speak.rm.has_close else 1)
    assert f"{partner.speak.anonymous}</Address></ReplyTo>".encode() in partner.bodies[0]
    assert f"{HERE}</Address></ReplyTo>".encode() in partner.bodies[1]


@pytest.mark.spec("S-ACK-001")
def test_an_acknowledgement_that_is_sent_there_settles_what_it_names(source: Source, partner: Partner) -> None:
    """Nothing of it leaves again. None is asked for on a first sending, as each would be a request of its own."""
    taking(partner)
    sent = [put(source, one) for one in "ab"]
    assert partner.within(lambda: len(partner.places) == 2)
    assert not any(b"AckRequested" in body for body in partner.bodies)
    with pytest.raises(Pending):
        source.wait(sent[0], 0)
    answer = say(source, partner.saying_ack(ONE, (1, 1)))
    assert (answer.status_code, answer.data) == (202, b"")
    source.wait(sent[0], 5)
    source.pass_time(4)
    assert partner.within(lambda: partner.places == [(ONE, 1), (ONE, 2), (ONE, 2)])
    assert b"AckRequested" in partner.bodies[-1]
    say(source, partner.saying_ack(ONE, (1, 2)))
    source.wait(sent[1], 5)


@pytest.mark.spec("S-ACK-013")
def test_one_message_acknowledges_all_sequences_of_that_address(source: Source, partner: Partner) -> None:
    taking(partner)
    put(source)
    assert partner.within(lambda: partner.places == [(ONE, 1)])
    put(source, to="http://other.example/")
    assert partner.within(lambda: partner.places == [(ONE, 1), (TWO, 1)])
    second = partner.speak.acknowledgement_header(TWO, (1, 1))
    first = partner.speak.acknowledgement_header(ONE, (1, 1))
    action = partner.speak.rm.action("SequenceAcknowledgement")
    assert say(source, partner.speak.envelope(action, "", headers=first + second)).status_code == 202
    assert source.waiting == 0


@pytest.mark.spec("S-ACK-002", "S-ACK-010")
@pytest.mark.parametrize(("name", "fault"), [(ONE, "InvalidAcknowledgement"), ("urn:else:1", "UnknownSequence")])
def test_an_acknowledgement_of_what_was_never_sent_is_answered_with_a_fault(
    source: Source, partner: Partner, name: str, fault: str
) -> None:
    taking(partner)
    put(source)
    assert partner.within(lambda: len(partner.places) == 1)
    answer = say(source, partner.saying_ack(name, (1, 9)))
    assert (answer.status_code, Reply.parse(answer.data).fault.subcode) == (500, fault)
    assert source.waiting == 1


@pytest.mark.spec("SEC-003")
def test_a_sequence_that_was_not_told_the_address_is_unknown_there(source: Source, partner: Partner) -> None:
    taking(partner)
    put(source)
    assert partner.within(lambda: partner.places == [(ONE, 1)])
    fields = [("Content-Type", partner.speak.content_type)]
    told = source._heard("http://else.example/", Answer(200, "OK", fields, partner.saying_ack(ONE, (1, 1))))
    assert Reply.parse(told.content).fault.subcode == "UnknownSequence"
    assert source.waiting == 1


@pytest.mark.spec("S-ACK-016", "S-RET-003", "S-RET-011")
def test_a_reply_is_sent_there_and_an_acknowledged_request_is_not_sent_again_for_it(
    source: Source, partner: Partner
) -> None:
    """It comes in the offered sequence, is acknowledged on its response, and with what is sent next."""
    taking(partner)
    sent = ask(source)
    assert partner.within(lambda: len(partner.places) == 1)
    request, offered = partner.received[-1], offered_by(partner)
    say(source, partner.saying_ack(ONE, (1, 1)))
    for _ in range(3):
        source.pass_time(40)
    assert source.at_rest()
    assert partner.places == [(ONE, 1)]
    for _ in range(2):  # its answer may have been lost
        answer = say(source, reply_to(partner, request, offered))
        assert answer.status_code == 200
        assert Reply.parse(answer.data).ack[:2] == (offered, ((1, 1),))
    assert Reply.parse(source.reply(sent, 5).content).body.text == "done"
    ask(source)
    assert partner.within(lambda: len(partner.places) == 2)
    assert [one[:2] for one in partner.received[-1].acks] == [(offered, ((1, 1),))]


@pytest.mark.spec("S-RET-003")
def test_what_has_left_is_asked_for_before_it_leaves_again_where_its_reply_comes_by_itself(
    source: Source, partner: Partner
) -> None:
    """Metro loses the reply to a request of which a copy comes while it is done."""
    taking(partner)
    sent = ask(source)
    assert partner.within(lambda: len(partner.places) == 1)
    assert source.at_rest()
    source.pass_time(40)
    assert partner.within(lambda: source.states()[0][2] == "1")
    assert (len(partner.saying("AckRequested")), partner.places) == (1, [(ONE, 1)])
    assert source.at_rest()
    assert source.rows("SELECT 1 FROM counter WHERE name = 'repeated'") == []
    say(source, reply_to(partner, partner.received[1], offered_by(partner)))
    assert Reply.parse(source.reply(sent, 5).content).body.text == "done"


def test_what_has_not_come_leaves_at_once_when_that_was_asked(source: Source, partner: Partner) -> None:
    taking(partner)
    partner.takes = lambda received: received.sequence.number == 1 or len(partner.places) > 2
    for _ in range(2):
        ask(source)
    assert partner.within(lambda: len(partner.places) == 2)
    assert source.at_rest()
    source.pass_time(40)
    assert partner.within(lambda: partner.places == [(ONE, 1), (ONE, 2), (ONE, 2)])
    actions = [one.action for one in partner.received]
    assert actions[-2:] == [partner.speak.rm.action("AckRequested"), ACTION]


def test_a_reply_is_acknowledged_in_a_request_of_its_own_while_others_are_to_come(
    source: Source, partner: Partner
) -> None:
    """Metro keeps the next one back until then, and does not read it on the response."""
    taking(partner)
    sent = [ask(source) for _ in range(3)]
    assert partner.within(lambda: len(partner.places) == 3)
    assert source.at_rest()
    requests, offered = [one for one in partner.received if one.sequence is not None], offered_by(partner)
    for count, request in enumerate(requests, 1):
        say(source, reply_to(partner, request, offered, count, is_asking=True))
        source.wait(sent[count - 1], 5)
        # No other reply is to come behind the last.
        assert partner.within(partial(is_said, partner, "AckRequested", times=min(count, 2)))
        assert source.at_rest()
    acks = [one.acks[0][:2] for one in partner.saying("AckRequested")]
    assert acks == [(offered, ((1, 1),)), (offered, ((1, 2),))]


def test_a_reply_without_a_sequence_is_taken_and_acknowledges_its_request(source: Source, partner: Partner) -> None:
    taking(partner)
    sent = ask(source)
    assert partner.within(lambda: len(partner.places) == 1)
    assert say(source, reply_to(partner, partner.received[-1])).status_code == 202
    assert Reply.parse(source.reply(sent, 5).content).body.text == "done"
    assert (source.waiting, source.states()[0][2]) == (0, "1")


def test_the_action_that_http_tells_of_a_reply_is_not_compared(source: Source, partner: Partner) -> None:
    """Metro tells that of the request."""
    taking(partner)
    sent = ask(source)
    assert partner.within(lambda: len(partner.places) == 1)
    assert source.endpoint is not None
    body = reply_to(partner, partner.received[-1], offered_by(partner))
    content_type = f'{partner.speak.soap.media_type}; action="{ACTION}";charset=utf-8'
    assert Client(source.endpoint).post("/acks", data=body, content_type=content_type).status_code == 200
    source.wait(sent, 5)


def test_a_reply_on_the_response_is_taken_too(source: Source, partner: Partner) -> None:
    partner.says = lambda received: (
        None if received.sequence is None else partner.answered(200, reply_to(partner, received))
    )
    assert Reply.parse(source.reply(ask(source), 5).content).body.text == "done"


def test_a_reply_in_a_sequence_that_is_not_offered_is_refused(source: Source, partner: Partner) -> None:
    taking(partner)
    ask(source)
    assert partner.within(lambda: len(partner.places) == 1)
    answer = say(source, reply_to(partner, partner.received[-1], "urn:no:offer"))
    assert Reply.parse(answer.data).fault.subcode == "UnknownSequence"
    assert source.waiting == 1


def test_a_fault_of_an_application_is_a_reply(source: Source, partner: Partner) -> None:
    taking(partner)
    sent = ask(source)
    assert partner.within(lambda: len(partner.places) == 1)
    soap = partner.speak.soap.namespace
    fault = f'<s:Fault xmlns:s="{soap}"><faultcode>s:Client</faultcode><faultstring>no</faultstring></s:Fault>'
    relates = f"<wsa:RelatesTo>{partner.received[-1].message_id}</wsa:RelatesTo>"
    headers = relates + partner.speak.acknowledgement_header(ONE, (1, 1))
    body = partner.speak.envelope(partner.speak.addressing.soap_fault_action, fault, headers=headers)
    assert say(source, body).status_code == 202
    assert b"<faultstring>no" in source.reply(sent, 5).content


def test_a_fault_about_the_sequence_has_the_rest_go_on_in_another(source: Source, partner: Partner) -> None:
    taking(partner)
    put(source)
    assert partner.within(lambda: partner.places == [(ONE, 1)])
    assert say(source, partner.fault(UnknownSequence("It is gone.", ONE)).content).status_code == 202
    assert partner.within(lambda: partner.places == [(ONE, 1), (TWO, 1)])


@pytest.mark.spec("S-CLO-003", "S-TRM-006")
@pytest.mark.parametrize(("rm", "end"), [(WSRM_1_0, "terminate"), (WSRM_1_1, "close"), (WSRM_1_1, "terminate")])
def test_a_destination_ends_the_sequence_there_and_the_rest_goes_on_in_another(
    source: Source, partner: Partner, end: str
) -> None:
    taking(partner)
    put(source)
    assert partner.within(lambda: partner.places == [(ONE, 1)])
    answer = say(source, getattr(partner.speak, end)(ONE))
    if partner.speak.rm.has_close:
        local = {"close": "CloseSequenceResponse", "terminate": "TerminateSequenceResponse"}[end]
        assert (answer.status_code, Reply.parse(answer.data).body_name) == (200, local)
    else:
        assert answer.status_code == 202
    put(source, "one more")
    assert partner.within(lambda: (TWO, 1) in partner.places and (TWO, 2) in partner.places)


@pytest.mark.parametrize("rm", [WSRM_1_1])  # 1.0 has no response
def test_the_end_of_the_offered_sequence_is_answered_with_its_acknowledgement(source: Source, partner: Partner) -> None:
    taking(partner)
    sent = ask(source)
    assert partner.within(lambda: len(partner.places) == 1)
    offered = offered_by(partner)
    say(source, reply_to(partner, partner.received[-1], offered))
    source.wait(sent, 5)
    said = Reply.parse(say(source, partner.speak.terminate(offered, 1)).data)
    assert (said.body_name, said.ack) == ("TerminateSequenceResponse", (offered, ((1, 1),), True, False))


def test_another_acks_to_has_open_sequences_closed_and_what_they_lack_go_on(
    open_source: Open, partner: Partner
) -> None:
    """In 1.0, which has no close, what waits there is sent on, and what follows goes in another sequence."""
    taking(partner)
    first = open_source(acks_to="http://former.example/", listen=False)
    put(first, "a")
    assert partner.within(lambda: partner.places == [(ONE, 1)])
    partner.numbers[ONE].clear()
    first.close()
    source = open_source(acks_to=HERE, listen=False)
    put(source, "b")
    if partner.speak.rm.has_close:
        assert partner.within(lambda: partner.saying("CloseSequence"))
        assert partner.within(lambda: (TWO, 2) in partner.places)
        assert partner.texts() == ["a", "a", "b"]
        say(source, partner.saying_ack(TWO, (1, 2)))
        assert source.flush(5)
    assert HERE in [one.text for one in partner.saying("CreateSequence")[-1].body.iter("{*}Address")] or (
        not partner.speak.rm.has_close
    )


def test_an_envelope_with_another_reply_to_is_refused(source: Source, partner: Partner) -> None:
    body = partner.speak.envelope(ACTION, "<p/>", reply_to="http://else.example/")
    with pytest.raises(BadRequest, match=f"replies come to {HERE}: leave it out"):
        source.ask(body, to=THERE)


def test_what_is_no_soap_is_told_and_refused(open_source: Open, partner: Partner) -> None:
    told: list[Event] = []
    source = open_source(acks_to=HERE, listen=False, on_event=told.append)
    assert say(source, b"what?").status_code == 400
    assert say(source, b"<html/>").status_code == 400
    assert say(source, b"").status_code == 400


def test_the_endpoint_answers_its_own_path_and_posts_alone(source: Source) -> None:
    assert say(source, b"", path="/other").status_code == 404
    assert say(source, b"", method="GET").status_code == 405


# the small server


@pytest.fixture
def port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        return int(taken.getsockname()[1])


Post = Callable[..., HTTPAnswer]


@pytest.fixture
def listening(open_source: Open, port: int) -> Source:
    return open_source(acks_to=f"http://127.0.0.1:{port}/acks")


def test_a_source_listens_itself_at_the_host_and_port_of_acks_to(
    listening: Source, partner: Partner, port: int
) -> None:
    taking(partner)
    sent = put(listening)
    assert partner.within(lambda: len(partner.places) == 1)
    body = partner.saying_ack(ONE, (1, 1))
    with HTTPWire(port, "/acks") as wire:
        assert wire.post(body, partner.speak.fields(body)).status == 202
        listening.wait(sent, 5)
        assert wire.post(body, partner.speak.fields(body)).status == 202


def test_it_reads_what_comes_in_chunks_and_refuses_what_it_cannot_read(
    listening: Source, partner: Partner, port: int
) -> None:
    taking(partner)
    put(listening)
    assert partner.within(lambda: len(partner.places) == 1)
    body = partner.saying_ack(ONE, (1, 1))
    lines = "POST /acks HTTP/1.1\r\nHost: here\r\n"
    fields = "".join(f"{name}: {value}\r\n" for name, value in partner.speak.fields(body).items())
    chunked = "Transfer-Encoding: chunked\r\n\r\n"
    half = len(body) // 2
    pieces = b"".join(b"%x\r\n%s\r\n" % (len(one), one) for one in (body[:half], body[half:])) + b"0\r\n\r\n"
    with HTTPWire(port) as wire:
        assert wire.ask((lines + fields + chunked).encode() + pieces).status == 202
        assert wire.ask((lines + chunked).encode() + b"no number\r\n").status == 400
    for said, status in (("Content-Length: many", 400), (f"Content-Length: {17 * 1024 * 1024}", 413)):
        with HTTPWire(port) as wire:
            assert wire.ask(f"{lines}{said}\r\n\r\n".encode()).status == status
    assert listening.waiting == 0


def test_listen_names_another_place_where_what_is_sent_to_acks_to_is_handed_on_to(
    open_source: Open, partner: Partner, port: int
) -> None:
    taking(partner)
    source = open_source(acks_to="https://shop.example/acks", listen=f"127.0.0.1:{port}")
    sent = put(source)
    assert partner.within(lambda: len(partner.places) == 1)
    body = partner.saying_ack(ONE, (1, 1))
    with HTTPWire(port, "/acks") as wire:
        assert wire.post(body, partner.speak.fields(body)).status == 202
    source.wait(sent, 5)


def test_a_port_that_is_taken_says_what_to_do_and_a_store_that_is_left_frees_it(
    listening: Source, tmp_path: Path, port: int
) -> None:
    url = f"http://127.0.0.1:{port}/acks"
    with pytest.raises(ConfigurationError, match="listen=False"):
        RMSource(tmp_path / "other.db", acks_to=url)
    listening.close()
    RMSource(tmp_path / "other.db", acks_to=url).close()


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"acks_to": "here.example"}, "write http://host:port/path"),
        ({"acks_to": "http:///acks"}, "write http://host:port/path"),
        ({"acks_to": "http://here:port/"}, "write http://host:port/path"),
        ({"acks_to": "https://here.example/"}, "listens without TLS"),
        ({"acks_to": HERE, "listen": "8090"}, "write a host and a port"),
        ({"acks_to": HERE, "listen": "127.0.0.1"}, "write a host and a port"),
        ({"listen": "127.0.0.1:8090"}, "say acks_to too"),
    ],
)
def test_an_address_that_cannot_be_used_says_what_to_write(tmp_path: Path, options: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigurationError, match=says):
        RMSource(tmp_path / "outbox.db", **options)
    assert not (tmp_path / "outbox.db").exists()
