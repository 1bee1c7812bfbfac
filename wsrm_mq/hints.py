"""Hints for the operator name commands in backquotes. One that is copied at 3 am must not hit another store.

A refusal of the store names its path, for it may be read in a log. The command line says again what was typed there.
"""

from __future__ import annotations

import re
import shlex
from pathlib import Path


def about(store: Path, hint: str) -> str:
    """``hint``, whose commands stand in backquotes, so that each means the store at this path wherever it is run."""
    return with_flags(store_flag(store), hint)


def store_flag(store: Path | str) -> str:
    """What follows a command, a space before it, so that it means this store."""
    return f" --store {shlex.quote(str(store))}"


def with_flags(flags: str, hint: str) -> str:
    """``hint`` with ``flags`` behind each of its commands."""
    return re.sub("`(wsrm-mq [^`]*)`", lambda command: f"`{command[1]}{flags}`", hint)
