"""Stores with one mistake each, and what could be taken for one: what ``audit``, ``reconcile`` and ``store verify`` say
of each is the table of ``docs/howto/spark.md``, which ``test_planted`` makes."""

from __future__ import annotations

import shutil
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Final, NamedTuple

from tests.spark.nodes import FAULT, HOUR, Node
from wsrm_mq.queue.policy import OnPoison


class Plant(NamedTuple):
    statements: str
    """What is done to a copy of the sound store."""
    remark: str = ""
    """What the table says: why it is no mistake, or why none can find it."""
    is_beside: bool = False
    """Its sequences are those of another store, which is as it was."""


_LAST = "(SELECT max(id) FROM entry)"
_DROP = "DELETE FROM entry WHERE id = {0}; DELETE FROM lane_entry WHERE entry = {0}"
_BACK: Final = f"""
UPDATE message SET received_at = received_at - {HOUR} WHERE id BETWEEN 5 AND 10;
UPDATE entry SET settled_at = settled_at - {HOUR} WHERE id BETWEEN 5 AND 10;
UPDATE ledger SET at = at - {HOUR} WHERE position BETWEEN 5 AND 10"""
_TWIN: Final = """
INSERT INTO message SELECT 100, message_id || 'x', action, environ, principal, connection, received_at + 1, body_size,
    body FROM message WHERE id = 2;
INSERT INTO entry (id, queue, message, lane, number, outcome, settled_at, deliveries)
    SELECT 100, queue, 100, lane, number, outcome, settled_at + 1, 1 FROM entry WHERE id = 2"""

# In the sound store positions 1 to 6 are delivered in order in the first sequence; of the second 7 and 8 are delivered,
# 9 is a dead letter, 10 was answered with a fault; of the third 11 is delivered and 12 is held by a hold.
PLANTS: Final[dict[str, Plant]] = {
    "nothing": Plant("SELECT 1", "sound"),
    "what retention has deleted": Plant(
        f"{_DROP.format(1)}; UPDATE lane SET pruned = 1 WHERE id = 1", "counted by its sequence: no mistake"
    ),
    "a clock that was an hour off for a while": Plant(_BACK, "told by what was written in order: no mistake"),
    "an acknowledged message, removed": Plant("DELETE FROM entry WHERE id = 3"),
    "the same, from the index too": Plant(_DROP.format(3)),
    "the last message, with its number": Plant(
        'UPDATE range SET upper = 5 WHERE lane = 1; UPDATE lane SET cursor = 6, "limit" = 6 '
        f"WHERE id = 1; {_DROP.format(6)}",
        "a message that never came looks the same: its source knows",
    ),
    "the message of an entry": Plant("DELETE FROM message WHERE id = 3"),
    "a number out of the ranges": Plant("UPDATE range SET upper = 5 WHERE lane = 1"),
    "a number that two messages have": Plant(_TWIN),
    "two deliveries, the wrong way round": Plant(
        "UPDATE entry SET settled_at = (SELECT settled_at FROM entry WHERE id = 5) + 1 WHERE id = 4"
    ),
    "settled before it came": Plant(f"UPDATE entry SET settled_at = settled_at - {HOUR} WHERE id = 1"),
    "settled without a time": Plant("UPDATE entry SET settled_at = NULL WHERE id = 6"),
    "settled and not acknowledged": Plant("UPDATE entry SET named = 0 WHERE id = 6"),
    "delivered, turned into a dead letter": Plant(
        "UPDATE entry SET outcome = 'dead', reason = 'max_failures' WHERE id = 6"
    ),
    "delivered, turned into discarded": Plant("UPDATE entry SET outcome = 'discarded', reason = 'why' WHERE id = 6"),
    "delivered, turned into purged": Plant("UPDATE entry SET outcome = 'purged' WHERE id = 6"),
    "held, turned into delivered": Plant(
        "UPDATE entry SET outcome = 'delivered', settled_at = (SELECT max(settled_at) FROM entry) + 9 WHERE id = 12",
        "a delivery has no other witness: the service's own database knows",
    ),
    "the ledger's row of a dead letter": Plant("DELETE FROM ledger WHERE event = 'dead'"),
    "the whole ledger": Plant("DELETE FROM ledger"),
    "the row of a sequence": Plant("DELETE FROM lane WHERE id = 2"),
    "a sequence, with all that it had": Plant(
        "DELETE FROM range WHERE lane = 1; DELETE FROM lane_entry WHERE lane = 1; DELETE FROM sequence WHERE lane = 1; "
        "DELETE FROM message WHERE id <= 6; DELETE FROM entry WHERE lane = 1; DELETE FROM lane WHERE id = 1; "
        "DELETE FROM ledger WHERE sequence = 1; DELETE FROM connection_message WHERE message <= 6",
        "as retention leaves it",
    ),
    "a body of another length": Plant("UPDATE message SET body = x'3c612f3e' WHERE id = 3"),
    "a body of the same length": Plant(
        "UPDATE message SET body = CAST(replace(CAST(body AS TEXT), '<put', '<pot') AS BLOB) WHERE id = 3",
        "the store has no digest of it: an archive made before has, `archive verify --all`",
    ),
    "a limit that was moved": Plant('UPDATE lane SET "limit" = 9 WHERE id = 1'),
    "a number that only another store has settled so": Plant(
        "UPDATE entry SET settled_at = settled_at + 5000 WHERE id = 6", is_beside=True
    ),
    "a store that was put back from the past": Plant(
        'UPDATE range SET upper = 4 WHERE lane = 1; UPDATE lane SET cursor = 5, "limit" = 5 '
        f"WHERE id = 1; {_DROP.format(5)}; {_DROP.format(6)}",
        is_beside=True,
    ),
    "one message at two nodes": Plant("UPDATE lane SET identifier = identifier || ':elsewhere'", is_beside=True),
}


def planted(directory: Path) -> dict[str, list[Path]]:
    """Of each plant, the stores that it is looked for in. Each is a store of its own, with its own traffic."""
    sound = _sound(directory / "sound.db")
    found: dict[str, list[Path]] = {}
    for place, (name, plant) in enumerate(PLANTS.items()):
        paths = [directory / f"{place:02}.db"]
        _copied(sound, paths[0], f"{place:02}", f"{place:02}", plant.statements)
        if plant.is_beside:
            paths.append(directory / f"{place:02}-beside.db")
            _copied(sound, paths[1], f"{place:02}-beside", f"{place:02}", "SELECT 1")
        found[name] = paths
    sound.unlink()
    return found


def _sound(path: Path) -> Path:
    node = Node(path)
    first, second, third = (node.sequence(partner="acme") for _ in range(3))
    for number in range(1, 7):
        node.send(first, number)
        node.deliver(first, number)
    for number in range(1, 5):
        node.send(second, number)
        if number == 3:
            node.fail(second, number, on_poison=OnPoison.DEAD_LETTER)
        else:
            node.deliver(second, number, **({"diagnosis": FAULT, "remark": "none left"} if number == 4 else {}))
    node.send(third, 1, 2)
    node.deliver(third, 1)
    node.instance.close()
    with closing(sqlite3.connect(path)) as db:
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    return path


def _copied(sound: Path, path: Path, store: str, traffic: str, statements: str) -> None:
    shutil.copy(sound, path)
    with closing(sqlite3.connect(path)) as db:
        db.execute("PRAGMA ignore_check_constraints = ON")
        db.executescript(
            f"""UPDATE identity SET id = '{store}';
            UPDATE lane SET identifier = '{traffic}:' || identifier;
            UPDATE message SET message_id = '{traffic}:' || message_id;
            {statements};"""
        )
