"""``wsrm-mq topic``: where what is published goes, and publishing."""

from __future__ import annotations

from shlex import quote
from typing import TYPE_CHECKING, Any, BinaryIO

import click

from wsrm_mq.cli.acts import Care, acting, actor_option, committed
from wsrm_mq.cli.network import over_network
from wsrm_mq.cli.output import Column, end_of, listing, result, say, when
from wsrm_mq.cli.place import Place, in_store, one_look
from wsrm_mq.cli.queue_messages import message_options, put_by_hand
from wsrm_mq.errors import Unrouted
from wsrm_mq.views.words import counted

if TYPE_CHECKING:
    from wsrm_mq.queue.topics import Published
    from wsrm_mq.store.transaction import Transaction


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
    from wsrm_mq.queue.topics import check_topic, matches
    from wsrm_mq.views.queues import bindings

    if asked is not None:
        check_topic(asked)
    with one_look(place) as db:
        found = [one for one in bindings(db) if asked is None or matches(one.pattern, asked)]
    columns = (Column("pattern", 40), Column("filter", rank=1), end_of("queue"), Column("kind", rank=2))
    listing(place.is_json, "bindings", found, (*columns, when("bound", "created_at", rank=3)))


@topic.command()
@over_network("publish")
@in_store
@click.argument("name", metavar="TOPIC")
@click.argument("file", type=click.File("rb"))
@click.option("--mandatory", is_flag=True, help="Fail where no queue takes it.")
@message_options
@actor_option
def publish(place: Place, name: str, file: BinaryIO, mandatory: bool, actor: str | None, **options: Any) -> None:
    """Publish a file to a topic as one message.

    FILE may be - for standard input. Where no queue takes it, the ledger says so.

    \b
    Example: wsrm-mq topic publish orders/placed order.xml --mandatory
    """
    from wsrm_mq.node import Node

    def published(node: Node, body: bytes, wished: dict[str, Any]) -> tuple[Published, int | None]:
        done = node.publish(name, body, mandatory=mandatory, **wished)
        return done, done.position

    try:
        done = put_by_hand(place, file, actor, "published", name, published, options)
    except Unrouted as error:
        raise Unrouted(_untaken(name)) from error
    tell_published(place.is_json, name, done)


def tell_published(is_json: bool, topic: str, done: Published) -> None:
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
    from wsrm_mq.queue import retaining

    why = care.why()
    lasts = "for ever" if seconds is None else f"for {seconds:g} seconds"

    def act(tx: Transaction) -> int:
        log = retaining.log_of(tx, pattern)
        given_up = retaining.retain(tx, pattern, seconds)
        kept = log if seconds == 0 else retaining.log_of(tx, pattern)
        if kept is not None:
            event = "queue_deleted" if seconds == 0 else "queue_declared"
            tx.add_ledger(event, kept.key, **{**why, "reason": f"{pattern} {lasts}: {why['reason']}"})
        return given_up

    def says(given_up: int) -> str:
        if seconds == 0:
            return f"keep nothing of {pattern}: {counted(given_up, 'message')} given up"
        return f"keep what is published to {pattern} {lasts}"

    given_up = committed(place, care, act, says)
    answer = {"pattern": pattern, "retain": seconds, "given_up": given_up, "dry_run": care.dry_run}
    result(place.is_json, answer)
