"""What lies beside a store: a directory with locks, sockets, witness, reserve and clock. And how a lock is read."""

from __future__ import annotations

import fcntl
import os
import stat
from pathlib import Path

from wsrm_mq.errors import StoreUnavailable
from wsrm_mq.events.telling import Events


def beside(store: Path) -> Path:
    """The directory of the store at ``store``."""
    return store.with_name(store.name + ".d")


def witness_file(store: Path) -> Path:
    """What tells that a store was in use here, and how far it was; see ``identity``."""
    return beside(store) / "witness"


def clock_file(store: Path) -> Path:
    """The last time that was believed; see ``believed``."""
    return beside(store) / "clock"


def rehearsal_file(store: Path) -> Path:
    """What tells that acts may be tried on a copy here; see ``identity``."""
    return beside(store) / "rehearsal"


def content_of(file: Path) -> bytes:
    """What is in a file beside a store, and in no other that it leads to. Raises ``OSError``."""
    handle = os.open(file, os.O_RDONLY | os.O_NOFOLLOW)
    with os.fdopen(handle, "rb") as opened:
        return opened.read()


def keep_private(store: Path, events: Events) -> None:
    """Take other users' permissions on the store's files away, loudly: messages are in them. Raises
    ``StoreUnavailable`` where a link stands beside the store: what is written there would be somewhere else."""
    home = beside(store)
    files = [store, *(store.with_name(f"{store.name}{suffix}") for suffix in ("-wal", "-shm")), home]
    if home.is_dir() and not home.is_symlink():
        files += home.iterdir()
    for file in files:
        try:
            found = file.lstat()
        except OSError:  # it is gone, or never was
            continue
        if stat.S_ISLNK(found.st_mode):
            raise StoreUnavailable(
                f"{file}: is a symbolic link; what is written there would be somewhere else.",
                "Find out who made it, and remove it.",
            )
        open_to_others = found.st_mode & 0o077
        if not open_to_others or stat.S_ISSOCK(found.st_mode):
            continue
        try:
            file.chmod(stat.S_IMODE(found.st_mode) & 0o700)
        except OSError as error:
            events.tell("store.not_private", path=file, mode=f"{found.st_mode & 0o777:04o}", error=error)
        else:
            events.tell("store.tightened", path=file, mode=f"{found.st_mode & 0o777:04o}")


def is_locked(file: Path) -> bool | None:
    """Whether a process holds the lock on this file; ``None`` where there is no such file."""
    try:
        handle = os.open(file, os.O_RDONLY | os.O_NOFOLLOW)
    except FileNotFoundError:
        return None
    except OSError:  # not known: a live process must not be taken for dead
        return True
    try:
        fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(handle)
    return False
