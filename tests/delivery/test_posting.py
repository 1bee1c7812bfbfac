"""What leaves in an outbound sequence that answers none is rendered from that alone."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from tests.queue.build import USUAL, add_outbound
from wsrm_mq.delivery.delivery import Delivery, Outcome, deliverable
from wsrm_mq.delivery.hanging import Patient
from wsrm_mq.delivery.hearing import Hearing
from wsrm_mq.delivery.posting import Posting
from wsrm_mq.envelope.render import sequence_acknowledgement
from wsrm_mq.envelope.scan import scan
from wsrm_mq.envelope.stream import Limits
from wsrm_mq.events.telling import Events
from wsrm_mq.outbound.posting import Answer
from wsrm_mq.queue.outbound import give_number
from wsrm_mq.queue.ownership import Claim
from wsrm_mq.queue.sending import OutgoingMessage, send
from wsrm_mq.sequence.elements import EndpointReference, SequenceAcknowledgement, SequenceHeader
from wsrm_mq.store.applications import Serving
from wsrm_mq.store.store import Store
from wsrm_mq.store.transaction import Transaction
from wsrm_mq.versions import WSA_2005, WSRM_1_1, SOAPVersion

OURS = "urn:ours"
THERE = EndpointReference("http://partner.example/orders")
SOAP = SOAPVersion.SOAP_1_2
BODY = (
    f'<s:Envelope xmlns:s="{SOAP.namespace}" xmlns:a="{WSA_2005.namespace}">'
    "<s:Header><a:Action>urn:put</a:Action></s:Header><s:Body/></s:Envelope>"
).encode()


def put(tx: Transaction) -> Claim:
    outbound = add_outbound(tx, OURS, THERE)
    header = give_number(tx, outbound, is_last=False)
    assert header is not None
    message = OutgoingMessage(THERE, "urn:message", "urn:put", SOAP.media_type, BODY)
    claim = send(tx, outbound, message, header.number).claim
    assert claim is not None
    return claim


def never(_delivery: Delivery) -> Outcome:
    raise AssertionError("it is not for the application")


def test_it_has_its_place_and_what_the_answer_acknowledges_is_heard(tmp_path: Path) -> None:
    posted: list[tuple[str, SequenceHeader | None]] = []

    def post(url: str, headers: Mapping[str, str], body: bytes, who: str | None = None) -> Answer:
        posted.append((url, scan(body, headers["Content-Type"], None, Limits()).sequence))
        said = SequenceAcknowledgement(OURS, ((1, 1),))
        content = sequence_acknowledgement(SOAP, WSA_2005, WSRM_1_1, (said,))
        return Answer(200, "OK", [("Content-Type", SOAP.media_type)], content)

    store = Store(tmp_path / "store.db", serving=Serving(sends=True))
    store.open()
    try:
        claim = store.call(put)
        (delivery,) = deliverable(store, claim, 0)
        hearing = Hearing(lambda _partner: USUAL, Events(), lambda _receipt: None)
        outcome = Posting(store, Patient(post), hearing, never)(delivery)
        assert outcome.heard is not None
        store.call(outcome.heard.verb)
        with store.reader() as db:
            (row,) = db.execute("SELECT acknowledged, unacknowledged FROM outbound_sequence").fetchall()
    finally:
        store.close()
    assert outcome.is_sent
    assert posted == [(THERE.address, SequenceHeader(OURS, 1, False))]
    assert row == ("1", 0)
