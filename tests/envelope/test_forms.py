"""The same envelope in other forms: encodings, split reads, parts of a multipart body, gzip."""

from __future__ import annotations

import gzip
import io

import pytest

from tests.envelope.conftest import every_version, read
from wsrm_mq.envelope.scan import scan
from wsrm_mq.envelope.stream import (
    Limits,
    content_coding,
    envelope_in,
    expand,
    parse_content_type,
    pieces,
    soap_version_of,
)
from wsrm_mq.errors import EnvelopeError
from wsrm_mq.sequence.elements import CloseSequence, SequenceHeader
from wsrm_mq.testing import EnvelopeFactory
from wsrm_mq.versions import SOAPVersion

ID = "urn:uuid:6f1f4b1e-2a8e-4f0a-9b59-8f8c2f4f2a11"
PLAIN = EnvelopeFactory()
BODY = "<p:put xmlns:p='urn:example:orders'>käse</p:put>"


class Dripping:
    """A file that gives ``step`` bytes at a time, and counts what was taken."""

    def __init__(self, content: bytes, step: int) -> None:
        self._file = io.BytesIO(content)
        self._step = step
        self.taken = 0

    def read(self, size: int, /) -> bytes:
        piece = self._file.read(min(size, self._step))
        self.taken += len(piece)
        return piece


# reading


@every_version
def test_split_reads_change_nothing(speak: EnvelopeFactory) -> None:
    for envelope in (speak.message(ID, 7), speak.create_sequence(), speak.terminate(ID)):
        whole = read(speak, envelope)
        for step in (1, 7, 100):
            assert scan(Dripping(envelope, step), speak.content_type) == whole


def test_no_more_is_read_than_the_header_needs() -> None:
    envelope = PLAIN.message(ID, 7, "<put>" + "<line/>" * 1_000_000 + "</put>")
    file = Dripping(envelope, 1 << 20)
    assert scan(file, PLAIN.content_type).sequence == SequenceHeader(ID, 7)
    assert file.taken == 4_096


def test_a_header_of_several_pieces_is_read() -> None:
    note = '<q:note xmlns:q="urn:example:q">' + "é" * 50_000 + "</q:note>"
    file = Dripping(PLAIN.message(ID, 7, headers=note), 999)
    assert scan(file, PLAIN.content_type).sequence == SequenceHeader(ID, 7)


# encodings


@pytest.mark.parametrize("mark", [True, False])
@pytest.mark.parametrize("codec", ["utf-16-le", "utf-16-be"])
@pytest.mark.parametrize("charset", ["", "; charset=utf-16", '; charset="UTF-16"'])
def test_utf_16_is_read_with_and_without_a_byte_order_mark(mark: bool, codec: str, charset: str) -> None:
    envelope = ("\ufeff" * mark + PLAIN.message(ID, 7, BODY).decode()).encode(codec)
    assert scan(envelope, f"application/soap+xml{charset}").sequence == SequenceHeader(ID, 7)


@pytest.mark.parametrize(
    "declaration", ["", '<?xml version="1.0"?>', "<?xml version='1.0' encoding='UTF-8' standalone='yes'?>\n"]
)
@pytest.mark.parametrize("mark", [b"\xef\xbb\xbf", b""])
@pytest.mark.parametrize("charset", ["", "; charset=utf-8", "; charset=us-ascii", "; charset=unheard-of"])
def test_utf_8_is_read_however_it_is_announced(declaration: str, mark: bytes, charset: str) -> None:
    note = '<q:note xmlns:q="urn:example:q">käse</q:note>'
    envelope = mark + declaration.encode() + PLAIN.message(ID, 7, headers=note)
    assert scan(envelope, f"application/soap+xml{charset}").sequence == SequenceHeader(ID, 7)


def test_the_charset_of_the_content_type_wins_over_the_declaration_and_a_mark_over_both() -> None:
    declared_wrongly = '<?xml version="1.0" encoding="utf-8"?>' + PLAIN.message(ID, 7).decode()
    latin = declared_wrongly.replace("urn:example:orders/put", "urn:example:käse").encode("latin-1")
    assert scan(latin, "application/soap+xml; charset=ISO-8859-1").action == "urn:example:käse"
    with pytest.raises(EnvelopeError):
        scan(latin, "application/soap+xml")
    marked = declared_wrongly.replace("orders/put", "käse").encode("utf-8-sig")
    assert scan(marked, "application/soap+xml; charset=iso-8859-1").action == "urn:example:käse"


@pytest.mark.parametrize("encoding", ["iso-8859-15", "windows-1252", "koi8-r"])
def test_other_encodings_of_one_byte_are_read_from_the_declaration(encoding: str) -> None:
    envelope = PLAIN.envelope("urn:example:x", headers=PLAIN.sequence_header(ID, 7), encoding=encoding)
    assert scan(envelope, "application/soap+xml").sequence == SequenceHeader(ID, 7)


@pytest.mark.parametrize("encoding", ["shift_jis", "utf-7", "utf-32", "base64", "rot13", "punycode", "nothing\0"])
def test_an_encoding_that_cannot_be_used_is_refused_or_harmless(encoding: str) -> None:
    declared = f'<?xml version="1.0" encoding="{encoding}"?>'.encode() + PLAIN.message(ID, 7)
    for envelope, content_type in ((declared, "text/xml"), (PLAIN.message(ID, 7), f'text/xml; charset="{encoding}"')):
        try:
            outcome = scan(envelope, content_type).sequence
        except EnvelopeError as error:
            outcome = error.status
        assert outcome in (SequenceHeader(ID, 7), 400)


# multipart/related


def multipart(envelope: bytes, *, boundary: str = "=_part:1", before: bytes = b"", end: bytes = b"\r\n") -> bytes:
    """An envelope and an attachment, as a sender of MTOM writes them."""
    line = f"--{boundary}".encode()
    root = (
        b"Content-Type: application/xop+xml; charset=UTF-8;" + end + b' type="application/soap+xml"' + end
        + b"Content-Transfer-Encoding: binary" + end + b"CONTENT-ID: <root@example>" + end + end
    )  # fmt: skip
    other = b"Content-Type: application/octet-stream" + end + b"Content-ID: <a@example>" + end + end
    attachment = bytes(range(256)) * 40
    return before + end.join((line, root + envelope, line, other + attachment, line + b"--", b""))


RELATED = 'multipart/related; type="application/xop+xml"; start-info="application/soap+xml"; boundary="=_part:1"'


@pytest.mark.parametrize("start", ["", '; start="<root@example>"', "; start=root@example"])
@pytest.mark.parametrize("end", [b"\r\n", b"\n"])
@pytest.mark.parametrize("before", [b"", b"\r\n", b"This is a preamble.\r\n", b"--not the boundary\r\n"])
def test_the_envelope_is_the_root_part(start: str, end: bytes, before: bytes) -> None:
    envelope = PLAIN.message(ID, 7, BODY)
    body = multipart(envelope, before=before, end=end)
    for source in (body, Dripping(body, 1), Dripping(body, 5_000)):
        headers = scan(source, RELATED + start)
        assert headers.sequence == SequenceHeader(ID, 7)
        assert body[headers.offset :].startswith(envelope)
        assert headers.charset == "utf-8"


def test_the_root_part_may_stand_behind_others() -> None:
    line = b"--=_part:1"
    filler = b"Content-ID: <a@example>\r\n\r\n" + b"-" * 100_000 + b"\r\n--=_part\r\n--=_part"
    envelope = PLAIN.close(ID, 3)
    body = b"\r\n".join((line, filler, line, b"Content-ID: <root@example>\r\n\r\n" + envelope, line + b"--"))
    for source in (body, Dripping(body, 777)):
        headers = scan(source, RELATED + "; start=root@example")
        assert headers.body == CloseSequence(ID, 3)
        assert body[headers.offset :].startswith(envelope)


def test_a_root_part_ends_at_its_boundary_even_in_the_middle_of_a_header() -> None:
    envelope = PLAIN.message(ID, 7)
    cut = envelope.index(b"<wsrm:Sequence")
    body = b"--b\r\n\r\n" + envelope[:cut] + b"\r\n--b\r\n\r\n" + envelope[cut:] + b"\r\n--b--\r\n"
    for source in (body, Dripping(body, 1)):
        with pytest.raises(EnvelopeError):
            scan(source, "multipart/related; boundary=b")


def test_a_part_is_read_to_its_end_and_not_beyond() -> None:
    envelope = PLAIN.message(ID, 7, "<put>" + "x" * 50_000 + "</put>")
    for source in (multipart(envelope), Dripping(multipart(envelope), 333)):
        assert b"".join(pieces(envelope_in(source, RELATED, Limits()).source, 100_000)) == envelope


@pytest.mark.parametrize(
    "content_type",
    [
        "multipart/related",
        "multipart/related; boundary=",
        "multipart/related; boundary=other",
        f"multipart/related; boundary={'b' * 300}",
        f"{RELATED}; start=<none@example>",
    ],
)
def test_a_multipart_body_without_its_root_part_is_refused(content_type: str) -> None:
    with pytest.raises(EnvelopeError) as raised:
        scan(multipart(PLAIN.message(ID, 7)), content_type)
    assert raised.value.status == 400


def test_a_root_part_that_would_have_to_be_decoded_is_refused() -> None:
    body = multipart(PLAIN.message(ID, 7)).replace(b"Encoding: binary", b"Encoding: base64")
    with pytest.raises(EnvelopeError, match="transfer encoding"):
        scan(body, RELATED)


def test_the_header_of_a_part_is_bounded() -> None:
    body = b"--b\r\n" + b"X-Filler: y\r\n" * 100_000 + b"\r\n" + PLAIN.message(ID, 7)
    file = Dripping(body, 1 << 20)
    with pytest.raises(EnvelopeError, match="does not end"):
        scan(file, "multipart/related; boundary=b")
    assert file.taken < 50_000


def test_the_action_parameter_may_be_that_of_the_root_part() -> None:
    part = b'--b\r\nContent-Type: application/xop+xml; action="urn:example:else"\r\n\r\n' + PLAIN.message(ID, 7)
    with pytest.raises(EnvelopeError, match="differs from wsa:Action"):
        scan(part, "multipart/related; boundary=b")
    assert scan(part, 'multipart/related; boundary=b; action="urn:example:orders/put"').sequence is not None


# gzip


def test_a_gzip_body_is_read_as_it_expands() -> None:
    envelope = PLAIN.message(ID, 7, "<put>" + "x" * 300_000 + "</put>")
    for packed in (gzip.compress(envelope), gzip.compress(envelope[:1000]) + gzip.compress(envelope[1000:])):
        for source in (packed, Dripping(packed, 1), Dripping(packed, 4_000)):
            assert scan(expand(source, Limits()), PLAIN.content_type).sequence == SequenceHeader(ID, 7)
        assert expand(packed, Limits()).read() == envelope
        stream = expand(packed, Limits())
        assert stream.read(0) == b""
        assert stream.read(1_000) + stream.read() == envelope


@pytest.mark.parametrize(
    "limits", [Limits(body_bytes=1_000_000), Limits(expansion_ratio=50)], ids=["absolute", "ratio"]
)
def test_a_compression_bomb_is_stopped_while_it_expands(limits: Limits) -> None:
    bomb = gzip.compress(b"<" + b" " * 20_000_000)
    stream = expand(bomb, limits)
    taken: list[int] = []

    def drain() -> None:
        while piece := stream.read(64 * 1024):
            taken.append(len(piece))

    with pytest.raises(EnvelopeError) as raised:
        drain()
    assert raised.value.status == 413
    assert sum(taken) <= 1_100_000


def test_what_may_expand_a_lot_is_a_small_body() -> None:
    envelope = PLAIN.message(ID, 7, " " * 900_000)
    assert expand(gzip.compress(envelope), Limits(expansion_ratio=2)).read() == envelope


@pytest.mark.parametrize(
    "packed",
    [b"", b"plain", gzip.compress(PLAIN.message(ID, 7), mtime=0)[:-9], gzip.compress(b"x", mtime=0) + b"rubbish",
     gzip.compress(PLAIN.message(ID, 7), mtime=0)[:200]],
)  # fmt: skip
def test_a_body_that_is_no_whole_gzip_stream_is_refused(packed: bytes) -> None:
    with pytest.raises(EnvelopeError) as raised:
        expand(packed, Limits()).read()
    assert raised.value.status == 400


# Content-Type


@pytest.mark.parametrize(
    ("content_type", "soap"),
    [
        ("text/xml", SOAPVersion.SOAP_1_1),
        ("", SOAPVersion.SOAP_1_1),
        ("application/soap+xml; action=x", SOAPVersion.SOAP_1_2),
        ("Application/SOAP+XML", SOAPVersion.SOAP_1_2),
        (RELATED, SOAPVersion.SOAP_1_2),
        ('multipart/related; type="text/xml"; boundary=b', SOAPVersion.SOAP_1_1),
    ],
)
def test_the_content_type_says_which_soap_to_answer_in(content_type: str, soap: SOAPVersion) -> None:
    assert soap_version_of(content_type) is soap


def test_parameters_are_read_quoted_and_not() -> None:
    content = parse_content_type(r'Text/XML ; CharSet = "utf-8";Action="a;b=\"c\"" ; odd; start = <x@y> ;charset=other')
    assert content.media_type == "text/xml"
    assert content.parameters == {"charset": "utf-8", "action": 'a;b="c"', "start": "<x@y>"}
    assert content.charset == "utf-8"


@pytest.mark.parametrize(
    ("field", "coding"), [("gzip", "gzip"), (" X-GZip", "gzip"), ("identity", ""), ("", ""), ("br", "br")]
)
def test_a_content_coding_has_one_spelling(field: str, coding: str) -> None:
    assert content_coding(field) == coding
