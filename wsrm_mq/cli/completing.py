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
    from wsrm_mq.store import port

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
    from wsrm_mq.views import query as queries

    given = context.params.get(parameter.name or "") or ()
    words: list[str] = given.split() if isinstance(given, str) else list(given)
    if begun == ":" and words:
        return _offered(context, words[-1], "")
    if len(words) > 1 and words[-1] == ":":
        return _offered(context, words[-2], begun)
    key, colon, value = begun.partition(":")
    if colon and key in queries.KEYS:
        return [CompletionItem(f"{key}:{item.value}") for item in _offered(context, key, value)]
    keys = [CompletionItem(f"{name}:", help=of.help) for name, of in queries.KEYS.items() if name.startswith(begun)]
    return keys + (_offered(context, "seq", begun) if begun else [])


def _offered(context: click.Context, key: str, begun: str) -> list[CompletionItem]:
    try:
        beginning = (name for name in _names(context, key, begun) if name.startswith(begun))
        return [CompletionItem(name) for name in islice(beginning, MOST)]
    except Exception:  # whatever is wrong, a command that is run says so
        return []


def _names(context: click.Context, key: str, begun: str) -> Iterable[str]:
    from wsrm_mq.store import driver, store
    from wsrm_mq.views import query as queries

    if key in queries.KEYS and queries.KEYS[key].words:
        yield from queries.KEYS[key].words
    elif key in ("partner", "a node"):
        settings = _settings(context)
        yield from settings.partners if key == "partner" else settings.nodes
    elif read := _readers().get(key):
        with closing(driver.connect_looker(store.store_path(_settings(context).store), may_copy=False)) as db:
            yield from read(db, begun)


def _settings(context: click.Context) -> Settings:
    from wsrm_mq.cli import place

    return place.configured(context.params.get("config"), context.params.get("store"))


def _sequences(db: port.Database, begun: str) -> Iterator[str]:
    """Identifiers of sequences, the newest first; without their scheme, as bash takes a colon for the end of a word."""
    from wsrm_mq.views import naming

    part = begun.removeprefix(_SCHEME)
    shown = begun[: len(begun) - len(part)]
    return (shown + name.removeprefix(_SCHEME) for name in naming.names(db, part, MOST))


def _positions(outcome: str | None, db: port.Database, _begun: str) -> Iterator[str]:
    from wsrm_mq.views import query as queries
    from wsrm_mq.views import reading

    found = islice(reading.messages(db, queries.parse("", outcome=outcome)), LOOKED_AT)
    return (str(one.position) for one in found)


def _readers() -> dict[str, Callable[[port.Database, str], Iterable[str]]]:
    """A reader for each kind of names: it answers those of a store that begin as typed, and may answer others too."""
    from wsrm_mq.queue import routing
    from wsrm_mq.server import tokens
    from wsrm_mq.views import naming, queues, rows

    return {
        "seq": _sequences,
        "queue": lambda db, begun: naming.queues(db, begun, MOST),
        "connection": lambda db, begun: rows.names_from(db, begun),
        "a plan": lambda db, _begun: (one.id for one in rows.plans(db)),
        "a subscription": lambda db, _begun: (one.queue for one in queues.subscriptions(db) if one.pattern is not None),
        "a token": lambda db, _begun: (one.name for one in tokens.listed(db)),
        "a route": lambda db, _begun: dict.fromkeys(one.pattern for one in routing.routes(db)),
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

    from wsrm_mq import cli

    script = get_completion_class(shell)
    assert script is not None
    click.echo(script(cli.program, {}, "wsrm-mq", "_WSRM_MQ_COMPLETE").source())
