"""What came of a delivery is recorded, whatever it is: an outcome that cannot be stored is counted under the ladder."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.delivery.test_dispatcher import OWNED
from tests.support.in_process import TWO_WAY, InProcess, taken, until
from wsrm_mq.delivery.delivery import Delivery, Outcome
from wsrm_mq.queue.failure import Diagnosis
from wsrm_mq.queue.settle import ServiceReply

SURROGATE = "\ud800 is no text"
NO_TEXT: Any = object()
"""What a text has of the kind is made storable; this is not one at all."""
ENTRIES = "SELECT number, outcome, failures FROM entry ORDER BY number"

Make = Callable[..., InProcess]


@pytest.fixture
def make(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Make]:
    made: list[InProcess] = []

    def start(outcome: Callable[[Delivery], Outcome], **options: Any) -> InProcess:
        made.append(InProcess(tmp_path, lambda _environ, respond: taken(respond), start=False, **options))
        wsrm = made[-1]
        monkeypatch.setattr(wsrm.middleware.engine, "call", outcome)
        wsrm.middleware.start()
        return wsrm

    yield start
    for wsrm in made:
        wsrm.middleware.close(5)


class Calls:
    """Answers with ``bad`` to number 2, well to the others."""

    def __init__(self, bad: Callable[[], Outcome], times: int = 1_000) -> None:
        self.seen: list[tuple[int, int, bool]] = []
        self._bad = bad
        self._left = times

    def __call__(self, delivery: Delivery) -> Outcome:
        self.seen.append((delivery.number, delivery.attempt, delivery.redelivery))
        if delivery.number == 2 and self._left:
            self._left -= 1
            return self._bad()
        return Outcome(ServiceReply("200 OK", (), b"<ok/>") if delivery.wants_reply else None)

    @property
    def numbers(self) -> list[int]:
        return [number for number, _, _ in self.seen]


def assert_repeats_are_marked(calls: Calls) -> None:
    first = [number for number, _, again in calls.seen if not again]
    assert len(first) == len(set(first)), calls.seen


UNSTORABLE = {
    "an error that is no text": lambda: Outcome(error=NO_TEXT, diagnosis=Diagnosis("exception")),
    "a header that is no text": lambda: Outcome(ServiceReply("200 OK", (("X-A", SURROGATE),), b"<ok/>")),
    "a status that is no text": lambda: Outcome(ServiceReply(f"200 {SURROGATE}", (), b"<ok/>")),
    "a header that is not JSON": lambda: Outcome(ServiceReply("200 OK", ((b"X", b"Y"),), b"<ok/>")),  # type: ignore[arg-type]
    "a body of no type": lambda: Outcome(ServiceReply("200 OK", (), memoryview(b"abcd")[::2])),  # type: ignore[arg-type]
}


@pytest.mark.parametrize("reply_to", ["none", TWO_WAY], ids=["one-way", "two-way"])
@pytest.mark.parametrize("outcome", UNSTORABLE.values(), ids=UNSTORABLE)
def test_what_cannot_be_stored_is_a_failure_that_is_counted_and_in_the_end_blocks(
    make: Make, outcome: Callable[[], Outcome], reply_to: str
) -> None:
    calls = Calls(outcome)
    wsrm = make(calls, retry=[0.01, 0.01], hold_wait=0.3)
    identifier = wsrm.create()
    for number in (1, 2, 3):
        wsrm.put(identifier, number, reply_to=reply_to)
    assert until(lambda: wsrm.rows("SELECT count(*) FROM lane WHERE blocked IS NOT NULL") == [(1,)])
    assert wsrm.rows(ENTRIES) == [(1, "delivered", 0), (2, None, 3), (3, None, 0)]
    assert_repeats_are_marked(calls)
    assert [seen for seen in calls.seen if seen[0] == 2] == [(2, 1, False), (2, 2, True), (2, 3, True)]
    [(why,)] = wsrm.rows("SELECT last_error FROM entry WHERE number = 2")
    assert why.startswith("the service ")
    assert "could not be stored" in why
    assert wsrm.rows("SELECT value FROM counter WHERE name = 'failed' AND label = 'unstorable'") == [(3,)]
    assert until(lambda: wsrm.rows(OWNED) == [(0,)])


def test_a_one_way_message_that_was_taken_is_settled_though_its_remark_cannot_be_stored(make: Make) -> None:
    calls = Calls(lambda: Outcome(remark=NO_TEXT))
    wsrm = make(calls)
    identifier = wsrm.create()
    for number in (1, 3, 4, 2, 5):  # a run of several, too
        wsrm.put(identifier, number)
    assert until(lambda: wsrm.rows("SELECT count(*) FROM entry WHERE outcome = 'delivered'") == [(5,)])
    assert calls.numbers.count(2) == 1
    assert list(dict.fromkeys(calls.numbers)) == [1, 2, 3, 4, 5]
    assert_repeats_are_marked(calls)
    [(why,)] = wsrm.rows("SELECT reason FROM ledger WHERE event = 'answered_with_fault'")
    assert why.startswith("the service took the message, and its answer could not be stored: TypeError")


@pytest.mark.parametrize("reply_to", ["none", TWO_WAY], ids=["one-way", "two-way"])
@pytest.mark.usefixtures("quick_watch")
def test_what_breaks_off_each_run_of_a_message_is_counted_too_and_in_the_end_blocks(make: Make, reply_to: str) -> None:
    """Whatever it is, and wherever it comes from: here the call itself raises, which it never should."""

    def broken() -> Outcome:
        raise RuntimeError("of a kind that was not foreseen")

    calls = Calls(broken)
    wsrm = make(calls, retry=[0.01], hold_wait=0.5)
    identifier = wsrm.create()
    wsrm.put(identifier, 1)
    wsrm.put(identifier, 2, reply_to=reply_to)
    assert until(lambda: wsrm.rows("SELECT count(*) FROM lane WHERE blocked IS NOT NULL") == [(1,)], 20)
    assert calls.seen == [(1, 1, False), (2, 1, False), (2, 2, True), (2, 3, True), (2, 4, True)]
    [(why,)] = wsrm.rows("SELECT last_error FROM entry WHERE number = 2")
    assert why == "its run broke off: RuntimeError: of a kind that was not foreseen"
    assert wsrm.rows("SELECT count(*) FROM ledger WHERE event = 'broke_off'") == [(4,)]
    assert wsrm.rows("SELECT value FROM counter WHERE name = 'failed' AND label = 'broke_off'") == [(2,)]


def test_a_failure_that_passes_goes_on_in_order_and_what_ran_ahead_is_marked(make: Make) -> None:
    calls = Calls(lambda: Outcome(error=NO_TEXT), times=1)
    wsrm = make(calls, retry=[0.01])
    identifier = wsrm.create()
    for number in (5, 4, 3, 2, 1):
        wsrm.put(identifier, number)
    assert until(lambda: wsrm.rows("SELECT count(*) FROM entry WHERE outcome = 'delivered'") == [(5,)])
    assert calls.numbers == [1, 2, 2, 3, 4, 5]


def test_what_was_settled_behind_one_that_was_not_is_no_loss(make: Make) -> None:
    """A run is ahead of its settlements: number 3 is called before the store has refused what came of number 2."""
    calls = Calls(UNSTORABLE["a header that is no text"], times=2)
    wsrm = make(calls, retry=[0.01, 0.01])
    identifier = wsrm.create()
    for number in (*range(9, 1, -1), 1):
        wsrm.put(identifier, number)
    assert until(lambda: wsrm.rows("SELECT count(*) FROM entry WHERE outcome = 'delivered'") == [(9,)])
    assert [number for number in calls.numbers if number <= 2] == [1, 2, 2, 2]
    assert_repeats_are_marked(calls)


def test_at_most_once_an_answer_that_cannot_be_stored_is_told_and_nothing_is_repeated(
    make: Make, caplog: pytest.LogCaptureFixture
) -> None:
    calls = Calls(UNSTORABLE["a header that is no text"])
    wsrm = make(calls, assurance="at_most_once", hold_wait=1.0)
    identifier = wsrm.create()
    for number in (1, 2, 3):
        assert wsrm.put(identifier, number, reply_to=TWO_WAY).startswith("200")
    assert until(lambda: wsrm.rows("SELECT count(*) FROM entry WHERE outcome = 'delivered'") == [(3,)])
    assert calls.numbers == [1, 2, 3]
    assert "delivery.lost" in caplog.text
    [(why,)] = wsrm.rows("SELECT reason FROM ledger WHERE event = 'failed'")
    assert "could not be stored" in why


@pytest.mark.spec("SEC-032", versions="all")
def test_what_was_left_alone_after_a_thread_had_it_keeps_its_attempts(make: Make) -> None:
    """Its host began to hang between the commit that gave it a thread and the post: nothing was sent."""
    calls = Calls(lambda: Outcome(error="its host is left alone for 0.02 s", left_alone=0.02), times=5)
    wsrm = make(calls, retry=[0.01])
    identifier = wsrm.create()
    for number in (1, 2, 3):
        wsrm.put(identifier, number)
    assert until(lambda: wsrm.rows("SELECT count(*) FROM entry WHERE outcome = 'delivered'") == [(3,)])
    assert calls.seen == [(1, 1, False), *[(2, 1, False)] * 6, (3, 1, False)]
    assert wsrm.rows(ENTRIES) == [(number, "delivered", 0) for number in (1, 2, 3)]
    assert wsrm.rows("SELECT event FROM ledger WHERE number = 2") == []
    assert wsrm.rows("SELECT value FROM counter WHERE name = 'failed'") == []
