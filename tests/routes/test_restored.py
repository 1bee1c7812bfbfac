"""A node whose store went back in time: what it puts anew is new, what it sends again is known."""

from __future__ import annotations

import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from tests.routes.net import Net, One, until
from tests.routes.test_hops import line, numbered
from wsrm_mq.errors import StoreUnconfirmed
from wsrm_mq.node import Node
from wsrm_mq.queue.adopt import adopt
from wsrm_mq.queue.ending import bury
from wsrm_mq.store.outside import run_once
from wsrm_mq.store.transaction import Transaction
from wsrm_mq.views import next_nodes


def keep(one: One, aside: Path, *, with_witness: bool) -> None:
    """Copy the store of a node that is down, or all that is beside it too."""
    aside.mkdir()
    for file in one.path.parent.iterdir():
        if file.name == one.path.name or (with_witness and file.name.startswith(f"{one.path.name}")):
            copy = shutil.copytree if file.is_dir() else shutil.copy
            copy(file, aside / file.name)


def put_back(one: One, aside: Path) -> None:
    for file in one.path.parent.glob(f"{one.path.name}*"):
        if (aside / file.name).exists() or file.name != f"{one.path.name}.d":
            shutil.rmtree(file) if file.is_dir() else file.unlink()
    for file in aside.iterdir():
        copy = shutil.copytree if file.is_dir() else shutil.copy
        copy(file, one.path.parent / file.name)


def test_what_is_redriven_at_once_leaves_no_sequence_open_that_all_that_follows_waits_for(net: Net) -> None:
    """Nothing has looked at the dead letters in between."""
    a, b = line(net, "ab")
    a.node.put("orders", b"0")
    assert until(lambda: b.bodies("orders") == [b"0"] and a.waiting() == 0)
    net.fate = lambda *_: "request lost"
    for body in (b"1", b"2"):
        a.node.put("orders", body)
    a.stop()
    waiting = a.rows("SELECT lane, e.id, number FROM entry e JOIN routed USING (message) WHERE outcome IS NULL")

    def give_up(tx: Transaction) -> None:
        for lane, position, number in waiting:
            bury(tx, tx.lane(lane), position, number, "store_adopted")

    with Node(a.path) as node:
        node.call(give_up)
        assert node.dead(f"send/hop/{b.url}").redrive() == 2
    net.fate = lambda *_: "through"
    a.start()
    assert until(lambda: b.bodies("orders") == [b"0", b"1", b"2"])


@pytest.mark.parametrize("is_noticed", [True, False])
def test_what_a_restored_node_puts_anew_arrives_though_its_positions_and_numbers_were_given_before(
    net: Net, tmp_path: Path, is_noticed: bool
) -> None:
    a, c = line(net, "ac")
    for body in numbered(3):
        a.node.put("orders", body)
    assert until(lambda: len(c.bodies("orders")) == 3 and a.waiting() == 0)
    a.stop()
    before = a.rows("SELECT max(id) FROM entry")
    keep(a, tmp_path / "aside", with_witness=not is_noticed)
    a.start()
    for body in numbered(10)[3:]:
        a.node.put("orders", body)
    assert until(lambda: len(c.bodies("orders")) == 10 and a.waiting() == 0)
    a.stop()
    put_back(a, tmp_path / "aside")
    assert a.rows("SELECT max(id) FROM entry") == before
    if is_noticed:
        with pytest.raises(StoreUnconfirmed):
            a.start()
        run_once(a.path, lambda tx: adopt(tx, actor="test", reason="restored"), unconfirmed=True)
    a.start()
    for body in (b"new", b"newer"):
        a.node.put("orders", body)
    assert until(lambda: c.bodies("orders")[10:] == [b"new", b"newer"])
    assert until(lambda: a.waiting() == 0)


def test_what_a_restored_node_sends_again_is_told_and_is_not_there_twice(net: Net, tmp_path: Path) -> None:
    a, b, c = line(net, "abc")
    c.stop()
    for body in numbered(5):
        a.node.put("orders", body)
    assert until(lambda: b.waiting() == 5)
    b.stop()
    keep(b, tmp_path / "aside", with_witness=False)
    b.start()
    c.start()
    assert until(lambda: c.bodies("orders") == numbered(5) and b.waiting() == 0)
    b.stop()
    put_back(b, tmp_path / "aside")
    run_once(b.path, lambda tx: adopt(tx, actor="test", reason="restored", deliver=True), unconfirmed=True)
    b.start()
    assert until(lambda: b.waiting() == 0)
    assert until(lambda: len(c.rows("SELECT 1 FROM ledger WHERE event = 'repeated'")) == 5)
    a.node.put("orders", b"5")
    assert until(lambda: c.bodies("orders") == numbered(6))


@pytest.mark.parametrize("names", ["ac", "abc"])
def test_a_next_node_that_went_back_in_time_unnoticed_is_told_of_and_holds_nothing(
    net: Net, tmp_path: Path, names: str
) -> None:
    """A copy of the whole directory takes the witness along."""
    a, restored, *_ = nodes = line(net, names)
    c = nodes[-1]
    for body in numbered(3):
        a.node.put("orders", body)
    assert until(lambda: len(c.bodies("orders")) == 3 and not any(one.waiting() for one in nodes))
    restored.stop()
    keep(restored, tmp_path / "aside", with_witness=True)
    restored.start()
    for body in numbered(7)[3:]:
        a.node.put("orders", body)
    assert until(lambda: len(c.bodies("orders")) == 7 and not any(one.waiting() for one in nodes))
    restored.stop()
    put_back(restored, tmp_path / "aside")
    restored.start()
    for body in (b"new", b"newer"):
        a.node.put("orders", body)
    had = numbered(3 if restored is c else 7)
    assert until(lambda: c.bodies("orders") == [*had, b"new", b"newer"])
    assert until(lambda: not any(one.waiting() for one in nodes))
    assert [one.dead() for one in nodes] == [[]] * len(nodes)
    ((told,),) = a.rows("SELECT reason FROM ledger WHERE event = 'forgotten_there'")
    assert told.startswith(f"{restored.url} had acknowledged 4-7 of ")
    with a.node.reader() as db:
        (found,) = next_nodes.next_nodes(db)
    assert next_nodes.needs_attention(found, a.clock(), is_sent=True)
    assert "It lacks 4-7 of " in next_nodes.told_of_node(found, a.clock(), is_sent=True)


def test_a_restored_node_whose_next_one_knows_more_of_the_sequence_goes_on_in_another(net: Net, tmp_path: Path) -> None:
    a, c = line(net, "ac")
    a.node.put("orders", b"0")
    assert until(lambda: a.waiting() == 0)
    net.fate = lambda sender, _receiver, _number: "answer lost" if sender == "a" else "through"
    a.node.put_many("orders", [b"1", b"2"])
    assert until(lambda: len(c.bodies("orders")) > 1)
    aside = tmp_path / "aside"
    aside.mkdir()
    with closing(sqlite3.connect(a.path)) as db, closing(sqlite3.connect(aside / a.path.name)) as copy:
        db.backup(copy)
    net.fate = lambda *_: "through"
    a.node.put_many("orders", [b"3", b"4"])
    assert until(lambda: c.bodies("orders") == numbered(5) and a.waiting() == 0)
    a.stop()
    put_back(a, aside)
    run_once(a.path, lambda tx: adopt(tx, actor="test", reason="restored", deliver=True), unconfirmed=True)
    a.start()
    a.node.put("orders", b"new")
    assert until(lambda: c.bodies("orders") == [*numbered(5), b"new"])
    assert until(lambda: a.waiting() == 0)
    assert (a.dead(), c.dead()) == ([], [])
