"""Which files each process has open, told by all of them in their lock files, so that no two write to different ones.

SQLite's processes lock each other in the index of the log (``-shm``). Where that file, or the log, is removed while
one has it open, the next process makes another: each then holds the locks of its own file, and both write the same
places of the log. So a process that is to write compares first. What is told stays true while its process
lives, for an open file keeps its inode; a process that has died is not asked.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Final

from wsrm_mq.errors import StoreUnavailable
from wsrm_mq.store.beside import beside, content_of, is_locked
from wsrm_mq.store.rescue import FileIds, file_ids

_SIZE: Final = 256
"""Bytes of what is told: always the same number, so that no reader sees half of it."""


def tell(handle: int, files: FileIds) -> None:
    """Write into the open lock file which files are open; none of them where they are closed."""
    text = json.dumps(files).encode()
    try:
        os.pwrite(handle, text.ljust(_SIZE), 0)
    except OSError:  # the disk is full: that the process lives is more than what it has open
        pass


def refuse_divided(path: Path) -> None:
    """Raise ``StoreUnavailable`` where a live process has other files open than those that stand at ``path``."""
    here = file_ids(path)
    others = [lock for lock in beside(path).glob("*.lock") if _told(lock) not in ((), here) and is_locked(lock)]
    if not others:
        return
    count = "a process has" if len(others) == 1 else f"{len(others)} processes have"
    raise StoreUnavailable(
        f"{path}: {count} it open with files that were removed or replaced since ({path.name}, -wal or -shm). "
        "Written from here, it would lose what they acknowledge.",
        f"Stop every process of the service, then start it. Those that run: {', '.join(lock.stem for lock in others)}.",
    )


def _told(lock: Path) -> FileIds:
    try:
        found = json.loads(content_of(lock))
        return tuple(None if one is None else (int(one[0]), int(one[1])) for one in found)
    except (OSError, ValueError, TypeError, IndexError):
        return ()
