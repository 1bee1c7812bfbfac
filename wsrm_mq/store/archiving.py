"""Statements on archives: the rows of a store that they hold.

What was archived may change later: an operator confirms, restores or redrives it. Each of these acts is a row of the
ledger about it, so what the ledger tells of behind an archive's ``ledger`` counts as not archived any more.
"""

from __future__ import annotations

from typing import Final

from wsrm_mq.store.sql import written

OLDEST_UNARCHIVED: Final = """
WITH gap AS (
    SELECT upper AS after, lead(lower, 1, 9223372036854775807) OVER (ORDER BY lower) AS before
    FROM (SELECT 0 AS lower, 0 AS upper UNION ALL SELECT lower, upper FROM archived
          WHERE kind = 'messages' AND archive = (SELECT id FROM archive ORDER BY read_at DESC LIMIT 1)) held
)
SELECT e.settled_at FROM gap JOIN entry e ON e.id > gap.after AND e.id < gap.before
WHERE e.outcome IS NOT NULL AND e.outcome <> 'dead' ORDER BY e.id LIMIT 1
"""
"""When the first settled message was settled that the newest archive does not hold."""

# what an archive has still to hold; ``?`` is a JSON list of ranges, or of keys

_IN: Final = """
pairs_in(?) g JOIN entry e ON e.id BETWEEN g.lower AND g.upper
"""
LAST_POSITION: Final = "SELECT coalesce(max(id), 0) FROM entry"
LAST_LANE: Final = "SELECT coalesce(max(id), 0) FROM lane"
UNSETTLED_IN: Final = written(f"SELECT e.id FROM {_IN} WHERE e.outcome IS NULL")
NOT_OVER: Final = """
SELECT id FROM lane
WHERE ended IS NULL OR owner IS NOT NULL OR discarding = 1 OR EXISTS (
    SELECT 1 FROM entry WHERE entry.lane = lane.id AND entry.outcome IS NULL
)
"""
TOLD_SINCE: Final = (
    "SELECT id, position, sequence FROM ledger WHERE id > ? AND (position IS NOT NULL OR sequence IS NOT NULL)"
)
REPLAYED_IN: Final = written(f"""
SELECT DISTINCT CASE WHEN o.reason = 'replayed' OR o.confirmed_at IS NOT NULL THEN o.id END, e.lane
FROM {_IN} JOIN entry o ON o.id = e.replay_of
""")
"""Entries that may have been changed by a replay, and lanes that got one: the ledger need not tell of either."""
WITH_BODY_OF: Final = written("""
SELECT e.id FROM entry e JOIN message m ON m.id = e.message
WHERE e.id IN (SELECT value FROM keys_in(?) k) AND m.body IS NOT NULL
""")
LANES_OF: Final = written("SELECT id FROM lane WHERE id IN (SELECT value FROM keys_in(?) k)")
COUNT_ENTRIES: Final = written(f"SELECT count(*) FROM {_IN}")
OF_LANES_IN: Final = written(f"""
SELECT e.id FROM {_IN} JOIN pairs_in(?) s
ON e.lane BETWEEN s.lower AND s.upper
""")
"""Entries in the first ranges whose lane is in the others."""
REPLAYS_IN: Final = written(f"""
SELECT e.id FROM {_IN} WHERE e.replay_of IS NOT NULL AND EXISTS (
    SELECT 1 FROM entry f JOIN pairs_in(?) s
    ON f.id BETWEEN s.lower AND s.upper WHERE f.message = e.message
)
""")
"""Entries in the first ranges that are replays of the same message as one in the others."""
BEGUN_BY_PARTNERS: Final = written("""
SELECT s.id, s.partner, s.created_at FROM pairs_in(?) g JOIN lane s ON s.id BETWEEN g.lower AND g.upper
WHERE s.partner IS NOT NULL
""")
LANES_OF_REPLAYS: Final = written("""
SELECT s.id FROM lane s JOIN pairs_in(?) g
ON s.replay_of BETWEEN g.lower AND g.upper
""")
"""In which lanes with these keys are replayed."""
COUNT_TOLD: Final = "SELECT count(*) FROM ledger WHERE id > ? AND event <> 'archived'"
"""The number of events behind a key. The event that an archive was confirmed is not counted: it is no reason for
another batch."""

# what was confirmed

KNOWN: Final = "SELECT number, ledger, read_at FROM archive WHERE id = ?"
LAST_LEDGER: Final = "SELECT coalesce((SELECT seq FROM sqlite_sequence WHERE name = 'ledger'), 0)"
CONFIRM: Final = """
INSERT INTO archive (id, place, number, ledger, read_at, confirmed_at, actor)
VALUES (:id, :place, :number, :ledger, :read_at, :now, :actor)
ON CONFLICT (id) DO UPDATE SET place = excluded.place, number = excluded.number, ledger = excluded.ledger,
    read_at = excluded.read_at, confirmed_at = excluded.confirmed_at, actor = excluded.actor
"""
FORGET: Final = "DELETE FROM archive WHERE id = ?"
FORGET_KEYS: Final = "DELETE FROM archived WHERE archive = ?"
ADD_KEYS: Final = written("""
INSERT INTO archived (archive, kind, lower, upper)
SELECT ?, ?, lower, upper FROM pairs_in(?) p
""")
