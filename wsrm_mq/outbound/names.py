"""Names of hosts are looked up in threads of their own, for as long as a request can wait and no longer.

A name server may be silent for a minute, and nothing ends a look-up that is under way: a stranger who names hosts of a
name server of his own could keep every thread that waits for one. So a request waits for ``SECONDS``, the threads that
look are few (``shares``: for each sender, and in all), and a name that is being looked up is not looked up twice.
Names that were found once have as many threads of their own: no number of those who ask for others takes them.
"""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from concurrent.futures import wait as wait_for
from contextlib import suppress
from functools import partial
from ipaddress import IPv6Address
from typing import Final, NamedTuple

from wsrm_mq.errors import NameNotKnown, NameServerSilent
from wsrm_mq.remembered import Recent
from wsrm_mq.shares import Shares

SECONDS: Final = 3.0
"""The longest wait for a look-up."""
_MOST: Final = 32
_THREAD: Final = "wsrm-mq-names"
_REMEMBERED: Final = 4_096
_NONE_FOR: Final = 30.0
"""Seconds for which a name without addresses is not looked up again."""
_SILENT_FOR: Final = 5.0
"""Seconds for which a name is not looked up again whose name server failed."""

_Wrong = OSError | NameServerSilent
_Found = list[str] | _Wrong


class _Looking(NamedTuple):
    found: Future[_Found]
    begun: float


class _Failed(NamedTuple):
    error: _Wrong
    until: float


class Names:
    """Look-ups of one process, and their results. At most ``most`` names that were found before, and ``most`` others,
    are looked up at a time."""

    def __init__(self, most: int = _MOST, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._most = most
        self._monotonic = monotonic
        self._found: Recent[str, list[str]] = Recent(_REMEMBERED)
        self._failed: Recent[str, _Failed] = Recent(_REMEMBERED)
        self._begin()

    def _begin(self) -> None:
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self._of_found, self._of_new = Shares(self._most), Shares(self._most)
        self._looking: dict[str, _Looking] = {}

    def known(self, host: str) -> list[str]:
        """Answer the addresses of ``host`` that were found before; never blocks. Raises ``NameNotKnown`` where it has
        to be looked up, ``NameServerSilent`` where that takes too long, and the error of a look-up that failed
        lately."""
        number = _number(host)
        if number is not None:
            return [number]
        found = self._found.get(host)
        if found is not None:
            return found
        now = self._monotonic()
        looking = self._looking.get(host) if self._pid == os.getpid() else None
        if looking is not None and now >= looking.begun + SECONDS:
            raise NameServerSilent(host)
        failed = self._failed.get(host)
        if failed is not None and now < failed.until:
            raise failed.error
        raise NameNotKnown(host)

    def ask(self, host: str, who: str | None = None) -> tuple[Future[_Found], float]:
        """Have ``host`` looked up for ``who``; never blocks. Answers the future of the result, and for how many seconds
        it is to be waited for. Raises ``NameServerSilent`` where too many names are being looked up."""
        if self._pid != os.getpid():  # no thread here goes on with the look-ups of the parent
            self._begin()
        now = self._monotonic()
        with self._lock:
            looking = self._looking.get(host)
            if looking is None:
                shares = self._of_found if self._found.get(host) else self._of_new
                if not shares.has_one(who):
                    raise NameServerSilent(host)
                looking = _Looking(Future(), now)
                looking.found.set_running_or_notify_cancel()
                given_back = partial(shares.take_back, who)
                asked = host, looking.found, given_back
                look = threading.Thread(target=self._look, args=asked, name=_THREAD, daemon=True)
                try:
                    look.start()
                except RuntimeError as error:  # the system has no thread left
                    raise NameServerSilent(host) from error
                self._looking[host] = looking
                shares.lend(who)
        return looking.found, max(0.0, looking.begun + SECONDS - now)

    def look_up(self, host: str, who: str | None = None) -> list[str]:
        """Look ``host`` up for ``who``, and answer its addresses. Raises ``OSError`` where it has none,
        ``NameServerSilent`` where they are not known in time."""
        number = _number(host)
        if number is not None:
            return [number]
        found, seconds = self.ask(host, who)
        wait_for((found,), seconds)
        if not found.done():
            raise NameServerSilent(host)
        result = found.result()
        if isinstance(result, list):
            return result
        raise result

    def _look(self, host: str, told: Future[_Found], given_back: Callable[[], None]) -> None:
        found: _Found
        try:
            places = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
            found = list(dict.fromkeys(str(place[0]) for *_kind, place in places))
            self._found.keep(host, found)
        except BaseException as error:
            found = error if isinstance(error, OSError) else OSError(f"{error}")
            seconds = _NONE_FOR
            if isinstance(error, socket.gaierror) and error.errno == socket.EAI_AGAIN:
                found, seconds = NameServerSilent(host), _SILENT_FOR
            self._failed.keep(host, _Failed(found, self._monotonic() + seconds))
        with self._lock:
            del self._looking[host]
            given_back()
        told.set_result(found)


def _number(host: str) -> str | None:
    """Read a numeric address in any form that a resolver reads without a name server; ``None``: it is a name."""
    plain = host.strip("[]")
    if ":" in plain:
        with suppress(ValueError):
            return str(IPv6Address(plain))
    with suppress(OSError, UnicodeError):
        return socket.inet_ntoa(socket.inet_aton(plain))
    return None
