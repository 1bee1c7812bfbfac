"""Which entries a sequence has, settled ones too: an index that is filled later.

What a delivery needs is what is not settled: that has an index of its own, ``entry_live``, written with every message
and small.
"""

from __future__ import annotations

from typing import Final

from wsrm_mq.queue.late_index import LateIndex

__all__ = ["BY_SEQUENCE"]

BY_SEQUENCE: Final = LateIndex("sequence_entry", "entry", ("sequence", "number", "entry"), ("sequence", "number", "id"))
