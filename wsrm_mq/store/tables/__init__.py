"""The tables, described once with SQLAlchemy Core: statements are compiled from them, a test holds the migrations
against them.

All times are integers, ms since the epoch. An entry's id is the position: AUTOINCREMENT, so a position is never used
again. The state of an entry in a lane is derived from that (``cursor``, ``limit``, ``owner``), never rewritten
row by row.
"""

from __future__ import annotations

from wsrm_mq.store.tables.consuming import binding, client, outbox, subscription, token
from wsrm_mq.store.tables.history import archive, archived, ledger, plan
from wsrm_mq.store.tables.lanes import lane, range_, sequence
from wsrm_mq.store.tables.messages import (
    connection_message,
    dedupe,
    entry,
    header,
    lane_entry,
    loose,
    message,
    queue,
    reply,
    watermark,
)
from wsrm_mq.store.tables.routing import arrived, hop, moving, route, routed
from wsrm_mq.store.tables.sending import channel, outbound_sequence
from wsrm_mq.store.tables.service import counter, epoch, identity, instance, refusal
from wsrm_mq.store.tables.table import metadata
from wsrm_mq.store.tables.words import (
    ANSWERED_WITH_FAULT,
    ATTEMPTS,
    EVENTS,
    OUTCOMES,
    REASONS,
    REPLAYED,
    SEQUENCE_STATES,
)
