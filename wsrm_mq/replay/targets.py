"""The targets of a plan: an application that is called here, or an address that gets plain SOAP posts.

An address is checked before anything is sent: a store has business data, and a wrong address would get a day of it.
Nothing follows a redirect.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

from wsrm_mq.delivery.application import Application, Environ, WSGIApplication, call_wsgi
from wsrm_mq.delivery.delivery import Call, Delivery, Outcome
from wsrm_mq.delivery.service_reply import UnusableReply
from wsrm_mq.errors import NotAllowed, NotAnswered
from wsrm_mq.queue.policy import PolicyOf, QueuePolicy
from wsrm_mq.replay.plan import KEY_HEADER

if TYPE_CHECKING:
    from wsrm_mq.outbound.posting import Poster

MADE_UP_SECONDS: Final = 0.1
"""The time for which missed turns are made up."""
_DEFAULT_SECONDS: Final = 60.0
_CONNECT_SECONDS: Final = 5.0
_OPTION: Final = "replay_targets"
_SENT: Final = {
    "CONTENT_TYPE": "Content-Type",
    "HTTP_SOAPACTION": "SOAPAction",
    "HTTP_ACCEPT": "Accept",
    "HTTP_ACCEPT_LANGUAGE": "Accept-Language",
}
"""Headers of the stored request that go along; none of them names the sender."""


def to_application(app: WSGIApplication, policy_of: PolicyOf, **options: Any) -> Call:
    """Calls a WSGI application here; ``options`` as of ``Application``."""
    return Application(partial(call_wsgi, app), policy_of, **options)


def check_address(url: str, allowed: Sequence[str], *, connects: bool = False) -> None:
    """Raises ``NotAllowed`` for an address that nothing is sent to: one that is not http or https, or that leads into a
    private network or to this machine and does not begin with one of ``allowed``. ``connects``: it is connected to as
    well, and nothing is sent; raises ``NotAnswered`` where that fails."""
    from wsrm_mq.outbound.addresses import Allowed, check_url
    from wsrm_mq.outbound.names import Names
    from wsrm_mq.outbound.posting import Poster

    check_url(url, Allowed(_OPTION, allowed), Names().look_up)
    if connects:
        Poster(Allowed(_OPTION, allowed), seconds=_CONNECT_SECONDS).connect(url)


def to_address(
    url: str, policy_of: PolicyOf, allowed: Sequence[str] = (), *, seconds: float = _DEFAULT_SECONDS, threads: int = 64
) -> Call:
    """Posts a message to ``url`` without its headers of WS-RM; into a private network only below one of ``allowed``.
    Only 2xx without a SOAP fault is success, for a one-way too: a target that does not take a message gets it again."""
    from wsrm_mq.outbound.addresses import Allowed
    from wsrm_mq.outbound.posting import Poster

    poster = Poster(Allowed(_OPTION, allowed), seconds=seconds, connections=threads)

    def strictly(partner: str | None) -> QueuePolicy:
        return replace(policy_of(partner), retry_faults=True)

    application = Application(partial(_post, poster, url), strictly, headers="strip")

    def call(delivery: Delivery) -> Outcome:
        outcome = application(delivery)
        if outcome.remark is None:
            return outcome
        return Outcome(error=outcome.remark, diagnosis=outcome.diagnosis._replace(kind="soap_fault"))

    return call


def _post(poster: Poster, url: str, environ: Environ) -> tuple[str, list[tuple[str, str]], bytes]:
    fields = {name: environ[key] for key, name in _SENT.items() if environ.get(key)}
    fields[KEY_HEADER] = _key(environ)
    fields["Content-Length"] = environ["CONTENT_LENGTH"]
    try:
        answer = poster.post(url, fields, environ["wsgi.input"])
    except (NotAllowed, NotAnswered) as error:
        raise UnusableReply(str(error)) from error
    return f"{answer.status} {answer.reason}".strip(), answer.headers, answer.content


def _key(environ: Environ) -> str:
    parts = [environ["wsrm.sequence_id"], str(environ["wsrm.message_number"]), environ["wsrm.replay_id"]]
    return ";".join(quote(part, safe=":") for part in parts if part)


class Pace:
    """Turns of calls, of all threads together: at most ``rate`` a second; ``None``: any number."""

    def __init__(self, rate: float | None) -> None:
        self._seconds = 0.0 if rate is None else 1 / rate
        self._next = time.monotonic()
        self._lock = threading.Lock()
        self._stopped = threading.Event()

    def turns(self, most: int) -> int:
        """Take the turns that have come by now, at most ``most``, without waiting; answers how many."""
        if not self._seconds:
            return most
        with self._lock:
            now = time.monotonic()
            self._next = max(self._next, now - MADE_UP_SECONDS)
            taken = max(0, min(most, 1 + math.floor((now - self._next) / self._seconds)))
            self._next += taken * self._seconds
        return taken

    def wait(self) -> bool:
        """Wait for the turn of one call; ``False``: it does not come, as the run was stopped."""
        if not self._seconds:
            return True
        with self._lock:
            now = time.monotonic()
            turn = max(now, self._next)
            self._next = turn + self._seconds
        return not self._stopped.wait(turn - now)

    def stop(self) -> None:
        """End all waits: no turn comes any more."""
        self._stopped.set()
