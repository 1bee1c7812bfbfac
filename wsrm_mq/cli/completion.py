"""``wsrm-mq completion``: what a shell has to source."""

from __future__ import annotations

import click


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
