"""The inbox on real databases: work and mark are one, whatever the connection."""

from __future__ import annotations

import signal
import sqlite3
import subprocess
import sys
import threading
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from typing import Any

import psycopg
import pytest
import sqlalchemy
from psycopg.rows import dict_row
from sqlalchemy.orm import scoped_session, sessionmaker
from sqlalchemy.pool import NullPool

from tests.support.databases import KINDS, Orders, do, orders_by, postgres_orders, sqlalchemy_of, sqlite_orders, work
from wsrm_mq.errors import InboxError
from wsrm_mq.inbox import forget, once
from wsrm_mq.store.sqlite import schema

ROOT = Path(__file__).parents[1]


def environ(number: int = 1, sequence: str = "urn:uuid:s", replay: str = "") -> dict[str, Any]:
    return {"wsrm.sequence_id": sequence, "wsrm.message_number": number, "wsrm.replay_id": replay}


# ---- databases


@pytest.fixture
def sqlite(tmp_path: Path) -> Orders:
    return sqlite_orders(tmp_path / "orders.sqlite")


@pytest.fixture(params=KINDS)
def orders(request: pytest.FixtureRequest, tmp_path: Path) -> Orders:
    return orders_by(request.param, request, tmp_path)


# ---- once


def test_a_message_is_new_once(orders: Orders) -> None:
    for is_new in (True, False, False):
        with closing(orders.connect()) as connection:
            mark = once(connection, environ())
            assert mark.is_new is is_new
            assert bool(mark) is is_new
            if mark:
                work(connection)
            connection.commit()
    assert orders.effects() == [1]


def test_sequence_number_and_replay_id_each_make_another_message(orders: Orders) -> None:
    messages = [environ(1), environ(2), environ(1, sequence="urn:uuid:t"), environ(1, replay="plan-7")]
    with closing(orders.connect()) as connection:
        assert all([once(connection, message) for message in messages])
        connection.commit()
    with closing(orders.connect()) as connection:
        assert not any([once(connection, message) for message in messages])


def test_the_greatest_message_number_is_kept(orders: Orders) -> None:
    with closing(orders.connect()) as connection:
        assert once(connection, environ(2**63 - 1))
        assert not once(connection, environ(2**63 - 1))


def test_it_leaves_the_commit_to_the_application(orders: Orders) -> None:
    with closing(orders.connect()) as connection:
        assert once(connection, environ())
        work(connection)
        assert orders.effects() == []
        connection.commit()
    assert orders.effects() == [1]
    assert orders.marks() == 1


def test_a_rollback_takes_work_and_mark(orders: Orders) -> None:
    with closing(orders.connect()) as connection:
        assert once(connection, environ())
        work(connection)
        connection.rollback()
    with closing(orders.connect()) as connection:
        assert once(connection, environ())
    assert orders.effects() == []


def test_making_the_table_does_not_commit_what_was_done_before(orders: Orders) -> None:
    with closing(orders.connect()) as connection:
        work(connection)
        assert once(connection, environ())
        connection.rollback()
    assert orders.effects() == []


def test_a_connection_that_closes_without_a_commit_leaves_no_mark(orders: Orders) -> None:
    with closing(orders.connect()) as connection:
        assert once(connection, environ())
        work(connection)
    with closing(orders.connect()) as connection:
        assert once(connection, environ())


@pytest.mark.parametrize("reply", ["Grüße <&>", "", b"\x00\xff", b""])
def test_a_redelivery_finds_the_reply_as_it_was_kept(orders: Orders, reply: str | bytes) -> None:
    with closing(orders.connect()) as connection:
        mark = once(connection, environ())
        mark.keep(reply)
        assert mark.reply == reply
        connection.commit()
    with closing(orders.connect()) as connection:
        assert once(connection, environ()).reply == reply


def test_a_redelivery_of_a_message_without_a_reply_finds_none(orders: Orders) -> None:
    with closing(orders.connect()) as connection:
        assert once(connection, environ()).reply is None
        mark = once(connection, environ())
        assert not mark
        assert mark.reply is None


def test_the_reply_of_a_redelivery_cannot_be_replaced(sqlite: Orders) -> None:
    with closing(sqlite.connect()) as connection:
        once(connection, environ()).keep("first")
        with pytest.raises(InboxError, match="redelivery"):
            once(connection, environ()).keep("second")
        assert once(connection, environ()).reply == "first"


def test_outside_ws_rm_everything_is_new_and_nothing_is_written(sqlite: Orders) -> None:
    with closing(sqlite.connect()) as connection:
        for _ in range(2):
            mark = once(connection, {"REQUEST_METHOD": "POST"})
            assert mark
            mark.keep("answer")
            assert mark.reply == "answer"
        assert not connection.in_transaction
        tables = connection.execute("SELECT name FROM sqlite_master").fetchall()
    assert tables == [("effects",)]


def test_marks_are_forgotten_by_their_age(orders: Orders) -> None:
    with closing(orders.connect()) as connection:
        assert forget(connection, timedelta()) == 0  # even before there is a table
        once(connection, environ(1))
        once(connection, environ(2))
        do(connection, "UPDATE wsrm_inbox SET marked_at = marked_at - 7200000 WHERE number = 1")
        assert forget(connection, timedelta(hours=1)) == 1
        assert once(connection, environ(1))
        assert not once(connection, environ(2))


@pytest.mark.spec("D-DEL-001", versions="all")
def test_a_mark_younger_than_the_age_to_forget_is_kept_however_many_days_that_is(sqlite: Orders) -> None:
    """A wiped mark is an effect twice."""
    with closing(sqlite.connect()) as connection:
        once(connection, environ(1))
        do(connection, "UPDATE wsrm_inbox SET marked_at = marked_at - 3600000")
        assert forget(connection, timedelta(days=30)) == 0
        assert not once(connection, environ(1))


# ---- two at once


def two_connections(orders: Orders) -> tuple[Any, Any]:
    if orders.where.startswith("host="):
        return orders.connect(), orders.connect()
    first = sqlite3.connect(orders.where, timeout=20, check_same_thread=False)
    return first, sqlite3.connect(orders.where, timeout=20, check_same_thread=False)


@pytest.mark.parametrize("end", ["commit", "rollback"])
@pytest.mark.parametrize("orders", ["sqlite3", "psycopg", "sqlalchemy psycopg"], indirect=True)
def test_the_second_of_two_waits_for_the_end_of_the_first(orders: Orders, end: str) -> None:
    with closing(orders.connect()) as connection:
        forget(connection, timedelta())  # the table is there
        connection.commit()
    first, second = two_connections(orders)
    assert once(first, environ())
    seen: list[tuple[bool, Any]] = []

    def redeliver() -> None:
        mark = once(second, environ())
        seen.append((mark.is_new, mark.reply))
        second.rollback()

    waiting = threading.Thread(target=redeliver)
    waiting.start()
    waiting.join(0.3)
    assert waiting.is_alive(), "the second did not wait"
    do(first, "UPDATE wsrm_inbox SET reply = NULL")
    getattr(first, end)()
    waiting.join(20)
    assert seen == [(end == "rollback", None)]
    first.close()
    second.close()


DUPLICATES = """
import sqlite3, sys
from contextlib import closing
import psycopg, sqlalchemy
from wsrm_mq.inbox import once
kind, where = sys.argv[1:]
engine = sqlalchemy.create_engine("postgresql+psycopg://", creator=lambda: psycopg.connect(where))
connect = {
    "sqlite3": lambda: sqlite3.connect(where, timeout=60),
    "psycopg": lambda: psycopg.connect(where),
    "sqlalchemy": engine.connect,
}[kind.split()[0]]
sys.stdin.readline()
for number in range(1, 26):
    with closing(connect()) as connection:
        if once(connection, {"wsrm.sequence_id": "s", "wsrm.message_number": number}):
            insert = f"INSERT INTO effects VALUES ({number})"
            connection.execute(sqlalchemy.text(insert) if kind.startswith("sqlalchemy") else insert)
        connection.commit()
"""


@pytest.mark.parametrize("orders", ["sqlite3", "psycopg", "sqlalchemy psycopg"], indirect=True)
def test_processes_that_deliver_the_same_messages_at_once_make_one_effect_each(
    orders: Orders, request: pytest.FixtureRequest
) -> None:
    """They begin together, with no table: making it is part of the race."""
    command = [sys.executable, "-c", DUPLICATES, request.node.callspec.params["orders"], orders.where]
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    processes = [subprocess.Popen(command, cwd=ROOT, **pipes) for _ in range(4)]
    errors = [process.communicate("go\n", timeout=90)[1] for process in processes]
    assert errors == [""] * 4
    assert orders.effects() == list(range(1, 26))


CRASH = """
import os, signal, sys
from wsrm_mq.inbox import once
kind, where, when = sys.argv[1:]
if kind == "psycopg":
    import psycopg
    connection = psycopg.connect(where)
else:
    import sqlite3
    connection = sqlite3.connect(where)
assert once(connection, {"wsrm.sequence_id": "urn:uuid:s", "wsrm.message_number": 1})
connection.execute("INSERT INTO effects VALUES (1)")
if when == "after":
    connection.commit()
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.parametrize(("when", "effects"), [("before", []), ("after", [1])])
@pytest.mark.parametrize("orders", ["sqlite3", "psycopg"], indirect=True)
def test_a_process_killed_around_its_commit_has_done_and_marked_both_or_neither(
    orders: Orders, when: str, effects: list[int]
) -> None:
    kind = "psycopg" if orders.where.startswith("host=") else "sqlite3"
    command = [sys.executable, "-c", CRASH, kind, orders.where, when]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, timeout=60, check=False)
    assert done.returncode == -signal.SIGKILL, done.stderr
    assert orders.effects() == effects
    with closing(orders.connect()) as connection:
        assert once(connection, environ()).is_new is (effects == [])


def test_a_mark_that_the_isolation_level_hides_is_an_error_and_no_second_effect(postgres: str) -> None:
    orders = sqlalchemy_of(postgres_orders(postgres), isolation_level="REPEATABLE READ")
    with closing(orders.connect()) as late, closing(orders.connect()) as early:
        do(late, "SELECT count(*) FROM effects")  # its snapshot is taken
        once(early, environ())
        early.commit()
        do(late, "SELECT count(*) FROM effects")
        with pytest.raises(InboxError, match="will be delivered again"):
            once(late, environ())
        late.rollback()
        assert not once(late, environ())


# ---- tables that forget


@pytest.mark.parametrize("orders", KINDS, indirect=True)
def test_a_temporary_table_of_the_inbox_s_name_is_refused_and_nothing_is_marked(orders: Orders) -> None:
    with closing(orders.connect()) as connection:
        assert once(connection, environ(1))
        connection.commit()
    with closing(orders.connect()) as connection:
        do(connection, "CREATE TEMPORARY TABLE WSRM_Inbox (sequence_id TEXT, number BIGINT, replay_id TEXT)")
        for call in (lambda: once(connection, environ(1)), lambda: forget(connection, timedelta())):
            with pytest.raises(InboxError, match=r"temporary: it forgets its marks.*Drop it"):
                call()
        connection.rollback()
    with closing(orders.connect()) as connection:
        assert not once(connection, environ(1))
    assert orders.marks() == 1


@pytest.mark.parametrize("orders", ["sqlite3", "psycopg"], indirect=True)
def test_a_table_without_its_key_in_which_every_message_would_be_new_is_an_error(orders: Orders) -> None:
    with closing(orders.connect()) as connection:
        do(
            connection,
            "CREATE TABLE wsrm_inbox (sequence_id TEXT, number BIGINT, replay_id TEXT, marked_at BIGINT)",
        )
        with pytest.raises((sqlite3.Error, psycopg.Error), match="ON CONFLICT"):
            once(connection, environ(1))


@pytest.mark.parametrize("orders", ["psycopg", "sqlalchemy psycopg"], indirect=True)
def test_an_unlogged_table_is_refused_since_a_crash_of_the_server_empties_it(orders: Orders) -> None:
    with closing(orders.connect()) as connection:
        once(connection, environ(1))
        do(connection, "ALTER TABLE wsrm_inbox SET UNLOGGED")
        with pytest.raises(InboxError, match="unlogged"):
            once(connection, environ(2))


# ---- connections


@pytest.mark.parametrize("has_table", [True, False])
def test_in_psycopg_s_pipeline_mode_a_message_is_new_once_too(postgres: str, has_table: bool) -> None:
    """There the number of rows that a statement wrote is unknown until the server has answered."""
    orders = postgres_orders(postgres)
    with closing(orders.connect()) as connection:
        if has_table:
            forget(connection, timedelta())
            connection.commit()
        for is_new in (True, False):
            with connection.pipeline():
                mark = once(connection, environ())
                assert mark.is_new is is_new
                if mark:
                    work(connection)
                    mark.keep("done")
                assert mark.reply == "done"
                connection.commit()
        with connection.pipeline():
            assert forget(connection, timedelta(seconds=-1)) == 1
            connection.commit()
    assert orders.effects() == [1]


DJANGO = """
import sys
from django.conf import settings
from django.db import connection, connections, transaction
database = {"ENGINE": "django.db.backends.sqlite3", "NAME": sys.argv[1]}
if sys.argv[1].startswith("host="):
    parts = dict(part.split("=") for part in sys.argv[1].split())
    names = {"host": "HOST", "user": "USER", "dbname": "NAME"}
    database = {"ENGINE": "django.db.backends.postgresql", **{names[key]: value for key, value in parts.items()}}
settings.configure(DATABASES={"default": database})
from wsrm_mq.errors import InboxError
from wsrm_mq.inbox import once
environ = {"wsrm.sequence_id": "s", "wsrm.message_number": 1}
def deliver(one, end=None):
    with transaction.atomic():
        mark = once(one, environ)
        if mark:
            one.cursor().execute("INSERT INTO effects VALUES (1)")
        if end:
            raise end
    return mark.is_new
try:
    once(connection, environ)
except InboxError as error:
    print("refused:", "transaction.atomic()" in str(error))
try:
    deliver(connection, ValueError())
except ValueError:
    print("rolled back")
print(deliver(connection), deliver(connection), deliver(connections["default"]))
"""


@pytest.mark.parametrize("orders", ["sqlite3", "psycopg"], indirect=True)
def test_the_connection_of_django_is_taken_inside_a_transaction_only(orders: Orders) -> None:
    command = [sys.executable, "-c", DJANGO, orders.where]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
    assert done.stdout.splitlines() == ["refused: True", "rolled back", "True False False"], done.stderr
    assert orders.effects() == [1]


def test_a_scoped_session_is_the_session_of_its_thread(sqlite: Orders) -> None:
    session = scoped_session(sessionmaker(bind=sqlalchemy.create_engine(f"sqlite:///{sqlite.where}")))
    assert once(session, environ())
    session.commit()
    assert not once(session, environ())
    session.remove()


def test_it_works_with_sqlalchemy_transactions_that_begin_in_words(sqlite: Orders) -> None:
    """The documented recipe that gives SQLite real transactions: no isolation_level, BEGIN by an event."""
    engine = sqlalchemy.create_engine(f"sqlite:///{sqlite.where}", poolclass=NullPool)
    sqlalchemy.event.listen(engine, "connect", lambda dbapi, _: setattr(dbapi, "isolation_level", None))
    sqlalchemy.event.listen(engine, "begin", lambda connection: connection.exec_driver_sql("BEGIN"))
    with engine.connect() as connection:
        assert once(connection, environ())
        work(connection)
        connection.rollback()
        assert once(connection, environ())
        work(connection)
        connection.commit()
        assert not once(connection, environ())
    assert sqlite.effects() == [1]


def test_the_applications_own_row_types_do_no_harm(sqlite: Orders) -> None:
    with closing(sqlite.connect()) as connection:
        connection.row_factory = lambda cursor, row: {"row": row}
        connection.text_factory = bytes
        once(connection, environ()).keep("text")
        assert once(connection, environ()).reply == "text"


def test_the_applications_own_row_types_do_no_harm_in_psycopg(postgres: str) -> None:
    with closing(psycopg.connect(postgres_orders(postgres).where, row_factory=dict_row)) as connection:
        once(connection, environ()).keep("text")
        assert once(connection, environ()).reply == "text"


def test_a_connection_that_commits_by_itself_is_refused(sqlite: Orders) -> None:
    with closing(sqlite3.connect(sqlite.where, isolation_level=None)) as connection:
        with pytest.raises(InboxError, match="BEGIN IMMEDIATE"):
            once(connection, environ())
        connection.execute("BEGIN IMMEDIATE")
        assert once(connection, environ())
        connection.execute("ROLLBACK")
    autocommitting = sqlalchemy_of(sqlite, isolation_level="AUTOCOMMIT")
    refused = pytest.raises(InboxError, match="commits each statement")
    with closing(autocommitting.connect()) as connection, refused:
        once(connection, environ())
    with closing(sqlite.connect()) as connection:
        assert once(connection, environ()), "the refused ones left a mark"


if sys.version_info >= (3, 12):  # sqlite3 has this attribute since Python 3.12

    @pytest.mark.parametrize("autocommit", [True, False])
    def test_the_autocommit_attribute_of_sqlite3_is_heeded(sqlite: Orders, autocommit: bool) -> None:
        with closing(sqlite3.connect(sqlite.where, autocommit=autocommit)) as connection:  # type: ignore[call-overload]
            if autocommit:
                with pytest.raises(InboxError, match="autocommit=True"):
                    once(connection, environ())
                connection.execute("BEGIN")
            assert once(connection, environ())
            work(connection)
            connection.execute("ROLLBACK")
        assert sqlite.effects() == []


def test_a_psycopg_connection_that_commits_by_itself_is_refused_outside_a_transaction(postgres: str) -> None:
    orders = postgres_orders(postgres)
    with closing(psycopg.connect(orders.where, autocommit=True)) as connection:
        with pytest.raises(InboxError, match="transaction"):
            once(connection, environ())
        with connection.transaction():
            assert once(connection, environ())
            work(connection)
    assert orders.effects() == [1]
    autocommitting = sqlalchemy_of(orders, isolation_level="AUTOCOMMIT")
    with closing(autocommitting.connect()) as connection, pytest.raises(InboxError, match="AUTOCOMMIT"):
        once(connection, environ(2))
    assert orders.marks() == 1


def test_the_store_of_the_middleware_is_refused_as_a_place_for_application_data(tmp_path: Path) -> None:
    store = tmp_path / "wsrm.db"
    schema.ensure(store)
    for connect in (lambda: sqlite3.connect(store), sqlalchemy.create_engine(f"sqlite:///{store}").connect):
        with closing(connect()) as connection, pytest.raises(InboxError, match="not for application data"):
            once(connection, environ())


def test_anything_else_is_refused_with_what_could_be_given() -> None:
    with pytest.raises(InboxError, match=r"cannot use a builtins\.dict\..*sqlite3\.Connection.*run_sync"):
        once({}, environ())


def test_an_environ_that_the_middleware_did_not_make_is_refused(sqlite: Orders) -> None:
    wrong = pytest.raises(InboxError, match=r"wsrm\.message_number is '1'")
    with closing(sqlite.connect()) as connection, wrong:
        once(connection, {"wsrm.sequence_id": "s", "wsrm.message_number": "1"})


def test_a_user_who_may_not_make_the_table_is_told_so_by_the_database(postgres: str) -> None:
    orders = sqlalchemy_of(postgres_orders(postgres))
    with closing(orders.connect()) as connection:
        do(connection, "CREATE ROLE clerk")
        do(connection, "REVOKE CREATE ON SCHEMA public FROM PUBLIC")
        do(connection, "SET ROLE clerk")
        with pytest.raises(sqlalchemy.exc.ProgrammingError, match="permission denied"):
            once(connection, environ())
        connection.rollback()


def test_the_drivers_are_not_needed(sqlite: Orders) -> None:
    program = (
        "import sqlite3, sys\n"
        "sys.modules['psycopg'] = None\n"
        "from wsrm_mq.inbox import once\n"
        "db = sqlite3.connect(sys.argv[1])\n"
        "key = {'wsrm.sequence_id': 's', 'wsrm.message_number': 1}\n"
        "print(bool(once(db, key)), bool(once(db, key)), 'sqlalchemy' in sys.modules)"
    )
    command = [sys.executable, "-E", "-c", program, sqlite.where]  # begun anew, with nothing imported
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
    assert done.stdout.split() == ["True", "False", "False"], done.stderr
