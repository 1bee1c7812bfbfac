"""The Sequence header at the destination: what is accepted, what is a duplicate, what is refused (D-SEQ)."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable
from typing import Any

import pytest

from tests.support.orders import PUT_ORDER, Orders
from tests.support.orders_server import OrdersServer, within
from tests.support.source import Source, each_rm, every_version, good_exchange, in_1_0, in_1_1
from wsrm_mq.testing import HTTPAnswer, ReplyFault
from wsrm_mq.versions import ADDRESSING_VERSIONS, MAX_MESSAGE_NUMBER, SOAPVersion

from .conftest import Servers
from .conversation import UNKNOWN


def fault_of(source: Source, answer: HTTPAnswer) -> ReplyFault:
    """The fault of an answer, under the HTTP status that goes with it."""
    fault = answer.reply.fault
    assert fault is not None, answer.body
    assert answer.status == 500
    assert fault.reason
    return fault


def takes_its_turn(source: Source, identifier: str, number: int, delivered: list[int]) -> None:
    """The sequence takes the next message; with it exactly ``delivered`` has come to the service, each called once.

    Delivery is in order: what had been taken by mistake would have been delivered before, or would be now.
    """
    answer = source.put(identifier, number)
    assert answer.reply.ack.ranges[-1][1] == number
    # At most once settles before it delivers: what the service has done is a little later.
    seen = within(5, lambda: source.delivered(identifier), lambda seen: len(seen) >= len(delivered))
    assert seen == delivered
    assert source.calls(identifier) == delivered


# accepted


@pytest.mark.spec("D-SEQ-001", "D-SEQ-029")
@pytest.mark.parametrize("flag", ["1", "true", None])
@every_version
def test_the_header_is_understood_flagged_or_not(flag: str | None, source: Source) -> None:
    identifier = source.create()
    for number in (1, 2):
        envelope = source.speak.put(identifier, number, must_understand=flag is not None)
        envelope = envelope.replace(b'mustUnderstand="1"', f'mustUnderstand="{flag}"'.encode())
        answer = source.post(envelope)
        assert answer.status == 200
        assert answer.reply.ack.ranges == ((1, number),)
    assert source.delivered(identifier) == [1, 2]


NEXT = {
    SOAPVersion.SOAP_1_1: 'soap:actor="http://schemas.xmlsoap.org/soap/actor/next"',
    SOAPVersion.SOAP_1_2: 'soap:role="http://www.w3.org/2003/05/soap-envelope/role/next"',
}


@pytest.mark.spec("D-SEQ-001")
@every_version
def test_a_header_for_the_next_node_is_for_us(source: Source) -> None:
    """The message is in its sequence: acknowledged, delivered once, not again."""
    identifier = source.create()
    marked = b"<wsrm:Sequence " + NEXT[source.speak.soap].encode()
    envelope = source.speak.put(identifier, 1).replace(b"<wsrm:Sequence", marked)
    for _ in range(2):
        assert source.post(envelope).reply.ack.ranges == ((1, 1),)
    assert source.delivered(identifier) == [1]


@pytest.mark.spec("D-SEQ-004")
@every_version
def test_numbers_in_order_are_one_range(source: Source) -> None:
    identifier = source.create()
    ranges = [source.put(identifier, number).reply.ack.ranges for number in (1, 2, 3)]
    assert ranges == [((1, 1),), ((1, 2),), ((1, 3),)]
    assert source.store.received(identifier) == [(1, 3)]
    assert source.delivered(identifier) == [1, 2, 3]


@pytest.mark.spec("D-SEQ-005")
@every_version
def test_a_gap_parts_the_ranges_until_it_is_filled(source: Source) -> None:
    identifier = source.create()
    ranges = [source.put(identifier, number).reply.ack.ranges for number in (1, 3)]
    assert ranges == [((1, 1),), ((1, 1), (3, 3))]
    assert source.store.received(identifier) == [(1, 1), (3, 3)]
    assert source.delivered(identifier) == [1]
    assert source.put(identifier, 2).reply.ack.ranges == ((1, 3),)
    assert source.store.received(identifier) == [(1, 3)]
    assert source.delivered(identifier) == [1, 2, 3]


@pytest.mark.spec("D-SEQ-006")
@every_version
def test_a_sequence_may_start_with_another_number(source: Source) -> None:
    identifier = source.create()
    assert source.put(identifier, 3).reply.ack.ranges == ((3, 3),)
    assert source.store.outcomes(identifier) == {3: None}
    assert source.put(identifier, 1).reply.ack.ranges == ((1, 1), (3, 3))
    assert source.put(identifier, 2).reply.ack.ranges == ((1, 3),)
    assert source.delivered(identifier) == [1, 2, 3]


@pytest.mark.spec("D-SEQ-014")
@pytest.mark.parametrize("spelling", [" 7 ", "007", "+7", "\n\t7\r\n"], ids=repr)
@every_version
def test_every_spelling_of_7_means_7(spelling: str, source: Source) -> None:
    identifier = source.create()
    assert source.put(identifier, spelling, n=7).reply.ack.ranges == ((7, 7),)
    assert source.put(identifier, 7).reply.ack.ranges == ((7, 7),)
    assert source.store.received(identifier) == [(7, 7)]
    assert source.store.sequence(identifier)["duplicates"] == 1
    source.terminate(identifier)
    assert source.delivered(identifier) == [7]


@pytest.mark.spec("D-SEQ-018")
@every_version
def test_the_largest_number_rolls_over_and_the_one_below_is_taken(source: Source) -> None:
    """The highest range a store can compute with ends one below the largest number of the specification."""
    identifier = source.create()
    assert fault_of(source, source.put(source.create(), MAX_MESSAGE_NUMBER)).subcode == "MessageNumberRollover"
    largest = MAX_MESSAGE_NUMBER - 1
    assert source.put(identifier, largest, n=9).reply.ack.ranges == ((largest, largest),)
    assert source.store.received(identifier) == [(largest, largest)]
    assert source.put(identifier, 1).reply.ack.ranges == ((1, 1), (largest, largest))
    source.terminate(identifier)
    assert source.delivered(identifier) == [1, 9]


@pytest.mark.spec("D-SEQ-021")
@every_version
def test_white_space_around_an_identifier_is_no_part_of_it(source: Source) -> None:
    identifier = source.create()
    spaced = f"\n\t {identifier} \r\n"
    assert source.put(spaced, 1).reply.ack == source.put(identifier, 1).reply.ack
    assert source.ask(spaced).reply.ack.identifier == identifier
    for other in (identifier.upper(), f"{identifier}x", identifier[:-1], identifier.replace("-", "- ", 1)):
        assert fault_of(source, source.put(other, 2)).code == "Sender"
        assert source.store.received(identifier) == [(1, 1)]
    assert fault_of(source, source.put(identifier.upper(), 2)).subcode == "UnknownSequence"
    takes_its_turn(source, identifier, 2, [1, 2])


@pytest.mark.spec("D-SEQ-027")
@every_version
def test_a_message_without_the_header_is_delivered_unreliably_where_rm_is_optional(source: Source) -> None:
    seen, before = source.server.mark(), source.store.everything()
    answer = source.put_plain(17)
    assert (answer.status, answer.body) == (202, b"")
    assert seen.soon([17]) == [17]
    assert source.store.everything() == before


# duplicates


@pytest.mark.spec("D-SEQ-007", "D-SEQ-010")
@pytest.mark.parametrize("assurance", ["exactly_once", "at_most_once"])
@every_version
def test_a_number_received_again_is_acknowledged_and_not_delivered_again(
    assurance: str, servers: Servers, speak: Orders
) -> None:
    with Source(servers(assurance=assurance), speak) as source:
        identifier = source.create()
        first, second = source.speak.put(identifier, 1), source.speak.put(identifier, 2)
        for envelope in (first, second, second, first, source.speak.put(identifier, 1), second):
            answer = source.post(envelope)
            assert answer.status == 200
        assert answer.reply.ack.ranges == ((1, 2),)
        takes_its_turn(source, identifier, 3, [1, 2, 3])
        assert source.store.outcomes(identifier) == dict.fromkeys((1, 2, 3), "delivered")
        assert source.store.sequence(identifier)["duplicates"] == 4


@pytest.mark.spec("D-SEQ-010")
@every_version
def test_a_duplicate_of_a_held_message_is_acknowledged_at_once(source: Source) -> None:
    identifier = source.create()
    answers = [source.put(identifier, 2) for _ in range(3)]
    assert [answer.reply.ack.ranges for answer in answers] == [((2, 2),)] * 3
    assert source.calls(identifier) == []
    assert source.put(identifier, 1).reply.ack.ranges == ((1, 2),)
    assert source.delivered(identifier) == [1, 2]
    assert source.calls(identifier) == [1, 2]


@pytest.mark.spec("D-SEQ-008")
@pytest.mark.parametrize("held", [False, True], ids=["delivered", "held"])
@every_version
def test_what_came_first_under_a_number_stands(held: bool, source: Source) -> None:
    identifier = source.create()
    number = 2 if held else 1
    first = source.speak.put(identifier, number, "first")
    source.post(first)
    answer = source.put(identifier, number, "second", n=99)
    assert answer.reply.ack.ranges == ((number, number),)
    assert source.store.body(identifier, number) == first
    source.put(identifier, 3 - number, "other")
    assert source.texts(identifier) == (["other", "first"] if held else ["first", "other"])
    assert source.delivered(identifier) == [1, 2]


@pytest.mark.spec("D-SEQ-009")
@every_version
def test_one_number_arriving_twice_at_once_is_delivered_once(server: OrdersServer, speak: Orders) -> None:
    with Source(server, speak) as one, Source(server, speak) as two:
        identifier = one.create()
        numbers = range(1, 26)
        together = threading.Barrier(2, timeout=10)
        ranges: dict[Source, list[Any]] = {one: [], two: []}

        def send(source: Source) -> None:
            for number in numbers:
                request = source.request(source.speak.put(identifier, number, f"from {id(source)}"))
                source.wire.send(request[:-1])  # all but the last byte: both then complete at once
                together.wait()
                source.wire.send(request[-1:])
                ranges[source].append(source.wire.read().reply.ack.ranges)

        threads = [threading.Thread(target=send, args=(source,)) for source in (one, two)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(30)
        covering = [((1, number),) for number in numbers]
        assert ranges == {one: covering, two: covering}
        assert one.delivered(identifier) == list(numbers)
        assert one.calls(identifier) == list(numbers)
        assert one.store.sequence(identifier)["duplicates"] == len(numbers)


@pytest.mark.spec("D-SEQ-030")
@every_version
def test_a_fault_of_the_service_does_not_undo_acceptance(source: Source) -> None:
    identifier = source.create()
    assert source.put(identifier, 1, "client-fault").reply.ack.ranges == ((1, 1),)
    request = source.speak.echo(identifier, 2, "client-fault")
    for answer in (source.post(request), source.post(request)):
        assert answer.status >= 400
        assert answer.reply.fault is not None
        assert answer.reply.fault.code == "Sender"
        assert answer.reply.ack.ranges == ((1, 2),)
    assert source.put(identifier, 1, "client-fault").reply.ack.ranges == ((1, 2),)
    assert source.put(identifier, 3).reply.ack.ranges == ((1, 3),)
    assert source.delivered(identifier) == [3]
    assert source.calls(identifier) == [1, 2, 3]
    assert source.store.outcomes(identifier) == dict.fromkeys((1, 2, 3), "delivered")


# refused


@pytest.mark.spec("D-SEQ-002", "F-001")
@every_version
def test_an_identifier_that_was_not_created_is_unknown(source: Source) -> None:
    before, seen = source.store.everything(), source.server.mark()
    answer = source.put(UNKNOWN, 1, n=41)
    fault = fault_of(source, answer)
    assert (fault.code, fault.subcode, fault.identifier) == ("Sender", "UnknownSequence", UNKNOWN)
    assert source.store.everything() == before
    good_exchange(source.server, source.speak)
    assert 41 not in seen.numbers()


@pytest.mark.spec("D-SEQ-003")
@every_version
def test_a_terminated_sequence_takes_nothing(source: Source) -> None:
    identifier = source.create()
    source.put(identifier, 1)
    source.terminate(identifier)
    before = source.store.everything()
    for number in (1, 2):
        fault = fault_of(source, source.put(identifier, number))
        assert fault.subcode in ("UnknownSequence", "SequenceTerminated")
        assert fault.identifier == identifier
    assert source.store.everything() == before
    good_exchange(source.server, source.speak)
    assert source.delivered(identifier) == [1]
    assert source.calls(identifier) == [1]


@pytest.mark.spec("D-SEQ-011")
@pytest.mark.parametrize("second", ["the next number", "the same number", "another sequence", "an unknown one"])
@every_version
def test_two_sequence_headers_are_refused_whole(second: str, source: Source) -> None:
    identifier, other = source.create(), source.create()
    header = {
        "the next number": source.speak.sequence_header(identifier, 2),
        "the same number": source.speak.sequence_header(identifier, 1),
        "another sequence": source.speak.sequence_header(other, 1),
        "an unknown one": source.speak.sequence_header(UNKNOWN, 1),
    }[second]
    before = source.store.everything()
    fault = fault_of(source, source.put(identifier, 1, headers=header))
    assert fault.code in ("Sender", "MustUnderstand")
    assert source.store.everything() == before
    takes_its_turn(source, identifier, 1, [1])
    takes_its_turn(source, other, 1, [1])


@pytest.mark.spec("D-SEQ-012", "D-SEQ-013", "D-SEQ-017")
@pytest.mark.parametrize(
    "number", ["0", "-1", "", "abc", "1.0", "1e3", "0x1", "18446744073709551616", "1 2", "١", "<x/>1"]
)
@every_version
def test_what_is_no_number_is_refused(number: str, source: Source) -> None:
    identifier = source.create()
    before = source.store.everything()
    assert fault_of(source, source.put(identifier, number)).code == "Sender"
    assert source.store.everything() == before
    takes_its_turn(source, identifier, 1, [1])
    assert source.store.received(identifier) == [(1, 1)]


@pytest.mark.spec("D-SEQ-015", "D-SEQ-016", "F-004", "F-005")
@pytest.mark.parametrize("number", [2**63, 2**64 - 1])
@every_version
def test_a_number_above_the_largest_rolls_over(number: int, source: Source) -> None:
    identifier = source.create()
    source.put(identifier, 1)
    fault = fault_of(source, source.put(identifier, number))
    assert (fault.code, fault.subcode, fault.identifier) == ("Sender", "MessageNumberRollover", identifier)
    assert source.store.received(identifier) == [(1, 1)]
    assert list(source.store.outcomes(identifier)) == [1]
    if source.speak.rm.has_close:
        assert fault.max_number is not None
        answer = source.put(identifier, fault.max_number)  # the largest number is one that is taken
        assert answer.reply.ack.ranges == ((1, 1), (fault.max_number, fault.max_number))
    else:
        assert fault.max_number is None
    assert source.delivered(identifier) == [1]
    good_exchange(source.server, source.speak)


@pytest.mark.spec("D-SEQ-019")
@in_1_1
def test_after_a_rollover_the_lower_numbers_may_still_come(source: Source) -> None:
    identifier = source.create()
    source.put(identifier, 2)
    assert fault_of(source, source.put(identifier, 2**63)).subcode == "MessageNumberRollover"
    assert source.put(identifier, 1).reply.ack.ranges == ((1, 2),)
    assert not source.ask(identifier).reply.ack.final
    takes_its_turn(source, identifier, 3, [1, 2, 3])
    assert source.close(identifier, 3).reply.ack.final
    assert fault_of(source, source.put(identifier, 4)).subcode == "SequenceClosed"


@pytest.mark.spec("D-SEQ-020")
@in_1_0
def test_a_rollover_ends_a_1_0_sequence(source: Source) -> None:
    identifier = source.create()
    source.put(identifier, 1)
    assert fault_of(source, source.put(identifier, 2**63)).subcode == "MessageNumberRollover"
    row = source.store.sequence(identifier)
    assert (row["state"], row["ended"]) == ("ended", "refused")
    fault = fault_of(source, source.put(identifier, 2))
    assert fault.subcode in ("UnknownSequence", "SequenceTerminated")
    assert source.store.received(identifier) == [(1, 1)]
    assert source.delivered(identifier) == [1]


@pytest.mark.spec("D-SEQ-022")
@pytest.mark.parametrize("lacking", ["Identifier", "MessageNumber", "both", "a usable Identifier"])
@every_version
def test_a_header_that_lacks_a_part_is_refused(lacking: str, source: Source) -> None:
    identifier = source.create()
    before = source.store.everything()
    name = {"Identifier": None, "both": None, "a usable Identifier": ""}.get(lacking, identifier)
    number = None if lacking in ("MessageNumber", "both") else 1
    assert fault_of(source, source.put(name, number)).code == "Sender"
    assert source.store.everything() == before
    takes_its_turn(source, identifier, 1, [1])


@pytest.mark.spec("D-SEQ-024", "H-019")
@every_version
def test_a_message_past_the_window_comes_again_inside_it(servers: Servers, speak: Orders) -> None:
    with Source(servers(window=3), speak) as source:
        identifier = source.create()
        assert source.put(identifier, 1).reply.ack.ranges == ((1, 1),)
        assert source.put(identifier, 4).reply.ack.ranges == ((1, 1), (4, 4))
        before = source.store.everything()
        past = source.speak.put(identifier, 5)
        answer = source.post(past)
        assert answer.status == 503
        assert int(answer.fields["retry-after"]) > 0
        assert b"Envelope" not in answer.body
        assert source.store.everything() == before
        assert source.ask(identifier).reply.ack.ranges == ((1, 1), (4, 4))
        assert source.put(identifier, 2).reply.ack.ranges == ((1, 2), (4, 4))
        assert source.post(past).reply.ack.ranges == ((1, 2), (4, 5))
        assert source.put(identifier, 3).reply.ack.ranges == ((1, 5),)
        assert source.delivered(identifier) == [1, 2, 3, 4, 5]
        assert source.calls(identifier) == [1, 2, 3, 4, 5]


STRANGE = '<x:Priority xmlns:x="urn:example:else" soap:mustUnderstand="1">7</x:Priority>'


@pytest.mark.spec("D-SEQ-025")
@every_version
def test_a_message_with_a_mandatory_header_of_others_is_not_accepted(servers: Servers, speak: Orders) -> None:
    with Source(servers(understood=["urn:example:known"]), speak) as source:
        identifier = source.create()
        before = source.store.everything()
        answer = source.put(identifier, 1, headers=STRANGE)
        fault = fault_of(source, answer)
        assert fault.code == "MustUnderstand"
        if speak.soap is SOAPVersion.SOAP_1_2:
            [named] = answer.elements("NotUnderstood")
            prefix, _, local = (named.get("qname") or "").partition(":")
            assert (named.nsmap[prefix], local) == ("urn:example:else", "Priority")
        assert source.store.everything() == before
        asked = source.ask(identifier)
        assert asked.reply.ack.none if speak.rm.has_none else asked.body == b""
        known = STRANGE.replace("urn:example:else", "urn:example:known")
        assert source.put(identifier, 1, headers=known).reply.ack.ranges == ((1, 1),)
        optional = STRANGE.replace('"1"', '"0"')
        assert source.put(identifier, 2, headers=optional).reply.ack.ranges == ((1, 2),)
        assert source.delivered(identifier) == [1, 2]


@pytest.mark.spec("D-SEQ-026", "F-009", "F-016")
@in_1_1
def test_where_rm_is_required_a_message_without_it_is_refused(servers: Servers, speak: Orders) -> None:
    with Source(servers(require_rm=True), speak) as source:
        seen, before = source.server.mark(), source.store.everything()
        answer = source.put_plain(23)
        fault = fault_of(source, answer)
        assert (fault.code, fault.subcode) in (("Sender", "WSRMRequired"), ("", "WSRMRequired"))
        if speak.soap is SOAPVersion.SOAP_1_1:
            [code] = answer.elements("faultcode")
            assert (code.text or "").endswith(":WSRMRequired")
        assert source.store.everything() == before
        good_exchange(source.server, speak)
        assert seen.numbers() == [1]  # of the good exchange


@pytest.mark.spec("D-SEQ-028")
@in_1_1
def test_a_last_message_child_makes_a_1_1_header_invalid(source: Source) -> None:
    identifier = source.create()
    before = source.store.everything()
    assert fault_of(source, source.put(identifier, 1, last=True)).code == "Sender"
    assert source.store.everything() == before
    takes_its_turn(source, identifier, 1, [1])


def without_action(source: Source, identifier: str) -> bytes:
    return source.speak.put(identifier, 5, action=None)


def with_two_headers(source: Source, identifier: str) -> bytes:
    return source.speak.put(identifier, 5, headers=source.speak.sequence_header(identifier, 6))


def with_a_strange_header(source: Source, identifier: str) -> bytes:
    return source.speak.put(identifier, 5, headers=STRANGE)


def past_the_window(source: Source, identifier: str) -> bytes:
    return source.speak.put(identifier, 50)


def with_two_actions(source: Source, identifier: str) -> bytes:
    return source.speak.put(identifier, 5, headers="<wsa:Action>urn:example:else</wsa:Action>")


def with_a_filled_last_message(source: Source, identifier: str) -> bytes:
    return source.speak.put(identifier, 5, last="no")


def that_breaks_off(source: Source, identifier: str) -> bytes:
    return source.speak.put(identifier, 5)[:-300]


def over_an_rm_body(source: Source, identifier: str) -> bytes:
    envelope = source.speak.put(identifier, 5)
    return re.sub(rb"(<soap:Body>).*(</soap:Body>)", rb"\1<wsrm:TerminateSequence/>\2", envelope)


@pytest.mark.spec("D-SEQ-023")
@pytest.mark.parametrize(
    "message",
    [
        without_action,
        with_two_headers,
        with_a_strange_header,
        past_the_window,
        with_two_actions,
        with_a_filled_last_message,
        that_breaks_off,
        over_an_rm_body,
    ],
    ids=lambda message: message.__name__,
)
@every_version
def test_the_number_of_a_refused_message_is_never_acknowledged(
    message: Callable[[Source, str], bytes], servers: Servers, speak: Orders
) -> None:
    with Source(servers(understood=[], window=10), speak) as source:
        identifier = source.create()
        source.put(identifier, 1)
        before = source.store.everything()
        refused = source.post(message(source, identifier))
        assert refused.status >= 400
        assert b"SequenceAcknowledgement>" not in refused.body
        assert source.store.everything() == before
        assert source.ask(identifier).reply.ack.ranges == ((1, 1),)
        takes_its_turn(source, identifier, 2, [1, 2])
        if speak.rm.has_close:
            assert source.close(identifier).reply.ack.ranges == ((1, 2),)


@pytest.mark.spec("A-002")
@every_version
def test_without_action_nothing_is_accepted(source: Source) -> None:
    identifier = source.create()
    before = source.store.everything()
    fault = fault_of(source, source.put(identifier, 1, action=None))
    addressing = source.speak.addressing
    assert (fault.namespace, fault.subcode) == (addressing.namespace, addressing.header_required)
    assert source.store.everything() == before
    takes_its_turn(source, identifier, 1, [1])


@pytest.mark.spec("A-003")
@pytest.mark.parametrize("header", ["Action", "MessageID"])
@every_version
def test_an_addressing_header_twice_is_refused(header: str, source: Source) -> None:
    identifier = source.create()
    before = source.store.everything()
    value = {"Action": PUT_ORDER, "MessageID": "urn:example:second"}[header]
    fault = fault_of(source, source.put(identifier, 1, headers=f"<wsa:{header}>{value}</wsa:{header}>"))
    addressing = source.speak.addressing
    assert fault.namespace == addressing.namespace
    # SOAP 1.1 has room for one code, the most particular.
    assert fault.subcode in (addressing.invalid_header, "InvalidCardinality")
    assert source.store.everything() == before
    takes_its_turn(source, identifier, 1, [1])


@pytest.mark.spec("A-010")
@every_version
def test_a_one_way_message_needs_no_message_id(source: Source) -> None:
    identifier = source.create()
    answer = source.put(identifier, 1, message_id=None)
    assert answer.reply.ack.ranges == ((1, 1),)
    assert answer.reply.relates_to is None
    assert source.delivered(identifier) == [1]


@pytest.mark.spec("A-013")
@every_version
def test_addressing_is_read_without_the_white_space_around_it(source: Source) -> None:
    speak = source.speak
    spaced = f"<wsa:Address>\n {speak.anonymous}\t</wsa:Address>"
    envelope = speak.create_sequence(acks_to=spaced, reply_to=spaced, message_id="\n urn:example:spaced ")
    action = speak.rm.action("CreateSequence").encode()
    envelope = envelope.replace(b">" + action + b"<", b">\n\t" + action + b" <")
    reply = source.post(envelope).reply
    assert reply.created is not None
    assert reply.relates_to == "urn:example:spaced"
    identifier = reply.created.identifier
    answer = source.put(identifier, 1, action=f" {PUT_ORDER}\n")
    assert answer.reply.ack.ranges == ((1, 1),)
    assert source.delivered(identifier) == [1]


@pytest.mark.spec("A-007")
@every_version
def test_the_other_addressing_versions_anonymous_address_is_a_strange_one(source: Source) -> None:
    [other] = set(ADDRESSING_VERSIONS.values()) - {source.speak.addressing}
    before = source.store.everything()
    answer = source.post(source.speak.create_sequence(acks_to=other.anonymous))
    assert fault_of(source, answer).subcode == "CreateSequenceRefused"
    assert source.store.everything() == before


@pytest.mark.spec("A-012")
@every_version
def test_the_http_action_may_be_empty_and_must_not_contradict(source: Source) -> None:
    identifier, speak = source.create(), source.speak

    def put(number: int, action: str) -> HTTPAnswer:
        if speak.soap is SOAPVersion.SOAP_1_1:
            return source.post(source.speak.put(identifier, number), f'SOAPAction: "{action}"')
        content_type = f'{speak.content_type}; action="{action}"'
        return source.post(source.speak.put(identifier, number), content_type=content_type)

    assert put(1, "").reply.ack.ranges == ((1, 1),)
    assert put(2, PUT_ORDER).reply.ack.ranges == ((1, 2),)
    before = source.store.everything()
    contradicted = put(3, "urn:example:else")
    if speak.addressing.label == "1.0":
        fault = fault_of(source, contradicted)
        assert fault.namespace == speak.addressing.namespace
        assert "ActionMismatch" in (fault.third, fault.subcode)
        assert source.store.everything() == before
    else:
        assert contradicted.reply.ack.ranges == ((1, 3),)  # 2004/08 says nothing of the kind
    good_exchange(source.server, speak)


@pytest.mark.spec("D-SEQ-007", "D-SEQ-010")
@pytest.mark.scenario("Q-042")
@pytest.mark.parametrize("assurance", ["exactly_once", "at_most_once"])
@each_rm
def test_a_number_received_again_when_nothing_of_its_sequence_runs_any_more_is_not_delivered_again(
    assurance: str, servers: Servers, speak: Orders
) -> None:
    with Source(servers(assurance=assurance), speak) as source:
        identifier = source.create()
        source.put(identifier, 1)
        assert source.soon(identifier, [1]) == [1]
        for _ in range(2):
            within(5, lambda: source.store.sequence(identifier)["owner"], lambda owner: owner is None)
            assert source.put(identifier, 1).reply.ack.ranges == ((1, 1),)
        takes_its_turn(source, identifier, 2, [1, 2])
