"""Which addresses may be sent to: those of http and https that are public, and those that are configured.

A name is resolved once for a connection, and what that answers is what is judged and connected to: a name server that
answers otherwise a moment later leads nowhere.
"""

from __future__ import annotations

import ipaddress
import re
import socket
from collections.abc import Sequence
from typing import Final, NamedTuple
from urllib.parse import unquote

from urllib3.exceptions import HTTPError
from urllib3.util import Url, parse_url

from wsrm_mq.errors import NotAllowed

__all__ = ["PUBLIC", "Allowed", "check_url", "is_public"]

_PORTS: Final = {"http": 80, "https": 443}
_NAME: Final = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9.-]*[A-Za-z0-9])?")
_NAT64: Final = ipaddress.ip_network("64:ff9b::/96")
_OF_CLOUDS: Final = frozenset({ipaddress.ip_address("168.63.129.16")})
"""Public by their number, and answered by the host of a virtual machine; those of other clouds are link-local."""


_Network = ipaddress.IPv4Network | ipaddress.IPv6Network
PUBLIC: Final = "public"
"""In a list of what is allowed: every address of the Internet."""


class Allowed(NamedTuple):
    """``prefixes`` are addresses that may lead anywhere, each with all below it, ``hosts`` names that may, with every
    port; ``networks`` have the numeric addresses that may be connected to, and ``is_public``: all of the Internet may.
    ``option`` is the name of the setting that lists them."""

    option: str
    prefixes: Sequence[str]
    hosts: Sequence[str] = ()
    networks: Sequence[_Network] = ()
    is_public: bool = True

    @classmethod
    def listed(cls, option: str, entries: Sequence[str]) -> Allowed:
        """Nothing but what is listed: addresses of http and https, networks, names of hosts, ``public``. Raises
        ``ValueError`` for what is none of these."""
        prefixes = [entry for entry in entries if "://" in entry]
        if any(_parsed(prefix).scheme not in _PORTS or not _parsed(prefix).host for prefix in prefixes):
            raise ValueError("no address of http or https")
        others = [entry for entry in entries if "://" not in entry and entry != PUBLIC]
        hosts = [entry.lower() for entry in others if _is_name(entry)]
        networks = [ipaddress.ip_network(entry, strict=False) for entry in others if not _is_name(entry)]
        return cls(option, prefixes, hosts, networks, PUBLIC in entries)

    def lists(self, url: str) -> bool:
        """Whether ``url`` has the scheme, host and port of a prefix, and its path or one below it; or a listed host."""
        parts = _parsed(url)
        return parts.host in self.hosts or any(_is_below(parts, _parsed(prefix)) for prefix in self.prefixes)

    def judge(self, host: str, port: int) -> list[str]:
        """What ``host`` resolves to now. Raises ``NotAllowed`` where one of that may not be connected to, ``OSError``
        and ``UnicodeError`` where it resolves to nothing."""
        found = [str(place[0]) for *_kind, place in socket.getaddrinfo(host.strip("[]"), port, type=socket.SOCK_STREAM)]
        for address in found:
            if not self._admits(address):
                raise NotAllowed(f"leads into a private network, or to this machine ({address}).")
        return found

    def _admits(self, address: str) -> bool:
        if self.is_public and is_public(address):
            return True
        number = ipaddress.ip_address(address.partition("%")[0])
        return any(number in network for network in self.networks)


def _is_name(entry: str) -> bool:
    return bool(_NAME.fullmatch(entry)) and not entry.rsplit(".", 1)[-1].isdigit()


def check_url(url: str, allowed: Allowed) -> None:
    """Raises ``NotAllowed`` for what nothing is sent to: no address of http or https, one without a host, or one that
    leads into a private network, or to this machine, and is not ``allowed``."""
    parts = _parsed(url)
    if parts.scheme not in _PORTS or not parts.host or parts.auth is not None:
        raise NotAllowed(f"{url}: is no address that can be sent to; write http://host/path or https://host/path.")
    if allowed.lists(url):
        return
    try:
        allowed.judge(parts.host, _port(parts))
    except (OSError, UnicodeError) as error:
        raise NotAllowed(f"{url}: there is no host {parts.host}: {error}.") from error
    except NotAllowed as error:
        raise NotAllowed(
            f"{url}: {error} If that is meant, allow it: "
            f'{allowed.option} = ["{parts.scheme}://{parts.netloc}"] in wsrm-mq.toml.'
        ) from error


def is_public(address: str) -> bool:
    """Whether a numeric address is one of the Internet, also where it is an IPv4 address in the clothes of IPv6."""
    found = _innermost(ipaddress.ip_address(address.partition("%")[0]))
    return found.is_global and not (found.is_multicast or found.is_reserved) and found not in _OF_CLOUDS


def _innermost(address: ipaddress.IPv4Address | ipaddress.IPv6Address) -> ipaddress.IPv4Address | ipaddress.IPv6Address:
    """The IPv4 address that packets to ``address`` are for in the end, where there is one."""
    if isinstance(address, ipaddress.IPv4Address):
        return address
    if address in _NAT64:
        return ipaddress.IPv4Address(int(address) & 0xFFFF_FFFF)
    _server, client = address.teredo or (None, None)
    return address.ipv4_mapped or address.sixtofour or client or address


def _parsed(url: str) -> Url:
    """As it will be sent to; empty where it is no address."""
    try:
        return parse_url(url)
    except HTTPError:
        return Url()


def _is_below(url: Url, prefix: Url) -> bool:
    """``parse_url`` has taken ``..`` out of paths; what a server may read so is below nothing."""
    if url.scheme not in _PORTS or url.scheme != prefix.scheme:
        return False
    is_same = (url.host, _port(url)) == (prefix.host, _port(prefix))
    path, above = url.path or "", (prefix.path or "").rstrip("/")
    climbs = ".." in unquote(path).split("/")
    return is_same and not climbs and (not above or path == above or path.startswith(f"{above}/"))


def _port(url: Url) -> int:
    return url.port or _PORTS[url.scheme or "http"]
