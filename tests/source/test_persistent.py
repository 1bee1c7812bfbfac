"""Hosts that cannot be reached, and when they are tried again."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest

from tests.source.partner import THERE
from wsrm_mq.errors import LeftAlone, NotAnswered, Unsigned
from wsrm_mq.outbound.posting import Answer
from wsrm_mq.source.persistent import Persistent

UNSIGNED = f"{THERE}/signed"
"""Another address of its, whose signer raises."""


class Host:
    """A host that is away, and the clock beside it."""

    def __init__(self) -> None:
        self.now = 1_000.0
        self.is_away = True
        self.hangs = 0
        """Seconds until the line breaks."""
        self.answer = Answer(202, "", [], b"")
        self.tried = 0
        self.told: list[tuple[str, dict[str, object]]] = []
        self.source = Persistent(self.post, lambda: self.now, lambda name, **fields: self.told.append((name, fields)))

    def post(self, url: str, _headers: Mapping[str, str], _body: bytes, _who: str | None = None) -> Answer:
        self.tried += 1
        if url == UNSIGNED:
            raise Unsigned(f"{url}: the signer raised ValueError")
        self.now += self.hangs
        if self.is_away:
            raise NotAnswered(f"{url}: the line broke")
        return self.answer

    def pause(self) -> float:
        """Try it now; the seconds for which it is left alone then."""
        with pytest.raises(LeftAlone) as raised:
            self.source(THERE, {}, b"")
        return raised.value.seconds or 0.0


def test_a_host_is_left_alone_for_a_part_of_the_time_for_which_it_has_been_away() -> None:
    host = Host()
    begun = host.now
    while (away := host.now - begun) < 3_600:
        pause = host.pause()
        least = min(60.0, max(0.02, min(1.25, away / 8), away / 40))
        assert 0.8 * least <= pause <= 1.2 * least
        assert pause >= 1 or away <= 10
        host.now += pause
    assert host.tried < 300


def test_an_outage_of_a_minute_holds_up_what_waits_by_two_seconds_at_most() -> None:
    """A backlog of ten seconds is then gone at more than four fifths of the usual rate."""
    for _ in range(50):
        host = Host()
        begun = host.now
        while host.now < begun + 60:
            host.now += host.pause()
        assert host.now < begun + 62


def test_one_message_alone_tries_it_though_many_wait_for_it_at_several_addresses() -> None:
    host, inside = Host(), 0

    def post(url: str, headers: Mapping[str, str], body: bytes, who: str | None = None) -> Answer:
        nonlocal inside
        inside += 1
        assert host.source.left_alone(f"{THERE}/other", None) is not None
        with pytest.raises(LeftAlone, match="left alone"):
            host.source(f"{THERE}/other", {}, b"")
        return host.post(url, headers, body, who)

    host.now += host.pause()
    host.source._post = post
    host.now += host.pause()
    host.is_away = False
    assert host.source(THERE, {}, b"").status == 202
    host.source._post = host.post
    assert host.source(f"{THERE}/other", {}, b"").status == 202
    assert (inside, host.tried) == (2, 4)


def test_one_message_alone_tries_a_host_whose_gateway_answered_for_it() -> None:
    host = Host()
    host.is_away, host.answer = False, Answer(503, "", [], b"")

    def post(url: str, headers: Mapping[str, str], body: bytes, who: str | None = None) -> Answer:
        assert host.source.left_alone(THERE, None) is not None
        return host.post(url, headers, body, who)

    host.now += host.pause()
    host.source._post, host.answer = post, Answer(202, "", [], b"")
    assert host.source(THERE, {}, b"").status == 202
    assert host.source.left_alone(THERE, None) is None


def test_nothing_is_sent_to_it_meanwhile_unless_it_is_asked_for() -> None:
    host = Host()
    host.pause()
    host.pause()
    assert host.tried == 1
    host.source.try_now()
    host.pause()
    assert host.tried == 2


def test_a_host_that_has_never_answered_and_hangs_is_left_alone_for_a_minute_or_so_unless_it_is_asked_for() -> None:
    host = Host()
    host.hangs = 10
    for tries in range(1, 30):
        host.pause()
        assert host.tried == tries
        host.now += 72
    host.pause()
    host.source.try_now()
    host.pause()
    assert host.tried == 31


def test_once_it_has_answered_it_is_away_anew() -> None:
    host = Host()
    for _ in range(40):
        host.now += host.pause()
    host.is_away = False
    host.source(THERE, {}, b"")
    host.is_away = True
    assert host.pause() <= 0.024


def test_a_host_that_is_away_is_told_once_in_ten_minutes_and_once_that_it_is_back() -> None:
    host = Host()
    begun = host.now
    while host.now < begun + 1_000:
        host.now += host.pause()
    (name, first), (_name, again) = host.told
    assert (name, first["host"], first["error"]) == ("source.away", "http://partner.example", "the line broke")
    assert again["since"] == first["since"]
    host.is_away = False
    host.source(THERE, {}, b"")
    host.source(THERE, {}, b"")
    assert [name for name, _fields in host.told[2:]] == ["source.back"]
    assert host.told[2][1]["seconds"] == round(host.now - begun)


def test_messages_that_a_bad_line_loses_one_by_one_are_no_events() -> None:
    host = Host()
    for _ in range(20):
        host.is_away = True
        host.now += host.pause()
        host.is_away = False
        host.source(THERE, {}, b"")
    assert host.told == []


def test_a_host_that_asks_for_a_long_pause_is_told_of_at_once() -> None:
    host = Host()
    host.answer = Answer(503, "", [("Retry-After", "3600")], b"")
    host.is_away = False
    assert host.pause() == 3_600
    assert [name for name, _fields in host.told] == ["source.away"]


def test_where_a_signer_raises_its_address_alone_is_left_alone_and_told_of() -> None:
    host = Host()
    host.is_away = False
    for seconds in (0.0, 10.0, 20.0):
        host.now += seconds
        with pytest.raises(LeftAlone, match="the signer raised ValueError"):
            host.source(UNSIGNED, {}, b"")
        assert host.source(THERE, {}, b"").status == 202
    assert [(name, fields["host"]) for name, fields in host.told] == [("source.away", UNSIGNED)]
    tried = host.tried
    with pytest.raises(LeftAlone):
        host.source(UNSIGNED, {}, b"")
    assert host.tried == tried
    assert host.source.away(UNSIGNED) == (30.0, "the signer raised ValueError")
    assert host.source.away(THERE) is None


@pytest.mark.parametrize(
    ("said", "least", "most"),
    [
        ("120", 120.0, 120.0),
        ("", 200.0, 300.0),
        ("86400", 3_600.0, 3_600.0),
        ("soon", 0.0, 0.024),
    ],
    ids=["seconds", "a date", "a day", "nonsense"],
)
def test_a_host_that_says_when_to_come_again_is_left_alone_until_then_for_an_hour_at_most(
    said: str, least: float, most: float
) -> None:
    host = Host()
    host.is_away = False
    said = said or format_datetime(datetime.now(UTC) + timedelta(seconds=300), usegmt=True)
    host.answer = Answer(503, "", [("Retry-After", said)], b"")
    pause = host.pause()
    assert least <= pause <= most
    host.now += pause - 0.001
    with pytest.raises(LeftAlone):
        host.source(THERE, {}, b"")
    assert host.tried == 1
    host.answer, host.now = Answer(202, "", [], b""), host.now + 0.002
    assert host.source(THERE, {}, b"").status == 202
