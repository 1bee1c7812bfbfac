"""Calls in the caller's own transaction: none without its work, no work without its call, each once and in order."""

from __future__ import annotations

import random
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg
import pytest
import sqlalchemy

from tests.source.conftest import Open, Source
from tests.source.partner import ACTION, THERE, Partner, envelope
from tests.source.test_processes import effects
from tests.source.test_zeep import WSDL
from tests.support.databases import KINDS, Orders, do, orders_by, sqlite_orders, work
from tests.support.orders_server import OrdersServer, within
from tests.support.processes import Python
from wsrm_mq.errors import OutboxError
from wsrm_mq.events.telling import Event
from wsrm_mq.source import ReliableClient
from wsrm_mq.testing import WSRM_1_0, WSRM_1_1, RMVersion

ROOT = Path(__file__).parents[2]
ON_SQLITE = pytest.mark.parametrize("orders", ["sqlite3"], indirect=True)
ON_EACH = pytest.mark.parametrize("orders", ["sqlite3", "psycopg"], indirect=True)


@pytest.fixture(params=[WSRM_1_1], ids=["rm1.1"])
def rm(request: pytest.FixtureRequest) -> RMVersion:
    """What waits in a database does not depend on the version, but for the test that says so."""
    version: RMVersion = request.param
    return version


@pytest.fixture(params=KINDS)
def orders(request: pytest.FixtureRequest, tmp_path: Path) -> Orders:
    return orders_by(request.param, request, tmp_path)


def enqueue(source: Source, connection: Any, what: object, to: str = THERE) -> str:
    return source.enqueue(connection, envelope(source.partner.speak, str(what)), to=to, action=ACTION)


def waiting(orders: Orders) -> int:
    with closing(orders.connect()) as connection:
        return int(do(connection, "SELECT count(*) FROM wsrm_outbox").fetchall()[0][0])


def moved(orders: Orders, source: Source) -> bool:
    """Whether all is out of the database, and acknowledged."""
    return source.partner.within(lambda: not waiting(orders), 20) and source.in_time(20)


@ON_SQLITE
def test_the_sequence_of_a_call_offers_one_for_replies_if_that_of_its_own_program_would(
    orders: Orders, open_source: Open, partner: Partner
) -> None:
    """WCF refuses one that offers none where there are operations with replies, and the relay knows of no operation."""
    program, relay = open_source(offers=True), open_source()
    with closing(orders.connect()) as connection:
        enqueue(program, connection, "one-way")
        connection.commit()
    relay.relay(orders.connect)
    assert moved(orders, relay)
    assert [b"Offer>" in body for body in partner.bodies if b"CreateSequence>" in body] == [True]


EARLIER = """\
CREATE TABLE wsrm_outbox (id INTEGER PRIMARY KEY AUTOINCREMENT, message_id VARCHAR(255) NOT NULL UNIQUE,
destination TEXT NOT NULL, action TEXT NOT NULL, rm VARCHAR(8) NOT NULL, soap VARCHAR(8) NOT NULL,
addressing VARCHAR(8) NOT NULL, content_type TEXT NOT NULL, wants_reply SMALLINT NOT NULL, envelope BLOB NOT NULL)"""


@ON_SQLITE
@pytest.mark.parametrize("offers", [False, True])
def test_a_table_that_an_earlier_release_has_made_takes_calls_and_gives_them(
    orders: Orders, open_source: Open, partner: Partner, offers: bool
) -> None:
    """It says of a call that it is replied to, and had no place for more."""
    program, relay = open_source(offers=offers), open_source()
    with closing(orders.connect()) as connection:
        do(connection, EARLIER)
        enqueue(program, connection, "one-way")
        connection.commit()
    relay.relay(orders.connect)
    assert moved(orders, relay)
    assert partner.texts() == ["one-way"]
    assert [b"Offer>" in body for body in partner.bodies if b"CreateSequence>" in body] == [offers]


def test_a_call_is_sent_if_the_work_of_its_transaction_was_committed_and_only_then(
    orders: Orders, source: Source
) -> None:
    with closing(orders.connect()) as connection:
        for n in range(6):
            work(connection, n)
            enqueue(source, connection, n)
            if n % 2:
                connection.rollback()
            else:
                connection.commit()
    assert (orders.effects(), source.waiting) == ([0, 2, 4], 0)
    source.relay(orders.connect)
    assert moved(orders, source)
    assert source.partner.texts() == ["0", "2", "4"]
    with closing(orders.connect()) as connection:
        work(connection, 6)
        enqueue(source, connection, 6)
        assert waiting(orders) == 0
    with closing(orders.connect()) as connection:
        work(connection, 8)
        enqueue(source, connection, 8)
        connection.commit()
    assert moved(orders, source)
    assert source.partner.texts() == ["0", "2", "4", "8"]
    assert orders.effects() == [0, 2, 4, 8]
    assert source.partner.within(lambda: source.rows("SELECT count(*) FROM dedupe") == [(0,)]), "it is forgotten last"


@pytest.mark.parametrize("rm", [WSRM_1_0, WSRM_1_1], indirect=True, ids=["rm1.0", "rm1.1"])
@ON_SQLITE
def test_a_call_is_sent_in_the_version_that_it_was_enqueued_in(
    orders: Orders, open_source: Open, partner: Partner
) -> None:
    with closing(orders.connect()) as connection, open_source() as source:
        known = enqueue(source, connection, "two seats")
        connection.commit()
    other = {"1.0": "1.1", "1.1": "1.0"}[partner.speak.rm.label]
    with open_source(rm=other, addressing=None) as source:
        source.relay(orders.connect)
        assert moved(orders, source)
    assert partner.texts() == ["two seats"]
    [received] = [one for one in partner.received if one.sequence is not None]
    assert (received.rm, received.message_id) == (partner.speak.rm, known)


@ON_EACH
def test_more_calls_than_a_turn_takes_keep_their_order_to_each_destination(orders: Orders, source: Source) -> None:
    places = [THERE, f"{THERE}/elsewhere"]
    with closing(orders.connect()) as connection:
        for n in range(250):
            enqueue(source, connection, n, places[n % 2])
        connection.commit()
    source.relay(orders.connect)
    assert moved(orders, source)
    expected = [str(n) for n in range(250)]
    sent = source.partner.texts()
    assert sorted(sent, key=int) == expected
    assert [n for n in sent if int(n) % 2] == expected[1::2]
    assert [n for n in sent if not int(n) % 2] == expected[::2]


@ON_EACH
def test_two_relays_of_one_store_move_each_call_once_and_in_order(
    orders: Orders, open_source: Open, partner: Partner
) -> None:
    first, second = open_source(), open_source()
    first.relay(orders.connect)
    second.relay(orders.connect)
    with closing(orders.connect()) as connection:
        for n in range(60):
            enqueue(first, connection, n)
            connection.commit()
    assert moved(orders, first)
    assert partner.texts() == [str(n) for n in range(60)]


@ON_EACH
def test_another_store_takes_nothing_of_a_database_and_says_whose_it_is(
    orders: Orders, open_source: Open, tmp_path: Path
) -> None:
    told: list[Event] = []
    source = open_source()
    source.relay(orders.connect)
    assert source.partner.within(lambda: has_owner(orders))
    with closing(orders.connect()) as connection:
        enqueue(source, connection, 1)
        connection.commit()
    assert moved(orders, source)
    source.close()
    with closing(orders.connect()) as connection:
        enqueue(open_source(), connection, 2)
        connection.commit()
    post: Any = source.partner.post
    other = Source(tmp_path / "other.db", post=post, on_event=told.append)
    with other:
        other.relay(orders.connect)
        assert source.partner.within(lambda: told)
        assert "DELETE FROM wsrm_relay" in told[0].detail
        assert (waiting(orders), other.waiting) == (1, 0)
        with closing(orders.connect()) as connection:
            do(connection, "DELETE FROM wsrm_relay")
            connection.commit()
        assert source.partner.within(lambda: not waiting(orders), 20)
        assert other.flush(20)
    assert source.partner.texts() == ["1", "2"]


def has_owner(orders: Orders) -> bool:
    with closing(orders.connect()) as connection:
        try:
            return bool(do(connection, "SELECT store FROM wsrm_relay").fetchall())
        except (sqlite3.OperationalError, psycopg.errors.UndefinedTable):
            return False


@ON_SQLITE
def test_a_database_that_is_away_is_told_of_and_moved_when_it_is_back(
    orders: Orders, open_source: Open, tmp_path: Path
) -> None:
    told: list[Event] = []
    source = open_source(on_event=told.append)
    with closing(orders.connect()) as connection:
        enqueue(source, connection, 1)
        connection.commit()
    place, elsewhere = Path(orders.where), tmp_path / "away"
    place.rename(elsewhere)
    source.relay(lambda: sqlite3.connect(f"file:{place}?mode=rw", uri=True))
    assert source.partner.within(lambda: told)
    assert (told[0].name, told[0].detail) == ("relay.waits", "unable to open database file")
    elsewhere.rename(place)
    assert moved(orders, source)
    assert source.partner.texts() == ["1"]


@pytest.mark.parametrize("orders", ["psycopg", "sqlalchemy psycopg"], indirect=True)
def test_a_relay_whose_connection_is_lost_opens_another(orders: Orders, open_source: Open) -> None:
    told: list[Event] = []
    source = open_source(on_event=told.append)
    source.relay(orders.connect)
    for n in range(3):
        with closing(orders.connect()) as connection:
            enqueue(source, connection, n)
            connection.commit()
        assert moved(orders, source)
        with closing(psycopg.connect(orders.where, autocommit=True)) as connection:
            others = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database()"
            assert connection.execute(f"{others} AND pid <> pg_backend_pid()").fetchall()
        assert source.partner.within(lambda: len(told) > n, 20)  # noqa: B023
    assert source.partner.texts() == ["0", "1", "2"]
    assert {one.name for one in told} == {"relay.waits"}


@ON_EACH
def test_a_second_call_of_one_messageid_is_refused_while_the_first_waits(orders: Orders, source: Source) -> None:
    speak = source.partner.speak
    named = speak.envelope(ACTION, "<p:put xmlns:p='urn:example:orders'>1</p:put>", message_id="urn:own:1", reply_to="")
    with closing(orders.connect()) as connection:
        assert source.enqueue(connection, named, to=THERE) == "urn:own:1"
        with pytest.raises(OutboxError, match="urn:own:1: a call of this MessageID waits"):
            source.enqueue(connection, named, to=THERE)


def test_what_could_not_be_one_with_the_work_is_refused(source: Source, tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "shop.db", isolation_level=None)) as connection:
        with pytest.raises(OutboxError, match=r"what enqueue\(\) writes and your work would not be one"):
            enqueue(source, connection, 1)
        connection.execute("CREATE TEMPORARY TABLE wsrm_outbox (message_id TEXT)")
        connection.execute("BEGIN")
        with pytest.raises(OutboxError, match="temporary: it forgets calls"):
            enqueue(source, connection, 1)
    with closing(sqlite3.connect(source.path)) as connection, pytest.raises(OutboxError, match="is the store of"):
        enqueue(source, connection, 1)


def test_operations_of_a_client_of_zeep_are_enqueued(tmp_path: Path, partner: Partner) -> None:
    orders = sqlite_orders(tmp_path / "orders.sqlite")
    options: dict[str, Any] = {"rm": partner.speak.rm.label, "source": {"post": partner.post}}
    with ReliableClient(str(WSDL), store=tmp_path / "outbox.db", **options) as client:
        with closing(orders.connect()) as connection:
            later = client.enqueue(connection)
            assert later.put_order(n=1, text="two seats").startswith("urn:uuid:")
            asked = later.echo(text="hello")
            connection.commit()
        client.source.relay(orders.connect)
        assert partner.within(lambda: len(partner.places) == 2)
        assert [one.body_name for one in partner.received if one.sequence is not None] == ["put_order", "echo"]
        assert client.replies(asked) is None


DJANGO = """
import sys
from pathlib import Path
from django.conf import settings
from django.db import connection, connections, transaction
where, store, url = sys.argv[1:]
database = {"ENGINE": "django.db.backends.sqlite3", "NAME": where}
if where.startswith("host="):
    parts = dict(part.split("=") for part in where.split())
    names = {"host": "HOST", "user": "USER", "dbname": "NAME"}
    database = {"ENGINE": "django.db.backends.postgresql", **{names[key]: value for key, value in parts.items()}}
settings.configure(DATABASES={"default": database})
from wsrm_mq.errors import OutboxError
from wsrm_mq.source import ReliableClient

def order(n, error=None):
    with transaction.atomic():
        connection.cursor().execute(f"INSERT INTO effects VALUES ({n})")
        client.enqueue(connection).put_once(n=n, text="x")
        if error:
            raise error

with ReliableClient(f"{url}?wsdl", store=store) as client:
    try:
        client.enqueue(connection).put_once(n=0, text="x")
    except OutboxError as error:
        print("refused:", "transaction.atomic()" in str(error))
    client.source.relay(lambda: connections["default"])
    order(1)
    try:
        order(2, ValueError())
    except ValueError:
        print("rolled back")
    order(3)
    while connection.cursor().execute("SELECT count(*) FROM wsrm_outbox").fetchone()[0]:
        pass
    print(client.source.flush(20))
"""


@pytest.fixture
def orders_server(tmp_path: Path) -> Iterator[OrdersServer]:
    server = OrdersServer(tmp_path)
    server.start()
    yield server
    server.stop()


@ON_EACH
def test_calls_are_enqueued_in_django_s_transactions_and_moved_by_its_connection(
    orders: Orders, orders_server: OrdersServer, tmp_path: Path
) -> None:
    command = [sys.executable, "-c", DJANGO, orders.where, str(tmp_path / "outbox.db"), orders_server.url]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
    assert done.stdout.splitlines() == ["refused: True", "rolled back", "True"], done.stderr
    assert within(20, lambda: effects(orders_server), lambda found: len(found) >= 2) == [1, 3]
    assert orders.effects() == [1, 3]


RELAY = """
import os, signal, sqlite3, sys
import psycopg
from wsrm_mq import outbox
from wsrm_mq.source import RMSource

where, store, dies = sys.argv[1:]
done = outbox.Taking.done

def dying(taking, calls):
    if dies == "after":
        done(taking, calls)
    os.kill(os.getpid(), signal.SIGKILL)

if dies:
    outbox.Taking.done = dying
source = RMSource(store)
source.relay(lambda: psycopg.connect(where) if where.startswith("host=") else sqlite3.connect(where, timeout=20))
print("ready", flush=True)
sys.stdin.readline()
"""
ENVELOPE = """
<s:Envelope xmlns:s="http://schemas.xmlsoap.org/soap/envelope/"><s:Body>
<o:put_once xmlns:o="urn:example:orders"><o:n>{}</o:n><o:text>x</o:text></o:put_once>
</s:Body></s:Envelope>
"""


def place_orders(orders: Orders, source: Source, server: OrdersServer, numbers: range) -> None:
    with closing(orders.connect()) as connection:
        for n in numbers:
            body = ENVELOPE.format(n).strip().encode()
            work(connection, n)
            source.enqueue(connection, body, to=server.url, action="urn:example:orders/put_once")
            connection.commit()


@ON_EACH
def test_a_relay_that_is_killed_beside_its_commit_moves_no_call_twice_and_loses_none(
    orders: Orders, orders_server: OrdersServer, tmp_path: Path, python: Python
) -> None:
    """It dies when its store has the calls and the database too, when they are deleted and known, and at random."""
    store = tmp_path / "outbox.db"
    with Source(tmp_path / "writer.db", addressing="1.0") as source:
        for life, dies in enumerate(("before", "after", "before", "")):
            place_orders(orders, source, orders_server, range(10 * life, 10 * life + 10))
            relay = python(RELAY, orders.where, store, dies)
            if dies:
                assert relay.wait(30) == -signal.SIGKILL, relay.communicate()
        assert within(30, lambda: waiting(orders), lambda left: not left) == 0
        for life in range(4, 8):
            place_orders(orders, source, orders_server, range(10 * life, 10 * life + 10))
            relay.stdout.readline()  # type: ignore[union-attr]
            with pytest.raises(subprocess.TimeoutExpired):
                relay.wait(random.uniform(0, 0.3))
            relay.kill()
            relay.wait()
            relay = python(RELAY, orders.where, store, "")
        found = within(60, lambda: effects(orders_server), lambda found: len(found) >= 80)
    assert found == list(range(80)) == orders.effects()
    assert waiting(orders) == 0
    with closing(sqlite3.connect(store)) as db:
        assert db.execute("SELECT count(*) FROM message WHERE action LIKE '%put_once'").fetchone() == (80,)


def test_a_database_that_may_not_make_the_table_says_which_statement_makes_it(source: Source) -> None:
    class Elsewhere(sqlalchemy.engine.default.DefaultDialect):
        name = "elsewhere"

    engine = sqlalchemy.create_engine("sqlite://")
    engine.dialect.name = "elsewhere"
    with engine.connect() as connection, pytest.raises(OutboxError, match=r"no table wsrm_outbox(?s:.*)AUTO_INCREMENT"):
        enqueue(source, connection, 1)
