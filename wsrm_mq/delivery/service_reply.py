"""The answer of the wrapped application, in a form that can be stored and sent on: of HTTP, expanded, of a bounded
size.

An application is held to the rules of a server: an answer that could not be sent is an error of the application, and
counts as one. What it raises is told in texts that can be stored.
"""

from __future__ import annotations

import re
import sysconfig
import traceback
import zlib
from collections.abc import Callable, Iterable
from functools import lru_cache
from pathlib import Path
from typing import Any, Final, NamedTuple

from wsrm_mq.events.inert import as_error, type_name
from wsrm_mq.store.sql import storable

_LEAST_STATUS: Final = 200
_STATUS: Final = re.compile(r"([1-9][0-9]{2})(?: [\t\x20-\x7e\x80-\xff]{0,1000})?")
_NAME: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_VALUE: Final = re.compile(r"[\t\x20-\x7e\x80-\xff]*")
_HEADERS_LENGTH: Final = 64 * 1024
"""Characters of all headers together; servers and clients take about so many."""
_ACKNOWLEDGED: Final = re.compile(rb":SequenceAcknowledgement[^<>]*>\s*<[^<>]*Identifier[^<>]*>\s*([^<>\s]*)")
_SHOWN: Final = 100
_GZIP_OR_ZLIB: Final = 32 + zlib.MAX_WBITS
_COMPRESSED: Final = frozenset({"gzip", "x-gzip", "deflate"})
_HOP_BY_HOP: Final = frozenset(
    {
        "connection",
        "content-length",
        "keep-alive",
        "proxy-authenticate",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
    }
)


class UnusableReply(Exception):
    """The application's answer cannot be sent on; the text says why."""


@lru_cache(256)
def status_of(status: Any) -> tuple[int, str]:
    """The code and the text of a status line without the protocol, which is a text or latin-1 bytes.

    Raises ``UnusableReply`` for a line that is no final status of HTTP.
    """
    text = _text(status, "status")
    found = _STATUS.fullmatch(text)
    if found is None or int(found[1]) < _LEAST_STATUS:
        raise UnusableReply(f"answered with the status {_shown(text)}, which is none of HTTP")
    return int(found[1]), text


def reply_headers(headers: Iterable[Any]) -> tuple[tuple[str, str], ...]:
    """The headers of an answer, texts or latin-1 bytes, without those of one connection.

    Raises ``UnusableReply`` for a header that HTTP cannot carry.
    """
    found = []
    length = 0
    for raw_name, raw_value in headers:
        name = _text(raw_name, "name of a header")
        value = _text(raw_value, f"value of the header {_shown(name)}").strip(" \t")
        if _NAME.fullmatch(name) is None or _VALUE.fullmatch(value) is None:
            raise UnusableReply(f"answered with the header {_shown(name)}: {_shown(value)}, which HTTP cannot carry")
        length += len(name) + len(value)
        if name.lower() not in _HOP_BY_HOP:
            found.append((name, value))
    if length > _HEADERS_LENGTH:
        raise UnusableReply(f"answered with {length} characters of headers; {_HEADERS_LENGTH} are the most")
    return tuple(found)


def check_is_of_a_service(content: bytes, identifier: str) -> None:
    """Raises ``UnusableReply`` for the answer of another middleware that stands between this one and the service: it
    acknowledges the sequence of this delivery, or does not know it. The service was not called. Most such deliveries
    are refused by the keys ``wsrm.*``, which a layer between the two may have lost."""
    name = identifier.encode()
    if name not in content:
        return
    is_acknowledged = any(found[1] == name for found in _ACKNOWLEDGED.finditer(content))
    if is_acknowledged or b":UnknownSequence<" in content:
        raise UnusableReply(
            "answered by another WSRMMiddleware inside this one, not by the service, which is wrapped twice. Take one "
            "of them away: wrap the service once"
        )


def check_size(size: int, limit: int) -> None:
    """Raises ``UnusableReply`` for an answer of more than ``limit`` bytes."""
    if size > limit:
        raise UnusableReply(f"answered with more than {limit} bytes, which is max_reply")


def expanded(
    headers: tuple[tuple[str, str], ...], content: bytes, limit: int
) -> tuple[tuple[tuple[str, str], ...], bytes]:
    """Headers and body of an answer, expanded: a compressed answer can carry no acknowledgement.

    Raises ``UnusableReply`` for a Content-Encoding that cannot be undone here.
    """
    coding = ",".join(value for name, value in headers if name.lower() == "content-encoding").strip().lower()
    if coding in ("", "identity") or not content:
        return headers, content
    if coding not in _COMPRESSED:
        raise UnusableReply(
            f"answered with Content-Encoding {_shown(coding)}, into which no acknowledgement can be put; "
            "have the service answer without it, or with gzip"
        )
    others = tuple((name, value) for name, value in headers if name.lower() != "content-encoding")
    return others, _expand(content, limit)


def _expand(content: bytes, limit: int) -> bytes:
    pieces: list[bytes] = []
    size = 0
    while content:  # gzip may have several members
        member = zlib.decompressobj(_GZIP_OR_ZLIB)
        try:
            piece = member.decompress(content, limit - size + 1)
        except zlib.error:
            raise UnusableReply("answered with a body that is not compressed as its Content-Encoding says") from None
        size += len(piece)
        check_size(size, limit)
        if not member.eof:
            raise UnusableReply("answered with a compressed body that breaks off")
        pieces.append(piece)
        content = member.unused_data
    return b"".join(pieces)


def _text(value: Any, what: str) -> str:
    if isinstance(value, bytes):
        return value.decode("latin-1")
    if isinstance(value, str):
        return value
    raise UnusableReply(f"answered with a {what} that is no text but {type(value).__name__}")


def _shown(text: str) -> str:
    return storable(repr(text[:_SHOWN]))


# An exception as it is told to operators: its type, the place in the application where it was raised, and its text.
#
# The exception may raise where it is asked for its text or its name: nothing below raises.

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
