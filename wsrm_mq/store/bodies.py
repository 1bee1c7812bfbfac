"""Large bodies: read piece by piece, never whole in memory."""

from __future__ import annotations

from typing import BinaryIO, Final

from wsrm_mq.errors import NotFound
from wsrm_mq.store.port import Connection

_BODY_OF: Final = (
    "SELECT message.id, body IS NOT NULL FROM entry JOIN message ON message.id = message WHERE entry.id = ?"
)


def body_at(db: Connection, position: int) -> BinaryIO:
    """The envelope of the message at ``position``, as received. While it is open it holds up checkpoints. Raises
    ``NotFound``."""
    found = db.execute(_BODY_OF, (position,)).fetchone()
    if found is None:
        raise NotFound(f"There is no message at position {position}.")
    message, has_body = found
    if not has_body:
        raise NotFound(f"The body of the message at position {position} was freed by retention.")
    return db.open_body(int(message))
