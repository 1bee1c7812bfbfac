"""``demote`` and ``strip`` change the bytes of RM header blocks, and no others."""

from __future__ import annotations

import pytest

from tests.envelope.conftest import every_version
from tests.envelope.test_forms import RELATED, multipart
from wsrm_mq.envelope.rewrite import demote, strip
from wsrm_mq.envelope.scan import scan
from wsrm_mq.testing import EnvelopeFactory
from wsrm_mq.versions import SOAPVersion

ID = "urn:uuid:6f1f4b1e-2a8e-4f0a-9b59-8f8c2f4f2a11"
PLAIN = EnvelopeFactory()

SECURITY = (
    '<q:Security  xmlns:q="urn:example:security" soap:mustUnderstand="1"><q:sig a=\'1\'>é&#233;</q:sig ></q:Security>'
)
BODY = "<p:put xmlns:p='urn:example:orders' soap:mustUnderstand=\"1\"  ><![CDATA[<wsrm:Sequence/>]]></p:put >\n"


def document(speak: EnvelopeFactory, sequence: str, action: str = "<wsa:Action>") -> str:
    text = speak.message(ID, 7, BODY, headers=SECURITY, message_id="urn:example:m").decode()
    start, end = text.index("<wsrm:Sequence"), text.index("</wsrm:Sequence>") + len("</wsrm:Sequence>")
    return (text[:start] + sequence + text[end:]).replace("<wsa:Action>", action)


def block(tag: str, close: str = "</wsrm:Sequence>") -> str:
    return (
        f"{tag}<wsrm:Identifier>{ID}</wsrm:Identifier><wsrm:MessageNumber>7</wsrm:MessageNumber>"
        f'<q:in xmlns:q="urn:q" soap:mustUnderstand="1"/>{close}'
    )


@pytest.mark.parametrize(
    ("tag", "demoted"),
    [
        ('<wsrm:Sequence soap:mustUnderstand="1">', '<wsrm:Sequence soap:mustUnderstand="0">'),
        ("<wsrm:Sequence\n soap:mustUnderstand = ' true ' >", "<wsrm:Sequence\n soap:mustUnderstand = ' false ' >"),
        ('<wsrm:Sequence soap:mustUnderstand="0">', '<wsrm:Sequence soap:mustUnderstand="0">'),
        ("<wsrm:Sequence>", "<wsrm:Sequence>"),
        (
            '<wsrm:Sequence x:mustUnderstand="1" xmlns:x="urn:x" note=\'> soap:mustUnderstand="1"\'>',
            '<wsrm:Sequence x:mustUnderstand="1" xmlns:x="urn:x" note=\'> soap:mustUnderstand="1"\'>',
        ),
    ],
)
@every_version
def test_demote_switches_must_understand_off_where_it_is_ours(speak: EnvelopeFactory, tag: str, demoted: str) -> None:
    envelope = document(speak, block(tag), '<wsa:Action soap:mustUnderstand="1">').encode()
    expected = document(speak, block(demoted), '<wsa:Action soap:mustUnderstand="0">').encode()
    assert demote(envelope, scan(envelope, speak.content_type)) == expected


def test_demote_knows_the_soap_prefix_of_the_block_itself() -> None:
    tag = '<wsrm:Sequence xmlns:env="{}" env:mustUnderstand="{}">'
    namespace = PLAIN.soap.namespace
    envelope = document(PLAIN, block(tag.format(namespace, "true"))).encode()
    assert (
        demote(envelope, scan(envelope, PLAIN.content_type))
        == document(PLAIN, block(tag.format(namespace, "false"))).encode()
    )


@every_version
def test_strip_cuts_every_rm_block_out(speak: EnvelopeFactory) -> None:
    ack = f'<r:AckRequested xmlns:r="{speak.rm.namespace}"><r:Identifier>{ID}</r:Identifier></r:AckRequested >'
    empty = f'<r:Extension xmlns:r="{speak.rm.namespace}" a="/>"/>'
    envelope = document(speak, f"{ack}\n{block('<wsrm:Sequence>')} {empty}").encode()
    stripped = strip(envelope, scan(envelope, speak.content_type))
    assert stripped == document(speak, "\n ").encode()
    assert not scan(stripped, speak.content_type).is_rm


@pytest.mark.parametrize("codec", ["utf-8-sig", "utf-16", "utf-16-be", "utf-16-le"])
def test_other_encodings_are_changed_in_place(codec: str) -> None:
    tag = '<wsrm:Sequence é="ü" soap:mustUnderstand="true">'
    envelope = document(PLAIN, block(tag)).encode(codec)
    headers = scan(envelope, "application/soap+xml")
    assert demote(envelope, headers) == document(PLAIN, block(tag.replace("true", "false"))).encode(codec)
    assert strip(envelope, headers) == document(PLAIN, "").encode(codec)


def test_the_root_part_of_a_multipart_body_is_changed_in_place() -> None:
    envelope = document(PLAIN, block('<wsrm:Sequence soap:mustUnderstand="1">')).encode()
    demoted = document(PLAIN, block('<wsrm:Sequence soap:mustUnderstand="0">')).encode()
    body = multipart(envelope)
    headers = scan(body, RELATED)
    assert demote(body, headers) == multipart(demoted)
    assert strip(body, headers) == multipart(document(PLAIN, "").encode())


def test_what_needs_no_change_comes_back_as_it_was() -> None:
    envelope = PLAIN.having(soap=SOAPVersion.SOAP_1_1).envelope("urn:example:put", BODY)
    headers = scan(envelope, "text/xml")
    assert demote(envelope, headers) == envelope
    assert strip(envelope, headers) == envelope


def test_a_broken_body_behind_the_header_does_not_matter() -> None:
    envelope = document(PLAIN, block('<wsrm:Sequence soap:mustUnderstand="1">')).encode()[:-30] + b"\xff<&"
    demoted = demote(envelope, scan(envelope, PLAIN.content_type))
    assert demoted == envelope.replace(
        b'<wsrm:Sequence soap:mustUnderstand="1"', b'<wsrm:Sequence soap:mustUnderstand="0"'
    )
