"""Bytes and elements: what comes in is scanned, what goes out is rendered.

``envelope.wsdl`` and ``envelope.policy`` are imported by themselves: they alone need lxml.
"""

from wsrm_mq.envelope.content import ContentType, content_type_of, parse_content_type, soap_version_of
from wsrm_mq.envelope.duration import parse_duration, render_duration
from wsrm_mq.envelope.headers import Headers
from wsrm_mq.envelope.limits import Limits
from wsrm_mq.envelope.render import (
    create_sequence_response,
    ending,
    ending_response,
    fetched_headers,
    last_message,
    new_message_id,
    own_names,
    reply_headers,
    sequence_acknowledgement,
)
from wsrm_mq.envelope.reply import (
    HeaderPlace,
    NotAnEnvelope,
    ServiceFault,
    complete_reply,
    excerpt,
    fault_in,
    piggyback,
)
from wsrm_mq.envelope.rewrite import demote, strip
from wsrm_mq.envelope.scan import scan
from wsrm_mq.envelope.soap_fault import fault
from wsrm_mq.envelope.stream import Expanded, expand

__all__ = [
    "ContentType",
    "Expanded",
    "HeaderPlace",
    "Headers",
    "Limits",
    "NotAnEnvelope",
    "ServiceFault",
    "complete_reply",
    "content_type_of",
    "create_sequence_response",
    "demote",
    "ending",
    "ending_response",
    "excerpt",
    "expand",
    "fault",
    "fault_in",
    "fetched_headers",
    "last_message",
    "new_message_id",
    "own_names",
    "parse_content_type",
    "parse_duration",
    "piggyback",
    "render_duration",
    "reply_headers",
    "scan",
    "sequence_acknowledgement",
    "soap_version_of",
    "strip",
]
