"""``wsrm-mq token``: added, listed and revoked."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.test_queue import acts
from tests.support.commands import Wsrm, document
from wsrm_mq.server.tokens import PREFIX

ACTOR = ("--actor", "alice")


def test_the_secret_of_a_token_is_written_once_by_itself(path: Path, wsrm: Wsrm) -> None:
    made = wsrm("token", "add", "shop", "--put", "orders*", "--consume", "thanks", *ACTOR)
    assert made.stderr == "shop may put orders*, consume thanks. Its secret is shown only now:\n"
    secret = made.stdout.strip()
    assert secret.startswith(PREFIX)
    for command in (("token", "list"), ("token", "list", "--json"), ("audit", "list", "--json")):
        assert secret not in wsrm(*command).output
    for file in path.parent.rglob("*"):
        assert not file.is_file() or secret.encode() not in file.read_bytes(), file
    assert acts(wsrm)[-1] == ("token_added", "alice", "shop: put orders*, consume thanks")


def test_tokens_are_listed_with_what_they_may(path: Path, wsrm: Wsrm) -> None:
    wsrm("token", "add", "shop", "--put", "orders*", "--expires", "90d")
    wsrm("token", "add", "ops", "--admin", "*", "--peek", "topic:orders/#", "--certificate", "CN=ops")
    ops, shop = document(wsrm("token", "list", "--json"))["tokens"]
    assert (ops["name"], ops["certificate"]) == ("ops", "CN=ops")
    assert ops["grants"] == [["peek", "topic:orders/#"], ["admin", "*"]]
    assert shop["expires_at"] - shop["created_at"] == pytest.approx(90 * 86_400_000, abs=60_000)
    assert [line.split("\t")[:2] for line in wsrm("token", "list").stdout.splitlines()[1:]] == [
        ["ops", "peek topic:orders/#, admin *"],
        ["shop", "put orders*"],
    ]


def test_a_token_is_revoked(path: Path, wsrm: Wsrm) -> None:
    wsrm("token", "add", "shop", "--put", "*", *ACTOR)
    again = wsrm("token", "add", "shop", "--put", "*")
    assert (again.exit_code, "`wsrm-mq token revoke shop`" in again.stderr) == (4, True)
    assert "This would revoke the token shop" in wsrm("token", "revoke", "shop", "--dry-run").stderr
    assert wsrm("token", "revoke", "shop", *ACTOR).stderr == "shop is revoked.\n"
    assert [event for event, actor, _reason in acts(wsrm) if actor == "alice"] == ["token_added", "token_revoked"]
    missing = wsrm("token", "revoke", "shop")
    assert (missing.exit_code, "`wsrm-mq token list`" in missing.stderr) == (3, True)


def test_a_dry_run_makes_no_token_and_shows_no_secret(path: Path, wsrm: Wsrm) -> None:
    tried = wsrm("token", "add", "shop", "--put", "*", "--dry-run", "--json")
    assert document(tried)["secret"] is None
    assert "This would let shop put *. Nothing was changed." in tried.stderr
    assert document(wsrm("token", "list", "--json"))["tokens"] == []


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((), "Say what it may"),
        (("--put", "a#b"), "is no pattern of queues"),
        (("--put", "*", "--expires", "soon"), "is no length of time"),
    ],
)
def test_a_token_that_cannot_be_meant_is_refused(path: Path, wsrm: Wsrm, arguments: tuple[str, ...], said: str) -> None:
    refused = wsrm("token", "add", "shop", *arguments)
    assert (refused.exit_code, said in refused.stderr) == (2, True)
