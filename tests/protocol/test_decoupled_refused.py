"""Addresses that nothing is sent to: they are refused at the door, and judged again where they are connected to."""

from __future__ import annotations

import pytest

from tests.protocol.conftest import Servers
from tests.support.endpoint import ALLOWED, listening
from tests.support.orders import Orders
from tests.support.orders_server import SETTLED
from tests.support.source import Source, each_rm
from wsrm_mq.versions import ADDRESSING_VERSIONS

INSIDE = (
    "http://127.0.0.1:9/",
    "http://[::1]/",
    "http://10.1.2.3/",
    "http://169.254.169.254/latest/meta-data",
    "http://[::ffff:10.0.0.1]/",
    "http://localhost/",
)
NO_ADDRESS = (
    *("file:///etc/passwd", "ftp://127.0.0.1/", "jar:http://127.0.0.1!/", "gopher://127.0.0.1/"),
    *("corba:partner", "urn:a:b", "http://[::1", "http://127.0.0.1/" + 3_000 * "a"),
)


def refusal(source: Source, envelope: bytes) -> str:
    before = source.store.everything()
    fault = source.post(envelope).reply.fault
    assert fault is not None
    assert source.store.everything() == before
    return f"{fault.subcode}: {fault.reason}"


@pytest.mark.peer("P-73")
@pytest.mark.spec("SEC-015")
@pytest.mark.parametrize("address", NO_ADDRESS)
@each_rm
def test_what_is_no_address_of_http_is_refused_wherever_it_stands(
    servers: Servers, speak: Orders, address: str
) -> None:
    with Source(servers(decoupled=["public", *ALLOWED]), speak) as source:
        for where in ({"acks_to": address}, {"reply_to": address}):
            assert refusal(source, speak.create_sequence(**where)).startswith("CreateSequenceRefused")
        fault_to = f"<wsa:FaultTo><wsa:Address>{address}</wsa:Address></wsa:FaultTo>"
        assert refusal(source, speak.create_sequence(headers=fault_to)).startswith("CreateSequenceRefused")
        identifier = source.create()
        assert "ReplyTo" in refusal(source, speak.echo(identifier, 1, "one", reply_to=address))
        if speak.rm.has_close:
            offer = speak.create_sequence(offer="urn:offered:1", offer_endpoint=address)
            created = source.post(offer).reply.created
            assert created is None or created.accept is None


@pytest.mark.peer("P-73")
@pytest.mark.spec("SEC-016")
@pytest.mark.parametrize("address", INSIDE)
@each_rm
def test_an_address_inside_is_refused_where_only_the_internet_is_allowed(
    servers: Servers, speak: Orders, address: str
) -> None:
    with Source(servers(decoupled=["public"]), speak) as source:
        told = refusal(source, speak.create_sequence(acks_to=address))
        assert "An operator can allow it: decoupled = [" in told
        assert "InvalidHeader" not in told
        identifier = source.create()
        assert "decoupled" in refusal(source, speak.echo(identifier, 1, "one", reply_to=address))


@pytest.mark.spec("SEC-016")
@each_rm
def test_nothing_is_sent_anywhere_unless_it_is_allowed_and_the_refusal_says_how(
    servers: Servers, speak: Orders
) -> None:
    with Source(servers(), speak) as source:
        for where in ({"acks_to": "https://partner.example:8443/cb"}, {"reply_to": "https://partner.example:8443/cb"}):
            told = refusal(source, speak.create_sequence(**where))
            assert 'decoupled = ["https://partner.example:8443"]' in told


SYMBOLS = (
    "http://docs.oasis-open.org/ws-rx/wsmc/200702/anonymous?id=da49ec8f-cb33-4963-914b-5ade280881d1",
    "http://docs.oasis-open.org/ws-rx/wsmc/200702/anonymous?id=",
    *(version.anonymous for version in ADDRESSING_VERSIONS.values()),
    "http://www.w3.org/2005/08/addressing/none",
)


@pytest.mark.spec("SEC-016")
@each_rm
def test_the_anonymous_address_of_another_version_names_no_server_that_is_sent_to(
    servers: Servers, speak: Orders
) -> None:
    allowed = ["docs.oasis-open.org", "schemas.xmlsoap.org", "www.w3.org"]
    of_this_version = (speak.addressing.anonymous, speak.addressing.none)
    with Source(servers(decoupled=allowed), speak) as source:
        identifier = source.create()
        for address in SYMBOLS:
            if address in of_this_version or speak.rm.is_fetched(address):
                continue
            for where in ({"acks_to": address}, {"reply_to": address}):
                told = refusal(source, speak.create_sequence(**where))
                assert "stands for no place" in told
                assert "decoupled" not in told
            assert "stands for no place" in refusal(source, speak.echo(identifier, 1, "one", reply_to=address))


@pytest.mark.peer("P-73")
@pytest.mark.spec("SEC-017")
@each_rm
def test_no_redirect_is_followed(servers: Servers, speak: Orders) -> None:
    with listening() as endpoint, listening() as elsewhere, Source(servers(decoupled=ALLOWED), speak) as source:
        endpoint.answers = dict.fromkeys(range(9), (302, b""))
        endpoint.url = elsewhere.url  # where it redirects to
        place = f"http://127.0.0.1:{endpoint.port}"
        source.post(speak.create_sequence(acks_to=place, reply_to=place))
        assert endpoint.soon(lambda: endpoint.received)
        assert not elsewhere.soon(lambda: elsewhere.received, seconds=SETTLED)


@pytest.mark.spec("SEC-016")
@each_rm
def test_a_host_a_port_and_a_path_are_what_is_allowed_and_no_more(servers: Servers, speak: Orders) -> None:
    with listening() as endpoint:
        allowed = [f"{endpoint.url}/cb"]
        with Source(servers(decoupled=allowed), speak) as source:
            for other in ("", "/cbx", "/cb/../x"):
                assert "decoupled" in refusal(source, speak.create_sequence(acks_to=endpoint.url + other))
            below = f"{endpoint.url}/cb/1"
            assert source.post(speak.create_sequence(acks_to=below, reply_to=below)).status == 202
            assert endpoint.one("CreateSequenceResponse").to == below
