"""Messages are put into queues: alone, together, in a transaction."""

from __future__ import annotations

import json
import signal
import subprocess
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

import wsrm_mq
from tests.node.conftest import Connect
from tests.support.in_process import until
from wsrm_mq.errors import (
    ConfigurationError,
    NotAllowed,
    QuotaExceeded,
    TransactionAlreadyStarted,
    TransactionNotStarted,
    UnknownQueue,
)
from wsrm_mq.node import Node
from wsrm_mq.node.confirmation import UNASKED

Program = Callable[[str], subprocess.Popen[str]]


def said(one: subprocess.Popen[str]) -> str:
    assert one.stdout is not None
    return one.stdout.readline().strip()


def drained(node: Node, queue: str, at_a_time: int = 100) -> list[bytes]:
    found: list[bytes] = []
    while batch := node.receive(queue, at_a_time):
        found += [one.body for one in batch]
        node.ack(batch)
    return found


@pytest.mark.scenario("Q-001")
def test_the_first_put_makes_the_queue_and_positions_rise(node: Node) -> None:
    assert node.put("orders", b"one") == 1
    assert node.put("orders", b"two") > 1
    assert node.keys() == ["orders"]


@pytest.mark.local("an option of a store that is opened here")
def test_a_node_that_makes_no_queues_says_how_to_declare_one(connect: Connect) -> None:
    with pytest.raises(UnknownQueue, match=r"node.declare\('orders'\)"):
        connect(auto_create=False).put("orders", b"one")


@pytest.mark.scenario("Q-002")
def test_what_was_put_comes_once_in_order_with_type_and_body(node: Node) -> None:
    bodies = [(f"type{n % 3}", json.dumps(["é", f"text {n}", n]).encode()) for n in range(1024)]
    for kind, body in bodies[:24]:
        node.put("orders", body, type=kind)
    for kind in ("type0", "type1", "type2"):
        node.put_many(f"by {kind}", [body for its, body in bodies if its == kind], type=kind)
    node.put_many("orders", [body for _kind, body in bodies[24:]], type="rest")
    found: list[tuple[str | None, bytes]] = []
    while batch := node.receive("orders", 100):
        found += [(one.type, one.body) for one in batch]
        node.ack(batch)
    assert found == bodies[:24] + [("rest", body) for _kind, body in bodies[24:]]
    assert drained(node, "by type1") == [body for kind, body in bodies if kind == "type1"]


@pytest.mark.scenario("Q-003")
def test_a_batch_tells_how_many_are_left(node: Node) -> None:
    node.put_many("orders", range(10))
    batch = node.receive("orders", 4)
    assert (len(batch), batch.remaining) == (4, 6)


@pytest.mark.scenario("Q-004")
def test_a_batch_is_bounded_by_bytes_and_a_large_message_comes_alone(node: Node) -> None:
    node.put_many("orders", [b"x" * 1024] * 3)
    assert len(node.receive("orders", 10, max_bytes=2048)) == 2
    node.put("large", b"x" * 5 * 1024)
    node.put("large", b"small")
    assert [len(one.body) for one in node.receive("large", 10, max_bytes=2048)] == [5 * 1024]


@pytest.mark.scenario("Q-005")
def test_asking_until_nothing_remains_gives_every_message_once(node: Node) -> None:
    node.put_many("orders", range(25))
    seen: list[int] = []
    remaining = 1
    while remaining:
        batch = node.receive("orders", 4)
        seen += [one.json() for one in batch]
        remaining = batch.remaining
    assert seen == list(range(25))


@pytest.mark.local("a store that is opened here")
def test_a_directory_has_its_store_in_it(tmp_path: Path) -> None:
    home = tmp_path / "queues"
    home.mkdir()
    with wsrm_mq.connect(home) as node:
        node.put("orders", b"one")
    with wsrm_mq.connect(home / "store.db") as node:
        assert node.keys() == ["orders"]


def test_several_requests_at_a_time_get_each_message_once(node: Node) -> None:
    node.put_many("orders", range(256))
    with ThreadPoolExecutor(8) as threads:
        batches = list(threads.map(lambda _request: node.receive("orders", 16), range(16)))
    assert sorted(one.json() for batch in batches for one in batch) == list(range(256))


@pytest.mark.scenario("Q-006")
def test_producers_and_consumers_in_processes_of_their_own_settle_each_message_once(
    node: Node, program: Program
) -> None:
    node.declare("orders")
    put = "for n in range(100): node.put_many('orders', [f'{sys.argv[0]}{os.getpid()} {n} {m}' for m in range(25)])"
    take = """
while True:
    batch = node.receive('orders', 30, wait=1.5)
    if not batch: break
    for at in range(0, len(batch), 10):
        node.ack(batch[at:at + 10])
        for one in batch[at:at + 10]: print(one.body.decode())
"""
    consumers = [program(take) for _ in range(3)]
    producers = [program(put) for _ in range(2)]
    assert [one.wait(60) for one in producers] == [0, 0]
    seen = [line for one in consumers for line in one.communicate(timeout=60)[0].splitlines()]
    assert len(seen) == len(set(seen)) == 5_000
    assert node.stats("orders").messages == 0


@pytest.mark.scenario("Q-007")
def test_queues_do_not_see_each_others_messages(node: Node) -> None:
    node.put("orders", b"one")
    node.put("returns", b"two")
    assert [one.body for one in node.receive("returns", 9)] == [b"two"]
    assert node.keys() == ["orders", "returns"]


@pytest.mark.scenario("Q-008")
def test_a_consumer_that_comes_later_finds_all_of_it(connect: Connect, program: Program) -> None:
    assert program("node.put_many('orders', range(100)); node.close()").wait(30) == 0
    assert len(drained(connect(), "orders")) == 100


@pytest.mark.scenario("Q-009")
@pytest.mark.scenario("Q-010")
def test_what_was_confirmed_survives_a_kill_and_of_a_batch_all_or_nothing_is_there(
    connect: Connect, program: Program
) -> None:
    one = program("for n in range(500): print(node.put('orders', n))\nwhile True: node.put_many('many', range(1000))")
    confirmed = [int(said(one)) for _ in range(500)]
    time.sleep(0.2)
    one.send_signal(signal.SIGKILL)
    one.wait()
    node = connect()
    assert [message.position for message in node.peek("orders", limit=1000)] == confirmed
    queues = node.keys()
    if "many" in queues:
        assert node.stats("many").messages % 1000 == 0


@pytest.mark.scenario("Q-011")
def test_a_transaction_is_seen_when_it_is_committed_and_not_before(node: Node, connect: Connect) -> None:
    other = connect()
    node.declare("orders")
    with node.transaction() as open_one:
        for n in range(3):
            assert node.put("orders", n) == 0
        assert other.peek("orders") == []
    assert [one.json() for one in other.peek("orders")] == [0, 1, 2]
    assert open_one.positions == [one.position for one in other.peek("orders")]


@pytest.mark.scenario("Q-012")
def test_what_is_rolled_back_or_dropped_never_appears(node: Node, program: Program) -> None:
    node.declare("orders")
    one = node.transaction()
    node.put("orders", b"one")
    one.__exit__(KeyError)
    node.begin()
    node.put("orders", b"two")
    node.rollback()
    other = program("node.begin(); node.put('orders', b'three'); print('put'); time.sleep(60)")
    assert said(other) == "put"
    other.send_signal(signal.SIGKILL)
    other.wait()
    assert node.peek("orders") == []


@pytest.mark.scenario("Q-013")
def test_a_second_begin_and_a_commit_without_one_are_refused(node: Node) -> None:
    node.begin()
    with pytest.raises(TransactionAlreadyStarted, match="rollback"):
        node.begin()
    node.commit()
    with pytest.raises(TransactionNotStarted, match="begin"):
        node.commit()


def test_what_is_settled_in_a_transaction_is_settled_with_what_is_put_in_it(node: Node) -> None:
    node.put("orders", b"one")
    (one,) = node.receive("orders")
    with node.transaction():
        one.ack()
        node.put("billed", b"one")
        assert node.stats("orders").leased == 1
    assert (node.stats("orders").messages, node.stats("billed").ready) == (0, 1)


@pytest.mark.scenario("Q-033")
@pytest.mark.parametrize("value", [None, True, 17, 1.5, "text ' é", [1, {"a": None}], {"id": "7"}])
def test_a_body_of_any_type_of_json_comes_back(node: Node, value: object) -> None:
    node.put("orders", json.dumps(value).encode(), content_type="application/json")
    node.put("orders", {"value": value})
    raw, made = node.receive("orders", 2)
    assert (raw.body, raw.json(), raw.content_type) == (json.dumps(value).encode(), value, "application/json")
    assert made.json() == {"value": value}


@pytest.mark.scenario("Q-033")
def test_xml_comes_back_byte_for_byte(node: Node) -> None:
    body = b'<?xml version="1.0"  encoding="ISO-8859-1"?>\r\n<a b = "\xe9"/>'
    node.put("orders", body)
    assert node.receive("orders")[0].body == body


def test_a_put_that_was_refused_and_is_never_asked_is_told(node: Node, caplog: pytest.LogCaptureFixture) -> None:
    node.declare("small", max_messages=1)
    node.put("small", 0)
    node.put("small", 1, wait=False)
    assert until(lambda: "put.refused queue=small count=1 error=" in caplog.text)
    assert "`max_messages` is 1. Have it consumed" in caplog.text
    asked = node.put("small", 2, wait=False)
    assert isinstance(asked.exception(), QuotaExceeded)
    del asked
    for n in range(2):
        node.put("small", n, wait=False)
    with suppress(QuotaExceeded):
        node.put("small", 3)
    assert caplog.text.count("put.refused") == 1, "those that follow are told together, once a minute"
    UNASKED.tell()
    assert "put.refused queue=small count=2" in caplog.text


def test_what_is_never_asked_is_told_when_its_program_ends_too(
    node: Node, program: Program, capfd: pytest.CaptureFixture[str]
) -> None:
    node.declare("small", max_messages=2)
    assert program("kept = [node.put('small', n, wait=False) for n in range(3)]").wait(30) == 0
    assert "put.refused queue=small count=1" in capfd.readouterr().err
    assert node.stats("small").ready == 2


def test_a_full_queue_refuses_without_a_trace_until_there_is_room(node: Node) -> None:
    node.declare("orders", max_messages=10)
    node.put_many("orders", range(10))
    with pytest.raises(QuotaExceeded, match=r"`max_messages` is 10\. Have it consumed"):
        node.put("orders", b"one more")
    assert node.stats("orders").messages == 10
    node.receive("orders")[0].ack()
    node.put("orders", b"one more")


def test_a_message_that_never_fits_is_refused_even_by_a_queue_that_waits(node: Node) -> None:
    node.declare("orders", max_bytes=10, overflow="block")
    with pytest.raises(QuotaExceeded, match="never fits"):
        node.put("orders", b"x" * 11)


def test_a_producer_waits_for_room_where_the_queue_says_so(node: Node) -> None:
    node.declare("orders", max_messages=1, overflow="block")
    node.put("orders", b"one")
    with pytest.raises(QuotaExceeded):
        node.put("orders", b"two", timeout=0.05)
    waits = threading.Thread(target=node.put, args=("orders", b"two"))
    waits.start()
    node.receive("orders")[0].ack()
    waits.join(10)
    assert [one.body for one in node.peek("orders")] == [b"two"]


@pytest.mark.scenario("Q-098")
def test_a_full_queue_drops_its_head_to_the_dead_letters_where_it_says_so(node: Node) -> None:
    node.declare("orders", max_messages=2, overflow="drop_head")
    node.put_many("orders", range(4))
    assert [one.json() for one in node.peek("orders")] == [2, 3]
    assert [(one.json(), one.reason) for one in node.dead("orders").peek()] == [(0, "quota"), (1, "quota")]
    node.receive("orders")[0].reject("bad")
    assert len(node.dead("orders").peek()) == 3


def test_a_message_of_the_same_id_is_the_same_message_for_a_while(node: Node) -> None:
    node.declare("orders", dedupe_window=0.2)
    first = node.put("orders", b"one", message_id="a")
    assert node.put("orders", b"one again", message_id="a") == first
    time.sleep(0.25)
    assert node.put("orders", b"another", message_id="a") > first


@pytest.mark.parametrize("options", [{"lese": 3}, {"max_messages": 0}, {"overflow": "drop"}, {"retry": [-1]}])
def test_a_queue_cannot_be_declared_with_what_is_no_option(node: Node, options: dict[str, object]) -> None:
    with pytest.raises(ConfigurationError):
        node.declare("orders", **options)
    assert node.keys() == []


@pytest.mark.parametrize("name", ["", "orders/", "a#dead", " a", "a\n"])
def test_a_name_that_could_be_mistaken_is_refused(node: Node, name: str) -> None:
    with pytest.raises(ConfigurationError, match="no name of a queue"):
        node.put(name, b"")


@pytest.mark.local("makes a queue of a service by a verb of the store")
def test_what_a_service_is_called_with_is_not_put_by_a_program(node: Node) -> None:
    node.call(lambda tx: tx.queue("/orders"))
    for act in (lambda: node.put("/orders", b""), lambda: node.receive("/orders"), lambda: node.declare("/orders")):
        with pytest.raises(NotAllowed):
            act()


@pytest.mark.parametrize(
    ("body", "options", "told"),
    [
        (b"", {"priority": "x"}, "`priority` is 'x'"),
        (b"", {"priority": 10}, "`priority` is 10"),
        (b"", {"ttl": float("nan")}, "`ttl` is nan"),
        (b"", {"delay": -5}, "`delay` is -5"),
        (b"", {"deliver_at": 1e30}, "`deliver_at` is 1e\\+30"),
        (b"", {"properties": [1]}, "a mapping of names to values"),
        (b"", {"properties": {"a": object()}}, "JSON cannot say these `properties`"),
        (b"", {"group": "g" * 1_001}, "`group` has 1001 characters"),
        ("\udc80", {}, "UTF-8 cannot say"),
        (object(), {}, "JSON cannot say it"),
        ({"amount": float("nan")}, {}, "JSON cannot say it"),
        (b"", {"properties": {"a": "\ud800"}}, "`properties` is a text that UTF-8 cannot say"),
        (b"", {"type": "\ud800"}, "`type` is a text that UTF-8 cannot say"),
        (b"", {"message_id": 5}, "`message_id` is 5; it is a text"),
        (b"", {"group": "\ud800"}, "`group` is a text that UTF-8 cannot say"),
        (b"", {"report_to": 5}, "`report_to` is 5; it is a text"),
        (b"", {"prio": 5}, "no option `prio`; it has type, message_id, .*, priority, "),
        (b"", {"topic": "db/add"}, "no option `topic`"),
        (b"", {"delay": 1, "deliver_at": 1e9}, "`delay` and `deliver_at` both"),
    ],
)
def test_what_cannot_be_put_is_refused_in_words_and_nothing_is_stored(
    node: Node, body: object, options: dict[str, Any], told: str
) -> None:
    node.declare("orders")
    with pytest.raises(ConfigurationError, match=told):
        node.put("orders", body, **options)
    assert node.stats("orders").messages == 0


@pytest.mark.parametrize("body", ["abc", b"abc"])
def test_one_body_is_not_taken_for_as_many_as_it_has_characters(node: Node, body: Any) -> None:
    node.declare("orders")
    with pytest.raises(ConfigurationError, match="one body, not several"):
        node.put_many("orders", body)
    assert node.stats("orders").messages == 0


@pytest.mark.parametrize("asked", [{"max": 0}, {"max": "x"}, {"lease": -1}, {"queue": []}])
def test_what_cannot_be_received_is_refused_in_words(node: Node, asked: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError):
        node.receive(**{"queue": "orders", **asked})


@pytest.mark.parametrize(
    "asked",
    [
        *({"max_backlog": 0}, {"max_backlog": "3"}, {"ack_batch": 0}, {"ack_batch": "x"}, {"ack_timeout": -1}),
        *({"ack_timeout": float("nan")}, {"lease": "x"}, {"queue": []}),
    ],
)
def test_what_cannot_be_subscribed_to_is_refused_in_words(node: Node, asked: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError, match=f"`{next(iter(asked))}`"):
        node.subscribe(**{"queue": "orders", **asked})


def test_a_consumer_without_a_thread_is_refused_in_words(node: Node) -> None:
    with pytest.raises(ConfigurationError, match="`threads` is 0"):
        node.consume("orders", print, threads=0)
