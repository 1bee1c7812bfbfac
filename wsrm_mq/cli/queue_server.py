"""``wsrm-mq queue-server``: the queues of a store for programs on other machines; and what ``serve --queues`` adds."""

from __future__ import annotations

import os
import signal
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from wsrm_mq.cli.exits import Exit
from wsrm_mq.cli.listening import Listener
from wsrm_mq.cli.output import say, write
from wsrm_mq.cli.place import config_option
from wsrm_mq.cli.serve import DRAIN_SECONDS, bounds_of, offered, spare_the_collector, tls_options
from wsrm_mq.serving.logs import log_to_stderr

if TYPE_CHECKING:
    from wsrm_mq.server.mounting import Mounted

MANY: Final = 10_000
"""Connections, where the configuration says nothing of them: consumers that wait have one each."""


@click.command("queue-server")
@config_option
@click.option("--host", help="Address to listen on.  [default: 127.0.0.1]")
@click.option("--port", type=int, help="Port; 0 takes a free one.  [default: 8080]")
@click.option("--store", metavar="PATH", help="The store.  [default: wsrm.db]")
@tls_options
@click.option("--stomp-port", type=int, help="Speak STOMP too, on this port; 0: any.")
@click.option("--stomp-websocket-port", type=int, help="The same over WebSockets.")
@click.option("--log-level", help="debug, info, warning or error.")
@click.option("--log-format", help="text, or json: one object a line.")
@click.pass_context
def queue_server(context: click.Context, /, config: Path | None, **flags: Any) -> None:
    """Offer the queues of a store to programs on other machines, which show a token of `wsrm-mq token add`.

    The address is written to standard output. On one that other machines reach there has to be a token, and TLS here or
    in a proxy. SIGTERM and Ctrl-C stop it when what runs is finished.

    \b
    Example: wsrm-mq queue-server --store wsrm.db --port 8090
    """
    from wsrm_mq.config.loading import find_file, read
    from wsrm_mq.events.telling import tell

    given = {name: value for name, value in flags.items() if value is not None}
    loaded = read(config or find_file(os.environ), os.environ, **given)
    settings = loaded.settings
    if loaded.origins["max_connections"] == "default":
        settings = settings.replace(max_connections=MANY)
    log_to_stderr(settings.log_level, settings.log_format)
    served = offered(settings, settings.store)
    listener = Listener(settings.host, settings.port, settings.tls_certificate, settings.tls_key)
    spare_the_collector()
    stopped_by, all_answered = listener.run(
        served,
        announce=lambda url: write(f"wsrm-mq: serving {url}"),
        ending=partial(_ending, served),
        drain_seconds=DRAIN_SECONDS,
        bounds=bounds_of(settings, tell),
        tell=tell,
    )
    if not all_answered:
        say("wsrm-mq: some requests were cut off; their clients will ask again.")
    context.exit(Exit.INTERRUPTED if stopped_by == signal.SIGINT else Exit.OK)


def _ending(served: Mounted) -> None:
    say("wsrm-mq: stopping; what runs is finished first.")
    served.ending()
