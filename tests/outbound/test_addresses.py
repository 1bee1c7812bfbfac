"""Where anything may be sent to."""

from __future__ import annotations

import pytest

from tests.support.name_server import NameServer
from wsrm_mq.errors import NotAllowed
from wsrm_mq.outbound.addresses import Allowed, check_url, is_public
from wsrm_mq.outbound.names import Names

NONE = Allowed("replay_targets", ())


@pytest.mark.parametrize(
    "url",
    [
        "http://127.0.0.1/orders",
        "http://localhost:8080",
        "http://[::1]/",
        "http://[::]/",
        "http://0.0.0.0/",
        "http://10.1.2.3/",
        "http://169.254.169.254/latest",
        "http://[fe80::1]/",
        "http://[::ffff:127.0.0.1]/",
        "http://[::ffff:10.0.0.1]/",
        "http://[64:ff9b::a9fe:a9fe]/",
        "http://2130706433/",
        "http://0177.0.0.1/",
        "http://127.1/",
        "http://168.63.129.16/",
        "http://public.example@127.0.0.1/",
        "http://public.example\\@127.0.0.1/",
        "ftp://example.com/",
        "file:///etc/passwd",
        "http://user:secret@1.1.1.1/",
        "http://",
        "http://[::1/",
        "http://127.0.0.1:99999/",
        "orders",
    ],
)
def test_an_address_in_a_private_network_or_of_no_http_is_refused(url: str) -> None:
    with pytest.raises(NotAllowed):
        check_url(url, NONE, Names().look_up)


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        ("1.1.1.1", True),
        ("2606:4700:4700::1111", True),
        ("::ffff:1.1.1.1", True),
        ("64:ff9b::101:101", True),
        ("127.0.0.1", False),
        ("0.0.0.0", False),
        ("100.64.0.1", False),
        ("100.100.100.200", False),
        ("169.254.169.254", False),
        ("168.63.129.16", False),
        ("192.168.1.1", False),
        ("224.0.1.1", False),
        ("255.255.255.255", False),
        ("::1", False),
        ("::", False),
        ("fe80::1%lo", False),
        ("fd00:ec2::254", False),
        ("ff02::1", False),
        ("::7f00:1", False),
        ("::ffff:169.254.169.254", False),
        ("64:ff9b::7f00:1", False),
        ("2002:7f00:1::", False),
        ("2002:a9fe:a9fe::", False),
        # each of the registries, by its first and last address
        *((address, False) for address in ("0.255.255.255", "10.255.255.255", "100.127.255.255", "127.255.255.255")),
        *((address, False) for address in ("169.254.0.0", "172.16.0.1", "172.31.255.255", "192.0.0.9", "192.0.0.255")),
        *((address, False) for address in ("192.0.2.1", "192.31.196.1", "192.52.193.1", "192.88.99.1", "192.175.48.1")),
        *((address, False) for address in ("198.18.0.1", "198.19.255.255", "198.51.100.1", "203.0.113.1", "240.0.0.1")),
        *((address, True) for address in ("9.255.255.255", "11.0.0.0", "100.63.255.255", "100.128.0.0", "172.15.0.1")),
        *((address, True) for address in ("172.32.0.0", "192.0.1.0", "192.88.98.1", "192.167.255.255", "198.20.0.0")),
        *((address, False) for address in ("64:ff9b:1::1", "100::1", "100:0:0:1::1", "2001::1", "2001:1ff:ffff::1")),
        *(
            (address, False)
            for address in ("2001:db8::1", "2002:101:101::1", "2620:4f:8000::1", "3fff::1", "3fff:fff::1")
        ),
        *(
            (address, False)
            for address in ("5f00::1", "fc00::1", "fdff::1", "fe80::1", "fec0::1", "feff::1", "ff00::1")
        ),
        *((address, False) for address in ("::1.1.1.1", "::ffff:0:1.1.1.1", "1000::1", "4000::1")),
        *((address, True) for address in ("2001:200::1", "2606:4700::1", "2a00::1", "3ffe::1", "2620:4f:8001::1")),
        # ISATAP
        ("2606:4700::5efe:10.0.0.1", False),
        ("2606:4700::200:5efe:169.254.169.254", False),
        ("2606:4700::5efe:1.1.1.1", True),
    ],
)
def test_what_is_of_the_internet_is_public_also_in_other_clothes(address: str, expected: bool) -> None:
    assert is_public(address) == expected


@pytest.mark.parametrize(
    ("url", "prefix", "is_allowed"),
    [
        ("http://127.0.0.1:8080/orders", "http://127.0.0.1:8080", True),
        ("http://127.0.0.1:8080/orders", "http://127.0.0.1:8080/", True),
        ("http://127.0.0.1:8080/orders/a", "http://127.0.0.1:8080/orders", True),
        ("http://127.0.0.1/orders", "http://127.0.0.1:80", True),
        ("http://127.0.0.1:8080/ordersother", "http://127.0.0.1:8080/orders", False),
        ("http://127.0.0.1:8080/orders/../admin", "http://127.0.0.1:8080/orders", False),
        ("http://127.0.0.1:8080/orders/%2e%2e/admin", "http://127.0.0.1:8080/orders", False),
        *(
            (f"http://127.0.0.1:8080/orders/{climbs}/admin", "http://127.0.0.1:8080/orders", False)
            for climbs in ("..;", "..;a=b", "%2e%2e;", "..%5c", "..%255c", "%252e%252e", "%25252e.", "..%2f", "..%00")
        ),
        ("http://127.0.0.1:8080/orders/..\\admin", "http://127.0.0.1:8080/orders", False),
        ("http://127.0.0.1:8080/orders/%ff../admin", "http://127.0.0.1:8080/orders", False),
        ("http://127.0.0.1:8080/orders/%2525252525", "http://127.0.0.1:8080/orders", False),
        ("http://127.0.0.1:8080/orders/a..b;v=1/%C3%A9%20..", "http://127.0.0.1:8080/orders", True),
        ("http://127.0.0.1:8080/a/..;/b", "http://127.0.0.1:8080", True),
        ("http://127.0.0.1:8081/orders", "http://127.0.0.1:8080", False),
        ("https://127.0.0.1:8080/orders", "http://127.0.0.1:8080", False),
        ("http://127.0.0.1:80801/", "http://127.0.0.1:8080", False),
        ("http://127.0.0.1/", "http://[", False),
    ],
)
def test_an_address_that_is_configured_is_allowed_with_all_below_it(url: str, prefix: str, is_allowed: bool) -> None:
    allowed = Allowed("replay_targets", [prefix])
    if is_allowed:
        check_url(url, allowed, Names().look_up)
    else:
        with pytest.raises(NotAllowed):
            check_url(url, allowed, Names().look_up)


def test_a_public_address_is_allowed() -> None:
    check_url("https://1.1.1.1/orders", NONE, Names().look_up)


def test_a_name_is_allowed_where_all_that_it_resolves_to_is_public(names: NameServer) -> None:
    names.answers = {
        "public.example": [["1.1.1.1", "2606:4700:4700::1111"]],
        "mixed.example": [["1.1.1.1", "10.0.0.1"]],
    }
    check_url("https://public.example/orders", NONE, Names().look_up)
    with pytest.raises(NotAllowed, match=r'\(10\.0\.0\.1\).*replay_targets = \["https://mixed\.example:8443"\]'):
        check_url("https://mixed.example:8443/orders", NONE, Names().look_up)


def test_a_name_that_is_none_is_told(names: NameServer) -> None:
    names.answers = {"gone.example": [[]]}
    with pytest.raises(NotAllowed, match="there is no host gone"):
        check_url("https://gone.example/", NONE, Names().look_up)


PORTS = {22: False, 25: False, 80: True, 81: False, 443: True, 1023: False, 1024: True, 8443: True, 65535: True}


@pytest.mark.spec("SEC-016", versions="all")
@pytest.mark.parametrize(
    ("entries", "url", "is_allowed"),
    [
        ([], "http://1.1.1.1/", False),
        (["public"], "http://1.1.1.1/", True),
        (["public"], "http://10.0.0.1/", False),
        *((["public"], f"http://1.1.1.1:{port}/", is_open) for port, is_open in PORTS.items()),
        (["public", "http://1.1.1.1:25"], "http://1.1.1.1:25/", True),
        (["10.0.0.0/8"], "http://10.9.9.9:81/x", True),
        (["10.0.0.0/8"], "http://1.1.1.1/", False),
        (["10.0.0.1"], "http://10.0.0.1/", True),
        (["10.0.0.1"], "http://10.0.0.2/", False),
        (["fd00::/8"], "http://[fd00::1]/", True),
        (["partner.example"], "https://Partner.Example:8443/any", True),
        (["partner.example"], "https://partner.example.evil.example/", False),
        (["https://partner.example/cb"], "https://partner.example/cb/1", True),
        (["https://partner.example/cb"], "http://partner.example/cb", False),
    ],
)
def test_a_list_allows_what_is_on_it_and_nothing_else(
    names: NameServer, entries: list[str], url: str, is_allowed: bool
) -> None:
    names.answers = {name: [["10.0.0.99"]] for name in ("partner.example", "partner.example.evil.example")}
    allowed = Allowed.listed("decoupled", entries)
    if is_allowed:
        check_url(url, allowed, Names().look_up)
    else:
        with pytest.raises(NotAllowed, match="decoupled = "):
            check_url(url, allowed, Names().look_up)


@pytest.mark.parametrize("entry", ["ftp://x", "http://", "10.0.0.0/99", "a b", "*", "1.2.3.4.5"])
def test_what_is_neither_address_name_nor_network_is_no_entry(entry: str) -> None:
    with pytest.raises(ValueError, match=r"address|network"):
        Allowed.listed("decoupled", [entry])


@pytest.mark.spec("SEC-016", versions="all")
def test_a_name_that_no_answer_could_admit_is_not_looked_up(names: NameServer) -> None:
    names.answers = {"elsewhere.example": [["1.1.1.1"]]}
    with pytest.raises(NotAllowed, match="none of those"):
        check_url(
            "https://elsewhere.example/", Allowed.listed("decoupled", ["https://orders.acme.example"]), names.fail
        )
    assert names.asked == []
