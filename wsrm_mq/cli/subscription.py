"""``wsrm-mq subscription`` and ``client``: who consumes, what waits for each, and who is gone."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import click

from wsrm_mq.cli import completing
from wsrm_mq.cli.acts import Care, acting
from wsrm_mq.cli.explain import show_steps
from wsrm_mq.cli.output import Column, as_json, end_of, facts, key, listing, prose, when, word, write
from wsrm_mq.cli.place import Place, in_store, now_ms, one_look
from wsrm_mq.cli.queue_acts import Clear, clear
from wsrm_mq.errors import NotAllowed, NotFound

if TYPE_CHECKING:
    from wsrm_mq.queue.clearing import Cleared
    from wsrm_mq.queue.declaring import Declared
    from wsrm_mq.store.transaction import Transaction
    from wsrm_mq.views.queues import Consumed, Subscription

_LISTED: Final = "`wsrm-mq subscription list` has those that there are."
name_argument = click.argument("name", metavar="SUBSCRIPTION", shell_complete=completing.values("a subscription"))


@click.group()
def subscription() -> None:
    """See who consumes. A durable subscription collects what is published while its client is away; its name is that of
    its queue."""


@subscription.command("list")
@in_store
def list_(place: Place) -> None:
    """List durable subscriptions, and who consumes queues now.

    \b
    Example: wsrm-mq subscription list
    """
    from wsrm_mq.views import queues

    with one_look(place) as db:
        found, its = queues.subscriptions(db), {one.queue: one for one in queues.consumed(db)}
    columns = (
        *(end_of("queue"), "pattern", Column("filter", rank=2), "client", word("state")),
        Column("messages", of=lambda row: row.get("messages")),
        *(Column("backlog", rank=1), when("seen", "seen_at", rank=1)),
    )
    listing(place.is_json, "subscriptions", [_document(one, its.get(one.queue)) for one in found], columns)


@subscription.command()
@in_store
@name_argument
def show(place: Place, name: str) -> None:
    """Show a durable subscription, and what waits for it.

    \b
    Example: wsrm-mq subscription show shop/thanks
    """
    from wsrm_mq.acts import others
    from wsrm_mq.views import queues
    from wsrm_mq.views.queues import told_of

    with one_look(place) as db:
        durable = [one for one in queues.subscriptions(db) if one.queue == name and one.pattern is not None]
        its = next((one for one in queues.consumed(db) if one.queue == name), None)
    if not durable or its is None:
        raise NotFound(f"There is no durable subscription {name}: {_LISTED}")
    (one,) = durable
    steps = (
        others.PEEK.step("what waits for it", name),
        others.DROP.step("it collects nothing more, and what it has is given up", name),
    )
    if place.is_json:
        as_json(subscription=_document(one, its), next_steps=[step._asdict() for step in place.offered(steps)])
        return
    facts(_document(one, its))
    write("")
    prose(f"{told_of(its)[:1].upper()}{told_of(its)[1:]}.")
    show_steps(place, steps, {})


def _document(one: Subscription, its: Consumed | None) -> dict[str, Any]:
    shown = ("name", "client", "pid", "pattern", "filter", "backlog", "state", "seen_at")
    waits = {} if its is None else {"messages": its.messages, "bytes": its.bytes, "next_at": its.next_at}
    return {"queue": one.queue, **{field: getattr(one, field) for field in shown}, **waits}


@subscription.command()
@in_store
@acting
@name_argument
@click.option("--force", is_flag=True, help="Also where its client has leased something.")
def drop(place: Place, care: Care, name: str, force: bool) -> None:
    """End a durable subscription.

    What waits for it is given up. There is no way back; its client makes it anew when it subscribes again.

    \b
    Example: wsrm-mq subscription drop shop/thanks --reason "shop is no more"
    """
    from wsrm_mq.queue import clearing, express
    from wsrm_mq.queue.topics import KIND

    def check(tx: Transaction, found: Declared) -> None:
        if found.kind != KIND:
            raise NotAllowed(f"{found.name} is a queue, and no durable subscription: {_LISTED}")
        if not force:
            clearing.refuse_busy(tx, found, if_empty=False)
            express.refuse_kept(tx, found)

    def rest(tx: Transaction, found: Declared) -> Cleared:
        return express.delete(tx, found, force=force)

    clear(place, care, name, Clear("subscription_dropped", "drop", "queue_deleted", rest, check, takes_leased=force))


@click.group()
def client() -> None:
    """See which programs consume."""


@client.command("list")
@in_store
def clients(place: Place) -> None:
    """List the programs that have subscribed, by name.

    Each with its queues and patterns, and whether it lives.

    \b
    Example: wsrm-mq client list
    """
    from wsrm_mq.queue import topics
    from wsrm_mq.store.driver import file_of, instances_of

    with one_look(place) as db:
        found = topics.clients(db, instances_of(file_of(db)), now_ms())
    columns = (
        *(key("client", "name"), Column("process", of="pid"), word("state"), when("seen", "seen_at")),
        *(Column("queues", keeps_end=True, whole=", ".join), Column("patterns", rank=1, whole=", ".join)),
    )
    rows = [{**one._asdict(), "seen_at": int(one.seen_at * 1000)} for one in found]
    listing(place.is_json, "clients", rows, columns)
