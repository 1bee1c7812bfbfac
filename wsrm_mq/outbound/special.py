"""Numeric addresses at which no partner's endpoint is, by a table of its own: a Python knows those of its day.

They are all that IANA's special-purpose registries list (iana.org/assignments/iana-ipv4-special-registry and
iana-ipv6-special-registry) as of April 2025, with RFC 9780; those of them that can be reached are no partner's either.
Beside them: multicast, site-local addresses, and what clouds answer themselves.
"""

from __future__ import annotations

import ipaddress
from typing import Final

_V4: Final = """
0.0.0.0/8        this network
10.0.0.0/8       private
100.64.0.0/10    shared behind a carrier's NAT
127.0.0.0/8      this machine
168.63.129.16/32 the host of a virtual machine at Azure; those of other clouds are link-local
169.254.0.0/16   link-local
172.16.0.0/12    private
192.0.0.0/24     protocols of the IETF
192.0.2.0/24     documentation
192.31.196.0/24  AS112
192.52.193.0/24  AMT
192.88.99.0/24   relays of 6to4
192.168.0.0/16   private
192.175.48.0/24  AS112
198.18.0.0/15    benchmarks
198.51.100.0/24  documentation
203.0.113.0/24   documentation
224.0.0.0/4      multicast
240.0.0.0/4      reserved, and broadcast
"""
_V6: Final = """
::/128            none
::1/128           this machine
::ffff:0:0/96     IPv4
64:ff9b::/96      IPv4 behind NAT64
64:ff9b:1::/48    IPv4 behind a NAT64 of one's own
100::/64          discarded
100:0:0:1::/64    dummy
2001::/23         protocols of the IETF: Teredo, benchmarks, ORCHID
2001:db8::/32     documentation
2002::/16         6to4
2620:4f:8000::/48 AS112
3fff::/20         documentation
5f00::/16         segments of routes
fc00::/7          private
fe80::/10         link-local
fec0::/10         site-local
ff00::/8          multicast
"""


def _networks(table: str) -> tuple[ipaddress.IPv4Network | ipaddress.IPv6Network, ...]:
    return tuple(ipaddress.ip_network(line.split(maxsplit=1)[0]) for line in table.strip().splitlines())


SPECIAL: Final = {4: _networks(_V4), 6: _networks(_V6)}
"""Networks by the version of IP."""
