"""``wsrm-mq``: serve, look, repair. Each command lives in its own module and is imported when it is run."""

from __future__ import annotations

import errno
from collections.abc import Mapping
from importlib import import_module
from typing import Any, Final

import click

from wsrm_mq.cli.output import stopped

__all__ = ["main", "program"]

COMMANDS: Final = {
    "serve": ("wsrm_mq.cli.serve", "Serve a SOAP service (WSGI or ASGI), made reliable."),
    "queue-server": ("wsrm_mq.cli.serve", "Offer queues to programs on other machines."),
    "demo": ("wsrm_mq.cli.demo", "See it work: a service, a partner, a bad line."),
    "status": ("wsrm_mq.cli.status", "Show on one screen how the service does."),
    "check": ("wsrm_mq.cli.check", "Be a plug-in of Nagios: 0, 1, 2 or 3."),
    "doctor": ("wsrm_mq.cli.doctor", "Examine processes, proxy, clock and store."),
    "store": ("wsrm_mq.cli.store", "Make, migrate, measure and verify a store."),
    "sequence": ("wsrm_mq.cli.sequence", "Find out why a sequence is stuck, and repair it."),
    "message": ("wsrm_mq.cli.message", "Look at messages, try them again, give them up."),
    "queue": ("wsrm_mq.cli.queue", "See queues, put messages there and take them."),
    "source": ("wsrm_mq.cli.source", "See what is sent, and why it waits."),
    "route": ("wsrm_mq.cli.node", "Lead messages to queues of other nodes."),
    "node": ("wsrm_mq.cli.node", "See other nodes, and what waits for them."),
    "topic": ("wsrm_mq.cli.topic", "See where topics lead, and publish to them."),
    "subscription": ("wsrm_mq.cli.topic", "See who consumes, and who is gone."),
    "client": ("wsrm_mq.cli.topic", "See which programs consume."),
    "journal": ("wsrm_mq.cli.topic", "See what came into queues, and its outcome."),
    "dead-letter": ("wsrm_mq.cli.dead_letter", "Deliver dead letters again, or give them up."),
    "token": ("wsrm_mq.cli.token", "Let programs on other machines use the queues."),
    "audit": ("wsrm_mq.cli.history", "See what operators did."),
    "replay": ("wsrm_mq.cli.replay", "Deliver stored messages again, by a plan."),
    "archive": ("wsrm_mq.cli.archive", "Let retention delete what archives hold."),
    "pipeline": ("wsrm_mq.cli.divided", "Audit many stores at once, with Spark."),
    "failure": ("wsrm_mq.cli.history", "See what went wrong, by fault, exception and place."),
    "connection": ("wsrm_mq.cli.history", "See what came on which connection."),
    "partner": ("wsrm_mq.cli.configuration", "See the partners, and check what an endpoint speaks."),
    "envelope": ("wsrm_mq.cli.envelope", "Decode a message as it was on the wire."),
    "config": ("wsrm_mq.cli.configuration", "Write, check and show the configuration."),
    "completion": ("wsrm_mq.cli.completing", "Print a completion script for a shell."),
}
"""Name -> module with a command of that name, and its one line of help. Help needs none of the modules."""


class Lazy(click.Group):
    """Imports a command when it is wanted. ``found``: name -> module with a command of that name, and its line of
    help."""

    def __init__(self, *args: Any, found: Mapping[str, tuple[str, str]], **more: Any) -> None:
        super().__init__(*args, **more)
        self._found = found

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self._found)

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        if name not in self._found:
            return None
        command: click.Command = getattr(import_module(self._found[name][0]), name.replace("-", "_"))
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_module, text) in self._found.items()])


class Program(Lazy):
    """Turns every error into a sentence and a status."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except (click.exceptions.Exit, click.UsageError):
            raise
        except (Exception, KeyboardInterrupt) as error:
            if (
                isinstance(error, OSError) and error.errno == errno.EPIPE
            ):  # a pipe's reader has enough: click ends quietly
                raise
            if ctx.params["debug"]:
                _show_traceback(error)
            raise stopped(error) from error


def _show_traceback(error: BaseException) -> None:
    from traceback import format_exception

    from wsrm_mq.cli.output import say

    say("".join(format_exception(error)), keep="\n")


@click.group("wsrm-mq", cls=Program, found=COMMANDS, context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--debug", is_flag=True, help="Show the traceback of an error too.")
@click.version_option(package_name="wsrm-mq", message="wsrm-mq %(version)s")
def program(debug: bool) -> None:
    """WS-ReliableMessaging for any WSGI or ASGI SOAP service.

    \b
    Exit status: 0 done, 1 failed, 2 wrong usage or configuration, 3 not found,
    4 refused, 5 store not available, 130 interrupted.
    """


def main() -> None:
    """Entry point of ``wsrm-mq`` and of ``python -m wsrm_mq``."""
    program(prog_name="wsrm-mq")
