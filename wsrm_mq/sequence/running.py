"""The machine that runs what was accepted: the state of a sequence's delivery and of each of its entries.

Neither state is stored. Both are derived from facts about the row and the time, by a table: a row fits where each of
its cells is the fact or ``ANY``, and exactly one row fits whatever the facts are (a test tries all). The store makes
its SQL from the same tables (``store.running``).
"""

from __future__ import annotations

import enum
from itertools import product
from typing import Final, TypeVar


class DeliveryState(enum.StrEnum):
    """The state of a lane's delivery."""

    HELD = "held"
    """An operator holds it: nothing more of it is delivered until an operator resumes it."""
    BLOCKED = "blocked"
    """A message stopped it: an operator resumes the sequence or skips the message."""
    RUNNING = "running"
    """An instance owns it."""
    RETRYING = "retrying"
    """Its head failed and the next try is not due."""
    READY = "ready"
    """Any instance may take it."""
    DISCARDING = "discarding"
    """Nothing is to be delivered; a tail is still to be moved to the dead letters."""
    WAITING = "waiting"
    """Messages are held for a missing number, or until the sequence is complete."""
    IDLE = "idle"
    """All that was accepted is settled."""


ANY: Final = None
Row = tuple[bool | None, ...]

DELIVERY: Final[tuple[tuple[DeliveryState, Row], ...]] = (
    # on_hold: an operator holds it. blocked: an entry stopped it. owned: an instance has it. unsettled: the cursor is
    # below the limit and discard_from. paused: a retry is not due. discarding: a tail is given up. holding: numbers
    # wait at the limit.
    #
    #                          on_hold blocked owned  unsettled paused discarding holding
    (DeliveryState.HELD,       (True,  ANY,    ANY,   ANY,      ANY,   ANY,       ANY)),
    (DeliveryState.BLOCKED,    (False, True,   ANY,   ANY,      ANY,   ANY,       ANY)),
    (DeliveryState.RUNNING,    (False, False,  True,  ANY,      ANY,   ANY,       ANY)),
    (DeliveryState.RETRYING,   (False, False,  False, True,     True,  ANY,       ANY)),
    (DeliveryState.READY,      (False, False,  False, True,     False, ANY,       ANY)),
    (DeliveryState.DISCARDING, (False, False,  False, False,    ANY,   True,      ANY)),
    (DeliveryState.WAITING,    (False, False,  False, False,    ANY,   False,     True)),
    (DeliveryState.IDLE,       (False, False,  False, False,    ANY,   False,     False)),
)  # fmt: skip

ENTRY: Final[tuple[tuple[tuple[str, str | None], Row], ...]] = (
    # State and reason of an entry without an outcome. given_up: its number is at or above discard_from. beyond: at or
    # above the limit. blocked, on_hold: its sequence is. paused: it or its sequence waits for a retry, or it for what
    # its column ``hold`` says. at_head: it is the cursor of a sequence that an instance owns, or leased with that, or
    # by itself; an operator who holds the sequence lets it end.
    #
    #                        given_up beyond blocked on_hold paused at_head
    (("held", "sequence"),   (True,   ANY,   ANY,    ANY,    ANY,   ANY)),
    (("held", "gap"),        (False,  True,  ANY,    ANY,    ANY,   ANY)),
    (("held", "sequence"),   (False,  False, True,   ANY,    ANY,   ANY)),
    (("held", "operator"),   (False,  False, False,  True,   ANY,   False)),
    (("leased", None),       (False,  False, False,  True,   ANY,   True)),
    (("held", "backoff"),    (False,  False, False,  False,  True,  ANY)),
    (("leased", None),       (False,  False, False,  False,  False, True)),
    (("ready", None),        (False,  False, False,  False,  False, False)),
)  # fmt: skip

Result = TypeVar("Result")


def decide(table: tuple[tuple[Result, Row], ...]) -> dict[tuple[bool, ...], Result]:
    """The table written out: facts → result. Raises ``ValueError`` where two rows fit the same facts, or none does."""
    decided: dict[tuple[bool, ...], Result] = {}
    for facts in product((False, True), repeat=len(table[0][1])):
        (decided[facts],) = (result for result, row in table if all(map(_fits, row, facts)))
    return decided


def _fits(cell: bool | None, fact: bool) -> bool:
    return cell is ANY or cell is fact


def is_paused(retry_from: int | None, retry_at: int | None, now: int) -> bool:
    """A retry is not due. A wait that begins in the future is over: the clock was stepped back."""
    return retry_at is not None and retry_at > now and (retry_from is None or retry_from <= now)
