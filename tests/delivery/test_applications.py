"""Several applications on one store: none is given what another one has acknowledged."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from tests.support.in_process import FACTORY, InProcess, taken, until
from wsrm_mq.cli import program
from wsrm_mq.cli.serve import serving
from wsrm_mq.config.loading import read
from wsrm_mq.errors import OtherApplication
from wsrm_mq.testing import Reply

Start = Callable[..., "Service"]


class Service(InProcess):
    """Notes what it is given; ``fails``: it takes nothing."""

    def __init__(self, directory: Path, path: str, fails: bool = False, **options: Any) -> None:
        self.got: list[tuple[str, int]] = []
        self.at = path

        def app(environ: dict[str, Any], start_response: Callable[..., Any]) -> Any:
            self.got.append((environ["PATH_INFO"], environ["wsrm.message_number"]))
            if fails:
                raise OSError("not now")
            return taken(start_response)

        super().__init__(directory, app, one_way=("urn:example:orders/put_order",), **options)

    def post(self, body: bytes, **more: str) -> tuple[str, bytes]:
        return super().post(body, **{"PATH_INFO": self.at, **more})


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    with ExitStack() as ends:

        def begun(path: str, **options: Any) -> Service:
            service = Service(tmp_path, path, **options)
            ends.callback(lambda: service.middleware.close(5))
            return service

        yield begun


def left_behind(start: Start, path: str, **options: Any) -> Service:
    """A service that acknowledged a message, could not deliver it, and ended."""
    service = start(path, fails=True, retry=(3_600,), **options)
    identifier = service.create()
    service.put(identifier, 1)
    assert until(
        lambda: (
            service.rows(
                f"SELECT failures FROM lane JOIN entry ON entry.lane = lane.id WHERE identifier = '{identifier}'"
            )
            == [(1,)]
        )
    )
    service.middleware.close()
    service.rows("UPDATE lane SET retry_from = NULL, retry_at = NULL")
    service.rows("UPDATE entry SET retry_from = NULL, retry_at = NULL")
    return service


def outcomes(service: Service) -> list[tuple[str | None]]:
    return service.rows("SELECT outcome FROM entry ORDER BY id")


@pytest.mark.parametrize(
    "names",
    [("bills:app", "orders:app"), (None, None), ("bills:app", None)],
    ids=["named", "nameless", "one of them named"],
)
def test_what_waits_for_one_application_is_not_run_by_another_on_other_paths(
    start: Start, names: tuple[str | None, str | None], quick_watch: float
) -> None:
    bills, orders = names
    first = left_behind(start, "/bills", paths=["/bills"], application=bills)
    other = start("/orders", paths=["/orders"], application=orders)
    other.put(other.create(), 1)
    assert until(lambda: other.got == [("/orders", 1)])
    other.middleware.engine.watch.look()
    assert not until(lambda: len(other.got) > 1, 5 * quick_watch)
    assert outcomes(first) == [(None,), ("delivered",)]
    again = start("/bills", paths=["/bills"], application=bills)
    again.middleware.engine.ask()
    assert until(lambda: again.got == [("/bills", 1)])
    assert until(lambda: outcomes(first) == [("delivered",), ("delivered",)])


def test_another_application_on_the_same_paths_is_refused_while_one_lives(start: Start) -> None:
    one = start("/orders", application="orders:app")
    with pytest.raises(OtherApplication, match="serves the application orders:app on the same paths") as refused:
        start("/orders", application="bills:app")
    assert "paths that do not overlap" in refused.value.hint
    with pytest.raises(OtherApplication):
        start("/orders")
    with pytest.raises(OtherApplication):
        start("/orders", application="bills:app", paths=["/orders/new"])
    assert one.put(one.create(), 1).startswith("200")
    start("/orders", application="orders:app")
    one.middleware.close()


def test_of_another_name_what_waits_stays_nothing_is_taken_and_status_says_so_until_it_is_renamed(
    start: Start, tmp_path: Path, quick_watch: float
) -> None:
    first = left_behind(start, "/orders", application="orders:app")
    renamed = start("/orders", application="shop.orders:app")
    status, _body = renamed.post(FACTORY.create_sequence())
    assert status.startswith("503")
    assert not until(lambda: renamed.got, 5 * quick_watch)

    def wsrm(*words: str) -> Any:
        return CliRunner().invoke(program, [*words, "--store", str(tmp_path / "store.db")])

    assert "Messages of /orders wait for orders:app, which no process serves" in wsrm("status").stdout
    assert wsrm("check").exit_code == 2
    [(identifier,)] = first.rows("SELECT identifier FROM lane")
    explained = wsrm("sequence", "explain", identifier).stdout
    assert explained.startswith("blocked: What /orders has is for the application orders:app, which no process that li")
    assert "wsrm-mq store application orders:app NEW --reason TEXT" in explained
    refused = wsrm("store", "application", "shop.orders:app", "x", "--reason", "r", "--yes")
    assert "stop it first" in refused.output
    done = wsrm("store", "application", "orders:app", "shop.orders:app", "--reason", "moved", "--actor", "ann", "--yes")
    assert done.exit_code == 0, done.output
    assert until(lambda: renamed.got == [("/orders", 1)])
    assert until(lambda: outcomes(first) == [("delivered",)])
    assert renamed.put(renamed.create(), 1).startswith("200")
    [(reason, actor)] = first.rows("SELECT reason, actor FROM ledger WHERE event = 'application_renamed'")
    assert (reason, actor) == ("orders:app is shop.orders:app: moved", "ann")
    assert "which no process serves" not in wsrm("status").stdout


def test_where_nothing_waits_a_new_name_takes_over_by_itself(start: Start) -> None:
    first = start("/orders", application="orders:app")
    identifier = first.create()
    first.put(identifier, 1)
    assert until(lambda: outcomes(first) == [("delivered",)])
    first.middleware.close()
    second = start("/orders", application="shop.orders:app")
    assert second.put(identifier, 2).startswith("200")
    assert until(lambda: second.got == [("/orders", 2)])


def test_what_was_stored_without_a_name_is_the_first_ones_that_has_one(start: Start) -> None:
    first = left_behind(start, "/orders")
    named = start("/orders", application="orders:app")
    named.middleware.engine.ask()
    assert until(lambda: named.got == [("/orders", 1)])
    assert first.rows("SELECT application FROM queue") == [("orders:app",)]


def test_many_messages_of_another_application_keep_nothing_from_running(start: Start) -> None:
    first = left_behind(start, "/bills", paths=["/bills"])
    columns = [name for (name,) in first.rows("SELECT name FROM pragma_table_info('lane') WHERE name <> 'id'")]
    listed = ", ".join(f'"{name}"' for name in columns)
    copied = listed.replace('"identifier"', "identifier || value")
    first.rows(
        f"INSERT INTO lane ({listed}) SELECT {copied} FROM lane,"
        " (WITH RECURSIVE n(value) AS (VALUES (1) UNION ALL SELECT value + 1 FROM n WHERE value < 300) SELECT * FROM n)"
    )
    left_behind(start, "/orders", paths=["/orders"])
    second = start("/orders", paths=["/orders"])
    second.middleware.engine.ask()
    assert until(lambda: second.got == [("/orders", 1)])


def test_serve_names_the_application_as_it_was_named_unless_it_is_told_otherwise() -> None:
    assert serving(read(None, {}, app="orders:app")).application == "orders:app"
    assert serving(read(None, {}, app="orders:app", application="shop")).application == "shop"


# names of queues


def test_a_path_cannot_name_the_dead_letters_of_another(start: Start) -> None:
    stranger = start("/orders#dead")
    stranger.put(stranger.create(), 1)
    assert until(lambda: stranger.got)
    stranger.middleware.close()
    service = start("/orders", fails=True, retry=[], on_poison="dead_letter")
    service.put(service.create(), 1)
    assert until(lambda: service.rows("SELECT count(*) FROM entry WHERE outcome = 'dead'") == [(1,)])
    assert service.rows("SELECT name, kind, parent FROM queue ORDER BY id") == [
        ("/orders%23dead", "app", None),
        ("/orders", "app", None),
        ("/orders#dead", "dead_letter", 2),
    ]
    assert service.rows("SELECT queue FROM entry WHERE outcome = 'dead'") == [(3,)]


def test_a_path_that_is_too_long_names_no_queue(start: Start) -> None:
    service = start("/orders")
    status, _body = service.post(FACTORY.create_sequence(), PATH_INFO="/" + "x" * 600)
    assert status.startswith("414")
    status, body = service.post(FACTORY.create_sequence(), PATH_INFO="/" + "x" * 500)
    assert Reply.parse(body).created is not None
    assert [len(name) for (name,) in service.rows("SELECT name FROM queue")] == [501]
