"""Queues that nodes offer to one another: by their scope, as far as a token allows."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import socket
import subprocess
import time
from pathlib import Path

import pytest

import wsrm_mq
from tests.routes.conftest import Founded
from tests.routes.enterprise import Place, secret
from tests.support.commands import Wsrm
from tests.support.queue_server import QueueServer
from wsrm_mq.errors import ConfigurationError, UnknownQueue
from wsrm_mq.node import Node
from wsrm_mq.server import tokens
from wsrm_mq.server.rights import check_grant

SITES = {"oslo": "north", "bergen": "north", "rome": "south"}
QUEUES = {
    "oslo": {"fish": "site", "ledger": "node"},
    "bergen": {"boats": "enterprise", "salaries": "node", "nets": "site"},
    "rome": {"wine": "enterprise", "bread": "site", "secrets": "node"},
}


@pytest.mark.scenario("Q-119")
def test_the_public_queues_of_all_nodes_of_a_site_are_listed_with_their_node_and_what_they_have(found: Founded) -> None:
    places = found(dict.fromkeys(SITES, "north"), QUEUES, "bergen", "rome")
    with Node(places["rome"].store) as rome:
        rome.put_many("bread", range(3))
    with wsrm_mq.connect(places["oslo"].store, nodes=places["oslo"].config) as oslo:
        offers = oslo.queues(scope="site")
        assert {(one.node, one.queue, one.scope, one.ready) for one in offers} == {
            ("oslo", "fish", "site", 0),
            ("bergen", "boats", "enterprise", 0),
            ("bergen", "nets", "site", 0),
            ("rome", "wine", "enterprise", 0),
            ("rome", "bread", "site", 3),
        }
        assert offers.away == {}
        assert {one.away_since for one in offers} == {None}


def test_a_queue_of_a_site_is_seen_there_and_one_of_the_enterprise_everywhere(found: Founded) -> None:
    places = found(SITES, QUEUES, "bergen", "rome")
    with wsrm_mq.connect(places["oslo"].store, nodes=places["oslo"].config) as oslo:
        seen = {reach: {(one.node, one.queue) for one in oslo.queues(scope=reach)} for reach in ("site", "enterprise")}
        assert seen["site"] == {("oslo", "fish"), ("bergen", "boats"), ("bergen", "nets")}
        assert seen["enterprise"] == seen["site"] | {("rome", "wine")}
        assert [one.body for one in oslo.mirror("wine", of="rome").peek()] == []
        for queue, of in (("salaries", "bergen"), ("bread", "rome"), ("secrets", "rome"), ("no_such", "rome")):
            with pytest.raises(UnknownQueue, match=f"There is no queue {queue}"):
                oslo.mirror(queue, of=of)


def test_another_node_lists_and_takes_nothing_of_a_private_queue_whatever_its_token_has(found: Founded) -> None:
    place = found(SITES, QUEUES, "bergen", rights=["consume *", "peek *", "put *", "admin *"])["bergen"]
    with Node(place.store) as node:
        node.put("salaries", 1)
    with wsrm_mq.connect(place.url, token=secret("bergen", "oslo")) as oslo:
        for refused in (oslo.peek, oslo.stats, oslo.receive, oslo.delete, oslo.subscribe, oslo.dead, oslo.policy):
            with pytest.raises(wsrm_mq.WSRMError, match="salaries"):
                refused("salaries")
        assert oslo.put("salaries", 2), "what it puts is ruled by its right alone"
    with Node(place.store) as node:
        node.declare("salaries", scope="site")
    with wsrm_mq.connect(place.url, token=secret("bergen", "oslo")) as oslo:
        deadline = time.monotonic() + 20
        while "salaries" not in {one.queue for one in oslo.offers()}:
            assert time.monotonic() < deadline
        assert len(oslo.peek("salaries")) == 2
    with wsrm_mq.connect(place.url, token=secret("bergen", "rome")) as rome:
        assert {one.queue for one in rome.offers()} == {"boats"}


def test_a_node_sees_what_its_token_allows(found: Founded) -> None:
    places = found(SITES, QUEUES, "bergen", rights=["peek nets"])
    with wsrm_mq.connect(places["oslo"].store, nodes=places["oslo"].config) as oslo:
        assert {(one.node, one.queue) for one in oslo.queues()} == {("oslo", "fish"), ("bergen", "nets")}
        with pytest.raises(wsrm_mq.WSRMError, match="may not take messages from there: nets"):
            oslo.mirror("nets", of="bergen").receive()


def test_a_node_that_is_away_is_named_with_the_time_and_its_queues_as_they_were(found: Founded) -> None:
    places = found(SITES, QUEUES, "bergen", "rome")

    async def looked() -> None:
        async with await wsrm_mq.connect_async(places["oslo"].store, nodes=places["oslo"].config) as oslo:
            await oslo.queues(scope="site")
            places["bergen"].end(signal.SIGKILL)
            began = time.time()
            first, again = await oslo.queues(scope="site"), await oslo.queues(scope="site")
            assert {one.queue for one in again if one.node == "bergen"} == {"boats", "nets"}
            since = first.away["bergen"].since
            assert began - 1 <= since <= time.time()
            assert {one.away_since for one in again if one.node == "bergen"} == {since}
            assert "cannot be reached" in again.away["bergen"].why
            places["bergen"].begin()
            assert (await oslo.queues(scope="site")).away == {}

    asyncio.run(looked())


def test_ten_nodes_that_hang_cost_no_more_time_than_one(tmp_path: Path, wsrm: Wsrm) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        toml = "".join(f'[node.n{n}]\nurl = "{url}"\n' for n in range(10))
        config = tmp_path / "wsrm-mq.toml"
        config.write_text(f'store = "{tmp_path}/own.db"\n{toml}')
        with wsrm_mq.connect(tmp_path / "own.db", nodes=config) as node:
            node.declare("orders", scope="enterprise")
            began = time.monotonic()
            offers = node.queues()
            assert time.monotonic() - began < 15
            assert [one.queue for one in offers] == ["orders"]
            assert len(offers.away) == 10
            assert "has not answered within 3 s" in offers.away["n9"].why
        began = time.monotonic()
        told = wsrm("node", "list", "--config", str(config), "--json")
        assert time.monotonic() - began < 25
        assert [one["reachable"] for one in json.loads(told.stdout)["nodes"]] == [False] * 10


def test_what_is_wrong_with_the_configuration_of_a_node_is_told_with_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = tmp_path / "own.db"
    with wsrm_mq.connect(store) as node, pytest.raises(ConfigurationError, match=r"nodes='wsrm-mq\.toml'"):
        node.queues()
    with pytest.raises(ConfigurationError, match=r"node\.north: has no url; say where"):
        wsrm_mq.connect(store, nodes={"nodes": {"north": {}}})
    nodes = {"nodes": {"north": {"url": "http://127.0.0.1:1", "token_env": "NOT_THERE"}}}
    with wsrm_mq.connect(store, nodes=nodes) as node:
        with pytest.raises(ConfigurationError, match=r"There is no section \[node\.west\]; there are: north"):
            node.mirror("orders", of="west")
        assert "the environment has no NOT_THERE" in node.queues().away["north"].why
        with pytest.raises(ConfigurationError, match="it is 'site' or 'enterprise'"):
            node.queues(scope="node")  # type: ignore[arg-type]
    nodes["nodes"]["north"] = {"url": "http://127.0.0.1:1", "ca": os.devnull}
    with wsrm_mq.connect(store, nodes=nodes) as node:
        assert "its ca, or its certificate, cannot be read" in node.queues().away["north"].why


@pytest.mark.skipif(shutil.which("openssl") is None, reason="needs openssl")
def test_a_node_behind_tls_is_believed_by_the_certificates_of_its_section_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TOKEN_AT_NORTH", secret("north", "south"))
    place = Place(tmp_path / "north", "north", "oslo")
    with Node(place.store) as north:
        north.declare("orders", scope="site")
        grants = [check_grant("peek", "*")]
        north.call(lambda tx: tokens.add(tx, "south", grants, secret=secret("north", "south")))
    pem = tmp_path / "north.pem"
    made = ("openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=localhost")
    named = ("-addext", "subjectAltName=DNS:localhost", "-keyout", str(pem), "-out", str(tmp_path / "own.pem"))
    subprocess.run([*made, *named], check=True, capture_output=True)
    pem.write_text(pem.read_text() + (tmp_path / "own.pem").read_text())
    place.server = QueueServer(place.directory, "--port", str(place.port), "--tls-certificate", str(pem))
    far = {"url": f"https://localhost:{place.port}", "token_env": "TOKEN_AT_NORTH"}
    with wsrm_mq.connect(tmp_path / "a.db", nodes={"nodes": {"north": far}}) as south:
        assert "certificate" in south.queues().away["north"].why
    with wsrm_mq.connect(tmp_path / "a.db", nodes={"nodes": {"north": {**far, "ca": str(pem)}}}) as south:
        assert [(one.node, one.queue) for one in south.queues()] == [("north", "orders")]
    place.end()


def test_the_commands_list_queues_and_nodes_with_what_does_not_answer(found: Founded, wsrm: Wsrm) -> None:
    places = found(SITES, QUEUES, "bergen", "rome")
    here = ("--config", str(places["oslo"].config), "--store", str(places["oslo"].store))
    told = json.loads(wsrm("queue", "list", *here, "--scope", "enterprise", "--json").stdout)
    assert {(one["node"], one["queue"]) for one in told["queues"]} == {
        *(("oslo", "fish"), ("bergen", "boats"), ("bergen", "nets"), ("rome", "wine"))
    }
    assert told["away"] == []
    places["rome"].end()
    told = json.loads(wsrm("queue", "list", *here, "--scope", "enterprise", "--json").stdout)
    assert [one["node"] for one in told["away"]] == ["rome"]
    shown = wsrm("queue", "list", *here, "--scope", "enterprise")
    assert "rome does not answer" in shown.stderr
    nodes = {one["node"]: one for one in json.loads(wsrm("node", "list", *here[:2], "--json").stdout)["nodes"]}
    assert {name: (one["scope"], one["reachable"], one["queues"]) for name, one in nodes.items()} == {
        "bergen": ("site", True, 2),
        "rome": ("enterprise", False, None),
    }
    assert "cannot be reached" in nodes["rome"]["why"]
