"""Which entries a sequence has, settled ones too: an index that is filled later.

What a delivery needs is what is not settled: that has an index of its own, ``entry_live``, written with every message
and small.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from wsrm_mq.queue.late_index import LateIndex

if TYPE_CHECKING:
    from wsrm_mq.store.transaction import Transaction

__all__ = ["BY_SEQUENCE", "OF_SEQUENCE", "forget"]

BY_SEQUENCE: Final = LateIndex("sequence_entry", "entry", ("sequence", "number", "entry"), ("sequence", "number", "id"))

OF_SEQUENCE: Final = f"""
    SELECT entry AS id FROM sequence_entry WHERE sequence = :sequence
    UNION ALL
    SELECT id FROM entry WHERE id > {BY_SEQUENCE.upto} AND sequence = :sequence
"""
"""The positions of a sequence's entries, each once."""

_DROP: Final = "DELETE FROM sequence_entry WHERE sequence = ? AND number IN (SELECT value FROM json_each(?))"


def forget(tx: Transaction, gone: Iterable[tuple[int, int]]) -> None:
    """The entries with these sequences and numbers were deleted. Their positions are not given again."""
    numbers: dict[int, list[int]] = {}
    for sequence, number in gone:
        numbers.setdefault(sequence, []).append(number)
    for sequence, its in numbers.items():
        tx.execute(_DROP, (sequence, json.dumps(its)))
