"""The addresses that may be sent to: public ones of http and https, and those that are configured.

A name is resolved once for a connection, and the answered addresses are the ones that are judged and connected to: a
name server that answers otherwise a moment later leads nowhere. A name that no answer could admit is not looked up.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple
from urllib.parse import unquote

from urllib3.exceptions import HTTPError
from urllib3.util import Url, parse_url

from wsrm_mq.errors import NotAllowed
from wsrm_mq.outbound.special import SPECIAL

_PORTS: Final = {"http": 80, "https": 443}
_NAME: Final = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9.-]*[A-Za-z0-9])?")
_SLASHES: Final = re.compile(r"[/\\]")
_BLANK: Final = re.compile(r"[\x00-\x20]")
_NAT64: Final = ipaddress.ip_network("64:ff9b::/96")
_UNICAST: Final = ipaddress.ip_network("2000::/3")
"""All that is given to networks of the Internet."""
_ISATAP: Final = (0x0000_5EFE, 0x0200_5EFE)
"""The middle of an address whose end is that of an IPv4 node, which packets are for (RFC 5214, 6.1)."""
_OPEN_PORTS: Final = (80, 443)
_UNPRIVILEGED: Final = 1024
"""Below it are services of machines (mail, names, files) that are no partner's endpoint."""
_CODED: Final = 3
"""A path that is encoded so often more than once says nothing of where it leads."""

_Network = ipaddress.IPv4Network | ipaddress.IPv6Network
LookUp = Callable[[str], list[str]]
"""A function that answers the numeric addresses of a host. Raises ``OSError`` where there are none."""
PUBLIC: Final = "public"
"""The entry of a list of allowed addresses for all of the Internet."""


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
        """Allow only ``entries``: addresses of http and https, networks, names of hosts, ``public``. Raises
        ``ValueError`` for any other entry."""
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

    def judge(self, host: str, port: int, look_up: LookUp) -> list[str]:
        """Resolve ``host`` to numeric addresses. Raises ``NotAllowed`` where one of them may not be connected to, and
        the errors of ``look_up``."""
        if not (self.is_public or self.networks):
            raise NotAllowed("is none of those that may be sent to.")
        found = look_up(host)
        for address in found:
            if not self._admits(address, port):
                raise NotAllowed(f"leads into a private network, to this machine, or to a port below 1024 ({address}).")
        return found

    def _admits(self, address: str, port: int) -> bool:
        if self.is_public and is_public(address) and (port in _OPEN_PORTS or port >= _UNPRIVILEGED):
            return True
        number = ipaddress.ip_address(address.partition("%")[0])
        return any(number in network for network in self.networks)


def _is_name(entry: str) -> bool:
    return bool(_NAME.fullmatch(entry)) and not entry.rsplit(".", 1)[-1].isdigit()


def check_url(url: str, allowed: Allowed, look_up: LookUp) -> None:
    """Raises ``NotAllowed`` for a URL that nothing is sent to: no address of http or https, one without a host, or one
    that leads into a private network, or to this machine, and is not ``allowed``. ``look_up`` answers the addresses of
    a host's name; its errors that are no ``OSError`` are raised."""
    parts = _parsed(url)
    if parts.scheme not in _PORTS or not parts.host or parts.auth is not None:
        raise NotAllowed(f"{url}: is no address that can be sent to; write http://host/path or https://host/path.")
    if allowed.lists(url):
        return
    try:
        allowed.judge(parts.host, _port(parts), look_up)
    except OSError as error:
        raise NotAllowed(f"{url}: there is no host {parts.host}: {error}.") from error
    except NotAllowed as error:
        raise NotAllowed(
            f"{url}: {error} If that is meant, allow it: "
            f'{allowed.option} = ["{parts.scheme}://{parts.netloc}"] in wsrm-mq.toml.'
        ) from error


def is_public(address: str) -> bool:
    """Whether a numeric address is one of the Internet, also where it is an IPv4 address in the clothes of IPv6."""
    found = ipaddress.ip_address(address.partition("%")[0])
    if isinstance(found, ipaddress.IPv4Address):
        return _is_plain(found)
    inner = ipaddress.IPv4Address(int(found) & 0xFFFF_FFFF)
    if found.ipv4_mapped or found in _NAT64:
        return _is_plain(inner)
    is_tunnel = int(found) >> 32 & 0xFFFF_FFFF in _ISATAP
    return found in _UNICAST and _is_plain(found) and (not is_tunnel or _is_plain(inner))


def _is_plain(address: ipaddress.IPv4Address | ipaddress.IPv6Address) -> bool:
    return not any(address in network for network in SPECIAL[address.version])


def _parsed(url: str) -> Url:
    """Parse ``url`` as urllib3 does before it sends; empty where it is no address."""
    try:
        return parse_url(url)
    except HTTPError:
        return Url()


def _is_below(url: Url, prefix: Url) -> bool:
    """Whether ``url`` leads to ``prefix`` or below it, however a server there reads its path."""
    if url.scheme not in _PORTS or url.scheme != prefix.scheme:
        return False
    is_same = (url.host, _port(url)) == (prefix.host, _port(prefix))
    path, above = url.path or "", (prefix.path or "").rstrip("/")
    return is_same and (not above or path == above or (path.startswith(f"{above}/") and not _climbs(path)))


def _climbs(path: str) -> bool:
    """Whether a path may climb above itself. ``parse_url`` has taken ``..`` out of it. Servers decode once more, take a
    backslash for a slash, and a semicolon for the end of a name."""
    for _ in range(_CODED):
        try:
            decoded = unquote(path, errors="strict")
        except UnicodeDecodeError:
            return True
        if decoded == path:
            names = _SLASHES.split(path)
            return any(_BLANK.sub("", name.partition(";")[0]) == ".." for name in names)
        path = decoded
    return True


def _port(url: Url) -> int:
    return url.port or _PORTS[url.scheme or "http"]
