"""Without authentication: what another address can do that knows the names of a client, and what a client that moves to
another address still can."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from tests.protocol.conftest import Servers
from tests.protocol.test_arriving_faults import rm_fault
from tests.protocol.test_fetching import SHORT, Client
from tests.protocol.test_offer import offering, outgoing, place
from tests.support.orders import Orders
from tests.support.source import Source, each_rm, in_one_version

From = Callable[[str], Source]
CLIENT, STRANGER, MOVED, MOVED_AGAIN = (f"192.0.2.{n}" for n in (1, 2, 3, 4))


@pytest.fixture
def come(servers: Servers, speak: Orders) -> Iterator[From]:
    """A connection from an address, which a trusted proxy tells."""
    server = servers(hold_wait=SHORT, trusted_proxies=["127.0.0.1"], address_header="X-Client")
    sources: list[Source] = []

    def come(address: str) -> Source:
        sources.append(Source(server, speak, fields=(f"X-Client: {address}",)))
        return sources[-1]

    yield come
    for source in sources:
        source.wire.close()


ENDS: dict[str, Callable[[Orders, str], bytes]] = {
    "terminated": lambda speak, offered: speak.terminate(offered),
    "closed": lambda speak, offered: speak.close(offered),
    "said to be final": lambda speak, offered: speak.acknowledgement(offered, final=True),
    "not known": lambda speak, offered: rm_fault(speak, "UnknownSequence", offered),
    "refused": lambda speak, offered: rm_fault(speak, "SequenceClosed", offered),
}


@pytest.mark.spec("SEC-005", "S-TRM-006")
@pytest.mark.parametrize("end", ENDS.values(), ids=ENDS)
@in_one_version
def test_another_address_does_not_end_the_offered_sequence(come: From, end: Callable[[Orders, str], bytes]) -> None:
    client, stranger = come(CLIENT), come(STRANGER)
    mine, offered = offering(client)
    assert place(client.echo(mine, 1, "one")).number == 1
    before = outgoing(client, offered)
    stranger.post(end(stranger.speak, offered))
    assert outgoing(client, offered) == before
    assert place(client.echo(mine, 2, "two")).number == 2
    client.post(end(client.speak, offered))
    assert outgoing(client, offered)["state"] != "created"


@pytest.mark.spec("S-ACK-001")
@each_rm
def test_a_client_that_moves_to_another_address_goes_on(come: From) -> None:
    """Its messages and acknowledgements count, and it ends its sequence."""
    client, moved = come(CLIENT), come(MOVED)
    mine, offered = offering(client)
    client.echo(mine, 1, "one")
    assert place(moved.echo(mine, 2, "two")).number == 2
    moved.post(moved.speak.acknowledgement(offered, (1, 2)))
    assert outgoing(client, offered)["unacknowledged"] == 0
    moved.terminate(mine, 2 if moved.speak.rm.has_close else None)
    assert client.store.sequence(mine)["state"] == "ended"


@pytest.mark.spec("MC-019")
@in_one_version
def test_a_poll_does_not_get_what_another_address_has_sent_to_its_address(come: From) -> None:
    """The stranger knows the address, and names it in a sequence of its own."""
    client, stranger = Client(come(CLIENT)), Client(come(STRANGER))
    client.ask_late(1)
    client.reply(1)
    stranger.address = client.address
    stranger.identifier = stranger.source.create(acks_to=client.address, reply_to=client.address)
    stranger.ask_late(1)
    stranger.reply(1)
    got = client.poll()
    assert client.gate(1).encode() in got.body
    assert got.reply.pending is False
    assert client.poll().body == b""
    assert stranger.gate(1).encode() in stranger.poll().body, "the stranger's is the stranger's"


@pytest.mark.spec("MC-010")
@in_one_version
def test_a_client_that_moves_fetches_what_waits_for_it_wherever_it_is(come: From) -> None:
    """Also once it has begun another sequence from there."""
    first = Client(come(CLIENT))
    first.ask_late(1)
    first.reply(1)
    first.ask_late(2)
    first.reply(2)
    moved = Client(come(MOVED))
    moved.address = first.address
    assert first.gate(1).encode() in moved.poll().body
    moved.identifier = moved.source.create(acks_to=first.address, reply_to=first.address)
    moved.ask_late(1)
    moved.reply(1)
    got = moved.poll().body + moved.poll().body
    assert first.gate(2).encode() in got
    assert moved.gate(1).encode() in got
