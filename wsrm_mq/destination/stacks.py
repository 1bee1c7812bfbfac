"""Which stack a peer runs: what the configuration says, else what it says of itself, where its habits need it."""

from __future__ import annotations

from typing import Final

from wsrm_mq.destination.exchange import Request

_PRODUCTS: Final[tuple[tuple[str, str], ...]] = (("Apache-CXF/", "cxf"), ("Apache CXF ", "cxf"))
"""How the User-Agent of a stack begins (RFC 9110 §10.1.5): the newer and the older one of CXF."""


def takes_an_acknowledgement_for_the_reply(request: Request) -> bool:
    """Whether a client sends a request no more once any response has acknowledged it, though its reply was lost, and
    lets its caller wait (CXF). WCF and Metro send until the reply is there."""
    return _stack_of(request) == "cxf"


def takes_the_end_on_a_response(request: Request) -> bool:
    """Whether a client with an endpoint of its own fails there over the end of the sequence that it has offered, which
    it takes on a response (CXF, in 1.1)."""
    rm = request.headers.rm
    return _stack_of(request) == "cxf" and rm is not None and rm.has_close


def _stack_of(request: Request) -> str | None:
    said = request.client.environ.get("HTTP_USER_AGENT", "")
    return request.peer.stack or next((stack for product, stack in _PRODUCTS if said.startswith(product)), None)
