"""Every fault of WS-ReliableMessaging as its specifications print it, in each combination of versions (F-001 to F-018).

What is expected is written out as XML, and compared element by element: only prefixes, the reason's wording and the
message's own MessageID may differ.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NamedTuple

import pytest
from lxml import etree

from tests.support.orders import Orders
from tests.support.source import Source, every_version, in_1_0, in_1_1
from wsrm_mq.testing import HTTPAnswer
from wsrm_mq.versions import SOAPVersion

from .conftest import Operate, Servers
from .conversation import UNKNOWN
from .test_literals import FAULT_ACTION, RM_1_1, schema
from .test_offer import offering

ASKED: Final = "urn:example:at-fault"
"""MessageID of the message that is at fault."""
_HEADER_1_1: Final = """
<s:Envelope xmlns:s="http://schemas.xmlsoap.org/soap/envelope/" xmlns:a="{wsa}" xmlns:r="{rm}"><s:Header>
  <a:Action>{action}</a:Action><a:MessageID/>{to}<a:RelatesTo>{asked}</a:RelatesTo>
  <r:SequenceFault><r:FaultCode>r:{name}</r:FaultCode>{wrapped}</r:SequenceFault>{ack}
</s:Header><s:Body><s:Fault><faultcode>s:{code_1_1}</faultcode><faultstring xml:lang="en"/></s:Fault></s:Body>
</s:Envelope>"""
_BODY_1_1: Final = """
<s:Envelope xmlns:s="http://schemas.xmlsoap.org/soap/envelope/" xmlns:a="{wsa}" xmlns:r="{rm}"><s:Header>
  <a:Action>{action}</a:Action><a:MessageID/>{to}<a:RelatesTo>{asked}</a:RelatesTo>
</s:Header><s:Body><s:Fault><faultcode>r:{name}</faultcode><faultstring xml:lang="en"/></s:Fault></s:Body>
</s:Envelope>"""
_1_2: Final = """
<s:Envelope xmlns:s="http://www.w3.org/2003/05/soap-envelope" xmlns:a="{wsa}" xmlns:r="{rm}"><s:Header>
  <a:Action>{action}</a:Action><a:MessageID/>{to}<a:RelatesTo>{asked}</a:RelatesTo>{ack}
</s:Header><s:Body><s:Fault>
  <s:Code><s:Value>s:{code}</s:Value><s:Subcode><s:Value>r:{name}</s:Value></s:Subcode></s:Code>
  <s:Reason><s:Text xml:lang="en"/></s:Reason>{whole}
</s:Fault></s:Body></s:Envelope>"""
NOT_ABOUT_A_HEADER: Final = ("CreateSequenceRefused", "WSRMRequired")
_SAID: Final = ("MessageID", "Text", "faultstring")
"""Elements whose text is for people, or new each time."""
_CODES: Final = ("Value", "FaultCode", "faultcode")

Shape = tuple[str, tuple[tuple[str, str], ...], str, tuple[Any, ...]]


class Expected(NamedTuple):
    name: str
    code: str = "Sender"
    detail: str = ""
    """XML of what the fault says in detail."""
    ack: str = ""
    """XML of the acknowledgement that goes with it."""


def shape(element: etree._Element) -> Shape:
    """All that an element says: names with their namespaces, attributes, text, children in their order."""
    local, text = etree.QName(element).localname, (element.text or "").strip()
    if local in _CODES:
        prefix, _, name = text.rpartition(":")
        text = f"{{{element.nsmap[prefix or None]}}}{name}"
    elif local in _SAID:
        text = ""
    attributes = tuple(sorted((str(name), str(value)) for name, value in element.attrib.items()))
    return element.tag, attributes, text, tuple(shape(child) for child in element.iterchildren("*"))


def has_form(answer: HTTPAnswer, speak: Orders, expected: Expected) -> None:
    """The answer is that fault, in its form to the last element, and valid by the schema of its version."""
    rm, addressing = speak.rm, speak.addressing
    detail = expected.detail
    is_1_1 = speak.soap is SOAPVersion.SOAP_1_1
    template = (_BODY_1_1 if expected.name in NOT_ABOUT_A_HEADER else _HEADER_1_1) if is_1_1 else _1_2
    # WS-Addressing's default of To is anonymous only in 1.0; it is written all the same.
    text = template.format(
        wsa=addressing.namespace,
        rm=rm.namespace,
        action=FAULT_ACTION[rm.namespace, addressing.namespace],
        asked=ASKED,
        name=expected.name,
        code=expected.code,
        code_1_1={"Sender": "Client", "Receiver": "Server"}[expected.code],
        to=f"<a:To>{addressing.anonymous}</a:To>",
        wrapped=f"<r:Detail>{detail}</r:Detail>" if detail and rm.namespace == RM_1_1 else detail,
        whole=f"<s:Detail>{detail}</s:Detail>" if detail else "",
        ack=expected.ack,
    )
    assert answer.status == 500
    assert answer.fields["content-type"] == f"{speak.soap.media_type}; charset=utf-8"
    assert shape(answer.tree) == shape(etree.fromstring(text))
    [reason] = answer.elements("faultstring" if is_1_1 else "Text")
    assert len(reason.text or "") > 20
    valid = schema(rm.namespace)
    for block in answer.tree[0].iterchildren(f"{{{rm.namespace}}}*"):
        if expected.name != "InvalidAcknowledgement" or "SequenceFault" not in block.tag:
            valid.assertValid(etree.fromstring(etree.tostring(block)))


def about(identifier: str) -> str:
    return f"<r:Identifier>{identifier}</r:Identifier>"


def final(identifier: str, upper: int) -> str:
    said = f'<r:AcknowledgementRange Lower="1" Upper="{upper}"/><r:Final/>'
    return f"<r:SequenceAcknowledgement>{about(identifier)}{said}</r:SequenceAcknowledgement>"


@pytest.mark.spec("F-021", "F-030", "F-001")
@pytest.mark.peer("P-38")
@every_version
def test_unknown_sequence_is_said_to_all_that_names_a_sequence_that_is_not_known(source: Source) -> None:
    expected = Expected("UnknownSequence", detail=about(UNKNOWN))
    has_form(source.put(UNKNOWN, 1, message_id=ASKED), source.speak, expected)
    has_form(source.ask(UNKNOWN, message_id=ASKED), source.speak, expected)
    has_form(source.terminate(UNKNOWN, message_id=ASKED), source.speak, expected)
    if source.speak.rm.has_close:
        has_form(source.close(UNKNOWN, message_id=ASKED), source.speak, expected)
    ended = source.opened(1)
    source.terminate(ended)
    has_form(source.put(ended, 2, message_id=ASKED), source.speak, expected._replace(detail=about(ended)))


@pytest.mark.spec("F-002", "F-021")
@pytest.mark.peer("P-39")
@in_1_1
def test_sequence_terminated_for_a_last_number_that_cannot_be_true(source: Source) -> None:
    for end in (source.close, source.terminate):
        identifier = source.opened(1, 2)
        has_form(
            end(identifier, 1, message_id=ASKED),
            source.speak,
            Expected("SequenceTerminated", detail=about(identifier)),
        )
        refused = Expected("UnknownSequence", detail=about(identifier))
        has_form(source.put(identifier, 3, message_id=ASKED), source.speak, refused)


@pytest.mark.spec("F-002", "F-021")
@pytest.mark.peer("P-39")
@in_1_0
def test_sequence_terminated_for_a_last_message_that_is_not_the_last(source: Source) -> None:
    identifier = source.opened(1, 3)
    expected = Expected("SequenceTerminated", detail=about(identifier))
    has_form(source.put(identifier, 2, last=True, message_id=ASKED), source.speak, expected)


@pytest.mark.spec("F-002", "F-021")
@pytest.mark.peer("P-39")
@every_version
def test_sequence_terminated_from_this_side_is_said_to_a_message_a_close_and_a_request_for_an_acknowledgement(
    source: Source, operate: Operate
) -> None:
    identifier = source.opened(1)
    source.delivered(identifier)
    operate("terminate", identifier, "--drain")
    expected = Expected("SequenceTerminated", code="Receiver", detail=about(identifier))
    asks: list[Callable[..., HTTPAnswer]] = [lambda **options: source.put(identifier, 2, **options)]
    asks.append(lambda **options: source.ask(identifier, **options))
    if source.speak.rm.has_close:
        asks.append(lambda **options: source.close(identifier, **options))
    for ask in asks:
        has_form(ask(message_id=ASKED), source.speak, expected)


def says_invalid(source: Source, *ranges: tuple[int, int]) -> HTTPAnswer:
    """An acknowledgement of replies that cannot be true is answered by the fault about it, in its form."""
    mine, offered = offering(source)
    source.echo(mine, 1, "one")
    said = "".join(f'<r:AcknowledgementRange Lower="{lower}" Upper="{upper}"/>' for lower, upper in ranges)
    detail = f"<r:SequenceAcknowledgement>{about(offered)}{said}</r:SequenceAcknowledgement>"
    answer = source.post(source.speak.acknowledgement(offered, *ranges, message_id=ASKED))
    has_form(answer, source.speak, Expected("InvalidAcknowledgement", detail=detail))
    return answer


@pytest.mark.spec("F-003", "F-021", "F-012", "F-013", half="source")
@pytest.mark.peer("P-41")
@every_version
def test_invalid_acknowledgement_is_said_to_numbers_that_were_never_sent(source: Source) -> None:
    says_invalid(source, (1, 9))


@pytest.mark.spec("F-010", "F-011", "F-017", "F-018", "F-030", half="source")
@every_version
def test_a_fault_about_replies_has_the_action_the_detail_and_the_language_of_its_version(source: Source) -> None:
    says_invalid(source, (1, 1), (3, 4))


@pytest.mark.spec("F-014", "F-031", "H-012", "H-013", half="source")
@every_version
def test_a_fault_about_replies_travels_under_500_and_its_text_shows_nothing_of_this_side(source: Source) -> None:
    answer = says_invalid(source, (2, 2))
    assert answer.status == 500
    [reason] = answer.elements("faultstring" if source.speak.soap is SOAPVersion.SOAP_1_1 else "Text")
    assert reason.text == "Numbers 1 to 1 were sent; the acknowledgement says otherwise, or not what it said."


@pytest.mark.spec("F-004", "F-005", "F-021")
@pytest.mark.peer("P-42")
@every_version
def test_message_number_rollover_is_said_to_a_number_above_the_largest(source: Source) -> None:
    identifier = source.opened(1)
    most = f"<r:MaxMessageNumber>{2**63 - 2}</r:MaxMessageNumber>" if source.speak.rm.has_close else ""
    answer = source.put(identifier, 2**63, message_id=ASKED)
    has_form(answer, source.speak, Expected("MessageNumberRollover", detail=about(identifier) + most))


@pytest.mark.spec("F-006", "F-015", "F-021")
@pytest.mark.peer("P-43")
@every_version
def test_create_sequence_refused_blames_the_source_for_its_request_and_this_side_for_its_limits(
    servers: Servers, speak: Orders
) -> None:
    with Source(servers(max_sequences=1), speak, fields=(f"X-User: {speak.rm.label} {speak.soap.name}",)) as source:
        refused = source.post(speak.create_sequence(acks_to=None, message_id=ASKED))
        has_form(refused, speak, Expected("CreateSequenceRefused"))
        while source.post(speak.create_sequence()).reply.fault is None:
            pass
        crowded = source.post(speak.create_sequence(message_id=ASKED))
        has_form(crowded, speak, Expected("CreateSequenceRefused", code="Receiver"))


@pytest.mark.spec("F-009", "F-016", "F-021")
@pytest.mark.peer("P-44")
@in_1_1
def test_wsrm_required_is_said_to_a_message_without_ws_rm_where_that_is_asked_for(
    servers: Servers, speak: Orders
) -> None:
    with Source(servers(require_rm=True), speak) as source:
        has_form(source.put_plain(1, message_id=ASKED), speak, Expected("WSRMRequired"))


@pytest.mark.spec("F-007", "F-021")
@pytest.mark.peer("P-45")
@in_1_0
def test_last_message_number_exceeded_is_said_to_a_number_above_the_last(source: Source) -> None:
    identifier = source.opened(1)
    source.put(identifier, 2, last=True)
    expected = Expected("LastMessageNumberExceeded", detail=about(identifier))
    has_form(source.put(identifier, 3, message_id=ASKED), source.speak, expected)


@pytest.mark.spec("F-008", "F-021", "F-032")
@pytest.mark.peer("P-40")
@in_1_1
def test_sequence_closed_comes_with_the_final_acknowledgement(source: Source) -> None:
    identifier = source.opened(1, 2)
    source.close(identifier, 4)
    expected = Expected("SequenceClosed", detail=about(identifier), ack=final(identifier, 2))
    for number in (3, 4, 5):
        has_form(source.put(identifier, number, message_id=ASKED), source.speak, expected)
    assert source.terminate(identifier, 4).reply.body_name == "TerminateSequenceResponse", "it is only closed"


@pytest.mark.spec("D-CLO-012", "F-008", "F-032")
@pytest.mark.peer("P-40")
@in_1_1
def test_a_sequence_that_is_closed_from_this_side_says_so_by_sequence_closed_and_final(
    source: Source, operate: Operate
) -> None:
    identifier = source.opened(1, 2)
    operate("close", identifier)
    expected = Expected("SequenceClosed", detail=about(identifier), ack=final(identifier, 2))
    has_form(source.put(identifier, 3, message_id=ASKED), source.speak, expected)
    again = source.put(identifier, 2).reply.ack
    assert (again.ranges, again.final) == (((1, 2),), True)
    asked = source.ask(identifier).reply.ack
    assert (asked.ranges, asked.final) == (((1, 2),), True)
    closed = source.close(identifier, 2).reply
    assert (closed.body_name, closed.ack.final) == ("CloseSequenceResponse", True)


@pytest.mark.spec("F-032")
@in_1_0
def test_in_1_0_which_has_no_sequence_closed_no_sequence_is_closed_from_this_side(
    source: Source, operate: Operate
) -> None:
    identifier = source.opened(1)
    refused = operate("close", identifier, status=4)
    assert "1.0, which has no close; terminate it." in " ".join(refused.stderr.split())
    assert source.put(identifier, 2).reply.ack.ranges == ((1, 2),), "it goes on"


@pytest.mark.spec("F-021")
@every_version
def test_a_fault_about_a_message_without_message_id_relates_to_nothing(source: Source) -> None:
    answer = source.put(UNKNOWN, 1, message_id=None)
    assert answer.reply.fault is not None
    assert answer.reply.relates_to is None


@pytest.mark.spec("F-030")
@every_version
def test_the_reason_of_every_fault_has_its_language(source: Source) -> None:
    speak, identifier = source.speak, source.opened(1)
    wrong = (
        source.put(identifier, 0),
        source.put(identifier, 2, action=None),
        source.put(identifier, 2, headers='<x:y xmlns:x="urn:x" soap:actor=""/>' + speak.sequence_header("urn:x", 1)),
        source.post(speak.create_sequence(acks_to="not a uri")),
    )
    language = "{http://www.w3.org/XML/1998/namespace}lang"
    for answer in wrong:
        reasons = answer.elements("faultstring" if speak.soap is SOAPVersion.SOAP_1_1 else "Text")
        assert [reason.get(language) for reason in reasons] == ["en"], answer.body
