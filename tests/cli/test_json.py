"""The JSON of the commands is as its page says, key by key."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.cli.conftest import HOUR, Service
from tests.support.commands import Wsrm, document, in_directory, typed
from tests.test_docs import COMMANDS as ALL
from wsrm_mq.node import connect
from wsrm_mq.store.sqlite import schema
from wsrm_mq.testing import EnvelopeFactory

THERE = "http://127.0.0.1:9/rm"
"""Nothing listens there."""
REQUEST = '<s:Envelope xmlns:s="http://schemas.xmlsoap.org/soap/envelope/"><s:Body><order/></s:Body></s:Envelope>'
PAGE = Path(__file__).parents[2] / "docs" / "json.md"
ARGUMENTS = {
    "sequence show": ["SEQUENCE"],
    "sequence explain": ["SEQUENCE"],
    "message show": [2],
    "message body": [1],
    "message attempts": [2],
    "message headers": [1],
    "failure show": ["FAILURE"],
    "dead-letter show": [4],
    "connection show": ["a:1"],
    "replay status": ["PLAN"],
    "partner show": ["acme"],
    "envelope decode": ["message.xml"],
    "queue list --scope": ["site"],
    "queue show": ["jobs"],
    "queue stats": ["jobs"],
    "queue peek": ["jobs"],
    "queue get": ["jobs"],
    "queue put": ["jobs", "message.xml"],
    "queue declare": ["jobs", "--dry-run"],
    "queue bind": ["jobs", "orders/#", "--dry-run"],
    "queue unbind": ["jobs", "jobs/#", "--dry-run"],
    "topic publish": ["jobs/new", "message.xml"],
    "topic retain": ["jobs/#", 60, "--dry-run"],
    "token add": ["other", "--put", "*", "--dry-run"],
    "token revoke": ["shop", "--dry-run"],
    "subscription show": ["shop/thanks"],
    "subscription drop": ["shop/thanks", "--dry-run"],
    "node show": [THERE],
    "node name": ["east", "--dry-run"],
    "route add": ["north/*", THERE, "--dry-run"],
    "route test": ["north/orders"],
    "route drop": ["north/*", "--dry-run"],
    "source show": [THERE],
    "source explain": [THERE],
    "source send": ["request.xml", "--to", THERE, "--action", "urn:act", "--wait", 1],
    **{f"source {act}": [THERE, "--dry-run"] for act in ("hold", "resume", "resend", "close", "terminate")},
    "message explain": [2],
    "message trace": ["ROUTED"],
    "journal show": ["jobs"],
    "queue purge": ["jobs", "--dry-run"],
    "queue delete": ["jobs", "--dry-run"],
    "sequence hold": ["SEQUENCE", "--dry-run"],
    "sequence resume": ["SEQUENCE", "--dry-run"],
    "sequence skip": ["SEQUENCE", 2, "--dry-run"],
    "sequence note": ["SEQUENCE", "--dry-run"],
    "message retry": [2, "--dry-run"],
    "message discard": [2, "--dry-run"],
    "message restore": [5, "--dry-run"],
    "message confirm": [4, "--dry-run"],
    "dead-letter redrive": [4, "--dry-run"],
    "dead-letter discard": [4, "--dry-run"],
    "dead-letter confirm": [4, "--dry-run"],
    "dead-letter edit": ["LETTER", "--dry-run"],
}


def rows(text: str) -> list[tuple[str, str]]:
    return re.findall(r"^\| (`[^|]+`) \| ([^|]*) \|$", text, re.M)


def names(cell: str) -> list[str]:
    return re.findall(r"`([a-z_]+)`", cell)


def commands() -> dict[str, tuple[set[str], dict[str, str]]]:
    """Command → its keys, and which of them are a shape or a list of one."""
    found: dict[str, tuple[set[str], dict[str, str]]] = {}
    for command, keys in re.findall(r"^\| `((?:[a-z-]+ [a-z]+)|doctor)` \| ([^|]*) \|$", PAGE.read_text(), re.M):
        if keys == "the same":
            found[command] = found["message retry"]
            continue
        named = {name for item in keys.split("; ") for name in names(item.partition(":")[0])}
        found[command] = named, dict(re.findall(r"`(\w+)`: \[[^\]]+\]\(#([\w-]+)\)", keys))
    return found


def shapes() -> dict[str, set[str]]:
    """Anchor → keys."""
    sections = re.split(r"^### (.*)$", PAGE.read_text(), flags=re.M)[1:]
    return {
        title.lower().replace(" ", "-"): {name for cell, _ in rows(text.split("\n## ")[0]) for name in names(cell)}
        for title, text in zip(sections[::2], sections[1::2], strict=True)
    }


COMMANDS = commands()
SHAPES = shapes()


class Stored(NamedTuple):
    directory: Path
    names: dict[str, str]
    """What ``ARGUMENTS`` stand for."""


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stored]:
    """A store with something of everything: a sequence that number 2 stopped, a dead letter, a discarded message, a
    plan, a partner."""
    directory = tmp_path_factory.mktemp("stored")
    with pytest.MonkeyPatch.context() as patch:
        in_directory(directory, patch)
        schema.ensure(directory / "wsrm.db")
        service = Service(directory / "wsrm.db", time.time_ns() // 1_000_000 - HOUR)
        yield Stored(directory, filled(service))
        service.close()


def filled(service: Service) -> dict[str, str]:
    directory = service.path.parent
    (directory / "message.xml").write_bytes(EnvelopeFactory().message("urn:uuid:1", 1))
    (directory / "request.xml").write_text(REQUEST)
    (directory / "wsrm-mq.toml").write_text('[partner.acme]\nprincipal = "cn=acme"\n')
    blocked, buried, discarded = service.sequence(1, 2, 4, connection="a:1"), service.sequence(1), service.sequence(1)
    service.deliver(blocked, 1)
    for made, number in ((blocked, 2), (buried, 1), (discarded, 1)):
        service.fail(made, number, "no disk")
    for command in (
        ("sequence", "skip", buried.terms.identifier, 1, "--yes"),
        ("message", "discard", 5, "--yes"),
        ("queue", "declare", "jobs", "journal=true"),
        *[("queue", "put", "jobs", "message.xml")] * 2,
        ("queue", "bind", "jobs", "jobs/#"),
        ("token", "add", "shop", "--put", "jobs"),
        ("replay", "plan", "state:delivered", "--to", "app", "-o", "plan.json"),
    ):
        why = () if command[0] in ("queue", "token") else ("--reason", "why")
        done = typed(*command, *why)
        assert done.exit_code == 0, done.output
    with connect(service.path) as node:
        node.subscribe(topic="orders/#", name="thanks", client="shop").close()
        letter = node.put("jobs", b"no good")
        node.settle("jobs", f"position = {letter}", "reject")
        node.route("north/*", THERE)
        routed = node.put("north/orders", b"1")
    sent = typed("source", "send", "request.xml", "--to", THERE, "--action", "urn:act", "--wait", 2)
    assert "is stored and waits" in sent.output
    (plan,) = document(typed("replay", "list", "--json"))["plans"]
    failure = document(typed("failure", "list", "--json"))["failures"][0]
    return {
        "SEQUENCE": blocked.terms.identifier,
        "PLAN": plan["id"],
        "FAILURE": failure["key"],
        "LETTER": str(letter),
        "ROUTED": str(routed),
    }


@pytest.fixture
def somewhere(stored: Stored, monkeypatch: pytest.MonkeyPatch) -> Path:
    """All tests work beside the one store: what a command changes of it, no other one asks for."""
    in_directory(stored.directory, monkeypatch)
    return stored.directory


def test_the_page_is_understood() -> None:
    assert len(COMMANDS) > 25
    assert set(SHAPES) >= {shape for _keys, named in COMMANDS.values() for shape in named.values()}
    assert all(SHAPES.values())


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_writes_the_keys_that_the_page_has(stored: Stored, wsrm: Wsrm, command: str) -> None:
    arguments = [stored.names.get(str(one), one) for one in ARGUMENTS.get(command, [])]
    if command == "source resume":
        wsrm("source", "hold", THERE)
    done = wsrm(*command.split(), *arguments, "--json")
    assert done.stdout, done.output
    written: dict[str, Any] = json.loads(done.stdout)
    keys, shaped = COMMANDS[command]
    dry = {"dry_run"} if "--dry-run" in arguments else set()
    assert set(written) == keys | dry | {"schema_version"}
    for key, shape in shaped.items():
        found = written[key] if isinstance(written[key], list) else [written[key]]
        assert found, f"{command} has no {key} to look at"
        assert [sorted(set(one) ^ SHAPES[shape]) for one in found if set(one) != SHAPES[shape]] == []


def test_status_writes_the_keys_that_the_page_has(stored: Stored, wsrm: Wsrm) -> None:
    cells = PAGE.read_text().split("| Key of `status` | |")[1].split("\n\n")[0]
    written = document(wsrm("status", "--json"))
    assert set(written) == {name for cell, _ in rows(cells) for name in names(cell)}


def test_every_command_that_writes_json_is_on_the_page() -> None:
    writing = [
        command.removeprefix("wsrm-mq ")
        for command, found in ALL.items()
        if any(parameter.name == "is_json" for parameter in found.params)
    ]
    assert [command for command in writing if f"`{command}`" not in PAGE.read_text()] == []
