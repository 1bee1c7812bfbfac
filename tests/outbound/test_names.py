"""A name server that is silent costs those nothing who ask for other names, and who asks a bounded time."""

from __future__ import annotations

import os
from concurrent.futures import wait

import pytest

from tests.support.name_server import NameServer
from wsrm_mq.errors import NameNotKnown, NameServerSilent
from wsrm_mq.outbound.names import SECONDS, Names

MOST = 8


class Time:
    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def time() -> Time:
    return Time()


@pytest.fixture
def known(names: NameServer, time: Time) -> Names:
    names.answers = {f"{number}.example": [["1.1.1.1"]] for number in range(3 * MOST)}
    names.answers["none.example"] = [[]]
    return Names(MOST, time)


@pytest.mark.parametrize("host", ["127.0.0.1", "127.1", "0x7f000001", "2130706433", "[::1]", "::1"])
def test_a_number_is_known_without_asking(known: Names, names: NameServer, host: str) -> None:
    names.answers[host] = [["6.6.6.6"]]
    assert known.known(host) == known.look_up(host)
    assert known.known(host)[0] in ("127.0.0.1", "::1")
    assert names.asked == []


def test_a_name_is_known_once_it_was_looked_up(known: Names, names: NameServer) -> None:
    with pytest.raises(NameNotKnown, match=r"0\.example"):
        known.known("0.example")
    found, seconds = known.ask("0.example")
    assert seconds == SECONDS
    assert found.result(5) == ["1.1.1.1"] == known.known("0.example")
    assert names.asked == ["0.example"]


def test_what_is_no_name_is_remembered_for_a_while(known: Names, names: NameServer, time: Time) -> None:
    wait([known.ask("none.example")[0]])
    for _ in range(2):
        with pytest.raises(OSError, match="not known"):
            known.known("none.example")
    time.now += 60
    with pytest.raises(NameNotKnown):
        known.known("none.example")


def test_who_waited_in_vain_is_told_and_the_next_does_not_wait(known: Names, names: NameServer, time: Time) -> None:
    names.speaks.clear()
    found, _seconds = known.ask("0.example")
    time.now += 1
    assert known.ask("0.example") == (found, SECONDS - 1), "it is looked up once, whoever asks"
    time.now += SECONDS
    with pytest.raises(NameServerSilent, match=r"0\.example"):
        known.known("0.example")
    assert known.ask("0.example")[1] == 0
    names.speaks.set()
    assert found.result(5) == ["1.1.1.1"] == known.known("0.example"), "late, and good for the next"
    assert names.asked == ["0.example"]


@pytest.mark.spec("SEC-018", versions="all")
def test_the_names_of_one_never_keep_all_threads(known: Names, names: NameServer) -> None:
    names.speaks.clear()
    for number in range(MOST // 2):
        known.ask(f"{number}.example", "stranger")
    for number in range(MOST, 2 * MOST):
        with pytest.raises(NameServerSilent):
            known.ask(f"{number}.example", "stranger")
    other, _seconds = known.ask("20.example", "partner")
    names.speaks.set()
    assert other.result(5) == ["1.1.1.1"]


def test_where_something_is_sent_new_names_leave_half_of_the_threads_to_those_that_were_found(
    known: Names, names: NameServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("wsrm_mq.outbound.names.SECONDS", 0.0)
    wait([known.ask("0.example")[0]])
    names.speaks.clear()
    for number in range(1, MOST):
        with pytest.raises(NameServerSilent):
            known.look_up(f"{number}.example")
    assert len(names.asked) == 1 + MOST // 2
    monkeypatch.setattr("wsrm_mq.outbound.names.SECONDS", 5.0)
    names.speaks.set()
    assert known.look_up("0.example") == ["1.1.1.1"]


def test_what_a_parent_was_looking_up_a_fork_looks_up_itself(known: Names, names: NameServer) -> None:
    names.speaks.clear()
    for number in range(MOST // 2):
        known.ask(f"{number}.example")
    child = os.fork()
    if not child:
        status = 1
        try:
            names.speaks._flag = True  # type: ignore[attr-defined]
            status = 0 if known.ask("0.example")[0].result(5) == ["1.1.1.1"] else 2
        finally:
            os._exit(status)
    assert os.waitpid(child, 0)[1] == 0
