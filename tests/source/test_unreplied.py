"""Requests that their destination has acknowledged, and not replied to, when no more is sent in their sequence: it may
have done them, and while it knows the sequence they are asked for their replies there, and are never sent under another
number."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.source.conftest import Open, Source
from tests.source.partner import THERE, Partner
from tests.source.test_acknowledgements import ONE
from tests.source.test_replies import ask, replying
from tests.source.test_sending import send
from wsrm_mq.queue.policy import Resend
from wsrm_mq.sequence.faults import SequenceClosed, SequenceTerminated

TWO = "urn:there:2"
DOUBT = f"acknowledged and not replied to: 1-2 of {ONE}"


def waits_for_replies(source: Source, *texts: str) -> list[str]:
    """Ask these, which are acknowledged; answers their MessageIDs."""
    asked = [ask(source, one).message_id for one in texts]
    assert source.partner.within(lambda: source.states()[0][2] == f"1-{len(texts)}")
    assert source.at_rest()
    return asked


def are_replied_to(partner: Partner) -> None:
    partner.says = lambda received: (
        replying(partner, received) if received.sequence is not None and received.body is not None else None
    )


def as_time_passes(source: Source, look: Callable[[], object], step: float = 3) -> bool:
    """Whether it becomes true, step by step."""

    def is_so() -> bool:
        if look():
            return True
        source.pass_time(step)
        return source.partner.within(look, 0.1)

    return source.partner.within(is_so, 20)


@pytest.mark.spec("S-RET-011")
def test_what_is_acknowledged_behind_a_request_that_always_fails_is_asked_for_its_reply_and_never_done_again(
    open_source: Open, partner: Partner
) -> None:
    """One request after the other is given up at the head, and each time a sequence is left."""
    source = open_source(resend=Resend((3_000, 3_000, 3_000, 3_000_000)))
    asked: list[str] = []
    for sequence in (ONE, TWO):
        partner.says = lambda received: partner.answered(500) if b">head<" in partner.bodies[-1] else None
        ask(source, "head")
        assert as_time_passes(source, lambda at=sequence: partner.places.count((at, 1)) == 4)
        asked += [ask(source, what).message_id for what in (f"b{sequence}", f"c{sequence}")]
        assert partner.within(lambda at=sequence: (at, 3) in partner.places)
        dead = len(source.dead)
        assert as_time_passes(source, lambda dead=dead: len(source.dead) > dead, 3_000)
        are_replied_to(partner)
        assert source.in_time(step=600)
    partner.says = lambda _received: None
    send(source, "d")
    assert source.in_time()
    assert all(source.replies(one) is not None for one in asked)
    came = {(one.body.text, one.sequence.identifier) for one in partner.received if one.sequence is not None}
    assert sorted(came - {("head", ONE), ("head", TWO)}) == [
        *((f"b{ONE}", ONE), (f"b{TWO}", TWO), (f"c{ONE}", ONE), (f"c{TWO}", TWO), ("d", "urn:there:3"))
    ]
    assert [one.reason for one in source.dead] == ["max_failures"] * 2
    for sequence in (ONE, TWO):
        behind = f"acknowledged behind number 1, which was given up: 2-3 of {sequence}"
        assert behind in source.ledger("requests_in_doubt")
    if partner.speak.rm.has_close:
        assert partner.within(lambda: [state for state, *_ in source.states()] == ["terminated"] * 2 + ["created"])
        assert len(partner.saying("TerminateSequence")) == 2


def test_closing_a_sequence_leaves_what_waits_for_its_reply_there(source: Source, partner: Partner) -> None:
    asked = waits_for_replies(source, "a", "b")
    source.close_sequence(THERE)
    assert partner.within(lambda: source.states()[0][0] == "closed")
    send(source, "c")
    assert partner.within(lambda: (TWO, 1) in partner.places)
    are_replied_to(partner)
    assert source.in_time(step=3)
    assert all(source.replies(one) is not None for one in asked)
    assert [place for place in partner.places if place[0] == TWO] == [(TWO, 1)]
    assert (source.ledger("requests_in_doubt"), source.dead) == ([], [])
    assert partner.within(lambda: source.states()[0][0] == "terminated")


def test_a_partner_that_answers_nothing_in_a_closed_sequence_is_asked_as_often_as_resend_says(
    open_source: Open, partner: Partner
) -> None:
    source = open_source(resend=Resend((3_000, 3_000)))
    waits_for_replies(source, "a", "b")
    closed = partner.fault(SequenceClosed("It is closed.", ONE))
    partner.says = lambda received: closed if received.sequence is not None else None
    assert as_time_passes(source, lambda: [one.reason for one in source.dead] == ["not_replied_to"] * 2)
    assert 4 <= len(partner.places) <= 8
    assert {identifier for identifier, _number in partner.places} == {ONE}
    assert source.flush(0)
    assert partner.within(lambda: source.states()[0][0] == "terminated")


@pytest.mark.spec("F-025")
@pytest.mark.parametrize("by", ["fault", "the clock"])
def test_where_its_sequence_is_over_what_waits_for_its_reply_is_a_dead_letter_and_the_rest_goes_on(
    source: Source, partner: Partner, by: str
) -> None:
    """The destination has ended the sequence, and has not lost it: it knows what it has acknowledged."""
    partner.expires = 600_000
    waits_for_replies(source, "a", "b")
    over = partner.fault(SequenceTerminated("Its service failed.", ONE))
    partner.says = lambda received: (
        over if received.sequence is not None and received.sequence.identifier == ONE else None
    )
    if by == "the clock":
        partner.says = lambda received: (
            partner.answered(202) if received.sequence is not None and received.sequence.identifier == ONE else None
        )
    send(source, "c")
    assert partner.within(lambda: (ONE, 3) in partner.places)
    source.pass_time(3 if by == "fault" else 601)
    assert partner.within(lambda: [one.reason for one in source.dead] == ["not_replied_to"] * 2)
    assert source.in_time()
    assert [place for place in partner.places if place[0] == TWO] == [(TWO, 1)]
    assert partner.texts()[-1] == "c"
    assert DOUBT in source.ledger("requests_in_doubt")
    assert source.states()[0][0] == ("terminated" if by == "fault" else "expired")
