"""`audit list`: what operators did is on record, and can be found."""

from __future__ import annotations

import pytest

from tests.cli.conftest import Service
from tests.support.commands import Wsrm, document


@pytest.fixture
def acted(service: Service, wsrm: Wsrm) -> list[str]:
    """Two sequences that were blocked: ada resumed the first, bob skipped a message of the second."""
    first, second = service.sequence(1), service.sequence(1, 2)
    for made in (first, second):
        service.fail(made, 1, "no disk")
    for command, actor in (
        (("resume", first.terms.identifier), "ada"),
        (("skip", second.terms.identifier, 1), "bob"),
    ):
        done = wsrm("sequence", *command, "--yes", "--actor", actor, "--reason", f"{actor} says\nso")
        assert done.exit_code == 0, done.output
    return [first.terms.identifier, second.terms.identifier]


def events(wsrm: Wsrm, *options: object) -> list[tuple[str, str]]:
    return [(one["actor"], one["event"]) for one in document(wsrm("audit", "list", "--json", *options))["acts"]]


def test_acts_are_listed_the_newest_last(wsrm: Wsrm, acted: list[str]) -> None:
    assert events(wsrm) == [("ada", "resumed"), ("bob", "dead"), ("bob", "skipped")]
    (*_rest, last) = document(wsrm("audit", "list", "--json"))["acts"]
    assert last["sequence"] == acted[1]
    assert (last["number"], last["reason"]) == (1, "bob says\nso")
    assert wsrm("audit", "list").stdout.splitlines()[-1].endswith("\tbob says")


def test_they_are_found_by_a_query(wsrm: Wsrm, acted: list[str]) -> None:
    assert events(wsrm, "--actor", "ada") == [("ada", "resumed")]
    assert events(wsrm, "-actor:ada", "event:skipped") == [("bob", "skipped")]
    assert events(wsrm, f"seq:{acted[0][-12:]}") == [("ada", "resumed")]
    assert events(wsrm, "outcome:dead") == [("bob", "dead"), ("bob", "skipped")]
    assert events(wsrm, "state:created", "msg:2") == []
    assert events(wsrm, "--since", "2100-01-01") == []
    assert events(wsrm, "since:2h", "reason:ada") == [("ada", "resumed")]
    assert events(wsrm, "verdict:running,faulted") == []
    assert len(events(wsrm, "-verdict:running,faulted")) == 3


def test_the_list_goes_on_with_what_was_done_before(wsrm: Wsrm, acted: list[str]) -> None:
    newest = document(wsrm("audit", "list", "--json", "--limit", 2))
    assert [one["event"] for one in newest["acts"]] == ["dead", "skipped"]
    assert events(wsrm, "--before", newest["next"]) == [("ada", "resumed")]
    assert f"--before {newest['next']}" in wsrm("audit", "list", "--limit", 2).stderr


def test_what_was_done_is_found_by_its_index(acted: list[str], service: Service) -> None:
    steps = service.instance.rows(
        "EXPLAIN QUERY PLAN SELECT * FROM ledger_events WHERE actor IS NOT NULL AND key < 9 ORDER BY key DESC LIMIT 5"
    )
    assert "SEARCH ledger USING INDEX ledger_acts (id<?)" in [row["detail"] for row in steps]
