"""The outbox keeps what a program puts until the other side has it: once, in order, whatever fails meanwhile."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from wsrm_mq.errors import BadRequest, LaneGap, NotAnswered, QuotaExceeded, ServerUnavailable, UnknownQueue, WSRMError
from wsrm_mq.events.telling import Event, Events
from wsrm_mq.node.outbox import Leaving, Outbox, Sent


class OtherSide:
    """The other side of the wire: it remembers lanes as a queue server does. ``answers``: what goes wrong with the
    next requests; an error is raised once the messages are taken (``after``) or before."""

    def __init__(self) -> None:
        self.lanes: dict[str, int] = {}
        self.has: list[bytes] = []
        self.requests: list[list[int]] = []
        self.refuses: dict[bytes, WSRMError] = {}
        self.cannot_read: set[bytes] = set()
        self.breaks: list[tuple[str, WSRMError]] = []
        self.is_down = False
        self._lock = threading.Lock()

    def last(self, lane: str) -> int:
        if self.is_down:
            raise ServerUnavailable("It is down.")
        return self.lanes.get(lane, 0)

    def send(self, lane: str, after: int, messages: Sequence[Leaving]) -> Sent:
        with self._lock:
            if self.is_down:
                raise ServerUnavailable("It is down.")
            when, error = self.breaks.pop(0) if self.breaks else ("", None)
            if when == "before" and error is not None:
                raise error
            if any(one.body in self.cannot_read for one in messages):
                raise BadRequest("It cannot be read.")
            last = self.lanes.setdefault(lane, 0)
            if after > last:
                raise LaneGap("There is a gap.", last)
            self.requests.append([one.number for one in messages])
            for one in messages:
                if one.number <= last:
                    continue
                if one.body in self.refuses:
                    return Sent(last, self.refuses[one.body])
                self.has.append(one.body)
                self.lanes[lane] = last = one.number
            if error is not None:
                raise error
            return Sent(last)


Open = Callable[..., Outbox]


@pytest.fixture
def side() -> OtherSide:
    return OtherSide()


@pytest.fixture
def told() -> list[Event]:
    return []


@pytest.fixture
def opened(tmp_path: Path, side: OtherSide, told: list[Event]) -> Iterator[Open]:
    boxes: list[Outbox] = []

    def open_one(store: str = "outbox.db") -> Outbox:
        boxes.append(Outbox(tmp_path / store, "https://host/q", side, Events(told.append)))
        return boxes[-1]

    yield open_one
    for one in boxes:
        if one.node.store.is_open:
            one.close()


def put(box: Outbox, *bodies: bytes, **header: Any) -> None:
    for body in bodies:
        box.put(body, None, {"queue": "orders", **header}).result()


def until(happened: Callable[[], bool], seconds: float = 20.0) -> None:
    deadline = time.monotonic() + seconds
    while not happened():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_what_was_put_leaves_once_and_in_order(opened: Open, side: OtherSide) -> None:
    box = opened()
    bodies = [b"%d" % n for n in range(40)]
    done = [box.put(body, None, {"queue": "orders"}) for body in bodies]
    positions = [one.result() for one in done]
    assert positions == sorted(positions)
    assert box.flush(20)
    assert side.has == bodies
    assert [number for request in side.requests for number in request] == [*range(1, 41)]
    assert len(side.requests) < 40


def test_what_waits_survives_its_program_and_keeps_its_numbers(opened: Open, side: OtherSide) -> None:
    side.is_down = True
    first = opened()
    put(first, b"1", b"2", b"3")
    assert not first.flush(0.1)
    first.close()
    side.is_down = False
    again = opened()
    put(again, b"4")
    assert again.flush(20)
    assert side.has == [b"1", b"2", b"3", b"4"]
    assert again.lane == first.lane


def test_an_answer_that_is_lost_puts_nothing_twice(opened: Open, side: OtherSide) -> None:
    side.breaks = [("after", NotAnswered("lost")), ("before", NotAnswered("lost")), ("after", NotAnswered("lost"))]
    box = opened()
    box.put_many([(b"%d" % n, None, {"queue": "orders"}) for n in range(10)])
    assert box.flush(20)
    assert side.has == [b"%d" % n for n in range(10)]


def test_what_is_refused_for_good_is_a_dead_letter_and_the_rest_goes_on(
    opened: Open, side: OtherSide, told: list[Event]
) -> None:
    side.refuses[b"2"] = UnknownQueue("There is no queue orders.")
    box = opened()
    box.put_many([(b"%d" % n, None, {"queue": "orders"}) for n in range(5)])
    assert box.flush(20)
    assert side.has == [b"0", b"1", b"3", b"4"]
    (letter,) = box.dead.peek()
    assert (letter.body, letter.last_error) == (b"2", "UnknownQueue: There is no queue orders.")
    until(lambda: [one.name for one in told] == ["outbox.refused"])
    side.refuses.clear()
    assert box.dead.redrive() == 1
    assert box.flush(20)
    assert side.has[-1] == b"2"


def test_what_spoils_its_request_is_found_and_refused_alone(opened: Open, side: OtherSide) -> None:
    side.cannot_read = {b"0", b"11"}
    box = opened()
    box.put_many([(b"%d" % n, None, {"queue": "orders"}) for n in range(20)])
    assert box.flush(20)
    assert side.has == [b"%d" % n for n in range(20) if n not in (0, 11)]
    assert [(one.body, one.last_error) for one in box.dead.peek()] == [
        (body, "BadRequest: It cannot be read.") for body in (b"0", b"11")
    ]


def test_what_finds_no_room_waits_for_it_and_keeps_its_place(opened: Open, side: OtherSide) -> None:
    side.refuses[b"1"] = QuotaExceeded("There is no room.")
    box = opened()
    box.put_many([(b"%d" % n, None, {"queue": "orders"}) for n in range(3)])
    until(lambda: side.has == [b"0"])
    assert not box.flush(0.3)
    side.refuses.clear()
    assert box.flush(20)
    assert side.has == [b"0", b"1", b"2"]
    assert box.dead.peek() == []


def test_a_server_that_was_put_back_is_told_and_gets_what_comes_next(
    opened: Open, side: OtherSide, told: list[Event]
) -> None:
    box = opened()
    put(box, b"1", b"2", b"3")
    assert box.flush(20)
    side.lanes[box.lane] = 1
    put(box, b"4")
    assert box.flush(20)
    assert side.has[-1] == b"4"
    until(lambda: [(one.name, one.fields["lower"], one.fields["upper"]) for one in told] == [("outbox.gap", 2, 3)])


def test_two_programs_of_one_store_send_each_message_once(opened: Open, side: OtherSide) -> None:
    boxes = [opened(), opened()]
    for n in range(30):
        put(boxes[n % 2], b"%d" % n)
    assert all(box.flush(20) for box in boxes)
    assert side.has == [b"%d" % n for n in range(30)]


def test_two_stores_have_two_lanes(opened: Open) -> None:
    assert opened("one.db").lane != opened("two.db").lane
