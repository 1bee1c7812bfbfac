"""``--server`` and ``--token``: what a command does in a store it does at a queue server too, where it can."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from importlib import import_module
from typing import Any, Final

import click

_OF_STORES: Final = ("store", "config", "scope", "dry_run", "actor", "reason")
"""The options that are only for a store on this machine."""


def over_network(function: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Give a command ``--server`` and ``--token``: with them the ``function`` of ``cli.far`` is called, with a node of
    the server and whether JSON is wanted."""

    def decorate(command: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(command)
        def placed(*args: Any, server: str | None, token: str | None, **options: Any) -> Any:
            if server is None:
                return command(*args, **options)
            given = [name for name in _OF_STORES if options.pop(name, None)]
            if given:
                raise click.UsageError(f"--{given[0].replace('_', '-')} is for a store here, not for a --server.")
            from wsrm_mq.client import connect

            if not server.startswith(("http://", "https://")):
                raise click.UsageError(f"{server!r} is no address of a queue server: it is https://HOST/PATH.")
            with connect(server, "wsrm-mq", token=token or "") as node:
                return getattr(import_module("wsrm_mq.cli.far"), function)(node, *args, **options)

        secret = click.option(
            "--token", metavar="TOKEN", envvar="WSRM_QUEUE_TOKEN", help="For the server. Default: $WSRM_QUEUE_TOKEN."
        )
        where = click.option("--server", metavar="URL", help="At this queue server, in place of a store here.")
        return where(secret(placed))

    return decorate
