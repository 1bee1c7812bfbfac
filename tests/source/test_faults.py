"""The faults and other refusals that a partner answers a request with, as stacks write them."""

from __future__ import annotations

import re
import socket
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from tests.source.conftest import Open, Source
from tests.source.partner import THERE, Partner, Said, envelope
from tests.source.test_acknowledgements import ONE, acknowledged, sent_in_vain, silent
from tests.source.test_sending import send
from tests.support.name_server import NameServer
from tests.support.target import Target, serving
from wsrm_mq.sequence.faults import MessageNumberRollover, UnknownSequence, WSRMRequired
from wsrm_mq.testing import Reply
from wsrm_mq.versions import WSRM_1_1, SOAPVersion

only_1_1 = pytest.mark.parametrize("rm", [WSRM_1_1], ids=["rm1.1"])
OTHER = "http://other.example/"
KEY = Path(__file__).parents[1] / "outbound" / "service.pem"
"""The certificate of service.example, and its key."""


def answered_with(partner: Partner, said: Said, identifier: str = ONE) -> None:
    """Each message of the sequence is answered so."""
    partner.says = lambda received: said if received.sequence and received.sequence.identifier == identifier else None


def errors(source: Source) -> list[str]:
    """Why something was not sent, once that is recorded."""
    query = "SELECT DISTINCT last_error FROM entry WHERE last_error IS NOT NULL"
    assert source.partner.within(lambda: source.rows(query))
    return [error for (error,) in source.rows(query)]


def in_place(partner: Partner, place: str, status: int) -> Said:
    """The fault UnknownSequence, with its Identifier in that place."""
    made = partner.fault(UnknownSequence("It is not here.", ONE), status)
    (identifier,) = re.findall(rb"<wsrm:Identifier.*?</wsrm:Identifier>", made.content)
    instead = {"in Detail": b"<wsrm:Detail>%s</wsrm:Detail>" % identifier, "missing": b""}.get(place, identifier)
    if place == "in Detail" and partner.speak.soap is SOAPVersion.SOAP_1_2:
        instead = identifier  # it is in the Detail of the Fault
    if place == "a child" and partner.speak.soap is SOAPVersion.SOAP_1_2:
        namespace = partner.speak.rm.namespace.encode()
        instead = b'<wsrm:SequenceFault xmlns:wsrm="%s">%s</wsrm:SequenceFault>' % (namespace, identifier)
    return made._replace(content=made.content.replace(identifier, instead))


@pytest.mark.spec("F-019", "H-014")
@pytest.mark.parametrize(
    ("place", "status"), [("in Detail", 400), ("a child", 500), ("missing", 200), ("in Detail", 202)]
)
def test_a_fault_is_understood_wherever_its_identifier_is_and_whatever_its_status(
    source: Source, partner: Partner, place: str, status: int
) -> None:
    send(source, "a")
    assert source.flush(5)
    answered_with(partner, in_place(partner, place, status))
    send(source, "b")
    assert source.in_time()
    assert partner.places == [(ONE, 1), (ONE, 2), ("urn:there:2", 1)]
    assert source.states()[0][0] == "failed"


@only_1_1
@pytest.mark.spec("F-020")
@pytest.mark.parametrize("spelling", ["WSRMRequired", "WsrmRequired"])
@pytest.mark.parametrize("soap", SOAPVersion, ids=lambda soap: soap.label)
def test_wcf_may_spell_a_code_its_own_way(source: Source, partner: Partner, spelling: str, soap: SOAPVersion) -> None:
    partner.speak = partner.speak.having(soap=soap)
    refused = partner.fault(WSRMRequired("It takes messages of a sequence only.", ONE))
    refused = refused._replace(content=refused.content.replace(b"WSRMRequired", spelling.encode()))
    answered_with(partner, refused)
    source.send(envelope(partner.speak), to=THERE, action="urn:example:orders/put")
    (told,) = errors(source)
    assert "(WSRMRequired: it has seen no Sequence" in told
    assert told.endswith("see rm)")


@only_1_1
@pytest.mark.spec("F-027")
def test_a_full_sequence_gives_no_number_more_and_lower_ones_are_sent_again(source: Source, partner: Partner) -> None:
    sent_in_vain(source, partner, 2)
    full = partner.fault(MessageNumberRollover("The number is too large.", ONE, max_number=2))
    said: list[Said] = [full]
    partner.says = lambda received: (said.pop() if said else partner.answered(202)) if received.sequence else None
    source.pass_time(3)
    assert partner.within(lambda: len(partner.places) == 4)
    assert source.at_rest()
    partner.says = lambda _received: None
    send(source, "x")
    assert source.in_time()
    assert {place for place in partner.places[4:]} >= {(ONE, 1), (ONE, 2), ("urn:there:2", 1)}
    assert [given for _state, given, _acknowledged in source.states()] == [2, 1]


@pytest.mark.spec("F-029")
def test_a_fault_about_a_sequence_of_others_changes_nothing(source: Source, partner: Partner) -> None:
    sent_in_vain(source, partner, 2)
    before = source.states()
    answered_with(partner, partner.fault(UnknownSequence("It is not here.", "urn:there:of-others")))
    source.pass_time(3)
    assert partner.within(lambda: len(partner.places) == 4)
    assert source.at_rest()
    assert (source.states(), source.waiting, source.dead) == (before, 2, [])
    partner.says = lambda _received: None
    assert source.in_time()
    assert {place[0] for place in partner.places} == {ONE}


@pytest.fixture
def redirecting() -> Iterator[tuple[str, list[str]]]:
    """The address of a server that answers each POST by a redirect to another of its paths, and the paths that were
    posted to."""
    paths: list[str] = []

    class Redirecting(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            paths.append(self.path)
            self.rfile.read(int(self.headers["Content-Length"]))
            self.send_response(307)
            self.send_header("Location", "/moved")
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_arguments: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Redirecting) as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/orders", paths
        server.shutdown()


@pytest.mark.spec("H-023")
def test_a_redirect_is_not_followed_and_told_with_what_to_do(
    open_source: Open, partner: Partner, redirecting: tuple[str, list[str]]
) -> None:
    there, paths = redirecting
    source = open_source(post=None)
    source.send(envelope(partner.speak), to=there, action="urn:example:orders/put")
    (told,) = errors(source)
    assert (
        told == f"{there}: answered 307, which leads to /moved: no redirect is followed; if that is right, send to it"
    )
    assert set(paths) == {"/orders"}


@only_1_1
@pytest.mark.parametrize("wrong", ["name", "certificate"])
def test_a_name_that_is_not_known_and_a_certificate_that_no_authority_vouches_for_are_told_and_lose_nothing(
    open_source: Open, partner: Partner, monkeypatch: pytest.MonkeyPatch, wrong: str
) -> None:
    names = NameServer()
    names.answers = {"gone.example": [[]], "service.example": [["127.0.0.1"]]}
    monkeypatch.setattr(socket, "getaddrinfo", names)
    with serving(Target(), key=KEY) as target:
        there, why = {
            "name": ("http://gone.example/orders", "there is no host gone.example"),
            "certificate": (f"https://service.example:{target.port}/orders", "certificate verify failed"),
        }[wrong]
        source = open_source(post=None)
        source.send(envelope(partner.speak), to=there, action="urn:example:orders/put")
        (told,) = errors(source)
        assert told.startswith(f"{there}: ")
        assert why in told
        assert (source.waiting, source.dead, target.requests) == (1, [], [])
        assert source.rows("SELECT max(failures) FROM entry") == [(0,)]


@pytest.mark.spec("SEC-004")
def test_what_another_endpoint_acknowledges_releases_nothing(source: Source, partner: Partner) -> None:
    sent_in_vain(source, partner, 2)
    stranger = partner.saying_ack(ONE, (1, 2))

    def says(received: Reply) -> Said:
        if received.sequence is None:
            return None
        return stranger if received.sequence.identifier != ONE else partner.answered(202)

    partner.says = says
    source.send(envelope(partner.speak), to=OTHER, action="urn:example:orders/put")
    assert partner.within(lambda: ("urn:there:2", 1) in partner.places)
    assert source.at_rest()
    assert (acknowledged(source), source.waiting) == ("", 3)
    silent(partner)


@pytest.mark.spec("SEC-013")
def test_an_acknowledgement_of_a_million_ranges_releases_nothing(source: Source, partner: Partner) -> None:
    sent_in_vain(source, partner, 2)
    one = partner.saying_ack(ONE, (1, 2))
    begin, found, end = one.partition(re.search(rb"<wsrm:AcknowledgementRange[^>]*/>", one)[0])  # type: ignore[index]
    answered_with(partner, begin + found * 1_000_000 + end)
    source.pass_time(3)
    assert partner.within(lambda: len(partner.places) == 4)
    assert source.at_rest()
    assert (acknowledged(source), source.waiting) == ("", 2)
    silent(partner)
