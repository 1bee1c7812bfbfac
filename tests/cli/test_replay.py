"""``wsrm-mq replay``: made, shown, run, and what is said."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Service
from tests.support.commands import Wsrm, document
from wsrm_mq.sequence.inbound import InboundSequence

APPLICATION = """
calls = []

def app(environ, start_response):
    calls.append(environ["wsrm.message_number"])
    if environ["wsrm.message_number"] in refused:
        raise OSError("not this one")
    start_response("202 Accepted", [("Content-Length", "0")])
    return []

refused = set()
"""


@pytest.fixture
def application(somewhere: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A module of its own for each test, without a ladder of retries."""
    import sys

    (somewhere / "replayed_app.py").write_text(APPLICATION)
    (somewhere / "wsrm-mq.toml").write_text('retry = []\nreplay_targets = ["http://127.0.0.1:9"]\n')
    monkeypatch.syspath_prepend(str(somewhere))
    sys.modules.pop("replayed_app", None)
    import replayed_app  # type: ignore[import-not-found]

    return replayed_app


@pytest.fixture
def delivered(service: Service) -> InboundSequence:
    made = service.sequence(1, 2, 3)
    service.deliver(made, 1, 2, 3)
    return made


def test_a_plan_is_made_shown_run_and_listed(
    wsrm: Wsrm, delivered: InboundSequence, application: Any, somewhere: Path
) -> None:
    made = wsrm("replay", "plan", "queue:/orders", "-o", "p.json", "--to", "replayed_app:app", "--reason", "restored")
    assert made.exit_code == 0, made.output
    assert "wsrm-mq replay run p.json" in made.stderr
    shown = wsrm("replay", "show", "p.json")
    assert "3 messages in 1 group," in shown.stdout
    assert [line.split("\t")[3] for line in shown.stdout.splitlines()[-3:]] == ["1", "2", "3"]
    tried = wsrm("replay", "run", "p.json", "--dry-run")
    assert "This would deliver 3 of 3 messages to replayed_app:app" in tried.stderr
    assert application.calls == []
    assert wsrm("replay", "run", "p.json").exit_code == 4, "it asks, and there is no terminal"
    ran = wsrm("replay", "run", "p.json", "--yes")
    assert (ran.exit_code, application.calls) == (0, [1, 2, 3]), ran.output
    [listed] = document(wsrm("replay", "list", "--json"))["plans"]
    assert (listed["state"], listed["messages"], listed["line"]) == ("done", 3, 3)
    status = document(wsrm("replay", "status", "p.json", "--json"))
    assert status["outcomes"] == {"delivered": 3}
    assert wsrm("replay", "status", listed["id"][:4]).exit_code == 0
    again = wsrm("replay", "run", "p.json", "--yes")
    assert (again.exit_code, "ran to its end" in again.stderr) == (4, True)


WRAPPED = """
from wsrm_mq.wsgi import WSRMMiddleware
import replayed_app

middleware = WSRMMiddleware(replayed_app.app, store="never.db")

def app(environ, start_response):
    return middleware(environ, start_response)

app.app = middleware
"""


def test_an_application_that_is_imported_for_a_plan_begins_to_deliver_nothing(
    wsrm: Wsrm, delivered: InboundSequence, application: Any, somewhere: Path
) -> None:
    (somewhere / "wrapped_app.py").write_text(WRAPPED)
    plan = ("replay", "plan", "queue:/orders", "-o", "p.json", "--to", "wrapped_app:app", "--reason", "restored")
    made = wsrm(*plan)
    assert made.exit_code == 0, made.output
    ran = wsrm("replay", "run", "p.json", "--yes")
    assert (ran.exit_code, application.calls) == (0, [1, 2, 3]), ran.output
    assert not (somewhere / "never.db").exists(), "its own store is not even made"


def test_what_failed_is_told_with_the_next_command_and_tried_again(
    wsrm: Wsrm, delivered: InboundSequence, application: Any
) -> None:
    wsrm("replay", "plan", "queue:/orders", "-o", "p.json", "--to", "replayed_app:app", "--reason", "restored")
    application.refused.add(2)
    failed = wsrm("replay", "run", "p.json", "--yes")
    assert failed.exit_code == 1
    assert "not this one" in failed.stderr
    assert "wsrm-mq sequence explain urn:uuid:" in failed.stderr
    assert "wsrm-mq replay run p.json" in failed.stderr
    assert "Traceback" not in failed.output
    looked = wsrm("status").stdout
    assert " to replayed_app:app: blocked. Number 2 " in looked
    [explain] = re.findall(r"wsrm-mq (sequence explain .*?)`", failed.stderr)
    assert wsrm(*shlex.split(explain)).stdout.splitlines()[1] == "target: replayed_app:app"
    assert document(wsrm(*shlex.split(explain), "--json"))["target"] == "replayed_app:app"
    stopped = wsrm("replay", "status", "p.json")
    assert stopped.stderr == f"Go on where it was: `wsrm-mq replay run {Path('p.json').absolute()}`\n"
    application.refused.clear()
    assert wsrm("replay", "run", "p.json", "--yes").exit_code == 0
    assert application.calls == [1, 2, 2, 3]


def test_status_leads_to_a_replay_that_stopped_and_the_command_it_names_goes_on(
    wsrm: Wsrm, delivered: InboundSequence, application: Any
) -> None:
    wsrm("replay", "plan", "queue:/orders", "-o", "p.json", "--to", "replayed_app:app", "--reason", "restored")
    assert "The replay" not in wsrm("status").stdout
    application.refused.add(2)
    wsrm("replay", "run", "p.json", "--yes")
    application.refused.clear()
    [command] = re.findall(r"wsrm-mq (replay run .*)", wsrm("status").stdout)
    assert wsrm(*shlex.split(command), "--yes").exit_code == 0
    assert application.calls == [1, 2, 2, 3]
    assert "The replay" not in wsrm("status").stdout


def test_a_run_is_no_process_of_the_service(wsrm: Wsrm, path: Path) -> None:
    from wsrm_mq.store.applications import Serving, outgoing_queue
    from wsrm_mq.store.store import Store

    store = Store(path, serving=Serving(paths=(outgoing_queue("0123456789ab"),)))
    store.open()
    try:
        assert "No process of the service lives" in wsrm("status").stdout
    finally:
        store.close()


def test_a_plan_is_cancelled(wsrm: Wsrm, delivered: InboundSequence, application: Any) -> None:
    wsrm("replay", "plan", "queue:/orders", "-o", "p.json", "--to", "replayed_app:app", "--reason", "restored")
    application.refused.add(2)
    wsrm("replay", "run", "p.json", "--yes")
    cancelled = document(wsrm("replay", "cancel", "p.json", "--yes", "--json", "--reason", "wrong day"))
    assert cancelled["withdrawn"] == 2
    assert document(wsrm("replay", "status", "p.json", "--json"))["outcomes"] == {"delivered": 1, "discarded": 2}
    assert wsrm("replay", "run", "p.json", "--yes").exit_code == 4


def test_a_dry_run_counts_what_an_earlier_run_has_entered_and_left(
    wsrm: Wsrm, delivered: InboundSequence, application: Any
) -> None:
    wsrm("replay", "plan", "queue:/orders", "-o", "p.json", "--to", "replayed_app:app", "--reason", "restored")
    assert "deliver 3 of 3 messages" in wsrm("replay", "run", "p.json", "--dry-run").stderr
    application.refused.add(2)
    wsrm("replay", "run", "p.json", "--yes")
    assert "deliver 2 of 3 messages" in wsrm("replay", "run", "p.json", "--dry-run").stderr


def test_a_cancellation_that_would_be_refused_is_refused_by_its_dry_run(
    wsrm: Wsrm, delivered: InboundSequence, application: Any
) -> None:
    wsrm("replay", "plan", "queue:/orders", "-o", "p.json", "--to", "replayed_app:app", "--reason", "restored")
    assert wsrm("replay", "cancel", "p.json", "--dry-run").exit_code == 0
    assert document(wsrm("replay", "status", "p.json", "--json"))["plan"]["state"] == "planned"
    wsrm("replay", "run", "p.json", "--yes")
    for words in (("--dry-run",), ("--yes", "--reason", "wrong day")):
        done = wsrm("replay", "cancel", "p.json", *words)
        assert (done.exit_code, "ran to its end" in done.stderr) == (4, True), done.output


@pytest.mark.parametrize(
    ("arguments", "status", "said"),
    [
        (("plan", "colour:red", "-o", "q.json", "--reason", "x"), 2, "colour"),
        (("plan", "queue:/nowhere", "-o", "q.json", "--reason", "x"), 2, "nothing came into /nowhere"),
        (("plan", "pos:999", "-o", "q.json", "--reason", "x"), 3, "Nothing"),
        (("plan", "queue:/orders", "-o", "q.json"), 4, "--reason"),
        (("plan", "-o", "q.json", "--reason", "x"), 2, "Say what"),
        (("plan", "queue:/orders", "-o", "q.json", "--reason", "x", "--to", "nothing"), 2, "MODULE:ATTRIBUTE"),
        (("plan", "queue:/orders", "-o", "q.json", "--reason", "x", "--to", "http://10.0.0.1/"), 2, "replay_targets"),
        (("plan", "queue:/orders", "-o", "q.json", "--reason", "x", "--to", "nowhere:app"), 2, "no module nowhere"),
        (("plan", "queue:/orders", "-o", "q.json", "--reason", "x", "--to", "replayed_app:a"), 2, "no attribute a"),
        (("plan", "queue:/orders", "-o", "q.json", "--reason", "x", "--to", "http://127.0.0.1:9/"), 2, "refused"),
        (("run", "p.json", "--yes"), 4, "No service runs|being run|There is no terminal"),
        (("run", "missing.json", "--yes"), 3, "No such file"),
        (("run", "wsrm.db", "--yes"), 4, "is no plan"),
        (("run", "p.json", "--yes", "--to", "nowhere:app"), 2, "no module nowhere"),
        (("run", "p.json", "--yes", "--to", "replayed_app:missing"), 2, "no attribute"),
        (("show", "missing.json"), 3, "No such file"),
        (("status", "ffffff"), 3, "no plan"),
        (("cancel", "p.json"), 4, "--reason"),
    ],
)
def test_what_is_wrong_is_said_in_a_line(
    wsrm: Wsrm, service: Service, delivered: InboundSequence, application: Any, arguments: Any, status: int, said: str
) -> None:
    wsrm("replay", "plan", "queue:/orders", "-o", "p.json", "--reason", "restored")
    service.close()
    found = wsrm("replay", *arguments)
    assert (found.exit_code, bool(re.search(said, found.stderr))) == (status, True), found.output
    assert "Traceback" not in found.output
    assert not Path("q.json").exists()


def test_text_of_a_peer_is_inert_in_a_plan(wsrm: Wsrm, service: Service, application: Any) -> None:
    made = service.sequence(1, action="urn:\x1b[31mput")
    service.deliver(made, 1)
    wsrm("replay", "plan", "queue:/orders", "-o", "p.json", "--reason", "restored")
    for arguments in (("show", "p.json"), ("show", "p.json", "--all"), ("show", "p.json", "--json")):
        assert "\x1b" not in wsrm("replay", *arguments).output


def test_a_plan_as_json_has_its_header_and_its_lines(wsrm: Wsrm, delivered: InboundSequence) -> None:
    wsrm("replay", "plan", "queue:/orders", "-o", "p.json", "--reason", "restored")
    shown = document(wsrm("replay", "show", "p.json", "--json", "--after", 1, "--limit", 1))
    assert shown["plan"] == json.loads(Path("p.json").read_text().splitlines()[0])
    assert [(line["line"], line["number"]) for line in shown["lines"]] == [(2, 2)]


def test_a_plan_that_was_edited_or_may_not_be_run_says_so_where_it_is_shown(
    wsrm: Wsrm, delivered: InboundSequence, application: Any, somewhere: Path
) -> None:
    wsrm("replay", "plan", "queue:/orders", "-o", "p.json", "--to", "replayed_app:app", "--reason", "restored")
    whole = (somewhere / "p.json").read_bytes()
    assert "not run" not in wsrm("replay", "show", "p.json").stdout
    assert document(wsrm("replay", "show", "p.json", "--json"))["refused"] is None
    (somewhere / "p.json").write_bytes(whole.replace(b'"number":2', b'"number":1'))
    for options in ((), ("--all",)):
        assert "it was changed" in " ".join(wsrm("replay", "show", "p.json", *options).stdout.split())
    assert "it was changed" in document(wsrm("replay", "show", "p.json", "--json"))["refused"]
    (somewhere / "p.json").write_bytes(whole)
    elsewhere = wsrm("replay", "show", "p.json", "--store", "nowhere.db")
    assert (elsewhere.exit_code, "not run " in elsewhere.stdout, "nowhere.db" in elsewhere.stdout) == (0, True, True)
    assert wsrm("replay", "run", "p.json", "--yes").exit_code == 0
    assert "ran to its end" in " ".join(wsrm("replay", "show", "p.json").stdout.split())
