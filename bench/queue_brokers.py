"""RabbitMQ and PostgreSQL, each started with a directory of its own, on loopback, and stopped."""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple

from bench.dying import die_with_parent
from bench.queue_rivals import Leased, Server, System
from tests.support.programs import free_port

__all__ = ["BROKERS", "Rabbit", "absent", "is_installed", "rabbit"]

_START_SECONDS: Final = 60
_RABBIT: Final = Path("/usr/lib/rabbitmq/bin/rabbitmq-server")
_POSTGRES: Final = "/usr/lib/postgresql/*/bin"


class PostgresQueue:
    """A table of messages, leased with SKIP LOCKED and deleted when they are acknowledged."""

    def __init__(self, place: str) -> None:
        import psycopg

        self._db = psycopg.connect(place, autocommit=True, prepare_threshold=0)
        self._cursor = self._db.cursor(binary=True)
        self._listens = False

    def empty(self) -> None:
        self._cursor.execute("TRUNCATE message")

    def fill(self, bodies: Sequence[bytes]) -> None:
        self.put(bodies)

    def put(self, bodies: Sequence[bytes]) -> None:
        if len(bodies) == 1:
            self._cursor.execute("INSERT INTO message (body) VALUES (%s)", (bodies[0],))
        else:
            self._cursor.execute("INSERT INTO message (body) SELECT unnest(%s::bytea[])", (list(bodies),))

    def lease(self, count: int, wait: float) -> Sequence[Leased]:
        leased = self._ready(count)
        if leased or not wait:
            return leased
        if not self._listens:
            self._cursor.execute("LISTEN ready")
            self._listens = True
            if leased := self._ready(count):
                return leased
        for _ in self._db.notifies(timeout=wait, stop_after=1):
            pass
        return self._ready(count)

    def _ready(self, count: int) -> Sequence[Leased]:
        self._cursor.execute(
            "UPDATE message SET leased_until = now() + interval '30 s', deliveries = deliveries + 1 WHERE id IN ("
            "SELECT id FROM message WHERE leased_until IS NULL ORDER BY id LIMIT %s FOR UPDATE SKIP LOCKED) "
            "RETURNING body, id",
            (count,),
        )
        return self._cursor.fetchall()

    def ack(self, leased: Sequence[Leased]) -> None:
        self._cursor.execute("DELETE FROM message WHERE id = ANY(%s)", ([key for _, key in leased],))

    def close(self) -> None:
        process = Path(f"/proc/{self._db.info.backend_pid}")
        self._db.close()
        while process.exists():
            time.sleep(0.001)


_TABLE: Final = """
CREATE TABLE message (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, body bytea NOT NULL,
    leased_until timestamptz, deliveries int NOT NULL DEFAULT 0);
CREATE INDEX ready ON message (id) WHERE leased_until IS NULL;
CREATE FUNCTION tell() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN NOTIFY ready; RETURN NULL; END $$;
CREATE TRIGGER told AFTER INSERT ON message FOR EACH STATEMENT EXECUTE FUNCTION tell()
"""


@contextmanager
def _postgres(directory: Path) -> Iterator[Server]:
    import psycopg

    owner: dict[str, Any] = {}
    if os.getuid() == 0:  # it refuses to be run by root
        account = pwd.getpwnam("postgres")
        owner = {"user": account.pw_uid, "group": account.pw_gid, "extra_groups": []}
        directory.chmod(0o711)
    initdb, server = _postgres_programs()
    with tempfile.TemporaryDirectory(prefix="pg-", dir=directory) as made, tempfile.TemporaryDirectory() as sockets:
        for place in (made, sockets):
            os.chown(place, owner.get("user", -1), owner.get("group", -1))
        cluster = f"{made}/cluster"
        command = [initdb, "-D", cluster, "-U", "postgres", "-A", "trust", "-N", "-E", "UTF8", "--locale=C"]
        subprocess.run(command, cwd=made, capture_output=True, check=True, **owner)
        command = [server, "-D", cluster, "-k", sockets, "-c", "listen_addresses=", "-c", "fsync=on"]
        command += ["-c", "autovacuum=off"]  # its processes come and go, and each measurement has an emptied table
        where = f"host={sockets} user=postgres dbname=postgres"

        def answers() -> bool:
            try:
                with psycopg.connect(where) as db:
                    db.execute(_TABLE)
                return True
            except psycopg.OperationalError:
                return False

        with _started(command, signal.SIGINT, answers, cwd=made, **owner) as pid:
            yield Server(lambda: _emptied(PostgresQueue, where), lambda: tuple(_family(pid)))


def _postgres_programs() -> tuple[str | None, str | None]:
    places = os.pathsep.join([os.environ.get("PATH", ""), *map(str, Path("/").glob(_POSTGRES[1:]))])
    return shutil.which("initdb", path=places), shutil.which("postgres", path=places)


class RabbitQueue:
    """A durable queue on one channel: persistent messages, each put waits until all of it is confirmed."""

    queue: str = "quorum"

    def __init__(self, place: str) -> None:
        import pika

        self._arrived: deque[Leased] = deque()
        self._confirmed = self._published = 0
        self._opened = self._consumes = False
        self._failed: object = None
        self._properties = pika.BasicProperties(delivery_mode=2)
        parameters = pika.ConnectionParameters("127.0.0.1", int(place), heartbeat=0)
        self._connection = pika.SelectConnection(
            parameters, self._on_open, on_open_error_callback=self._on_error, on_close_callback=self._on_error
        )
        self._loop = self._connection.ioloop
        self._until(lambda: self._opened, _START_SECONDS)

    def empty(self) -> None:
        self._opened = False
        self._channel.queue_purge(self.queue, callback=self._on_ready)
        self._until(lambda: self._opened, _START_SECONDS)

    def fill(self, bodies: Sequence[bytes]) -> None:
        self.put(bodies)

    def put(self, bodies: Sequence[bytes]) -> None:
        for body in bodies:
            self._channel.basic_publish("", self.queue, body, self._properties)
        self._published += len(bodies)
        self._until(lambda: self._confirmed >= self._published, _START_SECONDS)

    def lease(self, count: int, wait: float) -> Sequence[Leased]:
        if not self._consumes:
            self._consumes = True
            self._channel.basic_qos(prefetch_count=count)
            self._channel.basic_consume(self.queue, self._on_message)
        if not self._arrived:
            self._until(lambda: bool(self._arrived), wait)
        return [self._arrived.popleft() for _ in range(min(count, len(self._arrived)))]

    def ack(self, leased: Sequence[Leased]) -> None:
        self._channel.basic_ack(leased[-1][1], multiple=True)

    def close(self) -> None:
        self._connection.close()
        self._until(lambda: self._connection.is_closed, 5)

    def _until(self, done: Callable[[], bool], seconds: float) -> None:
        """Do what there is to do on the connection until ``done`` says so, or the time is over."""
        end = time.monotonic() + seconds
        while not done() and (left := end - time.monotonic()) > 0:
            timer = self._loop.call_later(left, self._loop.stop)
            self._loop.start()
            self._loop.remove_timeout(timer)
            if self._failed and not self._connection.is_closed:
                raise RuntimeError(f"RabbitMQ: {self._failed}")

    def _on_open(self, connection: Any) -> None:
        connection.channel(on_open_callback=self._on_channel)

    def _on_error(self, _connection: Any, error: object) -> None:
        self._failed = error
        self._loop.stop()

    def _on_channel(self, channel: Any) -> None:
        self._channel = channel
        channel.confirm_delivery(self._on_confirm)
        channel.queue_declare(self.queue, durable=True, arguments={"x-queue-type": self.queue}, callback=self._on_ready)

    def _on_ready(self, _frame: object) -> None:
        self._opened = True
        self._loop.stop()

    def _on_confirm(self, frame: Any) -> None:
        if type(frame.method).__name__ != "Ack":
            raise RuntimeError(f"RabbitMQ did not take a message: {frame.method}")
        self._confirmed = frame.method.delivery_tag if frame.method.multiple else self._confirmed + 1
        self._loop.stop()

    def _on_message(self, _channel: object, method: Any, _properties: object, body: bytes) -> None:
        self._arrived.append((body, method.delivery_tag))
        self._loop.stop()


class ClassicRabbitQueue(RabbitQueue):
    queue = "classic"


class Rabbit(NamedTuple):
    """A broker: its ports, of AMQP and of its HTTP API, and its process."""

    port: int
    management: int
    pid: int


@contextmanager
def _rabbit(queue: type[RabbitQueue], directory: Path) -> Iterator[Server]:
    with rabbit(directory) as broker:
        yield Server(lambda: _emptied(queue, str(broker.port)), lambda: tuple(_family(broker.pid)))


@contextmanager
def rabbit(directory: Path, *, core: int | None = None) -> Iterator[Rabbit]:
    """RabbitMQ; with ``core`` on that one alone, and with its HTTP API."""
    import pika

    with tempfile.TemporaryDirectory(prefix="rabbit-", dir=directory) as made:
        port, names, nodes, management = (free_port() for _ in range(4))
        if core is not None:
            Path(made, "plugins").write_text("[rabbitmq_management].\n")
            Path(made, "rabbitmq.conf").write_text(
                f"management.tcp.ip = 127.0.0.1\nmanagement.tcp.port = {management}\n"
            )
        environment = {
            "PATH": os.environ["PATH"],
            "HOME": made,
            "RABBITMQ_NODENAME": f"bench-{port}@localhost",
            "RABBITMQ_NODE_IP_ADDRESS": "127.0.0.1",
            "RABBITMQ_NODE_PORT": str(port),
            "RABBITMQ_DIST_PORT": str(nodes),
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "-kernel inet_dist_use_interface {127,0,0,1}",
            "RABBITMQ_MNESIA_BASE": f"{made}/mnesia",
            "RABBITMQ_LOG_BASE": f"{made}/log",
            "RABBITMQ_PID_FILE": f"{made}/pid",
            "RABBITMQ_CONFIG_FILE": f"{made}/rabbitmq",
            "RABBITMQ_CONF_ENV_FILE": f"{made}/environment",
            "RABBITMQ_ENABLED_PLUGINS_FILE": f"{made}/plugins",
            "ERL_EPMD_ADDRESS": "127.0.0.1",
            "ERL_EPMD_PORT": str(names),
            "RUNNING_UNDER_SYSTEMD": "1",  # it stays the process that was started
        }

        def answers() -> bool:
            try:
                pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", port)).close()
                return True
            except (pika.exceptions.AMQPError, OSError):
                return False

        pinned = [] if core is None else ["taskset", "--cpu-list", str(core)]
        epmd = ["epmd", "-address", "127.0.0.1", "-port", str(names)]  # else the server leaves one behind
        with (
            _started(epmd, signal.SIGKILL, lambda: True, cwd=made),
            _started([*pinned, str(_RABBIT)], signal.SIGTERM, answers, cwd=made, env=environment) as pid,
        ):
            yield Rabbit(port, management, pid)


@contextmanager
def _started(command: Sequence[str | None], end: int, answers: Callable[[], bool], **how: Any) -> Iterator[int]:
    """A server that dies with this process, and is ended by the signal ``end``; its process id."""
    with (
        tempfile.TemporaryFile() as said,
        subprocess.Popen(command, stdout=said, stderr=said, preexec_fn=die_with_parent, **how) as process,
    ):
        try:
            deadline = time.monotonic() + _START_SECONDS
            while not answers():
                if process.poll() is not None or time.monotonic() > deadline:
                    said.seek(0)
                    raise RuntimeError(f"{command[0]} did not start:\n{said.read()[-4_000:].decode(errors='replace')}")
                time.sleep(0.1)
            yield process.pid
        finally:
            process.send_signal(end)
            try:
                process.wait(timeout=20)
            except subprocess.TimeoutExpired:
                process.kill()


def _emptied(queue: type[PostgresQueue] | type[RabbitQueue], place: str) -> str:
    with closing(queue(place)) as connection:
        connection.empty()
    return place


def _family(pid: int) -> Iterator[int]:
    """A process and all that come of it and stay."""
    yield pid
    for task in Path(f"/proc/{pid}/task").iterdir():
        for child in (task / "children").read_text().split():
            yield from _family(int(child))


BROKERS: Final = (
    System(
        *("PostgreSQL, SKIP LOCKED", "syncs each commit", "kept", _postgres, PostgresQueue),
        batch=(256, 256),
        waits=True,
    ),
    System(
        *("RabbitMQ, quorum queue", "syncs before it confirms", "kept", partial(_rabbit, RabbitQueue), RabbitQueue),
        batch=(300, 100),
        waits=True,
    ),
)


def is_installed() -> bool:
    """Whether there is a RabbitMQ."""
    return _RABBIT.exists()


def absent() -> dict[str, str]:
    """The brokers that are not installed, and how they are."""
    found: dict[str, str] = {}
    if not all(_postgres_programs()):
        found["PostgreSQL"] = "apt install postgresql"
    if not is_installed():
        found["RabbitMQ"] = "apt install rabbitmq-server"
    return found
