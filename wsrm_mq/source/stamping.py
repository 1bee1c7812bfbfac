"""Envelopes of requests, as they are kept: with the addressing headers that they lack. Their place in a sequence is
their number in the store; it is put in front when they leave, the same each time."""

from __future__ import annotations

import re
from typing import Final
from urllib.parse import urlsplit

from wsrm_mq.envelope.headers import Headers
from wsrm_mq.envelope.render import new_message_id
from wsrm_mq.envelope.rewrite import NotAnEnvelope, complete_reply
from wsrm_mq.envelope.scan import scan
from wsrm_mq.envelope.stream import Limits
from wsrm_mq.errors import BadRequest, EnvelopeError
from wsrm_mq.queue.requests import Destination
from wsrm_mq.queue.sending import OutgoingMessage
from wsrm_mq.sequence.elements import EndpointReference
from wsrm_mq.versions import WSA_2005, AddressingVersion, RMVersion, SOAPVersion

_ENCODING: Final = re.compile(rb"""^\s*<\?xml[^>]*\bencoding\s*=\s*["']([A-Za-z0-9._-]+)["']""")
_LIMITS: Final = Limits()


def stamped(
    envelope: bytes,
    to: str,
    action: str | None,
    rm: RMVersion,
    addressing: AddressingVersion,
    *,
    wants_reply: bool,
    content_type: str | None = None,
    acks_to: str | None = None,
) -> tuple[Destination, OutgoingMessage]:
    """The request that ``envelope`` is, to be sent to the URL ``to``; with parts where its ``content_type`` is
    multipart/related. It is replied to at ``acks_to``, without that on its response. Raises ``BadRequest`` for one that
    cannot be sent."""
    parts = urlsplit(to)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise BadRequest(f"{to}: is no address that can be sent to; write http://host/path or https://host/path.")
    headers = _read(envelope, content_type or _content_type(envelope, SOAPVersion.SOAP_1_1, None))
    if headers.is_rm:
        raise BadRequest("The envelope has WS-ReliableMessaging headers already: give it without them.")
    spoken = headers.addressing
    if spoken is not None and spoken is not addressing:
        raise BadRequest(
            f"The envelope speaks WS-Addressing {spoken.label}, and WS-RM {rm.label} is to be spoken with "
            f"{addressing.label}: give it without addressing headers, or say addressing= to match."
        )
    action = action or headers.action
    if not action:
        raise BadRequest("The envelope has no wsa:Action: name its action, send(…, action=…).")
    if headers.action not in (None, action):
        raise BadRequest(f"The envelope has the wsa:Action {headers.action}, not {action}: give one of them alone.")
    heard = acks_to or addressing.anonymous
    if headers.reply_to is not None and headers.reply_to.address not in (heard, WSA_2005.none):
        where = "on responses only" if acks_to is None else f"to {acks_to}: leave it out"
        raise BadRequest(f"The envelope has the ReplyTo {headers.reply_to.address}: replies come {where}.")
    soap, receiver = headers.soap, EndpointReference(to)
    # Metro sends an acknowledgement of a request to its ReplyTo: to the none address, so nowhere.
    reply_to = heard if wants_reply else None
    content_type = content_type or _content_type(envelope, soap, action)
    try:
        message_id = new_message_id()
        body, _place = complete_reply(
            *(envelope, content_type, soap, addressing, None, action, receiver, reply_to), message_id=message_id
        )
    except NotAnEnvelope as error:
        raise BadRequest(f"It cannot be sent: {error}") from error
    if message_id.encode() not in body:  # it has one of its own, or an encoding of its own
        message_id = _read(body, content_type).message_id or ""
    there = Destination(to, rm, soap, addressing, acks_to=acks_to)
    return there, OutgoingMessage(receiver, message_id, action, content_type, body)


def _read(envelope: bytes, content_type: str) -> Headers:
    try:
        return scan(envelope, content_type, None, _LIMITS)
    except EnvelopeError as error:
        raise BadRequest(f"It is no SOAP envelope that can be sent: {error.fault.reason}") from error


def _content_type(envelope: bytes, soap: SOAPVersion, action: str | None) -> str:
    declared = _ENCODING.match(envelope[:200])
    charset = "utf-8" if declared is None else declared[1].decode().lower()
    of_action = f'; action="{action}"' if action is not None and soap is SOAPVersion.SOAP_1_2 else ""
    return f"{soap.media_type}; charset={charset}{of_action}"
