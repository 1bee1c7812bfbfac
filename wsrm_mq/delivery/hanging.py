"""A host that hangs holds one thread at a time, so that what is sent to others has the rest.

Without that a partner whose endpoint takes connections and answers nothing would keep every thread that sends, and the
acknowledgements and replies of all others would wait behind its own (SEC-018).
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from typing import Final
from urllib.parse import urlsplit

from wsrm_mq.delivery.posting import Answered, Post
from wsrm_mq.errors import NotAnswered
from wsrm_mq.remembered import Recent

__all__ = ["Patient"]

HUNG_SECONDS: Final = 1.0
"""What fails more quickly keeps no thread from others."""
_HOSTS: Final = 1_024


class _Host:
    """What is known of one that hung: it is left alone ``until`` then, and then tried by one thread."""

    def __init__(self) -> None:
        self.until = float("-inf")
        self.is_tried = False
        self.why = ""
        """What the last attempt failed of; empty: it answers."""


class Patient:
    """Posts by ``post``. A host that has hung is left alone for as long as it took; then one attempt at a time is made
    until it answers. What is to go there meanwhile fails at once with ``NotAnswered``, and is sent again as after any
    failure."""

    def __init__(self, post: Post, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._post = post
        self._monotonic = monotonic
        self._hosts: Recent[str, _Host] = Recent(_HOSTS)
        self._lock = threading.Lock()

    def __call__(self, url: str, headers: Mapping[str, str], body: bytes) -> Answered:
        name = urlsplit(url).netloc
        begun = self._monotonic()
        tries = self._enter(name, url, begun)
        why = ""
        try:
            return self._post(url, headers, body)
        except NotAnswered as error:
            if self._monotonic() - begun >= HUNG_SECONDS:
                why = str(error).removeprefix(f"{url}: ")
            raise
        finally:
            self._leave(name, begun, why, tries=tries)

    def _enter(self, name: str, url: str, now: float) -> bool:
        """Answers whether this is the one attempt at a host that has hung."""
        with self._lock:
            host = self._hosts.get(name)
            if host is None or not host.why:
                return False
            if host.is_tried or now < host.until:
                raise NotAnswered(f"{url}: its host hung a moment ago, and is left alone for as long: {host.why}")
            host.is_tried = True
            return True

    def _leave(self, name: str, begun: float, why: str, *, tries: bool) -> None:
        with self._lock:
            host = self._hosts.get(name)
            if host is None:
                if not why:
                    return
                host = _Host()
                self._hosts.keep(name, host)
            if tries:
                host.is_tried = False
            host.why = why
            now = self._monotonic()
            host.until = now + (now - begun)
