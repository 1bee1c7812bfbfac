"""Files of the tests are in memory: to sync a disk takes most of a test's time, and of a kill shows nothing.

A plug-in of pytest (``tests/conftest.py`` names it). ``--basetemp`` and ``TMPDIR`` say otherwise.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from multiprocessing.util import Finalize
from pathlib import Path
from typing import Final

import pytest

MEMORY: Final = Path("/dev/shm")
ENOUGH: Final = 4 * 2**30
"""Bytes free in it; a container may have few."""


def has_room() -> bool:
    """Whether temporary files are to be in memory: there is room, and the environment has no other place for them."""
    return "TMPDIR" not in os.environ and MEMORY.is_dir() and shutil.disk_usage(MEMORY).free >= ENOUGH


@pytest.hookimpl(tryfirst=True)
def pytest_configure() -> None:
    if not has_room():
        return
    os.environ["PYTEST_DEBUG_TEMPROOT"] = str(MEMORY)  # keeps what failed there
    own = Path(tempfile.mkdtemp(prefix="wsrm-mq-tests-", dir=MEMORY))
    own.chmod(0o1777)
    os.environ["TMPDIR"] = str(own)
    tempfile.tempdir = None  # found anew
    # Later than what multiprocessing has there.
    Finalize(None, shutil.rmtree, args=[own], kwargs={"ignore_errors": True}, exitpriority=-200)
