"""``wsrm-mq topic``, ``subscription``, ``client`` and ``journal``: where what is published goes, who consumes, what
waits for each, and what became of what came."""

from __future__ import annotations

from shlex import quote
from typing import TYPE_CHECKING, Any, BinaryIO, Final

import click

from wsrm_mq.acts import others
from wsrm_mq.cli import completing
from wsrm_mq.cli.acts import Care, acting, committed, named
from wsrm_mq.cli.output import Column, as_json, end_of, facts, key, prose, result, say, when, word, write
from wsrm_mq.cli.place import Place, in_store, now_ms, over_network, paged
from wsrm_mq.cli.queue import connect_to, message_options, note
from wsrm_mq.cli.queue_acts import clear, filter_option, given, name_argument
from wsrm_mq.errors import NotAllowed, NotFound, UnknownQueue, Unrouted
from wsrm_mq.views.words import counted

if TYPE_CHECKING:
    from wsrm_mq.queue import clearing, declaring, topics
    from wsrm_mq.store import transaction
    from wsrm_mq.views import queues


class _Seconds(click.ParamType):  # type: ignore[type-arg]
    name = "SECONDS"

    def convert(self, value: Any, parameter: click.Parameter | None, context: click.Context | None) -> float | None:
        return None if value == "none" else click.FloatRange(0).convert(value, parameter, context)


@click.group()
def topic() -> None:
    """See which queues topics lead into, and publish. A topic is `bucket/event`; in a pattern * is one level of it, and
    # at the end all that follows."""


@topic.command("list")
@in_store
@click.option("--topic", "asked", metavar="TOPIC", help="Only where a message of this topic would go.")
def list_(place: Place, asked: str | None) -> None:
    """List the patterns of topics, and the queues of each.

    \b
    Example: wsrm-mq topic list
             wsrm-mq topic list --topic orders/placed
    """
    from wsrm_mq.queue import topics
    from wsrm_mq.views import queues

    if asked is not None:
        topics.check_topic(asked)
    with place.one_look() as db:
        found = [one for one in queues.bindings(db) if asked is None or topics.matches(one.pattern, asked)]
    columns = (Column("pattern", 40), Column("filter", rank=1), end_of("queue"), Column("kind", rank=2))
    place.listing("bindings", found, (*columns, when("bound", "created_at", rank=3)))


@topic.command()
@over_network("publish")
@in_store
@click.argument("name", metavar="TOPIC")
@click.argument("file", type=click.File("rb"))
@click.option("--mandatory", is_flag=True, help="Fail where no queue takes it.")
@message_options
@named
def publish(place: Place, name: str, file: BinaryIO, mandatory: bool, care: Care, **options: Any) -> None:
    """Publish a file to a topic as one message.

    FILE may be - for standard input. Where no queue takes it, the ledger says so.

    \b
    Example: wsrm-mq topic publish orders/placed order.xml --mandatory
    """
    with place.looking():
        pass
    try:
        with connect_to(place, care.actor) as node:
            done = node.publish(name, file.read(), mandatory=mandatory, **given(options))
            note(node, "published", done.position, care.actor, name)
    except Unrouted as error:
        raise Unrouted(_untaken(name)) from error
    tell_published(place.is_json, name, done)


def tell_published(is_json: bool, topic: str, done: topics.Published) -> None:
    result(is_json, {"topic": topic, "position": done.position, "queues": list(done.queues)})
    if done.position is None:
        say(f"{_untaken(topic)} Nothing of the message is kept.")


def _untaken(topic: str) -> str:
    return f"No queue takes what is published to {topic}: `wsrm-mq queue bind QUEUE {quote(topic)}` leads it there."


@topic.command()
@in_store
@acting
@click.argument("pattern")
@click.argument("seconds", type=_Seconds())
def retain(place: Place, care: Care, pattern: str, seconds: float | None) -> None:
    """Keep what is published to topics, to be replayed, for so long.

    Whether a queue takes it or not. SECONDS may be `none`: for ever. 0: nothing any more, and what is kept is given
    up; there is no way back.

    \b
    Example: wsrm-mq topic retain "orders/#" 86400 --reason "for the audit"
             wsrm-mq topic retain "orders/#" 0 --reason "not wanted"
    """
    from wsrm_mq.queue import clearing, retaining

    why = care.why()

    def first(tx: transaction.Transaction) -> clearing.Part:
        return retaining.retain(tx, pattern, seconds, actor=why["actor"], why=why["reason"])

    def would(tx: transaction.Transaction) -> clearing.Cleared:
        log = retaining.log_of(tx, pattern) if seconds == 0 else None
        found = clearing.Cleared(0) if log is None else clearing.tally(tx, log)
        first(tx)  # it may be refused
        return found

    def says(cleared: clearing.Cleared) -> str:
        if seconds == 0:
            return f"keep nothing of {pattern}: {counted(cleared.settled, 'message')} given up"
        lasts = "for ever" if seconds is None else f"for {seconds:g} seconds"
        return f"keep what is published to {pattern} {lasts}"

    done = committed(place, care, would, says, lambda: clearing.in_parts(place.run, first, clearing.purge_deleted))
    place.result({"pattern": pattern, "retain": seconds, "given_up": done.settled, "dry_run": care.dry_run})


_LISTED: Final = "`wsrm-mq subscription list` has those that there are."
subscription_argument = click.argument(
    "name", metavar="SUBSCRIPTION", shell_complete=completing.values("a subscription")
)


@click.group()
def subscription() -> None:
    """See who consumes. A durable subscription collects what is published while its client is away; its name is that of
    its queue."""


@subscription.command("list")
@in_store
def subscriptions(place: Place) -> None:
    """List durable subscriptions, and who consumes queues now.

    \b
    Example: wsrm-mq subscription list
    """
    from wsrm_mq.views import queues

    with place.one_look() as db:
        found, its = queues.subscriptions(db), {one.queue: one for one in queues.consumed(db)}
    columns = (
        *(end_of("queue"), "pattern", Column("filter", rank=2), "client", word("state")),
        Column("messages", of=lambda row: row.get("messages")),
        *(Column("backlog", rank=1), when("seen", "seen_at", rank=1)),
    )
    place.listing("subscriptions", [_subscription(one, its.get(one.queue)) for one in found], columns)


@subscription.command("show")
@in_store
@subscription_argument
def show_subscription(place: Place, name: str) -> None:
    """Show a durable subscription, and what waits for it.

    \b
    Example: wsrm-mq subscription show shop/thanks
    """
    from wsrm_mq.views import queues

    with place.one_look() as db:
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
        as_json(subscription=_subscription(one, its), next_steps=place.offered(steps))
        return
    facts(_subscription(one, its))
    write("")
    prose(f"{queues.told_of(its)[:1].upper()}{queues.told_of(its)[1:]}.")
    place.show_steps(steps)


def _subscription(one: queues.Subscription, its: queues.Consumed | None) -> dict[str, Any]:
    shown = ("name", "client", "pid", "pattern", "filter", "backlog", "state", "seen_at")
    waits = {} if its is None else {"messages": its.messages, "bytes": its.bytes, "next_at": its.next_at}
    return {"queue": one.queue, **{field: getattr(one, field) for field in shown}, **waits}


@subscription.command()
@in_store
@acting
@subscription_argument
@click.option("--force", is_flag=True, help="Also where its client has leased something.")
def drop(place: Place, care: Care, name: str, force: bool) -> None:
    """End a durable subscription.

    What waits for it is given up. There is no way back; its client makes it anew when it subscribes again.

    \b
    Example: wsrm-mq subscription drop shop/thanks --reason "shop is no more"
    """
    from wsrm_mq.queue import clearing, express, topics

    def first(tx: transaction.Transaction, found: declaring.Declared) -> clearing.Part:
        if found.kind != topics.KIND:
            raise NotAllowed(f"{found.name} is a queue, and no durable subscription: {_LISTED}")
        return express.delete(tx, found, force=force)

    clear(place, care, name, "subscription_dropped", "drop", first, clearing.purge_deleted)


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
    from wsrm_mq.store import driver

    with place.one_look() as db:
        found = topics.clients(db, driver.instances_of(driver.file_of(db)), now_ms())
    columns = (
        *(key("client", "name"), Column("process", of="pid"), word("state"), when("seen", "seen_at")),
        *(Column("queues", keeps_end=True, whole=", ".join), Column("patterns", rank=1, whole=", ".join)),
    )
    rows = [{**one._asdict(), "seen_at": int(one.seen_at * 1000)} for one in found]
    place.listing("clients", rows, columns)


@click.group()
def journal() -> None:
    """See what came into queues, and what became of it. `queue declare QUEUE journal=true` has that recorded."""


@journal.command("list")
@in_store
def journals(place: Place) -> None:
    """List the journals of the store.

    \b
    Example: wsrm-mq journal list
    """
    from wsrm_mq.views import queues

    with place.one_look() as db:
        found = queues.journals(db)
    columns = (end_of("queue"), end_of("journal"), "messages", "bytes", when("last", "last_at", rank=1))
    place.listing("journals", found, columns)


@journal.command("show")
@in_store
@name_argument
@paged
@filter_option
def show_journal(place: Place, name: str, after: int, limit: int, wanted: str | None) -> None:
    """Show what came into a queue, with its outcome.

    Each message that its journal has; what it records is at OF.

    \b
    Example: wsrm-mq journal show orders
             wsrm-mq journal show orders --filter "outcome = 'dead'"
    """
    from wsrm_mq.queue import browsing, declaring, filters, journaling

    with place.one_look() as db:
        try:
            found = declaring.read(db, f"{name}#journal")
        except UnknownQueue:
            makes = f"`wsrm-mq queue declare {quote(name)} journal=true` makes it."
            raise NotFound(f"There is no journal of {name}: {makes}") from None
        seen = browsing.peek(db, found, now_ms(), after, limit, None if wanted is None else filters.parse(wanted))
        recorded = journaling.recorded(db, [one.seen.position for one in seen])
    rows = [
        {
            **{"position": one.position, "message_id": one.message_id, "type": one.type, "of": of.position},
            **{"outcome": of.outcome, "reason": of.reason},
            **{"received_at": one.received_at, "settled_at": of.settled_at},
        }
        for one, of in ((one.seen, recorded[one.seen.position]) for one in seen)
    ]
    columns = (key("position"), "message_id", end_of("type"), key("of"), word("outcome"), "reason")
    times = (when("received", "received_at", rank=2), when("settled", "settled_at", rank=1))
    place.listing("records", rows, (*columns, *times), limit=limit)
