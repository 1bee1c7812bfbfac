"""What a write that was cut off has left in the log: a process was killed within a transaction, or the power went.

SQLite drops it without a word, which is right: nothing of it was acknowledged. An operator who asks what became of the
last message before the crash is told that it was so.
"""

from __future__ import annotations

import struct
import sys
from contextlib import closing
from pathlib import Path
from typing import Final

from wsrm_mq.store.beside import beside, is_locked
from wsrm_mq.store.database import connect_writer, store_errors
from wsrm_mq.store.rescue import removed

_HEADER: Final = struct.Struct(">8xI4x8s8x")
"""Of the log: the size of a page, and the salt that its frames have."""
_FRAME: Final = struct.Struct(">8x8s8x")
"""Header of a frame, a page follows: its salt; that of an older round of the log is another."""
_INDEX: Final = struct.Struct("<16xI" if sys.byteorder == "little" else ">16xI")
"""Of the index of the log: how many of its frames are committed."""


def dropped_pages(path: Path) -> int:
    """Pages in the log of the store at ``path`` that belong to no committed transaction. To be asked before a process
    opens the store; where another one lives, what it just writes is no loss: 0."""
    if removed(path):  # what stands there is refused, and the log beside it may be of another file
        return 0
    written = _written(path.with_name(f"{path.name}-wal")) if path.exists() else 0
    if not written or any(map(is_locked, beside(path).glob("*.lock"))):
        return 0
    with closing(connect_writer(path)) as db, store_errors(path):
        db.execute("SELECT count(*) FROM sqlite_schema").fetchone()  # the index is made anew from what is committed
        with path.with_name(f"{path.name}-shm").open("rb") as index:
            (committed,) = _INDEX.unpack(index.read(_INDEX.size))
    return max(0, written - int(committed))


def _written(log: Path) -> int:
    """Frames of the last round, the one that was cut off too."""
    try:
        file = log.open("rb")
    except FileNotFoundError:
        return 0
    with file:
        head = file.read(_HEADER.size)
        if len(head) < _HEADER.size:
            return 0
        page, salt = _HEADER.unpack(head)
        frames = 0
        while len(frame := file.read(_FRAME.size)) == _FRAME.size and _FRAME.unpack(frame) == (salt,):
            frames += 1
            file.seek(page, 1)
        return frames + (0 < len(frame) < _FRAME.size)
