"""``wsrm-mq route``: which node is next for messages to queues that are elsewhere."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import click

from wsrm_mq.cli import completing
from wsrm_mq.cli.acts import Care, acting, actor_option, carry_out, changed, dry_run_option, login, will
from wsrm_mq.cli.hops import address_of, hops_of, way_of
from wsrm_mq.cli.output import Column, Exit, as_json, end_of, facts, key, listing, result, say, when
from wsrm_mq.cli.place import Place, in_store, looking, one_look
from wsrm_mq.cli.queue_acts import done
from wsrm_mq.errors import NotFound
from wsrm_mq.views.words import counted

if TYPE_CHECKING:
    from wsrm_mq.store.transaction import Transaction

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
@dry_run_option
@actor_option
def add(place: Place, pattern: str, next_hop: str, cost: int, strip: bool, dry_run: bool, actor: str | None) -> None:
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

    def verb(tx: Transaction) -> None:
        routing.settle_name(tx, place.settings.node_name)
        routing.add_route(tx, pattern, there, cost, strip=strip, actor=actor or login())

    done(place, verb, dry_run)
    would, did = f"lead {pattern} to {there}", f"{pattern} leads to {there}."
    changed(place.is_json, dry_run, would, did, pattern=pattern, next_hop=there, cost=cost, strip=strip)


@route.command("list")
@in_store
def list_(place: Place) -> None:
    """List the routes, the cheapest first.

    \b
    Example: wsrm-mq route list
    """
    from wsrm_mq.queue import routing

    with one_look(place) as db:
        found = routing.routes(db)
    names = ("pattern", "next_hop", "cost", "strip", "away_since")
    rows = [{name: getattr(one, name) for name in names} for one in found]
    columns = (key("pattern"), end_of("next hop", "next_hop"), "cost", Column("strip", rank=1))
    listing(place.is_json, "routes", rows, (*columns, when("away since", "away_since")))
    if not (found or place.is_json):
        say('There are no routes: `wsrm-mq route add "north/*" https://north/rm` makes one.')


@route.command()
@in_store
@click.argument("queue")
@click.pass_context
def test(context: click.Context, place: Place, queue: str) -> None:
    """Say where a message to a queue would go.

    The next node is asked whether it takes messages of this one; nothing is put. The exit status is 1 where the next
    node does not answer as one.

    \b
    Example: wsrm-mq route test north/orders
    """
    from wsrm_mq.queue.routing import node_name
    from wsrm_mq.routes.hops import ask

    with one_look(place) as db:
        own, (is_here, found) = node_name(db).name, way_of(db, queue)
    if not is_here and found is None:
        raise NotFound(
            f"There is no queue {queue} here, and no route is for it: `wsrm-mq route list` has those that there are."
        )
    answer: dict[str, Any] = {"queue": queue, "here": is_here}
    if found is not None:
        why = ask(found.next_hop, hops_of(place.settings).get(found.next_hop), own)
        answer |= {"pattern": found.pattern, "next_hop": found.next_hop, "sent_as": found.sent_as(queue)}
        answer |= {"cost": found.cost, "away_since": found.away_since, "answers": why is None, "why": why}
    if place.is_json:
        as_json(**answer)
    else:
        facts(answer)
    context.exit(Exit.OK if answer.get("answers", True) else Exit.FAILED)


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

    def act(tx: Transaction) -> tuple[list[str], rerouting.Rerouted]:
        dropped, went = routing.drop_route(tx, pattern, there, **why), rerouting.reroute_waiting(tx)
        if not dropped and not any(went):
            raise NotFound(f"There is no such route of {pattern}: `wsrm-mq route list` has those that there are.")
        return dropped, went

    def do(is_dry: bool) -> tuple[list[str], int, int]:
        def whole(tx: Transaction) -> tuple[list[str], list[rerouting.Rerouted]]:
            dropped, went = act(tx)
            return dropped, [went, *iter(partial(rerouting.reroute_waiting, tx), rerouting.Rerouted())]

        if is_dry:
            dropped, parts = place.run(whole, dry_run=True)
        else:
            dropped, went = place.run(act)
            go_on = partial(place.run, rerouting.reroute_waiting)
            parts = [went, *iter(go_on, rerouting.Rerouted())]
        return dropped, sum(one.moved for one in parts), sum(one.dead for one in parts)

    def tell(acted: tuple[list[str], int, int] | None) -> None:
        dropped, moved, dead = acted or ([], 0, 0)
        text = f"drop {counted(len(dropped), 'route')} of {pattern}; of what waits {moved} go by another route"
        will(f"{text}, and {counted(dead, 'is a dead letter', 'are dead letters')}", care.dry_run)

    with looking(place):
        pass
    dropped, moved, dead = carry_out(place, care, do, tell)
    result(
        place.is_json,
        {"pattern": pattern, "dropped": dropped, "rerouted": moved, "dead": dead, "dry_run": care.dry_run},
    )
