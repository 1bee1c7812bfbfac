"""The commands of queues at a queue server: each is what its token may, and says what it says of a store."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import click

from wsrm_mq.cli.acts import ask, will
from wsrm_mq.cli.output import as_json, result
from wsrm_mq.cli.place import POSITION
from wsrm_mq.cli.queue import in_short, tell_peeked, tell_policy, tell_queues, tell_stats
from wsrm_mq.cli.queue_acts import give, given, take, tell_bound, tell_cleared, tell_declared, tell_unbound
from wsrm_mq.cli.topic import tell_published
from wsrm_mq.errors import NotAllowed, NotFound

if TYPE_CHECKING:
    from wsrm_mq.client.node import RemoteNode
    from wsrm_mq.node import message


def list_queues(node: RemoteNode, is_json: bool) -> None:
    rows, names = [], node.keys()
    for name in names:
        try:
            had: dict[str, Any] = in_short(node.stats(name))
        except NotAllowed:  # another right shows that it is there
            had = dict.fromkeys(("ready", "held", "leased", "dead", "bytes", "oldest_at"))
        rows.append({"queue": name, "kind": None, "declared": True, **had})
    tell_queues(is_json, rows)


def show(node: RemoteNode, is_json: bool, name: str) -> None:
    from wsrm_mq.queue import policies

    had, policy = node.stats(name), policies.as_values(node.policy(name))
    consumers = [
        {"client": one.name, "pid": one.pid, "state": one.state} for one in node.clients() if name in one.queues
    ]
    head = {"queue": name, "kind": None, "declared": True}
    if is_json:
        as_json(**head, policy=policy, **in_short(had), pace=None, consumers=consumers, topics=None)
        return
    who = [f"{one['client']}, {one['state']}" for one in consumers]
    tell_policy({"queue": name, **in_short(had), "subscribed": who or "no program"}, policy)


def stats(node: RemoteNode, is_json: bool, name: str) -> None:
    tell_stats(is_json, name, node.stats(name))


def peek(
    node: RemoteNode,
    is_json: bool,
    name: str,
    query: str,
    after: int,
    limit: int,
    wanted: str | None,
    output: Path | None,
) -> None:
    position = POSITION(query) if query.isdecimal() else None
    if query and position is None:
        raise click.UsageError("At a --server messages are chosen by --filter, or one by its position.")
    if position is None:
        if output is not None:
            raise click.UsageError("--output is for the body of one message: name its position.")
        seen = node.peek(name, after=after, limit=limit, filter=wanted)
        tell_peeked(is_json, [_facts(one) for one in seen], limit)
        return
    found = node.get(name, position)
    if found is None:
        raise NotFound(f"{name} has no message at position {position} now.")
    give(is_json, found.body, _facts(found), output)


def _facts(one: message.Message) -> dict[str, Any]:
    told = {name: getattr(one, name) for name in ("position", "message_id", "type", "state", "reason", "priority")}
    return {**told, "deliveries": one.deliveries, "received_at": round(one.received_at * 1000), "size": len(one.body)}


def put(node: RemoteNode, is_json: bool, name: str, file: BinaryIO, **options: Any) -> None:
    position = node.put(name, file.read(), timeout=0, **given(options))
    result(is_json, {"queue": name, "position": position, "dry_run": False})


def publish(node: RemoteNode, is_json: bool, name: str, file: BinaryIO, mandatory: bool, **options: Any) -> None:
    tell_published(is_json, name, node.publish(name, file.read(), mandatory=mandatory, **given(options)))


def get(node: RemoteNode, is_json: bool, name: str, **how: Any) -> None:
    take(node, is_json, name, **how)


def declare(node: RemoteNode, is_json: bool, name: str, options: dict[str, Any]) -> None:
    from wsrm_mq.queue import policies

    names = node.keys()
    is_new = name not in names
    tell_declared(is_json, name, is_new, policies.as_values(node.declare(name, **options)))


def bind(node: RemoteNode, is_json: bool, name: str, pattern: str, wanted: str | None) -> None:
    node.bind(pattern, name, filter=wanted)
    tell_bound(is_json, name, pattern, wanted)


def unbind(node: RemoteNode, is_json: bool, name: str, pattern: str) -> None:
    count = node.unbind(pattern, name)
    if not count:
        raise NotFound(f"Nothing of the pattern {pattern} leads into {name}.")
    tell_unbound(is_json, name, pattern, count)


def purge(node: RemoteNode, is_json: bool, name: str, yes: bool, lower: int, upper: int | None) -> None:
    _asked(f"purge {name} at the server", yes)
    tell_cleared(is_json, name, node.purge(name, lower, upper))


def delete(node: RemoteNode, is_json: bool, name: str, yes: bool, if_empty: bool, if_unused: bool, force: bool) -> None:
    _asked(f"delete {name} at the server", yes)
    tell_cleared(is_json, name, node.delete(name, if_empty=if_empty, if_unused=if_unused, force=force))


def _asked(what: str, yes: bool) -> None:
    if not yes:
        will(what, False)
    ask("", yes)


def redrive(
    node: RemoteNode, is_json: bool, query: str, everything: bool, yes: bool, to: str | None, counts: str
) -> None:
    queue, positions = _letters(query, everything)
    _asked(f"deliver dead letters of {queue} again", yes)
    _acted(is_json, "redrive", node.dead(queue).redrive(positions, to=to, reset=counts == "reset"))


def discard(node: RemoteNode, is_json: bool, query: str, everything: bool, yes: bool) -> None:
    queue, positions = _letters(query, everything)
    _asked(f"give up dead letters of {queue}", yes)
    _acted(is_json, "discard", node.dead(queue).discard(positions))


def _letters(query: str, everything: bool) -> tuple[str, list[int] | None]:
    """The queue that the words of a query name, and the positions; ``None``: all of it."""
    words = query.split()
    queues = [word.removeprefix("queue:") for word in words if word.startswith("queue:")]
    positions = [int(word) for word in words if word.isdecimal()]
    if len(queues) != 1 or len(words) != 1 + len(positions):
        raise click.UsageError("At a --server name the queue, as queue:orders, and positions; without them all go.")
    if everything and positions:
        raise NotAllowed("say which: positions, or --all; one of these.")
    return queues[0], positions or None


def _acted(is_json: bool, act: str, count: int) -> None:
    document = {"act": act, "messages": count, "done": count, "refusals": 0, "dry_run": False}
    result(is_json, {**document, "refused": []} if is_json else document)
