"""What the commands say of a sequence that replies go out in."""

from __future__ import annotations

import gzip
import json
from contextlib import closing
from pathlib import Path

import pytest

from tests.cli.conftest import MINUTE, PLAIN, Service
from tests.queue.build import sender
from tests.support.commands import Wsrm, document
from wsrm_mq.observe.metrics import METRICS, Scrape
from wsrm_mq.queue.arrival import Receipt
from wsrm_mq.queue.creation import create
from wsrm_mq.queue.ending import bury
from wsrm_mq.queue.failure import leave_alone
from wsrm_mq.queue.outbound import acknowledged_with
from wsrm_mq.queue.ownership import Claim
from wsrm_mq.queue.sending import OutgoingMessage, send
from wsrm_mq.queue.settle import ServiceReply
from wsrm_mq.sequence.elements import CreateSequence, EndpointReference, Offer, SequenceAcknowledgement
from wsrm_mq.sequence.inbound import InboundSequence
from wsrm_mq.store.records import Lane, SequenceRecord
from wsrm_mq.store.sqlite.looking import connect_looker
from wsrm_mq.store.transaction import Transaction
from wsrm_mq.views.outgoing import unsent_since
from wsrm_mq.views.overview import overview

OFFERED = "urn:uuid:0ffe4ed0-0000-4000-8000-000000000001"
REPLY = ServiceReply("200 OK", (), b"<e:Envelope/>", place=(0, "utf-8"))


@pytest.fixture
def answered(service: Service) -> InboundSequence:
    """A sequence whose source has offered another: two requests, both answered, six minutes between them."""
    request = CreateSequence(None, offer=Offer(OFFERED))
    made = service.instance.run(lambda tx: create(tx, sender(), request, None, PLAIN)).created
    assert made is not None
    for number in (1, 2):
        service.instance.take(made.terms.identifier, number, wants_reply=True)
        service.instance.settle(service.claim(made), number, reply=REPLY, release=True)
        service.clock.advance(6 * MINUTE)
    service.instance.take(made.terms.identifier, 3)
    service.deliver(made, 3)
    return made


def acknowledge(service: Service, *ranges: tuple[int, int]) -> None:
    said = (SequenceAcknowledgement(OFFERED, ranges),)
    receipt = service.instance.run(lambda tx: acknowledged_with(tx, lambda _tx: Receipt(), sender(), said))
    assert receipt.wrong_acknowledgements == ()


def test_explain_tells_how_many_replies_were_sent_and_how_many_are_not_acknowledged(
    wsrm: Wsrm, service: Service, answered: InboundSequence
) -> None:
    told = " ".join(wsrm("sequence", "explain", answered.terms.identifier).stdout.split())
    assert f"replies: 2 sent in {OFFERED}, which is created; 2 of them not acknowledged since " in told
    acknowledge(service, (1, 2))
    told = " ".join(wsrm("sequence", "explain", answered.terms.identifier).stdout.split())
    assert told.endswith(f"replies: 2 sent in {OFFERED}, which is created; all acknowledged")
    replies = document(wsrm("sequence", "explain", answered.terms.identifier, "--json"))["replies"]
    assert (replies["sent"], replies["acknowledged"], replies["unacknowledged"]) == (2, "1-2", 0)


def test_list_and_show_tell_of_the_replies_too(wsrm: Wsrm, service: Service, answered: InboundSequence) -> None:
    plain = service.sequence(1).terms.identifier
    listed = document(wsrm("sequence", "list", "--json"))["sequences"]
    replies = {one["identifier"]: one["replies"] for one in listed}
    assert replies[plain] is None
    mine = replies[answered.terms.identifier]
    assert (mine["sequence"], mine["sent"], mine["unacknowledged"]) == (OFFERED, 2, 2)
    assert "2 (2 unacknowledged)" in wsrm("sequence", "list").stdout
    shown = document(wsrm("sequence", "show", answered.terms.identifier, "--json"))["sequence"]
    assert shown["replies"] == mine
    assert f"replies: 2 sent in {OFFERED}" in " ".join(
        wsrm("sequence", "show", answered.terms.identifier).stdout.split()
    )


def test_the_partner_is_told_which_replies_it_has_not_acknowledged(
    wsrm: Wsrm, service: Service, answered: InboundSequence
) -> None:
    acknowledge(service, (2, 2))
    told = wsrm("sequence", "explain", "--for-partner", answered.terms.identifier).stdout
    lines = dict(line.split(":", 1) for line in told.splitlines() if line.startswith("Replies"))
    said = {name: value.strip() for name, value in lines.items()}
    assert said == {"Replies sent in": OFFERED, "Replies sent": "2", "Replies not acknowledged": "1"}


def test_metrics_and_exports_have_the_replies_that_are_not_acknowledged(
    wsrm: Wsrm, service: Service, answered: InboundSequence, tmp_path: Path
) -> None:
    acknowledge(service, (1, 1))
    [metric] = [one for one in METRICS if one.name == "wsrm_replies_unacknowledged"]
    with closing(connect_looker(service.path)) as db:
        at = overview(db, service.clock.now)
    assert list(metric.samples(Scrape(0, at, [], frozenset(at.unacknowledged_replies)))) == [(("/orders",), 1)]
    assert wsrm("store", "export", str(tmp_path / "out"), "--table", "outgoing_sequences").exit_code == 0
    [file] = (tmp_path / "out" / "outgoing_sequences").iterdir()
    row = json.loads(gzip.decompress(file.read_bytes()))
    assert (row["sequence"], row["answers"]) == (OFFERED, answered.terms.identifier)
    assert (row["sent"], row["acknowledged"], row["unacknowledged"]) == (2, "1", 1)


def test_a_sequence_without_an_offer_has_no_replies_to_tell_of(wsrm: Wsrm, service: Service) -> None:
    plain = service.sequence(1).terms.identifier
    assert "replies:" not in wsrm("sequence", "explain", plain).stdout
    assert document(wsrm("sequence", "explain", plain, "--json"))["replies"] is None


def test_the_name_of_an_offered_sequence_leads_to_the_one_that_it_answers(
    wsrm: Wsrm, answered: InboundSequence
) -> None:
    for name in (OFFERED, OFFERED[:20]):
        assert document(wsrm("sequence", "explain", name, "--json"))["sequence"] == answered.terms.identifier


def test_a_source_that_goes_on_and_acknowledges_no_reply_is_told_until_it_does(
    wsrm: Wsrm, service: Service, answered: InboundSequence
) -> None:
    assert wsrm("check").exit_code == 1
    told = " ".join(wsrm("status").stdout.split())
    assert f"The source of {answered.terms.identifier} acknowledges no reply: 2 of 2 wait for it since" in told
    acknowledge(service, (1, 1))
    assert wsrm("check").exit_code == 0


def test_a_source_that_is_silent_after_its_last_reply_is_not_blamed(wsrm: Wsrm, service: Service) -> None:
    request = CreateSequence(None, offer=Offer(OFFERED))
    made = service.instance.run(lambda tx: create(tx, sender(), request, None, PLAIN)).created
    assert made is not None
    service.instance.take(made.terms.identifier, 1, wants_reply=True)
    service.instance.settle(service.claim(made), 1, reply=REPLY, release=True)
    assert wsrm("check").exit_code == 0


def test_explain_names_what_was_sent_about_a_sequence_and_given_up(
    wsrm: Wsrm, service: Service, answered: InboundSequence
) -> None:
    identifier, to = answered.terms.identifier, "http://127.0.0.1:9/replies"
    message = OutgoingMessage(EndpointReference(to), "urn:uuid:1", "urn:example:reply", "text/xml", b"<e:Envelope/>")

    def about(tx: Transaction) -> SequenceRecord:
        record = tx.sequence_named(identifier)
        assert record is not None
        return record

    def named(tx: Transaction, identifier: str) -> Lane:
        lane = tx.lane_named(identifier)
        assert lane is not None
        return lane

    def served(tx: Transaction, identifier: str) -> Claim:
        record = named(tx, identifier)
        record.owner = tx.instance
        return Claim(record.id, record.fence)

    position = service.instance.run(lambda tx: send(tx, about(tx), message)).position
    assert position is not None
    told = " ".join(wsrm("sequence", "explain", identifier).stdout.split())
    assert told.endswith(f"sent: to {to}: 1 message waits")
    service.clock.advance(MINUTE + 1)
    with closing(connect_looker(service.path)) as db:
        assert unsent_since(db, service.clock()) == service.clock() - MINUTE - 1
    [sent] = document(wsrm("sequence", "explain", identifier, "--json"))["sent"]
    assert (sent["to"], sent["waiting"], sent["dead"], sent["error"]) == (to, 1, 0, None)
    why = f"{to}: answered 503"
    service.instance.run(lambda tx: leave_alone(tx, served(tx, sent["sequence"]), position, 3_600.0, why))
    told = " ".join(wsrm("sequence", "explain", identifier).stdout.split())
    assert f"sent: to {to}: 1 message waits, the first as '{why}'" in told
    assert f"wsrm-mq sequence explain {sent['sequence']}" in told
    told = " ".join(wsrm("sequence", "explain", sent["sequence"]).stdout.split())
    assert why in told
    assert "try it now, without waiting" in told
    assert "try it again" not in told, "it was never tried"

    service.instance.run(lambda tx: bury(tx, named(tx, sent["sequence"]), position, 1, "not_acknowledged"))
    told = " ".join(wsrm("sequence", "explain", identifier).stdout.split())
    assert f"sent: to {to}: nothing waits; 1 was given up, the source has not got that" in told
    assert f"wsrm-mq dead-letter list seq:{sent['sequence']}" in told
    assert "not_acknowledged" in wsrm("dead-letter", "list", f"seq:{sent['sequence']}").stdout
