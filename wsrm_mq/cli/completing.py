"""The words that a shell offers to complete a line: names that the store has, and the words of a query.

A key that is pressed must never show an error, wait, or cost much: where the store cannot be read there is nothing to
offer, and of what it has a few names are read by an index.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

import click
from click.shell_completion import CompletionItem

if TYPE_CHECKING:
    from wsrm_mq.config import Settings
    from wsrm_mq.store.port import Database

MOST: Final = 50
"""The most names that are offered."""

LOOKED_AT: Final = 1_000
"""Messages are looked at for positions that begin so."""

_SCHEME: Final = "urn:uuid:"


def values(key: str) -> Any:
    """The completion of what this key of a query means, or of other names that the store or the configuration has: of
    ``a plan``, ``a node`` and so on."""
    return lambda context, _parameter, begun: _offered(context, key, begun)


def query(context: click.Context, parameter: click.Parameter, begun: str) -> list[CompletionItem]:
    """A word of a query: its key, then its value; or a sequence. bash, which takes a colon for a word, is offered the
    value alone."""
    from wsrm_mq.views.query import KEYS

    given = context.params.get(parameter.name or "") or ()
    words: list[str] = given.split() if isinstance(given, str) else list(given)
    if begun == ":" and words:
        return _offered(context, words[-1], "")
    if len(words) > 1 and words[-1] == ":":
        return _offered(context, words[-2], begun)
    key, colon, value = begun.partition(":")
    if colon and key in KEYS:
        return [CompletionItem(f"{key}:{item.value}") for item in _offered(context, key, value)]
    keys = [CompletionItem(f"{name}:", help=of.help) for name, of in KEYS.items() if name.startswith(begun)]
    return keys + (_offered(context, "seq", begun) if begun else [])


def _offered(context: click.Context, key: str, begun: str) -> list[CompletionItem]:
    try:
        return [CompletionItem(name) for name in islice(_names(context, key, begun), MOST)]
    except Exception:  # whatever is wrong, a command that is run says so
        return []


def _names(context: click.Context, key: str, begun: str) -> Iterator[str]:
    from wsrm_mq.views.query import KEYS

    if key in KEYS and KEYS[key].words:
        yield from _beginning(KEYS[key].words, begun)
    elif key == "partner":
        yield from _beginning(_settings(context).partners, begun)
    elif key == "a node":
        yield from _beginning(_settings(context).nodes, begun)
    elif key in _STORED:
        from wsrm_mq.store.driver import connect_looker
        from wsrm_mq.store.store import store_path

        with closing(connect_looker(store_path(_settings(context).store), may_copy=False)) as db:
            yield from _STORED[key](db, begun)


def _beginning(words: Iterable[str], begun: str) -> Iterator[str]:
    return (word for word in words if word.startswith(begun))


def _settings(context: click.Context) -> Settings:
    from wsrm_mq.cli.place import configured

    return configured(context.params.get("config"), context.params.get("store"))


def _sequences(db: Database, begun: str) -> Iterator[str]:
    """Identifiers of sequences, the newest first; without their scheme, as bash takes a colon for the end of a word."""
    from wsrm_mq.views.reading import names

    part = begun.removeprefix(_SCHEME)
    shown = begun[: len(begun) - len(part)]
    return (shown + name.removeprefix(_SCHEME) for name in names(db, part, MOST))


def _queues(db: Database, begun: str) -> Iterator[str]:
    from wsrm_mq.views.reading import queues

    return iter(queues(db, begun, MOST))


def _connections(db: Database, begun: str) -> Iterator[str]:
    from wsrm_mq.views.rows import names_from

    return names_from(db, begun)


def _plans(db: Database, begun: str) -> Iterator[str]:
    from wsrm_mq.views.rows import plans

    return _beginning((one.id for one in plans(db)), begun)


def _subscriptions(db: Database, begun: str) -> Iterator[str]:
    from wsrm_mq.views.queues import subscriptions

    return _beginning((one.queue for one in subscriptions(db) if one.pattern is not None), begun)


def _tokens(db: Database, begun: str) -> Iterator[str]:
    from wsrm_mq.server.tokens import listed

    return _beginning((one.name for one in listed(db)), begun)


def _routes(db: Database, begun: str) -> Iterator[str]:
    from wsrm_mq.queue.routing import routes

    return _beginning(dict.fromkeys(one.pattern for one in routes(db)), begun)


def _positions(outcome: str | None, db: Database, begun: str) -> Iterator[str]:
    from wsrm_mq.views.query import parse
    from wsrm_mq.views.reading import messages

    found = islice(messages(db, parse("", outcome=outcome)), LOOKED_AT)
    return _beginning((str(one.position) for one in found), begun)


_STORED: Final[dict[str, Callable[[Database, str], Iterator[str]]]] = {
    "seq": _sequences,
    "queue": _queues,
    "connection": _connections,
    "a plan": _plans,
    "a subscription": _subscriptions,
    "a token": _tokens,
    "a route": _routes,
    "a position": partial(_positions, None),
    "a dead letter": partial(_positions, "dead"),
}


# the script


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> None:
    """Print a completion script for a shell.

    \b
    Example: eval "$(wsrm-mq completion bash)"
    """
    from click.shell_completion import get_completion_class

    from wsrm_mq.cli import program

    script = get_completion_class(shell)
    assert script is not None
    click.echo(script(program, {}, "wsrm-mq", "_WSRM_MQ_COMPLETE").source())
