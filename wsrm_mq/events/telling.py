"""Events are told: in a line of the log, whose text no peer can forge, in a count, and to ``on_event``.

A line is ``name key=value …``. The record carries the same for programs: ``event`` is the name, ``fields`` a mapping.
Control characters in the text of a peer are escaped, so it makes no line of its own and commands no terminal.

``on_event`` is called in a thread of its own: one that is slow, or hangs, holds up no delivery. Events that it has
no time for are dropped, and that is logged.

Telling never harms the service: every exception of a filter, a handler, a formatter, ``on_event`` or the text of a
value, SystemExit too, ends here. It is counted, and the first time standard error and ``on_event`` are told.
"""

from __future__ import annotations

import contextlib
import logging
import sys
import threading
import traceback
from collections import Counter, deque
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from wsrm_mq.events.inert import as_error, as_text, inert
from wsrm_mq.events.table import EVENTS

LONGEST: Final = 4_000
"""The most characters of a value in a line."""
MOST_WAITING: Final = 1_000
"""Events that may wait for ``on_event``."""


class Event(NamedTuple):
    """Something an operator should hear of: ``name`` is stable, e.g. ``delivery.failed``. The texts are as peers and
    applications wrote them: escape them where they go."""

    name: str
    sequence: str | None
    """Identifier of the sequence that it is about."""
    number: int | None
    detail: str
    """Why: an error or a reason; empty where the name says it all."""
    fields: Mapping[str, object] = {}
    """All fields of the event; see the table."""


OnEvent = Callable[[Event], None]


class Events:
    """Tells the events of one engine. ``start`` makes its locks and threads, which no fork may carry over."""

    def __init__(self, on_event: OnEvent | None = None) -> None:
        self._on_event = on_event
        self.start()

    def start(self) -> None:
        self._lock = threading.Lock()
        """Taken without its condition: an error thrown into a thread that tells could leave a condition's ``with``
        locked."""
        self._changed = threading.Condition(self._lock)
        self._counts: Counter[str] = Counter()
        self._waiting: deque[Event] = deque()
        self._is_dropping = False
        self._is_stopping = False
        self._has_log_failed = False
        self._thread: threading.Thread | None = None

    def stop(self, seconds: float = 1.0) -> None:
        """Wait at most ``seconds`` while ``on_event`` gets the events that wait for it."""
        with self._lock:
            self._is_stopping = True
            self._changed.notify()
            thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            thread.join(seconds)

    def tell(self, name: str, /, *, trouble: BaseException | None = None, **fields: object) -> None:
        """Tell an event of the table. ``trouble`` is logged with its traceback, and is the event's ``error`` where no
        other is given. Raises and waits for nothing."""
        kind = EVENTS[name]
        fields = _with_error(fields, trouble)
        with self._lock:
            self._counts[name] += 1
        try:
            _log(name, kind.level, fields, trouble)
        except BaseException as error:
            self._log_failed(name, error)
        if kind.is_reported and self._on_event is not None:
            self._enqueue(_event(name, fields))

    def _log_failed(self, name: str, error: BaseException) -> None:
        """The log itself has failed, so it is of no use to say so there."""
        with self._lock:
            self._counts["log.failed"] += 1
            is_first, self._has_log_failed = not self._has_log_failed, True
        if is_first:
            fields = {"event": name, "error": as_text(error)}
            _write_to_stderr("log.failed", fields)
            if self._on_event is not None:
                self._enqueue(_event("log.failed", fields))

    def take_counts(self) -> dict[str, int]:
        """Answer how often each event was told since the last call."""
        with self._lock:
            taken, self._counts = self._counts, Counter()
        return taken

    def put_back(self, counts: Mapping[str, int]) -> None:
        """Add counts that were taken and could not be written down to those of the next call."""
        with self._lock:
            self._counts.update(counts)

    # on_event

    def _enqueue(self, event: Event) -> None:
        with self._lock:
            is_full = len(self._waiting) >= MOST_WAITING
            news, self._is_dropping = is_full and not self._is_dropping, is_full
            if not is_full:
                self._waiting.append(event)
                if self._thread is None or not self._thread.is_alive():
                    self._start_thread()
                self._changed.notify()
        if news:
            self.tell("on_event.dropped", event=event.name)

    def _start_thread(self) -> None:
        thread = threading.Thread(target=self._report, name="wsrm-mq-on-event", daemon=True)
        with contextlib.suppress(RuntimeError):  # the system has no thread left: the next event tries again
            thread.start()
            self._thread = thread

    def _report(self) -> None:
        assert self._on_event is not None
        while (event := self._next()) is not None:
            try:
                self._on_event(event)
            except BaseException as error:  # SystemExit too: it would end this thread, and no more
                self.tell("on_event.failed", event=event.name, trouble=error)

    def _next(self) -> Event | None:
        with self._lock:
            while not self._waiting and not self._is_stopping:
                self._changed.wait()
            if self._waiting:
                return self._waiting.popleft()
            self._thread = None
            return None


def tell(name: str, /, *, trouble: BaseException | None = None, **fields: object) -> None:
    """Tell an event where no engine is known: it is logged, not more. Raises nothing."""
    try:
        _log(name, EVENTS[name].level, _with_error(fields, trouble), trouble)
    except BaseException as error:
        _write_to_stderr("log.failed", {"event": name, "error": as_text(error)})


def _with_error(fields: dict[str, object], trouble: BaseException | None) -> dict[str, object]:
    """Add the field ``error`` for ``trouble``: ``on_event`` gets no traceback."""
    return fields if trouble is None or "error" in fields else {**fields, "error": as_error(trouble)}


def _write_to_stderr(name: str, fields: Mapping[str, object]) -> None:
    with contextlib.suppress(BaseException):
        print(line(name, fields), file=sys.stderr, flush=True)


def _event(name: str, fields: Mapping[str, object]) -> Event:
    sequence, number = fields.get("sequence"), fields.get("number")
    detail = next((as_text(fields[field]) for field in ("error", "reason") if fields.get(field) is not None), "")
    return Event(
        name,
        sequence if isinstance(sequence, str) else None,
        number if isinstance(number, int) else None,
        detail,
        fields,
    )


# the log


def _log(name: str, level: int, fields: Mapping[str, object], trouble: BaseException | None) -> None:
    log = logging.getLogger(f"wsrm_mq.{name.partition('.')[0]}")
    if not log.isEnabledFor(level):
        return
    caller = sys._getframe(2)
    about = (type(trouble), trouble, trouble.__traceback__) if trouble is not None else None
    place = caller.f_code
    record = log.makeRecord(
        log.name, level, place.co_filename, caller.f_lineno, line(name, fields), (), about, place.co_name
    )
    record.event, record.fields = name, fields
    if trouble is not None:  # formatters take this text as it is: its lines cannot be taken for lines of the log
        lines = "".join(traceback.format_exception(trouble)).splitlines()
        record.exc_text = "\n".join(f"    {inert(one)}" for one in lines)
    log.handle(record)


def line(name: str, fields: Mapping[str, object]) -> str:
    """``name key=value key="a value with blanks"``, in one line."""
    return " ".join([name, *(f"{key}={_value(value)}" for key, value in fields.items() if value is not None)])


def _value(value: object) -> str:
    text = as_text(value)
    text = text if len(text) <= LONGEST else f"{text[:LONGEST]}…"
    if text and text.isprintable() and not any(char in text for char in ' "=\\'):
        return text
    return '"' + inert(text.replace("\\", "\\\\").replace('"', '\\"')) + '"'
