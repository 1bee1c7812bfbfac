"""What an endpoint answers to a request of this side's own is read: acknowledgements, faults, and what is neither."""

from __future__ import annotations

import uuid
from collections.abc import Callable

import pytest
from click.testing import CliRunner

from tests.protocol.conftest import Servers
from tests.protocol.test_arriving_faults import ledger, rm_fault
from tests.protocol.test_decoupled import created, is_empty_202
from tests.protocol.test_offer import outgoing
from tests.support.endpoint import ALLOWED, Endpoint
from tests.support.orders import Orders
from tests.support.orders_server import OrdersServer, within
from tests.support.source import Source, each_rm, each_rm_at_length, every_version, in_1_1
from wsrm_mq.cli import program
from wsrm_mq.testing import Place, Reply
from wsrm_mq.versions import SOAPVersion

TWICE = 0.3
"""Seconds after which a reply leaves again that nobody acknowledges."""


@pytest.fixture
def server(servers: Servers) -> OrdersServer:
    return servers(decoupled=ALLOWED, resend=[TWICE] * 5)


def acknowledging(speak: Orders, offered: str) -> Callable[[Reply], tuple[int, bytes] | None]:
    """An endpoint that acknowledges a numbered reply on its answer to it."""

    def says(received: Reply) -> tuple[int, bytes] | None:
        place = received.sequence
        return None if place is None else (200, speak.acknowledgement(offered, (1, place.number)))

    return says


def outcomes(source: Source, endpoint: Endpoint) -> list[tuple[int, str | None, str | None]]:
    """Number, outcome and reason of each message that goes there with a number. A port may come again."""
    query = (
        "select number, outcome, reason from entry join channel using (lane) where is_numbered and answers = "
        "(select max(answers) from channel where address = ?) order by number"
    )
    return [(number, outcome, reason) for number, outcome, reason in source.store.rows(query, endpoint.url)]


def offering(source: Source, endpoint: Endpoint) -> tuple[str, str]:
    offered = uuid.uuid4().urn
    return created(source, endpoint, offer=offered, offer_endpoint=endpoint.url), offered


@pytest.mark.spec("S-ACK-016", "H-007")
@every_version
def test_an_acknowledgement_on_the_answer_to_a_reply_is_as_good_as_any_other(
    source: Source, endpoint: Endpoint, speak: Orders
) -> None:
    identifier, offered = offering(source, endpoint)
    endpoint.says = acknowledging(speak, offered)
    for number in (1, 2):
        source.echo(identifier, number, "text", reply_to=endpoint.url)
    all_taken = [(1, "delivered", None), (2, "delivered", None)]
    assert within(10, lambda: outcomes(source, endpoint), lambda found: found == all_taken) == all_taken
    sent = sorted(one.sequence.number for one in endpoint.saying("echoResponse") if one.sequence is not None)
    endpoint.soon(lambda: endpoint.saying("echoResponse"), len(sent) + 1, seconds=3 * TWICE)
    assert len(endpoint.saying("echoResponse")) == len(sent), "nothing leaves again"


def soap_fault(speak: Orders, code: str, headers: str = "") -> bytes:
    """A fault of the endpoint's own."""
    if speak.soap is SOAPVersion.SOAP_1_1:
        body = f"<soap:Fault><faultcode>soap:Server.{code}</faultcode><faultstring>late</faultstring></soap:Fault>"
    else:
        body = (
            '<soap:Fault><soap:Code><soap:Value>soap:Receiver</soap:Value><soap:Subcode><soap:Value xmlns:p="urn:p">'
            f'p:{code}</soap:Value></soap:Subcode></soap:Code><soap:Reason><soap:Text xml:lang="en">late</soap:Text>'
            "</soap:Reason></soap:Fault>"
        )
    return speak.envelope("urn:p/fault", body, headers=headers, reply_to=None)


@pytest.mark.spec("S-ACK-016")
@each_rm
def test_an_acknowledgement_on_a_fault_counts_too(source: Source, endpoint: Endpoint, speak: Orders) -> None:
    identifier, offered = offering(source, endpoint)
    told = speak.acknowledgement_header(offered, (1, 1))
    endpoint.says = lambda received: (500, soap_fault(speak, "Busy", told)) if received.sequence else None
    source.echo(identifier, 1, "text", reply_to=endpoint.url)
    taken = [(1, "delivered", None)]
    assert within(10, lambda: outcomes(source, endpoint), lambda found: found == taken) == taken
    assert len(endpoint.saying("echoResponse")) == 1


@pytest.mark.spec("H-007")
@each_rm
def test_a_fault_of_the_endpoint_is_kept_with_the_attempt_and_the_message_is_sent_again(
    source: Source, endpoint: Endpoint, speak: Orders
) -> None:
    identifier = created(source, endpoint)
    left = [500]
    endpoint.says = lambda received: (left.pop(), soap_fault(speak, "Busy")) if received.body_name and left else None
    source.echo(identifier, 1, "text", reply_to=endpoint.url)
    settled = "select message, outcome from entry join channel using (lane) where address = ? and number > 1"
    [(message, _outcome)] = within(
        10, lambda: source.store.rows(settled, endpoint.url), lambda rows: [one for _key, one in rows] == ["delivered"]
    )
    told = source.store.rows("select fault, reason from ledger where event = 'failed' and position = ?", message)
    code = "Server.Busy" if speak.soap is SOAPVersion.SOAP_1_1 else "Receiver.Busy"
    [(kept, reason)] = told
    assert kept == code
    assert reason.startswith(f"{endpoint.url}: answered 500 with a fault: {code}: ")
    assert "late" in reason


@pytest.mark.spec("F-025", "F-026")
@pytest.mark.parametrize(
    ("code", "how"),
    [
        ("UnknownSequence", "failed: the other side says that it does not know it"),
        ("SequenceTerminated", "terminated"),
    ],
)
@every_version
def test_an_endpoint_that_does_not_know_the_offered_sequence_or_has_ended_it_ends_it(
    source: Source, endpoint: Endpoint, speak: Orders, code: str, how: str
) -> None:
    """What it had not acknowledged is put aside with a reason; replies that follow have no number."""
    identifier, offered = offering(source, endpoint)
    endpoint.says = lambda received: (500, rm_fault(speak, code, offered)) if received.sequence else None
    source.echo(identifier, 1, "one", reply_to=endpoint.url)
    dead = [(1, "dead", "sequence_ended")]
    assert within(10, lambda: outcomes(source, endpoint), lambda found: found == dead) == dead
    assert len(endpoint.saying("echoResponse")) == 1
    assert ledger(source, identifier, "fault_received") == [f"{code}, about {offered}"]
    assert ledger(source, identifier, "replies_in_doubt") == [f"not acknowledged: 1 of {offered}"]
    explain = ["sequence", "explain", identifier, "--store", str(source.server.store)]
    told = " ".join(CliRunner().invoke(program, explain, prog_name="wsrm-mq").output.split())
    assert f"replies: 1 sent in {offered}, which is ended ({how})" in told
    assert "1 was given up" in told
    source.echo(identifier, 2, "two", reply_to=endpoint.url)
    later = endpoint.soon(lambda: [one for one in endpoint.saying("echoResponse") if one.sequence is None])
    assert len(later) == 1


@pytest.mark.spec("F-028", "S-RET-012", "S-ACK-011", "S-CLO-006")
@pytest.mark.parametrize("says", ["SequenceClosed", "CloseSequence", "Final"])
@in_1_1
def test_nothing_leaves_again_in_a_sequence_that_its_endpoint_has_closed(
    source: Source, endpoint: Endpoint, speak: Orders, says: str
) -> None:
    """By a fault in answer to the second reply, or in a request of its own: that reply is told as not received, and no
    later one has a number."""
    identifier, offered = offering(source, endpoint)
    endpoint.says = acknowledging(speak, offered)
    source.echo(identifier, 1, "one", reply_to=endpoint.url)
    first = [(1, "delivered", None)]
    assert within(10, lambda: outcomes(source, endpoint), lambda found: found == first) == first
    answers = {
        "SequenceClosed": (500, rm_fault(speak, "SequenceClosed", offered)),
        "Final": (200, speak.acknowledgement(offered, (1, 1), final=True)),
    }
    endpoint.says = lambda received: answers.get(says) if received.sequence else None
    source.echo(identifier, 2, "two", reply_to=endpoint.url)
    endpoint.soon(lambda: endpoint.saying("echoResponse"), 2)
    if says == "CloseSequence":
        source.close(offered, reply_to="none")
    dead = [*first, (2, "dead", "sequence_ended")]
    assert within(10, lambda: outcomes(source, endpoint), lambda found: found == dead) == dead
    assert ledger(source, identifier, "replies_in_doubt") == [f"not acknowledged: 2 of {offered}"]
    assert outgoing(source, offered)["state"] == "closed"
    source.echo(identifier, 3, "three", reply_to=endpoint.url)
    unnumbered = endpoint.soon(lambda: [one for one in endpoint.saying("echoResponse") if one.sequence is None])
    assert len(unnumbered) == 1
    endpoint.soon(lambda: endpoint.saying("echoResponse"), 4, seconds=4 * TWICE)
    assert [one.sequence.number for one in endpoint.saying("echoResponse") if one.sequence] == [1, 2]


@pytest.mark.spec("S-TRM-002")
@pytest.mark.parametrize("code", ["UnknownSequence", "SequenceTerminated"])
@pytest.mark.parametrize("names", ["it", "none"])
@each_rm_at_length
def test_an_end_that_is_answered_with_unknown_sequence_has_arrived(
    source: Source, endpoint: Endpoint, speak: Orders, code: str, names: str
) -> None:
    """It is gone there, which is what was asked for. A fault that names no sequence is about the one of the request."""
    identifier, offered = offering(source, endpoint)
    endpoint.says = acknowledging(speak, offered)
    source.echo(identifier, 1, "one", reply_to=endpoint.url)
    first = [(1, "delivered", None)]
    assert within(10, lambda: outcomes(source, endpoint), lambda found: found == first) == first
    fault = rm_fault(speak, code, offered if names == "it" else None)
    end = speak.rm.action("TerminateSequence")
    endpoint.says = lambda said: (500, fault) if said.action == end else acknowledging(speak, offered)(said)
    if speak.rm.has_last_message:
        source.post(speak.last_message(identifier, 2))
        both = [*first, (2, "delivered", None)]
        assert within(10, lambda: outcomes(source, endpoint), lambda found: found == both) == both
    source.terminate(identifier, reply_to="none")
    endpoint.one("TerminateSequence")
    about = "from entry e join channel c using (lane) where c.address = ? and not c.is_numbered"
    settled = f"select outcome, reason {about} order by e.id desc limit 1"
    taken = [("delivered", None)]
    assert within(10, lambda: source.store.rows(settled, endpoint.url), lambda rows: rows == taken) == taken
    assert len(endpoint.saying("TerminateSequence")) == 1
    failed = f"select reason from ledger where event in ('failed', 'discarded') and position in (select e.id {about})"
    assert source.store.rows(failed, endpoint.url) == []
    assert ledger(source, identifier, "fault_received") == []
    assert outgoing(source, offered)["state"] == "terminated"


@pytest.mark.spec("F-026")
@each_rm
def test_a_source_that_answers_an_acknowledgement_with_unknown_sequence_ends_its_own(
    source: Source, endpoint: Endpoint, speak: Orders
) -> None:
    identifier = created(source, endpoint)
    fault = rm_fault(speak, "UnknownSequence", identifier)
    endpoint.says = lambda received: (500, fault) if received.acks else None
    source.put(identifier, 1)
    ended = within(10, lambda: ledger(source, identifier, "ended"), bool)
    assert ended == ["the source sent UnknownSequence"]
    assert source.delivered(identifier) == [1]
    explain = ["sequence", "explain", identifier, "--store", str(source.server.store)]
    told = " ".join(CliRunner().invoke(program, explain, prog_name="wsrm-mq").output.split())
    assert " UTC, the source sent UnknownSequence; nothing is left to deliver." in told


@pytest.mark.spec("D-ACK-015")
@each_rm
def test_a_request_for_an_acknowledgement_on_an_answer_is_met_at_once(
    servers: Servers, endpoint: Endpoint, speak: Orders
) -> None:
    slow = {"path": "/", "acknowledgement_interval": 60}
    with Source(servers(decoupled=ALLOWED, partners={"slow": slow}), speak) as source:
        identifier = source.create(acks_to=f"{endpoint.url}/acks")
        asked = f"<wsrm:AckRequested><wsrm:Identifier>{identifier}</wsrm:Identifier></wsrm:AckRequested>"
        asking = speak.envelope(speak.rm.action("AckRequested"), "", headers=asked, reply_to="none")
        endpoint.says = lambda received: (200, asking) if received.body_name else None
        source.echo(identifier, 1, "one", reply_to=f"{endpoint.url}/replies")
        assert endpoint.acknowledged(identifier, (1, 1))


BOMB = b'<!DOCTYPE e [<!ENTITY a "aaaaaaaaaa"><!ENTITY b "&a;&a;&a;&a;">]><e>&b;</e>'
GARBAGE = (b"<half", b"\xff\xfe\x00", BOMB, b"<a>" * 5_000, b"<e:Envelope xmlns:e='urn:e'/>", b"OK")


@pytest.mark.spec("S-RET-008")
@pytest.mark.parametrize("garbage", GARBAGE, ids=["half", "bytes", "bomb", "deep", "no-envelope", "text"])
@each_rm_at_length
def test_what_cannot_be_read_of_an_answer_is_told_and_changes_nothing(
    source: Source, endpoint: Endpoint, garbage: bytes
) -> None:
    identifier = created(source, endpoint)
    endpoint.says = lambda _received: (202, garbage)
    before = source.server.log.stat().st_size
    assert is_empty_202(source.echo(identifier, 1, "one", reply_to=endpoint.url))
    settled = "select outcome from entry join channel using (lane) where address = ? and number > 1"
    taken = within(10, lambda: source.store.rows(settled, endpoint.url), lambda rows: rows == [("delivered",)])
    assert taken == [("delivered",)]

    def told() -> bool:
        log = source.server.log.read_bytes()[before:].decode()
        return f"{endpoint.url}: answered 202 with what cannot be read" in log

    assert within(5, told, bool)
    assert source.put(identifier, 2).status == 202


@pytest.mark.spec("SEC-003")
@each_rm
def test_an_answer_that_names_a_sequence_that_is_none_of_its_own_changes_nothing(
    source: Source, endpoint: Endpoint, speak: Orders
) -> None:
    identifier, offered = offering(source, endpoint)
    fault = rm_fault(speak, "UnknownSequence", uuid.uuid4().urn)
    endpoint.says = lambda received: (500, fault) if received.sequence else None
    source.echo(identifier, 1, "one", reply_to=endpoint.url)
    assert len(endpoint.soon(lambda: endpoint.saying("echoResponse"), 2)) >= 2, "it is sent again"
    assert [outcome for _number, outcome, _reason in outcomes(source, endpoint)] == [None]
    state = "select state from outbound_sequence where identifier = ?"
    assert source.store.rows(state, offered) == [("created",)]


@pytest.mark.spec("SEC-003", "S-ACK-010")
@each_rm
def test_an_endpoint_speaks_for_its_own_source_and_for_no_other(
    server: OrdersServer, endpoint: Endpoint, speak: Orders
) -> None:
    with (
        Source(server, speak, fields=("X-User: alice",)) as alice,
        Source(server, speak, fields=("X-User: bob",)) as bob,
    ):
        theirs = uuid.uuid4().urn
        assert bob.echo(bob.create(offer=theirs), 1, "one").reply.sequence == Place(theirs, 1)
        before = outgoing(bob, theirs)
        identifier, mine = offering(alice, endpoint)
        told = speak.acknowledgement_header(theirs, (1, 1)) + speak.acknowledgement_header(mine, (1, 1))
        answer = speak.envelope(speak.rm.action("SequenceAcknowledgement"), "", headers=told, reply_to="none")
        endpoint.says = lambda received: (200, answer) if received.sequence else None
        alice.echo(identifier, 1, "one", reply_to=endpoint.url)
        taken = [(1, "delivered", None)]
        assert within(10, lambda: outcomes(alice, endpoint), lambda found: found == taken) == taken
        assert outgoing(bob, theirs) == before
