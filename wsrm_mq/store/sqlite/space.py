"""Free pages of a store's file are given back to the disk.

Retention leaves free pages in the file, which later messages fill again: a store that is pruned stops growing by
itself. Making the file smaller means writing all of it anew, under a lock that lets no process accept a message; so
it is done only while no service runs.
"""

from __future__ import annotations

import os
import shutil
from contextlib import closing
from pathlib import Path

from wsrm_mq.errors import NotAllowed, StoreFull
from wsrm_mq.store.sqlite import presence
from wsrm_mq.store.sqlite.connection import Space, connect_writer, space, store_errors
from wsrm_mq.store.sqlite.looking import connect_looker


def vacuum(path: Path) -> tuple[int, int]:
    """Write the file anew without free pages; answers its size before and after, in bytes. A crash leaves it as it
    was. Raises ``NotAllowed`` while a service runs, ``StoreFull`` without the space that it needs."""
    refuse(path)
    before = path.stat().st_size
    os.environ["SQLITE_TMPDIR"] = str(path.parent)  # where the space was looked for; read when the file is made
    with closing(connect_writer(path)) as db, store_errors(path):
        db.execute("VACUUM")
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
    return before, path.stat().st_size


def refuse(path: Path) -> Space:
    """The space of the file before ``vacuum``. Raises as that does."""
    used = presence.in_use(path)
    if used:
        raise NotAllowed(
            f"{path}: is used by {used} process{'' if used == 1 else 'es'}, which could accept nothing meanwhile. Stop "
            "the service first; or leave it: free pages are used for what comes next."
        )
    with closing(connect_looker(path)) as db, store_errors(path):
        found = space(db)
    free = shutil.disk_usage(path.parent).free
    if free < found.needed:
        raise StoreFull(f"{path}: to write it anew takes {found.needed} bytes, {free} are free.", "Make room first.")
    return found
