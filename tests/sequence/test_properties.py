"""What holds for every history of arrivals and ends (I4)."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.sequence.build import (
    AT_MOST_ONCE,
    ENTIRE,
    EXACTLY_ONCE,
    FOLLOWING,
    IDENTIFIER,
    NO_DISCARD,
    NOW,
    VERSIONS,
    deliverable,
    having,
    message,
    opened,
)
from wsrm_mq.sequence.elements import AckRequested, CloseSequence, TerminateSequence
from wsrm_mq.sequence.inbound import (
    Disposition,
    GaveUp,
    InboundSequence,
    Late,
    OperatorClose,
    Outgrew,
    Step,
    TimePassed,
    forced,
    receive,
)
from wsrm_mq.sequence.ranges import AckRanges
from wsrm_mq.sequence.states import ENDED, Act, State
from wsrm_mq.sequence.terms import Bounds

TERMS = st.fixed_dictionaries(
    {
        "behavior": st.sampled_from([NO_DISCARD, FOLLOWING, ENTIRE]),
        "assurance": st.sampled_from([EXACTLY_ONCE, AT_MOST_ONCE]),
        "ordered": st.booleans(),
        "expires_at": st.sampled_from([None, NOW + 40]),
        "inactivity": st.sampled_from([None, 15]),
    }
)
EVENTS = st.one_of(
    st.tuples(st.just("message"), st.integers(1, 12), st.booleans()),
    st.tuples(st.just("message"), st.integers(1, 12), st.just(False)),
    st.tuples(st.just("close"), st.sampled_from([None, 3, 8, 12]), st.just(False)),
    st.tuples(st.just("terminate"), st.sampled_from([None, 3, 8, 12]), st.just(False)),
    st.sampled_from([("ack", None, False), ("gave up", None, False), ("outgrew", None, False), ("time", None, False)]),
    st.tuples(st.just("force"), st.sampled_from(Late), st.booleans()),
    st.just(("operator closes", None, False)),
)
BOUNDS = st.builds(
    Bounds,
    max_held=st.sampled_from([None, 0, 2]),
    max_ranges=st.sampled_from([None, 1, 3]),
    window=st.sampled_from([None, 1, 5]),
)


def apply(sequence: InboundSequence, event: tuple[str, Any, bool], now: int, bounds: Bounds) -> Any:
    kind, number, flag = event
    if kind == "message":
        return message(sequence, number, last=flag, now=now, bounds=bounds)
    if kind == "force":
        is_held = sequence.held and sequence.terms.behavior is NO_DISCARD
        highest = sequence.received.highest
        to = highest if flag else sequence.received.first_from(sequence.limit, highest)
        return forced(sequence, to, number)._replace(act=Act.IGNORE) if is_held else Step(sequence, Act.IGNORE)
    elements = {
        "close": CloseSequence(IDENTIFIER, number),
        "terminate": TerminateSequence(IDENTIFIER, number),
        "ack": AckRequested(IDENTIFIER),
        "gave up": GaveUp(),
        "outgrew": Outgrew("too large"),
        "time": TimePassed(),
        "operator closes": OperatorClose(),
    }
    return receive(sequence, elements[kind], now)


@pytest.mark.invariant("I4")
@settings(max_examples=150, deadline=None)
@given(
    st.sampled_from(VERSIONS),
    TERMS,
    BOUNDS,
    st.lists(st.tuples(EVENTS, st.integers(0, 6)), max_size=25),
)
def test_no_history_breaks_what_a_step_promises(
    rm: Any, terms: dict[str, Any], bounds: Bounds, history: list[tuple[tuple[str, Any, bool], int]]
) -> None:
    sequence, now = opened(rm, **terms), NOW
    order = list(State)
    ended = 0
    for event, passes in history:
        now += passes
        step = apply(sequence, event, now, bounds)
        after = step.sequence
        assert (step.act is None) == (step.fault is not None or bool(step.no_room))
        assert after.limit >= sequence.limit, "limit never falls"
        assert step.is_late == (after.late is not None and step.act is Act.ACCEPT and event[1] < sequence.limit)
        assert (step.disposition is Disposition.LATE_REFUSED) <= (after.late is Late.REFUSE)
        assert order.index(after.state) >= order.index(sequence.state), "no way leads back"
        assert sequence.received.without(after.received).count() == 0, "what was accepted stays accepted"
        grown = after.received.without(sequence.received)
        assert list(grown) == ([(event[1], event[1])] if step.act is Act.ACCEPT else [])
        if sequence.state is not State.CREATED:
            assert not grown, "final ranges do not change"
        assert sequence.state not in ENDED or after.state is sequence.state, "an end stays as it was"
        ended += step.ended_now
        assert ended == (after.state in ENDED), "the end is told once"
        assert after.held == sum(h - max(low, after.limit) + 1 for low, h in after.received if h >= after.limit)
        assert (
            after.acknowledgement().ranges
            == after.received.without(after.unnamed if after.state is State.CREATED else AckRanges()).ranges
        )
        if after.state is not State.CREATED:
            given_up = after.discard_from is not None
            assert given_up or after.held == 0, "after the end nothing waits: it is delivered or given up"
        sequence = after


@pytest.mark.invariant("I4")
@pytest.mark.spec("D-DEL-004", versions="all")
@settings(deadline=None)
@given(st.permutations(list(range(1, 9))), st.lists(st.integers(1, 8), max_size=6))
def test_in_an_open_sequence_limit_is_expected_in_whatever_order_numbers_come(
    order: list[int], duplicates: list[int]
) -> None:
    sequence = opened()
    for number in [*order, *duplicates]:
        sequence = message(sequence, number).sequence
        assert sequence.limit == sequence.expected
        assert deliverable(sequence) == list(range(1, sequence.expected))
    assert sequence.received.ranges == ((1, 8),)


def test_one_five_four_three_two_is_delivered_in_order() -> None:
    sequence, released = opened(), []
    for number in (1, 5, 4, 3, 2):
        before = sequence.limit
        sequence = having(sequence, [number])
        released.append((number, before, sequence.limit))
    assert released == [(1, 1, 2), (5, 2, 2), (4, 2, 2), (3, 2, 2), (2, 2, 6)]


@settings(deadline=None)
@given(st.sets(st.integers(2, 60), max_size=20), st.booleans())
def test_what_fills_the_first_gap_is_never_refused_for_room(numbers: set[int], ordered: bool) -> None:
    sequence = having(opened(ordered=ordered), sorted(numbers))
    tight = Bounds(max_held=0, max_ranges=1, window=1)
    assert message(sequence, sequence.expected, bounds=tight).act is Act.ACCEPT


@settings(deadline=None)
@given(st.sets(st.integers(1, 40), min_size=2, max_size=20), st.data())
def test_a_force_goes_past_every_missing_number_up_to_where_it_is_told_and_stops_at_the_next(
    numbers: set[int], data: st.DataObject
) -> None:
    before = having(opened(), sorted(numbers))
    if not before.held:
        return
    to = data.draw(st.integers(before.limit, max(numbers)))
    step = forced(before, to, Late.ACCEPT)
    after = step.sequence
    assert after.limit == next(n for n in range(to + 1, 42) if n not in numbers)
    assert step.released_across == AckRanges.of(set(range(before.limit, after.limit)) - numbers)
    assert after._replace(limit=before.limit, late=None) == before, "nothing else changes"
