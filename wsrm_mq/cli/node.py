"""``wsrm-mq node`` and ``route``: the other nodes of the configuration, what they offer, what waits for them, and
which is next for messages to queues that are elsewhere. ``[node.NAME]`` has the address of each, and how it knows this
one."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from wsrm_mq.cli import completing
from wsrm_mq.cli.acts import Care, acting, changed, committed, done, tried
from wsrm_mq.cli.output import Column, Exit, as_json, end_of, facts, key, listing, prose, say, table, when
from wsrm_mq.cli.place import Place, config_option, configured, in_store, json_option, now_ms
from wsrm_mq.errors import NotFound
from wsrm_mq.views.words import counted, moment

if TYPE_CHECKING:
    from wsrm_mq.config import Settings
    from wsrm_mq.node import neighbours as offering
    from wsrm_mq.queue import rerouting, routing
    from wsrm_mq.routes import sending
    from wsrm_mq.store import port, transaction


def address_of(settings: Settings, said: str) -> str:
    """Where the next node takes messages that is named by that address, or by its section. Raises ``NotFound``."""
    if "/" in said:
        return said
    node = settings.nodes.get(said)
    if node is None or node.url is None:
        raise NotFound(
            f"{said} is neither the address of a node, such as https://{said}/rm, nor a section [node.{said}] of the "
            "configuration with a url."
        )
    return f"{node.url.rstrip('/')}/rm"


def way_of(db: port.Database, queue: str) -> tuple[bool, routing.Route | None]:
    """Whether this node has the queue, and else the route of what is put there."""
    from wsrm_mq.queue import routing
    from wsrm_mq.store import queues

    is_here = db.execute(queues.QUEUE_ROW, {"name": queue}).fetchone() is not None
    return is_here, None if is_here else routing.choose(routing.routes(db), queue)


def hops_of(settings: Settings) -> dict[str, sending.Hop]:
    """The next nodes of the configuration, by their addresses. Raises ``ConfigurationError`` where the environment
    lacks a token."""
    from wsrm_mq.routes import sending

    hops = {}
    for name, one in settings.nodes.items():
        token = one.token(name)
        if one.url is not None:
            hops[address_of(settings, name)] = sending.Hop(token, one.certificate, one.ca)
    return hops


_LISTED: Final = 50
"""The most messages for one next node that are shown."""


@click.group()
def node() -> None:
    """See the other nodes of the site and the enterprise, and what waits for them; name this one."""


@node.command("list")
@config_option
@json_option
def list_(config: Path | None, is_json: bool) -> None:
    """List the other nodes, and whether they answer.

    They are those of the configuration. All are asked at once, and have three seconds.

    \b
    Example: wsrm-mq node list
    """
    from wsrm_mq.client import neighbours

    with closing(neighbours.Neighbours(configured(config), "wsrm-mq")) as others:
        near, answered = others.of("site"), others.look()
    rows = [
        {
            **{"node": one.name, "scope": "site" if one.name in near else "enterprise"},
            **{"site": others.nodes[one.name].site, "url": others.nodes[one.name].url},
            **{"reachable": one.away is None, "queues": len(one.offers) if one.away is None else None},
            **{"milliseconds": round(one.seconds * 1000), "why": None if one.away is None else one.away.why},
        }
        for one in answered
    ]
    if not (rows or is_json):
        say("There are no other nodes; a section [node.NAME] of the configuration makes one.")
        return
    listing(is_json, "nodes", rows, (end_of("node"), "scope", "site", "url", "reachable", "queues"))
    for row in rows:
        if not (row["reachable"] or is_json):
            say(f"{row['node']} does not answer as it should: {row['why']}")


@node.command()
@in_store
@click.argument("which", metavar="[URL|NODE]", required=False, shell_complete=completing.values("a node"))
def show(place: Place, which: str | None) -> None:
    """Show what waits for each next node.

    Since when, and what failed.

    \b
    Example: wsrm-mq node show
             wsrm-mq node show https://north.example:8090/rm
    """
    from wsrm_mq.queue import routing
    from wsrm_mq.views import next_nodes

    now = now_ms()
    there = None if which is None else address_of(place.settings, which)
    with place.one_look() as db:
        here, is_sent = routing.node_name(db), next_nodes.is_forwarding(db)
        found = [one for one in next_nodes.next_nodes(db) if there in (None, one.next_hop)]
        waiting = {one.next_hop: next_nodes.waiting_for(db, one.next_hop, _LISTED) for one in found}
    if there is not None and not found:
        raise NotFound(f"No route leads to {there}, and nothing waits for it: `wsrm-mq route list` has the routes.")
    if place.is_json:
        as_json(
            **{"node": here.name, "incarnation": here.incarnation or None, "is_forwarding": is_sent},
            next_nodes=[
                {
                    **one._asdict(),
                    "sentence": next_nodes.told_of_node(one, now, is_sent=is_sent),
                    "next_steps": place.offered(next_nodes.steps_for_node(one)),
                }
                for one in found
            ],
            waiting=[{"next_hop": to, **each._asdict()} for to, those in waiting.items() for each in those],
        )
        return
    say(f"This is {here.name}.")
    for one in found:
        prose(next_nodes.told_of_node(one, now, is_sent=is_sent))
        if waiting[one.next_hop]:
            columns = ("position", end_of("target"), when("stored", "stored_at"), "tries", Column("error", rank=1))
            table(columns, waiting[one.next_hop])
        place.show_steps(next_nodes.steps_for_node(one))
    if not found:
        say("No route leads to another node: `wsrm-mq route add` makes one.")


@node.command()
@in_store
@click.argument("name", required=False)
@tried
def name(place: Place, name: str | None, care: Care) -> None:
    """Name this node.

    Messages that it sends say where they are from; without NAME it says how it is named. Other nodes know a message
    by the node's name and the position there: the name stays as it is once messages went. A node without one gets
    node_name of the configuration, or that of its host and its store, with its first route.

    \b
    Example: wsrm-mq node name east
    """
    from wsrm_mq.queue import routing

    if name is not None:

        def verb(tx: transaction.Transaction) -> None:
            routing.name_node(tx, name)
            tx.add_ledger("node_named", None, actor=care.actor, reason=name)

        done(place, care, verb)
        changed(False, care.dry_run, f"name this node {name}", f"This is {name} now.")
    with place.one_look() as db:
        here = routing.node_name(db)
    place.result({"node": here.name, "incarnation": here.incarnation or None, "dry_run": care.dry_run})


def list_offers(place: Place, reach: offering.Reach) -> None:
    """The queues that the nodes of a site, or of the enterprise, offer: of this one as its store has them."""
    from wsrm_mq.client import neighbours
    from wsrm_mq.node import neighbours as offering
    from wsrm_mq.queue import browsing, declaring, routing

    now = now_ms()
    with place.one_look() as db:
        here = routing.node_name(db).name
        own = [
            offering.offer(name, scope, browsing.stats(db, declaring.read(db, name), now), here, now / 1000)
            for name, scope in browsing.scopes(db).items()
        ]
    with closing(neighbours.Neighbours(place.settings, "wsrm-mq")) as others:
        found = others.offers(reach)
    rows: list[dict[str, Any]] = [
        {**one._asdict(), "oldest_at": None if one.oldest_at is None else round(one.oldest_at * 1000)}
        for one in (*own, *found)
    ]
    for row in rows:
        row["as_of"] = round(row["as_of"] * 1000)
        del row["away_since"]
    away: list[dict[str, Any]] = [
        {"node": name, "since": round(one.since * 1000), "why": one.why} for name, one in found.away.items()
    ]
    columns = (end_of("queue"), "node", Column("scope", rank=1), "ready", "held", "leased", "dead")
    place.listing("queues", rows, (*columns, when("oldest", "oldest_at", rank=1)), away=away)
    for one in () if place.is_json else away:
        say(f"{one['node']} does not answer, {moment(one['since'])}: {one['why']}")


pattern_argument = click.argument("pattern", shell_complete=completing.values("a route"))


@click.group()
def route() -> None:
    """Say which node is next for messages to queues that are elsewhere. In a pattern * stands for any characters."""


@route.command()
@in_store
@click.argument("pattern")
@click.argument("next_hop", metavar="URL|NODE", shell_complete=completing.values("a node"))
@click.option("--cost", type=click.IntRange(0, 999_999), default=1, help="The cheapest is taken.  [default: 1]")
@click.option("--strip", is_flag=True, help="It arrives without what stands before the first *.")
@tried
def add(place: Place, pattern: str, next_hop: str, cost: int, strip: bool, care: Care) -> None:
    """Lead messages to another node.

    What is put into queues that are not here goes there. It is named by the address of its /rm, or by its section of
    the configuration, [node.NODE], which has how it knows this one. A route that is there gets the cost. With routes
    a put makes no queue any more.

    \b
    Example: wsrm-mq route add "north/*" https://north.example:8090/rm
             wsrm-mq route add "*" north --cost 5
    """
    from wsrm_mq.queue import routing

    there = address_of(place.settings, next_hop)

    def verb(tx: transaction.Transaction) -> None:
        routing.settle_name(tx, place.settings.node_name)
        routing.add_route(tx, pattern, there, cost, strip=strip, actor=care.actor)

    done(place, care, verb)
    would, did = f"lead {pattern} to {there}", f"{pattern} leads to {there}."
    changed(place.is_json, care.dry_run, would, did, pattern=pattern, next_hop=there, cost=cost, strip=strip)


@route.command("list")
@in_store
def list_routes(place: Place) -> None:
    """List the routes, the cheapest first.

    \b
    Example: wsrm-mq route list
    """
    from wsrm_mq.queue import routing

    with place.one_look() as db:
        found = routing.routes(db)
    names = ("pattern", "next_hop", "cost", "strip", "away_since")
    rows = [{name: getattr(one, name) for name in names} for one in found]
    columns = (key("pattern"), end_of("next hop", "next_hop"), "cost", Column("strip", rank=1))
    place.listing("routes", rows, (*columns, when("away since", "away_since")))
    if not (found or place.is_json):
        say('There are no routes: `wsrm-mq route add "north/*" https://north/rm` makes one.')


@route.command()
@in_store
@click.argument("queue")
def test(place: Place, queue: str) -> None:
    """Say where a message to a queue would go.

    The next node is asked whether it takes messages of this one; nothing is put. The exit status is 1 where the next
    node does not answer as one.

    \b
    Example: wsrm-mq route test north/orders
    """
    from wsrm_mq.queue import routing
    from wsrm_mq.routes import hops as asking

    with place.one_look() as db:
        own, (is_here, found) = routing.node_name(db).name, way_of(db, queue)
    if not is_here and found is None:
        raise NotFound(
            f"There is no queue {queue} here, and no route is for it: `wsrm-mq route list` has those that there are."
        )
    answer: dict[str, Any] = {"queue": queue, "here": is_here}
    if found is not None:
        why = asking.ask(found.next_hop, hops_of(place.settings).get(found.next_hop), own)
        answer |= {"pattern": found.pattern, "next_hop": found.next_hop, "sent_as": found.sent_as(queue)}
        answer |= {"cost": found.cost, "away_since": found.away_since, "answers": why is None, "why": why}
    if place.is_json:
        as_json(**answer)
    else:
        facts(answer)
    if not answer.get("answers", True):
        raise click.exceptions.Exit(Exit.FAILED)


@route.command()
@in_store
@acting
@pattern_argument
@click.option(
    "--to",
    "next_hop",
    metavar="URL|NODE",
    help="Only the route to this node.",
    shell_complete=completing.values("a node"),
)
def drop(place: Place, care: Care, pattern: str, next_hop: str | None) -> None:
    """Drop the routes of a pattern.

    What waits for their next nodes goes by another route, and is a dead letter where there is none. It goes in
    parts; where that was interrupted, the next time goes on.

    \b
    Example: wsrm-mq route drop "north/*" --reason "north is closed"
    """
    from wsrm_mq.queue import rerouting, routing

    why = care.why()
    there = None if next_hop is None else address_of(place.settings, next_hop)

    def act(tx: transaction.Transaction) -> tuple[list[str], rerouting.Rerouted]:
        dropped, went = routing.drop_route(tx, pattern, there, **why), rerouting.reroute_waiting(tx)
        if not dropped and not any(went):
            raise NotFound(f"There is no such route of {pattern}: `wsrm-mq route list` has those that there are.")
        return dropped, went

    def go(call: Callable[[Callable[[transaction.Transaction], Any]], Any]) -> tuple[list[str], int, int]:
        dropped, went = call(act)
        parts = [went, *iter(partial(call, rerouting.reroute_waiting), rerouting.Rerouted())]
        return dropped, sum(one.moved for one in parts), sum(one.dead for one in parts)

    def says(acted: tuple[list[str], int, int]) -> str:
        dropped, moved, dead = acted
        text = f"drop {counted(len(dropped), 'route')} of {pattern}; of what waits {moved} go by another route"
        return f"{text}, and {counted(dead, 'is a dead letter', 'are dead letters')}"

    whole = committed(place, care, lambda tx: go(lambda verb: verb(tx)), says, lambda: go(place.run))
    dropped, moved, dead = whole
    place.result({"pattern": pattern, "dropped": dropped, "rerouted": moved, "dead": dead, "dry_run": care.dry_run})
