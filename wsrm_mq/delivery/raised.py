"""An exception as it is told to operators: its type, the place in the application where it was raised, and its text.

The exception may raise where it is asked for its text or its name: nothing here raises.
"""

from __future__ import annotations

import sysconfig
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Final, NamedTuple

from wsrm_mq.events.inert import as_error, type_name
from wsrm_mq.store.sql import storable

_TEXT_LENGTH: Final = 2_000
"""The characters of its text that are kept, and as many of its traceback."""
_NAME_LENGTH: Final = 200
_PLACE_LENGTH: Final = 300
_OWN: Final = str(Path(__file__).parents[1])
_LIBRARIES: Final = (
    *(f"{sysconfig.get_path(name)}/" for name in ("stdlib", "platstdlib", "purelib", "platlib")),
    f"{_OWN}/",
    "<",
)
"""Beginnings of the paths of code that is not the application's; ``<`` is that of code without a file."""
_INSTALLED: Final = ("/site-packages/", "/dist-packages/")

_MTOM: Final = (
    "Hint: Spyne reads no multipart message (MTOM) whose root part begins with an XML declaration, and messages are"
    " delivered as they came. Take the declaration out in front of Spyne, as its how-to page shows, or ask the partner"
    " to leave it out; then try the message again."
)
_KNOWN: Final = (
    ("/spyne/protocol/soap/mime.py", "Unicode strings with encoding declaration", _MTOM),
    ("/spyne/protocol/soap/soap11.py", "encode() argument 'encoding' must be str, not None", _MTOM),
)
"""Exceptions of libraries that say nothing of their cause: file, words, and the next step."""


class Raised(NamedTuple):
    """An exception, in texts that can be stored."""

    type: str
    """``module.name``; one of Python's own goes by its name."""
    place: str | None
    """``path:line function``: the innermost frame in the application. Where all are of libraries, the innermost of
    them; ``None``: it was never raised."""
    said: str
    frames: str
    """The last lines of its traceback: little enough for a column."""

    @property
    def text(self) -> str:
        return f"{self.said}\n{self.traceback}{self.hint}"

    @property
    def hint(self) -> str:
        """The next step, where it is known; else empty."""
        return next((hint for file, words, hint in _KNOWN if file in self.frames and words in self.said), "")

    @property
    def traceback(self) -> str:
        return f"Traceback (most recent call last):\n{self.frames}{self.said}\n"


def raised(error: BaseException) -> Raised:
    """The texts that are kept of an exception that an application raised. Raises nothing, even where the exception's
    own text does."""
    said = storable(as_error(error), _TEXT_LENGTH)
    type_ = _read(_type, error) or type_name(error)
    return Raised(type_, _read(_place, error), said, _read(_frames, error) or "")


def _read(reader: Callable[[BaseException], str | None], error: BaseException) -> str | None:
    try:
        return reader(error)
    except BaseException:
        return None


def _type(error: BaseException) -> str:
    module, name = type(error).__module__, type_name(error)
    return storable(name if module in ("builtins", None) else f"{module}.{name}", _NAME_LENGTH)


def _place(error: BaseException) -> str | None:
    found = innermost = None
    for frame, line in traceback.walk_tb(error.__traceback__):
        innermost = frame.f_code, line
        if _is_of_application(frame.f_code.co_filename):
            found = innermost
    found = found or innermost
    if found is None:
        return None
    code, line = found
    return storable(f"{code.co_filename[-_PLACE_LENGTH:]}:{line} {code.co_qualname[:_NAME_LENGTH]}")


def _is_of_application(path: str) -> bool:
    return not path.startswith(_LIBRARIES) and not any(part in path for part in _INSTALLED)


def _frames(error: BaseException) -> str:
    return storable("".join(traceback.format_tb(error.__traceback__, limit=-3))[-_TEXT_LENGTH:])
