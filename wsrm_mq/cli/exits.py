"""What the exit status says, and which error becomes which."""

from __future__ import annotations

import enum
from typing import Any, Final

import click

from wsrm_mq.errors import (
    ConfigurationError,
    NotAllowed,
    NotFound,
    StoreError,
    WSRMError,
)

__all__ = ["Exit", "Stopped", "stopped"]


class Exit(enum.IntEnum):
    OK = 0
    FAILED = 1
    USAGE = 2
    NOT_FOUND = 3
    REFUSED = 4
    """The state of the thing forbids it, or what makes it safe is missing: --yes, --reason."""
    STORE = 5
    """The store is missing, locked, unreadable, of another version, or awaits confirmation."""
    INTERRUPTED = 130


_BY_ERROR: Final[tuple[tuple[type[WSRMError], Exit], ...]] = (
    (ConfigurationError, Exit.USAGE),
    (NotFound, Exit.NOT_FOUND),
    (NotAllowed, Exit.REFUSED),
    (StoreError, Exit.STORE),
    (WSRMError, Exit.FAILED),
)


class Stopped(click.ClickException):
    """Ends the command with a sentence on standard error and a status."""

    def __init__(self, message: str, code: Exit) -> None:
        super().__init__(message)
        self.exit_code = code  # type: ignore[misc]

    def show(self, file: Any = None) -> None:
        from wsrm_mq.cli.output import say

        if self.message:
            say(f"wsrm-mq: {self.message}")


def stopped(error: WSRMError) -> Stopped:
    """The end of a command that met ``error``."""
    return Stopped(str(error), next(code for kind, code in _BY_ERROR if isinstance(error, kind)))
