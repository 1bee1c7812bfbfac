"""Notices: a program is told of each request when it is stored, and when it is acknowledged or given up."""

from __future__ import annotations

import logging

import pytest

from tests.source.conftest import Open, Source
from tests.source.partner import ACTION, LOST, THERE, Partner, envelope
from wsrm_mq.source import Notice, notices


class Told(list[Notice]):
    """What a program was told; it fails where ``fails_at`` says."""

    fails_at: str | None = None

    def __call__(self, notice: Notice) -> None:
        self.append(notice)
        if notice.what == self.fails_at:
            raise ValueError("no time for that")

    def of(self, message_id: str) -> list[str]:
        return [notice.what for notice in self if notice.message_id == message_id]


@pytest.fixture
def told() -> Told:
    return Told()


def put(source: Source, what: object) -> str:
    return source.send(envelope(source.partner.speak, str(what)), to=THERE, action=ACTION).message_id


@pytest.mark.peer("P-63")
def test_there_is_a_notice_of_each_request_when_it_is_stored_and_one_when_it_is_acknowledged(
    open_source: Open, partner: Partner, told: Told
) -> None:
    source = open_source(on_notice=told)
    partner.takes = lambda received: received.body is not None and received.body.text != "1"
    ids = [put(source, n) for n in range(3)]
    assert partner.within(lambda: len(told) == 5)
    assert [told.of(one) for one in ids] == [["stored", "acknowledged"], ["stored"], ["stored", "acknowledged"]]
    assert partner.numbers == {"urn:there:1": {1, 3}}
    partner.takes = lambda _received: True
    assert source.in_time(20)
    assert partner.within(lambda: len(told) == 6)
    assert told[-1] == Notice("acknowledged", ids[1])
    assert partner.numbers == {"urn:there:1": {1, 2, 3}}


def test_a_request_that_is_given_up_is_told_of_with_its_reason(open_source: Open, partner: Partner, told: Told) -> None:
    source = open_source(on_notice=told)
    partner.says = lambda _received: LOST
    one = put(source, 1)
    source.terminate(THERE)
    assert partner.within(lambda: len(told) == 2)
    assert told == [Notice("stored", one), Notice("given_up", one, "terminated_by_operator")]


def test_what_goes_on_in_another_sequence_is_told_of_when_that_is_acknowledged(
    open_source: Open, partner: Partner, told: Told
) -> None:
    source = open_source(on_notice=told)
    partner.takes = lambda _received: False
    one = put(source, 1)
    assert partner.within(lambda: len(partner.places) == 1)
    assert source.at_rest()
    partner.takes = lambda _received: True
    source.close_sequence(THERE)
    assert source.in_time(20)
    assert partner.within(lambda: len(told) == 2)
    assert told.of(one) == ["stored", "acknowledged"]
    assert [place[0] for place in partner.places] == ["urn:there:1", "urn:there:2"]


def test_what_waited_in_the_store_is_told_of_in_the_next_life(open_source: Open, partner: Partner, told: Told) -> None:
    partner.says = lambda _received: LOST
    with open_source() as source:
        ids = [put(source, n) for n in range(5)]
    partner.says = lambda _received: None
    source = open_source(on_notice=told)
    assert source.in_time(20)
    assert partner.within(lambda: len(told) == 5)
    assert told == [Notice("acknowledged", one) for one in ids]


def test_all_that_is_settled_is_told_of_before_a_source_is_closed(
    open_source: Open, partner: Partner, told: Told, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(notices, "_MOST", 8)
    with open_source(on_notice=told) as source:
        ids = [put(source, n) for n in range(8)]
        assert source.in_time(20)
    assert [told.of(one) for one in ids] == [["stored", "acknowledged"]] * 8


def test_many_that_wait_are_looked_at_in_turns(
    open_source: Open, partner: Partner, told: Told, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(notices, "_MOST", 2)
    partner.takes = lambda received: received.body is not None and received.body.text == "6"
    source = open_source(on_notice=told)
    ids = [put(source, n) for n in range(7)]
    assert partner.within(lambda: told.of(ids[6]) == ["stored", "acknowledged"])


def test_a_program_that_fails_in_a_notice_is_told_of_and_gets_the_next(
    open_source: Open, partner: Partner, told: Told, caplog: pytest.LogCaptureFixture
) -> None:
    told.fails_at = "stored"
    with caplog.at_level(logging.ERROR, "wsrm_mq"):
        source = open_source(on_notice=told)
        one = put(source, 1)
        assert partner.within(lambda: told.of(one) == ["stored", "acknowledged"])
    assert "on_event.failed event=stored" in caplog.text
