"""Statements of retention: the search for rows that may go, and their deletion. A ``?`` is a JSON list of keys if
nothing else is said."""

from __future__ import annotations

from typing import Final

from wsrm_mq.store.counting import SHOWN
from wsrm_mq.store.late_index import BY_LANE
from wsrm_mq.store.sql import written

_LISTED: Final = "(SELECT value FROM keys_in(?) k)"
_SETTLED: Final = "{0}outcome IS NOT NULL AND {0}outcome <> 'dead'"
_REPLAYED: Final = (
    "EXISTS (SELECT 1 FROM entry r WHERE r.message = {0}.message AND (r.replay_of >= {0}.id OR r.journal_of = {0}.id))"
)
"""It stays as long as its replay, which has its key, and as long as a journal records it."""


def held_by_archive(kind: str, column: str, key: str) -> str:
    """A condition: some archive holds the row of this ``kind`` with this ``key`` as it is now. ``column``: that of the
    ledger which names it."""
    return f"""EXISTS (
        SELECT 1 FROM archive a WHERE {key} <= (
            SELECT r.upper FROM archived r WHERE r.archive = a.id AND r.kind = '{kind}' AND r.lower <= {key}
            ORDER BY r.lower DESC LIMIT 1
        ) AND NOT EXISTS (SELECT 1 FROM ledger l WHERE l.{column} = {key} AND l.id > a.ledger)
    )"""


LAST_ARCHIVED: Final = "SELECT coalesce(max(upper), 0) FROM archived WHERE kind = 'messages'"
ARCHIVED_LEDGER: Final = "SELECT coalesce(max(ledger), 0) FROM archive"
UNARCHIVED: Final = written(
    f"SELECT w.value FROM keys_in(?) w WHERE NOT {held_by_archive('messages', 'position', 'w.value')}"
)
UNARCHIVED_SEQUENCES: Final = written(
    f"SELECT w.value FROM keys_in(?) w WHERE NOT {held_by_archive('sequences', 'sequence', 'w.value')}"
)
"""The keys among these that no archive holds as they are now."""
_NOT_OVER: Final = f"(e.outcome IS NULL OR e.outcome = 'dead' OR e.settled_at > :settled OR {_REPLAYED.format('e')})"

# what is due

PARTNERS: Final = "SELECT partner FROM lane UNION SELECT partner FROM loose"
LAST_ENTRY: Final = "SELECT coalesce(max(id), 0) FROM entry"
RECEIVED_AT: Final = """
SELECT e.id, m.received_at FROM entry e JOIN message m ON m.id = e.message WHERE e.id <= ? ORDER BY e.id DESC LIMIT 1
"""
"""The last position up to ``?``, and the time at which its message came."""
DUE: Final = f"""
SELECT e.id, m.id, e.settled_at, coalesce(l.partner, o.partner), CASE WHEN m.body IS NULL THEN 0 ELSE m.body_size END,
       e.wants_reply = 1 AND l.ended IS NULL, {held_by_archive("messages", "position", "e.id")}, q.policy
FROM entry e JOIN message m ON m.id = e.message JOIN queue q ON q.id = e.queue
LEFT JOIN lane l ON l.id = e.lane LEFT JOIN loose o ON o.entry = e.id
WHERE e.id > :after AND e.id <= :horizon AND {_SETTLED.format("e.")} AND e.settled_at <= :latest
  AND NOT (e.wants_reply = 1 AND l.ended IS NULL AND m.body IS NULL) AND NOT {_REPLAYED.format("e")}
ORDER BY e.id LIMIT :count
"""
OVER: Final = f"""
SELECT l.ended_at, l.id, l.partner, {held_by_archive("sequences", "sequence", "l.id")} FROM lane l
WHERE (l.ended_at, l.id) > (:at, :key) AND l.ended_at <= :latest AND l.owner IS NULL
  AND l.id < (SELECT max(id) FROM lane) AND NOT EXISTS (SELECT 1 FROM lane r WHERE r.replay_of = l.id)
  AND NOT EXISTS (SELECT 1 FROM channel c WHERE c.answers = l.id)
  AND NOT EXISTS (
      SELECT 1 FROM lane_entry i JOIN entry e ON e.id = i.entry WHERE i.lane = l.id AND {_NOT_OVER}
  )
  AND l.id NOT IN (
      SELECT e.lane FROM entry e WHERE e.id > {BY_LANE.upto} AND e.lane IS NOT NULL AND {_NOT_OVER}
  )
ORDER BY l.ended_at, l.id LIMIT :count
"""
"""The newest lane stays: the next one's key is above it, so no key is used again, without a counter that each new lane
would have to write."""
OLD_LEDGER: Final = """
SELECT at, id FROM ledger
WHERE sequence IS NULL AND position IS NULL AND (at, id) > (:at, :key) AND at <= :latest AND id <= :upto
ORDER BY at, id LIMIT :count
"""

# messages

DROP_REPLIES: Final = written(f"DELETE FROM reply WHERE entry IN {_LISTED}")
DROP_LOOSE: Final = written(f"""
DELETE FROM loose WHERE entry IN (
    SELECT id FROM entry WHERE id IN {_LISTED} AND {_SETTLED.format("")} AND NOT {_REPLAYED.format("entry")}
)
""")
DROP_ENTRIES: Final = written(f"""
DELETE FROM entry WHERE id IN {_LISTED} AND {_SETTLED.format("")} AND NOT {_REPLAYED.format("entry")}
RETURNING lane, number
""")
DROP_LEDGER: Final = written(f"DELETE FROM ledger WHERE id IN {_LISTED}")
DROP_LEDGER_OF_ENTRIES: Final = written(f"""
DELETE FROM ledger WHERE position IN {_LISTED} AND NOT EXISTS (SELECT 1 FROM entry WHERE entry.id = ledger.position)
""")
DROP_MESSAGES: Final = written(f"""
DELETE FROM message WHERE id IN {_LISTED} AND NOT EXISTS (SELECT 1 FROM entry WHERE entry.message = message.id)
RETURNING id, connection
""")
DROP_HEADERS: Final = written(f"""
DELETE FROM header WHERE message IN {_LISTED} AND NOT EXISTS (SELECT 1 FROM message WHERE message.id = header.message)
""")
DROP_ROUTED: Final = written(f"""
DELETE FROM routed WHERE message IN {_LISTED} AND NOT EXISTS (SELECT 1 FROM message WHERE message.id = routed.message)
""")
_FREE: Final = "UPDATE message SET body = NULL WHERE id IN (SELECT value FROM keys_in(:keys) k) AND body IS NOT NULL"
_IN_QUEUES: Final = "entry LEFT JOIN queue ON queue.id = coalesce(entry.origin, entry.queue)"
_KEEPS: Final = f"NOT ({_SETTLED.format('')}) OR entry.settled_at + 1000 * retain_in(queue.policy) > :now"
FREE_BODIES: Final = written(f"""
{_FREE} AND NOT EXISTS (SELECT 1 FROM {_IN_QUEUES} WHERE entry.message = message.id AND ({_KEEPS})) RETURNING id
""")
"""Free the bodies of settled messages that no queue with a policy keeps any longer, whichever settled it last."""
FREE_TAKEN: Final = written(f"""
{_FREE} AND NOT EXISTS (
    SELECT 1 FROM {_IN_QUEUES} WHERE entry.message = message.id
      AND ({_KEEPS} OR (entry.priority IS NULL AND queue.kind = 'app' AND queue.policy IS NULL))
) RETURNING id
""")
"""The same for what consumers have settled: a copy of what an endpoint keeps stays as long as that. In a queue that was
deleted, which has no policy any more, a message that consumers had keeps nothing."""
COUNT_PRUNED: Final = "UPDATE lane SET pruned = pruned + ? WHERE id = ?"

# lanes

EMPTY: Final = written(f"""
SELECT value FROM keys_in(?) k
WHERE NOT EXISTS (SELECT 1 FROM lane_entry WHERE lane = value)
  AND NOT EXISTS (SELECT 1 FROM lane WHERE replay_of = value)
  AND NOT EXISTS (SELECT 1 FROM channel WHERE answers = value)
  AND value NOT IN (SELECT lane FROM entry WHERE id > {BY_LANE.upto} AND lane IS NOT NULL)
""")
DROP_LEDGER_OF_LANE: Final = "DELETE FROM ledger WHERE sequence = ?"

# plans

_HAS_NO_LANE: Final = "NOT EXISTS (SELECT 1 FROM lane l WHERE l.plan = plan.id)"
OLD_PLANS: Final = f"""
SELECT id FROM plan WHERE state IN ('done', 'cancelled') AND ended_at <= ? AND {_HAS_NO_LANE}
"""
DROP_PLANS: Final = written(f"DELETE FROM plan WHERE id IN (SELECT value FROM texts_in(?) k) AND {_HAS_NO_LANE}")

# instances

OLD_INSTANCE: Final = """
SELECT id FROM instance WHERE ended_at < ? AND id NOT IN (SELECT owner FROM lane WHERE owner IS NOT NULL)
  AND id NOT IN (SELECT owner FROM plan WHERE owner IS NOT NULL)
  AND id NOT IN (SELECT owner FROM entry WHERE owner IS NOT NULL)
"""
DROP_OLD_INSTANCES: Final = f"DELETE FROM instance WHERE id IN ({OLD_INSTANCE})"

# clients and their subscriptions

_ENDED: Final = """
SELECT s.id FROM subscription s LEFT JOIN client c ON c.id = s.client LEFT JOIN instance i ON i.id = c.instance
WHERE s.ended_at < :before OR (s.pattern IS NULL AND (i.id IS NULL OR i.ended_at < :before))
ORDER BY s.id LIMIT :count
"""
_UNUSED: Final = """
SELECT c.id FROM client c
WHERE c.seen_at < :before AND NOT EXISTS (SELECT 1 FROM subscription s WHERE s.client = c.id)
ORDER BY c.id LIMIT :count
"""
DROP_SUBSCRIPTIONS: Final = f"DELETE FROM subscription WHERE id IN ({_ENDED})"
DROP_CLIENTS: Final = f"DELETE FROM client WHERE id IN ({_UNUSED})"
OLD_CLIENTS: Final = f"SELECT 1 WHERE EXISTS ({_ENDED}) OR EXISTS ({_UNUSED})"
"""Subscriptions that ended, or whose process did, and clients that have none any more. A durable one stays, with its
client, until it is unsubscribed."""

# which messages of other nodes have arrived

OLD_ARRIVED: Final = "SELECT at FROM arrived WHERE at < :before LIMIT 1"
_ARRIVAL: Final = "queue, node, incarnation, position"
FORGET_ARRIVED: Final = f"""
DELETE FROM arrived WHERE ({_ARRIVAL}) IN (SELECT {_ARRIVAL} FROM arrived WHERE at < :before LIMIT :count)
"""

# queues

_GONE: Final = -1
"""Has what was counted of queues that are gone and had no time series of their own: no sum falls."""
OLD_QUEUE: Final = "SELECT 1 FROM queue WHERE kind IN ('app', 'outgoing') AND policy IS NULL AND created_at < ?"
UNUSED_QUEUES: Final = """
SELECT id FROM queue q
WHERE kind IN ('app', 'outgoing') AND policy IS NULL AND created_at < :before AND id NOT IN (SELECT queue FROM lane)
  AND (kind = 'app' OR application IS NULL)
  AND NOT EXISTS (
      SELECT 1 FROM queue d JOIN entry e ON e.queue = d.id AND e.outcome = 'dead' WHERE d.parent = q.id
  )
  AND id NOT IN (SELECT queue FROM entry) AND id NOT IN (SELECT queue FROM outbound_sequence)
  AND id NOT IN (SELECT queue FROM ledger WHERE queue IS NOT NULL) AND id NOT IN (SELECT queue FROM subscription)
  AND NOT EXISTS (SELECT 1 FROM arrived a WHERE a.queue = q.id)
ORDER BY id LIMIT :count
"""
LAST_KEYS: Final = "SELECT (SELECT coalesce(max(id), 0) FROM lane), (SELECT coalesce(max(id), 0) FROM entry)"
USED_SINCE: Final = """
SELECT queue FROM lane WHERE id > ? UNION SELECT queue FROM entry WHERE id > ?
UNION SELECT queue FROM outbound_sequence WHERE answers IS NULL
"""
QUEUES_BELOW: Final = written(f"SELECT id FROM queue WHERE parent IN {_LISTED}")
QUEUES_LEFT: Final = written(f"SELECT id FROM queue WHERE id IN {_LISTED}")
DROP_QUEUES: Final = written(f"DELETE FROM queue WHERE id IN {_LISTED}")
KEEP_COUNTS: Final = written(f"""
INSERT INTO counter (name, queue, label, value)
SELECT name, {_GONE}, label, sum(value) FROM counter WHERE queue IN {_LISTED} AND queue > {SHOWN} GROUP BY name, label
ON CONFLICT (name, queue, label) DO UPDATE SET value = counter.value + excluded.value
""")
DROP_COUNTS: Final = written(f"DELETE FROM counter WHERE queue IN {_LISTED}")
