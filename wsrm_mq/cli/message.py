"""``wsrm-mq message``: what was received, what became of it, and its way over the nodes.

An envelope is laid out for reading, and not parsed: what is broken, or cut off, is shown as far as it goes.
"""

from __future__ import annotations

import json
import re
import sys
from contextlib import closing
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Any, Final

import click

from wsrm_mq.cli import completing
from wsrm_mq.cli.acts import add_acts
from wsrm_mq.cli.archive import export_messages
from wsrm_mq.cli.history import attempt_lines, show_ledger, shown_place
from wsrm_mq.cli.node import address_of
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
    say,
    table,
    when,
    word,
    write,
)
from wsrm_mq.cli.place import (
    POSITION,
    Asking,
    Place,
    after_option,
    in_store,
    now_ms,
    query_argument,
    shorter_names,
    tell_unseen,
    term_option,
)
from wsrm_mq.envelope import stream
from wsrm_mq.errors import EnvelopeError, NotAllowed, NotFound, WSRMError

if TYPE_CHECKING:
    from wsrm_mq.envelope import rewrite
    from wsrm_mq.queue import tracing
    from wsrm_mq.store import port

LISTED: Final = 50
SHOWN_BYTES: Final = 65_536


@click.group()
def message() -> None:
    """Look at messages and their bodies; try them again, give them up."""


message.add_command(export_messages)
add_acts(message)


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
    with place.one_look() as db:
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
    place.listing("messages", found, columns, limit=limit if tail is None else tail + 1)


@message.command()
@in_store
@click.argument("position", type=POSITION, shell_complete=completing.values("a position"))
def show(place: Place, position: int) -> None:
    """Show all that is known of a message, but its body.

    \b
    Example: wsrm-mq message show 2
    """
    from wsrm_mq.views import reading

    with place.one_look() as db:
        found = reading.message(db, position)
        events = reading.ledger(db, position)
    detail = {name: value for name, value in found._asdict().items() if name not in ("view", "environ")}
    if place.is_json:
        request = json.loads(found.environ)
        as_json(message={**found.view._asdict(), **detail, "request": request}, ledger=events)
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
    from wsrm_mq.store import entries
    from wsrm_mq.views import reading

    with place.looking() as db:
        with entries.body_at(db, position) as found:
            content = found.read()
        return content, reading.message(db, position).environ


def _given(stored: bytes, request: str, *, is_open: bool) -> tuple[bool, bytes]:
    """Whether something was taken out of a body, and what may be seen of it, expanded. Raises ``NotAllowed`` where it
    cannot be told what proves its sender."""
    from wsrm_mq.export import pieces

    plain, is_whole = pieces.Exposure(security=is_open).envelope(stored, request)
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
            lines.append("  " * min(max(depth, 0), DEEPEST) + found.strip())
        if kind == "open":
            depth += 1
        is_open = kind == "open" or (kind == "text" and is_open)
    return "\n".join(lines)


READ: Final = 1024 * 1024
"""The most bytes of an envelope, expanded, that are read for its headers."""
_PLAIN: Final = {"CONTENT_TYPE": "Content-Type"}
_SECURITY: Final = "Security"


@message.command("attempts")
@in_store
@click.argument("position", type=POSITION, shell_complete=completing.values("a position"))
@click.option("--limit", type=click.IntRange(1, 1_000), default=20, show_default=True, help="At most so many.")
def message_attempts(place: Place, position: int, limit: int) -> None:
    """Show the attempts to deliver a message that failed.

    The whole error of the last one is below.

    \b
    Example: wsrm-mq message attempts 42
    """
    from wsrm_mq.views import failures, reading

    with place.one_look() as db:
        found = reading.message(db, position).view
        listed = failures.attempts(db, position=position, limit=limit)
    if place.is_json:
        state = {"state": found.state, "reason": found.reason, "deliveries": found.deliveries}
        as_json(position=position, **state, attempts=listed)
        return
    fields({"state": found.state, "reason": found.reason, "deliveries": found.deliveries}.items())
    if not listed:
        say("No attempt of it went wrong.")
        return
    write("")
    columns = (when("at"), word("event"), Column("attempt", None), "fault", end_of("exception"))
    table((*columns, Column("place", keeps_end=True, short=shown_place), Column("instance", rank=1)), listed)
    write("")
    attempt_lines(listed[0])
    if len(listed) == limit:
        say(f"There may be more: --limit {limit * 2}")


@message.command("explain")
@in_store
@click.argument("which", metavar="MESSAGE", shell_complete=completing.values("a position"))
def message_explain(place: Place, which: str) -> None:
    """Say why a message moves or does not, and what to do.

    MESSAGE is a position, or the id that its sender gave it; that may be in several queues.

    \b
    Example: wsrm-mq message explain 42
             wsrm-mq message explain order-4711
    """
    from wsrm_mq.views import message_sentences, reading

    with place.one_look() as db:
        found = [reading.message(db, position) for position in message_sentences.positions_of(db, which)]
        why = [message_sentences.explained(db, one, now_ms()) for one in found]
    told = []
    for view, because in zip((one.view for one in found), why, strict=True):
        its = {name: getattr(view, name) for name in ("position", "queue", "message_id", "state", "reason")}
        text = f"{view.state}: position {view.position} in {view.queue}. {because.sentence}"
        told.append(({**its, "sentence": because.sentence}, text, because.steps))
    place.explain("messages", told)


@message.command("headers")
@in_store
@click.argument("position", type=POSITION, shell_complete=completing.values("a position"))
@click.option("--with-security", "is_open", is_flag=True, help="Show wsse:Security too, which proves who sent it.")
def message_headers(place: Place, position: int, is_open: bool) -> None:
    """Show the headers of a message.

    Those of its request that were stored, and those of its SOAP envelope.

    \b
    Example: wsrm-mq message headers 42
    """
    from wsrm_mq.views import reading

    with place.looking() as db:
        found = reading.message(db, position)
    environ = json.loads(found.environ)
    http = {_header(name): value for name, value in environ.items() if name in _PLAIN or name.startswith("HTTP_")}
    soap = _blocks(place, position, environ) if found.has_body else []
    told = [one if is_open or one.name != _SECURITY else one._replace(text="") for one in soap]
    if place.is_json:
        as_json(position=position, http=http, soap=told, has_body=found.has_body)
        return
    fields(http.items())
    write("")
    fields((one.name, one.text or "(not shown; --with-security shows it)") for one in told)
    if not found.has_body:
        say("Its envelope was freed by retention.")


def _header(name: str) -> str:
    return _PLAIN.get(name) or name.removeprefix("HTTP_").replace("_", "-").title()


def _blocks(place: Place, position: int, environ: dict[str, Any]) -> list[rewrite.Block]:
    from wsrm_mq.envelope import rewrite
    from wsrm_mq.store import entries

    content = b""
    with place.looking() as db, entries.body_at(db, position) as stored:
        is_gzip = stream.content_coding(environ.get("HTTP_CONTENT_ENCODING", "")) == "gzip"
        source = stream.expand(stored, stream.Limits()) if is_gzip else stored
        try:
            while len(content) < READ and (piece := source.read(READ - len(content))):
                content += piece
        except EnvelopeError:
            pass  # as far as it could be expanded
    return rewrite.blocks(content, environ.get("CONTENT_TYPE", ""))


@message.command("trace")
@in_store
@click.argument("which", metavar="MESSAGE", shell_complete=completing.values("a position"))
def message_trace(place: Place, which: str) -> None:
    """Show the way of a message over the nodes.

    MESSAGE is a position, the id that its sender gave it, or its origin: NODE/INCARNATION/POSITION, as this command
    shows it. All nodes of the configuration are asked at once, and have ten seconds; each tells what this one's token
    may peek there.

    \b
    Example: wsrm-mq message trace 42
             wsrm-mq message trace shop/5f1c09aa4be2d310/42
    """
    from wsrm_mq.client import neighbours
    from wsrm_mq.queue import routing, tracing

    with place.one_look() as db:
        here, (origin, own) = routing.node_name(db).name, _found(db, which)
    with closing(neighbours.Neighbours(place.settings, "wsrm-mq")) as others:
        told = {} if origin is None else others.trace(origin)
    away = [{"node": name, "why": str(one)} for name, one in told.items() if isinstance(one, WSRMError)]
    answers = {here: own, **{name: one for name, one in told.items() if not isinstance(one, WSRMError)}}
    nothing = [name for name, stops in answers.items() if not stops]
    if len(nothing) == len(answers) and not away:
        nodes = ", ".join(nothing)
        raise NotFound(f"{origin} is not known at {nodes}: retention has deleted it, or this token may not peek it.")
    way = sorted(
        ((node, one) for node, stops in answers.items() for one in stops), key=lambda two: tracing.in_order(two[1])
    )
    rows = [{"node": node, **vars(one), "since": round(one.since * 1000)} for node, one in way]
    if place.is_json:
        as_json(origin=origin, stops=rows, nothing=nothing, away=away)
        return
    write(origin or "It was put here, and goes to no other node.")
    columns = ("hop", end_of("node"), end_of("queue"), word("state"), "reason", when("since"), end_of("next_hop"))
    table((*columns, key("position"), Column("holder", rank=1)), rows)
    for row in rows:
        if row["error"]:
            say(f"{row['node']}: {row['error']}")
    ask = f"ask there yourself: `wsrm-mq message trace {quote(origin or which)}`."
    for one in away:
        say(f"{one['node']} does not answer as it should: {one['why']} It may have the message; {ask}")
    if rows and (next_hop := rows[-1]["next_hop"]) and rows[-1]["state"] == "delivered":
        addresses = [address_of(place.settings, name) for name, one in place.settings.nodes.items() if one.url]
        why = "no section [node.NAME] here has its address: add one, with a token that may peek there, or"
        if next_hop in addresses:
            why = "does not tell this one what became of it:"
        say(f"The node at {next_hop} has taken it, and {why} {ask}")


def _found(db: port.Database, which: str) -> tuple[str | None, list[tracing.Stop]]:
    """The origin of a message, and its places in this store. Raises ``NotFound``, and ``NotAllowed`` for an id that
    several have."""
    from wsrm_mq.queue import tracing
    from wsrm_mq.views import message_sentences

    origin = tracing.parsed(which)
    try:
        found = [tracing.at(db, position) for position in message_sentences.positions_of(db, which)]
    except NotFound as error:
        if origin is None:
            asks = "ask at the node where it was put, or name its origin: NODE/INCARNATION/POSITION."
            raise NotFound(f"{error} Has another node had it, {asks}") from None
        return which, tracing.stops(db, origin)
    origins = {trace or one.position: trace for trace, one in found}
    if len(origins) > 1:
        named = ", ".join(str(one.position) for _trace, one in found)
        raise NotAllowed(f"{which} is the id of several messages: name one by its position: {named}.")
    (trace,) = origins.values()
    known = None if trace is None else tracing.parsed(trace)
    return trace, [found[0][1]] if known is None else tracing.stops(db, known)
