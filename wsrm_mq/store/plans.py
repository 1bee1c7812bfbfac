"""Statements on frozen plans: the messages that a plan is made of, and how far it has come."""

from __future__ import annotations

from typing import Final

from wsrm_mq.store.late_index import BY_LANE, OF_LANE
from wsrm_mq.store.sql import written

# what a plan is made of

PLANNABLE: Final = written("""
SELECT found.value, m.id, e.id, coalesce(s.id, -m.id), coalesce(a.number, 1), q.name,
       coalesce(s.identifier, l.identifier), m.message_id, m.action, m.body_size,
       m.received_at, e.outcome, e.reason, m.body IS NOT NULL
FROM keys_in(?) found JOIN entry f ON f.id = found.value
JOIN entry e ON e.id = CASE
    WHEN f.reason = 'replayed' THEN (SELECT max(id) FROM entry WHERE message = f.message) ELSE f.id
END
JOIN message m ON m.id = e.message
JOIN entry a ON a.id = m.id JOIN queue q ON q.id = coalesce(a.origin, a.queue)
LEFT JOIN lane s ON s.id = a.lane LEFT JOIN loose l ON l.entry = a.id
""")
"""For each position of a JSON list: the entry that stands for it now, its message, and the sequence, the number and the
queue that the message came with. A message that came in no lane has its position, below zero, in place of a sequence's
key."""
STANDING: Final = 'SELECT identifier, ordered, "limit", pruned FROM lane WHERE id = ?'
LIVE_UPWARDS: Final = "SELECT number FROM entry WHERE lane = ? AND outcome IS NULL ORDER BY number"
LIVE_DOWNWARDS: Final = f"{LIVE_UPWARDS} DESC"
BECAME: Final = f"""
SELECT outcome, reason FROM entry WHERE id = (SELECT entry FROM {OF_LANE} i WHERE number = :number LIMIT 1)
"""
"""Outcome and reason of a number of a sequence; no row if retention has deleted its entry."""

# plans

ADD: Final = """
INSERT INTO plan (id, digest, file, made_at, actor, reason, query, target, as_new, messages, state)
VALUES (:id, :digest, :file, :made_at, :actor, :reason, :query, :target, :as_new, :messages, 'planned')
"""
PLAN: Final = """
SELECT p.id, p.digest, p.file, p.target, p.messages, p.state, i.name, i.pid, p.line, p.ended_at
FROM plan p LEFT JOIN instance i ON i.id = p.owner AND i.ended_at IS NULL WHERE p.id = ?
"""
"""Columns of ``queue.plans.Plan``."""
BEGIN: Final = """
UPDATE plan SET state = 'running', owner = :owner, target = :target, begun_at = coalesce(begun_at, :now),
    ended_at = NULL WHERE id = :id
"""
MOVE: Final = """
UPDATE plan SET line = :line, skipped = skipped + :skipped, missing = missing + :missing
WHERE id = :id AND owner = :owner AND state = 'running' AND line = :before
"""
LEAVE: Final = written("""
UPDATE plan SET owner = NULL, state = :state, ended_at = CASE WHEN :state <> 'running' THEN a_number(:now) END
WHERE id = :id
""")
PRESENT: Final = written("""
SELECT found.value, e.outcome, m.body IS NOT NULL FROM keys_in(?) found
LEFT JOIN entry e ON e.id = found.value LEFT JOIN message m ON m.id = e.message
""")
"""For each position of a JSON list its outcome, and whether its body is there."""

# their runs

UNSETTLED_GROUPS: Final = """
SELECT s.id, s.identifier, s.blocked, s.retry_at FROM lane s WHERE s.plan = :plan AND s.cursor < s."limit"
"""
"""The groups of a plan that have something undelivered."""
CANCELLED_GROUPS: Final = """
SELECT s.id FROM lane s WHERE s.plan = :plan AND (s.cursor < s."limit" OR s.on_hold_since IS NOT NULL)
"""
"""The groups of a cancelled plan that still have something undelivered, or are held."""
PROGRESS: Final = written("""
SELECT s.id, s.identifier, s.blocked, s.retry_at,
       (SELECT count(*) FROM entry e WHERE e.lane = s.id AND e.outcome IS NULL),
       (SELECT last_error FROM entry e WHERE e.lane = s.id AND e.outcome IS NULL ORDER BY e.number LIMIT 1)
FROM keys_in(?) found JOIN lane s ON s.id = found.value WHERE s.cursor < s."limit"
""")
"""The groups of a JSON list of keys that have something undelivered: how much, and the error of the head."""
HELD_BY: Final = """
SELECT DISTINCT o.id FROM lane s JOIN lane o ON o.id = s.replay_of
WHERE s.plan = :plan AND o.on_hold_since IS NOT NULL AND :actor = (
    SELECT actor FROM ledger WHERE sequence = o.id AND event = 'held' ORDER BY id DESC LIMIT 1
) LIMIT :count
"""
"""The sequences that a plan replays messages of and that ``:actor`` holds."""
HOLDING: Final = """
SELECT s.plan FROM lane s WHERE s.replay_of = :lane AND :holder || s.plan = (
    SELECT actor FROM ledger WHERE sequence = :lane AND event = 'held' ORDER BY id DESC LIMIT 1
) LIMIT 1
"""
"""The plan that holds a sequence, if no operator does; ``:holder`` begins the actor of what a plan holds."""
OUTCOMES: Final = f"""
SELECT outcome, reason, sum(messages) FROM (
    SELECT e.outcome, e.reason, count(*) AS messages
    FROM lane s JOIN lane_entry i ON i.lane = s.id JOIN entry e ON e.id = i.entry
    WHERE s.plan = :plan GROUP BY 1, 2
    UNION ALL
    SELECT e.outcome, e.reason, count(*) FROM entry e
    WHERE e.id > {BY_LANE.upto} AND e.lane IN (SELECT id FROM lane WHERE plan = :plan) GROUP BY 1, 2
    UNION ALL
    SELECT 'pruned', NULL, sum(pruned) FROM lane WHERE plan = :plan
) found GROUP BY 1, 2 HAVING sum(messages) > 0
"""
"""Outcomes of the messages that a plan has entered, with their numbers."""
LIVE_OF: Final = """
SELECT e.id, e.number, r.outcome = 'discarded' AND r.reason = ? FROM entry e JOIN entry r ON r.id = e.replay_of
WHERE e.lane = ? AND e.outcome IS NULL AND e.number >= ? ORDER BY e.number LIMIT ?
"""
"""The unsettled entries of a group, each with whether its message waits for nothing but this replay."""
