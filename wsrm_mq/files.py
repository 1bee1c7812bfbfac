"""Files that are whole or not there, after a crash of the machine too."""

from __future__ import annotations

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


def sync_directory(directory: Path) -> None:
    """Have the names in it on disk."""
    handle = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
