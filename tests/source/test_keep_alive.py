"""Sequences in which nothing is said, and how they are kept alive at a destination that ends such ones."""

from __future__ import annotations

import pytest

from tests.source.conftest import Open, Source
from tests.source.partner import LOST, Partner, Said
from tests.source.test_acknowledgements import ONE
from tests.source.test_sending import send
from wsrm_mq.sequence.faults import UnknownSequence
from wsrm_mq.testing import Reply


def asked(partner: Partner) -> int:
    """How often the partner was asked for an acknowledgement, and told nothing else."""
    return len(partner.saying("AckRequested"))


def idle(open_source: Open, partner: Partner) -> Source:
    """A source with an open sequence in which nothing waits; its partner would end it after ten minutes."""
    source = open_source(inactivity=600)
    send(source, "a")
    assert source.flush(5)
    assert source.at_rest()
    return source


@pytest.mark.peer("P-32")
def test_at_half_of_the_time_the_destination_is_asked_for_an_acknowledgement(
    open_source: Open, partner: Partner
) -> None:
    source = idle(open_source, partner)
    source.pass_time(298)
    assert not partner.within(lambda: asked(partner), 0.1)
    for count in (1, 2, 3):
        source.pass_time(301)
        assert partner.within(lambda count=count: asked(partner) == count)
        assert source.at_rest()
    said = partner.bodies[-1]
    assert f"<wsrm:Identifier>{ONE}</wsrm:Identifier></wsrm:AckRequested>".encode() in said
    assert b"<wsrm:Sequence " not in said
    send(source, "b")
    assert source.flush(5)
    assert partner.places == [(ONE, 1), (ONE, 2)]
    source.pass_time(298)
    assert not partner.within(lambda: asked(partner) > 3, 0.1)


def test_without_such_a_time_and_once_it_was_ended_nothing_is_said_in_a_sequence(
    open_source: Open, partner: Partner
) -> None:
    usual = open_source()
    send(usual, "a")
    assert usual.flush(5)
    usual.pass_time(24 * 3600)
    assert not partner.within(lambda: asked(partner), 0.2)
    usual.end("http://partner.example/orders", 5)
    usual.close()
    source = open_source(inactivity=600)
    source.pass_time(24 * 3600)
    assert not partner.within(lambda: asked(partner), 0.2)


def test_a_destination_that_is_away_is_asked_once_and_one_that_has_lost_the_sequence_gets_the_next_request_in_another(
    open_source: Open, partner: Partner
) -> None:
    source = idle(open_source, partner)
    partner.says = lambda _received: LOST
    for _ in range(5):
        source.pass_time(301)
        assert source.at_rest()
    live = "SELECT count(*) FROM entry WHERE outcome IS NULL"
    assert partner.within(lambda: source.rows(live) == [(1,)])
    assert source.waiting == 0
    gone = partner.fault(UnknownSequence("It is not here.", ONE))

    def says(received: Reply) -> Said:
        return gone if received.action == partner.speak.rm.action("AckRequested") else None

    partner.says = says
    source.try_now()
    source.pass_time(61)
    assert partner.within(lambda: source.states()[0][0] == "failed")
    assert partner.within(lambda: source.rows(live) == [(0,)])
    send(source, "b")
    assert source.flush(5)
    assert partner.places == [(ONE, 1), ("urn:there:2", 1)]
    assert source.dead == []


def test_an_answer_that_is_no_acknowledgement_is_no_dead_letter(open_source: Open, partner: Partner) -> None:
    source = idle(open_source, partner)
    partner.says = lambda received: partner.answered(500) if received.sequence is None else None
    for count, seconds in enumerate((301, 3, 10), 1):
        source.pass_time(seconds)
        assert partner.within(lambda count=count: asked(partner) == count)
        assert source.at_rest()
    assert partner.within(lambda: not source.rows("SELECT 1 FROM entry WHERE outcome IS NULL"))
    assert source.rows("SELECT count(*) FROM entry WHERE outcome = 'dead'") == [(0,)]
    send(source, "b")
    assert source.flush(5)
    assert partner.places == [(ONE, 1), (ONE, 2)]
