"""One POST of this side's own: whether its message was taken, and the content of its answer.

A stack with an endpoint of its own may put on the HTTP answer the parts that it could send in a request: an
acknowledgement, a request for one, a fault about a sequence. The answer is read as a request is read, within the same
bounds. An answer that cannot be read changes nothing: then the status says whether the message was taken.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from http import HTTPStatus
from typing import Final, NamedTuple, Protocol

from wsrm_mq.envelope.headers import Headers, RMResponse
from wsrm_mq.envelope.rewrite import ServiceFault, excerpt, fault_in
from wsrm_mq.envelope.scan import scan
from wsrm_mq.envelope.stream import Limits, content_coding, content_type_of, expand, parse_content_type
from wsrm_mq.errors import EnvelopeError, LeftAlone, NotAllowed, NotAnswered, Unread
from wsrm_mq.queue.hearing import Said
from wsrm_mq.queue.settle import ServiceReply
from wsrm_mq.sequence.elements import SequenceFault
from wsrm_mq.sequence.faults import FaultCode
from wsrm_mq.versions import SOAPVersion

UNREAD: Final = HTTPStatus.REQUEST_ENTITY_TOO_LARGE
"""The status of a message that its host does not read for its size; also where it says nothing."""
_SUCCESS: Final = range(200, 300)
_REDIRECTION: Final = range(300, 400)
_REFUSED: Final = (400, 413)
_LOCATION: Final = 300
"""Characters of a redirect's address that are told."""
_ENVELOPES: Final = frozenset(("text/xml", *(soap.media_type for soap in SOAPVersion), "multipart/related"))
_ACTION: Final = re.compile(r""";\s*action\s*=\s*("[^"]*"|[^;]*)""", re.IGNORECASE)
"""Metro says of a reply in a request of its own the Action of the request: it is not compared with wsa:Action."""
_LIMITS: Final = Limits()


class Answered(Protocol):
    """An HTTP answer."""

    @property
    def status(self) -> int: ...

    @property
    def headers(self) -> list[tuple[str, str]]: ...

    @property
    def content(self) -> bytes: ...


class Post(Protocol):
    """Posts to an address that may be sent to, because of ``who``. Raises ``NotAllowed`` and ``NotAnswered``."""

    def __call__(self, url: str, headers: Mapping[str, str], body: bytes, who: str | None = None) -> Answered: ...


class Posted(NamedTuple):
    """The outcome of a request that was posted."""

    failure: str | None = None
    """Why it was not taken; ``None``: it was."""
    code: str | None = None
    """The code of the fault that it was answered with, as that was written, empty where it cannot be read; ``None``: it
    was answered with none."""
    said: Said | None = None
    """The elements of the answer that are about sequences; ``None``: there are none."""
    unreadable: str | None = None
    """Why an answer that should be an envelope could not be read."""
    left_alone: float | None = None
    """Nothing was sent, as its host is left alone: seconds until it may be tried."""
    is_given_up: bool = False
    """Nothing was sent, and nothing will be: its host has never answered."""
    reply: ServiceReply | None = None
    """The answer of an application, a fault too."""
    headers: Headers | None = None
    """Its headers, where it could be read."""
    status: int | None = None
    """The status of HTTP."""
    is_refused: bool = False
    """It will never be taken as it is, whenever it is sent."""

    @property
    def relates_to(self) -> str | None:
        """The MessageID of the message that this says to reply to."""
        return None if self.headers is None else self.headers.relates_to


def posted(post: Post, url: str, content_type: str, action: str | None, body: bytes) -> Posted:
    """Post an envelope."""
    headers = {"Content-Type": content_type}
    if SOAPVersion.SOAP_1_1.media_type in content_type:  # of the root, where there are parts
        headers["SOAPAction"] = f'"{action or ""}"'
    try:
        answer = post(url, headers, body)
    except LeftAlone as error:
        seconds = None if error.is_given_up else error.seconds
        return Posted(str(error), left_alone=seconds, is_given_up=error.is_given_up)
    except (NotAllowed, NotAnswered) as error:
        return Posted(str(error), status=UNREAD if isinstance(error, Unread) else None)
    return read(url, answer)


def read(url: str, answer: Answered) -> Posted:
    """Read what has come from, or at, ``url``."""
    content, of = answer.content, content_type_of(answer.headers)
    may_be_fault, said, unreadable, reply, headers = True, None, None, None, None
    try:
        content = _expanded(answer)
        if content and parse_content_type(of).media_type in _ENVELOPES:
            headers = scan(content, _ACTION.sub("", of), None, _LIMITS)
            may_be_fault, said = headers.is_fault, _said(headers)
            if headers.is_plain or headers.sequence is not None:
                reply = ServiceReply(str(answer.status), (("Content-Type", of),), content, header=headers.sequence)
    except EnvelopeError as error:
        unreadable = f"{url}: answered {answer.status} with what cannot be read: {error.fault.reason}"
    fault = fault_in(content, of) if content and may_be_fault else None
    if fault is not None:
        why = f"{url}: answered {answer.status} with a fault: {_told(fault, content)}"
        code = fault.code or ""
        is_refused = fault.whose is FaultCode.SENDER and (said is None or said.fault is None)
        told = Posted(why, code, said, unreadable, reply=reply, headers=headers, status=answer.status)
        return told._replace(is_refused=is_refused)
    failure = None if answer.status in _SUCCESS else f"{url}: answered {answer.status}{_elsewhere(answer)}"
    told = Posted(failure, None, said, unreadable, reply=reply, headers=headers, status=answer.status)
    return told._replace(is_refused=answer.status in _REFUSED)


def speaks(answer: Answered) -> bool:
    """Whether an answer is a message of WS-RM, or says to reply to one: a gateway's is neither."""
    try:
        read = scan(_expanded(answer), content_type_of(answer.headers), None, _LIMITS)
    except EnvelopeError:
        return False
    return read.is_rm or read.relates_to is not None


def _elsewhere(answer: Answered) -> str:
    """The address that a redirect names, and what to do: following it is for people to decide (H-023)."""
    location = next((value for name, value in answer.headers if name.lower() == "location"), None)
    if answer.status not in _REDIRECTION or location is None:
        return ""
    return f", which leads to {location[:_LOCATION]}: no redirect is followed; if that is right, send to it"


def _expanded(answer: Answered) -> bytes:
    coding = next((value for name, value in answer.headers if name.lower() == "content-encoding"), "")
    return expand(answer.content, _LIMITS).read() if content_coding(coding) == "gzip" else answer.content


def _said(headers: Headers) -> Said | None:
    fault = headers.body if isinstance(headers.body, SequenceFault) else None
    response = headers.body if isinstance(headers.body, RMResponse) else None
    if headers.rm is None or not (headers.acknowledgements or headers.ack_requested or fault or response):
        return None
    return Said(headers.rm, headers.acknowledgements, headers.ack_requested, fault, response, headers.relates_to)


def _told(fault: ServiceFault, content: bytes) -> str:
    return f"{fault.code or 'without a code'}: {excerpt(content)}"
