"""`message list|show|body`: what was received and what became of it, and XML as a person reads it."""

from __future__ import annotations

import base64
import gzip
import json
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.cli.conftest import Service, Shell
from tests.cli.test_terminal import typed
from tests.support.commands import Wsrm, document
from wsrm_mq.cli.message import indented
from wsrm_mq.queue.arrival import Body
from wsrm_mq.queue.policy import QueuePolicy

ENVIRON = '{"REQUEST_METHOD":"POST","PATH_INFO":"/orders"}'


def listed(wsrm: Wsrm, *options: object) -> list[tuple[int, str, str | None]]:
    found = document(wsrm("message", "list", "--json", *options))["messages"]
    return [(one["number"], one["state"], one["reason"]) for one in found]


def test_messages_come_in_the_order_of_receipt(wsrm: Wsrm, service: Service) -> None:
    service.sequence(2, 3, 1)
    assert [number for number, _state, _reason in listed(wsrm)] == [2, 3, 1]


def test_the_inbound_queue_of_a_connection_is_what_came_on_it_in_that_order(wsrm: Wsrm, service: Service) -> None:
    sequence = service.instance.create()
    for number, connection in ((3, "a:1"), (1, "b:2"), (2, "a:1")):
        service.instance.take(sequence.terms.identifier, number, connection=connection)
    assert [number for number, *_ in listed(wsrm, "--connection", "a:1")] == [3, 2]


def test_every_state_is_named_with_its_reason(wsrm: Wsrm, service: Service) -> None:
    gap = service.sequence(1, 2, 3, 5)
    service.deliver(gap, 1)
    assert listed(wsrm, "--sequence", gap.terms.identifier) == [
        (1, "delivered", None),
        (2, "leased", None),
        (3, "ready", None),
        (5, "held", "gap"),
    ]
    backoff = service.sequence(1)
    service.fail(backoff, 1, "no disk", retry=(10**9,))
    assert listed(wsrm, "--sequence", backoff.terms.identifier) == [(1, "held", "backoff")]
    blocked = service.sequence(1, 2)
    service.fail(blocked, 1, "no disk")
    assert listed(wsrm, "--sequence", blocked.terms.identifier) == [(1, "held", "sequence"), (2, "held", "sequence")]


def test_the_list_can_be_narrowed(wsrm: Wsrm, service: Service) -> None:
    sequence = service.sequence(1, 2, 3)
    service.deliver(sequence, 1)
    service.fail(sequence, 2, "no disk")
    wsrm("sequence", "skip", sequence.terms.identifier, 2, "--yes", "--reason", "r")
    service.sequence(1)
    assert listed(wsrm, "--outcome", "dead") == [(2, "dead", "skipped")]
    assert listed(wsrm, "--queue", "/orders#dead") == [(2, "dead", "skipped")]
    assert len(listed(wsrm, "--outcome", "live")) == 2
    assert len(listed(wsrm, "--outcome", "live", "--sequence", sequence.terms.identifier)) == 1


def test_a_list_goes_on_behind_a_position(wsrm: Wsrm, service: Service) -> None:
    service.sequence(*range(1, 6))
    first = document(wsrm("message", "list", "--json", "--limit", 2))
    assert [one["position"] for one in first["messages"]] == [1, 2]
    rest = document(wsrm("message", "list", "--json", "--after", first["next"]))
    assert [one["position"] for one in rest["messages"]] == [3, 4, 5]
    assert rest["next"] is None
    assert "--after 2" in wsrm("message", "list", "--limit", 2).stderr


def test_show_tells_the_request_and_every_failed_attempt(wsrm: Wsrm, service: Service) -> None:
    sequence = service.sequence(1, environ=ENVIRON)
    service.fail(sequence, 1, "no disk")
    told = document(wsrm("message", "show", "--json", 1))
    assert told["message"]["message_id"] == "urn:message:1"
    assert told["message"]["request"]["PATH_INFO"] == "/orders"
    assert [(event["event"], event["attempt"]) for event in told["ledger"]] == [("failed", 1), ("blocked", None)]
    text = wsrm("message", "show", 1).stdout
    assert "request PATH_INFO" in text
    assert "no disk" in text


def test_a_traceback_is_shown_in_lines_and_in_the_ledger_by_its_first(wsrm: Wsrm, service: Service) -> None:
    sequence = service.sequence(1)
    service.fail(sequence, 1, f"OSError: no disk, {'x' * 200}\nTraceback:\n    deep \x1b[31m\nstate  delivered\n")
    shown = wsrm("message", "show", 1).stdout
    lines = shown.splitlines()
    at = next(index for index, line in enumerate(lines) if line.startswith("last_error"))
    column = lines[at].index("OSError")
    assert [line[column:] for line in lines[at : at + 4]] == [
        f"OSError: no disk, {'x' * 200}",
        "Traceback:",
        "    deep \\x1b[31m",
        "state  delivered",
    ]
    assert not any(line[:column].strip() for line in lines[at + 1 : at + 4])
    for text in (shown.partition("\nat\t")[2], wsrm("sequence", "show", sequence.terms.identifier).stdout):
        row = next(line for line in text.splitlines() if "\tfailed\t" in line)
        assert "\tOSError: no disk, xxx" in row
        assert "…" in row
        assert "Traceback" not in text


@pytest.mark.parametrize("command", ["show", "body"])
def test_a_position_without_a_message_is_not_found(wsrm: Wsrm, service: Service, command: str) -> None:
    result = wsrm("message", command, 77)
    assert result.exit_code == 3
    assert result.stderr == "wsrm-mq: There is no message at position 77.\n"


def test_the_raw_body_is_what_was_received_byte_for_byte(shell: Shell, service: Service) -> None:
    content = b"\xef\xbb\xbf<Envelope>\x1b[31m\x00\xff\r\n</Envelope>"
    service.sequence(1, body=Body(content))
    assert shell("message", "body", 1, "--raw").stdout == content


def test_a_body_shown_to_people_has_no_effect_on_their_terminal(wsrm: Wsrm, service: Service) -> None:
    service.sequence(1, body=Body(b"<a>\n\t\x1b[31mred\x07[red]\xe2\x80\xae\xff</a>"))
    assert wsrm("message", "body", 1).stdout == "<a>\n\t\\x1b[31mred\\x07[red]\\u202e\\xff</a>\n"


def test_a_large_body_is_cut_for_people_and_whole_in_a_file(wsrm: Wsrm, service: Service, somewhere: Path) -> None:
    content = b"x" * 3_000_000
    service.sequence(1, body=Body(content))
    shown = wsrm("message", "body", 1)
    assert len(shown.stdout) == 65_537
    assert "2934464 more bytes; --output FILE writes all 3000000." in shown.stderr
    assert wsrm("message", "body", 1, "--output", "body.xml").exit_code == 0
    assert (somewhere / "body.xml").read_bytes() == content


ENVELOPE = '<?xml version="1.0"?>\n<a>\x00 Grüße</a>'


@pytest.mark.parametrize(
    ("content", "encoding", "body"),
    [
        (ENVELOPE.encode(), "utf-8", ENVELOPE),
        (ENVELOPE.encode("utf-8-sig"), "utf-8", "\ufeff" + ENVELOPE),
        (ENVELOPE.encode("utf-16"), "base64", base64.b64encode(ENVELOPE.encode("utf-16")).decode()),
        (b"x" * 100_000, "utf-8", "x" * 100_000),
    ],
    ids=["utf-8", "utf-8 with a mark", "utf-16", "large"],
)
def test_a_body_as_json_is_whole_and_says_how_it_is_written(
    wsrm: Wsrm, service: Service, content: bytes, encoding: str, body: str
) -> None:
    environ = '{"CONTENT_TYPE":"text/xml; charset=utf-8"}'
    service.sequence(1, body=Body(content), environ=environ)
    assert document(wsrm("message", "body", 1, "--json")) == {
        "position": 1,
        "content_type": "text/xml; charset=utf-8",
        "content_encoding": None,
        "size": len(content),
        "redacted": False,
        "encoding": encoding,
        "body": body,
    }


TOKEN = '<w:Security xmlns:w="urn:wsse"><w:Password>pa55</w:Password></w:Security>'
SIGNED = f'<s:Envelope xmlns:s="urn:soap"><s:Header>{TOKEN}<a>1</a></s:Header><s:Body/></s:Envelope>'.encode()
REDACTED = SIGNED.replace(TOKEN.encode(), b"")


@pytest.mark.parametrize("is_compressed", [False, True], ids=["plain", "gzip"])
def test_what_proves_the_sender_is_shown_and_written_only_where_that_is_asked_for(
    wsrm: Wsrm, service: Service, somewhere: Path, is_compressed: bool
) -> None:
    content = gzip.compress(SIGNED) if is_compressed else SIGNED
    environ = {"CONTENT_TYPE": "text/xml", **({"HTTP_CONTENT_ENCODING": "gzip"} if is_compressed else {})}
    service.sequence(1, body=Body(content), environ=json.dumps(environ))

    def given(*options: str) -> list[bytes]:
        shown = wsrm("message", "body", 1, *options)
        told = json.loads(wsrm("message", "body", 1, "--json", *options).stdout_bytes)
        assert ("taken out; --unredacted gives" in shown.stderr) == told["redacted"] == (not options)
        assert told["size"] == len(content)
        file = somewhere / "body.xml"
        file.unlink(missing_ok=True)
        wsrm("message", "body", 1, "-o", file, *options)
        body = told["body"].encode() if told["encoding"] == "utf-8" else base64.b64decode(told["body"])
        return [wsrm("message", "body", 1, "--raw", *options).stdout_bytes, body, file.read_bytes()]

    assert wsrm("message", "body", 1).stdout_bytes == REDACTED + b"\n"
    assert wsrm("message", "body", 1, "--unredacted").stdout_bytes == SIGNED + b"\n"
    assert given() == [REDACTED] * 3
    assert given("--unredacted") == [content] * 3


def test_where_it_cannot_be_told_what_proves_the_sender_nothing_is_shown_unasked(wsrm: Wsrm, service: Service) -> None:
    service.sequence(1, body=Body(SIGNED[:90]))
    refused = wsrm("message", "body", 1)
    assert (refused.exit_code, "pa55" in refused.output, "--unredacted" in refused.stderr) == (4, False, True)
    assert wsrm("message", "body", 1, "--unredacted").stdout == SIGNED[:90].decode() + "\n"


@pytest.mark.parametrize("others", [("--raw",), ("--output", "x"), ("--raw", "--output", "x")], ids=" ".join)
def test_a_body_goes_one_way_only(wsrm: Wsrm, service: Service, somewhere: Path, others: tuple[str, ...]) -> None:
    service.sequence(1)
    result = wsrm("message", "body", 1, "--json", *others)
    assert result.exit_code == 2
    assert "choose one" in result.stderr
    assert not (somewhere / "x").exists()


def test_a_file_that_is_there_is_not_written_over(wsrm: Wsrm, service: Service, somewhere: Path) -> None:
    service.sequence(1)
    (somewhere / "body.xml").write_text("mine")
    result = wsrm("message", "body", 1, "-o", "body.xml")
    assert result.exit_code == 4
    assert (somewhere / "body.xml").read_text() == "mine"


def test_a_body_that_retention_freed_is_told_as_such(wsrm: Wsrm, service: Service) -> None:
    sequence = service.sequence(1, policy=QueuePolicy())
    service.deliver(sequence, 1)
    service.instance.db.execute("UPDATE message SET body = NULL")
    result = wsrm("message", "body", 1)
    assert result.exit_code == 3
    assert "was freed by retention" in result.stderr


def test_what_a_peer_wrote_is_inert_in_every_list(wsrm: Wsrm, service: Service) -> None:
    environ = '{"X":"\\u001b[0m"}'
    service.sequence(1, action="\x1b[31m[red]urn:put\x9b2J\n", connection="a\tb", environ=environ)
    for command in (("message", "list"), ("message", "show", 1), ("message", "list", "--json")):
        text = wsrm(*command).stdout
        assert "[red]urn:put" in text
        assert not any(char in text for char in "\x1b\x9b")
    header, row = wsrm("message", "list").stdout.splitlines()
    assert header.count("\t") == row.count("\t")


@pytest.mark.parametrize("number", [str(2**63), "9" * 5_000, "0", "-1"], ids=["64 bits", "5,000 digits", "0", "-1"])
def test_a_number_that_no_position_can_be_is_an_error_and_no_traceback(
    wsrm: Wsrm, service: Service, number: str
) -> None:
    identifier = service.sequence(1).terms.identifier
    for command in (
        ("message", "show", "--", number),
        ("message", "body", "--", number),
        ("message", "list", f"--after={number}"),
        ("connection", "show", "c1", f"--after={number}"),
        ("sequence", "skip", identifier, "--yes", "--reason", "r", "--", number),
    ):
        if number == "0" and "--after=0" in command:
            continue
        ended = wsrm(*command)
        assert (ended.exit_code, "nvalid value" in ended.output) == (2, True), ended.output


def test_the_largest_position_is_one_that_is_not_there(wsrm: Wsrm, service: Service) -> None:
    service.sequence(1)
    assert wsrm("message", "show", 2**63 - 1).exit_code == 3


def test_the_list_takes_a_query_and_options_that_mean_the_same(wsrm: Wsrm, service: Service) -> None:
    sequence = service.sequence(1, 2, 3, 5)
    service.deliver(sequence, 1)
    assert [number for number, *_ in listed(wsrm, "-state:delivered", "msg:1-3")] == [2, 3]
    assert [number for number, *_ in listed(wsrm, "-state:delivered", "--number", "1-3")] == [2, 3]
    assert [number for number, *_ in listed(wsrm, "reason:gap", f"seq:{sequence.terms.identifier[-12:]}")] == [5]
    assert [number for number, *_ in listed(wsrm, "--since", "2h", "--tail", 2)] == [3, 5]
    assert listed(wsrm, "--since", "30min") == []


def test_a_word_that_is_wrong_is_pointed_at(wsrm: Wsrm, service: Service) -> None:
    result = wsrm("message", "list", "state:held", "partnr:acme")
    assert result.exit_code == 2
    assert result.stderr.splitlines()[0].startswith("wsrm-mq: There is no key partnr (did you mean partner?). Keys: ")
    assert result.stderr.splitlines()[1:] == ["  state:held partnr:acme", "             ^^^^^^"]
    result = wsrm("message", "list", "--number", "x")
    assert (result.exit_code, result.stderr) == (2, "wsrm-mq: msg: x is no number; write 12, 12-40 or 12-.\n")


def test_a_partner_of_the_configuration_may_have_sent_nothing_and_another_name_is_an_error(
    service: Service, wsrm: Wsrm, somewhere: Path
) -> None:
    service.sequence(1, partner="acme")
    (somewhere / "wsrm-mq.toml").write_text('[partner.globex]\nprincipal = "CN=globex"\n')
    assert document(wsrm("message", "list", "partner:globex", "--json"))["messages"] == []
    wrong = wsrm("message", "list", "outcome:live", "partner:globe")
    assert wrong.exit_code == 2
    assert wrong.stderr.splitlines() == [
        "wsrm-mq: partner: nothing came from globe (did you mean globex?).",
        "  outcome:live partner:globe",
        "                       ^^^^^",
    ]


@pytest.mark.parametrize("other", [("--limit", "1"), ("--after", "1")], ids=" ".join)
def test_the_last_ones_are_as_many_as_was_said_and_no_other_bound_is_passed_over(
    wsrm: Wsrm, service: Service, other: tuple[object, ...]
) -> None:
    service.sequence(1, 2, 3)
    assert [number for number, *_ in listed(wsrm, "--tail", 2)] == [2, 3]
    refused = wsrm("message", "list", "--tail", 2, *other)
    assert (refused.exit_code, "--tail N is the last N" in refused.stderr) == (2, True)


LAID_OUT = {
    "<a><b>text</b><c/><d></d></a>": "<a>\n  <b>text</b>\n  <c/>\n  <d></d>\n</a>",
    "\ufeff<?xml version='1.0'?>\n<a>\n\n <b x='1>2'/>\n</a>\n": "<?xml version='1.0'?>\n<a>\n  <b x='1>2'/>\n</a>",
    "<a>one <b>two</b> three</a>": "<a>one \n  <b>two</b>\n  three\n</a>",
    "<a><!-- <b> --><![CDATA[<c>]]></a>": "<a>\n  <!-- <b> -->\n  <![CDATA[<c>]]>\n</a>",
    "<a> x </a>": "<a> x </a>",
    "<a><b>cut of": "<a>\n  <b>cut of",
    "</a></b><c>": "</a>\n</b>\n<c>",
    "--boundary\r\n<a><b/></a>": "--boundary\r\n<a><b/></a>",
    "": "",
}


@pytest.mark.parametrize("text", LAID_OUT)
def test_each_element_has_a_line_and_one_with_only_text_is_one(text: str) -> None:
    assert indented(text) == LAID_OUT[text]


@given(st.text("<>/ab \"'![]CDAT-?&;\n", max_size=60))
def test_nothing_is_lost_but_blanks(text: str) -> None:
    assert "".join(indented(f"<{text}").split()) == "".join(f"<{text}".split())


@pytest.mark.parametrize("piece", ["<", '<"', "<a ", "<a/", "<!--", "<a b='", "</", "<a>", "<![CDATA["])
def test_what_is_meant_to_be_slow_is_not(piece: str) -> None:
    began = time.process_time()
    indented(piece * (65_536 // len(piece)))
    assert time.process_time() - began < 2


def test_a_body_is_indented_on_a_terminal_and_without_effect_there(service: Service) -> None:
    service.sequence(1, body=Body(b"<a><b>\x1b[2J</b><c/></a>"))
    assert typed("message", "body", 1) == (0, "<a>\r\n  <b>\\x1b[2J</b>\r\n  <c/>\r\n</a>\r\n")
