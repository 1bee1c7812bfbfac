"""Where the reply to a stored message is sent, kept with the request: ReplyTo and FaultTo, where they are addresses."""

from __future__ import annotations

import json
from typing import Final

from wsrm_mq.remembered import remembered
from wsrm_mq.sequence.elements import EndpointReference

__all__ = ["REPLY_ENDPOINTS", "reply_endpoint", "with_reply_endpoints"]

REPLY_ENDPOINTS: Final = "wsrm.reply_endpoints"
"""In the stored part of a request: each endpoint as a list of its address and its parameters."""
_CLIENTS: Final = 1_024


def with_reply_endpoints(environ: str, reply_to: EndpointReference, fault_to: EndpointReference | None) -> str:
    """The stored part of a request, with them."""
    endpoints = [[one.address, *one.parameters] for one in (reply_to, fault_to) if one is not None]
    return json.dumps({**json.loads(environ), REPLY_ENDPOINTS: endpoints}, ensure_ascii=False, separators=(",", ":"))


def reply_endpoint(environ: str, *, is_fault: bool) -> EndpointReference | None:
    """Where the reply to the message of this request is sent; ``None``: it is answered on the response."""
    endpoints = _endpoints(environ) if REPLY_ENDPOINTS in environ else ()
    return None if not endpoints else endpoints[-1] if is_fault else endpoints[0]


@remembered(_CLIENTS, len)
def _endpoints(environ: str) -> tuple[EndpointReference, ...]:
    said = json.loads(environ).get(REPLY_ENDPOINTS, [])
    return tuple(EndpointReference(address, tuple(parameters)) for address, *parameters in said)
