"""A claim is never lost: whatever goes wrong in a run, its sequence is run again, and nothing of it twice unmarked."""

from __future__ import annotations

import re
import sqlite3
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from tests.support.in_process import FACTORY, TWO_WAY, InProcess, taken, until
from wsrm_mq import replay
from wsrm_mq.cli import program
from wsrm_mq.delivery import dispatcher as dispatching
from wsrm_mq.delivery.completion import ThreadCompletion
from wsrm_mq.delivery.delivery import RUN_LENGTH
from wsrm_mq.delivery.watch import POLL_SECONDS
from wsrm_mq.errors import StoreUnavailable
from wsrm_mq.testing import Reply

Start = Callable[..., InProcess]
OWNED = "SELECT count(*) FROM lane WHERE owner IS NOT NULL"


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    started: list[InProcess] = []

    def begin(app: Any, **options: Any) -> InProcess:
        started.append(InProcess(tmp_path, app, **options))
        return started[-1]

    yield begin
    for service in started:
        service.middleware.close(5)


class Service:
    """Takes every message, and remembers what it was called for. ``behave`` may do something else first."""

    def __init__(self, behave: Callable[[dict[str, Any]], object] = lambda _environ: None) -> None:
        self.calls: list[tuple[str, int, bool]] = []
        self._behave = behave

    def __call__(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        environ["wsgi.input"].read()
        self.calls.append((environ["wsrm.sequence_id"], environ["wsrm.message_number"], environ["wsrm.redelivery"]))
        status = self._behave(environ)
        if isinstance(status, str):
            start_response(status, [])
            return []
        return taken(start_response)

    def numbers(self, identifier: str) -> list[int]:
        return [number for name, number, _ in self.calls if name == identifier]


@pytest.mark.invariant("I7")
def test_a_close_under_load_leaves_no_sequence_owned(start: Start) -> None:
    service = Service()
    wsrm = start(service)
    identifiers = [wsrm.create() for _ in range(8)]
    accepted = dict.fromkeys(identifiers, 0)

    def send(identifier: str) -> None:
        while wsrm.put(identifier, accepted[identifier] + 1).startswith("200"):
            accepted[identifier] += 1

    senders = [threading.Thread(target=send, args=(identifier,)) for identifier in identifiers]
    for _ in range(3):
        for sender in senders:
            sender.start()
        assert until(lambda: sum(accepted.values()) > 100)
        assert wsrm.middleware.close(10)
        for sender in senders:
            sender.join(10)
        assert wsrm.rows(OWNED) == [(0,)]
        wsrm.open()
        for identifier, last in accepted.items():
            assert until(lambda: len(service.numbers(identifier)) >= last)  # noqa: B023
            assert service.numbers(identifier)[:last] == list(range(1, last + 1))
            # What was committed and could not be answered any more counts too.
            accepted[identifier] = len(service.numbers(identifier))
        senders = [threading.Thread(target=send, args=(identifier,)) for identifier in identifiers]


def test_a_run_ahead_of_its_settlements_stops_where_the_sequence_is_held(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its own settlements say so, however rarely it looks at the row."""
    monkeypatch.setattr(dispatching, "LOOK_SECONDS", 60.0)

    def behave(environ: dict[str, Any]) -> None:
        if environ["wsrm.message_number"] == 3:
            replay.hold(wsrm.path, environ["wsrm.sequence_id"], actor="ada", reason="in the middle of a run")
        time.sleep(0.005)

    service = Service(behave)
    wsrm = start(service)
    identifier = wsrm.create()
    for number in (*range(2, 61), 1):
        wsrm.put(identifier, number)
    assert until(lambda: len(service.calls) >= 3)
    assert until(lambda: wsrm.rows(OWNED) == [(0,)])
    called = len(service.calls)
    assert called < 40, "what was ahead of the hold is called, not the rest of the run"
    (act,) = replay.resume(wsrm.path, identifier, actor="ada", reason="go on")
    assert act.result == called + 1
    assert until(lambda: len(service.calls) >= 60)
    assert service.numbers(identifier) == list(range(1, 61))


@pytest.mark.parametrize("act", [replay.hold, partial(replay.terminate, drain=False)])
def test_where_operations_are_slow_none_begins_once_the_sequence_is_stopped(
    start: Start, act: Callable[..., Any]
) -> None:
    def behave(environ: dict[str, Any]) -> None:
        if environ["wsrm.message_number"] == 3:
            act(wsrm.path, environ["wsrm.sequence_id"], actor="ada", reason="in the middle of a run")
        time.sleep(0.1)

    service = Service(behave)
    wsrm = start(service)
    identifier = wsrm.create()
    for number in (*range(2, 7), 1):
        wsrm.put(identifier, number)
    assert until(lambda: len(service.calls) >= 3)
    assert until(lambda: wsrm.rows(OWNED) == [(0,)])
    assert service.numbers(identifier) == [1, 2, 3]


def test_a_close_waits_for_the_operation_of_a_request(start: Start) -> None:
    begun, go_on = threading.Event(), threading.Event()

    def behave(_environ: dict[str, Any]) -> None:
        begun.set()
        go_on.wait(10)

    service = Service(behave)
    wsrm = start(service)
    identifier = wsrm.create()
    request = threading.Thread(target=wsrm.put, args=(identifier, 1), kwargs={"reply_to": TWO_WAY})
    request.start()
    assert begun.wait(5)
    assert not wsrm.middleware.close(0.2)
    go_on.set()
    request.join(5)
    assert wsrm.middleware.close(5)
    wsrm.open()
    assert wsrm.put(identifier, 2).startswith("200")
    assert until(lambda: len(service.calls) >= 2)
    assert until(lambda: wsrm.rows("SELECT count(*) FROM entry WHERE outcome = 'delivered'") == [(2,)])
    assert [redelivery for _, number, redelivery in service.calls[1:] if number == 1] in ([], [True])


def test_what_an_ended_instance_left_owned_is_run_by_the_next(start: Start) -> None:
    service = Service()
    wsrm = start(service)
    identifier = wsrm.create()
    wsrm.put(identifier, 2)
    wsrm.middleware.close(5)
    wsrm.rows("UPDATE lane SET owner = (SELECT id FROM instance)")
    wsrm.open()
    wsrm.put(identifier, 1)
    assert until(lambda: service.numbers(identifier) == [1, 2])


def exits(_environ: dict[str, Any]) -> None:
    raise SystemExit(3)


@pytest.mark.scenario("Q-054")
@pytest.mark.parametrize("mishap", [lambda _environ: "OK", exits], ids=["a status that is none", "SystemExit"])
@pytest.mark.parametrize("reply_to", ["none", TWO_WAY], ids=["one-way", "two-way"])
def test_whatever_the_application_does_is_a_failed_attempt(start: Start, mishap: Any, reply_to: str) -> None:
    service = Service(lambda environ: mishap(environ) if environ["wsrm.attempt"] == 1 else None)
    wsrm = start(service, retry=[0.01], hold_wait=5)
    identifier = wsrm.create()
    wsrm.put(identifier, 1, reply_to=reply_to)
    wsrm.put(identifier, 2)
    assert until(lambda: service.numbers(identifier) == [1, 1, 2])
    assert wsrm.rows("SELECT failures FROM entry WHERE number = 1") == [(1,)]


def test_a_run_that_cannot_read_the_store_is_taken_up_again(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    service = Service()
    wsrm = start(service)
    identifier = wsrm.create()
    failures = [StoreUnavailable("too many open files", "")]
    read = dispatching.deliverable

    def unreliable(*arguments: Any) -> Any:
        if failures:
            raise failures.pop()
        return read(*arguments)

    monkeypatch.setattr(dispatching, "deliverable", unreliable)
    for number in (2, 3, 1):
        wsrm.put(identifier, number)
    assert until(lambda: service.numbers(identifier) == [1, 2, 3])
    assert not failures
    assert until(lambda: wsrm.rows(OWNED) == [(0,)])


@pytest.mark.scenario("Q-038")
@pytest.mark.parametrize("held", [RUN_LENGTH - 1, RUN_LENGTH, RUN_LENGTH + 1, 2 * RUN_LENGTH + 1])
def test_a_replay_goes_on_at_the_next_number_where_what_was_read_at_once_ends(start: Start, held: int) -> None:
    service = Service()
    wsrm = start(service)
    identifier = wsrm.create()
    for number in range(2, held + 2):
        wsrm.put(identifier, number)
    wsrm.put(identifier, 1)
    assert until(lambda: len(service.calls) > held)
    assert service.numbers(identifier) == list(range(1, held + 2))
    assert until(lambda: wsrm.rows(OWNED) == [(0,)])
    assert len(service.calls) == held + 1


@pytest.mark.invariant("I3")
def test_a_run_whose_sequence_was_taken_from_it_soon_calls_nothing_more(
    start: Start, caplog: pytest.LogCaptureFixture
) -> None:
    """The owner that has it now calls the rest: what is called here too would be called twice."""

    def behave(environ: dict[str, Any]) -> None:
        if environ["wsrm.message_number"] == 2:
            wsrm.rows("UPDATE lane SET owner = 0, fence = fence + 1")
        elif environ["wsrm.message_number"] > 2:
            time.sleep(0.01)

    service = Service(behave)
    wsrm = start(service)
    identifier = wsrm.create()
    for number in range(2, 62):
        wsrm.put(identifier, number)
    wsrm.put(identifier, 1)
    assert until(lambda: "delivery.not_settled" in caplog.text)
    time.sleep(POLL_SECONDS + 0.3)
    assert len(service.calls) < 12, "a run is ahead of its settlements by 20 ms, two messages here"


@pytest.mark.scenario("Q-054")
def test_a_retry_comes_when_it_is_due_and_not_when_the_store_is_looked_at_next(start: Start) -> None:
    service = Service(lambda environ: "503 Not now" if environ["wsrm.attempt"] < 7 else None)
    wsrm = start(service, retry=[0.05] * 6)
    identifier = wsrm.create()
    wsrm.put(identifier, 1)
    assert until(lambda: len(service.calls) == 7, 3), "each retry would wait for a look, which comes once a second"


@pytest.mark.spec("D-DEL-002", versions=("1.1",))
def test_a_request_whose_message_went_to_the_dead_letters_is_answered_with_a_fault(start: Start) -> None:
    """Its sender waits for a reply that never comes: an acknowledgement alone would look like success."""
    wsrm = start(Service(lambda _environ: "503 Never"), retry=[], on_poison="dead_letter", hold_wait=5)
    identifier = wsrm.create()
    for _ in range(2):  # the request itself, and its resend
        status, content = wsrm.post(FACTORY.message(identifier, 1, reply_to=TWO_WAY))
        fault = Reply.parse(content).fault
        assert fault is not None, content
        assert "could not be delivered" in fault.reason
        assert status.startswith("500")
        assert Reply.parse(content).ack.ranges == ((1, 1),)


@pytest.mark.spec("H-008", versions=("1.1",))
@pytest.mark.invariant("I16")
def test_requests_behind_a_message_that_blocks_wait_for_nothing_and_leave_the_places_to_others(start: Start) -> None:
    go_on = threading.Event()
    service = Service(lambda environ: go_on.wait(10) if environ["wsrm.sequence_id"] == busy else "503 Never")
    busy = ""
    wsrm = start(service, retry=[], on_poison="block", hold_wait=30, max_waiting=1)
    stuck, busy = wsrm.create(), wsrm.create()
    wsrm.put(stuck, 1)
    assert until(lambda: wsrm.rows("SELECT count(blocked) FROM lane") == [(1,)])
    wsrm.put(busy, 1)
    results: list[str] = []
    behind = threading.Thread(target=lambda: results.append(wsrm.put(stuck, 2, reply_to=TWO_WAY)))
    behind.start()
    behind.join(5)
    assert results == ["202 Accepted"], "it has no place: the message it waits for is not going to be tried"
    waiting = threading.Thread(target=lambda: results.append(wsrm.put(busy, 2, reply_to=TWO_WAY)))
    waiting.start()
    waiting.join(0.5)
    assert waiting.is_alive(), "the place is there for one that has something to wait for"
    go_on.set()
    waiting.join(10)
    assert results[1].startswith("200")


@pytest.mark.scenario("Q-053")
def test_two_sequences_that_come_in_one_commit_run_beside_each_other(start: Start) -> None:
    go_on = threading.Event()
    service = Service(lambda environ: go_on.wait(10) if environ["wsrm.sequence_id"] == blocked else None)
    blocked = ""
    wsrm = start(service)
    blocked, other = wsrm.create(), wsrm.create()
    wsrm.put(other, 1)
    assert until(lambda: service.numbers(other) == [1])
    together = threading.Event()
    wsrm.middleware.engine.store.submit(lambda _tx: together.wait(5), lambda _result, _error: None)
    requests = [threading.Thread(target=wsrm.put, args=message) for message in ((blocked, 1), (other, 2))]
    for request in requests:
        request.start()
    threading.Event().wait(0.2)
    together.set()
    assert until(lambda: service.numbers(other) == [1, 2], 2)
    go_on.set()
    for request in requests:
        request.join(5)


@pytest.mark.invariant("I16")
def test_requests_behind_an_operation_that_blocks_do_not_take_all_threads(start: Start) -> None:
    begun, go_on = threading.Event(), threading.Event()

    def behave(_environ: dict[str, Any]) -> None:
        begun.set()
        go_on.wait(10)

    wsrm = start(Service(behave), max_waiting=2, hold_wait=8)
    identifier = wsrm.create()
    requests = [
        threading.Thread(target=wsrm.put, args=(identifier, number), kwargs={"reply_to": TWO_WAY})
        for number in range(1, 9)
    ]
    requests[0].start()
    assert begun.wait(5)
    for request in requests[1:]:
        request.start()
    # One runs its own message, two wait for it, the other five were answered.
    assert until(lambda: sum(request.is_alive() for request in requests) == 3, 3)
    go_on.set()
    for request in requests:
        request.join(10)


@pytest.mark.parametrize("headers", ["pass", "demote", "strip"])
def test_a_compressed_message_is_delivered_whatever_becomes_of_its_headers(start: Start, headers: str) -> None:
    service = Service()
    wsrm = start(service, headers=headers)
    identifier = wsrm.create()
    assert wsrm.put_compressed(identifier, 1).startswith("200")
    assert until(lambda: wsrm.rows("SELECT outcome, failures FROM entry") == [("delivered", 0)])


def test_a_close_ends_in_its_time_though_a_settlement_cannot_be_written(start: Start) -> None:
    begun, go_on = threading.Event(), threading.Event()

    def behave(_environ: dict[str, Any]) -> None:
        begun.set()
        go_on.wait(5)

    wsrm = start(Service(behave))
    identifier = wsrm.create()
    wsrm.put(identifier, 1)
    assert begun.wait(5)
    for suffix in ("", "-wal", "-shm"):
        wsrm.path.with_name(wsrm.path.name + suffix).unlink()
    go_on.set()
    closing = threading.Thread(target=wsrm.middleware.close, args=(2,))
    closing.start()
    closing.join(8)
    assert not closing.is_alive()


@pytest.mark.parametrize("assurance", ["exactly_once", "at_most_once", "at_least_once"])
def test_a_fault_that_a_one_way_message_was_answered_with_is_written_down(
    start: Start, caplog: pytest.LogCaptureFixture, assurance: str
) -> None:
    """It was taken, so it is not tried again; but its sender has had its answer, and does not read this one."""

    def app(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        environ["wsgi.input"].read()
        start_response("500 Internal Server Error", [("Content-Type", "application/soap+xml")])
        return [
            b'<s:Envelope xmlns:s="http://www.w3.org/2003/05/soap-envelope"><s:Body><s:Fault><s:Code>'
            b"<s:Value>s:Sender</s:Value></s:Code><s:Reason><s:Text>no such article</s:Text></s:Reason></s:Fault>"
            b"</s:Body></s:Envelope>"
        ]

    wsrm = start(app, assurance=assurance)
    wsrm.put(wsrm.create(), 1)
    settled = [("delivered", 0, 1, "answered_with_fault")]
    assert until(lambda: wsrm.rows("SELECT outcome, failures, deliveries, reason FROM entry") == settled)
    ((number, reason),) = wsrm.rows("SELECT number, reason FROM ledger WHERE event = 'answered_with_fault'")
    assert number == 1
    assert "no such article" in reason
    assert until(lambda: "delivery.answered_with_fault" in caplog.text)  # told behind the commit


@pytest.mark.parametrize("status", ["401 Unauthorized", "404 Not Found", "503 Service Unavailable"])
def test_a_one_way_message_that_is_answered_with_an_error_and_no_fault_was_not_taken(start: Start, status: str) -> None:
    service = Service(lambda environ: status if environ["wsrm.attempt"] == 1 else None)
    wsrm = start(service, retry=[0.01])
    identifier = wsrm.create()
    wsrm.put(identifier, 1)
    assert until(lambda: service.numbers(identifier) == [1, 1])


def test_what_is_run_at_most_once_is_not_run_again_when_a_late_number_fills_its_gap(start: Start) -> None:
    begun, go_on = threading.Event(), threading.Event()

    def behave(environ: dict[str, Any]) -> None:
        if environ["wsrm.message_number"] == 1:
            begun.set()
            go_on.wait(10)

    service = Service(behave)
    wsrm = start(service, assurance="at_most_once", ordered=False)
    identifier = wsrm.create()
    assert wsrm.put(identifier, 1).startswith("200")
    assert begun.wait(5)
    assert wsrm.put(identifier, 3).startswith("200")  # kept in memory for the run, which reads it from the store
    go_on.set()
    assert until(lambda: len(service.calls) == 2)
    assert until(lambda: wsrm.rows(OWNED) == [(0,)])
    assert wsrm.put(identifier, 2).startswith("200")
    assert until(lambda: len(service.calls) >= 3)
    assert until(lambda: wsrm.rows(OWNED) == [(0,)])
    assert service.numbers(identifier) == [1, 3, 2]


def test_what_a_sequence_was_granted_holds_though_the_configuration_has_changed(start: Start, tmp_path: Path) -> None:
    service = Service(lambda environ: None if environ["wsrm.redelivery"] else "503 Not now")
    wsrm = start(service, retry=(0.05,))
    identifier = wsrm.create()
    assert wsrm.middleware.close(5)
    wsrm = start(service, retry=(0.05,), assurance="at_most_once")
    assert wsrm.put(identifier, 1).startswith("200")
    assert until(lambda: len(service.calls) == 2), "a failed message of an exactly_once sequence is tried again"


def test_a_request_whose_turn_comes_after_a_close_runs_nothing(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    service = Service()
    wsrm = start(service)
    identifier = wsrm.create()
    waits, go_on = threading.Event(), threading.Event()
    wait = ThreadCompletion.wait

    def late(*arguments: Any) -> Any:
        waits.set()
        go_on.wait(10)
        return wait(*arguments)

    monkeypatch.setattr(ThreadCompletion, "wait", late)  # a thread that gets no turn for a while
    request = threading.Thread(target=wsrm.put, args=(identifier, 1), kwargs={"reply_to": TWO_WAY})
    request.start()
    assert waits.wait(5)
    assert wsrm.middleware.close(5)
    go_on.set()
    request.join(10)
    wsrm.open()
    assert until(lambda: wsrm.rows("SELECT count(*) FROM entry WHERE outcome = 'delivered'") == [(1,)])
    assert [redelivery for _, _, redelivery in service.calls] in ([False], [False, True])


def test_a_request_that_comes_while_the_process_ends_starts_nothing_anew(start: Start) -> None:
    begun, go_on = threading.Event(), threading.Event()

    def behave(_environ: dict[str, Any]) -> None:
        begun.set()
        go_on.wait(10)

    wsrm = start(Service(behave))
    assert wsrm.put(wsrm.create(), 1).startswith("200")
    assert begun.wait(5)
    end = threading.Thread(target=wsrm.middleware.engine.drain)
    end.start()
    assert until(lambda: not wsrm.middleware.engine.is_running)
    wsrm.post(FACTORY.create_sequence())
    go_on.set()
    end.join(10)
    assert wsrm.rows("SELECT count(*), count(ended_at) FROM instance") == [(1, 1)]
    assert wsrm.post(FACTORY.create_sequence())[0].startswith("503")


def test_what_runs_while_its_store_is_locked_is_said_to_run_for_as_long_as_it_does(start: Start) -> None:
    """The commit of the message before it waits for the lock, and the next one does not."""
    locked, goes_on = threading.Event(), threading.Event()
    began: list[float] = []

    def behave(environ: dict[str, Any]) -> None:
        if environ["wsrm.message_number"] == 2:
            lock.execute("BEGIN IMMEDIATE")
            locked.set()
        elif environ["wsrm.message_number"] == 3:
            began.append(time.time() * 1000)
            goes_on.wait(20)

    service = start(Service(behave))
    with closing(sqlite3.connect(service.path, isolation_level=None, check_same_thread=False)) as lock:
        identifier = service.create()
        for number in (4, 3, 2, 1):
            service.put(identifier, number)
        assert until(lambda: locked.is_set() and began)
        time.sleep(1.5)
        lock.execute("ROLLBACK")
    assert until(lambda: service.rows("SELECT cursor FROM lane WHERE running_since IS NOT NULL") == [(3,)])
    [(since,)] = service.rows("SELECT running_since FROM lane")
    said = CliRunner().invoke(program, ["sequence", "explain", identifier, "--store", str(service.path)]).output
    goes_on.set()
    assert abs(since - began[0]) < 500
    assert re.search(r"Number 3 \(.*\) has been running since .* UTC \([1-9] s\)", " ".join(said.split())), said
