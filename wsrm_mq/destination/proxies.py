"""The sender of a request behind proxies: the report of a trusted proxy about its client is believed, and nothing
else."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from ipaddress import ip_address, ip_network
from typing import Any, Final

_FOR: Final = re.compile(r'(?:^|;)\s*for="?([^;"]*)', re.IGNORECASE)
"""The client in an element of Forwarded (RFC 7239); X-Forwarded-For has nothing but that."""
_ADDRESS: Final = re.compile(r"\[([^\]]+)\](?::\d+)?|([\d.]+):\d+")
"""An address that is written with a port, or in brackets."""


class Proxies:
    """``trusted``: addresses and networks of proxies; ``header``: where they append their client's address."""

    def __init__(self, trusted: Collection[str] = (), header: str | None = None) -> None:
        self._trusted = tuple(ip_network(network, strict=False) for network in trusted)
        self._key = "HTTP_" + header.upper().replace("-", "_") if header else None

    def are_trusted(self, address: str | None) -> bool:
        try:
            found = ip_address(address or "")
        except ValueError:
            return False
        return any(found in network for network in self._trusted)

    def sender(self, environ: Mapping[str, Any]) -> str | None:
        """The address that a request was sent from: the last one, on its way here, that is no trusted proxy's. What
        stands before it in the header its sender may have written."""
        address: str | None = environ.get("REMOTE_ADDR")
        if self._key is None or not self.are_trusted(address):
            return address
        for element in reversed(environ.get(self._key, "").split(",")):
            reported = _address(element)
            if reported is None:
                break
            address = reported
            if not self.are_trusted(address):
                break
        return address


def _address(element: str) -> str | None:
    named = _FOR.search(element)
    text = (named[1] if named else element).strip()
    written = _ADDRESS.fullmatch(text)
    try:
        return str(ip_address((written[1] or written[2]) if written else text))
    except ValueError:  # "unknown", a name that hides the address, or nothing
        return None
