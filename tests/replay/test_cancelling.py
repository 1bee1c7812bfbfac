"""What a cancelled plan takes back, and from whom."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest

from tests.replay.build import House, counted, read
from tests.support.in_process import until
from wsrm_mq.delivery.dispatcher import LOOK_SECONDS
from wsrm_mq.errors import NotAllowed
from wsrm_mq.replay import Progress, cancel_plan
from wsrm_mq.store.invariants import all_findings
from wsrm_mq.store.sqlite.connection import connect_reader


def test_what_a_cancelled_plan_has_entered_is_taken_back(house: House) -> None:
    """Number 2 waited for its delivery, so it is a dead letter of its queue; number 1 had been delivered."""
    house.service.refused = {2}
    house.other.refused = {1}
    house.sequence(1, 2)
    file = house.plan("queue:/orders")
    house.run(file)
    plan = read(file)[0].id
    assert cancel_plan(house.path, plan, actor="ann", reason="wrong day") == (2, 0)
    assert house.rm.rows(
        "SELECT e.number, e.outcome, e.reason, q.name FROM entry e JOIN queue q ON q.id = e.queue WHERE e.id > 2"
    ) == [
        (1, "discarded", "replay_cancelled", f"replay/{plan}/orders"),
        (2, "dead", "replay_cancelled", "/orders#dead"),
    ]
    with pytest.raises(NotAllowed, match="was cancelled"):
        house.run(file)
    assert list(all_findings(connect_reader(house.path))) == []


def stopped_at(house: House, file: Path, calls: int) -> None:
    """A run to the service, interrupted when that has called so many."""

    def stop(_progress: Progress) -> None:
        if len(house.service.calls) >= calls:
            raise KeyboardInterrupt

    house.service.calls.clear()
    with pytest.raises(KeyboardInterrupt):
        house.run_to_service(file, on_progress=stop)


def test_what_the_service_has_not_begun_is_taken_back(house: House) -> None:
    """It would go on with all that was entered."""
    for _ in range(2):
        house.sequence(*range(1, 151))
    house.service.seconds = 0.01
    file = house.plan("queue:/orders", target="app")
    stopped_at(house, file, 10)
    done = cancel_plan(house.path, read(file)[0].id, actor="ann", reason="wrong day")
    called = len(house.service.calls)
    assert done.left == 0
    assert done.messages + called == 300
    assert called < 100
    assert counted(house, file) == {"delivered": called, "discarded": done.messages}
    assert house.rm.rows("SELECT id FROM lane WHERE on_hold_since IS NOT NULL OR owner IS NOT NULL") == []
    assert list(all_findings(connect_reader(house.path))) == []


def test_a_plan_of_which_a_message_is_out_is_not_cancelled_before_that_has_ended(house: House) -> None:
    """Its run was stopped, and lets end what it has called."""
    house.sequence(1, 2)
    file = house.plan("queue:/orders")
    plan = read(file)[0].id
    house.other.goes_on.clear()

    def stop(_progress: Progress) -> None:
        if house.other.calls:
            raise KeyboardInterrupt

    def interrupted() -> None:
        with pytest.raises(KeyboardInterrupt):
            house.run(file, on_progress=stop)

    run = threading.Thread(target=interrupted)
    run.start()
    try:
        left = "SELECT 1 FROM ledger WHERE event = 'replay_stopped'"
        assert until(lambda: house.rm.rows(left))
        with pytest.raises(NotAllowed, match="is still being delivered; try again when that has ended"):
            cancel_plan(house.path, plan, actor="ann", reason="wrong day")
        assert house.state_of(file) == "running"
        time.sleep(2 * LOOK_SECONDS)  # where operations take less, some more may have been called
    finally:
        house.other.goes_on.set()
        run.join()
    cancel_plan(house.path, plan, actor="ann", reason="wrong day")
    assert (house.state_of(file), house.other.numbers) == ("cancelled", [1])


def test_what_waits_for_a_long_operation_does_not_begin_and_is_taken_back_when_that_has_ended(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("wsrm_mq.replay.run._LET_END_SECONDS", 0.1)
    house.sequence(1, 2, 3)
    file = house.plan("queue:/orders", target="app")
    house.service.goes_on.clear()
    try:
        stopped_at(house, file, 1)
        plan = read(file)[0].id
        assert cancel_plan(house.path, plan, actor="ann", reason="wrong day") == (0, 3)
    finally:
        house.service.goes_on.set()
    house.settled()
    assert cancel_plan(house.path, plan, actor="ann", reason="wrong day") == (2, 0)
    assert house.service.numbers == [1]
    assert house.rm.rows("SELECT id FROM lane WHERE on_hold_since IS NOT NULL") == []
