"""Hints for the operator, which name commands in backquotes. A command that is copied at 3 am must not hit another
store.

A refusal of the store names its path, for it may be read in a log. The command line repeats the options that were typed
there.
"""

from __future__ import annotations

import re
import shlex
from pathlib import Path


def about(store: Path, hint: str) -> str:
    """Complete ``hint``, whose commands stand in backquotes, so that each command means the store at this path wherever
    it is run."""
    return with_flags(store_flag(store), hint)


def store_flag(store: Path | str) -> str:
    """The option, with a space before it, that makes a command mean this store."""
    return f" --store {shlex.quote(str(store))}"


def with_flags(flags: str, hint: str) -> str:
    """Put ``flags`` behind each command of ``hint``."""
    return re.sub("`(wsrm-mq (?:(?! --store )[^`])*)`", lambda command: f"`{command[1]}{flags}`", hint)
