"""How a request may be written, and what comes back for it on HTTP: encodings, To, Action, the ends of a sequence."""

from __future__ import annotations

import codecs

import pytest

from tests.support.orders import NAMESPACE, Orders
from tests.support.orders_server import OrdersServer, within
from tests.support.source import Source, each_rm, every_version, in_1_1
from wsrm_mq.versions import WSA_2004

from .conftest import Servers
from .conversation import UNKNOWN

ENCODED = {
    "utf-8": ("utf-8", b""),
    "utf-8 with a mark": ("utf-8", codecs.BOM_UTF8),
    "utf-16-le": ("utf-16-le", b""),
    "utf-16-le with a mark": ("utf-16-le", codecs.BOM_UTF16_LE),
    "utf-16-be": ("utf-16-be", b""),
    "utf-16-be with a mark": ("utf-16-be", codecs.BOM_UTF16_BE),
}


@pytest.mark.spec("H-024")
@pytest.mark.parametrize("form", ENCODED)
@every_version
def test_a_sequence_may_be_written_in_utf_8_and_utf_16_with_and_without_byte_order_mark(
    form: str, server: OrdersServer, speak: Orders
) -> None:
    encoding, mark = ENCODED[form]
    charset = "utf-8" if encoding == "utf-8" else "utf-16"
    content_type = f"{speak.soap.media_type}; charset={charset}"

    def written(envelope: bytes) -> bytes:
        return mark + envelope.decode().encode(encoding)

    with Source(server, speak, "/plain") as source:
        created = source.post(written(speak.create_sequence()), content_type=content_type).reply.created
        assert created is not None
        identifier = created.identifier
        labelled, bare = written(speak.put(identifier, 1, "grün")), written(speak.put(identifier, 2, "blau"))
        assert source.post(labelled, content_type=content_type).reply.ack.ranges == ((1, 1),)
        assert source.post(bare, content_type=speak.soap.media_type).reply.ack.ranges == ((1, 2),)
        assert within(20, lambda: source.store.unsettled(identifier), lambda left: left == 0) == 0
        given = source.server.rows("select body from requests where sequence = ? order by number", identifier)
        assert given == [(labelled,), (bare,)]


@pytest.mark.spec("A-004", "A-015")
@every_version
def test_without_to_a_message_is_for_the_anonymous_address_or_refused_under_2004(source: Source) -> None:
    speak, identifier = source.speak, source.create()
    before = source.store.everything()
    source.speak = speak.having(to=None)
    answer, created = source.put(identifier, 1), source.post(source.speak.create_sequence())
    source.speak = speak
    if speak.addressing is not WSA_2004:
        assert answer.reply.ack.ranges == ((1, 1),)
        assert created.reply.created is not None
        assert source.delivered(identifier) == [1]
        return
    for refused in (answer, created):
        fault = refused.reply.fault
        assert fault is not None
        assert (fault.namespace, fault.subcode) == (WSA_2004.namespace, "MessageInformationHeaderRequired")
    assert source.store.everything() == before
    assert source.put(identifier, 1).reply.ack.ranges == ((1, 1),)


@pytest.mark.spec("A-011", "A-015")
@every_version
def test_an_action_of_wsrm_that_there_is_not_is_refused_each_time_and_never_accepted(source: Source) -> None:
    speak, identifier = source.speak, source.create()
    before = source.store.everything()
    request = speak.put(identifier, 1, action=speak.rm.action("OpenSequence"))
    for _ in range(2):
        fault = source.post(request).reply.fault
        assert fault is not None
        assert (fault.namespace, fault.subcode) == (speak.addressing.namespace, "ActionNotSupported")
        assert source.store.everything() == before
    assert source.put(identifier, 1).reply.ack.ranges == ((1, 1),)
    assert source.delivered(identifier) == [1]


@pytest.mark.spec("A-011", "D-SEQ-030")
@every_version
def test_an_action_that_the_service_does_not_know_is_accepted_once_and_each_resend_gets_the_services_fault(
    source: Source,
) -> None:
    """Which actions there are is the service's to say: what it says is the answer, and is kept like any other."""
    speak, identifier = source.speak, source.create()
    body = f'<t:no_such_operation xmlns:t="{NAMESPACE}"/>'
    request = speak.message(identifier, 1, body, action=f"{NAMESPACE}/no_such_operation", reply_to="")
    first, again = source.post(request), source.post(request)
    for answer in (first, again):
        assert answer.reply.fault is not None
        assert b"no_such_operation" in answer.body
        assert answer.reply.ack.ranges == ((1, 1),)
    assert first.body.partition(b"Body>")[2] == again.body.partition(b"Body>")[2]
    assert source.store.received(identifier) == [(1, 1)]


@pytest.mark.spec("H-017")
@pytest.mark.peer("P-35", "P-51")
@pytest.mark.parametrize("reply_to", ["", None], ids=["anonymous", "without ReplyTo"])
@in_1_1
def test_close_and_terminate_are_answered_on_their_own_response(reply_to: str | None, source: Source) -> None:
    identifier = source.create(reply_to=reply_to)
    source.put(identifier, 1)
    for end, name in ((source.close, "CloseSequenceResponse"), (source.terminate, "TerminateSequenceResponse")):
        answer = end(identifier, 1, reply_to=reply_to, message_id=f"urn:example:{name}")
        assert answer.status == 200
        assert answer.reply.body_name == name
        assert answer.texts("Identifier").count(identifier) == 2, "of the response, and of the acknowledgement"
        assert answer.reply.relates_to == f"urn:example:{name}"
        assert (answer.reply.ack.ranges, answer.reply.ack.final) == (((1, 1),), True)


@pytest.mark.peer("P-49")
@each_rm
def test_an_unknown_namespace_of_addressing_or_of_wsrm_under_must_understand_is_refused_with_its_reason(
    servers: Servers, speak: Orders
) -> None:
    with Source(servers(understood=["urn:example:known"]), speak) as source:
        identifier = source.create()
        before = source.store.everything()
        strange = speak.put(identifier, 1).replace(speak.addressing.namespace.encode(), b"urn:example:addressing")
        fault = source.post(strange).reply.fault
        assert fault is not None
        assert "Action" in fault.reason
        draft = "http://docs.oasis-open.org/ws-rx/wsrm/200608"
        header = speak.sequence_header(UNKNOWN, 1).replace("wsrm:", "d:").replace(" ", f' xmlns:d="{draft}" ', 1)
        for envelope in (speak.put(identifier, 1, headers=header), speak.put_plain(1, headers=header)):
            refused = source.post(envelope)
            assert refused.reply.fault is not None
            assert refused.reply.fault.code == "MustUnderstand"
        assert source.store.everything() == before
        assert source.put(identifier, 1).reply.ack.ranges == ((1, 1),)


@pytest.mark.peer("P-29")
@every_version
def test_a_sequence_that_carries_no_message_is_created_and_ended(source: Source) -> None:
    identifier = source.create()
    ended = source.terminate(identifier)
    if source.speak.rm.has_close:
        assert (ended.reply.ack.none, ended.reply.ack.final) == (True, True)
    else:
        assert (ended.status, ended.body) == (202, b"")
    assert source.store.sequence(identifier)["ended"] == "terminated"


@pytest.mark.peer("P-08")
@every_version
def test_a_request_for_an_acknowledgement_of_what_is_unknown_or_over_brings_a_fault(source: Source) -> None:
    over = source.create()
    source.terminate(over)
    for identifier in (UNKNOWN, over):
        fault = source.ask(identifier).reply.fault
        assert fault is not None
        assert (fault.subcode, fault.identifier) == ("UnknownSequence", identifier)


@pytest.mark.peer("P-12")
@every_version
def test_a_sequence_of_one_two_way_message_has_its_reply_on_the_response_and_both_sequences_end(source: Source) -> None:
    rm, speak = source.speak.rm, source.speak
    offered = "urn:example:offered:" + speak.rm.label + speak.soap.name + speak.addressing.label.replace("/", "")
    created = source.post(speak.create_sequence(offer=offered)).reply.created
    assert created is not None
    assert created.accept is not None
    reply = source.echo(created.identifier, 1, "one", last=not rm.has_close)
    assert reply.reply.sequence is not None
    assert (reply.reply.sequence.identifier, reply.reply.sequence.number) == (offered, 1)
    assert reply.reply.sequence.last is not rm.has_close
    acknowledged = speak.acknowledgement_header(offered, (1, 1))
    ended = source.terminate(created.identifier, 1 if rm.has_close else None, headers=acknowledged)
    assert ended.reply.body_name == ("TerminateSequenceResponse" if rm.has_close else "TerminateSequence")
    assert source.store.sequence(created.identifier)["ended"] == "terminated"
    states = source.store.rows("select state, unacknowledged from outbound_sequence where identifier = ?", offered)
    assert states == [("terminated", 0)]
