"""The endpoints of the reply to a stored message, kept with its request: ReplyTo and FaultTo, where they are
addresses."""

from __future__ import annotations

import json
from functools import lru_cache
from typing import Final

from wsrm_mq.remembered import SMALL
from wsrm_mq.sequence.elements import EndpointReference

REPLY_ENDPOINTS: Final = "wsrm.reply_endpoints"
"""The key, in the stored part of a request, of the endpoints of its reply and of a fault, each as a list of its address
and its parameters. One endpoint alone is that of both."""
_CLIENTS: Final = 1_024


def with_reply_endpoints(environ: str, reply_to: EndpointReference | None, fault_to: EndpointReference | None) -> str:
    """The stored part of a request, with them. Without ``reply_to`` the reply leaves on the response; without
    ``fault_to`` a fault leaves as a reply does."""
    said = (reply_to,) if fault_to is None else (reply_to, fault_to)
    endpoints = [one and [one.address, *one.parameters] for one in said]
    return json.dumps({**json.loads(environ), REPLY_ENDPOINTS: endpoints}, ensure_ascii=False, separators=(",", ":"))


def reply_endpoint(environ: str, *, is_fault: bool) -> EndpointReference | None:
    """Where the reply to the message of this request is sent; ``None``: it is answered on the response."""
    if REPLY_ENDPOINTS not in environ:
        return None
    endpoints = _remembered(environ) if len(environ) <= SMALL else _endpoints(environ)
    return None if not endpoints else endpoints[-1] if is_fault else endpoints[0]


def _endpoints(environ: str) -> tuple[EndpointReference | None, ...]:
    said = json.loads(environ).get(REPLY_ENDPOINTS, [])
    return tuple(one and EndpointReference(one[0], tuple(one[1:])) for one in said)


_remembered: Final = lru_cache(_CLIENTS)(_endpoints)
