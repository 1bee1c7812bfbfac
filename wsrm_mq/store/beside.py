"""What lies beside a store: a directory with locks, sockets, the witness and the reserve. And how a lock is read."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

__all__ = ["beside", "is_locked", "witness_file"]


def beside(store: Path) -> Path:
    """The directory of the store at ``store``."""
    return store.with_name(store.name + ".d")


def witness_file(store: Path) -> Path:
    """What tells that a store was in use here, and how far it was; see ``identity``."""
    return beside(store) / "witness"


def is_locked(file: Path) -> bool | None:
    """Whether somebody holds the lock on this file; ``None`` where there is no such file."""
    try:
        handle = os.open(file, os.O_RDWR)
    except FileNotFoundError:
        return None
    except OSError:  # not known: who lives must not be taken for dead
        return True
    try:
        fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(handle)
    return False
