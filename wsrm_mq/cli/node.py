"""``wsrm-mq node``, and ``queue list --scope``: the other nodes of the configuration, what they offer, and what waits
for them."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from wsrm_mq.cli import completing
from wsrm_mq.cli.acts import actor_option, dry_run_option, login, will
from wsrm_mq.cli.explain import show_steps
from wsrm_mq.cli.hops import address_of
from wsrm_mq.cli.output import Column, as_json, end_of, listing, prose, result, rows_of, say, when
from wsrm_mq.cli.place import Place, config_option, configured, in_store, json_option, now_ms, one_look
from wsrm_mq.cli.queue_acts import done
from wsrm_mq.errors import NotFound
from wsrm_mq.views.words import moment

if TYPE_CHECKING:
    from wsrm_mq.node.neighbours import Reach
    from wsrm_mq.store.transaction import Transaction

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
    from wsrm_mq.client.neighbours import Neighbours

    with closing(Neighbours(configured(config), "wsrm-mq")) as others:
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
    from wsrm_mq.queue.routing import node_name
    from wsrm_mq.views import outgoing

    now = now_ms()
    there = None if which is None else address_of(place.settings, which)
    with one_look(place) as db:
        here, is_sent = node_name(db), outgoing.is_forwarding(db)
        found = [one for one in outgoing.next_nodes(db) if there in (None, one.next_hop)]
        waiting = {one.next_hop: outgoing.waiting_for(db, one.next_hop, _LISTED) for one in found}
    if there is not None and not found:
        raise NotFound(f"No route leads to {there}, and nothing waits for it: `wsrm-mq route list` has the routes.")
    if place.is_json:
        as_json(
            **{"node": here.name, "incarnation": here.incarnation or None, "is_forwarding": is_sent},
            next_nodes=[
                {
                    **one._asdict(),
                    "sentence": outgoing.told_of_node(one, now, is_sent=is_sent),
                    "next_steps": [step._asdict() for step in place.offered(outgoing.steps_for_node(one))],
                }
                for one in found
            ],
            waiting=[{"next_hop": to, **each._asdict()} for to, those in waiting.items() for each in those],
        )
        return
    say(f"This is {here.name}.")
    for one in found:
        prose(outgoing.told_of_node(one, now, is_sent=is_sent))
        if waiting[one.next_hop]:
            columns = ("position", end_of("target"), when("stored", "stored_at"), "tries", Column("error", rank=1))
            rows_of(columns, waiting[one.next_hop])
        show_steps(place, outgoing.steps_for_node(one), {})
    if not found:
        say("No route leads to another node: `wsrm-mq route add` makes one.")


@node.command()
@in_store
@click.argument("name", required=False)
@dry_run_option
@actor_option
def name(place: Place, name: str | None, dry_run: bool, actor: str | None) -> None:
    """Name this node.

    Messages that it sends say where they are from; without NAME it says how it is named. Other nodes know a message
    by the node's name and the position there: the name stays as it is once messages went. A node without one gets
    node_name of the configuration, or that of its host and its store, with its first route.

    \b
    Example: wsrm-mq node name east
    """
    from wsrm_mq.queue.routing import name_node, node_name

    if name is not None:

        def verb(tx: Transaction) -> None:
            name_node(tx, name)
            tx.add_ledger("node_named", None, actor=actor or login(), reason=name)

        done(place, verb, dry_run)
        will(f"name this node {name}", dry_run) if dry_run else say(f"This is {name} now.")
    with one_look(place) as db:
        here = node_name(db)
    result(place.is_json, {"node": here.name, "incarnation": here.incarnation or None, "dry_run": dry_run})


def list_offers(place: Place, reach: Reach) -> None:
    """The queues that the nodes of a site, or of the enterprise, offer: of this one as its store has them."""
    from wsrm_mq.client.neighbours import Neighbours
    from wsrm_mq.node.neighbours import offer
    from wsrm_mq.queue import browsing, declaring, routing

    now = now_ms()
    with one_look(place) as db:
        here = routing.node_name(db).name
        own = [
            offer(name, scope, browsing.stats(db, declaring.read(db, name), now), here, now / 1000)
            for name, scope in browsing.scopes(db).items()
        ]
    with closing(Neighbours(place.settings, "wsrm-mq")) as others:
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
    listing(place.is_json, "queues", rows, (*columns, when("oldest", "oldest_at", rank=1)), away=away)
    for one in () if place.is_json else away:
        say(f"{one['node']} does not answer, {moment(one['since'])}: {one['why']}")
