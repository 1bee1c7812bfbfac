"""An outbound sequence that answers none: the verbs that replies have, and nothing of an inbound sequence."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.queue.build import USUAL, Instance, Node, add_outbound, sender
from wsrm_mq.delivery.outgoing_messages import with_end_of_outbound
from wsrm_mq.queue.arrival import Receipt
from wsrm_mq.queue.ending import bury_tails
from wsrm_mq.queue.hearing import Said, hear
from wsrm_mq.queue.outbound import acknowledged_with, give_number
from wsrm_mq.queue.ownership import Claim
from wsrm_mq.queue.policy import Resend
from wsrm_mq.queue.polling import fetch
from wsrm_mq.queue.requests import sent
from wsrm_mq.queue.retention import Kept, batches
from wsrm_mq.queue.sending import LENT_FOR, OutgoingMessage, send
from wsrm_mq.sequence.elements import EndpointReference, SequenceAcknowledgement, SequenceFault, SequenceHeader
from wsrm_mq.sequence.faults import UnknownSequence
from wsrm_mq.sequence.outbound_states import OutboundState
from wsrm_mq.store.applications import Serving
from wsrm_mq.store.channels import Channel
from wsrm_mq.store.invariants import all_findings
from wsrm_mq.store.outbound import OutboundRecord
from wsrm_mq.store.port import Database
from wsrm_mq.store.transaction import Transaction
from wsrm_mq.versions import MAKE_CONNECTION, WSA_2005, WSRM_1_1, SOAPVersion

OURS = "urn:ours"
THERE = EndpointReference("http://partner.example/orders")
RESEND = Resend((1_000, 5_000))
AN_HOUR = 3_600_000


@pytest.fixture
def one(node: Node) -> Instance:
    return node.start(Serving(sends=True))


def add(one: Instance, identifier: str = OURS, endpoint: EndpointReference = THERE) -> int:
    """Create one; its key."""
    return one.run(lambda tx: add_outbound(tx, identifier, endpoint, tx.now + AN_HOUR)).id


def ours(tx: Transaction, identifier: str = OURS) -> OutboundRecord:
    record = tx.outbound_named(identifier)
    assert record is not None
    return record


def put(one: Instance, *, is_last: bool = False) -> tuple[Claim | None, int]:
    """Have a message leave; the claim on it, where it is not claimed, and its position."""

    def verb(tx: Transaction) -> tuple[Claim | None, int]:
        outbound = ours(tx)
        header = give_number(tx, outbound, is_last=is_last)
        assert header is not None
        body = b"<Envelope/>"
        message = OutgoingMessage(THERE, f"urn:message:{header.number}", "urn:put", "application/soap+xml", body)
        leaving = send(tx, outbound, message, header.number)
        assert leaving.position is not None
        return leaving.claim, leaving.position

    return one.run(verb)


def acknowledge(one: Instance, *ranges: tuple[int, int], nacks: tuple[int, ...] = ()) -> Receipt:
    """What the partner's answer says, and what follows from it."""
    said = Said(WSRM_1_1, (SequenceAcknowledgement(OURS, ranges, nacks),))

    def verb(tx: Transaction) -> Receipt:
        channel = Channel(THERE, None, ours(tx).id, is_numbered=True)
        return with_end_of_outbound(tx, lambda tx: hear(tx, channel, said, lambda _partner: USUAL))

    receipt = one.run(verb)
    assert list(all_findings(one.db)) == []
    return receipt


def state(one: Instance) -> tuple[OutboundState, int, str]:
    value = one.run(ours).value
    return value.state, value.given, str(value.acknowledged)


def test_it_has_a_key_of_its_own_which_is_given_once_and_leads_to_it_as_its_name_does(node: Node) -> None:
    one, other = node.start(), node.start()
    key = add(one)
    for instance in (one, other):
        by_key, by_name = (instance.run(lambda tx, find=find: find(tx)) for find in (lambda tx: tx.outbound(key), ours))
        assert by_key is not None
        for record in (by_key, by_name):
            assert (record.id, record.answered, record.endpoint) == (key, None, THERE)
            terms = record.value.terms
            assert (record.sender, terms.soap, terms.addressing) == ("partner", SOAPVersion.SOAP_1_2, WSA_2005)
            assert terms.expires_at == one.clock() + AN_HOUR
    assert one.run(lambda tx: tx.outbound(key) is ours(tx))
    assert other.run(lambda tx: tx.outbound(key + 1)) is None
    assert other.run(lambda tx: tx.outbound_named("urn:other")) is None
    one.run(lambda tx: tx.execute("DELETE FROM outbound_sequence"))
    assert add(one) > key


def test_what_is_kept_of_it_in_memory_is_what_is_committed(node: Node) -> None:
    one, other = (node.start(Serving(sends=True)) for _ in range(2))
    add(one)
    put(one)

    def breaks(tx: Transaction) -> None:
        give_number(tx, ours(tx), is_last=True)
        tx.flush()
        raise RuntimeError

    with pytest.raises(RuntimeError):
        one.run(breaks)
    assert state(one) == (OutboundState.CREATED, 1, "")
    put(other)
    acknowledge(one, (1, 2))
    assert state(other) == (OutboundState.CREATED, 2, "1-2")
    put(one)
    assert state(other) == (OutboundState.CREATED, 3, "1-2")


def test_as_many_are_held_as_wait_for_its_window(one: Instance) -> None:
    add(one)
    for _ in range(30):
        put(one)
    held = []
    for upper in (1, 8, 9, 18, 30):
        acknowledge(one, (1, upper))
        (row,) = one.rows('SELECT held, "limit" FROM lane')
        assert one.rows(f"SELECT count(*) AS n FROM entry WHERE number >= {row['limit']}") == [{"n": row["held"]}]
        held.append(row["held"])
    assert held == [21, 14, 12, 0, 0]


def test_its_name_is_that_of_no_other_sequence(one: Instance) -> None:
    inbound = one.create(offer="urn:offered").terms.identifier
    for taken in (inbound, "urn:offered"):
        with pytest.raises(AssertionError):
            add(one, taken)
    add(one)
    assert one.run(lambda tx: (tx.outbound_named("urn:offered"), tx.outbound_named(OURS))) != (None, None)


def test_what_is_sent_in_it_is_sent_again_until_it_is_acknowledged_and_then_it_is_terminated(one: Instance) -> None:
    add(one)
    claim, first = put(one)
    assert claim is not None
    assert claim.is_outgoing
    assert put(one)[0] is None, "the lane is claimed already"
    for position, number in ((first, 1), (first + 1, 2)):
        one.run(lambda tx, at=(position, number): sent(tx, claim, *at, 1, RESEND, release=False))
    assert one.to_run(claim) == []
    assert acknowledge(one, (1, 1)).terminates is None
    assert one.outcomes(claim.lane) == {1: "delivered", 2: None}
    one.clock.advance(RESEND.ladder[0])
    assert one.to_run(claim) == [2]
    one.run(lambda tx: sent(tx, claim, first + 1, 2, 2, RESEND, release=False))
    assert one.to_run(claim) == []
    acknowledge(one, (1, 1), nacks=(2,))
    assert one.to_run(claim) == [2], "it is lacked there, so it leaves at once"
    _claim, last = put(one, is_last=True)
    one.run(lambda tx: sent(tx, claim, last, 3, 1, RESEND, release=True))
    assert state(one) == (OutboundState.CREATED, 3, "1")

    receipt = acknowledge(one, (1, 3))
    assert set(one.outcomes(claim.lane).values()) == {"delivered"}
    assert state(one) == (OutboundState.TERMINATED, 3, "1-3")
    (end,) = receipt.sends
    (told,) = one.rows("SELECT m.action FROM entry e JOIN message m ON m.id = e.message WHERE e.lane = ?", end.lane)
    assert told["action"] == WSRM_1_1.action("TerminateSequence")
    numbered = one.rows("SELECT lane, answers, is_numbered FROM channel ORDER BY lane")
    assert numbered == [
        {"lane": claim.lane, "answers": None, "is_numbered": 1},
        {"lane": end.lane, "answers": None, "is_numbered": 0},
    ]


def test_a_destination_that_takes_its_time_to_acknowledge_gets_nothing_twice_for_that(one: Instance) -> None:
    add(one)
    claim, position = put(one)
    assert claim is not None
    one.run(lambda tx: sent(tx, claim, position, 1, 1, RESEND, release=False))
    one.clock.advance(900)
    acknowledge(one, (1, 1))
    _claim, position = put(one)
    one.run(lambda tx: sent(tx, claim, position, 2, 1, RESEND, release=False))
    one.clock.advance(2_600)
    assert one.to_run(claim) == [], "three times the round trip have not passed"
    one.clock.advance(200)
    assert one.to_run(claim) == [2]
    one.run(lambda tx: sent(tx, claim, position, 2, 2, RESEND, release=False))
    one.clock.advance(4_000)
    acknowledge(one, (1, 2))  # of which sending, is not known: it says nothing of the time
    _claim, position = put(one)
    one.run(lambda tx: sent(tx, claim, position, 3, 1, RESEND, release=False))
    one.clock.advance(2_800)
    assert one.to_run(claim) == [3]


def test_what_is_sent_as_often_as_its_policy_says_is_a_dead_letter(one: Instance) -> None:
    add(one)
    claim, position = put(one)
    assert claim is not None
    for attempt in (1, 2, 3):
        one.run(lambda tx, attempt=attempt: sent(tx, claim, position, 1, attempt, RESEND, release=False))
        one.clock.advance(5_000)
    assert one.entry(claim.lane, 1)["reason"] == "not_acknowledged"
    assert (RESEND.wait(1), RESEND.wait(2), RESEND.wait(3)) == (1_000, 5_000, None)


def test_what_another_sequence_is_to_carry_on_is_no_dead_letter_after_its_last_sending(one: Instance) -> None:
    add(one)
    claim, position = put(one)
    assert claim is not None

    def give_up_all(tx: Transaction) -> None:
        lane = tx.lane(claim.lane)
        assert lane is not None
        lane.discard_from = 1

    one.run(give_up_all)
    one.run(lambda tx: sent(tx, claim, position, 1, 3, RESEND, release=False))
    assert one.outcomes(claim.lane) == {1: None}


@pytest.mark.spec("SEC-003", versions="all")
def test_only_its_endpoint_speaks_of_it(one: Instance) -> None:
    add(one)
    put(one)
    said = (SequenceAcknowledgement(OURS, ((1, 1),)),)
    for stranger in (sender(), sender(peer="192.0.2.7"), sender(principal="mallory", peer=THERE.address)):
        receipt = one.run(lambda tx, who=stranger: acknowledged_with(tx, lambda _tx: Receipt(), who, said))
        (wrong,) = receipt.wrong_acknowledgements
        assert isinstance(wrong, UnknownSequence)
    elsewhere = EndpointReference("http://other.example/")
    key = add(one, "urn:another", elsewhere)
    of_another = Channel(elsewhere, None, key, is_numbered=True)
    one.run(lambda tx: hear(tx, of_another, Said(WSRM_1_1, said), lambda _partner: USUAL))
    assert state(one) == (OutboundState.CREATED, 1, "")


def test_what_was_not_acknowledged_when_it_fails_there_goes_on_in_another_and_is_told_in_the_ledger(
    one: Instance,
) -> None:
    add(one)
    claim, position = put(one)
    assert claim is not None
    one.run(lambda tx: sent(tx, claim, position, 1, 1, RESEND, release=True))
    said = Said(WSRM_1_1, fault=SequenceFault("UnknownSequence", OURS))

    def verb(tx: Transaction) -> Receipt:
        return hear(tx, Channel(THERE, None, ours(tx).id, is_numbered=True), said, lambda _partner: USUAL)

    one.run(verb)
    one.run(bury_tails)
    assert state(one)[0] is OutboundState.FAILED
    assert (one.entry(claim.lane, 1)["outcome"], one.entry(claim.lane, 1)["reason"]) == ("discarded", "replayed")
    (again,) = one.rows("SELECT lane, number, replay_of, message FROM entry WHERE outcome IS NULL")
    assert (again["number"], again["replay_of"], again["message"]) == (1, position, position)
    assert [row["state"] for row in one.rows("SELECT state FROM outbound_sequence")] == ["failed", "creating"]
    (row,) = one.ledger("requests_in_doubt")
    assert (row["sequence"], row["reason"]) == (claim.lane, f"not acknowledged: 1 of {OURS}")
    (row,) = one.ledger("fault_received")
    assert row["sequence"] == claim.lane


@pytest.mark.parametrize("is_ended", [True, False])
def test_it_is_forgotten_once_it_has_ended_and_nothing_of_it_is_kept(one: Instance, is_ended: bool) -> None:
    add(one)
    claim, position = put(one, is_last=is_ended)
    assert claim is not None
    one.run(lambda tx: sent(tx, claim, position, 1, 1, RESEND, release=True))
    for end in acknowledge(one, (1, 1)).sends:
        one.settle(end, 1, release=True)
    one.create()  # the newest lane stays
    one.clock.advance(10 * AN_HOUR)

    @contextmanager
    def reader() -> Iterator[Database]:
        yield one.db

    for batch in batches(reader, lambda _partner: Kept(AN_HOUR, AN_HOUR), one.clock()):
        one.run(batch)
    assert one.rows("SELECT lane FROM channel") == []
    assert [row["identifier"] for row in one.rows("SELECT identifier FROM outbound_sequence")] == (
        [] if is_ended else [OURS]
    )
    assert list(all_findings(one.db)) == []


@pytest.mark.spec("MC-010", versions="all")
def test_what_is_fetched_of_it_is_lent_with_its_place_until_it_is_acknowledged(one: Instance) -> None:
    home = EndpointReference(f"{MAKE_CONNECTION.anonymous}ours")
    key = add(one, endpoint=home)

    def verb(tx: Transaction) -> None:
        header = give_number(tx, ours(tx), is_last=False)
        assert header is not None
        send(tx, ours(tx), OutgoingMessage(home, "urn:message", "urn:put", "text/xml", b"<Envelope/>"), header.number)

    one.run(verb)
    for _ in range(2):
        found = one.run(lambda tx: fetch(tx, sender(peer=home.address), home.address, USUAL)).fetched
        assert found is not None
        assert (found.place, found.terms.soap) == (SequenceHeader(OURS, 1, False), SOAPVersion.SOAP_1_2)
        one.clock.advance(LENT_FOR)
    said = Said(WSRM_1_1, (SequenceAcknowledgement(OURS, ((1, 1),)),))
    one.run(lambda tx: hear(tx, Channel(home, None, key), said, lambda _partner: USUAL))
    assert one.run(lambda tx: fetch(tx, sender(peer=home.address), home.address, USUAL)).fetched is None
