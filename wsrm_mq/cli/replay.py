"""``wsrm-mq replay``: stored messages are delivered again, by a plan that is made, looked at, and then run as it is."""

from __future__ import annotations

import click

from wsrm_mq.cli.replay_plan import plan, show
from wsrm_mq.cli.replay_run import cancel, list_, run, status


@click.group()
def replay() -> None:
    """Deliver stored messages again. A plan is made of a query and written to a file; it is run as it was shown.

    \b
    wsrm-mq replay plan seq:9f3c21 msg:12-40 -o plan.json --reason "lost there"
    wsrm-mq replay show plan.json
    wsrm-mq replay run plan.json
    """


for _command in (plan, show, run, list_, status, cancel):
    replay.add_command(_command)
