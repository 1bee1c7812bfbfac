"""The line at the writer keeps its order, knows what is urgent, and has room for so many requests."""

from __future__ import annotations

from typing import Any

import pytest

from wsrm_mq.store.line import LINGERING, Line, Waiting


def verb(size: int = 0, **options: bool) -> Waiting[Any]:
    return Waiting(lambda _tx: None, lambda _result, _error: None, size=size, **options)


@pytest.fixture
def line() -> Line:
    return Line(max_requests=2, max_request_bytes=100)


def joined(line: Line, *items: Waiting[Any]) -> list[Waiting[Any]]:
    for item in items:
        line.join(item)
    return list(items)


def test_what_is_put_back_comes_before_what_waits(line: Line) -> None:
    first, second, third = joined(line, verb(), verb(), verb())
    batch = line.take(0)
    assert batch == [first, second, third]
    last = verb()
    line.join(last)
    line.put_back([second, third])
    assert line.take(0) == [second, third, last]


def test_a_batch_ends_before_it_has_too_many_bytes(line: Line) -> None:
    small, large, behind = joined(line, verb(10), verb(60), verb(10))
    assert line.take(50) == [small]
    assert line.take(50, alone=False) == []
    assert line.take(50) == [large], "by itself"
    assert line.take(50) == [behind]


def test_it_is_due_when_somebody_waits_and_when_enough_lingers(line: Line) -> None:
    joined(line, *(verb(lingers=True) for _ in range(LINGERING - 1)))
    assert not line.is_due
    urgent = verb()
    line.join(urgent)
    assert line.is_due
    lingering = line.take(0)[:-1]
    assert not line.is_due
    line.put_back(lingering)
    assert not line.is_due
    line.join(verb(lingers=True))
    assert line.is_due


def test_what_is_urged_lingers_no_more(line: Line) -> None:
    joined(line, verb(lingers=True))
    line.urge()
    assert line.is_due
    line.take(0)
    assert not line.is_due


def test_what_must_be_stored_stays_in_its_order_when_the_rest_is_refused(line: Line) -> None:
    kept, refused, also_kept = joined(line, verb(keep=True), verb(), verb(keep=True, lingers=True))
    assert line.take_refusable() == [refused]
    assert line.is_due
    assert line.take(0) == [kept, also_kept]
    assert not line.is_due


def test_a_request_has_room_until_there_are_too_many_or_too_many_bytes(line: Line) -> None:
    """Until it is told, not only until it is taken; and what is no request needs no room."""
    assert line.admits(1_000), "one alone is never too large"
    joined(line, verb(60, is_request=True), verb(1_000))
    assert line.admits(40)
    assert not line.admits(41)
    joined(line, verb(1, is_request=True))
    assert not line.admits(0)
    batch = line.take_all()
    assert (len(line), line.is_due) == (0, False)
    assert not line.admits(0)
    line.leave([item for item in batch if item.is_request])
    assert line.admits(1_000)
