"""Partners, and how the service treats each."""

from __future__ import annotations

from typing import Final

from wsrm_mq.queue.policy import Acknowledge, Mode, OnPoison, QueuePolicy
from wsrm_mq.queue.settle import ServiceReply
from wsrm_mq.sequence.elements import IncompleteSequenceBehavior
from wsrm_mq.sequence.terms import DeliveryAssurance

NO_DISCARD, ENTIRE, FOLLOWING = IncompleteSequenceBehavior
ONCE, REPEATEDLY, AT_MOST = (
    DeliveryAssurance.EXACTLY_ONCE,
    DeliveryAssurance.AT_LEAST_ONCE,
    DeliveryAssurance.AT_MOST_ONCE,
)
STORED, DELIVERED = Acknowledge.STORED, Acknowledge.DELIVERED
HOUR: Final = 3_600_000
LIMITS: Final = {"max_expires": 2 * HOUR, "retain": HOUR, "retain_ended": 2 * HOUR}
"""The times that all policies here have."""
SLOW_CALL: Final = 0.06
"""Seconds that a slow call of the service takes."""

POLICIES: Final = {
    str(index): QueuePolicy(
        retry=(1_000,) * tries,
        on_poison=on_poison,
        behavior=behavior,
        ordered=ordered,
        assurance=assurance,
        acknowledge=acknowledge,
        **LIMITS,
    )
    for index, (tries, on_poison, behavior, ordered, assurance, acknowledge) in enumerate(
        [
            (1, OnPoison.BLOCK, NO_DISCARD, True, ONCE, STORED),
            (0, OnPoison.DEAD_LETTER, NO_DISCARD, True, ONCE, STORED),
            (2, OnPoison.TERMINATE, NO_DISCARD, True, ONCE, STORED),
            (1, OnPoison.DEAD_LETTER, FOLLOWING, True, ONCE, STORED),
            (1, OnPoison.BLOCK, ENTIRE, True, ONCE, STORED),
            (1, OnPoison.DEAD_LETTER, NO_DISCARD, False, ONCE, STORED),
            (2, OnPoison.BLOCK, NO_DISCARD, True, ONCE, DELIVERED),
            (1, OnPoison.DEAD_LETTER, NO_DISCARD, True, REPEATEDLY, STORED),
            (0, OnPoison.DEAD_LETTER, NO_DISCARD, True, AT_MOST, STORED),
            (1, OnPoison.DEAD_LETTER, NO_DISCARD, False, REPEATEDLY, STORED),
            (2, OnPoison.BLOCK, NO_DISCARD, False, ONCE, DELIVERED),
        ]
    )
}
PULLED: Final = {
    f"pulled {index}": QueuePolicy(
        mode=Mode.PULL,
        retry=(1_000,),
        behavior=behavior,
        ordered=ordered,
        acknowledge=acknowledge,
        **LIMITS,
    )
    for index, (behavior, ordered, acknowledge) in enumerate(
        [
            (NO_DISCARD, True, STORED),
            (NO_DISCARD, True, DELIVERED),
            (FOLLOWING, True, STORED),
            (ENTIRE, True, STORED),
            (NO_DISCARD, False, STORED),
            (NO_DISCARD, True, STORED),
        ]
    )
}
"""Partners whose messages consumers pull."""
SOURCED: Final = {
    f"source {index}": QueuePolicy(
        retry=(1_000,) * tries,
        on_poison=on_poison,
        behavior=behavior,
        ordered=ordered,
        acknowledge=acknowledge,
        **LIMITS,
    )
    for index, (tries, on_poison, behavior, ordered, acknowledge) in enumerate(
        [
            (1, OnPoison.BLOCK, NO_DISCARD, True, STORED),
            (1, OnPoison.DEAD_LETTER, NO_DISCARD, True, STORED),
            (0, OnPoison.TERMINATE, NO_DISCARD, True, STORED),
            (1, OnPoison.DEAD_LETTER, NO_DISCARD, True, DELIVERED),
            (1, OnPoison.DEAD_LETTER, FOLLOWING, True, STORED),
            (1, OnPoison.DEAD_LETTER, NO_DISCARD, False, STORED),
        ]
    )
}
"""Sources that are this product's own."""
_ALL: Final = POLICIES | PULLED | SOURCED
TWO_WAY: Final = frozenset("026")
"""Partners that want replies."""
PARTLY_TWO_WAY: Final = frozenset(["pulled 5"])
"""Partners that want a reply to every third message: the application is called with it in its turn."""
FATES: Final = (0, 0, 0, 0, 0, 0, 0, 1, 1, 2, 9)
"""How often the service fails before it takes a message; 9: always."""
REPLY: Final = ServiceReply("200 OK", (("Content-Type", "text/xml"),), b"<reply/>")


def wants_reply(partner: str, number: int) -> bool:
    return partner in TWO_WAY or (partner in PARTLY_TWO_WAY and number % 3 == 0)


def policy_of(partner: str | None) -> QueuePolicy:
    return _ALL[partner or "0"]
