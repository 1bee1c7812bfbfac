"""The probe of a remote endpoint: its WSDL is read, and a sequence is opened and ended in every combination of
versions.

Nothing here hangs: each exchange is bounded in time and size. Redirects are not followed: only the named address
answers.
"""

from __future__ import annotations

import http.client
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Final, NamedTuple, TypeVar
from urllib.parse import urlsplit

from lxml import etree

from wsrm_mq.errors import ProbeFailed
from wsrm_mq.testing import EnvelopeFactory, Reply
from wsrm_mq.versions import WSRM_1_0, WSRM_1_1, AddressingVersion, RMVersion, SOAPVersion

R = TypeVar("R")

MOST_BYTES: Final = 4 * 1024 * 1024
_LIFETIME: Final = "PT1M"
"""The lifetime that is asked for: a sequence that cannot be ended is over soon."""
_POLICIES: Final = {
    "http://schemas.xmlsoap.org/ws/2005/02/rm/policy": "RM 1.0",
    "http://docs.oasis-open.org/ws-rx/wsrmp/200702": "RM 1.1",
}
"""The namespace of an RMAssertion, with the version that it promises (WS-RM Policy)."""


class Combination(NamedTuple):
    """The versions that an endpoint may speak together."""

    rm: RMVersion
    soap: SOAPVersion
    addressing: AddressingVersion

    def __str__(self) -> str:
        return f"RM {self.rm.label}, SOAP {self.soap.label}, WS-Addressing {self.addressing.label}"


@dataclass(frozen=True, slots=True)
class Description:
    """The contents of a WSDL."""

    status: int
    is_wsdl: bool = False
    policies: tuple[str, ...] = ()
    soap: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Spoken:
    """The result of a sequence in one combination. ``detail`` is for people: its text is the other side's."""

    combination: Combination
    created: bool = False
    ended: bool = False
    expires: str | None = None
    behavior: str | None = None
    detail: str = ""


class _Answer(NamedTuple):
    status: int
    content_type: str
    body: bytes
    location: str | None


def combinations() -> Iterator[Combination]:
    """Every RM and SOAP version with the WS-Addressing versions that go with it, newest first."""
    for rm in (WSRM_1_1, WSRM_1_0):
        for addressing in reversed(rm.addressings):
            for soap in (SOAPVersion.SOAP_1_2, SOAPVersion.SOAP_1_1):
                yield Combination(rm, soap, addressing)


def describe(url: str, seconds: float) -> Description:
    """Read ``url?wsdl``. Raises ``ProbeFailed`` where no answer comes within ``seconds``."""
    separator = "&" if urlsplit(url).query else "?"
    answer = _exchange(f"{url}{separator}wsdl", seconds)
    try:
        root = etree.fromstring(answer.body, etree.XMLParser(resolve_entities=False, no_network=True, load_dtd=False))
    except etree.XMLSyntaxError:
        return Description(answer.status)
    if etree.QName(root).localname not in ("definitions", "description"):
        return Description(answer.status)
    found = [_POLICIES.get(etree.QName(one).namespace or "") for one in root.iter("{*}RMAssertion")]
    bindings = {"http://schemas.xmlsoap.org/wsdl/soap/": "1.1", "http://schemas.xmlsoap.org/wsdl/soap12/": "1.2"}
    soap = [label for namespace, label in bindings.items() if root.find(f".//{{{namespace}}}binding") is not None]
    return Description(answer.status, True, tuple(dict.fromkeys(one for one in found if one)), tuple(soap))


def speak(url: str, combination: Combination, seconds: float) -> Spoken:
    """Open a sequence at ``url`` and end it again. Raises ``ProbeFailed`` where no answer comes within ``seconds``."""
    factory = EnvelopeFactory(*combination, to=url)
    action = combination.rm.action("CreateSequence")
    created = _ask(url, factory, action, factory.create_sequence(expires=_LIFETIME), seconds)
    if isinstance(created, str):
        return Spoken(combination, detail=created)
    if created.created is None:
        return Spoken(combination, detail=_unexpected(created))
    made = created.created
    identifier = made.identifier
    action = combination.rm.action("TerminateSequence")
    try:
        ended = _ask(url, factory, action, factory.terminate(identifier), seconds)
    except ProbeFailed as error:
        ended = str(error)
    is_ended = ended == "" or (isinstance(ended, Reply) and ended.fault is None)
    detail = "" if is_ended else f"not ended: {ended if isinstance(ended, str) else _unexpected(ended)}"
    return Spoken(combination, True, is_ended, made.expires, made.behavior, detail)


def _ask(url: str, factory: EnvelopeFactory, action: str, envelope: bytes, seconds: float) -> Reply | str:
    """Send an envelope and read the answer: a reply, or the reason why there is none; empty: it was taken without a
    reply."""
    fields = factory.fields(envelope)
    if factory.soap is SOAPVersion.SOAP_1_2:
        fields["Content-Type"] += f'; action="{action}"'
    answer = _exchange(url, seconds, envelope, fields)
    if answer.location is not None:
        return f"HTTP {answer.status}: redirects to {answer.location}; name that address if it is meant"
    if not answer.body:
        return "" if answer.status in (200, 202) else f"HTTP {answer.status} without a body"
    try:
        return Reply.parse(answer.body)
    except (ValueError, KeyError, etree.XMLSyntaxError):
        return f"HTTP {answer.status}, not SOAP but {answer.content_type or 'of no type'}"


def _unexpected(reply: Reply) -> str:
    if reply.fault is not None:
        return f"{reply.fault.subcode or reply.fault.code}: {reply.fault.reason}"
    return f"answers with {reply.body_name or 'an empty Body'}"


# HTTP


def _exchange(url: str, seconds: float, body: bytes | None = None, fields: dict[str, str] | None = None) -> _Answer:
    """One request on a connection of its own: POST of ``body``, without one GET."""
    parts = urlsplit(url)

    def ask() -> _Answer:
        assert parts.hostname is not None
        kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
        connection = kind(parts.hostname, parts.port, timeout=seconds)
        path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        try:
            connection.request("GET" if body is None else "POST", path, body, {"Connection": "close", **(fields or {})})
            answer = connection.getresponse()
            content = answer.read(MOST_BYTES + 1)
            if len(content) > MOST_BYTES:
                raise ProbeFailed(f"{url}: answers with more than {MOST_BYTES} bytes.")
            if answer.length:
                raise ProbeFailed(f"{url}: the answer broke off, {answer.length} bytes before its end.")
            location = answer.getheader("Location") if 300 <= answer.status < 400 else None
            return _Answer(answer.status, answer.headers.get_content_type(), content, location)
        finally:
            connection.close()

    try:
        return _within(seconds, ask)
    except TimeoutError as error:
        raise ProbeFailed(f"{url}: no whole answer within {seconds:g} s.") from error
    except (OSError, http.client.HTTPException) as error:
        said = str(error) or type(error).__name__
        raise ProbeFailed(f"{url}: {said}. Check the address, and that the service runs.") from error


def _within(seconds: float, ask: Callable[[], R]) -> R:
    """Call ``ask`` in a thread, and raise ``TimeoutError`` after ``seconds``: the timeout of a socket begins anew with
    every byte, and a name server has its own."""
    outcome: Future[R] = Future()

    def run() -> None:
        try:
            outcome.set_result(ask())
        except BaseException as error:
            outcome.set_exception(error)

    threading.Thread(target=run, daemon=True).start()
    return outcome.result(seconds)
