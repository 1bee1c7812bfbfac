"""The write queue keeps its order, knows what is urgent, and has room for so many requests."""

from __future__ import annotations

from typing import Any

import pytest

from wsrm_mq.store.group_commit import LINGERING, Write, WriteQueue


def verb(size: int = 0, **options: bool) -> Write[Any]:
    return Write(lambda _tx: None, lambda _result, _error: None, size=size, **options)


@pytest.fixture
def queue() -> WriteQueue:
    return WriteQueue(max_requests=2, max_request_bytes=100)


def put(queue: WriteQueue, *items: Write[Any]) -> list[Write[Any]]:
    for item in items:
        queue.put(item)
    return list(items)


def test_what_is_put_back_comes_before_what_waits(queue: WriteQueue) -> None:
    first, second, third = put(queue, verb(), verb(), verb())
    batch = queue.take(0)
    assert batch == [first, second, third]
    last = verb()
    queue.put(last)
    queue.put_back([second, third])
    assert queue.take(0) == [second, third, last]


def test_a_batch_ends_before_it_has_too_many_bytes(queue: WriteQueue) -> None:
    small, large, behind = put(queue, verb(10), verb(60), verb(10))
    assert queue.take(50) == [small]
    assert queue.take(50, alone=False) == []
    assert queue.take(50) == [large], "by itself"
    assert queue.take(50) == [behind]


def test_it_is_due_when_a_request_waits_and_when_enough_lingers(queue: WriteQueue) -> None:
    put(queue, *(verb(lingers=True) for _ in range(LINGERING - 1)))
    assert not queue.is_due
    urgent = verb()
    queue.put(urgent)
    assert queue.is_due
    lingering = queue.take(0)[:-1]
    assert not queue.is_due
    put(queue, *lingering)
    assert not queue.is_due
    queue.put(verb(lingers=True))
    assert queue.is_due


def test_what_is_put_back_or_left_over_is_due_though_it_lingers(queue: WriteQueue) -> None:
    batch = put(queue, verb(10, lingers=True), verb(60, lingers=True))
    assert queue.take(50) == batch[:1]
    assert queue.is_due
    assert queue.take(50) == batch[1:]
    assert not queue.is_due
    queue.put_back(batch)
    assert queue.is_due


def test_what_is_urged_lingers_no_more(queue: WriteQueue) -> None:
    put(queue, verb(lingers=True))
    queue.urge()
    assert queue.is_due
    queue.take(0)
    assert not queue.is_due


def test_what_must_be_stored_stays_in_its_order_when_the_rest_is_refused(queue: WriteQueue) -> None:
    kept, refused, also_kept = put(queue, verb(keep=True), verb(), verb(keep=True, lingers=True))
    assert queue.take_refusable() == [refused]
    assert queue.is_due
    assert queue.take(0) == [kept, also_kept]
    assert not queue.is_due


def test_a_request_has_room_until_there_are_too_many_or_too_many_bytes(queue: WriteQueue) -> None:
    """Until it is told, not only until it is taken; and what is no request needs no room."""

    def asks(size: int) -> bool:
        return queue.put(verb(size, is_request=True))

    assert asks(1_000), "one alone is never too large"
    assert not asks(0)
    queue.release(queue.take_all())
    assert asks(60)
    assert queue.put(verb(1_000))
    assert not asks(41)
    assert asks(40)
    assert not asks(0)
    batch = queue.take_all()
    assert (len(queue.waiting), queue.is_due) == (0, False)
    assert not asks(0)
    queue.release(batch)
    assert asks(1_000)
