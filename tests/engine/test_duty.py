"""Who delivers what no request of his own has brought: not a process that only forks those that serve."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.in_process import InProcess, taken, until
from wsrm_mq import WSRMMiddleware
from wsrm_mq.delivery import dispatcher as duties
from wsrm_mq.delivery.dispatcher import Duty
from wsrm_mq.delivery.watch import POLL_SECONDS

GRACE = 0.05


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(duties, "GRACE_SECONDS", GRACE)


def is_on(duty: Duty, *, younger_lives: bool = False) -> bool:
    duty.look(younger_lives)
    return duty.is_on


def over() -> None:
    time.sleep(GRACE * 1.5)


@pytest.mark.usefixtures("short")
def test_a_fresh_process_begins_after_the_grace_whatever_other_process_lives() -> None:
    duty = Duty()
    assert not is_on(duty)
    over()
    assert is_on(duty, younger_lives=True), "it has forked no child"


def test_one_that_is_asked_begins_at_once_and_goes_on_after_a_fork() -> None:
    duty = Duty()
    duty.ask()
    assert duty.is_on
    duty.fork()
    assert is_on(duty, younger_lives=True)


@pytest.mark.usefixtures("short")
def test_one_that_forks_stands_by_until_no_younger_one_has_lived_for_a_grace() -> None:
    duty = Duty()
    over()
    assert is_on(duty)
    duty.fork()
    assert not duty.is_on
    over()
    assert not is_on(duty), "the fork itself may have taken as long"
    over()
    assert not is_on(duty, younger_lives=True)
    assert not is_on(duty), "a worker that has died is being replaced"
    over()
    assert is_on(duty)
    assert not is_on(duty, younger_lives=True), "it was replaced after all"


@pytest.mark.parametrize("serve", [WSRMMiddleware.start, WSRMMiddleware.__enter__], ids=["start", "with"])
def test_one_that_says_that_it_serves_delivers_what_was_left_before_the_grace_is_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, serve: Callable[[WSRMMiddleware], object]
) -> None:
    monkeypatch.setattr(duties, "GRACE_SECONDS", 60.0)
    calls: list[int] = []
    fails = True

    def operation(environ: dict[str, Any], start_response: Any) -> list[bytes]:
        if fails:
            raise OSError
        calls.append(environ["wsrm.message_number"])
        return taken(start_response)

    service = InProcess(tmp_path, operation, retry=[0.01])
    service.put(service.create(), 1)
    service.middleware.close(5)
    fails = False
    service.open()
    assert not until(lambda: calls, POLL_SECONDS + 0.3)
    serve(service.middleware)
    assert until(lambda: calls == [1])
    service.middleware.close(5)
