"""Acknowledgements on the responses to a source that can be reached nowhere else (D-ACK, and H where they show)."""

from __future__ import annotations

import random
import threading
from itertools import pairwise

import pytest
from lxml import etree

from tests.support.orders import PUT_ORDER, Orders, put_order
from tests.support.orders_server import OrdersServer, within
from tests.support.source import Source, each_rm, every_version, in_1_0, in_1_1
from wsrm_mq.testing import HTTPAnswer
from wsrm_mq.versions import RM_VERSIONS

from .conversation import UNKNOWN, everything_sent

Ranges = tuple[tuple[int, int], ...]


def ranges_of(numbers: set[int]) -> Ranges:
    """The fewest ranges that name exactly these numbers, ascending."""
    lowers = sorted(n for n in numbers if n - 1 not in numbers)
    uppers = sorted(n for n in numbers if n + 1 not in numbers)
    return tuple(zip(lowers, uppers, strict=True))


def nothing_acknowledged(answer: HTTPAnswer) -> bool:
    return not answer.body or answer.elements("SequenceAcknowledgement") == []


# what they say


@pytest.mark.spec("D-ACK-001", "D-ACK-002", "D-ACK-003", "D-ACK-004", "D-ACK-024")
@pytest.mark.parametrize("seed", range(3))
@every_version
def test_each_acknowledgement_names_all_that_was_accepted_and_nothing_else(seed: int, source: Source) -> None:
    identifier = source.create()
    numbers = [*range(1, 31), *range(40, 46)]
    arrivals = random.Random(seed).sample(numbers, len(numbers))
    accepted: set[int] = set()
    for turn, number in enumerate(arrivals):
        accepted.add(number)
        assert source.put(identifier, number).reply.ack.ranges == ranges_of(accepted)
        if turn % 7 == 0:
            source.put(identifier, 0)  # refused: it must not show
            assert source.ask(identifier).reply.ack.ranges == ranges_of(accepted)
    assert tuple(source.store.received(identifier)) == ((1, 30), (40, 45))
    assert source.delivered(identifier) == list(range(1, 31))


@pytest.mark.spec("D-ACK-005")
@in_1_1
def test_before_anything_is_accepted_there_is_none(source: Source) -> None:
    identifier = source.create()
    [block] = source.ask(identifier).elements("SequenceAcknowledgement")
    assert [etree.QName(child).localname for child in block] == ["Identifier", "None"]
    source.put(identifier, 0)
    assert source.ask(identifier).reply.ack == (identifier, (), False, True)
    assert source.store.received(identifier) == []
    assert source.put(identifier, 1).reply.ack == (identifier, ((1, 1),), False, False)


@pytest.mark.spec("D-ACK-006", "H-003")
@in_1_0
def test_before_anything_is_accepted_a_1_0_acknowledgement_is_left_out(source: Source) -> None:
    identifier = source.create()
    answer = source.ask(identifier)
    assert (answer.status, answer.body) == (202, b"")
    assert answer.fields.get("content-length", "0") == "0"
    assert source.put(identifier, 1).reply.ack.ranges == ((1, 1),)


@pytest.mark.spec("D-ACK-007", "D-ACK-008", "D-ACK-012", "D-ACK-013")
@every_version
def test_an_acknowledgement_says_one_kind_of_thing(source: Source) -> None:
    kinds = set()
    for name, answer in everything_sent(source).items():
        for block in answer.elements("SequenceAcknowledgement"):
            said = {etree.QName(child).localname for child in block} - {"Identifier"}
            kinds |= said
            assert len(said & {"AcknowledgementRange", "Nack", "None"}) == 1, name
            assert not {"Final", "Nack"} <= said, name
            # None of ours: what was not received may still come.
            assert "Nack" not in said, name
    assert kinds == {"AcknowledgementRange"} | ({"None", "Final"} if source.speak.rm.has_none else set())


@pytest.mark.spec("D-ACK-009", "D-ACK-010", "D-ACK-011", "D-ACK-016")
@in_1_1
def test_final_is_said_from_the_close_on_and_the_ranges_stay(source: Source) -> None:
    identifier = source.create()
    open_answers = [source.put(identifier, 1), source.put(identifier, 3), source.echo(identifier, 2, "two")]
    open_answers += [source.put(identifier, 6), source.put(identifier, 6), source.ask(identifier)]
    assert [answer.reply.ack.final for answer in open_answers] == [False] * 6
    assert open_answers[-1].reply.ack.ranges == ((1, 3), (6, 6))

    closed_answers = [
        source.close(identifier, 6),
        source.ask(identifier),
        source.put(identifier, 4),  # SequenceClosed
        source.put(identifier, 7),
        source.put(identifier, 6),
        source.close(identifier, 6),
        source.put(identifier, 5, ack_requested=True),
        source.terminate(identifier, 6),
    ]
    for answer in closed_answers:
        assert answer.reply.ack == (identifier, ((1, 3), (6, 6)), True, False)
    assert [answer.reply.fault.subcode for answer in closed_answers if answer.reply.fault] == ["SequenceClosed"] * 3
    assert source.store.received(identifier) == [(1, 3), (6, 6)]
    assert source.delivered(identifier)[-1] == 6
    assert source.calls(identifier) == [1, 2, 3, 6]


@pytest.mark.spec("D-ACK-026", "D-ACK-027", "H-015", "RSP-003")
@every_version
def test_an_acknowledgement_by_itself_is_an_empty_message_of_no_sequence(source: Source) -> None:
    identifier = source.create()
    for answer in (source.put(identifier, 1), source.put(identifier, 3), source.ask(identifier)):
        assert answer.status == 200
        assert answer.reply.action == source.speak.rm.action("SequenceAcknowledgement")
        assert answer.reply.relates_to is None, (
            "a client that knows nothing of the message any more drops a reply to it"
        )
        header, body = answer.tree
        assert (len(body), (body.text or "").strip()) == (0, "")
        assert [etree.QName(block).localname for block in header if etree.QName(block).namespace in RM_VERSIONS] == [
            "SequenceAcknowledgement"
        ]
        assert [block.get(f"{{{source.speak.soap.namespace}}}mustUnderstand") for block in header].count("1") == 0
        assert answer.fields["content-type"].startswith(source.speak.soap.media_type)


@pytest.mark.spec("D-ACK-026")
@every_version
def test_no_acknowledgement_is_mandatory_wherever_it_rides(source: Source) -> None:
    flag = f"{{{source.speak.soap.namespace}}}mustUnderstand"
    blocks = [
        block for answer in everything_sent(source).values() for block in answer.elements("SequenceAcknowledgement")
    ]
    assert len(blocks) > 4
    assert {block.get(flag, "0") for block in blocks} <= {"0", "false"}


# when they come


@pytest.mark.spec("D-ACK-014")
@every_version
def test_one_envelope_holds_one_acknowledgement_of_a_sequence(source: Source) -> None:
    identifier, asked_again = source.create(), source.speak.ack_requested_header
    answers = [
        source.put(identifier, 1, ack_requested=True),
        source.put(identifier, 2, headers=asked_again(identifier) * 2),
        source.echo(identifier, 3, "three", ack_requested=True),
        source.ask(identifier, identifier, identifier),
        source.ask(identifier, f" {identifier} "),
    ]
    if source.speak.rm.has_close:
        answers.append(source.close(identifier, headers=asked_again(identifier)))
    for answer in answers:
        assert len(answer.elements("SequenceAcknowledgement")) == 1
        assert answer.reply.ack.identifier == identifier
    assert answers[-1].reply.ack.ranges == ((1, 3),)


@pytest.mark.spec("D-ACK-015", "D-ACK-022")
@every_version
def test_who_asks_for_an_acknowledgement_gets_it_on_the_response(source: Source) -> None:
    identifier = source.create()
    source.put(identifier, 1)
    source.put(identifier, 5)
    for reply_to in ("", "none", None):
        assert source.ask(identifier, reply_to=reply_to).reply.ack.ranges == ((1, 1), (5, 5))
    assert source.put(identifier, 2, ack_requested=True).reply.ack.ranges == ((1, 2), (5, 5))
    echoed = source.echo(identifier, 3, "three", ack_requested=True)
    assert echoed.reply.ack.ranges == ((1, 3), (5, 5))
    assert echoed.text("echoResult") == "three"
    assert source.store.received(identifier) == [(1, 3), (5, 5)]


@pytest.mark.spec("D-ACK-017")
@every_version
def test_asking_about_an_unknown_sequence_is_answered_by_the_fault(source: Source) -> None:
    before = source.store.everything()
    fault = source.ask(UNKNOWN).reply.fault
    assert fault is not None
    assert (fault.code, fault.subcode, fault.identifier) == ("Sender", "UnknownSequence", UNKNOWN)
    assert source.store.everything() == before


@pytest.mark.spec("D-ACK-018")
@every_version
def test_a_valid_message_is_served_whatever_unknown_sequence_it_asks_about(source: Source) -> None:
    identifier = source.create()
    astray = source.speak.ack_requested_header(UNKNOWN)
    malformed = source.speak.ack_requested_header(None)
    assert source.put(identifier, 1, headers=astray).reply.ack == source.ask(identifier).reply.ack
    assert source.put(identifier, 2, headers=malformed).reply.ack.ranges == ((1, 2),)
    echoed = source.echo(identifier, 3, "three", headers=astray)
    assert (echoed.status, echoed.text("echoResult")) == (200, "three")
    assert echoed.reply.ack.ranges == ((1, 3),)
    if source.speak.rm.has_close:
        assert source.close(identifier, headers=astray).reply.body_name == "CloseSequenceResponse"
    assert source.terminate(identifier, headers=astray).status in (200, 202)
    assert source.store.sequence(identifier)["ended"] == "terminated"
    assert source.calls(identifier) == [1, 2, 3]


@pytest.mark.spec("D-ACK-019")
@pytest.mark.parametrize("child", ["MessageNumber", "MaxMessageNumberUsed"])
@pytest.mark.parametrize("number", [1, 7, 2**63, "x"])
@in_1_0
def test_a_number_inside_a_1_0_ack_requested_has_no_effect(number: object, child: str, source: Source) -> None:
    identifier = source.create()
    source.put(identifier, 1)
    before = source.store.everything()
    block = source.speak.ack_requested_header(identifier)
    block = block.replace("</wsrm:AckRequested>", f"<wsrm:{child}>{number}</wsrm:{child}></wsrm:AckRequested>")
    asked = source.post(source.speak.envelope(source.speak.rm.action("AckRequested"), "", headers=block))
    assert asked.reply.ack.ranges == ((1, 1),)
    assert source.store.everything() == before
    assert source.put(identifier, 2, headers=block).reply.ack.ranges == ((1, 2),)
    assert source.delivered(identifier) == [1, 2]


@pytest.mark.spec("D-ACK-021", "H-016")
@every_version
def test_acknowledgements_come_only_on_responses_to_requests_about_their_sequence(source: Source) -> None:
    first, second = source.create(), source.create()
    source.put(first, 1)
    speak = source.speak
    seen = source.server.mark()
    others = [
        source.post(speak.create_sequence()),
        source.put_plain(31),
        source.post(speak.envelope(f"{PUT_ORDER}?", put_order(32), reply_to="")),
        source.put(UNKNOWN, 1),
        source.put(None, 1),
    ]
    assert all(map(nothing_acknowledged, others))
    about_second = [source.put(second, 1), source.echo(second, 2, "two"), source.ask(second)]
    assert [answer.reply.ack.identifier for answer in about_second] == [second] * 3
    both = source.put(first, 2, headers=speak.ack_requested_header(second))
    assert [ack.identifier for ack in both.reply.acks] == [first, second]
    assert seen.soon([31, 32, 1, 2])
    assert source.delivered(first) == [1, 2]


@pytest.mark.spec("D-ACK-029", "H-001", "RSP-013")
@every_version
def test_the_response_to_a_one_way_message_covers_it(server: OrdersServer, speak: Orders) -> None:
    """Also where several connections send messages of one sequence at the same time."""
    sources = [Source(server, speak) for _ in range(4)]
    identifier = sources[0].create()
    numbers = list(range(1, 61))
    random.Random(7).shuffle(numbers)
    uncovered: list[tuple[int, Ranges]] = []
    answered: list[int] = []

    def send(source: Source, mine: list[int]) -> None:
        for number in mine:
            ranges = source.put(identifier, number).reply.ack.ranges
            answered.append(number)
            if not any(lower <= number <= upper for lower, upper in ranges):
                uncovered.append((number, ranges))
            assert all(upper + 1 < lower for (_, upper), (lower, _) in pairwise(ranges))

    threads = [threading.Thread(target=send, args=(each, numbers[i::4])) for i, each in enumerate(sources)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert uncovered == []
    assert sorted(answered) == sorted(numbers)
    assert sources[0].ask(identifier).reply.ack.ranges == ((1, 60),)
    assert sources[0].delivered(identifier) == sorted(numbers)
    for source in sources:
        source.wire.close()


@pytest.mark.spec("H-025", "D-ACK-029")
@pytest.mark.parametrize("reply_to", ["none", "http://127.0.0.1:9/nobody"])
@every_version
def test_a_one_way_message_brings_no_reply_whatever_its_reply_to(reply_to: str, source: Source) -> None:
    identifier = source.create()
    for number in (1, 2):
        answer = source.put(identifier, number, reply_to=reply_to)
        assert (answer.status, answer.reply.body_name) == (200, None)
        assert answer.reply.ack.ranges == ((1, number),)
    assert source.put(identifier, 2, reply_to=reply_to).reply.ack.ranges == ((1, 2),)
    assert source.delivered(identifier) == [1, 2]


@pytest.mark.spec("H-004", "H-005")
@every_version
def test_a_reply_relates_to_its_request_and_acknowledges_it(source: Source) -> None:
    identifier = source.create()
    message_id = f"urn:example:asked:{id(source)}"
    answer = source.echo(identifier, 1, "grüße <&>", message_id=message_id)
    assert (answer.status, answer.reply.relates_to) == (200, message_id)
    assert answer.text("echoResult") == "grüße <&>"
    assert answer.reply.ack.ranges == ((1, 1),)
    assert source.store.outcomes(identifier) == {1: "delivered"}
    assert source.texts(identifier) == ["grüße <&>"]


@pytest.mark.spec("D-ACK-030")
@each_rm
def test_what_was_named_before_a_crash_is_named_after_it(mortal: OrdersServer, speak: Orders) -> None:
    accepted: set[int] = set()
    with Source(mortal, speak) as source:
        identifier = source.create()

        def kill() -> None:
            """Between two operations: the third death on one message would count as its failure."""
            rest = 'SELECT 1 FROM lane WHERE cursor < "limit"'
            assert within(5, lambda: source.store.rows(rest), lambda rows: rows == []) == []
            mortal.kill()

        for numbers in ([1, 2, 5], [4, 9], [3], [10]):
            for number in numbers:
                accepted.add(number)
                assert source.put(identifier, number).reply.ack.ranges == ranges_of(accepted)
            kill()
            mortal.start()
            source.reconnect()
            assert source.ask(identifier).reply.ack.ranges == ranges_of(accepted)
            assert source.put(identifier, 1).reply.ack.ranges == ranges_of(accepted)
        other = source.put(source.create(), 1, headers=speak.ack_requested_header(identifier))
        assert {ack.identifier: ack.ranges for ack in other.reply.acks}[identifier] == ranges_of(accepted)
        kill()
        mortal.start()
        source.reconnect()
        accepted.add(6)
        assert source.put(identifier, 6).reply.ack.ranges == ranges_of(accepted), "first of all, one that is new"
        accepted.add(7)
        source.put(identifier, 7)
        accepted.add(8)
        assert source.echo(identifier, 8, "eight").reply.ack.ranges == ranges_of(accepted), "on a reply"
        if speak.rm.has_close:
            kill()
            mortal.start()
            source.reconnect()
            for end in (source.close, source.terminate):
                answer = end(identifier, 10).reply.ack
                assert (answer.ranges, answer.final) == (ranges_of(accepted), True)
        assert tuple(source.store.received(identifier)) == ranges_of(accepted)
        seen = source.delivered(identifier)
    assert [n for n in dict.fromkeys(seen) if n] == [1, 2, 3, 4, 5, 6, 7, 9, 10]  # 8 is the echo
