"""What an RM Source answers at its own address to what it cannot take, in each form that its versions ask for."""

from __future__ import annotations

from typing import Any, Final

import pytest
from werkzeug.test import Client

from tests.protocol.test_faults import Expected, about, has_form
from tests.source.conftest import Open, Source
from tests.source.partner import Partner
from tests.source.test_acknowledgements import ONE
from tests.source.test_listening import HERE, put, say, taking
from tests.support.source import OPPOSITES
from wsrm_mq.envelope.fault import fault as rendered
from wsrm_mq.sequence.elements import SequenceAcknowledgement
from wsrm_mq.sequence.faults import UnknownSequence
from wsrm_mq.testing import EnvelopeFactory, HTTPAnswer, RMVersion, SOAPVersion

ASKED: Final = "urn:example:at-fault"
"""MessageID of the message that is at fault."""


@pytest.fixture(params=SOAPVersion, ids=lambda soap: f"soap{soap.label}")
def speak(rm: RMVersion, request: pytest.FixtureRequest) -> EnvelopeFactory:
    """Each version of WS-RM with each of SOAP."""
    addressing = next(addressing for each, _soap, addressing in OPPOSITES if each is rm)
    return EnvelopeFactory(rm, request.param, addressing)


@pytest.fixture
def source(open_source: Open, partner: Partner) -> Source:
    """One message has left, and nothing was said of it."""
    made = open_source(acks_to=HERE, listen=False)
    taking(partner)
    put(made)
    assert partner.within(lambda: partner.places == [(ONE, 1)])
    assert made.at_rest()
    return made


def answered(source: Source, body: bytes, **options: Any) -> HTTPAnswer:
    """The answer of the source's endpoint, whose state is as before."""
    before = source.states(), source.waiting
    told = say(source, body, **options)
    assert (source.states(), source.waiting) == before
    fields = {name.lower(): value for name, value in told.headers.items()}
    return HTTPAnswer(told.status_code, fields, told.data)


def refused(source: Source, *ranges: tuple[int, int]) -> HTTPAnswer:
    speak = source.partner.speak
    return answered(source, speak.acknowledgement(ONE, *ranges, message_id=ASKED))


def invalid(*ranges: tuple[int, int]) -> Expected:
    said = "".join(f'<r:AcknowledgementRange Lower="{lower}" Upper="{upper}"/>' for lower, upper in ranges)
    detail = f"<r:SequenceAcknowledgement>{about(ONE)}{said}</r:SequenceAcknowledgement>"
    return Expected("InvalidAcknowledgement", detail=detail)


@pytest.mark.spec("F-003", "F-012", "F-013", "F-014", "F-021", half="source")
def test_invalid_acknowledgement_has_the_form_of_its_versions(source: Source, partner: Partner) -> None:
    has_form(refused(source, (1, 9)), partner.speak, invalid((1, 9)))  # type: ignore[arg-type]  # Orders speaks more


@pytest.mark.spec("F-010", "F-011", "F-017", "F-018", "F-030", half="source")
def test_a_fault_has_the_action_the_detail_and_the_language_of_its_version(source: Source, partner: Partner) -> None:
    has_form(refused(source, (2, 2)), partner.speak, invalid((2, 2)))  # type: ignore[arg-type]
    unknown = answered(source, partner.speak.acknowledgement("urn:else:1", (1, 1), message_id=ASKED))
    has_form(unknown, partner.speak, Expected("UnknownSequence", detail=about("urn:else:1")))  # type: ignore[arg-type]


@pytest.mark.spec("F-031", "H-012", "H-013", half="source")
def test_a_fault_travels_under_500_and_its_text_shows_nothing_of_this_side(source: Source, partner: Partner) -> None:
    answer = refused(source, (1, 2))
    assert answer.status == 500
    [reason] = answer.elements("faultstring" if partner.speak.soap is SOAPVersion.SOAP_1_1 else "Text")
    assert not [word for word in ("/", "Traceback", "here.example") if word in (reason.text or "")]


@pytest.mark.spec("F-024", half="source")
@pytest.mark.parametrize("name", [ONE, "urn:else:1"])
def test_no_fault_is_answered_with_one(source: Source, partner: Partner, name: str) -> None:
    """Also where an acknowledgement rides on it that cannot be true."""
    speak, wrong = partner.speak, [SequenceAcknowledgement(name, ((1, 9),))]
    what = UnknownSequence("It is not here.", "urn:else:1")
    told = answered(source, rendered(what, speak.soap, speak.addressing, speak.rm, None, wrong))
    assert (told.status, told.body) == (202, b"")
    assert all(received.fault is None for received in partner.received)


@pytest.mark.spec("H-020", half="source")
def test_what_is_no_message_changes_nothing(source: Source) -> None:
    assert answered(source, b"", method="GET").status == 405
    assert answered(source, b"<broken").status == 400
    assert source.endpoint is not None
    ack = source.partner.saying_ack(ONE, (1, 1))
    told = Client(source.endpoint).post("/acks", data=ack, content_type="image/png")
    assert told.status_code == 415
    assert source.waiting == 1
    assert say(source, ack).status_code == 202
    assert source.waiting == 0


@pytest.mark.spec("S-ACK-003", "S-ACK-004", "S-ACK-009")
def test_an_acknowledgement_that_contradicts_itself_releases_nothing_there(source: Source, partner: Partner) -> None:
    speak = partner.speak
    for children in ('<wsrm:AcknowledgementRange Lower="1" Upper="0"/>', "<wsrm:Nack>1</wsrm:Nack><wsrm:Final/>", ""):
        headers = f"<wsrm:SequenceAcknowledgement><wsrm:Identifier>{ONE}</wsrm:Identifier>{children}"
        headers += "</wsrm:SequenceAcknowledgement>"
        said = speak.envelope(speak.rm.action("SequenceAcknowledgement"), "", headers=headers)
        answered(source, said)
