"""Delivery assurances and incomplete-sequence behaviors, as the service sees them (group D-DEL)."""

from __future__ import annotations

import threading
import time

import pytest

from tests.support.orders_server import within
from tests.support.policies import At, Start
from tests.support.source import Source, each_rm, each_rm_at_length, every_version, in_1_1


def gate_of(identifier: str) -> str:
    """A gate that no other test uses."""
    return identifier.rpartition(":")[2]


def buried(source: Source, identifier: str, *numbers: int, reason: str) -> bool:
    """Whether these are the dead letters, soon."""
    wanted = dict.fromkeys(numbers, reason)
    return within(5, lambda: source.store.dead_letters(identifier), lambda found: found == wanted) == wanted


# ---- how often


@each_rm_at_length
@pytest.mark.spec("D-DEL-002")
@pytest.mark.parametrize("path", ["/at_least_once", "/orders"])
def test_what_could_not_be_delivered_is_tried_again_until_it_can(at: At, path: str) -> None:
    source = at(path)
    identifier = source.create()
    assert source.put(identifier, 1, "fail=3").reply.ack.ranges == ((1, 1),)
    assert source.delivered(identifier) == [1]
    assert source.calls(identifier) == [1, 1, 1, 1]


@each_rm
@pytest.mark.peer("P-58")
def test_a_message_that_waits_for_a_service_that_fails_is_delivered_when_the_service_is_well(at: At) -> None:
    """It is acknowledged, and stays in the store with its error; those behind it wait; the sender need do nothing."""
    source = at("/orders")
    identifier = source.create()
    assert source.put(identifier, 1, "fail=2").reply.ack.ranges == ((1, 1),)
    assert source.put(identifier, 2).reply.ack.ranges == ((1, 2),)
    failed = "select failures, last_error from entry where number = 1 and outcome is null and lane = ?"
    key = source.store.sequence(identifier)["id"]
    [(failures, error)] = within(5, lambda: source.store.rows(failed, key), lambda rows: rows and rows[0][0] > 0)
    assert failures > 0
    assert "Receiver fault" in error
    assert source.delivered(identifier) == [1, 2]
    assert source.calls(identifier) == [1, 1, 1, 2]
    assert source.store.outcomes(identifier) == {1: "delivered", 2: "delivered"}
    assert source.put(identifier, 3).reply.ack.ranges == ((1, 3),)
    assert source.delivered(identifier) == [1, 2, 3]


@each_rm
@pytest.mark.spec("D-DEL-002")
def test_what_cannot_be_delivered_at_all_raises_an_error_and_is_kept(at: At) -> None:
    source = at("/poison_block")
    identifier = source.create()
    source.put(identifier, 1, "fail=99")
    row = within(5, lambda: source.store.sequence(identifier), lambda row: row["blocked"] is not None)
    assert row["blocked"] is not None
    assert source.calls(identifier) == [1, 1]
    assert source.store.outcomes(identifier) == {1: None}
    [(error, reason)] = source.store.rows(
        "select e.last_error, l.reason from entry e join ledger l on l.position = e.id"
        " where e.lane = ? and l.event = 'blocked'",
        row["id"],
    )
    assert "Receiver fault" in error
    assert "Receiver fault" in reason
    said = f"sequence.blocked sequence={identifier} number=1"
    assert said in within(5, source.server.log.read_text, lambda log: said in log)


@each_rm
@pytest.mark.spec("D-DEL-003")
def test_at_most_once_never_delivers_a_second_time_though_a_crash_loses_a_message(at: At, start: Start) -> None:
    server = start(assurance="at_most_once")
    source = at(server=server)
    identifier = source.create()
    source.put(identifier, 1)
    source.send(source.speak.put(identifier, 2, "die=1"))
    server.died()
    server.start()
    source.reconnect()
    assert source.put(identifier, 2, "die=1").reply.ack.ranges == ((1, 2),)
    source.put(identifier, 3)
    assert source.soon(identifier, [1, 3]) == [1, 3]
    assert source.calls(identifier) == [1, 2, 3]


@each_rm
@pytest.mark.spec("D-DEL-003")
def test_at_most_once_does_not_try_again_what_failed(at: At) -> None:
    source = at("/at_most_once")
    identifier = source.create()
    source.put(identifier, 1, "fail=1")
    source.put(identifier, 2)
    assert source.soon(identifier, [2]) == [2]
    source.server.look()
    assert source.calls(identifier) == [1, 2]


@every_version
@pytest.mark.spec("D-DEL-020")
@pytest.mark.peer("P-22", "P-23")
@pytest.mark.scenario("Q-042")
def test_a_two_way_runs_once_and_a_resend_gets_the_stored_reply(at: At) -> None:
    """Also one that comes while the operation runs, because it is slower than the source's retry interval."""
    source, impatient = at(), at()
    identifier = source.create()
    envelope = source.speak.echo(identifier, 1, "sleep=300")
    source.send(envelope)
    assert within(5, lambda: source.calls(identifier), bool) == [1]
    impatient.send(envelope)
    answers = [source.wire.read(), impatient.wire.read(), source.post(envelope)]
    assert [answer.text("echoResult") for answer in answers] == ["sleep=300"] * 3
    assert len({answer.reply.message_id for answer in answers}) == 1
    assert [answer.reply.ack.ranges for answer in answers] == [((1, 1),)] * 3
    assert source.calls(identifier) == [1]


@every_version
@pytest.mark.spec("D-DEL-021")
def test_a_two_way_is_named_by_no_acknowledgement_before_its_reply_is_stored(at: At) -> None:
    source, other = at(), at()
    identifier = source.create()
    gate = gate_of(identifier)
    source.send(source.speak.echo(identifier, 1, f"gate={gate}"))
    assert within(5, lambda: source.calls(identifier), bool) == [1]
    for answer in (other.ask(identifier), other.put(identifier, 2)):
        named = answer.reply.ack.ranges if answer.body else ()
        assert all(low > 1 for low, _high in named)
    source.server.open_gate(gate)
    assert source.wire.read().reply.ack.ranges == ((1, 2),)
    assert other.ask(identifier).reply.ack.ranges == ((1, 2),)
    assert source.delivered(identifier) == [None, 2]


# ---- in which order


@every_version
@pytest.mark.spec("D-DEL-004")
def test_received_as_3_1_2_is_delivered_as_1_2_3(at: At) -> None:
    source = at()
    identifier = source.opened(3, 1, 2)
    assert source.delivered(identifier) == [1, 2, 3]
    assert source.calls(identifier) == [1, 2, 3]


@each_rm
@pytest.mark.spec("D-DEL-005")
def test_what_lies_beyond_a_gap_is_acknowledged_and_not_delivered(at: At) -> None:
    source = at()
    identifier = source.opened(1, 3)
    assert source.ask(identifier).reply.ack.ranges == ((1, 1), (3, 3))
    assert source.delivered(identifier) == [1]
    source.server.look()
    assert source.calls(identifier) == [1]
    assert source.store.outcomes(identifier) == {1: "delivered", 3: None}


@each_rm
@pytest.mark.spec("D-DEL-006")
@pytest.mark.invariant("I5")
def test_one_delivery_is_over_before_the_next_begins(at: At) -> None:
    """Whatever comes on other connections meanwhile, one-way and two-way."""
    source, others = at(), [at() for _ in range(3)]
    identifier = source.create()
    source.put(identifier, 1, "sleep=60")
    others[0].send(others[0].speak.echo(identifier, 3, "sleep=40"))
    others[1].send(others[1].speak.put(identifier, 2, "sleep=50"))
    others[2].send(others[2].speak.echo(identifier, 4, "sleep=30"))
    for other in others:
        assert other.wire.read().status in (200, 202), "202: it has waited for its turn as long as it may"
    source.put(identifier, 5, "sleep=10")
    source.delivered(identifier)
    moments = source.server.rows(
        "select at, number, 'begins' from calls where sequence = ?1"
        " union all select at, number, 'ends' from effects where sequence = ?1 order by at",
        identifier,
    )
    assert [(number, what) for _at, number, what in moments] == [
        (number, what) for number in range(1, 6) for what in ("begins", "ends")
    ]


@each_rm
@pytest.mark.spec("D-DEL-007")
def test_at_most_once_in_order_drops_a_number_that_was_passed_over(at: At) -> None:
    source = at("/at_most_once")
    identifier = source.opened(1, 4)
    assert source.soon(identifier, [1, 4]) == [1, 4]
    assert source.put(identifier, 2).reply.ack.ranges == ((1, 2), (4, 4))
    source.put(identifier, 5)
    assert source.soon(identifier, [1, 4, 5]) == [1, 4, 5]
    assert source.store.outcomes(identifier)[2] == "discarded"
    [(event, reason)] = source.store.rows(
        "select event, reason from ledger where number = 2 and sequence = (select id from lane where identifier = ?)",
        identifier,
    )
    assert (event, reason) == ("discarded", "late")


@each_rm
@pytest.mark.spec("D-DEL-008")
@pytest.mark.scenario("Q-053")
@pytest.mark.parametrize("stuck", ["gap", "operation"])
def test_no_sequence_waits_for_another(at: At, stuck: str) -> None:
    source, other = at(), at()
    first = source.create()
    gate = gate_of(first)
    if stuck == "gap":
        source.put(first, 2)
    else:
        source.put(first, 1, f"gate={gate}")
    second = other.create()
    for number in range(1, 21):
        other.put(second, number)
    assert other.delivered(second) == list(range(1, 21))
    assert source.store.outcomes(first) == {2 if stuck == "gap" else 1: None}
    if stuck == "gap":
        source.put(first, 1)
    source.server.open_gate(gate)
    assert source.delivered(first) == ([1, 2] if stuck == "gap" else [1])


@each_rm
def test_without_order_nothing_waits_for_a_gap_and_nothing_comes_twice(at: At) -> None:
    source = at("/any_order")
    identifier = source.opened(5)
    assert source.delivered(identifier) == [5]
    for number in (2, 5, 1, 2):
        source.put(identifier, number)
    assert sorted(source.delivered(identifier)) == [1, 2, 5]
    assert source.ask(identifier).reply.ack.ranges == ((1, 2), (5, 5))


# ---- how it ends


@in_1_1
@pytest.mark.spec("D-DEL-009", "D-DEL-010", "D-DEL-017")
@pytest.mark.parametrize("end", ["close", "terminate"])
def test_no_discard_delivers_what_is_held_ascending_across_the_gaps(at: At, end: str) -> None:
    source = at()
    identifier = source.opened(1, 9, 3, 4, 6)
    assert source.delivered(identifier) == [1]
    final = getattr(source, end)(identifier).reply.ack
    assert (final.ranges, final.final) == (((1, 1), (3, 4), (6, 6), (9, 9)), True)
    assert source.delivered(identifier) == [1, 3, 4, 6, 9]
    assert source.calls(identifier) == [1, 3, 4, 6, 9]


@in_1_1
@pytest.mark.spec("D-DEL-011", "D-DEL-013", "D-DEL-017")
@pytest.mark.scenario("Q-047")
@pytest.mark.parametrize("end", ["close", "terminate"])
def test_discard_following_first_gap_delivers_the_unbroken_run_and_buries_the_rest(at: At, end: str) -> None:
    source = at("/gap")
    identifier = source.opened(1, 2, 4, 5)
    assert source.ask(identifier).reply.ack.ranges == ((1, 2), (4, 5))
    assert source.delivered(identifier) == [1, 2]
    assert source.store.outcomes(identifier) == {1: "delivered", 2: "delivered", 4: None, 5: None}
    final = getattr(source, end)(identifier).reply.ack
    assert (final.ranges, final.final) == (((1, 2), (4, 5)), True)
    assert buried(source, identifier, 4, 5, reason="first_gap")
    assert source.delivered(identifier) == source.calls(identifier) == [1, 2]


@in_1_1
@pytest.mark.spec("D-DEL-012", "D-DEL-017")
def test_discard_following_first_gap_delivers_nothing_if_the_first_is_missing(at: At) -> None:
    source = at("/gap")
    identifier = source.opened(2, 3)
    assert source.terminate(identifier).reply.ack.ranges == ((2, 3),)
    assert buried(source, identifier, 2, 3, reason="first_gap")
    assert source.calls(identifier) == []


@in_1_1
@pytest.mark.spec("D-DEL-013")
def test_discard_following_first_gap_waits_while_the_sequence_is_open(at: At) -> None:
    source = at("/gap")
    identifier = source.opened(1, 2, 4)
    assert source.delivered(identifier) == [1, 2]
    source.put(identifier, 3)
    assert source.delivered(identifier) == [1, 2, 3, 4]
    source.close(identifier, 4)
    assert source.delivered(identifier) == [1, 2, 3, 4]
    assert source.store.dead_letters(identifier) == {}


@in_1_1
@pytest.mark.spec("D-DEL-014", "D-DEL-017")
@pytest.mark.scenario("Q-048")
@pytest.mark.parametrize("end", ["close", "terminate"])
def test_discard_entire_sequence_buries_all_of_an_incomplete_one(at: At, end: str) -> None:
    source = at("/whole")
    identifier = source.opened(1, 2, 4)
    source.server.look()
    assert source.calls(identifier) == []
    final = getattr(source, end)(identifier).reply.ack
    assert (final.ranges, final.final) == (((1, 2), (4, 4)), True)
    assert buried(source, identifier, 1, 2, 4, reason="incomplete_sequence")
    assert source.calls(identifier) == []


@in_1_1
@pytest.mark.spec("D-DEL-015")
@pytest.mark.scenario("Q-048")
@pytest.mark.parametrize("end", ["close", "terminate"])
def test_discard_entire_sequence_delivers_all_of_a_complete_one_at_the_end(at: At, end: str) -> None:
    source = at("/whole")
    identifier = source.opened(3, 1, 2)
    source.server.look()
    assert source.calls(identifier) == []
    assert getattr(source, end)(identifier, 3).reply.ack.ranges == ((1, 3),)
    assert source.delivered(identifier) == [1, 2, 3]
    assert source.store.dead_letters(identifier) == {}


@in_1_1
@pytest.mark.spec("D-DEL-016", "D-DEL-017")
def test_discard_entire_sequence_buries_one_whose_last_number_never_came(at: At) -> None:
    source = at("/whole")
    identifier = source.opened(1, 2)
    assert source.close(identifier, 3).reply.ack.ranges == ((1, 2),)
    assert buried(source, identifier, 1, 2, reason="incomplete_sequence")
    assert source.calls(identifier) == []


# ---- what is delivered, and how


@each_rm
@pytest.mark.spec("D-DEL-018")
@pytest.mark.scenario("Q-049")
def test_what_was_not_accepted_is_never_delivered(at: At) -> None:
    """Refused for its number, its sequence, its form, or its sender."""
    source, stranger = at(), at(fields=("X-User: mallory",))
    seen = source.server.mark()
    identifier = source.opened(1)
    assert source.delivered(identifier) == [1]
    before = source.store.everything()
    unknown = "urn:uuid:00000000-0000-4000-8000-000000000001"
    refusals = [
        source.put(unknown, 1, "unknown"),
        source.put(identifier, 0, "zero"),
        source.put(identifier, "two", "no number"),
        source.put(None, 2, "no identifier"),
        stranger.put(identifier, 2, "a stranger's"),
    ]
    assert [refusal.reply.fault is not None for refusal in refusals] == [True] * len(refusals)
    assert refusals[0].reply.fault is not None
    assert refusals[0].reply.fault.subcode == "UnknownSequence"
    assert source.store.everything() == before
    assert source.put(identifier, 2, "two").reply.ack.ranges == ((1, 2),)
    assert source.delivered(identifier) == [1, 2]
    assert seen.texts() == ["", "two"]


@every_version
@pytest.mark.spec("D-DEL-019")
@pytest.mark.parametrize("held", [False, True], ids=["at once", "held and replayed"])
def test_the_application_gets_the_very_bytes_and_the_sequence_as_information(at: At, held: bool) -> None:
    source = at("/plain")
    identifier = source.create()
    envelopes = {n: source.speak.put(identifier, n, f"<&> ümlaut ☃ {n}") for n in (1, 2)}
    for number in (2, 1) if held else (1, 2):
        assert source.post(envelopes[number], 'SOAPAction: "urn:example:orders/put_order"').status == 200
    rows = within(
        5,
        lambda: source.server.rows(
            "select number, content_type, soap_action, body from requests where sequence = ? order by rowid", identifier
        ),
        lambda rows: len(rows) == 2,
    )
    assert rows == [(n, source.speak.content_type, '"urn:example:orders/put_order"', envelopes[n]) for n in (1, 2)]


# ---- when the application fails


@every_version
@pytest.mark.spec("D-DEL-022")
@pytest.mark.scenario("Q-054")
@pytest.mark.parametrize("how", ["fail", "server-fault"])
def test_a_one_way_that_ends_in_a_server_fault_is_retried_and_what_follows_waits(at: At, how: str) -> None:
    source = at()
    identifier = source.create()
    for number in (1, 2, 3):
        assert source.put(identifier, number, f"{how}=2" if number == 2 else "").status == 200
    assert source.delivered(identifier) == [1, 2, 3]
    assert source.calls(identifier) == [1, 2, 2, 2, 3]


@every_version
@pytest.mark.spec("D-DEL-022")
def test_a_one_way_that_ends_in_a_client_fault_counts_as_delivered(at: At) -> None:
    source = at()
    identifier = source.create()
    source.put(identifier, 1, "client-fault")
    source.put(identifier, 2)
    assert source.delivered(identifier) == [2]
    source.server.look()
    assert source.calls(identifier) == [1, 2]
    assert source.store.outcomes(identifier) == {1: "delivered", 2: "delivered"}


@each_rm_at_length
@pytest.mark.spec("D-DEL-022")
@pytest.mark.scenario("Q-054")
@pytest.mark.parametrize("how", ["raises", "unavailable", "fault"])
def test_a_plain_wsgi_service_that_fails_is_called_again(at: At, how: str) -> None:
    """It raises, answers 503 without a fault, or answers 200 with a Receiver fault."""
    source = at(f"/plain/{how}")
    identifier = source.create()
    source.put(identifier, 1)
    source.put(identifier, 2)
    query = "select number, attempt from requests where sequence = ? order by rowid"
    outcomes = within(5, lambda: source.store.outcomes(identifier), lambda found: None not in found.values())
    assert source.server.rows(query, identifier) == [(number, attempt) for number in (1, 2) for attempt in (1, 2, 3)]
    assert outcomes == {1: "delivered", 2: "delivered"}


@each_rm_at_length
@pytest.mark.spec("D-DEL-004")
@pytest.mark.peer("P-21")
@pytest.mark.parametrize("late", [[2], [2, 4, 6]], ids=["2", "all even"])
def test_what_comes_600_ms_late_is_delivered_in_its_place(late: list[int], at: At) -> None:
    """The others have arrived and been acknowledged by then; the late ones come on several connections at once."""
    source = at()
    identifier = source.create()
    numbers = [1, 2, 3, 4, 5, 6]
    for number in numbers:
        if number not in late:
            assert source.put(identifier, number).status == 200
    time.sleep(0.6)
    assert source.calls(identifier) == [1]
    threads = []
    for number in late:
        each = at()
        threads.append(threading.Thread(target=each.put, args=(identifier, number)))
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)
    assert source.delivered(identifier) == numbers
    assert source.calls(identifier) == numbers
    assert source.ask(identifier).reply.ack.ranges == ((1, 6),)
