"""The lane of a client's outbox: what is sent again is not put again."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

from tests.server.http.conftest import Answer, Http, Process, queue

HttpOf = Callable[..., Http]


def bodies(http: Http, name: str = "orders") -> list[bytes]:
    answer = http("GET", queue(name, "/messages?limit=1000"))
    return [] if answer.status == 204 else [body for _told, body in answer.parts()]


def send(http: Http, numbers: range, after: int = 0, lane: str = "box", **said: Any) -> Answer:
    parts = [({"queue": "orders", "number": number, **said}, b"%d" % number) for number in numbers]
    return http.several(f"/lanes/{lane}/messages?after={after}", parts)


def test_what_is_sent_again_is_not_put_again(http: Http, http_of: HttpOf) -> None:
    assert http("GET", "/lanes/box").json() == {"last": 0}
    assert send(http, range(1, 4)).json() == {"last": 3}
    assert send(http, range(1, 6)).json() == {"last": 5}
    assert send(http, range(4, 5), 3).json() == {"last": 5}
    assert send(http, range(9, 11), 5).json() == {"last": 10}
    assert bodies(http) == [b"1", b"2", b"3", b"4", b"5", b"9", b"10"]
    gap = send(http, range(20, 21), 15)
    assert (gap.status, gap.json()["code"], gap.json()["expected"]) == (409, "LaneGap", 10)
    assert http_of("anna")("GET", "/lanes/box").json() == {"last": 0}
    assert send(http, range(1, 2), lane="other").json() == {"last": 1}


def test_messages_up_to_one_that_can_never_be_put_are_put(http: Http) -> None:
    http("PUT", queue("orders"), {"max_bytes": 9})
    parts = [({"queue": "orders", "number": n}, b"much too long" if n == 3 else b"%d" % n) for n in range(1, 6)]
    answer = http.several("/lanes/box/messages", parts).json()
    assert (answer["last"], answer["number"], answer["problem"]["code"]) == (2, 3, "QuotaExceeded")
    assert answer["problem"]["lasts"] is True
    assert http.several("/lanes/box/messages?after=2", parts[3:]).json() == {"last": 5}
    assert bodies(http) == [b"1", b"2", b"4", b"5"]
    assert send(http, range(1, 2), lane="new", priority=99).json()["problem"]["code"] == "ConfigurationError"
    refused = http.several("/lanes/third/messages", [({"topic": "no//topic", "number": 1}, b"x")]).json()
    assert (refused["last"], refused["number"]) == (0, 1)


def test_where_there_is_no_room_for_now_nothing_is_refused_for_ever(http: Http) -> None:
    http("PUT", queue("orders"), {"max_messages": 2})
    assert send(http, range(1, 5)).json() == {"last": 2}
    full = send(http, range(3, 5), 2)
    assert (full.status, full.json()["code"]) == (503, "QuotaExceeded")
    http("PUT", queue("orders"), {"max_messages": 9})
    assert send(http, range(3, 5), 2).json() == {"last": 4}
    assert bodies(http) == [b"1", b"2", b"3", b"4"]


def test_the_same_on_many_connections_is_put_once(http: Http, http_of: HttpOf) -> None:
    answers: list[Answer] = []
    others = [threading.Thread(target=lambda: answers.append(send(http_of(), range(1, 50)))) for _ in range(8)]
    for one in others:
        one.start()
    for one in others:
        one.join()
    assert [one.json() for one in answers] == [{"last": 49}] * 8
    assert bodies(http) == [b"%d" % number for number in range(1, 50)]


@pytest.mark.parametrize(
    "parts", [[({"queue": "a"}, b"")], [({"queue": "a", "number": 0}, b"")], [({"queue": "a", "number": 2}, b"")] * 2]
)
def test_numbers_rise(http: Http, parts: list[Any]) -> None:
    assert http.several("/lanes/box/messages", parts).status == 400


def test_a_server_that_was_killed_knows_what_it_has(process: Process) -> None:
    assert send(process.http(), range(1, 30)).json() == {"last": 29}
    process.kill()
    process.start()
    http = process.http()
    assert http("GET", "/lanes/box").json() == {"last": 29}
    assert send(http, range(20, 40), 19).json() == {"last": 39}
    assert bodies(http) == [b"%d" % number for number in range(1, 40)]
