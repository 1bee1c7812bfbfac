"""``wsrm-mq source``: the requests that programs of this side send reliably, what waits of them, and why."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, BinaryIO, Final

import click

from wsrm_mq.acts import sequences
from wsrm_mq.cli.acts import Care, acting, committed
from wsrm_mq.cli.output import Column, as_json, end_of, facts, say, table, when, word, write
from wsrm_mq.cli.place import Asking, Place, in_store, now_ms, query_argument
from wsrm_mq.errors import BadRequest, NotFound, Pending
from wsrm_mq.views.words import counted

if TYPE_CHECKING:
    from wsrm_mq.store import port, transaction
    from wsrm_mq.views import requests

_LISTED: Final = 50
"""The most requests of a sequence that are shown."""
to_argument: Final = click.argument("to", metavar="URL")


@click.group()
def source() -> None:
    """See the requests that are sent reliably, and repair what is stuck."""


def _found(db: port.Database, to: str | None) -> list[requests.Requests]:
    from wsrm_mq.views import requests

    found = requests.all_requests(db, to)
    if to is not None and not found:
        raise NotFound(f"No request was sent to {to}: `wsrm-mq source list` has the destinations that there are.")
    return found


@source.command("list", cls=Asking)
@in_store
@query_argument
def list_(place: Place, query: str) -> None:
    """List the destinations of requests, with what waits for each.

    QUERY says which: words such as partner.example op:place age:1h, and one request has to fit all of them. A word
    without a key is a part of the address, or of the sequence's name.

    \b
    Example: wsrm-mq source list
    """
    from wsrm_mq.views import requests

    with place.one_look() as db:
        found = requests.all_requests(db, query=place.query(query))
    columns = (end_of("to"), word("state"), "sent", "acknowledged", "waiting", "dead", when("since"))
    more = (when("next", "next_at", rank=1), Column("error", rank=2))
    place.listing("requests", found, (*columns, *more), document=_document)


@source.command()
@in_store
@to_argument
def show(place: Place, to: str) -> None:
    """Show the sequences to a destination.

    Each with the requests that wait.

    URL is that of the destination, or the name of a sequence, also of that which replies come in.

    \b
    Example: wsrm-mq source show https://partner.example/orders
    """
    from wsrm_mq.views import requests

    with place.one_look() as db:
        found = _found(db, to)
        waiting = {one.key: requests.waiting_of(db, one, _LISTED) for one in found}
    if place.is_json:
        told = [{"sequence": one.sequence, **each._asdict()} for one in found for each in waiting[one.key]]
        as_json(requests=[_document(one) for one in found], waiting=told)
        return
    columns = ("number", "message_id", Column("action", rank=1), when("stored", "stored_at"))
    for one in found:
        facts(_document(one))
        write("")
        table((*columns, "tries", Column("error", rank=2)), waiting[one.key])


@source.command()
@in_store
@click.argument("to", metavar="[URL]", required=False)
def explain(place: Place, to: str | None) -> None:
    """Say why requests wait, and what can be done about it.

    \b
    Example: wsrm-mq source explain
    """
    from wsrm_mq.store import applications
    from wsrm_mq.views import requests

    now = now_ms()
    with place.one_look() as db:
        live = applications.served(db)
        found = [(one, requests.is_sent(one, live)) for one in _found(db, to)]
    told = []
    for one, is_sent in found:
        text = requests.told_of_requests(one, now, is_sent=is_sent)
        its = {"to": one.to, "sequence": one.sequence, "explanation": text}
        told.append((its, text, requests.steps_for_requests(one, is_sent=is_sent)))
    place.explain("explanations", told)
    if not (told or place.is_json):
        say("No request waits, and none was given up.")


def _document(one: requests.Requests) -> dict[str, Any]:
    return {field: value for field, value in one._asdict().items() if field != "key"}


@source.command()
@in_store
@click.argument("file", type=click.File("rb"))
@click.option("--to", metavar="URL", required=True, help="Where it goes.")
@click.option("--action", metavar="URI", help="Its wsa:Action, where it has none.")
@click.option("--rm", type=click.Choice(["1.0", "1.1", "1.2"]), default="1.1", help="The version. Default: 1.1.")
@click.option(
    "--acks-to", metavar="URL", help="Where to listen for what the partner says. Default: it says it on responses."
)
@click.option("--polls", is_flag=True, help="Fetch what the partner does not say on responses (MakeConnection).")
@click.option("--ask", "is_asked", is_flag=True, help="It is replied to: wait for the reply, and write it out.")
@click.option(
    "--wait", metavar="SECONDS", type=click.FloatRange(0), default=10.0, help="How long to wait. Default: 10."
)
def send(
    place: Place,
    file: BinaryIO,
    to: str,
    action: str | None,
    rm: str,
    acks_to: str | None,
    polls: bool,
    is_asked: bool,
    wait: float,
) -> None:
    """Send a SOAP envelope reliably. FILE is the envelope, - for standard input.

    It is stored first. What is not acknowledged in time stays there, and is sent by the next program that sends from
    the store, or by the next `source send`.

    \b
    Example: wsrm-mq source send order.xml --to https://partner.example/orders
    """
    from wsrm_mq.source import source as sending

    with sending.RMSource(place.path, rm=rm, acks_to=acks_to, polls=polls) as sender:
        given = sender.ask if is_asked else sender.send
        try:
            sent, reply = given(file.read(), to=to, action=action), None
        except BadRequest as error:
            raise BadRequest(str(error).replace("send(…, action=…)", "`--action URI`")) from None
        try:
            if is_asked:
                reply = sender.reply(sent, wait)
            else:
                sender.wait(sent, wait)
            is_through = True
        except Pending:
            is_through = False
            say(f"{sent.message_id} is stored and waits: `wsrm-mq source explain` says why.")
    if reply is not None and not place.is_json:
        sys.stdout.buffer.write(reply.content)
        sys.stdout.flush()
    done = {"message_id": sent.message_id, "position": sent.position, "acknowledged": is_through}
    if place.is_json:
        as_json(**done, reply=None if reply is None else reply.content.decode("utf-8", "replace"))
    elif reply is None and is_through:
        write(f"{sent.message_id} is acknowledged.")


def _act(name: str, does: str, help: str) -> None:
    example = f"wsrm-mq source {name} https://partner.example/orders --reason TEXT"

    @source.command(name, help=f"{help}\n\n\b\nExample: {example}")
    @in_store
    @acting
    @to_argument
    def command(place: Place, care: Care, to: str) -> None:
        from wsrm_mq.replay import acts

        why = care.why()

        def verb(tx: transaction.Transaction) -> int:
            from wsrm_mq.source import acts as own_acts

            return own_acts.act(tx, name, to, **why)

        count = committed(place, care, verb, lambda count: f"{does.format(to=to)} ({counted(count, 'sequence')})")
        if not care.dry_run:
            acts.do_remainder(place.path, sequences.bury)
        place.result({"to": to, "sequences": count, "dry_run": care.dry_run})


for _name, _does, _help in (
    (
        "hold",
        "send nothing more to {to} until it is resumed",
        "Send nothing more until it is resumed. What programs send meanwhile is stored, and waits.",
    ),
    ("resume", "send to {to} again", "Send again what is held."),
    (
        "resend",
        "send what waits for {to} again now",
        "Send again now what waits for its next try. A host that was away is tried too, as a program's try_now does.",
    ),
    (
        "close",
        "close the sequences to {to}; what the destination does not have goes on in another one",
        "Close the sequences to a destination. It says then what it has, and the rest goes on in another one.",
    ),
    (
        "terminate",
        "end the sequences to {to}; what is not acknowledged becomes dead letters",
        "End the sequences to a destination. What is not acknowledged is given up, as dead letters.",
    ),
):
    _act(_name, _does, _help)
