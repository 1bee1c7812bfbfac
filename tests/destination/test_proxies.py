"""Where a request comes from: what trusted proxies report, and no more than that."""

from __future__ import annotations

import pytest

from wsrm_mq.destination.connections import Proxies

TRUSTED = ("127.0.0.1", "10.0.0.0/8", "2001:db8:1::/48")


@pytest.mark.parametrize(
    ("peer", "header", "sender"),
    [
        ("127.0.0.1", "192.0.2.7", "192.0.2.7"),
        ("127.0.0.1", "192.0.2.7, 10.1.2.3", "192.0.2.7"),
        ("127.0.0.1", "198.51.100.9, 192.0.2.7", "192.0.2.7"),
        ("127.0.0.1", "10.1.2.3", "10.1.2.3"),
        ("127.0.0.1", "192.0.2.7:4711", "192.0.2.7"),
        ("127.0.0.1", "[2001:DB8::1]:4711", "2001:db8::1"),
        ("127.0.0.1", "2001:db8::1", "2001:db8::1"),
        ("127.0.0.1", 'for=192.0.2.7;proto=https;by=10.1.2.3, For="[2001:db8:1::5]:80"', "192.0.2.7"),
        ("127.0.0.1", "proto=https;for=192.0.2.7", "192.0.2.7"),
        ("127.0.0.1", "192.0.2.7, unknown", "127.0.0.1"),
        ("127.0.0.1", "192.0.2.7, for=_hidden, 10.1.2.3", "10.1.2.3"),
        ("127.0.0.1", "\x1b[2J", "127.0.0.1"),
        ("127.0.0.1", "", "127.0.0.1"),
        ("192.0.2.99", "198.51.100.9", "192.0.2.99"),
        ("", "198.51.100.9", ""),
    ],
)
def test_the_sender_is_the_last_one_on_the_way_that_is_no_trusted_proxy(peer: str, header: str, sender: str) -> None:
    environ = {"REMOTE_ADDR": peer, "HTTP_X_FORWARDED_FOR": header}
    assert Proxies(TRUSTED, "X-Forwarded-For").sender(environ) == sender


def test_without_a_header_that_is_named_nothing_is_believed() -> None:
    environ = {"REMOTE_ADDR": "127.0.0.1", "HTTP_X_FORWARDED_FOR": "192.0.2.7"}
    assert Proxies(TRUSTED).sender(environ) == "127.0.0.1"
    assert Proxies(TRUSTED, "X-Real-IP").sender(environ) == "127.0.0.1"
    assert Proxies(TRUSTED, "X-Real-IP").sender({}) is None
