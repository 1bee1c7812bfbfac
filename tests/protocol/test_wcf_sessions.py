"""The sessions that Microsoft publishes of WCF clients (two-way: MS-WSRVCRR 4.1 and 4.2), as they send them.

What it refuses is checked as its published source has it: a reply without an acknowledgement, the answer to another
request than its own, TerminateSequence from this side in 1.1, a Final acknowledgement before it has closed.
"""

from __future__ import annotations

import uuid

import pytest

from tests.support.orders import ECHO, PUT_ORDER, Orders, echo, put_order
from tests.support.orders_server import OrdersServer
from tests.support.source import Source
from wsrm_mq.testing import HTTPAnswer
from wsrm_mq.versions import WSA_2005, WSRM_1_0, WSRM_1_1, RMVersion, SOAPVersion

TO = "http://localhost/RMD"


class WCF:
    """A client that writes what the published session writes. ``offered`` is its sequence for the replies."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self.rm = source.speak.rm
        self.offered = uuid.uuid4().urn
        self.identifier = ""

    def post(self, action: str, headers: str, body: str, *, message_id: bool = True) -> HTTPAnswer:
        must = ' s:mustUnderstand="1"'
        identity = f"<a:MessageID>{uuid.uuid4().urn}</a:MessageID>" if message_id else ""
        return self.source.post(
            f'<?xml version="1.0" encoding="utf-8"?><s:Envelope xmlns:s="{SOAPVersion.SOAP_1_2.namespace}" '
            f'xmlns:r="{self.rm.namespace}" xmlns:a="{WSA_2005.namespace}"><s:Header>{headers}'
            f"<a:Action{must}>{action}</a:Action>{identity}<a:To{must}>{TO}</a:To></s:Header>"
            f"<s:Body>{body}</s:Body></s:Envelope>".encode()
        )

    def create(self, *, two_way: bool = True) -> HTTPAnswer:
        anonymous = f"<a:Address>{WSA_2005.anonymous}</a:Address>"
        more = (
            ""
            if self.rm is WSRM_1_0
            else (
                f"<Endpoint>{anonymous}</Endpoint>"
                "<IncompleteSequenceBehavior>DiscardFollowingFirstGap</IncompleteSequenceBehavior>"
            )
        )
        offer = f"<Offer><Identifier>{self.offered}</Identifier>{more}</Offer>" if two_way else ""
        answer = self.post(
            self.rm.action("CreateSequence"),
            f"<a:ReplyTo>{anonymous}</a:ReplyTo>",
            f'<CreateSequence xmlns="{self.rm.namespace}"><AcksTo>{anonymous}</AcksTo>{offer}</CreateSequence>',
        )
        created = answer.reply.created
        assert created is not None
        self.identifier = created.identifier
        return answer

    def request(self, number: int, text: str, received: int = 0) -> HTTPAnswer:
        headers = self.acknowledging(received) + self.place(number)
        return self.post(ECHO, headers, echo(text))

    def one_way(self, number: int, text: str) -> HTTPAnswer:
        return self.post(PUT_ORDER, self.place(number), put_order(number, text), message_id=False)

    def place(self, number: int, last: str = "") -> str:
        return (
            f'<r:Sequence s:mustUnderstand="1"><r:Identifier>{self.identifier}</r:Identifier>'
            f"<r:MessageNumber>{number}</r:MessageNumber>{last}</r:Sequence>"
        )

    def acknowledging(self, received: int, final: str = "") -> str:
        if not received:
            return ""
        return (
            f"<r:SequenceAcknowledgement><r:Identifier>{self.offered}</r:Identifier>"
            f'<r:AcknowledgementRange Lower="1" Upper="{received}"></r:AcknowledgementRange>{final}'
            "</r:SequenceAcknowledgement>"
        )

    def end(self, local: str, headers: str, last: int | None) -> HTTPAnswer:
        number = "" if last is None else f"<r:LastMsgNumber>{last}</r:LastMsgNumber>"
        body = f"<r:{local}><r:Identifier>{self.identifier}</r:Identifier>{number}</r:{local}>"
        return self.post(self.rm.action(local), headers, body, message_id=self.rm is not WSRM_1_0)


def client(server: OrdersServer, rm: RMVersion) -> Source:
    return Source(server, Orders(rm, SOAPVersion.SOAP_1_2, WSA_2005))


def answered(answer: HTTPAnswer, wcf: WCF, number: int, text: str, upper: int, *, final: bool = False) -> None:
    """As the client wants a reply: of this request, in its place, with an acknowledgement that is Final only when it
    has closed, and at most one header of each kind."""
    assert answer.status == 200
    reply = answer.reply
    assert reply.sequence is not None
    assert (reply.sequence.identifier, reply.sequence.number) == (wcf.offered, number)
    assert text.encode() in answer.body
    assert (reply.ack.identifier, reply.ack.ranges, reply.ack.final) == (wcf.identifier, ((1, upper),), final)
    assert len(answer.elements("Sequence")) == 1


@pytest.mark.spec("D-CRE-033", "H-005", "H-006", "S-ACK-011", versions=("1.1",))
def test_the_published_session_of_1_1(server: OrdersServer) -> None:
    with client(server, WSRM_1_1) as source:
        wcf = WCF(source)
        created = wcf.create().reply.created
        assert created is not None
        assert created.accept == TO
        answered(wcf.request(1, "one"), wcf, 1, "one", 1)
        answered(wcf.request(2, "two", received=1), wcf, 2, "two", 2)
        closed = wcf.end("CloseSequence", wcf.acknowledging(2, "<r:Final></r:Final>"), 2)
        assert closed.reply.body_name == "CloseSequenceResponse"
        assert (closed.reply.ack.ranges, closed.reply.ack.final) == (((1, 2),), True)
        ended = wcf.end("TerminateSequence", wcf.acknowledging(2, "<r:Final></r:Final>"), 2)
        assert ended.reply.body_name == "TerminateSequenceResponse"
        assert wcf.offered.encode() not in ended.body, "it breaks off where its own sequence is terminated from here"
        assert source.store.rows(
            "select state, acknowledged from outbound_sequence where identifier = ?", wcf.offered
        ) == [("terminated", "1-2")]
        doubted = source.store.rows("select 1 from ledger where reason like ?", f"%{wcf.offered}")
        assert doubted == []


@pytest.mark.spec("D-CRE-033", "H-005", "H-006", "S-TRM-004", versions=("1.0",))
def test_the_published_session_of_1_0(server: OrdersServer) -> None:
    with client(server, WSRM_1_0) as source:
        wcf = WCF(source)
        created = wcf.create().reply.created
        assert created is not None
        assert created.accept == TO
        answered(wcf.request(1, "one"), wcf, 1, "one", 1)
        answered(wcf.request(2, "two", received=1), wcf, 2, "two", 2)
        headers = wcf.acknowledging(2) + wcf.place(3, "<r:LastMessage></r:LastMessage>")
        last = wcf.post(WSRM_1_0.action("LastMessage"), headers, "", message_id=False)
        answered(last, wcf, 3, "", 3)
        assert last.reply.sequence is not None
        assert last.reply.sequence.last
        assert last.reply.action == WSRM_1_0.action("LastMessage")
        ended = wcf.end("TerminateSequence", wcf.acknowledging(3), None)
        assert ended.reply.body_name == "TerminateSequence"
        assert wcf.offered.encode() in ended.body
        assert ended.reply.ack.ranges == ((1, 3),)


def acknowledged(answer: HTTPAnswer, wcf: WCF, upper: int, *, final: bool = False) -> None:
    """As a one-way client wants an answer: 200 with one acknowledgement, of this message and all before it."""
    assert answer.status == 200
    assert (answer.reply.ack.identifier, answer.reply.ack.ranges) == (wcf.identifier, ((1, upper),))
    assert answer.reply.ack.final is final
    assert answer.reply.sequence is None


@pytest.mark.spec("D-ACK-029", "D-CLO-002", "D-TRM-003", "H-001", "H-017", versions=("1.1",))
def test_a_one_way_session_of_1_1(server: OrdersServer) -> None:
    with client(server, WSRM_1_1) as source:
        wcf = WCF(source)
        created = wcf.create(two_way=False).reply.created
        assert created is not None
        assert created.accept is None
        for number in (1, 2):
            acknowledged(wcf.one_way(number, "text"), wcf, number)
        acknowledged(wcf.one_way(1, "text"), wcf, 2)
        closed = wcf.end("CloseSequence", "", 2)
        acknowledged(closed, wcf, 2, final=True)
        assert closed.reply.body_name == "CloseSequenceResponse"
        ended = wcf.end("TerminateSequence", "", 2)
        acknowledged(ended, wcf, 2, final=True)
        assert ended.reply.body_name == "TerminateSequenceResponse"
        assert source.delivered(wcf.identifier) == [1, 2]


@pytest.mark.spec("D-ACK-029", "D-LST-004", "D-TRM-002", "H-001", versions=("1.0",))
def test_a_one_way_session_of_1_0(server: OrdersServer) -> None:
    with client(server, WSRM_1_0) as source:
        wcf = WCF(source)
        wcf.create(two_way=False)
        for number in (1, 2):
            acknowledged(wcf.one_way(number, "text"), wcf, number)
        last = wcf.place(3, "<r:LastMessage></r:LastMessage>")
        for _ in range(2):
            acknowledged(wcf.post(WSRM_1_0.action("LastMessage"), last, "", message_id=False), wcf, 3)
        ended = wcf.end("TerminateSequence", "", None)
        assert (ended.status, ended.body) == (202, b"")
        assert source.delivered(wcf.identifier) == [1, 2]


@pytest.mark.spec("H-009", "S-RET-003")
@pytest.mark.parametrize("rm", [WSRM_1_0, WSRM_1_1], ids=["rm1.0", "rm1.1"])
def test_a_request_gets_no_other_reply_than_its_own_whatever_is_not_acknowledged(
    server: OrdersServer, rm: RMVersion
) -> None:
    """The client takes whatever comes for the answer to what it has just sent."""
    with client(server, rm) as source:
        wcf = WCF(source)
        wcf.create()
        for number in (1, 2, 3):
            answered(wcf.request(number, f"text {number}"), wcf, number, f"text {number}", number)
        answered(wcf.request(2, "text 2"), wcf, 2, "text 2", 3)
        asked = source.ask(wcf.identifier)
        assert asked.reply.sequence is None
        assert asked.reply.body is None
