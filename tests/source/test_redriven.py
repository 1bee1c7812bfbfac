"""Requests that are given up, and sent again by an operator."""

from __future__ import annotations

import pytest

from tests.source.conftest import Open, Source
from tests.source.partner import Partner
from tests.source.test_acknowledgements import ONE
from tests.source.test_faults import only_1_1
from tests.source.test_replies import ask, replying
from tests.source.test_sending import send
from wsrm_mq.errors import NotAllowed
from wsrm_mq.outbound.posting import Answer
from wsrm_mq.queue import dead_letters
from wsrm_mq.queue.policy import Resend
from wsrm_mq.testing import Reply


def redrive_dead(source: Source) -> None:
    (dead,) = source.dead
    source._engine.store.call(lambda tx: dead_letters.redrive(tx, dead.position, actor="ann", reason="it lives"))
    source.nudge()


def test_a_dead_request_that_is_redriven_goes_in_the_sequence_that_is_current(source: Source, partner: Partner) -> None:
    """Its own is closed: there it would be refused, or taken for a repeat."""
    partner.says = lambda received: (
        partner.answered(500) if received.sequence is not None and received.sequence[:2] == (ONE, 1) else None
    )
    send(source, *"abc")
    assert source.in_time(30, step=4_000)
    assert source.dead[0].reason == "max_failures"
    count = len(partner.places)
    redrive_dead(source)
    send(source, "d")
    assert source.in_time()
    assert partner.places[count:] == [("urn:there:2", 1), ("urn:there:2", 2)]
    assert partner.texts()[-2:] == ["a", "d"]
    assert source.dead == []


@only_1_1
def test_a_dead_request_that_its_destination_has_acknowledged_since_is_not_sent_again(
    source: Source, partner: Partner
) -> None:
    """It has done it, and says so when its sequence is closed."""

    def says(received: Reply) -> Answer | None:
        if received.sequence is None:
            return None
        partner.answer(received)
        return partner.answered(500)

    partner.says = says
    send(source, "a")
    assert source.in_time(30, step=4_000)
    assert partner.within(lambda: source.states()[0][2] == "1")
    with pytest.raises(NotAllowed, match=r"urn:there:1 has acknowledged its number 1 since\..* pos:\d+ --reason"):
        redrive_dead(source)
    assert [one.reason for one in source.dead] == ["max_failures"]
    assert {identifier for identifier, _number in partner.places} == {ONE}


def test_what_is_acknowledged_and_never_replied_to_is_a_dead_letter_that_says_so(
    source: Source, partner: Partner
) -> None:
    asked = ask(source)
    assert partner.within(lambda: source.states()[0][2] == "1")
    assert source.in_time(30, step=4_000)
    assert [one.reason for one in source.dead] == ["not_replied_to"]
    assert source.ledger("requests_in_doubt") == [f"acknowledged and not replied to: 1 of {ONE}"]
    partner.says = lambda received: None if received.sequence is None else replying(partner, received)
    redrive_dead(source)
    assert source.in_time()
    assert source.reply(asked, 5).status == 200


@pytest.mark.parametrize(("status", "waits"), [(202, 1), (500, 2)])
def test_a_dead_request_that_was_acknowledged_leaves_no_gap_and_what_waits_for_its_reply_is_not_done_again(
    open_source: Open, partner: Partner, status: int, waits: int
) -> None:
    source = open_source(resend=Resend((3_000, 10_000)))
    ask(source, "a")
    assert partner.within(lambda: source.states()[0][2] == "1")
    assert source.at_rest()
    partner.says = lambda received: (
        partner.answered(status) if received.sequence is not None and received.sequence.number == 1 else None
    )
    for sent in range(waits):
        source.pass_time(3)
        assert partner.within(lambda at=sent: len(partner.places) == 2 + at)
        assert source.at_rest()
    asked = ask(source, "b")
    assert partner.within(lambda: source.states()[0][2] == "1-2")
    assert source.at_rest()
    source.pass_time(10)
    assert partner.within(lambda: len(source.dead) == 1)
    assert source.dead[0].reason == "not_replied_to"
    assert source.ledger("requests_in_doubt") == [f"acknowledged and not replied to: 1 of {ONE}"]
    partner.says = lambda received: None if received.sequence is None else replying(partner, received)
    send(source, "c")
    assert source.in_time()
    assert source.reply(asked, 5).status == 200
    assert source.ledger("requests_in_doubt") == [f"acknowledged and not replied to: 1 of {ONE}"]
    assert {identifier for identifier, _number in partner.places} == {ONE}


def test_what_its_last_sending_has_acknowledged_is_done_and_in_no_doubt(open_source: Open, partner: Partner) -> None:
    source = open_source(resend=Resend(()))
    send(source, *"abc")
    assert source.flush(5)
    assert source.at_rest()
    assert partner.places == [(ONE, 1), (ONE, 2), (ONE, 3)]
    assert (source.states(), source.dead) == ([("created", 3, "1-3")], [])
    assert source.ledger("requests_in_doubt") == []


def test_what_is_acknowledged_and_not_replied_to_is_named_when_its_sequence_is_terminated(
    source: Source, partner: Partner
) -> None:
    ask(source)
    assert partner.within(lambda: source.states()[0][2] == "1")
    source.terminate("http://partner.example/orders")
    assert source.ledger("requests_in_doubt") == [f"acknowledged and not replied to: 1 of {ONE}"]
