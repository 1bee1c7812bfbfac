"""What went wrong and what of it is alike, the inbound queue of each connection, and what operators did: `failure`,
`message attempts` and `message headers`, `connection` and `audit`."""

from __future__ import annotations

import gzip
import json
import re
import shlex
from typing import Any

import pytest

from tests.cli.conftest import HOUR, MINUTE, Service
from tests.cli.test_terminal import typed
from tests.queue.build import sender
from tests.support.commands import Wsrm, document
from tests.support.in_process import FACTORY
from wsrm_mq.queue.arrival import Body
from wsrm_mq.queue.creation import create
from wsrm_mq.queue.failure import Diagnosis
from wsrm_mq.queue.policy import QueuePolicy
from wsrm_mq.sequence.elements import CreateSequence
from wsrm_mq.sequence.inbound import InboundSequence
from wsrm_mq.store.words import ANSWERED_WITH_FAULT
from wsrm_mq.versions import WSRM_1_1
from wsrm_mq.views import failures as grouping

PLACE = "/srv/shop/orders.py:41 Orders.put"
AWAY = Diagnosis("soap_fault", "Server", "psycopg.OperationalError", PLACE)
NO_STOCK = Diagnosis(ANSWERED_WITH_FAULT, "Client.NoStock", "shop.NoStock", "/srv/shop/stock.py:7 take")
PUT = "urn:example:orders/put"
STACK = "the database is away\nTraceback (most recent call last):\n  File orders.py"


def failed(
    service: Service,
    error: str = STACK,
    diagnosis: Diagnosis = AWAY,
    action: str = PUT,
    policy: QueuePolicy | None = None,
    partner: str | None = None,
) -> InboundSequence:
    """A sequence whose first message has failed for good."""
    policy = policy or QueuePolicy(retry=())
    made = service.instance.create(policy, partner=partner)
    service.instance.take(made.terms.identifier, 1, policy=policy, action=action)
    service.instance.fail(service.claim(made), 1, policy, error, diagnosis)
    return made


def answered(service: Service, remark: str = "no stock") -> InboundSequence:
    """A sequence whose first message was taken and answered with a fault."""
    made = service.sequence(1, action=PUT)
    service.instance.settle(service.claim(made), 1, release=True, remark=remark, diagnosis=NO_STOCK)
    return made


def listed(wsrm: Wsrm, *query: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = document(wsrm("failure", "list", *query, "--json"))["failures"]
    return found


def shown(wsrm: Wsrm, key: str) -> dict[str, Any]:
    return document(wsrm("failure", "show", key, "--json"))


def refused(service: Service, *row: object) -> None:
    service.instance.db.execute("INSERT INTO refusal (reason, partner, times, last_at) VALUES (?, ?, ?, ?)", row)


def test_what_failed_alike_is_one_group(wsrm: Wsrm, service: Service) -> None:
    for _ in range(2):
        failed(service, partner="acme")
        service.clock.advance(MINUTE)
    failed(service, diagnosis=AWAY._replace(place="/srv/shop/orders.py:52 Orders.put"))
    failed(service, action="urn:example:orders/cancel")
    failed(service, diagnosis=AWAY._replace(exception=None))
    groups = listed(wsrm)
    assert [one["times"] for one in groups] == [1, 1, 1, 2]
    alike = groups[-1]
    assert {name: alike[name] for name in ("event", "fault", "exception", "place", "operation")} == {
        "event": "failed",
        "fault": "Server",
        "exception": "psycopg.OperationalError",
        "place": PLACE,
        "operation": PUT,
    }
    assert alike["last_at"] - alike["first_at"] == MINUTE
    assert (alike["queues"], alike["partners"]) == (["/orders"], ["acme"])
    assert (alike["messages"], alike["live"], alike["dead"], alike["taken"]) == (2, 2, 0, 0)
    assert alike["position"] == 2


def test_what_was_answered_with_a_fault_and_what_was_put_aside_are_in_it(wsrm: Wsrm, service: Service) -> None:
    answered(service)
    failed(service, diagnosis=NO_STOCK)
    put_aside, taken = sorted(listed(wsrm), key=lambda one: str(one["event"]), reverse=True)
    assert (put_aside["event"], put_aside["dead"], put_aside["taken"]) == ("failed", 1, 0)
    assert (taken["event"], taken["dead"], taken["taken"]) == ("answered_with_fault", 0, 1)
    assert put_aside["fault"] == taken["fault"] == "Client.NoStock"


def test_a_row_says_what_became_of_its_messages_so_that_none_looks_like_another(wsrm: Wsrm, service: Service) -> None:
    answered(service)
    failed(service, diagnosis=NO_STOCK)
    lines = [line.split("\t") for line in wsrm("failure", "list").stdout.splitlines()]
    at = lines[0].index("now")
    assert sorted(row[at] for row in lines[1:]) == ["dead", "taken"]
    status, written = typed("failure", "list", columns=80)
    rows = re.sub(r"\x1b\[\d*m", "", written).splitlines()[1:3]
    assert (status, sorted(word for row in rows for word in row.split() if word in ("dead", "taken"))) == (
        0,
        ["dead", "taken"],
    )
    failed(service)
    failed(service, policy=QueuePolicy(retry=(), on_poison="dead_letter"))
    assert "\t1 wait, 1 dead\t" in wsrm("failure", "list").stdout


def test_what_was_refused_is_in_it_by_its_counts(wsrm: Wsrm, service: Service) -> None:
    at = service.clock()
    refused(service, "max_held", "acme", 7, at)
    refused(service, "UnknownSequence", "", 2, at - HOUR)
    refused(service, "max_held", "beta", 1, at - HOUR)
    assert [(one["key"], one["times"], one["last_at"], one["partners"]) for one in listed(wsrm)][:1] == [
        ("max_held@acme", 7, at, ["acme"])
    ]
    keys = [one["key"] for one in listed(wsrm, "partner:acme")]
    assert keys == ["max_held@acme"]
    assert [one["key"] for one in listed(wsrm, "fault:UnknownSequence")] == ["UnknownSequence"]
    assert [one["key"] for one in listed(wsrm, "-fault:max_held")] == ["UnknownSequence"]
    assert len(listed(wsrm, "event:refused_before_storing")) == 3
    assert listed(wsrm, "op:put") == [], "no message was stored that could be asked"
    assert [step["command"] for step in shown(wsrm, "Unk")["next_steps"]] == ["wsrm-mq status"]
    several = wsrm("failure", "show", "max_held")
    assert (several.exit_code, "fits several failures: max_held@acme, max_held@beta" in several.stderr) == (3, True)


@pytest.mark.parametrize(
    ("query", "count"),
    [
        ("", 3),
        ("fault:Server", 1),
        ("exception:OperationalError", 1),
        ("place:stock.py", 1),
        ("op:put", 2),
        ("op:cancel", 1),
        ("partner:acme", 1),
        ("verdict:blocked", 2),
        ("age:>1d", 0),
        ("queue:/orders -op:cancel", 2),
        ("failure:1", 0),
    ],
)
def test_a_query_says_which(wsrm: Wsrm, service: Service, query: str, count: int) -> None:
    failed(service, partner="acme")
    failed(service, diagnosis=Diagnosis("exception", None, "OSError"), action="urn:example:orders/cancel")
    answered(service)
    assert len(listed(wsrm, *query.split())) == count


def test_a_key_means_the_same_however_often_it_fails_again(wsrm: Wsrm, service: Service) -> None:
    failed(service)
    answered(service)
    before = {one["fault"]: one["key"] for one in listed(wsrm)}
    failed(service)
    after = {one["fault"]: one["key"] for one in listed(wsrm)}
    assert before["Server"] != after["Server"]
    old, new = (shown(wsrm, keys["Server"])["failure"] for keys in (before, after))
    assert old == new
    assert old["times"] == 2
    found = document(wsrm("message", "list", f"failure:{before['Server']}", "--json"))["messages"]
    assert [one["position"] for one in found] == [1, 3]


@pytest.mark.parametrize("key", ["x", "", "99", "9" * 40, "…", "-1", "²"])
def test_a_key_that_is_none_is_told(wsrm: Wsrm, service: Service, key: str) -> None:
    failed(service)
    ended = wsrm("failure", "show", "--", key)
    assert ended.exit_code == 3
    assert "`wsrm-mq failure list` shows those there are." in ended.stderr


def test_one_is_shown_with_its_whole_error_and_what_can_be_done(wsrm: Wsrm, service: Service) -> None:
    failed(service)
    answered(service, "answered 500 with a fault: no stock")
    waiting, taken = sorted(listed(wsrm), key=lambda one: str(one["fault"]), reverse=True)
    text = wsrm("failure", "show", waiting["key"]).stdout
    assert STACK in text
    assert f"wsrm-mq message retry failure:{waiting['key']} outcome:live --reason TEXT" in text
    document_ = shown(wsrm, taken["key"])
    assert [one["reason"] for one in document_["attempts"]] == ["answered 500 with a fault: no stock"]
    commands = [step["command"] for step in document_["next_steps"]]
    assert (
        f"wsrm-mq replay plan failure:{taken['key']} outcome:delivered confirmed:no -o plan.json --reason TEXT"
        in commands
    )
    assert not any("retry" in command or "redrive" in command for command in commands)


def test_a_query_shows_the_newest_that_fits_and_names_the_others(wsrm: Wsrm, service: Service) -> None:
    failed(service, "the first")
    service.clock.advance(MINUTE)
    failed(service, "the second", diagnosis=AWAY._replace(place=None))
    ended = wsrm("failure", "show", "fault:Server", "op:put")
    assert "the second" in ended.stdout
    assert ended.stderr == "1 more fit: 2\n"
    assert "the first" in wsrm("failure", "show", "op:put", "-failure:5").stdout
    none = wsrm("failure", "show", "fault:Client")
    assert (none.exit_code, "No failure fits fault:Client" in none.stderr) == (3, True)


def test_what_is_done_about_the_failure_of_a_query_is_done_to_what_fits_it(wsrm: Wsrm, service: Service) -> None:
    for partner in ("acme", "beta"):
        failed(service, f"of {partner}", partner=partner)
    told = document(wsrm("failure", "show", "partner:acme", "-op:cancel", "outcome:live", "--json"))
    assert [one["reason"] for one in told["attempts"]] == ["of acme"]
    assert told["failure"]["live"] == 1
    retry = next(one["command"] for one in told["next_steps"] if "retry" in one["command"])
    key = told["failure"]["key"]
    assert retry == f"wsrm-mq message retry failure:{key} partner:acme outcome:live -op:cancel --reason TEXT"
    ended = document(wsrm(*shlex.split(retry.replace("TEXT", "repaired"))[1:], "--yes", "--json"))
    assert ended["done"] == 1, "that of beta failed alike, and was not asked for"


@pytest.mark.parametrize(("policy", "act"), [("dead_letter", "dead-letter redrive"), ("block", "message retry")])
def test_the_command_that_is_shown_can_be_typed_as_it_is(wsrm: Wsrm, service: Service, policy: str, act: str) -> None:
    failed(service, policy=QueuePolicy(retry=(), on_poison=policy))  # type: ignore[arg-type]
    commands = [one["command"] for one in shown(wsrm, listed(wsrm)[0]["key"])["next_steps"]]
    command = next(one for one in commands if act in one).replace("TEXT", "repaired").split()[1:]
    ended = wsrm(*command, "--yes")
    assert ended.exit_code == 0, ended.output


def test_attempts_without_a_fault_go_by_what_happened(wsrm: Wsrm, service: Service) -> None:
    key = service.key(service.sequence(1))
    service.instance.run(lambda tx: tx.ledger("holder_died", tx.sequence(key), number=1, position=1, attempt=1))
    assert [(one["event"], one["fault"]) for one in listed(wsrm)] == [("holder_died", None)]
    assert "holder_died" in wsrm("failure", "list").stdout


def test_a_look_is_bounded_and_says_so(wsrm: Wsrm, service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    for _ in range(3):
        failed(service)
    assert document(wsrm("failure", "list", "--json"))["all_looked_at"] is True
    monkeypatch.setattr(grouping, "LOOKED_AT", 2)
    monkeypatch.setattr(grouping, "_NEWEST", grouping._NEWEST.limit(2))
    found = document(wsrm("failure", "list", "--json"))
    assert (found["all_looked_at"], found["failures"][0]["times"]) == (False, 2)
    assert "Only the newest 2 attempts that fit were looked at." in wsrm("failure", "list").stderr


def test_a_list_is_as_long_as_is_wanted(wsrm: Wsrm, service: Service) -> None:
    for n in range(3):
        failed(service, action=f"urn:op{n}")
    ended = wsrm("failure", "list", "--limit", 2)
    assert len(ended.stdout.splitlines()) == 3
    assert "There are 3: --limit 3" in ended.stderr


def test_a_list_fits_a_terminal_and_says_where(service: Service) -> None:
    failed(service)
    answered(service)
    long = "/srv/shop/a_module_with_a_very_long_name.py:1234 OrderService.place_order"
    failed(service, diagnosis=Diagnosis("soap_fault", "soap11env:Server", "psycopg.errors.OperationalError", long))
    refused(service, "CreateSequenceRefused", "", 2, service.clock())
    status, written = typed("failure", "list", columns=80)
    assert status == 0
    lines = re.sub(r"\x1b\[\d*m", "", written).splitlines()
    assert max(map(len, lines)) <= 80
    assert all(part in written for part in ("Create…", "(refused)", "Client.No", "put"))
    assert set(re.findall(r"\w\.py:\d+", written)) == {"e.py:1234", "k.py:7", "s.py:41"}, "whatever is cut"


def test_what_a_peer_wrote_is_inert(wsrm: Wsrm, service: Service) -> None:
    failed(service, "\x1b[2J", Diagnosis("soap_fault", "\x1b[31mServer", "\x9bx", "\x1b]0;x"), "urn:\x1b[0m")
    key = listed(wsrm)[0]["key"]
    for command in (("failure", "list"), ("failure", "show", key), ("message", "attempts", 1)):
        text = wsrm(*command).stdout
        assert not any(char in text for char in "\x1b\x9b"), command


# one message


def test_each_attempt_of_a_message_is_told(wsrm: Wsrm, service: Service) -> None:
    policy = QueuePolicy(retry=(1, 1))
    made = service.sequence(1, policy=policy)
    for attempt in (1, 2):
        service.instance.fail(service.claim(made), 1, policy, f"try {attempt}\nTraceback", AWAY)
        service.clock.advance(1_000)
        service.instance.runnable()
    found = document(wsrm("message", "attempts", 1, "--json"))
    assert [(one["attempt"], one["reason"]) for one in found["attempts"]] == [
        (2, "try 2\nTraceback"),
        (1, "try 1\nTraceback"),
    ]
    assert found["deliveries"] == 2
    text = wsrm("message", "attempts", 1).stdout
    assert text.endswith("try 2\nTraceback\n")
    assert PLACE in text
    assert "There may be more" in wsrm("message", "attempts", 1, "--limit", 1).stderr


def test_a_message_that_went_well_has_none(wsrm: Wsrm, service: Service) -> None:
    made = service.sequence(1)
    service.deliver(made, 1)
    ended = wsrm("message", "attempts", 1)
    assert (ended.exit_code, "No attempt of it went wrong." in ended.stderr) == (0, True)
    assert wsrm("message", "attempts", 2).exit_code == 3


ENVIRON = json.dumps({"CONTENT_TYPE": FACTORY.content_type, "HTTP_USER_AGENT": "Axis", "REMOTE_ADDR": "192.0.2.1"})
SECURITY = '<w:Security xmlns:w="urn:wsse"><w:Token>secret</w:Token></w:Security>'


@pytest.mark.parametrize("coding", ["", "gzip"])
def test_headers_are_those_of_the_request_and_of_the_envelope(wsrm: Wsrm, service: Service, coding: str) -> None:
    envelope = FACTORY.message("urn:s", 1, headers=SECURITY)
    environ = json.loads(ENVIRON) | ({"HTTP_CONTENT_ENCODING": coding} if coding else {})
    service.sequence(1, body=Body(gzip.compress(envelope) if coding else envelope), environ=json.dumps(environ))
    found = document(wsrm("message", "headers", 1, "--json"))
    assert found["http"]["User-Agent"] == "Axis"
    assert found["http"]["Content-Type"] == FACTORY.content_type
    names = [one["name"] for one in found["soap"]]
    assert names == ["Action", "MessageID", "To", "ReplyTo", "Sequence", "Security"]
    assert "secret" not in json.dumps(found)
    assert "<wsrm:Identifier>urn:s</wsrm:Identifier>" in found["soap"][4]["text"]
    assert "secret" in wsrm("message", "headers", 1, "--with-security").stdout
    text = wsrm("message", "headers", 1).stdout
    assert "Security   (not shown; --with-security shows it)" in text


@pytest.mark.parametrize("body", [b"", b"not XML", b"\x1f\x8b broken", b"<a/>"])
def test_an_envelope_that_cannot_be_read_has_no_headers(wsrm: Wsrm, service: Service, body: bytes) -> None:
    environ = json.loads(ENVIRON) | ({"HTTP_CONTENT_ENCODING": "gzip"} if body.startswith(b"\x1f") else {})
    service.sequence(1, body=Body(body), environ=json.dumps(environ))
    assert document(wsrm("message", "headers", 1, "--json"))["soap"] == []


def test_of_what_retention_has_emptied_the_request_is_left(wsrm: Wsrm, service: Service) -> None:
    service.deliver(service.sequence(1, environ=ENVIRON), 1)
    service.instance.db.execute("UPDATE message SET body = NULL")
    ended = wsrm("message", "headers", 1)
    assert (ended.exit_code, "User-Agent    Axis" in ended.stdout) == (0, True)
    assert "was freed by retention" in ended.stderr


@pytest.fixture
def two(service: Service) -> list[int]:
    """Two connections that took turns: numbers 3, 1 and 4 came on the first, 2 on the second. Answers when."""
    alice = sender(WSRM_1_1, principal="alice")
    sequence = service.instance.create()
    request = CreateSequence(None, None)
    private = service.instance.run(lambda tx: create(tx, alice, request, None, QueuePolicy())).created
    assert private is not None
    times = []
    for identifier, number, connection, who in (
        (sequence, 3, "192.0.2.1:5000/aa", {}),
        (sequence, 1, "192.0.2.1:5000/aa", {}),
        (sequence, 2, "192.0.2.1:5001/bb", {}),
        (private, 1, "192.0.2.1:5000/aa", {"sender": alice}),
    ):
        times.append(service.clock.advance(1_000))
        receipt = service.instance.take(
            identifier.terms.identifier,
            number,
            connection=connection,
            environ='{"REMOTE_ADDR":"192.0.2.1"}',
            **who,
        )
        assert receipt.fault is None
    service.deliver(sequence, 1)
    return times


def test_the_list_tells_who_sent_how_much_and_what_of_it_waits(wsrm: Wsrm, two: list[int]) -> None:
    found = document(wsrm("connection", "list", "--json"))["connections"]
    assert found == [
        {
            "name": "192.0.2.1:5000/aa",
            "peer": "192.0.2.1",
            "principal": "alice",
            "messages": 3,
            "unsettled": 2,
            "first_seen": two[0],
            "last_seen": two[3],
        },
        {
            "name": "192.0.2.1:5001/bb",
            "peer": "192.0.2.1",
            "principal": None,
            "messages": 1,
            "unsettled": 1,
            "first_seen": two[2],
            "last_seen": two[2],
        },
    ]
    (shown,) = document(wsrm("connection", "list", "--json", "--limit", 1))["connections"]
    assert shown == found[0]


def test_the_list_for_people_has_a_line_for_each(wsrm: Wsrm, two: list[int]) -> None:
    head, *lines = wsrm("connection", "list").stdout.splitlines()
    assert head.split("\t") == ["name", "peer", "principal", "messages", "unsettled", "first seen", "last seen"]
    assert [line.split("\t")[:5] for line in lines] == [
        ["192.0.2.1:5000/aa", "192.0.2.1", "alice", "3", "2"],
        ["192.0.2.1:5001/bb", "192.0.2.1", "", "1", "1"],
    ]


@pytest.mark.parametrize("name", ["192.0.2.1:5000/aa", "192.0.2.1:5000"])
def test_a_connection_shows_its_messages_in_the_order_of_receipt(wsrm: Wsrm, two: list[int], name: str) -> None:
    found = document(wsrm("connection", "show", name, "--json"))
    assert found["connection"]["messages"] == 3
    assert [(one["position"], one["number"], one["state"]) for one in found["messages"]] == [
        (1, 3, "ready"),
        (2, 1, "delivered"),
        (4, 1, "leased"),
    ]
    piece = document(wsrm("connection", "show", name, "--json", "--after", 1, "--limit", 1))
    assert [one["position"] for one in piece["messages"]] == [2]
    assert piece["next"] == 2
    lines = wsrm("connection", "show", name).stdout
    assert "unsettled" in lines
    assert lines.splitlines()[-1].startswith("4\t/orders\t")


def test_what_is_not_there_or_not_clear_is_said_so(wsrm: Wsrm, two: list[int]) -> None:
    missing = wsrm("connection", "show", "198.51.100.1")
    assert missing.exit_code == 3
    assert "`wsrm-mq connection list` shows those there are" in missing.stderr
    unclear = wsrm("connection", "show", "192.0.2.1:500")
    assert unclear.exit_code == 3
    assert "fits several connections: 192.0.2.1:5000/aa, 192.0.2.1:5001/bb" in unclear.stderr


def test_an_empty_store_has_no_connections(wsrm: Wsrm, service: Service) -> None:
    assert document(wsrm("connection", "list", "--json")) == {"connections": []}


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
