"""Files that are whole or not there, after a crash of the machine too."""

from __future__ import annotations

import fcntl
import hashlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO


@contextmanager
def replacing(file: Path) -> Iterator[BinaryIO]:
    """Write a file under another name; it gets its own when it is whole and on disk. Only its owner may read it."""
    part = file.with_name(f"{file.name}.part")
    part.unlink(missing_ok=True)
    handle = os.open(part, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
    with os.fdopen(handle, "wb") as opened:
        yield opened
        opened.flush()
        os.fsync(handle)
    part.rename(file)
    sync_directory(file.parent)


def digest_of(file: Path) -> tuple[str, int]:
    """SHA-256 of a file, and its size in bytes. Raises ``OSError``."""
    with file.open("rb") as opened:
        return hashlib.file_digest(opened, "sha256").hexdigest(), opened.tell()


def lock_at_once(handle: int) -> bool:
    """Lock an open file until it is closed; answers whether no other process has it locked."""
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def sync_directory(directory: Path) -> None:
    """Have the names in it on disk."""
    handle = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
