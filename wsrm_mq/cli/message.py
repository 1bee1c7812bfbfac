"""``wsrm-mq message``: what was received, and what became of it.

An envelope is laid out for reading, and not parsed: what is broken, or cut off, is shown as far as it goes.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Final

import click

from wsrm_mq.cli import completing
from wsrm_mq.cli.act_commands import add_acts
from wsrm_mq.cli.asking import Asking, query_argument, term_option
from wsrm_mq.cli.audit import show_ledger
from wsrm_mq.cli.export import export_messages
from wsrm_mq.cli.message_detail import message_attempts, message_explain, message_headers
from wsrm_mq.cli.output import (
    Column,
    as_json,
    encoded,
    end_of,
    facts,
    fields,
    into_file,
    is_terminal,
    key,
    known,
    listing,
    say,
    when,
    word,
    write,
)
from wsrm_mq.cli.place import POSITION, Place, after_option, in_store, looking, one_look, shorter_names, tell_unseen
from wsrm_mq.cli.trace import message_trace
from wsrm_mq.errors import NotAllowed

LISTED: Final = 50
SHOWN_BYTES: Final = 65_536


@click.group()
def message() -> None:
    """Look at messages and their bodies; try them again, give them up."""


message.add_command(export_messages)
add_acts(message)
message.add_command(message_explain)
message.add_command(message_trace)
message.add_command(message_attempts)
message.add_command(message_headers)


@message.command("list", cls=Asking)
@in_store
@term_option("--connection", "connection", "KEY", "Only those that came on this connection.")
@term_option("--sequence", "seq", "ID", "Only those of this sequence.")
@click.option("--number", "msg", metavar="N-M", help="Only those with these numbers: 12, 12-40, 12-.")
@term_option("--queue", "queue", "NAME", "Only what came into this queue; NAME#dead: its dead letters.")
@term_option("--outcome", "outcome", "WORD", "Only messages with this outcome; live: with none yet.")
@click.option("--reason", metavar="WORD", help="Only messages that have their state or outcome for this reason.")
@click.option("--since", metavar="TIME", help="Only those received since then: 2026-11-01T10:00 (UTC), or 2h ago.")
@after_option
@click.option("--tail", metavar="N", type=click.IntRange(1, 10_000), help="Only the last N.")
@click.option("--limit", type=click.IntRange(1, 10_000), help=f"At most so many. Default: {LISTED}.")
@query_argument
def list_(place: Place, query: str, after: int, tail: int | None, limit: int | None, **terms: str | None) -> None:
    """List messages in the order of receipt.

    QUERY says which: words such as queue:/orders state:held op:place age:1h -reason:gap, and all of them have to hold.

    \b
    Example: wsrm-mq message list seq:242f14a4 state:held
             wsrm-mq message list queue:/orders op:place since:2h -reason:gap
    """
    from wsrm_mq.views import reading

    if tail is not None and (limit is not None or after):
        raise click.UsageError("--tail N is the last N: it goes with neither --limit nor --after.")
    limit = limit or LISTED
    asked = place.query(query).having(**terms)
    with one_look(place) as db:
        if tail is not None:
            found = list(reading.messages(db, asked, limit=tail, newest=True))[::-1]
        else:
            found = list(reading.messages(db, asked, after=after, limit=limit))
        shorter = shorter_names(db, (one.sequence for one in found))
        if not found:
            tell_unseen(db, asked)
    columns = (
        *(key("position"), known("sequence", shorter), "number", end_of("action"), word("state"), "reason"),
        *(when("received", "received_at"), Column("tries", rank=1, of=lambda one: max(one.deliveries, one.failures))),
        *(Column("bytes", of="body_size", rank=2), Column("connection", rank=3)),
    )
    listing(place.is_json, "messages", found, columns, limit=limit if tail is None else tail + 1)


@message.command()
@in_store
@click.argument("position", type=POSITION, shell_complete=completing.values("a position"))
def show(place: Place, position: int) -> None:
    """Show all that is known of a message, but its body.

    \b
    Example: wsrm-mq message show 2
    """
    from wsrm_mq.views import reading

    with one_look(place) as db:
        found = reading.message(db, position)
        events = reading.ledger(db, position)
    detail = {name: value for name, value in found._asdict().items() if name not in ("view", "environ")}
    if place.is_json:
        request = json.loads(found.environ)
        as_json(message={**found.view._asdict(), **detail, "request": request}, ledger=[e._asdict() for e in events])
        return
    facts({**found.view._asdict(), **detail})
    write("")
    fields((f"request {name}", value) for name, value in json.loads(found.environ).items())
    show_ledger(events)


@message.command()
@in_store
@click.argument("position", type=POSITION, shell_complete=completing.values("a position"))
@click.option("--raw", is_flag=True, help="The bytes as they were received, to standard output; escaped on a terminal.")
@click.option(
    "-o", "--output", type=click.Path(path_type=Path, dir_okay=False), help="The bytes as received, into this file."
)
@click.option("--unredacted", is_flag=True, help="With wsse:Security, which proves who sent it: passwords, signatures.")
def body(place: Place, position: int, raw: bool, output: Path | None, unredacted: bool) -> None:
    """Show the envelope of a message, or write its bytes.

    Its wsse:Security is left out, if it has one. What is shown has its control characters as escapes, and on a terminal
    it is indented. JSON has all of it, in base64 where it is not UTF-8.

    \b
    Example: wsrm-mq message body 2 --output message.xml
    """
    if place.is_json + raw + (output is not None) > 1:
        raise click.UsageError("--json, --raw and --output are three ways to have the body; choose one.")
    stored, request = _stored(place, position)
    is_redacted, plain = _given(stored, request, is_open=unredacted)
    exact = plain if is_redacted else stored
    if place.is_json:
        told = json.loads(request)
        media = {"content_type": told.get("CONTENT_TYPE"), "content_encoding": told.get("HTTP_CONTENT_ENCODING")}
        as_json(position=position, **media, size=len(stored), redacted=is_redacted, **encoded(exact))
    elif output is not None:
        into_file(exact, output)
    elif raw and not is_terminal():
        sys.stdout.buffer.write(exact)
    else:
        most = len(plain) if raw else SHOWN_BYTES
        text = plain[:most].decode("utf-8", "backslashreplace")
        write(text if raw or not is_terminal() else indented(text), keep="\n\t")
        if len(plain) > most:
            say(f"{len(plain) - most} more bytes; --output FILE writes all {len(exact)}.")
    if is_redacted:
        say("Its wsse:Security was taken out; --unredacted gives the message as it was received.")


def _stored(place: Place, position: int) -> tuple[bytes, str]:
    """A body and its request, as they are stored. The store is let go before anything is shown: a slow reader must not
    hold up its checkpoints."""
    from wsrm_mq.store.entries import body_at
    from wsrm_mq.views import reading

    with looking(place) as db:
        with body_at(db, position) as found:
            content = found.read()
        return content, reading.message(db, position).environ


def _given(stored: bytes, request: str, *, is_open: bool) -> tuple[bool, bytes]:
    """Whether something was taken out of a body, and what may be seen of it, expanded. Raises ``NotAllowed`` where it
    cannot be told what proves its sender."""
    from wsrm_mq.export.pieces import Exposure

    plain, is_whole = Exposure(security=is_open).envelope(stored, request)
    if plain is None and not is_open:
        raise NotAllowed("where its wsse:Security is cannot be told, as it is broken; --unredacted gives it as it is.")
    return not is_whole and not is_open, stored if plain is None else plain


_TOKEN: Final = re.compile(
    r"""
    (?P<aside> <!--.*?(?:-->|\Z) | <!\[CDATA\[.*?(?:\]\]>|\Z) | <[?!][^<>]*> )
    | (?P<close> </[^<>]*> )
    | (?P<alone> <(?: [^<>"'/] | "[^"]*" | '[^']*' | /(?!>) )+ /> )
    | (?P<open> <(?: [^<>"'/] | "[^"]*" | '[^']*' | /(?!>) )+ > )
    | (?P<text> [^<]+ | < )
    """,
    re.VERBOSE | re.DOTALL,
)
_STEP: Final = "  "
DEEPEST: Final = 20
"""Elements that are nested deeper than this are not indented further."""


def indented(text: str) -> str:
    """``text`` with each element on a line of its own; one that has only text stays in one. What is no XML stays."""
    if not text.lstrip("\ufeff \t\r\n").startswith("<"):
        return text
    lines: list[str] = []
    depth, is_open = 0, False  # is_open: the last line is a start tag, and perhaps its text
    for token in _TOKEN.finditer(text.lstrip("\ufeff")):
        kind, found = token.lastgroup, token[0]
        if kind == "text" and not found.strip():
            continue
        if kind == "close":
            depth -= 1
        if is_open and kind in ("text", "close"):
            lines[-1] += found
        else:
            lines.append(_STEP * min(max(depth, 0), DEEPEST) + found.strip())
        if kind == "open":
            depth += 1
        is_open = kind == "open" or (kind == "text" and is_open)
    return "\n".join(lines)
