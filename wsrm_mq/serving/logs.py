"""The log of ``serve``: a line a record, for people or for programs. No text of a peer makes a line of its own."""

from __future__ import annotations

import json
import logging
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from wsrm_mq.events.inert import inert


class TextLines(logging.Formatter):
    """``time LEVEL logger message``. A traceback follows, indented."""

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)s %(name)s %(message)s")

    def formatMessage(self, record: logging.LogRecord) -> str:
        return inert(super().formatMessage(record))

    def formatException(self, ei: object) -> str:
        return self.formatStack(super().formatException(ei))  # type: ignore[arg-type]

    def formatStack(self, stack_info: str) -> str:
        return "\n".join(f"    {inert(line)}" for line in stack_info.splitlines())


class JSONLines(logging.Formatter):
    """One object a line, in ASCII: ``at`` (UTC), ``level``, ``logger``, ``event`` and its fields. A record of another
    library has ``message`` instead of an event."""

    def format(self, record: logging.LogRecord) -> str:
        event = getattr(record, "event", None)
        told = {"event": event, **record.fields} if event is not None else {"message": record.getMessage()}  # type: ignore[attr-defined]
        at = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
        document = {"at": f"{at}.{int(record.msecs):03}Z", "level": record.levelname, "logger": record.name, **told}
        if record.exc_info:
            document["traceback"] = self.formatException(record.exc_info)
        return json.dumps(document, default=str)


_FORMATS: Final = {"text": TextLines, "json": JSONLines}


@contextmanager
def silence() -> Iterator[None]:
    """Log nothing within this block: for a library that logs the errors that it raises."""
    logging.disable(logging.CRITICAL)
    try:
        yield
    finally:
        logging.disable(logging.NOTSET)


def keep_quiet() -> None:
    """Let a command write no log to a terminal that it talks on itself; a log that was set up goes on."""
    logging.getLogger("wsrm_mq").addHandler(logging.NullHandler())


def log_to_stderr(level: str, form: str) -> None:
    """Let the whole process log on standard error, as ``form`` says: ``text`` or ``json``."""
    lines = logging.StreamHandler(sys.stderr)
    lines.setFormatter(_FORMATS[form]())
    logging.basicConfig(level=level.upper(), handlers=[lines])
    logging.getLogger("uvicorn.error").setLevel(logging.WARNING)  # it is chatty
