"""``wsrm-mq message explain``, ``attempts`` and ``headers``: what happened to one message, and what it came with."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

import click

from wsrm_mq.cli import completing
from wsrm_mq.cli.explain import show_steps
from wsrm_mq.cli.failure import attempt_lines, shown_place
from wsrm_mq.cli.output import Column, as_json, end_of, fields, prose, rows_of, say, when, word, write
from wsrm_mq.cli.place import POSITION, Place, in_store, looking, now_ms, one_look

if TYPE_CHECKING:
    from wsrm_mq.envelope.rewrite import Block

READ: Final = 1024 * 1024
"""The most bytes of an envelope, expanded, that are read for its headers."""
_PLAIN: Final = {"CONTENT_TYPE": "Content-Type"}
_SECURITY: Final = "Security"


@click.command("attempts")
@in_store
@click.argument("position", type=POSITION, shell_complete=completing.values("a position"))
@click.option("--limit", type=click.IntRange(1, 1_000), default=20, show_default=True, help="At most so many.")
def message_attempts(place: Place, position: int, limit: int) -> None:
    """Show the attempts to deliver a message that failed.

    The whole error of the last one is below.

    \b
    Example: wsrm-mq message attempts 42
    """
    from wsrm_mq.views import reading
    from wsrm_mq.views.failures import attempts

    with one_look(place) as db:
        found = reading.message(db, position).view
        listed = attempts(db, position=position, limit=limit)
    if place.is_json:
        state = {"state": found.state, "reason": found.reason, "deliveries": found.deliveries}
        as_json(position=position, **state, attempts=[one._asdict() for one in listed])
        return
    fields({"state": found.state, "reason": found.reason, "deliveries": found.deliveries}.items())
    if not listed:
        say("No attempt of it went wrong.")
        return
    write("")
    columns = (when("at"), word("event"), Column("attempt", None), "fault", end_of("exception"))
    rows_of((*columns, Column("place", keeps_end=True, short=shown_place), Column("instance", rank=1)), listed)
    write("")
    attempt_lines(listed[0])
    if len(listed) == limit:
        say(f"There may be more: --limit {limit * 2}")


@click.command("explain")
@in_store
@click.argument("which", metavar="MESSAGE", shell_complete=completing.values("a position"))
def message_explain(place: Place, which: str) -> None:
    """Say why a message moves or does not, and what to do.

    MESSAGE is a position, or the id that its sender gave it; that may be in several queues.

    \b
    Example: wsrm-mq message explain 42
             wsrm-mq message explain order-4711
    """
    from wsrm_mq.views import reading
    from wsrm_mq.views.message_sentences import explained, positions_of

    with one_look(place) as db:
        found = [reading.message(db, position) for position in positions_of(db, which)]
        why = [explained(db, one, now_ms()) for one in found]
    told = [(one.view, because) for one, because in zip(found, why, strict=True)]
    if place.is_json:
        names = ("position", "queue", "message_id", "state", "reason")
        as_json(
            messages=[
                {
                    **{name: getattr(view, name) for name in names},
                    "sentence": because.sentence,
                    "next_steps": [step._asdict() for step in place.offered(because.steps)],
                }
                for view, because in told
            ]
        )
        return
    for view, because in told:
        prose(f"{view.state}: position {view.position} in {view.queue}. {because.sentence}")
        show_steps(place, because.steps, {})


@click.command("headers")
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

    with looking(place) as db:
        found = reading.message(db, position)
    environ = json.loads(found.environ)
    http = {_header(name): value for name, value in environ.items() if name in _PLAIN or name.startswith("HTTP_")}
    soap = _blocks(place, position, environ) if found.has_body else []
    told = [one if is_open or one.name != _SECURITY else one._replace(text="") for one in soap]
    if place.is_json:
        as_json(position=position, http=http, soap=[one._asdict() for one in told], has_body=found.has_body)
        return
    fields(http.items())
    write("")
    fields((one.name, one.text or "(not shown; --with-security shows it)") for one in told)
    if not found.has_body:
        say("Its envelope was freed by retention.")


def _header(name: str) -> str:
    return _PLAIN.get(name) or name.removeprefix("HTTP_").replace("_", "-").title()


def _blocks(place: Place, position: int, environ: dict[str, Any]) -> list[Block]:
    from wsrm_mq.envelope.rewrite import blocks
    from wsrm_mq.envelope.stream import Limits, content_coding, expand
    from wsrm_mq.errors import EnvelopeError
    from wsrm_mq.store.entries import body_at

    content = b""
    with looking(place) as db, body_at(db, position) as stored:
        is_gzip = content_coding(environ.get("HTTP_CONTENT_ENCODING", "")) == "gzip"
        source = expand(stored, Limits()) if is_gzip else stored
        try:
            while len(content) < READ and (piece := source.read(READ - len(content))):
                content += piece
        except EnvelopeError:
            pass  # as far as it could be expanded
    return blocks(content, environ.get("CONTENT_TYPE", ""))
