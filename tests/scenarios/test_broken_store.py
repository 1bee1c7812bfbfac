"""A store that is missing, read-only, damaged, of a newer version, on a full disk, or taken away from under a server.

Whatever it is: nothing acknowledged is lost, nothing is acknowledged that could be, and the operator is told what it
is and what to do next.
"""

from __future__ import annotations

import re
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final, NamedTuple

import pytest
from click.testing import CliRunner

from tests.conftest import Mount
from tests.support.disk import Disk
from tests.support.orders import Orders
from tests.support.orders_server import OrdersServer, within
from tests.support.policies import each_front
from tests.support.source import Source, good_exchange
from tests.support.stored import a_look_is_due
from wsrm_mq.cli import program
from wsrm_mq.store.sqlite.files import beside
from wsrm_mq.testing import HTTPAnswer
from wsrm_mq.versions import WSRM_1_0, WSRM_1_1, RMVersion

PAGE: Final = 4096
ROOM: Final = "size=24m"


@pytest.fixture
def server(tmp_path: Path, front: str) -> Iterator[OrdersServer]:
    """Not started: the test says where its store is."""
    server = OrdersServer(tmp_path, front, retry=[0.1])
    yield server
    server.kill()


def begun(server: OrdersServer, speak: Orders) -> tuple[Source, str]:
    """A running server that has delivered 1 and holds 3."""
    server.start()
    source = Source(server, speak)
    identifier = source.create()
    assert source.put(identifier, 1).reply.ack.ranges == ((1, 1),)
    assert source.put(identifier, 3).reply.ack.ranges == ((1, 1), (3, 3))
    assert source.delivered(identifier) == [1]
    return source, identifier


def goes_on(source: Source, identifier: str) -> None:
    """What was acknowledged is known, the gap can be filled, and each message is delivered once."""
    source.reconnect()
    assert source.ask(identifier).reply.ack.ranges == ((1, 1), (3, 3))
    assert source.put(identifier, 2).reply.ack.ranges == ((1, 3),)
    assert source.delivered(identifier) == [1, 2, 3]
    assert source.calls(identifier) == [1, 2, 3]
    good_exchange(source.server, source.speak)


def turned_away(answer: HTTPAnswer) -> None:
    """503: come again. No acknowledgement, no fault that would end the sequence, nothing about our files."""
    assert answer.status == 503, answer.body
    assert answer.fields["retry-after"].isdigit()
    assert b"Send again later" in answer.body
    assert b"Acknowledgement" not in answer.body
    assert b"store.db" not in answer.body


# at the start


class Broken(NamedTuple):
    """How a store is broken; what is said of it, and what to do."""

    spoil: Callable[[Path], None]
    what: str
    next_step: str


def truncated(store: Path) -> None:
    with store.open("r+b") as file:
        file.truncate(store.stat().st_size // 2 // PAGE * PAGE)


def written_over(offset: int, content: bytes) -> Callable[[Path], None]:
    def spoil(store: Path) -> None:
        with store.open("r+b") as file:
            file.seek(offset)
            file.write(content)

    return spoil


def root_of(table: str) -> Callable[[Path], None]:
    """The first page of a table or index, somewhere in the middle of the file, is overwritten."""

    def spoil(store: Path) -> None:
        db = sqlite3.connect(store)
        (page,) = db.execute("SELECT rootpage FROM sqlite_master WHERE name = ?", (table,)).fetchone()
        db.close()
        written_over((page - 1) * PAGE, b"\xa5" * PAGE)(store)

    return spoil


def of_a_newer_version(store: Path) -> None:
    with sqlite3.connect(store) as db:
        db.execute("UPDATE alembic_version SET version_num = '9999'")
    db.close()


def of_another_program(store: Path) -> None:
    store.unlink()
    with sqlite3.connect(store) as db:
        db.execute("CREATE TABLE aunt (name TEXT)")
    db.close()


def a_letter(store: Path) -> None:
    store.write_bytes(b"This is a letter to my aunt.\n" * 400)


BACKUP: Final = "restore the last backup"
BROKEN: Final[dict[str, Broken]] = {
    "another kind of file": Broken(a_letter, "file is not a database", BACKUP),
    "garbage as header": Broken(written_over(0, b"\xde\xad" * 50), "file is not a database", BACKUP),
    "truncated": Broken(truncated, "database disk image is malformed", BACKUP),
    "damaged first page": Broken(written_over(100, b"\xa5" * (PAGE - 100)), "database disk image is malformed", BACKUP),
    "newer version": Broken(of_a_newer_version, "has schema 9999, this version knows up to", "Install the version"),
    "another database": Broken(of_another_program, "not a wsrm_mq store", "Name another file"),
}

LOOKING: Final = (
    ("store", "info"),
    ("store", "verify"),
    ("sequence", "list"),
    ("sequence", "explain", "urn:uuid:nobody"),
    ("message", "list"),
    ("store", "migrate"),
)


def run(command: tuple[str, ...], store: Path) -> tuple[int, str]:
    """Exit status and what it said, of a command in this process."""
    result = CliRunner().invoke(program, [*command, "--store", str(store)], prog_name="wsrm-mq")
    return result.exit_code, result.output


def serve(store: Path, directory: Path) -> tuple[int, str]:
    """The same of ``wsrm-mq serve``, as a process of its own."""
    (directory / "shop.py").write_text("def app(environ, start_response):\n    return []\n")
    command = [sys.executable, "-m", "wsrm_mq", "serve", "shop:app", "--port", "0", "--store", str(store)]
    done = subprocess.run(command, cwd=directory, capture_output=True, text=True, timeout=60, check=False)
    return done.returncode, done.stdout + done.stderr


def is_told(status_and_words: tuple[int, str], store: Path, what: str, next_step: str) -> None:
    status, words = status_and_words
    assert status == 5, words
    assert str(store) in words
    assert what in words
    assert next_step in words
    assert "Traceback" not in words


@pytest.fixture(scope="module")
def used(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store that a server left in good order, for tests that need no server: copy it."""
    server = OrdersServer(tmp_path_factory.mktemp("used"))
    source, _identifier = begun(server, Orders())
    source.wire.close()
    server.stop()
    return server.store


@pytest.fixture
def copied(used: Path, tmp_path: Path) -> Path:
    (tmp_path / "shop").mkdir()
    shutil.copytree(beside(used), tmp_path / "shop" / "store.db.d")
    return Path(shutil.copy(used, tmp_path / "shop" / "store.db"))


@pytest.mark.parametrize("broken", BROKEN.values(), ids=BROKEN.keys())
def test_a_broken_store_is_refused_with_the_next_step_and_left_as_it_is(
    broken: Broken, copied: Path, tmp_path: Path
) -> None:
    broken.spoil(copied)
    left = copied.read_bytes()
    is_told(serve(copied, tmp_path), copied, broken.what, broken.next_step)
    for command in (*LOOKING, ("store", "init")):
        is_told(run(command, copied), copied, broken.what, broken.next_step)
    assert copied.read_bytes() == left


def test_damage_that_the_start_meets_ends_it(server: OrdersServer, copied: Path, tmp_path: Path) -> None:
    root_of("lane_discarding")(copied)
    is_told(serve(copied, tmp_path), copied, "database disk image is malformed", BACKUP)
    server.store = copied
    said = server.refusal()
    assert "database disk image is malformed" in said
    assert BACKUP in said
    assert not list(copied.with_name("store.db.d").glob("*.lock")), "it has left the instances"


def test_damage_in_the_middle_is_found_by_verify(copied: Path) -> None:
    root_of("sequence")(copied)
    status, words = run(("store", "verify"), copied)
    assert status == 1
    assert "the file is whole\tsequence" in words


@pytest.mark.parametrize("table", ["message", "sequence"])
def test_damage_that_is_not_met_at_the_start_turns_away_what_meets_it(
    table: str, server: OrdersServer, speak: Orders, tmp_path: Path
) -> None:
    source, identifier = begun(server, speak)
    server.stop()
    shutil.copy(server.store, tmp_path / "backup.db")
    root_of(table)(server.store)
    server.start()
    source.reconnect()
    for number in (2, 4, 2):
        turned_away(source.put(identifier, number))
    assert source.put_plain(7).status == 202, "the server lives"
    assert "restore the last backup" in server.log.read_text()
    server.stop()
    for log in tmp_path.glob("store.db-*"):
        log.unlink()
    shutil.copy(tmp_path / "backup.db", server.store)
    assert "is older than what was here before" in server.refusal()
    assert run(("store", "adopt", "--reason", "damaged", "--yes"), server.store)[0] == 0
    server.start()
    good_exchange(server, speak)
    source.wire.close()


def test_a_store_in_a_directory_that_is_not_there_is_refused(server: OrdersServer, tmp_path: Path) -> None:
    server.store = tmp_path / "missing" / "store.db"
    said = server.refusal()
    assert f"{server.store}: cannot be created: No such file or directory." in said
    next_step = f"Make the directory {server.store.parent} first."
    is_told(serve(server.store, tmp_path), server.store, "cannot be created", next_step)
    is_told(run(("store", "init"), server.store), server.store, "cannot be created", next_step)
    for command in LOOKING:
        is_told(
            run(command, server.store),
            server.store,
            "there is no such store",
            f"wsrm-mq store init --store {server.store}",
        )
    assert not server.store.parent.exists()


def test_a_link_that_leads_to_itself_is_refused(tmp_path: Path) -> None:
    loop = tmp_path / "store.db"
    loop.symlink_to(loop)
    is_told(run(("store", "init"), loop), loop, "unable to open", "Check the path")


def test_a_store_on_a_read_only_file_system_is_refused_and_goes_on_when_it_can_be_written(
    server: OrdersServer, speak: Orders, mount: Mount, tmp_path: Path
) -> None:
    """Root is stopped by no permission, but by this."""
    point = mount("-t", "tmpfs", "-o", ROOM, "tmpfs")
    server.store = point / "store.db"
    source, identifier = begun(server, speak)
    server.stop()
    subprocess.run(["mount", "-o", "remount,ro", point], check=True)
    left = server.store.read_bytes()

    what, next_step = "is on a read-only file system", "Mount that for writing"
    said = server.refusal()
    assert what in said
    assert next_step in said
    is_told(serve(server.store, tmp_path), server.store, what, next_step)
    for command in (("store", "verify"), ("sequence", "list"), ("message", "list")):
        status, words = run(command, server.store)
        assert status == 0, words
    for command in (("store", "migrate"), ("store", "init")):
        is_told(run(command, server.store), server.store, what, next_step)
    is_told(
        run(("store", "init"), point / "new.db"), point / "new.db", "cannot be created: Read-only", "Check the path"
    )
    assert server.store.read_bytes() == left

    copied = tmp_path / "copied.db"
    shutil.copy(server.store, copied)
    assert run(("store", "verify"), copied)[0] == 0, "the next step that was told"

    subprocess.run(["mount", "-o", "remount,rw", point], check=True)
    server.start()
    goes_on(source, identifier)
    source.wire.close()


def test_a_store_whose_log_was_left_on_a_read_only_file_system_can_be_looked_at(
    server: OrdersServer, speak: Orders, mount: Mount, tmp_path: Path
) -> None:
    """As a kernel leaves it that met an error of the disk: the server died, nothing can be written, and 3 am."""
    point = mount("-t", "tmpfs", "-o", ROOM, "tmpfs")
    server.store = point / "store.db"
    source, identifier = begun(server, speak)
    source.wire.close()
    server.kill()
    subprocess.run(["mount", "-o", "remount,ro", point], check=True)
    for command in (("store", "verify"), ("sequence", "list"), ("sequence", "explain", identifier)):
        status, words = run(command, server.store)
        assert status == 0, words
    assert "2" in words
    is_told(serve(server.store, tmp_path), server.store, "is on a read-only file system", "Mount that for writing")


# the disk is full


@each_front
@pytest.mark.parametrize(
    "rm", [pytest.param(WSRM_1_0, id="rm1.0", marks=pytest.mark.long), pytest.param(WSRM_1_1, id="rm1.1")]
)
@pytest.mark.scenario("Q-111")
@pytest.mark.spec("D-DUR-003", "SEC-031")
def test_a_full_disk_turns_messages_away_until_there_is_room_and_loses_none(
    server: OrdersServer, rm: RMVersion, mount: Mount, tmp_path: Path
) -> None:
    speak = Orders(rm)
    disk = Disk(mount("-t", "tmpfs", "-o", ROOM, "tmpfs"))
    server.store = disk.point / "store.db"
    source, identifier = begun(server, speak)
    running = source.create()
    source.put(running, 1, "gate=go")
    assert within(5, lambda: source.calls(running), lambda calls: calls == [1]) == [1]

    disk.fill()
    before = source.store.everything()
    for number in (2, 4, 5, 2):
        turned_away(source.put(identifier, number, "x" * 200_000))
    assert source.store.everything() == before
    assert source.delivered(identifier) == [1]

    server.open_gate("go")
    assert source.delivered(running) == [1], "what was done is written down: room is kept for it"
    assert source.store.outcomes(running) == {1: "delivered"}
    assert "Free disk space" in server.log.read_text()

    disk.make_room()
    filled = within(10, lambda: source.put(identifier, 2, "x" * 200_000), lambda answer: answer.status == 200)
    assert filled.reply.ack.ranges == ((1, 3),)
    assert source.delivered(identifier) == [1, 2, 3]
    server.kill()
    server.start()
    source.reconnect()
    assert source.ask(identifier).reply.ack.ranges == ((1, 3),)
    assert source.calls(identifier) == [1, 2, 3]
    good_exchange(server, speak)
    source.wire.close()


@pytest.mark.parametrize("end", [OrdersServer.stop, OrdersServer.kill], ids=["stopped", "killed"])
def test_a_server_that_ends_on_a_full_disk_starts_when_there_is_room_with_all_it_acknowledged(
    end: Callable[[OrdersServer], None], server: OrdersServer, speak: Orders, mount: Mount
) -> None:
    disk = Disk(mount("-t", "tmpfs", "-o", ROOM, "tmpfs"))
    server.store = disk.point / "store.db"
    source, identifier = begun(server, speak)
    disk.fill()
    for _ in range(3):
        turned_away(source.put(identifier, 2, "x" * 200_000))
    end(server)
    disk.make_room()
    server.start()
    goes_on(source, identifier)
    source.wire.close()


def test_a_server_that_finds_the_disk_full_says_so(
    server: OrdersServer, speak: Orders, mount: Mount, tmp_path: Path
) -> None:
    disk = Disk(mount("-t", "tmpfs", "-o", ROOM, "tmpfs"))
    server.store = disk.point / "store.db"
    source, identifier = begun(server, speak)
    server.stop()
    disk.fill()
    server.start()  # from the reserve, which another program takes then
    source.reconnect()
    turned_away(source.put(identifier, 2))
    server.stop()
    disk.fill()
    is_told(serve(server.store, tmp_path), server.store, "", "Free disk space")
    assert "Free disk space" in server.refusal()
    is_told(run(("store", "init"), disk.point / "new.db"), disk.point / "new.db", "", "Free disk space")
    disk.make_room()
    server.start()
    goes_on(source, identifier)
    source.wire.close()


# taken away while the server runs


def names(*suffixes: str) -> Callable[[Path], None]:
    def remove(store: Path) -> None:
        for suffix in suffixes:
            Path(f"{store}{suffix}").unlink()

    return remove


def replaced(store: Path) -> None:
    """By another store, as a careless restore of a backup does it."""
    copy = store.with_name("copy.db")
    db = sqlite3.connect(store)
    db.execute("VACUUM INTO ?", (str(copy),))
    db.close()
    copy.rename(store)


TAKEN: Final[dict[str, Callable[[Path], None]]] = {
    "the file": names(""),
    "the file and what is beside it": names("", "-wal", "-shm"),
    "the log": names("-wal"),
    "replaced": replaced,
}


ENDS: Final = {"stopped": OrdersServer.stop, "killed": OrdersServer.kill}
TAKEN_AND_ENDED: Final = [
    pytest.param(front, ENDS[end], take, id=f"{end}-{name}-{front}")
    for front, end in (("uvicorn", "killed"), ("waitress", "stopped"))
    for name, take in TAKEN.items()
]


def put_back(said: str) -> None:
    """Do as the operator was told."""
    told = re.search(r"Stop the service, then: (.*?)\. ?(Or|$)", said, re.MULTILINE)
    assert told, said
    subprocess.run(told[1], shell=True, check=True)


@pytest.mark.spec("D-DUR-003", versions=("1.1",))
@pytest.mark.parametrize(("front", "end", "take"), TAKEN_AND_ENDED, indirect=["front"], scope="session")
def test_a_store_taken_from_a_running_server_is_saved_and_nothing_is_acknowledged_any_more(
    take: Callable[[Path], None],
    end: Callable[[OrdersServer], None],
    server: OrdersServer,
    speak: Orders,
    tmp_path: Path,
) -> None:
    source, identifier = begun(server, speak)
    take(server.store)
    a_look_is_due()
    for number in (2, 4, 2):
        turned_away(source.put(identifier, number))
    log = within(10, server.log.read_text, lambda log: "All that was in it is in store.db.rescued" in log)
    assert f"{server.store}: was removed or replaced while it is open here" in log
    assert "All that was in it is in store.db.rescued" in log
    end(server)
    assert "store.not_written" not in server.log.read_text(), "it waited as long as it may for what matters to nobody"

    said = server.refusal()
    assert f"{server.store}: was removed or replaced while a service had it open" in said
    what = "was removed or replaced while a service had it open"
    is_told(serve(server.store, tmp_path), server.store, what, "store.db.rescued")
    is_told(run(("store", "init"), server.store), server.store, what, "store.db.rescued")
    put_back(said)
    assert run(("store", "verify"), server.store)[0] == 0
    assert server.store.stat().st_mode & 0o777 == 0o600
    server.start()
    goes_on(source, identifier)
    source.wire.close()


def test_a_store_taken_from_an_idle_server_is_saved_before_the_next_request(
    server: OrdersServer, speak: Orders, tmp_path: Path
) -> None:
    source, identifier = begun(server, speak)
    names("", "-wal", "-shm")(server.store)
    rescued = tmp_path / "store.db.rescued"
    assert within(10, rescued.exists, bool)
    server.kill()
    assert rescued.stat().st_mode & 0o777 == 0o600
    is_told(run(("store", "info"), server.store), server.store, "was removed or replaced", "store.db.rescued")
    put_back(server.refusal())
    server.start()
    goes_on(source, identifier)
    source.wire.close()


@each_front
def test_a_store_that_comes_back_as_it_was_is_used_again(server: OrdersServer, speak: Orders, tmp_path: Path) -> None:
    source, identifier = begun(server, speak)
    server.store.rename(tmp_path / "elsewhere.db")
    a_look_is_due()
    turned_away(source.put(identifier, 2))
    (tmp_path / "elsewhere.db").rename(server.store)
    goes_on(source, identifier)
    assert not (tmp_path / "store.db.rescued").exists()
    server.stop()
    server.start()
    good_exchange(server, speak)
    source.wire.close()


def test_a_store_taken_from_two_servers_is_saved_whole(server: OrdersServer, speak: Orders, tmp_path: Path) -> None:
    source, identifier = begun(server, speak)
    second = OrdersServer(tmp_path)
    second.start()
    try:
        with Source(second, speak) as other:
            names("", "-wal", "-shm")(server.store)
            a_look_is_due()
            for each in (source, other):
                turned_away(each.put(identifier, 2))
    finally:
        second.stop()
    server.kill()
    put_back(server.refusal())
    server.start()
    goes_on(source, identifier)
    source.wire.close()
