"""Bytes and elements: what comes in is scanned, what goes out is rendered."""

from wsrm_mq.envelope.content import ContentType, parse_content_type, soap_version_of
from wsrm_mq.envelope.duration import parse_duration, render_duration
from wsrm_mq.envelope.headers import Headers
from wsrm_mq.envelope.limits import Limits
from wsrm_mq.envelope.render import (
    acknowledgement_header,
    close_sequence_response,
    create_sequence_response,
    fault,
    fault_status,
    new_message_id,
    sequence_acknowledgement,
    terminate_sequence_response,
)
from wsrm_mq.envelope.scan import scan

__all__ = [
    "ContentType",
    "Headers",
    "Limits",
    "acknowledgement_header",
    "close_sequence_response",
    "create_sequence_response",
    "fault",
    "fault_status",
    "new_message_id",
    "parse_content_type",
    "parse_duration",
    "render_duration",
    "scan",
    "sequence_acknowledgement",
    "soap_version_of",
    "terminate_sequence_response",
]
