"""An offered sequence as the store keeps it, beside the inbound one whose replies go out in it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple, Self

from sqlalchemy import bindparam, delete, insert, literal, select, union_all, update

from wsrm_mq.sequence.elements import EndpointReference
from wsrm_mq.sequence.outbound import OutboundSequence, OutboundTerms
from wsrm_mq.sequence.outbound_states import OutboundState
from wsrm_mq.sequence.ranges import AckRanges
from wsrm_mq.store.channels import endpoint_from, endpoint_text
from wsrm_mq.store.compiling import compiled
from wsrm_mq.store.tables import lane, outgoing
from wsrm_mq.versions import RMVersion

_P: Final[dict[str, Any]] = {column.name: bindparam(column.name) for column in outgoing.columns}
_SAVED: Final = {name: value for name, value in _P.items() if name != "sequence"}

ADD_OUTGOING: Final = compiled(insert(outgoing).values(_P))
SAVE_OUTGOING: Final = compiled(update(outgoing).where(outgoing.c.sequence == bindparam("sequence")).values(_SAVED))
DROP_OUTGOING: Final = compiled(delete(outgoing).where(outgoing.c.sequence == bindparam("sequence")))
ANSWERED_BY: Final = compiled(select(outgoing.c.sequence).where(outgoing.c.identifier == bindparam("identifier")))
"""The key of the inbound sequence whose replies go out in the one of this name."""
IDENTIFIER_IN_USE: Final = compiled(
    union_all(
        select(literal(1)).where(lane.c.identifier == bindparam("identifier")),
        select(literal(1)).where(outgoing.c.identifier == bindparam("identifier")),
    )
)


class Outgoing(NamedTuple):
    value: OutboundSequence
    waiting_since: int | None = None
    """Since when replies wait for an acknowledgement, and none has come; ``None``: none waits. ms since the epoch."""
    endpoint: EndpointReference | None = None
    """Where what is about it is sent; ``None``: it leaves on responses."""
    acks_with_reply: bool = False
    """The number of a request is told with its reply alone, until that is acknowledged."""

    @classmethod
    def load(cls, columns: Mapping[str, Any], rm: RMVersion) -> Self | None:
        """From ``LANE_COLUMNS``; ``None`` where there is none."""
        if columns["outgoing_identifier"] is None:
            return None
        value = OutboundSequence(
            OutboundTerms(columns["outgoing_identifier"], rm, columns["outgoing_expires_at"]),
            state=OutboundState(columns["outgoing_state"]),
            given=columns["outgoing_given"],
            acknowledged=AckRanges.parse(columns["outgoing_acknowledged"]),
            last_number=columns["outgoing_last_number"],
            is_final=bool(columns["outgoing_is_final"]),
        )
        endpoint, acks_with_reply = columns["outgoing_endpoint"], bool(columns["outgoing_acks_with_reply"])
        return cls(value, columns["outgoing_waiting_since"], endpoint_from(endpoint), acks_with_reply)

    def row(self, sequence: int) -> dict[str, object]:
        """Of ``outgoing``; ``sequence`` is the key of the inbound one."""
        value = self.value
        return {
            "sequence": sequence,
            "identifier": value.terms.identifier,
            "expires_at": value.terms.expires_at,
            "state": value.state.value,
            "given": value.given,
            "acknowledged": str(value.acknowledged),
            "unacknowledged": value.given - value.acknowledged.count(),
            "last_number": value.last_number,
            "is_final": int(value.is_final),
            "waiting_since": self.waiting_since,
            "endpoint": endpoint_text(self.endpoint),
            "acks_with_reply": int(self.acks_with_reply),
        }

    def follow(self, value: OutboundSequence, now: int) -> Self:
        """The same with its next protocol value."""
        if value.is_acknowledged:
            return self._replace(value=value, waiting_since=None)
        has_heard = value.acknowledged != self.value.acknowledged
        return self._replace(value=value, waiting_since=now if has_heard else self.waiting_since or now)
