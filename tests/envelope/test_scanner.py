"""A scanner with a memory answers what one without answers, of whatever bytes."""

from __future__ import annotations

import re

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from wsrm_mq.envelope.headers import Headers
from wsrm_mq.envelope.scan import Scanner, scan
from wsrm_mq.envelope.stream import Limits
from wsrm_mq.errors import EnvelopeError
from wsrm_mq.testing import EnvelopeFactory
from wsrm_mq.versions import WSA_2004, WSA_2005, WSRM_1_0, WSRM_1_1, SOAPVersion

FACTORIES = [
    EnvelopeFactory(rm=rm, soap=soap, addressing=addressing)
    for rm in (WSRM_1_0, WSRM_1_1)
    for soap in SOAPVersion
    for addressing in rm.addressings
    if addressing in (WSA_2004, WSA_2005)
]
ONE = "urn:uuid:6ba7b810-9dad-41d1-80b4-00c04fd430c8"
USUAL = Limits()
OTHER = "http://example.com/sequences/7"


def read(scanner: Scanner | None, envelope: bytes, content_type: str, limits: Limits = USUAL) -> Headers | str:
    """The headers, or the fault by its name and reason."""
    try:
        found = scanner.scan(envelope, content_type) if scanner else scan(envelope, content_type, None, limits)
        return found._replace(alike=None)
    except EnvelopeError as error:
        return f"{error.fault.name}: {error.fault.reason}"


def known(scanner: Scanner) -> int:
    return len(scanner._known)


@pytest.mark.parametrize("factory", FACTORIES, ids=str)
def test_messages_that_are_alike_are_recognised(factory: EnvelopeFactory) -> None:
    scanner = Scanner(Limits())
    for number, identifier in enumerate((ONE, ONE, OTHER, OTHER, ONE), 1):
        envelope = factory.message(identifier, number, message_id=f"urn:message:{number}")
        assert read(scanner, envelope, factory.content_type) == read(None, envelope, factory.content_type)
    assert known(scanner) == 1


@pytest.mark.parametrize(
    "number",
    ["0", "00", "1", "007", "9223372036854775807", "9223372036854775808", "1e3", "-1", "+4", " 5 ", "", "\u0663"],
)
@pytest.mark.parametrize("factory", FACTORIES[:2], ids=str)
def test_a_number_means_what_it_means_to_a_first_reader(factory: EnvelopeFactory, number: str) -> None:
    scanner = Scanner(Limits())
    read(scanner, factory.message(ONE, 1), factory.content_type)
    envelope = factory.message(ONE, number)
    assert read(scanner, envelope, factory.content_type) == read(None, envelope, factory.content_type)


def lying(factory: EnvelopeFactory) -> dict[str, bytes]:
    """Messages whose first number, to a careless reader, is not that of the Sequence header."""
    good = factory.message(ONE, 1, message_id="urn:message:1")
    number = re.search(rb"<[\w:]*MessageNumber>1</", good)
    assert number is not None
    copy = number[0] + number[0][1:-2].rpartition(b">")[0].partition(b">")[0] + b">"
    header = re.search(rb"<[\w:]*Header>", good)
    assert header is not None
    return {
        "in a comment": good.replace(header[0], header[0] + b"<!--" + copy + b"-->"),
        "in CDATA": good.replace(header[0], header[0] + b"<x><![CDATA[" + copy + b"]]></x>"),
        "in an attribute": good.replace(header[0], header[0] + b"<x a='MessageNumber>1&lt;/'/>"),
        "in another header": good.replace(header[0], header[0] + b"<x><MessageNumber>1</MessageNumber></x>"),
        "in a text": good.replace(header[0], header[0] + b"<x>MessageNumber>1</x>"),
        "with an empty twin": good.replace(header[0], header[0] + b"<MessageNumber />"),
    }


@pytest.mark.parametrize("where", lying(FACTORIES[0]))
@pytest.mark.parametrize("factory", FACTORIES, ids=str)
def test_a_number_that_only_looks_like_one_is_none(factory: EnvelopeFactory, where: str) -> None:
    scanner = Scanner(Limits())
    first = lying(factory)[where]
    for envelope in (first, first.replace(b"MessageNumber>1<", b"MessageNumber>2<", 1), first.replace(b">1<", b">3<")):
        assert read(scanner, envelope, factory.content_type) == read(None, envelope, factory.content_type)


def test_what_the_limits_refuse_is_refused_from_a_known_source_too() -> None:
    factory, limits = FACTORIES[-1], Limits(header_bytes=2_000, identifier_bytes=60)
    scanner = Scanner(limits)
    read(scanner, factory.message(ONE, 1), factory.content_type)
    for identifier, message_id in ((f"urn:{'x' * 100}", "urn:m"), (ONE, f"urn:{'x' * 3_000}"), ("no-uri", "urn:m")):
        envelope = factory.message(identifier, 2, message_id=message_id)
        assert read(scanner, envelope, factory.content_type) == read(None, envelope, factory.content_type, limits)


def test_the_action_and_content_type_of_http_are_part_of_what_is_alike() -> None:
    factory = EnvelopeFactory(soap=SOAPVersion.SOAP_1_1)
    scanner = Scanner(Limits())
    envelope = factory.message(ONE, 1, action="urn:a")
    scanner.scan(envelope, factory.content_type, '"urn:a"')
    with pytest.raises(EnvelopeError):
        scanner.scan(envelope, factory.content_type, '"urn:b"')


def test_a_thousand_sources_are_not_all_remembered() -> None:
    scanner = Scanner(Limits())
    for number in range(1_000):
        factory = EnvelopeFactory(to=f"http://example.com/{number}")
        scanner.scan(factory.message(ONE, 1), factory.content_type)
    assert known(scanner) <= 256


MUTATIONS = st.lists(
    st.tuples(
        st.integers(0, 2_000),
        st.integers(0, 4),
        st.sampled_from(
            [
                b"",
                b"1",
                b"<",
                b">",
                b"/",
                b"&",
                b"'",
                b'"',
                b" ",
                b"\x00",
                b"<!--",
                b"-->",
                b"\xc3",
                b"a:",
                b"]]>",
                b"<x/>",
            ]
        ),
    ),
    max_size=3,
)


@settings(max_examples=300, deadline=None)
@given(st.sampled_from(FACTORIES), MUTATIONS, st.integers(1, 10**19), st.text("abc:/-#", min_size=1, max_size=9))
@example(FACTORIES[0], [], 10**18, "urn:x")
def test_any_change_of_any_byte_is_seen(
    factory: EnvelopeFactory, mutations: list[tuple[int, int, bytes]], number: int, message_id: str
) -> None:
    scanner = Scanner(Limits())
    read(scanner, factory.message(ONE, 1, message_id="urn:message:1"), factory.content_type)
    envelope = factory.message(ONE, number, message_id=message_id)
    for place, removed, added in mutations:
        at = place % len(envelope)
        envelope = envelope[:at] + added + envelope[at + removed :]
    # Twice: what was remembered of the changed one serves it as well.
    for _ in range(2):
        assert read(scanner, envelope, factory.content_type) == read(None, envelope, factory.content_type)
