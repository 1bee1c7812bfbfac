"""A fork waits for the calls of the application to end; none begins meanwhile."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from wsrm_mq.delivery.application import Gate
from wsrm_mq.delivery.delivery import Delivery, Outcome

ANY: Any = None


class Operation:
    """Says when it has begun and ends when it is told."""

    def __init__(self) -> None:
        self.begun = threading.Semaphore(0)
        self.may_end = threading.Event()

    def __call__(self, _delivery: Delivery) -> Outcome:
        self.begun.release()
        assert self.may_end.wait(10)
        return Outcome()


def in_thread(work: Callable[[], object]) -> threading.Thread:
    thread = threading.Thread(target=work)
    thread.start()
    return thread


def test_it_closes_when_the_call_inside_has_ended_and_lets_no_call_in_until_it_opens() -> None:
    operation = Operation()
    gate = Gate(operation)
    first = in_thread(lambda: gate(ANY))
    operation.begun.acquire()
    assert not gate.close(0.05), "a call is inside"
    second = in_thread(lambda: gate(ANY))
    operation.may_end.set()
    first.join(5)
    assert gate.close(5)
    assert not operation.begun.acquire(timeout=0.1), "no call was let in"
    gate.open()
    assert operation.begun.acquire(timeout=5)
    second.join(5)


def test_an_operation_that_forks_does_not_wait_for_itself() -> None:
    waited: list[float] = []

    def forks(_delivery: Delivery) -> Outcome:
        begun = time.monotonic()
        assert gate.close(5)
        waited.append(time.monotonic() - begun)
        gate.open()
        return Outcome()

    gate = Gate(forks)
    gate(ANY)
    assert waited[0] < 1


def test_an_operation_that_raises_is_outside() -> None:
    def raises(_delivery: Delivery) -> Outcome:
        raise ZeroDivisionError

    gate = Gate(raises)
    with pytest.raises(ZeroDivisionError):
        gate(ANY)
    assert gate.close(0)
