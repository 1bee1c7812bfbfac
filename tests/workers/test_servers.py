"""How servers of several processes begin, end and are replaced: nothing is lost, and nothing is run twice."""

from __future__ import annotations

import signal
import socket
import struct
import time
from collections.abc import Callable
from functools import partial

import pytest

from tests.crash.checker import problems
from tests.crash.witness import in_background, settled
from tests.support.fleet import Command, Fleet, gunicorn, until_dead, uwsgi
from tests.support.orders import OrderSender
from tests.support.orders_server import within
from tests.workers.conftest import Launch
from wsrm_mq.testing import HTTPWire

UWSGI = [pytest.param(uwsgi(lazy_apps=lazy), id="lazy-apps" if lazy else "master-loads") for lazy in (False, True)]
GUNICORN = [
    pytest.param(gunicorn(2, preload=True), id="preload"),
    pytest.param(gunicorn(2), id="each-loads", marks=pytest.mark.long),
]

ALL = [(name, each) for name, group in (("uwsgi", UWSGI), ("gunicorn", GUNICORN)) for each in group]

USUAL = ("uwsgi-master-loads", "gunicorn-preload")
"""Where processes are forked with the application in them, which is the harder case."""
named = [(f"{name}-{each.id}", each.values[0]) for name, each in ALL]
servers = pytest.mark.parametrize(
    "command",
    [pytest.param(command, id=id, marks=() if id in USUAL else pytest.mark.long) for id, command in named],
)


def holds_a_lock(fleet: Fleet, pid: int) -> bool:
    """Whether the system knows of a lock of this process on the store's file."""
    inode = str(fleet.store.stat().st_ino)
    with open("/proc/locks") as locks:
        return any(fields[4] == str(pid) and fields[5].endswith(f":{inode}") for fields in map(str.split, locks))


@pytest.mark.parametrize("command", UWSGI)
def test_each_worker_of_uwsgi_is_an_instance_with_locks_of_its_own(launch: Launch, command: Command) -> None:
    """SQLite goes by what it knows of its own process: after a fork that it was not told of, a worker would believe in
    its master's locks."""
    fleet = launch(command, instances=2)
    wires = [HTTPWire(fleet.port) for _ in range(2)]
    source = OrderSender(fleet)
    for number in range(1, 41):
        source.send_until_acknowledged(number)
        source.disconnect()
    for wire in wires:
        wire.close()
    assert settled(fleet, source.identifier, 40) == list(range(1, 41))
    workers = fleet.workers
    assert sorted(fleet.instances()) == sorted(workers)
    assert [holds_a_lock(fleet, pid) for pid in workers] == [True, True]


@servers
def test_what_a_killed_worker_ran_is_run_by_another_with_a_mark(launch: Launch, command: Command) -> None:
    fleet = launch(command, instances=2)
    source = OrderSender(fleet)
    assert source.send(1, "sleep=2").acked == [(1, 1)]
    assert within(10, lambda: fleet.calls(source.identifier), bool) == [(1, False)]
    [(busy,)] = fleet.rows("SELECT pid FROM calls")
    fleet.kill_worker(busy)
    assert until_dead(busy)
    source.send_until_acknowledged(2)
    assert settled(fleet, source.identifier, 2) == [1, 2]
    calls = fleet.calls(source.identifier)
    assert calls[:2] == [(1, False), (1, True)]
    assert [n for n, _ in calls] == [1, 1, 2]


def test_a_master_that_preloads_the_application_delivers_nothing(launch: Launch) -> None:
    """What a crash left is its workers' business: what it had open in a call would be in them too."""
    fleet = launch(gunicorn(2, preload=True), instances=3)
    sources = [OrderSender(fleet) for _ in range(3)]
    for source in sources:
        for number, wish in ((1, "sleep=5"), (2, "")):
            source.send(number, wish)
    assert all(within(10, lambda s=source: fleet.calls(s.identifier), bool) for source in sources)  # type: ignore[misc]
    fleet.kill()
    fleet.start(3)
    assert [settled(fleet, source.identifier, 2) for source in sources] == [[1, 2]] * 3
    called_in = {pid for (pid,) in fleet.rows("SELECT pid FROM calls")}
    assert fleet.pid not in called_in
    assert called_in & set(fleet.workers)


@servers
def test_sigterm_lets_what_runs_end_and_leaves_nothing_to_recover(launch: Launch, command: Command) -> None:
    fleet = launch(command, instances=2)
    source = OrderSender(fleet)
    for number in (1, 2, 3):
        source.send(number, "sleep=2.5" if number == 1 else "")
    assert within(10, lambda: fleet.calls(source.identifier), bool) == [(1, False)]
    source.disconnect()
    time.sleep(0.5)  # to uWSGI a connection that is kept is a request, and a worker that is busy ends without ado
    fleet.stop()
    assert fleet.effects(source.identifier)[:1] == [1], "it was cut off"
    assert fleet.instances() == []
    assert fleet.stored.rows("select owner from lane") == [(None,)]
    fleet.start()
    assert settled(fleet, source.identifier, 3) == [1, 2, 3]
    assert fleet.calls(source.identifier) == [(1, False), (2, False), (3, False)]


@pytest.mark.parametrize("command", GUNICORN)
def test_a_rolling_restart_under_load_calls_nothing_twice(launch: Launch, command: Command) -> None:
    fleet = launch(command, instances=2, work=0.005)
    source = OrderSender(fleet)
    last = 150

    def send() -> None:
        for number in range(1, last + 1):
            source.send_until_acknowledged(number)

    sending = in_background(send)
    for _ in range(2):
        before = fleet.workers
        fleet.tell(signal.SIGHUP)
        assert within(40, lambda old=before: fleet.is_complete(2) and not set(old) & set(fleet.workers), bool)
    sending.join(60)
    assert not sending.is_alive()
    effects = settled(fleet, source.identifier, last)
    calls = fleet.calls(source.identifier)
    assert problems(source.acknowledged, effects, calls) == []
    assert calls == [(n, False) for n in range(1, last + 1)]


def test_uwsgi_without_threads_is_refused_with_what_to_do(launch: Launch) -> None:
    def without_threads(port: int) -> list[str]:
        return [word for word in uwsgi()(port) if word not in ("--enable-threads", "--threads=4")]

    fleet = launch(without_threads)
    assert within(30, fleet.log.read_text, lambda text: "enable-threads = true" in text).count("ConfigurationError")


def test_an_operator_works_on_a_store_that_workers_write(launch: Launch) -> None:
    """Resume and skip from outside; every worker goes by them at once."""
    from click.testing import CliRunner

    from wsrm_mq.cli import program

    fleet = launch(gunicorn(2, preload=True), instances=2, retry=[0.05], on_poison="block")
    source = OrderSender(fleet)
    for number, wish in ((1, "fail=3"), (2, "fail=999"), (3, "")):
        source.send(number, wish)

    def blocked() -> object:
        return fleet.stored.sequence(source.identifier)["blocked"]

    def act(*words: str) -> None:
        why = ["--yes", "--actor=test", "--reason=test", "--store", str(fleet.store)]
        done = CliRunner().invoke(program, ["sequence", *words, *why])
        assert done.exit_code == 0, done.output

    assert within(10, blocked, bool)
    act("resume", source.identifier)
    assert settled(fleet, source.identifier, 1) == [1]
    assert within(10, blocked, bool)
    act("skip", source.identifier, "2")
    assert settled(fleet, source.identifier, 2) == [1, 3]


@pytest.mark.timed
@pytest.mark.scenario("Q-109")
@pytest.mark.timeout(300)
def test_eight_processes_that_write_never_find_the_store_locked_and_wait_little(
    launch: Launch, reach: Callable[[Fleet, int], dict[int, OrderSender]]
) -> None:
    processes, puts = 8, 100
    fleet = launch(gunicorn(processes, threads=2, preload=True), instances=processes)
    latencies: list[float] = []
    refused: list[bytes] = []

    def send(source: OrderSender) -> None:
        source.create()
        for number in range(1, puts + 1):
            begun = time.monotonic()
            answer = source.send(number)
            latencies.append(time.monotonic() - begun)
            if answer.status != 200:
                refused.append(answer.body)
            time.sleep(0.02)

    threads = [in_background(partial(send, source)) for source in reach(fleet, processes).values()]
    for thread in threads:
        thread.join(120)
    assert refused == []
    assert len(latencies) == processes * puts
    assert sorted(latencies)[int(len(latencies) * 0.99)] < 0.25
    assert "locked" not in fleet.log.read_text()


# connections


def connection_of(fleet: Fleet, identifier: str, number: int) -> str | None:
    [(connection,)] = fleet.stored.rows(
        "select m.connection from message m join entry e on e.message = m.id join lane s on s.id = e.lane"
        " where s.identifier = ? and e.number = ?",
        identifier,
        number,
    )
    return connection


def from_port(fleet: Fleet, port: int) -> socket.socket:
    """A connection from this port of ours; its end is a reset, so the port is free at once."""
    client = socket.socket()
    client.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    client.settimeout(20)
    client.bind(("127.0.0.1", port))
    client.connect(("127.0.0.1", fleet.port))
    return client


def test_a_port_that_another_client_has_now_is_another_connection(launch: Launch) -> None:
    fleet = launch(gunicorn(1, preload=True), instances=1)
    source = OrderSender(fleet)
    port = 0
    for number in (1, 2):
        with from_port(fleet, port) as client:
            port = client.getsockname()[1]
            client.sendall(source.request_put(number))
            assert client.recv(65536).startswith(b"HTTP/1.1 200")
    first, second = (connection_of(fleet, source.identifier, number) for number in (1, 2))
    assert first is not None
    assert second is not None
    assert first.startswith(f"127.0.0.1:{port}")
    assert second.startswith(f"127.0.0.1:{port}")
    assert first != second


@pytest.mark.timed
def test_a_connection_that_vanishes_while_its_request_waits_takes_nothing_with_it(launch: Launch) -> None:
    """The request waits for a gap. Its message stays, its place among those that wait comes free, its resend gets the
    reply; the operation ran once."""
    fleet = launch(gunicorn(1, threads=4, preload=True), instances=1, max_waiting=1, hold_wait=1.5)
    source = OrderSender(fleet)
    with from_port(fleet, 0) as client:
        client.sendall(source.request_echo(2, "two"))
        assert within(10, lambda: fleet.stored.received(source.identifier), bool) == [(2, 2)]
    time.sleep(1.7)
    begun = time.monotonic()
    with HTTPWire(fleet.port) as again:
        again.send(source.request_echo(2, "two"))
        time.sleep(0.3)
        source.send_until_acknowledged(1)
        answer = again.read()
    assert time.monotonic() - begun < 1.5, "there was no place to wait in"
    assert (answer.status, answer.text("echoResult")) == (200, "two")
    assert fleet.calls(source.identifier) == [(1, False), (2, False)]
