"""What the exit status says, and which error becomes which."""

from __future__ import annotations

import enum
from collections.abc import Sequence
from typing import Any, Final

import click

from wsrm_mq.errors import (
    ConfigurationError,
    ExportError,
    NotAllowed,
    NotFound,
    QueryError,
    SparkFailed,
    StoreError,
    WSRMError,
)


class Exit(enum.IntEnum):
    OK = 0
    FAILED = 1
    USAGE = 2
    NOT_FOUND = 3
    REFUSED = 4
    """The state of the thing forbids it, or what makes it safe is missing: --yes, --reason."""
    STORE = 5
    """The store is missing, locked, unreadable, of another version, or awaits confirmation; or an export, or Spark."""
    INTERRUPTED = 130


_BY_ERROR: Final[tuple[tuple[type[WSRMError], Exit], ...]] = (
    (ConfigurationError, Exit.USAGE),
    (QueryError, Exit.USAGE),
    (NotFound, Exit.NOT_FOUND),
    (NotAllowed, Exit.REFUSED),
    (StoreError, Exit.STORE),
    (ExportError, Exit.STORE),
    (SparkFailed, Exit.STORE),
    (WSRMError, Exit.FAILED),
)


class Stopped(click.ClickException):
    """Ends the command with a sentence on standard error, lines ``below`` it, and a status."""

    def __init__(self, message: str, code: Exit, below: Sequence[str] = ()) -> None:
        super().__init__(message)
        self.exit_code = code  # type: ignore[misc]
        self._below = below

    def show(self, file: Any = None) -> None:
        from wsrm_mq.cli.output import say

        if self.message:
            say(f"wsrm-mq: {self.message}")
        for line in self._below:
            say(f"  {line}", keep="\n")


def stopped(error: BaseException) -> click.ClickException:
    """The end of a command that met ``error``."""
    match error:
        case click.ClickException():
            return error
        case ConfigurationError(problems=(first, *others)):
            return Stopped(first, Exit.USAGE, others)
        case WSRMError():
            code = next(code for kind, code in _BY_ERROR if isinstance(error, kind))
            return Stopped(str(error), code, error.pointed if isinstance(error, QueryError) else ())
        case KeyboardInterrupt() | click.Abort():
            return Stopped("interrupted.", Exit.INTERRUPTED)
        case OSError():
            where = f"{error.filename}: " if error.filename is not None else ""
            return Stopped(f"{where}{error.strerror or error}.", Exit.FAILED)
        case UnicodeEncodeError(reason="surrogates not allowed"):  # what Python makes of such bytes in an argument
            return Stopped(f"{error.object!r} has bytes that are not UTF-8; write it in UTF-8.", Exit.USAGE)
        case Exception() if _is_of_a_store(error):
            return Stopped(f"the store: {error}. `wsrm-mq store verify` says whether it is whole.", Exit.STORE)
        case _:
            return Stopped(f"unexpected: {in_a_line(error)}", Exit.FAILED)


def _is_of_a_store(error: Exception) -> bool:
    from wsrm_mq.store.driver import Error

    return isinstance(error, Error)


def in_a_line(error: BaseException) -> str:
    """An error that is not ours: its type, the first line of what it says, where it was raised, and what shows more."""
    from traceback import extract_tb

    said = next(iter(str(error).splitlines()), "")
    frames = extract_tb(error.__traceback__)
    where = f" ({frames[-1].filename}, line {frames[-1].lineno})" if frames else ""
    return f"{type(error).__name__}: {said}{where}. The same words behind `wsrm-mq --debug` show more."
