"""Messages that the application has taken are published: the mode ``copy``.

That is done by the commit that settles the delivery, so copies come in the order of the sequence, and nothing is copied
that was given up. A queue that has no room gets no copy, which the ledger says: the delivery does not wait for it.
"""

from __future__ import annotations

import json
import re
from typing import Final

from wsrm_mq.errors import QuotaExceeded
from wsrm_mq.queue.adding import Header, Put, add_entry
from wsrm_mq.queue.clearing import ACTOR
from wsrm_mq.queue.put import make_room, with_promoted
from wsrm_mq.queue.topics import LONGEST, bound_to, is_wanted
from wsrm_mq.store import topics
from wsrm_mq.store.transaction import Transaction

_END_OF_ACTION: Final = re.compile(r"[^/#:?]*$")


def publish_copy(tx: Transaction, position: int) -> None:
    """Put the message at ``position`` into each queue that is bound to its topic: the name of its endpoint's queue, and
    the end of its action."""
    found = tx.execute(topics.TO_COPY, {"key": position}).fetchone()
    if found is None:
        return
    message, endpoint, action, request, has_header = found
    topic = topic_of(endpoint, action)
    bound = bound_to(tx, topic)
    if not bound:
        return
    (body,) = tx.execute(topics.BODY, {"key": message}).fetchone()
    one = Put(body, action, header=Header(topic=topic, content_type=json.loads(request).get("CONTENT_TYPE")))
    expressions = {name: path for queue, _filters in bound for name, path in queue.policy.properties.items()}
    one = with_promoted(one, expressions)
    if not has_header:
        tx.add_header({"message": message, **one.header._asdict()})
    for queue, filters in bound:
        if not is_wanted(tx, message, filters, one.priority):
            continue
        try:
            make_room(tx, queue, len(body))
        except QuotaExceeded as error:
            tx.ledger("unrouted", position=position, reason=f"{topic}: {error}", actor=ACTOR)
        else:
            add_entry(tx, queue, one, message)


def topic_of(endpoint: str, action: str | None) -> str:
    """``orders/place`` for what came to ``/orders`` with the action ``urn:shop:orders/place``."""
    found = _END_OF_ACTION.search(action or "")
    levels = [*endpoint.split("/"), found[0] if found else ""]
    usable = (re.sub(r"[*#]|[^ -~]", "_", one).strip() for one in levels)
    return "/".join(filter(None, usable))[:LONGEST].strip("/ ") or "message"
