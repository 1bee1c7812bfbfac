"""Names on the wire: namespaces, actions, prefixes, the order of children (NS-001 to NS-011)."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
from lxml import etree

from tests.support.orders import Orders
from tests.support.orders_server import OrdersServer
from tests.support.source import Source, every_version, in_1_0, in_1_1
from wsrm_mq.testing import HTTPAnswer
from wsrm_mq.versions import (
    ADDRESSING_VERSIONS,
    RM_VERSIONS,
    SOAP_VERSIONS,
    WSA_2004,
    WSA_2005,
    WSRM_1_0,
    WSRM_1_1,
    AddressingVersion,
    SOAPVersion,
)

from .conversation import UNKNOWN, everything_sent

# what we send


def names_used(answer: HTTPAnswer) -> set[str]:
    """Every namespace URI that an answer's bytes declare or mention."""
    known = {*RM_VERSIONS, *ADDRESSING_VERSIONS, *SOAP_VERSIONS}
    return {namespace for namespace in known if namespace.encode() in answer.body}


@pytest.mark.spec("NS-001", "NS-002", "NS-006")
@every_version
def test_all_that_is_sent_is_in_the_versions_of_the_sequence(source: Source) -> None:
    speak = source.speak
    spoken = {speak.rm.namespace, speak.soap.namespace, speak.addressing.namespace}
    for name, answer in everything_sent(source).items():
        assert names_used(answer) <= spoken, name
        assert answer.reply.soap is speak.soap, name
        assert answer.reply.addressing is speak.addressing, name
        assert answer.fields["content-type"].startswith(speak.soap.media_type), name
        assert speak.rm.namespace in names_used(answer) or name in ("malformed", "without Action"), name


@pytest.mark.spec("NS-003", "A-001")
@every_version
def test_lifecycle_messages_have_the_action_of_their_version(source: Source) -> None:
    rm = source.speak.rm
    sent = everything_sent(source)
    lifecycle = {
        "CreateSequenceResponse": "CreateSequenceResponse",
        "acknowledgement by itself": "SequenceAcknowledgement",
        "CloseSequenceResponse": "CloseSequenceResponse",
        "TerminateSequenceResponse": "TerminateSequenceResponse",
    }
    seen = {name: answer.reply.action for name, answer in sent.items() if name in lifecycle}
    assert seen == {name: f"{rm.namespace}/{lifecycle[name]}" for name in seen}
    assert len(seen) == (4 if rm.has_close else 2)
    for name, answer in sent.items():
        assert answer.reply.action, name
        # Only the anonymous address of 1.0 is what a missing To means.
        assert answer.reply.to == source.speak.anonymous or source.speak.addressing is WSA_2005, name


ANY = ".*"
SCHEMA: dict[str, dict[str, str]] = {
    WSRM_1_0.namespace: {
        "CreateSequenceResponse": "Identifier (Expires )?(Accept )?",
        "Accept": "AcksTo ",
        "AcksTo": "Address ",
        "Sequence": "Identifier MessageNumber (LastMessage )?",
        "LastMessage": "",
        "TerminateSequence": "Identifier ",
        "SequenceAcknowledgement": "Identifier ((AcknowledgementRange )+|(Nack )+)",
        "SequenceFault": "FaultCode " + ANY,
    },
    WSRM_1_1.namespace: {
        "CreateSequenceResponse": "Identifier (Expires )?(IncompleteSequenceBehavior )?(Accept )?",
        "Accept": "AcksTo ",
        "AcksTo": "Address ",
        "Sequence": "Identifier MessageNumber ",
        "CloseSequence": "Identifier (LastMsgNumber )?",
        "CloseSequenceResponse": "Identifier ",
        "TerminateSequence": "Identifier (LastMsgNumber )?",
        "TerminateSequenceResponse": "Identifier ",
        "SequenceAcknowledgement": "Identifier (((AcknowledgementRange )+|None )(Final )?|(Nack )+)",
        "SequenceFault": "FaultCode (Detail )?",
        "Detail": ANY,
    },
    SOAPVersion.SOAP_1_1.namespace: {
        "Envelope": "(Header )?Body ",
        "Header": ANY,
        "Body": "([^ ]+ )?",
        "Fault": "faultcode faultstring (faultactor )?(detail )?",
    },
    SOAPVersion.SOAP_1_2.namespace: {
        "Envelope": "(Header )?Body ",
        "Header": ANY,
        "Body": "([^ ]+ )?",
        "Fault": "Code Reason (Node )?(Role )?(Detail )?",
        "Code": "Value (Subcode )?",
        "Subcode": "Value (Subcode )?",
        "Reason": "(Text )+",
        "Detail": ANY,
    },
}
"""The published schemas' content models: element → its children's names, in order."""


def out_of_order(root: etree._Element) -> list[str]:
    """The elements whose children are not in schema order; an unknown one with children counts."""
    wrong = []
    for element in root.iter("{*}*"):
        name = etree.QName(element)
        model = SCHEMA.get(name.namespace or "")
        if model is None:
            continue
        children = "".join(f"{etree.QName(child).localname} " for child in element)
        if not re.fullmatch(model.get(name.localname, ""), children):
            wrong.append(f"{name.localname}: {children}")
    return wrong


@pytest.mark.spec("NS-008", "NS-010")
@every_version
def test_children_are_in_schema_order_and_ranges_have_plain_attributes(source: Source) -> None:
    ranges = 0
    for name, answer in everything_sent(source).items():
        assert out_of_order(answer.tree) == [], name
        for element in answer.elements("AcknowledgementRange"):
            assert set(element.attrib) == {"Lower", "Upper"}, name
            ranges += 1
    assert ranges > 5


# what we read


def rewritten(change: Callable[[str], str]) -> Callable[[bytes], bytes]:
    return lambda envelope: change(envelope.decode()).encode()


def swapped(envelope: str) -> str:
    """Each prefix stands for what another one usually means."""
    other = {"soap": "wsrm", "wsrm": "wsa", "wsa": "soap"}
    return re.sub(r"(?<=[</ :])(soap|wsrm|wsa)(?=[:=])", lambda found: other[found[0]], envelope)


def by_default(envelope: str, namespace: str) -> str:
    """Every element of a namespace declares it as the default namespace, and has no prefix."""
    prefix = {"wsrm": r"wsrm", "wsa": r"wsa"}[namespace]
    [uri] = re.findall(f'xmlns:{prefix}="([^"]*)"', envelope)
    opened = re.sub(rf"<{prefix}:(\w+)", rf'<\1 xmlns="{uri}"', envelope)
    return opened.replace(f"</{prefix}:", "</")


SPELLINGS = {
    "swapped prefixes": rewritten(swapped),
    "not ASCII": rewritten(lambda xml: re.sub(r"(?<=[</ :])wsrm(?=[:=])", "règle", xml)),
    "RM as default namespace": rewritten(lambda xml: by_default(xml, "wsrm")),
    "addressing as default namespace": rewritten(lambda xml: by_default(xml, "wsa")),
}


@pytest.mark.spec("NS-004")
@pytest.mark.parametrize("spelled", SPELLINGS.values(), ids=SPELLINGS.keys())
@every_version
def test_any_prefix_or_the_default_namespace_will_do(spelled: Callable[[bytes], bytes], source: Source) -> None:
    speak = source.speak
    assert spelled(speak.create_sequence()) != speak.create_sequence()
    created = source.post(spelled(speak.create_sequence())).reply.created
    assert created is not None
    identifier = created.identifier
    assert source.post(spelled(source.speak.put(identifier, 1))).reply.ack.ranges == ((1, 1),)
    assert source.post(spelled(speak.ack_requested(identifier))).reply.ack.ranges == ((1, 1),)
    assert source.delivered(identifier) == [1]
    assert source.post(spelled(speak.terminate(identifier))).status in (200, 202)
    assert source.store.sequence(identifier)["state"] == "ended"


@pytest.mark.spec("NS-005", versions="all")
@pytest.mark.parametrize("addressing", [WSA_2004, WSA_2005], ids=lambda wsa: f"wsa{wsa.label[:4]}")
@pytest.mark.parametrize("soap", SOAPVersion, ids=lambda soap: f"soap{soap.label}")
def test_sequences_of_both_versions_live_at_one_endpoint(
    soap: SOAPVersion, addressing: AddressingVersion, server: OrdersServer
) -> None:
    with (
        Source(server, Orders(WSRM_1_0, soap, addressing)) as old,
        Source(server, Orders(WSRM_1_1, soap, WSA_2005)) as new,
    ):
        new.wire.close()
        new.wire = old.wire  # one connection for both
        identifiers = {source: source.create() for source in (old, new)}
        for number in (1, 3, 2):
            for source, identifier in identifiers.items():
                answer = source.put(identifier, number)
                assert {answer.reply.rm, answer.reply.addressing} == {source.speak.rm, source.speak.addressing}
                assert names_used(answer) & set(RM_VERSIONS) == {source.speak.rm.namespace}
        for source, identifier in identifiers.items():
            assert source.ask(identifier).reply.ack.ranges == ((1, 3),)
            assert source.delivered(identifier) == [1, 2, 3]
            assert source.store.sequence(identifier)["rm"] == source.speak.rm.label


FOREIGN = '<x:more xmlns:x="urn:example:else"><x:Identifier>urn:example:not-this</x:Identifier></x:more>'


def with_foreign(envelope: bytes) -> bytes:
    """An attribute and a last child from elsewhere for every RM element that may have them."""
    root = etree.fromstring(envelope)
    for element in root.iter("{*}*"):
        name = etree.QName(element)
        if name.namespace not in RM_VERSIONS:
            continue
        if name.localname in ("MessageNumber", "LastMsgNumber"):
            continue  # plain values: the schema gives them no attribute
        element.set("{urn:example:else}note", "nothing to you")
        if name.localname not in ("Identifier", "Expires", "AcksTo"):
            element.append(etree.fromstring(FOREIGN))
    return etree.tostring(root)


@pytest.mark.spec("NS-007", "RSP-009")
@every_version
def test_foreign_children_and_attributes_are_passed_over(source: Source) -> None:
    speak = source.speak
    last = 2 if speak.rm.has_close else None
    created = source.post(with_foreign(speak.create_sequence(expires="PT5M"))).reply.created
    assert created is not None
    identifier = created.identifier
    first = with_foreign(source.speak.put(identifier, 1, ack_requested=True))
    assert first.count(b"urn:example:not-this") == 2
    assert source.post(first).reply.ack.ranges == ((1, 1),)
    assert source.put(identifier, 2).reply.ack.ranges == ((1, 2),)
    assert source.post(with_foreign(speak.ack_requested(identifier))).reply.ack.ranges == ((1, 2),)
    if speak.rm.has_close:
        assert source.post(with_foreign(speak.close(identifier, last))).reply.ack.final
    assert source.post(with_foreign(speak.terminate(identifier, last))).status in (200, 202)
    assert source.delivered(identifier) == [1, 2]
    assert source.store.sequence(identifier)["ended"] == "terminated"


@pytest.mark.spec("NS-009", "D-SEQ-002")
@every_version
def test_a_message_in_the_other_versions_namespace_meets_an_unknown_sequence(source: Source) -> None:
    other = WSRM_1_1 if source.speak.rm is WSRM_1_0 else WSRM_1_0
    identifier = source.create()
    source.put(identifier, 1)
    before = source.store.everything()
    ours = source.speak
    source.speak = ours.having(rm=other, addressing=WSA_2005)
    for answer in (source.put(identifier, 2), source.ask(identifier), source.terminate(identifier)):
        fault = answer.reply.fault
        assert fault is not None
        assert (fault.code, fault.subcode, fault.namespace) == ("Sender", "UnknownSequence", other.namespace)
        assert fault.identifier == identifier
        assert names_used(answer) & set(RM_VERSIONS) == {other.namespace}
    assert source.store.everything() == before
    source.speak = ours
    assert source.put(identifier, 2).reply.ack.ranges == ((1, 2),)
    assert source.delivered(identifier) == [1, 2]


@pytest.mark.spec("NS-010")
@every_version
def test_qualified_range_attributes_are_not_read_as_ranges(source: Source) -> None:
    rm = source.speak.rm

    def acknowledged(attributes: str) -> HTTPAnswer:
        block = (
            f"<wsrm:SequenceAcknowledgement><wsrm:Identifier>{UNKNOWN}</wsrm:Identifier>"
            f"<wsrm:AcknowledgementRange {attributes}/></wsrm:SequenceAcknowledgement>"
        )
        return source.post(source.speak.envelope(rm.action("SequenceAcknowledgement"), "", headers=block))

    read, unread = acknowledged('Lower="1" Upper="2"'), acknowledged('wsrm:Lower="1" wsrm:Upper="2"')
    assert read.reply.fault is not None
    assert read.reply.fault.subcode == "UnknownSequence"  # well-formed: only its sequence is unknown
    assert unread.reply.fault is not None
    assert (unread.reply.fault.code, unread.reply.fault.subcode) == ("Sender", "")


@pytest.mark.spec("NS-011", "RSP-008")
@pytest.mark.peer("P-49")
@in_1_1
def test_rm_1_1_with_addressing_2004_is_refused_and_nothing_created(source: Source) -> None:
    identifier = source.create()
    before = source.store.everything()
    source.speak = source.speak.having(addressing=WSA_2004)
    for answer in (source.post(source.speak.create_sequence()), source.put(identifier, 1)):
        fault = answer.reply.fault
        assert fault is not None
        assert fault.code == "Sender"
        assert "WS-Addressing 1.0" in fault.reason
        assert "2004/08" in fault.reason
    assert source.store.everything() == before
    source.speak = source.speak.having(addressing=WSA_2005)
    assert source.put(identifier, 1).reply.ack.ranges == ((1, 1),)
    assert source.delivered(identifier) == [1]


@pytest.mark.spec("NS-006")
@every_version
def test_a_sequence_is_not_spoken_of_in_other_versions(source: Source) -> None:
    ours = source.speak
    identifier = source.create()
    before = source.store.everything()
    [other] = set(SOAPVersion) - {ours.soap}
    source.speak = ours.having(soap=other)
    fault = source.put(identifier, 1).reply.fault
    assert fault is not None
    assert f"SOAP {ours.soap.label}" in fault.reason
    assert source.store.everything() == before
    source.speak = ours
    assert source.put(identifier, 1).reply.ack.ranges == ((1, 1),)
    assert source.delivered(identifier) == [1]


@pytest.mark.spec("NS-003")
@in_1_0
def test_the_1_0_message_with_the_last_number_has_its_own_action(source: Source) -> None:
    identifier = source.create()
    source.put(identifier, 1)
    assert source.post(source.speak.last_message(identifier, 2)).reply.ack.ranges == ((1, 2),)
    assert source.store.sequence(identifier)["last_number"] == 2
    source.post(source.speak.terminate(identifier))
    assert source.delivered(identifier) == [1]
