"""Bytes and elements: what comes in is scanned, what goes out is rendered.

``envelope.wsdl`` is imported by itself: it is the only module here that needs lxml.
"""

from wsrm_mq.envelope.content import ContentType, parse_content_type, soap_version_of
from wsrm_mq.envelope.duration import parse_duration, render_duration
from wsrm_mq.envelope.headers import Headers
from wsrm_mq.envelope.limits import Limits
from wsrm_mq.envelope.render import (
    acknowledgement_header,
    create_sequence_response,
    ending_response,
    fault,
    new_message_id,
    sequence_acknowledgement,
)
from wsrm_mq.envelope.reply import HeaderPlace, NotAnEnvelope, complete_reply, is_fault, piggyback
from wsrm_mq.envelope.rewrite import demote, strip
from wsrm_mq.envelope.scan import scan
from wsrm_mq.envelope.stream import Expanded, expand

__all__ = [
    "ContentType",
    "Expanded",
    "HeaderPlace",
    "Headers",
    "Limits",
    "NotAnEnvelope",
    "acknowledgement_header",
    "complete_reply",
    "create_sequence_response",
    "demote",
    "ending_response",
    "expand",
    "fault",
    "is_fault",
    "new_message_id",
    "parse_content_type",
    "parse_duration",
    "piggyback",
    "render_duration",
    "scan",
    "sequence_acknowledgement",
    "soap_version_of",
    "strip",
]
