"""A dead letter is delivered again with another content: a new message in its place, and the ledger says which."""

from __future__ import annotations

from typing import Final

from wsrm_mq.errors import NotAllowed
from wsrm_mq.queue.adding import Put, add_entry, add_message
from wsrm_mq.queue.dead_letters import check_outcome, write_down
from wsrm_mq.queue.declaring import declared
from wsrm_mq.queue.put import with_promoted
from wsrm_mq.queue.withdrawing import stored, withdraw
from wsrm_mq.store import queues
from wsrm_mq.store.transaction import Transaction

EDITED: Final = "edited"
"""Reason of a dead letter in whose place an edited message is delivered."""


def edit_and_redrive(
    tx: Transaction, position: int, one: Put, *, actor: str, reason: str, to: str | None = None
) -> int:
    """Put ``one`` into the queue that a dead letter came from, or into ``to``, in the place of that; answers its
    position. Raises ``NotAllowed`` for what a partner has sent: that is never changed."""
    letter = stored(tx, position)
    check_outcome(tx, letter, "dead")
    if letter.lane.kind not in ("loose", "group") or not letter.lane.is_consumed:
        raise NotAllowed(
            f"The message at position {position} came from a partner, and stays as it was sent. "
            f"`wsrm-mq message body {position} --output FILE` has it: edit that, and send it as a message of your own."
        )
    home, _application = tx.execute(queues.QUEUE, {"key": letter.home}).fetchone()
    queue = declared(tx, to or home)
    if letter.lane.kind == "group" and to is None and one.group is None:
        one = one._replace(group=letter.lane.identifier.split(":", 2)[2])
    withdraw(tx, letter, EDITED)
    message = add_message(tx, with_promoted(one, queue.policy.properties))
    added = add_entry(tx, queue, one, message, came_with=True)
    write_down(tx, "redriven", letter, actor, f"{reason}; as edited at position {added}")
    return added
