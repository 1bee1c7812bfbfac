"""A store whose parts are taken from under the processes that share it: what they acknowledged is all there when they
are killed, and from the moment they can know it they acknowledge nothing more."""

from __future__ import annotations

import re
import sqlite3
import subprocess
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from tests.conftest import Mount
from tests.support.orders import Orders
from tests.support.orders_server import OrdersServer, within
from tests.support.policies import each_front
from tests.support.source import Source
from tests.support.stored import Stored
from wsrm_mq.errors import StoreUnavailable
from wsrm_mq.store.sqlite.connection import connect_writer
from wsrm_mq.store.store import Store

ROUNDS = 20


class Party:
    """Servers on one store; each has a source of its own, and what that was told is acknowledged is kept."""

    def __init__(self, directory: Path, speak: Orders) -> None:
        self.directory = directory
        self.speak = speak
        self.servers: list[OrdersServer] = []
        self.sources: list[Source] = []
        self.acknowledged: list[tuple[str, int]] = []
        self._sequences: list[tuple[Source, str, Iterator[int]]] = []

    def join(self, front: str | None = None) -> None:
        """One more server. Raises ``AssertionError`` where it does not start."""
        server = OrdersServer(self.directory, front)
        server.start()
        self.servers.append(server)
        source = Source(server, self.speak)
        self.sources.append(source)
        answer = source.post(self.speak.create_sequence())
        if answer.status == 200 and answer.reply.created is not None:
            self._sequences.append((source, answer.reply.created.identifier, iter(range(1, 10_000))))

    def send(self, rounds: int = ROUNDS) -> None:
        """A message to each in turn, acknowledged or not."""
        for _ in range(rounds):
            for source, identifier, numbers in self._sequences:
                number = next(numbers)
                answer = source.put(identifier, number)
                if answer.status == 200 and any(a <= number <= b for a, b in answer.reply.ack.ranges):
                    self.acknowledged.append((identifier, number))

    def send_until_refused(self) -> None:
        """Until a round acknowledges nothing any more, and once again."""
        for _ in range(ROUNDS):
            before = len(self.acknowledged)
            self.send(1)
            if len(self.acknowledged) == before:
                break
        self.send(1)

    def kill(self) -> None:
        for server in self.servers:
            server.kill()
        for source in self.sources:
            source.wire.close()

    def lost(self) -> list[tuple[str, int]]:
        """What was acknowledged and is not in the store."""
        stored = Stored(self.directory / "store.db")
        received = {identifier: stored.received(identifier) for identifier, _number in self.acknowledged}
        return [
            (identifier, number)
            for identifier, number in self.acknowledged
            if not any(lower <= number <= upper for lower, upper in received[identifier])
        ]


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    store = Store(tmp_path / "store.db")
    store.open()
    yield store
    store.close()


@pytest.fixture
def party(tmp_path: Path, speak: Orders) -> Iterator[Party]:
    party = Party(tmp_path, speak)
    yield party
    party.kill()


def put_back(said: str) -> None:
    """Do as the operator was told, if he was told to put something back."""
    told = re.search(r"Stop the service, then: (.*?)\. ?(Or|$)", said, re.MULTILINE)
    if told:
        subprocess.run(told[1], shell=True, check=True)


def test_the_locks_file_is_removed_while_two_serve_and_a_third_starts(party: Party) -> None:
    """Each process locks the others in ``-shm``: with a new one of its own the third would write over their log."""
    for _ in range(2):
        party.join()
    party.send()
    Path(f"{party.servers[0].store}-shm").unlink()
    with pytest.raises(AssertionError, match=r"was removed or replaced while|with files that were removed"):
        party.join()
    party.send_until_refused()
    logs = party.servers[0].log.read_text()
    party.kill()
    assert "was removed or replaced while it is open here" in logs
    put_back(OrdersServer(party.directory).refusal())
    assert len(party.acknowledged) >= 2 * ROUNDS
    assert party.lost() == []


@each_front
def test_an_older_copy_written_into_the_running_store_is_noticed_and_nothing_more_is_acknowledged(
    party: Party, front: str
) -> None:
    """As SQLite's own ``.restore`` does it: a transaction like any other."""
    party.join(front)
    party.send(2)
    server = party.servers[0]
    copy = server.store.with_name("copy.db")
    overwrite(copy, server.store)
    party.send(10)
    overwrite(server.store, copy)
    before = len(party.acknowledged)
    party.send(3)
    assert len(party.acknowledged) == before, "acknowledged into a store that has forgotten others"
    log = server.log.read_text()
    assert "an older state of it, or another store, was written into it" in log
    assert f"wsrm-mq store adopt --store {server.store}" in log
    party.kill()
    assert "is older than what was here before" in OrdersServer(party.directory).refusal()


def test_an_idle_process_notices_an_older_copy_too(party: Party) -> None:
    party.join()
    server = party.servers[0]
    copy = server.store.with_name("copy.db")
    overwrite(copy, server.store)
    party.send(1)
    overwrite(server.store, copy)
    assert within(10, lambda: "store.went_back" in server.log.read_text(), bool)


def overwrite(target: Path, content: Path) -> None:
    with closing(sqlite3.connect(content, timeout=10)) as source, closing(sqlite3.connect(target, timeout=10)) as db:
        source.backup(db)


@pytest.mark.parametrize("part", ["", "-wal", "-shm", ".d"])
def test_a_part_of_a_store_that_is_mounted_by_itself_is_refused(party: Party, mount: Mount, part: str) -> None:
    """As ``docker run -v store.db:/data/store.db`` does it: each side has its own files beside it."""
    host = party.directory / "host"
    host.mkdir()
    store = Store(host / "store.db")
    store.open()
    inside = party.directory / "inside"
    inside.mkdir()
    (inside / "store.db").touch()
    target = inside / f"store.db{part}"
    target.mkdir() if part == ".d" else target.touch()
    probe = mount("-t", "tmpfs", "tmpfs")  # skips where nothing can be mounted
    assert probe.is_dir()
    subprocess.run(["mount", "--bind", f"{host}/store.db{part}", target], check=True)
    try:
        with pytest.raises(StoreUnavailable, match="is a mount of its own") as refused:
            Store(inside / "store.db").open()
        assert f"Mount the directory {inside} as a whole" in refused.value.hint
    finally:
        subprocess.run(["umount", "-l", target], check=True)
        store.close()


def test_who_wants_to_write_compares_what_is_there_with_what_the_others_have_open(store: Store) -> None:
    """Also before any of them has looked."""
    Path(f"{store.path}-shm").unlink()
    with pytest.raises(StoreUnavailable, match="a process has it open with files that were removed") as refused:
        connect_writer(store.path)
    assert store.presence is not None
    assert store.presence.name in refused.value.hint


def test_a_store_of_two_names_is_refused(tmp_path: Path) -> None:
    """Each name would have a log of its own."""
    first = Store(tmp_path / "one.db")
    first.open()
    first.close()
    (tmp_path / "two.db").hardlink_to(first.path)
    with pytest.raises(StoreUnavailable, match="has 2 names"):
        Store(tmp_path / "two.db").open()
