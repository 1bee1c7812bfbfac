"""A host that hangs holds one thread at a time, so that what is sent to others has the rest.

Without that a partner whose endpoint takes connections and answers nothing would keep every thread that sends, and the
acknowledgements and replies of all others would wait behind its own (SEC-018). A host of which nothing is known yet may
be such a one: it too gets one thread until it has answered once. Whoever may name hosts can name many, so those that do
not answer have few threads among them. Only one that has answered and begins to hang keeps the threads that are with
it, once, until their time-outs are over.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from typing import Final
from urllib.parse import urlsplit

from wsrm_mq.delivery.posted import Answered, Post
from wsrm_mq.errors import LeftAlone, NotAnswered
from wsrm_mq.remembered import Recent

__all__ = ["Patient"]

HUNG_SECONDS: Final = 1.0
"""What fails more quickly keeps no thread from others."""
SOON_SECONDS: Final = 0.05
"""The least for which a host is left alone that is being tried."""
STRANGERS: Final = 4
"""So many hosts are tried at a time that have not answered: fewer than any pool that posts has threads."""
_HOSTS: Final = 1_024


class _Host:
    """What is known of one. Until it ``answers`` one thread at a time tries it; that one began at ``tried_at``."""

    def __init__(self) -> None:
        self.answers = False
        self.tried_at: float | None = None
        self.hung_for = 0.0
        """Seconds that the last attempt took, if it hung."""
        self.until = float("-inf")
        """Until then it is left alone."""
        self.why = "it has not answered yet"

    def left_alone(self, now: float) -> float:
        """Seconds until it may be tried by one thread more; 0: now. One that is being tried for the first time is asked
        again after as long as that has taken, so it has few questions however long it takes."""
        if self.answers:
            return 0.0
        if self.tried_at is not None:
            return max(SOON_SECONDS, self.hung_for, now - self.tried_at)
        return max(0.0, self.until - now)


class Patient:
    """Posts by ``post``. A host that has hung is left alone for as long as it took; then, as one that is unknown, it is
    tried by one thread at a time until it answers, and ``STRANGERS`` such hosts at a time. What is to go there
    meanwhile is not sent, and raises ``LeftAlone``."""

    def __init__(self, post: Post, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._post = post
        self._monotonic = monotonic
        self._hosts: Recent[str, _Host] = Recent(_HOSTS)
        self._tried: set[_Host] = set()
        """Those that are being tried, and have not answered."""
        self._lock = threading.Lock()

    def __call__(self, url: str, headers: Mapping[str, str], body: bytes) -> Answered:
        begun = self._monotonic()
        host = self._enter(url, begun)
        try:
            answered = self._post(url, headers, body)
        except NotAnswered as error:
            self._leave(host, begun, str(error).removeprefix(f"{url}: "))
            raise
        except BaseException:
            self._leave(host, begun)
            raise
        with self._lock:
            host.answers, host.hung_for = True, 0.0
            self._tried_no_more(host)
        return answered

    def _enter(self, url: str, now: float) -> _Host:
        name = urlsplit(url).netloc.lower()
        with self._lock:
            host = self._hosts.get(name)
            if host is None:
                host = _Host()
                self._hosts.keep(name, host)
            seconds = host.left_alone(now)
            if seconds > 0:
                raise LeftAlone(f"{url}: its host is left alone for {seconds:.3g} s: {host.why}", seconds)
            if not host.answers:
                if len(self._tried) >= STRANGERS:
                    raise self._crowded(url, now)
                host.tried_at = now
                self._tried.add(host)
            return host

    def _crowded(self, url: str, now: float) -> LeftAlone:
        """The newest of those that are being tried tells how soon one of them may be through."""
        seconds = max(SOON_SECONDS, now - max(one.tried_at or now for one in self._tried))
        why = f"{STRANGERS} others that have not answered are being tried"
        return LeftAlone(f"{url}: its host is left alone for {seconds:.3g} s: {why}", seconds)

    def _tried_no_more(self, host: _Host) -> None:
        host.tried_at = None
        self._tried.discard(host)

    def _leave(self, host: _Host, begun: float, why: str = "") -> None:
        """It has not answered; ``why`` is empty where it was not asked."""
        with self._lock:
            if host.tried_at == begun:
                self._tried_no_more(host)
            if not why:
                return
            now = self._monotonic()
            has_hung = now - begun >= HUNG_SECONDS
            host.why, host.hung_for = why, now - begun if has_hung else 0.0
            if has_hung:
                host.answers, host.until = False, now + host.hung_for
