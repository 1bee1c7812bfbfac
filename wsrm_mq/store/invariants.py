"""Invariants: conditions that every committed state of a store fulfils, each as a question that finds the exceptions.

Each is one statement, so it sees one state, whatever is written meanwhile. A large table is asked in pieces of keys, so
no reader holds up the checkpoints for long: a few seconds for the indexes of a million messages, which have no keys.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Final, NamedTuple

from wsrm_mq.store.driver import HEAD, damage, dangling, file_of, revision, tells_damage
from wsrm_mq.store.late_index import BY_CONNECTION, BY_LANE, LateIndex
from wsrm_mq.store.port import Database
from wsrm_mq.store.sql import said
from wsrm_mq.store.tables import metadata

ACCOUNTED_FOR: Final = "every acknowledged number has its entry, or was pruned"
IN_RANGES: Final = "every entry's number is in the ranges"
ONE_OUTCOME: Final = "a settled entry has one outcome, a time, and may be acknowledged"
HAS_MESSAGE: Final = "an entry has its message, and its body until it is settled"
"""These are asked of exports too, and of many stores at once: see ``spark.jobs.audit``."""

PIECE: Final = 5_000
MOST_FINDINGS: Final = 20
"""The largest number of findings that are told of one invariant."""


class Invariant(NamedTuple):
    """A condition that every store fulfils, and the question for rows that break it."""

    name: str
    table: str
    """The table whose keys are gone through in pieces."""
    question: str
    """SQL in words of ``sql``: key and detail of each row that breaks it, for keys from ``:lower`` to
    ``:upper``."""

    @property
    def ends(self) -> str:
        """The statement that answers the first and the last key."""
        key = "rowid" if self.table.startswith("sqlite_") else "id"
        return f"SELECT min({key}), max({key}) FROM {self.table}"


class Finding(NamedTuple):
    """A row that breaks an invariant; ``key`` is its own in ``table``, ``None`` where it has none."""

    invariant: str
    table: str
    key: int | None
    detail: str


_LAST_POSITION: Final = "SELECT max(seq) FROM sqlite_sequence WHERE name = 'entry'"


def _of_late_index(indexed: str, index: LateIndex, row: str, own: str, place: str) -> tuple[Invariant, ...]:
    """``row`` is the word for what is indexed, ``own`` for its place in the index; ``place`` is SQL that tells it."""
    columns = ", ".join(index.values)
    at = " AND ".join(f"i.{column} = r.{value}" for column, value in zip(index.columns, index.values, strict=True))
    first = index.values[0]
    return (
        Invariant(
            f"the index of {indexed} has every {row} up to its watermark, and none behind it",
            index.of,
            f"""SELECT id, {place} || CASE WHEN is_indexed THEN ' is' ELSE ' is not' END FROM (
                SELECT {columns}, EXISTS (SELECT 1 FROM {index.table} i WHERE {at}) AS is_indexed
                FROM {index.of} r WHERE id BETWEEN :lower AND :upper AND {first} IS NOT NULL
            ) found WHERE is_indexed <> (id <= {index.upto})""",
        ),
        Invariant(
            f"the index of {indexed} has each {row} under its own {own} only",
            "sqlite_schema",
            f"""SELECT NULL, 'position ' || {index.columns[-1]} || ' under ' || {place} FROM {index.table} i
            WHERE :lower <= 1 AND :upper >= 1 AND NOT EXISTS (SELECT 1 FROM {index.of} r WHERE {at})""",
        ),
        Invariant(
            f"the watermark of {indexed} is there, and not above the last position",
            "sqlite_schema",
            f"""SELECT NULL, coalesce('it is ' || max(upto), 'there is none') FROM watermark
            WHERE :lower <= 1 AND :upper >= 1 AND name = '{index.table}'
            HAVING count(*) <> 1 OR max(upto) > coalesce(({_LAST_POSITION}), 0)""",
        ),
    )


INVARIANTS: Final = (
    Invariant(
        ACCOUNTED_FOR,
        "lane",
        f"""WITH behind (lane, entries) AS MATERIALIZED (
            SELECT lane, count(*) FROM entry
            WHERE id > {BY_LANE.upto} AND lane BETWEEN :lower AND :upper GROUP BY lane
        )
        SELECT id, received || ' received, ' || entries || ' entries, ' || pruned || ' pruned' FROM (
            SELECT s.id, s.pruned,
                (SELECT coalesce(sum(upper - lower + 1), 0) FROM range r WHERE r.lane = s.id) AS received,
                (SELECT count(*) FROM lane_entry i JOIN entry e ON e.id = i.entry WHERE i.lane = s.id)
                    + coalesce(behind.entries, 0) AS entries
            FROM lane s LEFT JOIN behind ON behind.lane = s.id WHERE s.id BETWEEN :lower AND :upper
        ) counted WHERE received <> entries + pruned""",
    ),
    Invariant(
        IN_RANGES,
        "entry",
        """SELECT id, 'number ' || number || ' of sequence ' || lane FROM entry e
        WHERE id BETWEEN :lower AND :upper AND lane IS NOT NULL AND number > coalesce((
            SELECT upper FROM range r WHERE r.lane = e.lane AND r.lower <= e.number
            ORDER BY r.lower DESC LIMIT 1
        ), 0)""",
    ),
    Invariant(
        "ranges are disjoint and do not touch",
        "lane",
        """SELECT lane, 'a range begins at ' || lower || ', the one before ends at ' || previous FROM (
            SELECT lane, lower, lag(upper) OVER (PARTITION BY lane ORDER BY lower) AS previous
            FROM range WHERE lane BETWEEN :lower AND :upper
        ) neighbours WHERE lower <= previous + 1""",
    ),
    Invariant(
        "a sequence rules each lane that is a sequence's, and no other",
        "lane",
        """SELECT l.id, 'it is of kind ' || l.kind FROM lane l LEFT JOIN sequence s ON s.lane = l.id
        WHERE l.id BETWEEN :lower AND :upper AND (l.kind = 'rm') <> (s.lane IS NOT NULL)""",
    ),
    Invariant(
        "the cursor is not above the limit",
        "lane",
        """SELECT id, 'cursor ' || cursor || ', limit ' || "limit" FROM lane
        WHERE id BETWEEN :lower AND :upper AND cursor > "limit" """,
    ),
    Invariant(
        "everything below the cursor is settled",
        "lane",
        """SELECT id, 'number ' || (
            SELECT min(number) FROM entry e WHERE e.lane = s.id AND e.number < s.cursor AND e.outcome IS NULL
        ) || ' is not, the cursor is ' || cursor FROM lane s
        WHERE id BETWEEN :lower AND :upper AND EXISTS (
            SELECT 1 FROM entry e WHERE e.lane = s.id AND e.number < s.cursor AND e.outcome IS NULL
        )""",
    ),
    Invariant(
        "nothing is delivered at or above the limit",
        "entry",
        """SELECT e.id, 'number ' || e.number || ' is, the limit is ' || s."limit"
        FROM entry e JOIN lane s ON s.id = e.lane AND e.number >= s."limit"
        WHERE e.id BETWEEN :lower AND :upper AND e.outcome = 'delivered'""",
    ),
    Invariant(
        "an open sequence in order delivers up to its first gap, unless an operator forced it",
        "lane",
        """SELECT id, 'limit is ' || "limit" || ', expected ' || expected FROM (
            SELECT l.id, l."limit", 1 + coalesce(
                (SELECT upper FROM range r WHERE r.lane = l.id AND r.lower = 1), 0
            ) AS expected
            FROM lane l JOIN sequence s ON s.lane = l.id
            WHERE l.id BETWEEN :lower AND :upper AND s.state = 'created' AND l.ended IS NULL AND l.ordered = 1
              AND l.assurance <> 'at_most_once' AND s.behavior <> 'DiscardEntireSequence' AND s.late IS NULL
        ) l WHERE "limit" <> expected""",
    ),
    Invariant(
        "what came late is of a sequence that an operator forced",
        "entry",
        """SELECT e.id, 'number ' || e.number FROM entry e LEFT JOIN sequence s ON s.lane = e.lane
        WHERE e.id BETWEEN :lower AND :upper AND e.late = 1 AND s.late IS NULL""",
    ),
    Invariant(
        "what stops a sequence is there and not settled",
        "lane",
        """SELECT id, 'position ' || blocked FROM lane s
        WHERE id BETWEEN :lower AND :upper AND blocked IS NOT NULL AND NOT EXISTS (
            SELECT 1 FROM entry e WHERE e.id = s.blocked AND e.lane = s.id AND e.outcome IS NULL
        )""",
    ),
    Invariant(
        "a sequence is run by an instance that has not ended",
        "lane",
        """SELECT s.id, 'instance ' || s.owner FROM lane s LEFT JOIN instance i ON i.id = s.owner
        WHERE s.id BETWEEN :lower AND :upper AND s.owner IS NOT NULL
          AND s.leased_until IS NULL AND (i.id IS NULL OR i.ended_at IS NOT NULL)""",
    ),
    Invariant(
        "an entry has a number in a lane, or neither; only a loose one that is not settled has an owner, which lives",
        "entry",
        """SELECT e.id, coalesce('lane ' || e.lane, 'no lane') || coalesce(', number ' || e.number, ', no number')
            || coalesce(', owner ' || e.owner, ', no owner')
        FROM entry e LEFT JOIN instance i ON i.id = e.owner
        WHERE e.id BETWEEN :lower AND :upper AND ((e.lane IS NULL) <> (e.number IS NULL) OR (
            e.owner IS NOT NULL AND ((e.lane IS NOT NULL AND e.outcome IS DISTINCT FROM 'dead') OR (
                e.leased_until IS NULL AND (e.outcome IS NOT NULL OR i.ended_at IS NOT NULL)
            ))
        ))""",
    ),
    Invariant(
        "what is leased has an owner, and waits for nothing",
        "entry",
        """SELECT id, coalesce('leased until ' || leased_until, 'not leased') || coalesce(', hold ' || hold, '')
        FROM entry WHERE id BETWEEN :lower AND :upper
          AND leased_until IS NOT NULL AND (owner IS NULL OR hold IS NOT NULL)""",
    ),
    Invariant(
        "a declared queue counts what is to be consumed in it",
        "queue",
        """SELECT id, messages || ' messages of ' || bytes || ' bytes, but has ' || has || ' of ' || size FROM (
            SELECT q.id, q.messages, q.bytes, count(m.id) AS has, coalesce(sum(m.body_size), 0) AS size
            FROM queue q LEFT JOIN entry e ON e.queue = q.id AND e.outcome IS NULL AND e.priority IS NOT NULL
                LEFT JOIN message m ON m.id = e.message
            WHERE q.id BETWEEN :lower AND :upper AND q.policy IS NOT NULL GROUP BY q.id, q.messages, q.bytes
        ) counted WHERE messages <> has OR bytes <> size""",
    ),
    Invariant(
        ONE_OUTCOME,
        "entry",
        """SELECT id, coalesce(outcome, 'no outcome') || ', named ' || named FROM entry
        WHERE id BETWEEN :lower AND :upper
          AND ((outcome IS NULL) <> (settled_at IS NULL) OR (outcome IS NOT NULL AND named = 0))""",
    ),
    Invariant(
        "a dead entry lies in a dead-letter queue, with reason and origin",
        "entry",
        """SELECT e.id, 'queue ' || q.name FROM entry e LEFT JOIN queue q ON q.id = e.queue
        WHERE e.id BETWEEN :lower AND :upper AND e.outcome = 'dead'
          AND (q.kind IS DISTINCT FROM 'dead_letter' OR e.reason IS NULL OR e.origin IS NULL)""",
    ),
    Invariant(
        "a sequence of replays has ended, and its entries replay messages of one sequence",
        "lane",
        """SELECT s.id, 'position ' || e.id || ' has message ' || e.message FROM lane s
        JOIN entry e ON e.lane = s.id LEFT JOIN entry arrived ON arrived.id = e.message
        WHERE s.id BETWEEN :lower AND :upper AND s.kind = 'replay'
          AND (s.ended IS NULL OR e.replay_of IS NULL OR arrived.lane IS DISTINCT FROM s.replay_of)""",
    ),
    Invariant(
        "what is replayed is settled",
        "entry",
        """SELECT e.id, coalesce(e.outcome, 'no outcome') || ', position ' || r.id || ' replays it'
        FROM entry e JOIN entry r ON r.message = e.message AND r.replay_of = e.id
        WHERE e.id BETWEEN :lower AND :upper AND (e.outcome IS NULL OR e.outcome = 'dead')""",
    ),
    Invariant(
        "what a journal records is there, unless it is an express message, and of the same message",
        "entry",
        """SELECT e.id, 'position ' || e.journal_of FROM entry e LEFT JOIN entry r ON r.id = e.journal_of
        WHERE e.id BETWEEN :lower AND :upper AND e.journal_of IS NOT NULL
          AND coalesce(r.message, e.journal_of) <> e.message""",
    ),
    Invariant(
        HAS_MESSAGE,
        "entry",
        """SELECT e.id, CASE WHEN m.id IS NULL THEN 'no message ' || e.message ELSE 'no body' END
        FROM entry e LEFT JOIN message m ON m.id = e.message
        WHERE e.id BETWEEN :lower AND :upper AND (m.id IS NULL OR (m.body IS NULL AND e.outcome IS NULL))""",
    ),
    Invariant(
        "a body is as long as it was",
        "message",
        """SELECT id, length(body) || ' bytes of ' || body_size FROM message
        WHERE id BETWEEN :lower AND :upper AND body IS NOT NULL AND length(body) <> body_size""",
    ),
    Invariant(
        "a reply that has a number has one that was given in the sequence that it goes out in",
        "entry",
        """SELECT r.entry, 'number ' || r.number || ', given ' || coalesce(CAST(o.given AS TEXT), 'none')
        FROM reply r LEFT JOIN outbound_sequence o ON o.id = r.outbound
        WHERE r.entry BETWEEN :lower AND :upper AND r.number IS NOT NULL
          AND r.number NOT BETWEEN 1 AND coalesce(o.given, 0)""",
    ),
    Invariant(
        "an outbound sequence counts those of its numbers that are not acknowledged",
        "outbound_sequence",
        """SELECT id, unacknowledged || ' of ' || given || ', last ' || coalesce(CAST(last_number AS TEXT), 'none')
        FROM outbound_sequence WHERE id BETWEEN :lower AND :upper
          AND (unacknowledged NOT BETWEEN 0 AND given OR given > coalesce(last_number, given))""",
    ),
    Invariant(
        "an outbound sequence is of the source, and in the versions, of the sequence that it answers",
        "outbound_sequence",
        """SELECT o.id, 'it answers ' || l.identifier
        FROM outbound_sequence o JOIN lane l ON l.id = o.answers JOIN sequence s ON s.lane = l.id
        WHERE o.id BETWEEN :lower AND :upper
          AND (o.queue, o.principal, o.peer, o.partner, o.rm, o.soap, o.addressing)
              IS DISTINCT FROM (l.queue, l.principal, l.peer, l.partner, s.rm, l.soap, l.addressing)""",
    ),
    Invariant(
        "what leaves in an outbound sequence is about that, and has numbers that were given in it",
        "outbound_sequence",
        """SELECT o.id, 'lane ' || c.lane || ', limit ' || l."limit" || ', given ' || o.given
        FROM outbound_sequence o JOIN channel c ON c.outbound = o.id JOIN lane l ON l.id = c.lane
        WHERE o.id BETWEEN :lower AND :upper
          AND (c.answers IS DISTINCT FROM o.answers OR (c.is_numbered = 1 AND l."limit" > o.given + 1))""",
    ),
    *_of_late_index("connections", BY_CONNECTION, "message", "connection", "'connection ' || connection"),
    *_of_late_index("sequences", BY_LANE, "entry", "number", "'number ' || number || ' of sequence ' || lane"),
    Invariant(
        "a key is never used again",
        "sqlite_sequence",
        """SELECT NULL, name || ' counts ' || seq || ' but has ' || highest FROM (
            SELECT name, seq, CASE name
                WHEN 'entry' THEN max(
                    (SELECT coalesce(max(id), 0) FROM entry), (SELECT coalesce(max(id), 0) FROM message)
                )
                WHEN 'queue' THEN (SELECT max(id) FROM queue)
                WHEN 'ledger' THEN (SELECT max(id) FROM ledger)
                WHEN 'instance' THEN (SELECT max(id) FROM instance)
                WHEN 'outbound_sequence' THEN (SELECT max(id) FROM outbound_sequence)
                WHEN 'client' THEN (SELECT max(id) FROM client)
                WHEN 'subscription' THEN (SELECT max(id) FROM subscription)
                WHEN 'binding' THEN (SELECT max(id) FROM binding)
            END AS highest FROM sqlite_sequence WHERE rowid BETWEEN :lower AND :upper
        ) WHERE highest > seq""",
    ),
    Invariant(
        "the store says which it is, once",
        "sqlite_schema",
        """SELECT NULL, count(*) || ' rows' FROM identity
        WHERE :lower <= 1 AND :upper >= 1 HAVING count(*) <> 1 OR min(mark) < 0""",
    ),
)

TABLES: Final = ("sqlite_schema", *(table.name for table in metadata.sorted_tables))


def all_findings(db: Database) -> Iterator[Finding]:
    """Everything that is wrong with a store; damage that SQLite cannot read past is a finding too."""
    for table in TABLES:
        yield from _readable(table, _damage(db, table))
    for one in INVARIANTS:
        yield from _readable(one.table, _broken(db, one))


def first_wrong(db: Database) -> str | None:
    """The first thing that is wrong with a store, of this version's schema or an older one's."""
    if revision(db, file_of(db)) == HEAD:
        finding = next(all_findings(db), None)
        return None if finding is None else f"{finding.invariant}: {finding.table} {finding.key}, {finding.detail}"
    return next(damage(db), None)


def _readable(table: str, found: Iterator[Finding]) -> Iterator[Finding]:
    try:
        yield from found
    except Exception as error:
        if not tells_damage(error):
            raise
        yield Finding(_WHOLE, table, None, str(error))


_WHOLE: Final = "the file is whole"


def _damage(db: Database, table: str) -> Iterator[Finding]:
    """Findings of SQLite about a table, its indexes and its references."""
    for text in damage(db, table):
        yield Finding(_WHOLE, table, None, text)
    for key, parent in islice(dangling(db, table), MOST_FINDINGS):
        yield Finding("references lead somewhere", table, key, f"to {parent}")


def _broken(db: Database, invariant: Invariant) -> Iterator[Finding]:
    """Rows that break ``invariant``, at most ``MOST_FINDINGS``."""
    first, last = db.execute(invariant.ends).fetchone()
    left = MOST_FINDINGS
    lower = first
    while lower is not None and lower <= last and left:
        bounds = {"lower": lower, "upper": lower + PIECE - 1}
        for found, detail in db.execute(said(f"{invariant.question} LIMIT {left}"), bounds).fetchall():
            left -= 1
            yield Finding(invariant.name, invariant.table, found, str(detail))
        lower += PIECE
