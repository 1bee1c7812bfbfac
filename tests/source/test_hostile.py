"""What the answers of a partner, or of one who stands in its place, cannot do: forge, read, flood, or hold up."""

from __future__ import annotations

import gzip
import itertools
import socket
import time
from collections.abc import Iterator
from typing import Final

import pytest

from tests.source.conftest import Open, Source
from tests.source.partner import LOST, Partner, Said
from tests.source.test_acknowledgements import ONE, acknowledged, sent_in_vain
from tests.source.test_faults import answered_with
from tests.source.test_sending import send
from wsrm_mq.envelope.fault import fault as render
from wsrm_mq.envelope.render import create_sequence_response
from wsrm_mq.sequence.elements import SequenceAcknowledgement
from wsrm_mq.sequence.faults import CreateSequenceRefused, UnknownSequence
from wsrm_mq.store.clock import wall_clock
from wsrm_mq.testing import Reply

SOON: Final = 20.0
"""Seconds: a loaded machine's normal time, far below what an expansion would take."""
LAUGHS: Final = "".join([f'<!ENTITY l{n} "' + f"&l{n - 1};" * 10 + '">' for n in range(1, 12)])
LARGE: Final = 64 << 20
"""Bytes: more than is read of an answer that was expanded."""


def releases_nothing(source: Source, partner: Partner, *said: Said) -> None:
    """None of these answers, one or two, changes anything or takes time; what is as it should be counts afterwards."""
    sent_in_vain(source, partner, 2)
    answers, count = itertools.cycle(said), len(partner.places)
    partner.says = lambda received: None if received.sequence is None else next(answers)
    begun = time.monotonic()
    source.pass_time(3)
    assert partner.within(lambda: len(partner.places) == count + 2, SOON)
    assert source.at_rest()
    assert time.monotonic() - begun < SOON
    assert (acknowledged(source), source.waiting, source.dead) == ("", 2, [])
    partner.says = lambda _received: None
    assert source.in_time(step=30)
    assert acknowledged(source) == "1-2"


@pytest.mark.spec("SEC-022", half="source")
def test_an_answer_with_a_document_type_is_read_no_further(source: Source, partner: Partner) -> None:
    ack = partner.saying_ack(ONE, (1, 2))
    laughing = f'<!DOCTYPE x [<!ENTITY l0 "lol">{LAUGHS}]>'.encode() + ack.replace(ONE.encode(), b"&l11;")
    releases_nothing(source, partner, laughing, b"<!DOCTYPE x [<!ELEMENT x ANY>]>" + ack)


@pytest.fixture
def port() -> Iterator[socket.socket]:
    """Where an access to the network would show."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        listening.settimeout(0.2)
        yield listening


@pytest.mark.spec("SEC-023", half="source")
def test_no_entity_include_or_schema_location_of_an_answer_makes_the_source_read_or_call_anything(
    source: Source, partner: Partner, port: socket.socket
) -> None:
    there = f"http://127.0.0.1:{port.getsockname()[1]}"
    speak, ack = partner.speak, partner.saying_ack(ONE, (1, 2))
    entity = f'<!DOCTYPE x [<!ENTITY e SYSTEM "{there}/e">]>'.encode() + ack.replace(ONE.encode(), b"&e;")
    releases_nothing(source, partner, entity, f'<!DOCTYPE x SYSTEM "{there}/x.dtd">'.encode() + ack)
    included = (
        f'<i:include xmlns:i="http://www.w3.org/2001/XInclude" href="{there}/i" parse="text"/>'
        '<q:x xmlns:q="urn:q" xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance"'
        f' xsi:schemaLocation="urn:q {there}/q.xsd"/>'
    )
    block = speak.acknowledgement_header(ONE, (1, 3))
    said = speak.envelope(speak.rm.action("SequenceAcknowledgement"), "", headers=included + block)
    partner.says = lambda received: said if received.sequence is not None else None
    send(source, "c")
    assert source.flush(5)
    with pytest.raises(TimeoutError):
        port.accept()


HUGE: Final = {
    "an attribute of 10 MiB": lambda: '<q:x xmlns:q="urn:q" a="' + "x" * (10 << 20) + '"/>',
    "100,000 attributes": lambda: '<q:x xmlns:q="urn:q" ' + " ".join(f'a{n}=""' for n in range(100_000)) + "/>",
    "10,000 deep": lambda: '<q:x xmlns:q="urn:q">' + "<q:y>" * 10_000 + "</q:y>" * 10_000 + "</q:x>",
    "a name of 1 MiB": lambda: "<q:" + "n" * (1 << 20) + ' xmlns:q="urn:q"/>',
    "100,000 declarations": lambda: (
        '<q:x xmlns:q="urn:q" ' + " ".join(f'xmlns:p{n}="urn:{n}"' for n in range(100_000)) + "/>"
    ),
}


@pytest.mark.spec("SEC-024", half="source")
@pytest.mark.parametrize("block", HUGE)
def test_an_answer_that_is_huge_changes_nothing_in_normal_time(source: Source, partner: Partner, block: str) -> None:
    speak = partner.speak
    headers = HUGE[block]() + speak.acknowledgement_header(ONE, (1, 2))
    releases_nothing(source, partner, speak.envelope(speak.rm.action("SequenceAcknowledgement"), "", headers=headers))


@pytest.mark.spec("SEC-025", half="source")
def test_a_sequence_with_a_name_of_a_mebibyte_is_none(source: Source, partner: Partner) -> None:
    speak, long = partner.speak, "urn:" + "x" * (1 << 20)
    versions = speak.soap, speak.addressing, speak.rm
    wrong = [create_sequence_response(*versions, None, long)]
    partner.says = lambda received: wrong.pop() if wrong and received.sequence is None else None
    send(source, "a")
    assert partner.within(lambda: not wrong)
    assert source.at_rest()
    assert partner.places == []
    assert source.in_time(step=5)
    assert partner.places == [(ONE, 1)]
    answered_with(partner, speak.acknowledgement(long, (1, 2)))
    send(source, "b")
    assert partner.within(lambda: (ONE, 2) in partner.places)
    assert source.at_rest()
    assert source.waiting == 1
    partner.says = lambda _received: None
    assert source.in_time()


@pytest.mark.spec("SEC-026", half="source")
def test_a_compressed_answer_is_measured_as_it_expands(source: Source, partner: Partner) -> None:
    ack = partner.saying_ack(ONE, (1, 2))
    coding = {"Content-Encoding": "gzip"}
    large = ack.replace(b"<soap:Header>", b"<soap:Header>" + b" " * LARGE)
    bomb = partner.answered(200, gzip.compress(large), **coding)
    headers = b"--b\r\n" + b"X-Filler: y\r\n" * 10_000 + b"\r\n" + ack + b"\r\n--b--\r\n"
    kind = f'multipart/related; boundary=b; type="{partner.speak.soap.media_type}"'
    parts = partner.answered(200, headers)._replace(headers=[("Content-Type", kind)])
    releases_nothing(source, partner, bomb, parts)
    packed = gzip.compress(partner.saying_ack(ONE, (1, 3)))
    answered_with(partner, partner.answered(200, packed, **coding))
    send(source, "c")
    assert source.flush(5), "one of a usual size counts"


@pytest.mark.spec("SEC-027", half="source")
def test_what_a_partner_writes_makes_no_line_of_the_log(
    source: Source, partner: Partner, caplog: pytest.LogCaptureFixture
) -> None:
    """Line ends as character references, a bidi override, an escape sequence's beginning where XML allows one."""
    caplog.set_level("DEBUG", logger="wsrm_mq")
    forged = "CRITICAL forged everything is lost"
    hostile = f"x&#13;&#10;{forged}&#x202e;&#x9b;2J".encode()
    faults = [UnknownSequence("REASON", "urn:another"), CreateSequenceRefused("REASON")]
    said = [partner.fault(one) for one in faults]
    unknown, no = (one._replace(content=one.content.replace(b"REASON", hostile)) for one in said)
    send(source, "a")
    assert source.flush(5)
    answered_with(partner, unknown)
    send(source, "b")
    assert partner.within(lambda: (ONE, 2) in partner.places)
    assert source.at_rest()
    partner.says = lambda received: no if received.sequence is None else partner.fault(UnknownSequence("gone", ONE))
    source.pass_time(3)
    assert partner.within(lambda: source.dead)
    assert partner.within(lambda: sum(forged in record.getMessage() for record in caplog.records) >= 2)
    written = [record.getMessage() for record in caplog.records]
    assert not [line for one in written for line in one.splitlines() if line.startswith(forged)]
    assert not {"\u202e", "\x9b"} & set("".join(written))


@pytest.mark.spec("SEC-005", "F-024", half="source")
@pytest.mark.parametrize("gone", [True, False], ids=["of the sequence", "of none"])
def test_no_fault_makes_the_source_forget_what_is_not_acknowledged_or_is_answered_with_one(
    source: Source, partner: Partner, gone: bool
) -> None:
    """Whoever may have written it: what waits goes on, in another sequence where that one is said to be gone."""
    sent_in_vain(source, partner, 2)
    what = UnknownSequence("It is not here.", ONE if gone else "urn:another")
    speak, broken = partner.speak, [SequenceAcknowledgement(ONE, ((7, 9),))]
    content = render(what, speak.soap, speak.addressing, speak.rm, None, broken)
    answered_with(partner, partner.answered(500, content))
    source.pass_time(3)
    assert partner.within(lambda: len(partner.places) >= 3)
    assert source.at_rest()
    partner.says = lambda _received: None
    assert source.in_time(step=10)
    assert partner.texts()[-2:] == ["0", "1"]
    assert source.dead == []
    assert all(received.fault is None for received in partner.received)


@pytest.mark.spec("SEC-032", half="source")
def test_however_much_waits_a_partner_that_is_away_is_tried_ever_more_rarely(
    open_source: Open, partner: Partner
) -> None:
    """A pause is an eighth of the time that it has been away, 20 ms at least: in a second some thirty."""
    tried: list[float] = []

    def says(_received: Reply) -> Said:
        tried.append(time.monotonic())
        return LOST

    partner.says = says
    source = open_source(clock=wall_clock)
    send(source, *map(str, range(50)))
    assert partner.within(lambda: len(tried) >= 15, 30)
    assert sum(at < tried[0] + 1 for at in tried) <= 40
    for before, after in itertools.pairwise(tried):
        assert after - before >= 0.8 * max(0.02, (before - tried[0]) / 8) - 0.01
    assert len({one.message_id for one in partner.received}) == 1, "nothing but what asks for the sequence"
