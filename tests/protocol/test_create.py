"""CreateSequence at the destination (D-CRE). An addressable AcksTo or ReplyTo is refused and an Offer declined, so
the rows that need another channel or a reverse sequence are not here."""

from __future__ import annotations

import re
from typing import Any
from urllib.parse import urlsplit

import pytest
from lxml import etree

from tests.acceptance.tables import project_tables
from tests.support.orders import PUT_ORDER, Orders, put_order
from tests.support.orders_server import OrdersServer, within
from tests.support.source import Source, each_rm, every_version, good_exchange, in_1_0, in_1_1, in_one_version
from wsrm_mq.testing import HTTPAnswer, ReplyFault
from wsrm_mq.versions import WSA_2004, SOAPVersion

from .conftest import Servers

WEEK = 7 * 86_400


def seconds(duration: str | None) -> float:
    """An xs:duration without years and months."""
    found = re.fullmatch(r"P(?:(\d+)D)?(?:T(?:(\d+)H)?(?:(\d+)M)?(?:(\d+(?:\.\d+)?)S)?)?", duration or "", re.ASCII)
    assert found, f"{duration!r} is no duration"
    days, hours, minutes, rest = (float(part or 0) for part in found.groups())
    return ((days * 24 + hours) * 60 + minutes) * 60 + rest


def refusal(source: Source, before: list[Any], answer: HTTPAnswer) -> ReplyFault:
    """The fault of an answer to a request that left nothing behind, not even ill health."""
    fault = answer.reply.fault
    assert fault is not None, answer.body
    assert answer.status == 500
    assert fault.reason
    assert source.store.everything() == before
    good_exchange(source.server, source.speak)
    return fault


# answered, by a response or a refusal


@pytest.mark.spec("D-CRE-001", "D-CRE-002", "D-CRE-005", "D-CRE-007", "D-CRE-019")
@every_version
def test_a_sequence_is_created_and_named_in_the_body_of_the_response(source: Source) -> None:
    answer = source.post(source.speak.create_sequence(message_id="urn:example:the-request"))
    reply = answer.reply
    assert (answer.status, reply.body_name, reply.relates_to) == (
        200,
        "CreateSequenceResponse",
        "urn:example:the-request",
    )
    assert reply.created is not None
    identifier = reply.created.identifier
    assert urlsplit(identifier).scheme
    assert re.fullmatch(r"urn:uuid:[0-9a-f-]{36}", identifier)
    assert reply.created.accept is None
    header, body = answer.tree
    assert [etree.QName(child).localname for child in body] == ["CreateSequenceResponse"]
    assert source.speak.rm.namespace not in {etree.QName(block).namespace for block in header}
    row = source.store.sequence(identifier)
    assert (row["rm"], row["soap"], row["state"]) == (
        source.speak.rm.label,
        source.speak.soap.label,
        "created",
    )


@pytest.mark.spec("D-CRE-001", "F-015")
@pytest.mark.parametrize("where", ["acks_to", "reply_to"])
@every_version
def test_what_cannot_be_served_is_refused_by_its_own_fault(where: str, source: Source) -> None:
    before = source.store.everything()
    elsewhere: dict[str, Any] = {where: "http://127.0.0.1:9/elsewhere"}
    answer = source.post(source.speak.create_sequence(message_id="urn:example:1", **elsewhere))
    assert answer.reply.relates_to == "urn:example:1"
    fault = refusal(source, before, answer)
    assert (fault.subcode, fault.namespace) == ("CreateSequenceRefused", source.speak.rm.namespace)
    if source.speak.soap.label == "1.1":
        [code] = answer.elements("faultcode")
        assert (code.text or "").endswith(":CreateSequenceRefused")
        assert answer.elements("SequenceFault") == []


@pytest.mark.spec("D-CRE-012")
@every_version
def test_without_acks_to_no_sequence_results(source: Source) -> None:
    before = source.store.everything()
    for acks_to in (None, "<wsa:Address/>", "<wsa:Wrong/>", "relative/address"):
        answer = source.post(source.speak.create_sequence(acks_to=acks_to, expires="PT1M"))
        assert refusal(source, before, answer).subcode == "CreateSequenceRefused", acks_to
        before = source.store.everything()  # the exchange that proved the server well


@pytest.mark.spec("D-CRE-013")
@in_1_1
def test_acknowledgements_to_the_none_address_are_refused(source: Source) -> None:
    before = source.store.everything()
    answer = source.post(source.speak.create_sequence(acks_to="none"))
    assert refusal(source, before, answer).subcode == "CreateSequenceRefused"


@pytest.mark.spec("D-CRE-029")
@every_version
def test_the_action_over_an_empty_body_creates_nothing(source: Source) -> None:
    before = source.store.everything()
    action = source.speak.rm.action("CreateSequence")
    answer = source.post(source.speak.envelope(action, "", reply_to=""))
    fault = refusal(source, before, answer)
    assert fault.subcode == "CreateSequenceRefused" or fault.code == "Sender"


@pytest.mark.spec("D-CRE-030")
@pytest.mark.parametrize("action", ["the lifecycle's", "the application's"])
@every_version
def test_a_create_sequence_among_the_headers_creates_nothing(action: str, source: Source) -> None:
    speak, before = source.speak, source.store.everything()
    block = f"<wsrm:CreateSequence><wsrm:AcksTo>{speak.endpoint('')}</wsrm:AcksTo></wsrm:CreateSequence>"
    named, body = (speak.rm.action("CreateSequence"), "") if action == "the lifecycle's" else (PUT_ORDER, put_order(1))
    answer = source.post(speak.envelope(named, body, reply_to="", headers=block))
    assert answer.reply.created is None
    assert source.speak.rm.action("CreateSequenceResponse") != answer.reply.action
    assert source.store.everything() == before
    good_exchange(source.server, speak)


# which Identifier


@pytest.mark.spec("D-CRE-003")
@every_version
def test_requests_with_different_message_ids_get_different_sequences(source: Source) -> None:
    identifiers = [source.create(message_id=f"urn:example:{source.speak.soap.label}:{n}") for n in range(20)]
    assert len(set(identifiers)) == 20
    assert set(identifiers) <= set(source.store.identifiers())


@pytest.mark.spec("D-CRE-004", "D-CRE-027")
@each_rm
def test_no_identifier_comes_back_after_a_restart(mortal: OrdersServer, speak: Orders) -> None:
    def created() -> list[str]:
        with Source(mortal, speak) as source:
            return [source.create() for _ in range(10)] + [source.create(message_id="urn:example:again")]

    first = created()
    mortal.kill()
    mortal.start()
    second = created()
    assert first[-1] == second[-1]  # the same request, even now
    assert len({*first, *second}) == 21


@pytest.mark.spec("D-CRE-027")
@every_version
def test_a_repeated_request_gets_the_sequence_it_got_before(source: Source) -> None:
    request = source.speak.create_sequence(expires="PT1H", message_id=f"urn:example:repeat:{id(source)}")
    count = len(source.store.identifiers())
    created = [source.post(request).reply.created for _ in range(3)]
    assert created[0] is not None
    assert {each and each.identifier for each in created} == {created[0].identifier}
    assert len(source.store.identifiers()) == count + 1
    assert source.put(created[0].identifier, 1).reply.ack.ranges == ((1, 1),)
    with Source(source.server, source.speak) as other:  # a new connection of the same peer
        again = other.post(request).reply.created
    assert again is not None
    assert again.identifier == created[0].identifier
    assert source.delivered(created[0].identifier) == [1]


@pytest.mark.spec("NS-006")
@every_version
def test_a_message_id_used_again_in_other_versions_gets_another_sequence(source: Source) -> None:
    [other] = set(SOAPVersion) - {source.speak.soap}
    message_id = f"urn:example:twice:{id(source)}"
    first = source.create(message_id=message_id)
    source.speak = source.speak.having(soap=other)
    second = source.create(message_id=message_id)
    assert first != second
    assert source.store.sequence(second)["soap"] == other.label
    assert source.put(second, 1).reply.ack.ranges == ((1, 1),)
    assert source.delivered(second) == [1]


@pytest.mark.spec("D-CRE-028")
@every_version
def test_a_request_without_message_id_is_served_unless_addressing_is_strict(servers: Servers, source: Source) -> None:
    request = source.speak.create_sequence(message_id=None)
    answers = [source.post(request) for _ in range(2)]
    created = [answer.reply.created for answer in answers]
    assert None not in created
    assert created[0] != created[1]  # nothing says that it is the same request
    assert [answer.reply.relates_to for answer in answers] == [None, None]

    with Source(servers(strict_addressing=True), source.speak) as strict:
        before = strict.store.everything()
        fault = refusal(strict, before, strict.post(request))
        addressing = source.speak.addressing
        assert (fault.namespace, fault.subcode) == (addressing.namespace, addressing.header_required)
        assert fault.problem == ("MessageID" if addressing is not WSA_2004 else "")


@pytest.mark.spec("A-005", "A-006")
@every_version
def test_without_reply_to_the_response_comes_back_on_the_request(servers: Servers, source: Source) -> None:
    request = source.speak.create_sequence(reply_to=None)
    assert source.post(request).reply.created is not None
    with Source(servers(strict_addressing=True), source.speak) as strict:
        before = strict.store.everything()
        answer = strict.post(request)
        if source.speak.addressing is WSA_2004:
            assert refusal(strict, before, answer).subcode == WSA_2004.header_required
        else:
            assert answer.reply.created is not None


# how long it lives


@pytest.mark.spec("D-CRE-008")
@pytest.mark.parametrize("asked", ["PT1M", "PT90S", "P1DT1H", "PT0.5S"])
@every_version
def test_no_longer_life_is_granted_than_was_asked_for(asked: str, source: Source) -> None:
    created = source.post(source.speak.create_sequence(expires=asked)).reply.created
    assert created is not None
    assert 0 < seconds(created.expires) <= seconds(asked)
    row = source.store.sequence(created.identifier)
    assert row["expires_at"] - row["created_at"] == seconds(created.expires) * 1000


@pytest.mark.spec("D-CRE-008")
@each_rm
def test_what_was_asked_for_is_kept_to_where_a_unit_is_not_exact(source: Source) -> None:
    """A month may have 28 days; a fraction of a millisecond is not made a whole one, and is not taken for never."""
    for asked, most in (("P1M", 28 * 86_400), ("PT1.0009S", 1.0009), ("PT0.0019S", 0.0019)):
        created = source.post(source.speak.create_sequence(expires=asked)).reply.created
        assert created is not None
        assert 0 < seconds(created.expires) <= most, asked
    refused = source.post(source.speak.create_sequence(expires="PT0.0001S")).reply.fault
    assert refused is not None
    assert refused.subcode == "CreateSequenceRefused"


@pytest.mark.spec("D-CRE-008", "D-CRE-027")
@each_rm
def test_a_repeated_request_that_asks_for_less_does_not_get_more(source: Source) -> None:
    """The same MessageID with another Expires is another request."""
    message_id = f"urn:example:less:{id(source)}"
    first = source.create(expires="PT1H", message_id=message_id)
    assert source.create(expires="PT1H", message_id=message_id) == first
    assert source.create(expires="P1D", message_id=message_id) == first
    created = source.post(source.speak.create_sequence(expires="PT5M", message_id=message_id)).reply.created
    assert created is not None
    assert created.identifier != first
    assert seconds(created.expires) <= 300


@pytest.mark.spec("D-CRE-009")
@every_version
def test_no_longer_life_is_granted_than_the_server_allows(servers: Servers, speak: Orders) -> None:
    with Source(servers(max_expires=300), speak) as source:
        for asked in ("PT10M", None, "PT0S"):
            created = source.post(speak.create_sequence(expires=asked)).reply.created
            assert created is not None
            assert 0 < seconds(created.expires) <= 300
            row = source.store.sequence(created.identifier)
            assert row["expires_at"] - row["created_at"] <= 300_000


@pytest.mark.spec("D-CRE-010", "D-CRE-011")
@pytest.mark.parametrize("asked", [None, "PT0S", "P0D"])
@every_version
def test_never_is_granted_as_a_finite_time_that_the_response_states(asked: str | None, source: Source) -> None:
    created = source.post(source.speak.create_sequence(expires=asked)).reply.created
    assert created is not None
    assert 0 < seconds(created.expires) <= WEEK
    row = source.store.sequence(created.identifier)
    assert row["expires_at"] - row["created_at"] == seconds(created.expires) * 1000
    assert source.put(created.identifier, 1).reply.ack.ranges == ((1, 1),)


# offers


@pytest.mark.spec("D-CRE-016", "D-CRE-018", "D-CRE-021")
@pytest.mark.parametrize("endpoint", [None, "none"], ids=["no endpoint", "endpoint none"])
@in_1_1
def test_an_offer_that_cannot_be_used_is_declined_and_the_sequence_created(
    endpoint: str | None, source: Source
) -> None:
    request = source.speak.create_sequence(offer="urn:example:offered", offer_endpoint=endpoint)
    created = source.post(request).reply.created
    assert created is not None
    assert created.accept is None
    assert "urn:example:offered" not in source.store.identifiers()
    assert source.put(created.identifier, 1).reply.ack.ranges == ((1, 1),)
    assert source.delivered(created.identifier) == [1]


@pytest.mark.spec("D-CRE-021", "D-CRE-023")
@every_version
def test_an_offer_under_an_identifier_in_use_is_declined(source: Source) -> None:
    in_use = source.create()
    row = source.store.sequence(in_use)
    created = source.post(source.speak.create_sequence(offer=in_use)).reply.created
    assert created is not None
    assert created.accept is None
    assert created.identifier != in_use
    assert source.store.sequence(in_use) == row
    assert source.put(created.identifier, 1).reply.ack.ranges == ((1, 1),)
    assert source.put(in_use, 1).reply.ack.identifier == in_use


@pytest.mark.spec("D-CRE-026")
@in_1_0
def test_1_0_knows_neither_endpoint_nor_incomplete_behavior(source: Source) -> None:
    request = source.speak.create_sequence(offer="urn:example:complete", expires="PT1H")
    assert b"Endpoint>" not in request
    answer = source.post(request)
    created = answer.reply.created
    assert created is not None
    assert answer.elements("IncompleteSequenceBehavior") == []
    assert source.put(created.identifier, 1).reply.ack.ranges == ((1, 1),)
    assert source.delivered(created.identifier) == [1]


# what is announced is what happens

KEPT = {
    "NoDiscard": {"delivered": [1, 2, 4], "outcomes": {"delivered": 3}},
    "DiscardFollowingFirstGap": {"delivered": [1, 2], "outcomes": {"delivered": 2, "dead": 1}},
    "DiscardEntireSequence": {"delivered": [], "outcomes": {"dead": 3}},
}
"""What becomes of 1, 2 and 4."""


@pytest.mark.spec("D-CRE-024", "D-CRE-025")
@pytest.mark.parametrize("behavior", [None, *KEPT])
@in_1_1
def test_the_incomplete_behavior_announced_is_the_one_applied(
    behavior: str | None, servers: Servers, speak: Orders
) -> None:
    options = {} if behavior is None else {"behavior": behavior}
    with Source(servers(**options), speak) as source:
        created = source.post(speak.create_sequence()).reply.created
        assert created is not None
        announced = created.behavior or "NoDiscard"
        assert announced == (behavior or "NoDiscard")
        identifier = created.identifier
        for number in (1, 2, 4):
            source.put(identifier, number)
        assert source.close(identifier, 4).reply.ack.ranges == ((1, 2), (4, 4))

        def settled() -> dict[str | None, int]:
            found = list(source.store.outcomes(identifier).values())
            return {outcome: found.count(outcome) for outcome in found}

        expected = KEPT[announced]
        assert within(5, settled, lambda seen: seen == expected["outcomes"]) == expected["outcomes"]
        assert source.delivered(identifier) == expected["delivered"]


# durability


@pytest.mark.spec("D-CRE-031")
@each_rm
def test_a_sequence_is_stored_before_its_response_is_sent(mortal: OrdersServer, speak: Orders) -> None:
    with Source(mortal, speak) as source:
        identifier = source.create()
        mortal.kill()
    mortal.start()
    with Source(mortal, speak) as source:
        assert source.store.sequence(identifier)["state"] == "created"
        assert source.put(identifier, 1).reply.ack.ranges == ((1, 1),)
        assert source.delivered(identifier) == [1]


@pytest.mark.spec("D-CRE-032")
@every_version
def test_a_sequence_whose_response_got_lost_is_served(server: OrdersServer, speak: Orders) -> None:
    with Source(server, speak) as lost:
        known = set(lost.store.identifiers())
        lost.wire.send(lost.request(speak.create_sequence()))
    with Source(server, speak) as source:
        [identifier] = within(5, lambda: set(source.store.identifiers()) - known, lambda new: len(new) == 1)
        assert source.put(identifier, 1).reply.ack.ranges == ((1, 1),)
        assert source.put(identifier, 2).reply.ack.ranges == ((1, 2),)
        assert source.delivered(identifier) == [1, 2]


MARKERS = {
    "UsesSequenceSTR": '<wsrm:UsesSequenceSTR soap:mustUnderstand="1"/>',
    "UsesSequenceSTR, as one may": "<wsrm:UsesSequenceSTR/>",
    "UsesSequenceSSL": '<wsrm:UsesSequenceSSL soap:mustUnderstand="1"/>',
    "UsesSequenceSSL, as one may": "<wsrm:UsesSequenceSSL/>",
}
TOKEN = (
    '<s:SecurityTokenReference xmlns:s="http://docs.oasis-open.org/wss/2004/01/'
    'oasis-200401-wss-wssecurity-secext-1.0.xsd"><s:Reference URI="#t"/></s:SecurityTokenReference>'
)


@pytest.mark.spec("SEC-008")
@pytest.mark.parametrize("marker", MARKERS)
@in_1_1
def test_a_sequence_bound_to_a_token_or_a_session_is_refused(marker: str, source: Source) -> None:
    """Also with the token beside it: a sequence that is not bound must not be taken for one that is. This is why five
    rows of the tables are listed as deviating."""
    before = source.store.everything()
    for extra in ("", TOKEN):
        answer = source.post(source.speak.create_sequence(headers=MARKERS[marker], extra=extra))
        fault = answer.reply.fault
        assert fault is not None
        assert fault.subcode == "CreateSequenceRefused"
        assert marker.partition(",")[0] in fault.reason
        assert answer.reply.created is None
    assert source.store.everything() == before


@pytest.mark.spec("D-CRE-001")
@every_version
def test_a_token_reference_alone_refuses_too(source: Source) -> None:
    fault = source.post(source.speak.create_sequence(extra=TOKEN)).reply.fault
    assert fault is not None
    assert (fault.subcode, "SecurityTokenReference" in fault.reason) == ("CreateSequenceRefused", True)


def test_the_listed_deviations_rest_on_these_refusals_and_on_tokens_being_the_services() -> None:
    """Each reason names a marker that is refused above (the WSDL announces neither: POL-009, POL-010), or that what
    signs and encrypts is the wrapped service, or what an RM Source does in the place of it."""
    reasons = {deviation.id: deviation.reason for deviation in project_tables().deviations}
    refused, of_the_service, of_the_source = (
        {"SEC-006", "SEC-007", "POL-009", "POL-010", "RSP-015", "P-72"},
        {"SEC-028", "P-70", "P-71"},
        {"F-002", "F-022", "POL-011"},
    )
    assert set(reasons) == refused | of_the_service | of_the_source
    for row in refused:
        assert any(marker in reasons[row] for marker in ("UsesSequenceSTR", "UsesSequenceSSL")), row
    for row in of_the_service:
        assert "the wrapped service" in reasons[row], row
    for row in of_the_source:
        assert any(words in reasons[row] for words in ("an outbound sequence", "an RM Source")), row


@in_one_version
def test_no_policy_announces_that_sequences_are_secured(source: Source) -> None:
    source.wire.send(b"GET /orders?wsdl HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
    wsdl = source.wire.read()
    assert wsdl.status == 200
    assert b"definitions" in wsdl.body
    assert b"SequenceSTR" not in wsdl.body
    assert b"SequenceTransportSecurity" not in wsdl.body
