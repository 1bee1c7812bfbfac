"""Requests on the wire: each sequence from its CreateSequence to its end, with a partner that does as it should."""

from __future__ import annotations

from contextlib import suppress

import pytest

from tests.conftest import Mount
from tests.source.conftest import Open, Source
from tests.source.partner import ACTION, LOST, THERE, Partner, envelope, text
from tests.support.disk import MIB, Disk
from wsrm_mq.envelope.render import sequence_acknowledgement
from wsrm_mq.errors import BadRequest, ConfigurationError, NotFound, Pending, StoreFull
from wsrm_mq.queue.policy import Resend
from wsrm_mq.source import RMSource, Sent
from wsrm_mq.testing import Reply
from wsrm_mq.versions import MAX_MESSAGE_NUMBER, WSA_2004, WSA_2005


def send(source: Source, *texts: str, **options: object) -> list[str]:
    """Send an order for each; their MessageIDs."""
    speak = source.partner.speak
    return [
        source.send(envelope(speak, one), to=THERE, action=ACTION, **options).message_id  # type: ignore[arg-type]
        for one in texts
    ]


@pytest.mark.spec("S-CRE-001", "S-CRE-002", "S-CRE-003", "S-SND-007")
def test_a_sequence_is_asked_for_before_anything_is_sent_in_it(source: Source, partner: Partner) -> None:
    send(source, "a", "b")
    assert source.flush(5)
    create, first, *_others = partner.received
    assert create.action == partner.speak.rm.action("CreateSequence")
    assert (create.to, create.body_name) == (THERE, "CreateSequence")
    assert create.message_id
    anonymous = partner.speak.addressing.anonymous
    assert partner.bodies[0].count(f">{anonymous}<".encode()) == 2, "AcksTo and ReplyTo"
    assert create.sequence is None
    assert first.sequence is not None
    assert len(partner.saying("CreateSequence")) == 1


@pytest.mark.spec("S-SND-001", "S-SND-002", "S-SND-003", "S-SND-006", "S-SND-010")
def test_messages_are_numbered_in_the_order_in_which_they_were_given(source: Source, partner: Partner) -> None:
    ids = send(source, *map(str, range(20)))
    assert source.flush(5)
    assert partner.places == [("urn:there:1", number) for number in range(1, 21)]
    assert partner.texts() == [str(number) for number in range(20)]
    assert [one.message_id for one in partner.received[1:]] == ids
    for body in partner.bodies[1:]:
        assert body.count(b"<wsrm:Sequence ") == 1
        assert b'<wsrm:Sequence xmlns:wsrm="' in body
        assert b'soap:mustUnderstand="1"' in body
        asked = body.partition(b"<wsrm:AckRequested")[2]
        assert b"<wsrm:Identifier>urn:there:1</wsrm:Identifier></wsrm:AckRequested>" in asked


@pytest.mark.spec("S-SND-011")
@pytest.mark.spec("NS-001", "NS-002", half="source")
def test_what_is_written_is_of_the_version_that_was_chosen(source: Source, partner: Partner) -> None:
    send(source, "a")
    assert source.end(THERE, 5)
    assert partner.within(lambda: partner.saying("TerminateSequence"))
    speak = partner.speak
    assert {one.rm for one in partner.received} == {speak.rm}
    assert {one.soap for one in partner.received} == {speak.soap}
    assert {one.addressing for one in partner.received} == {speak.addressing}
    for body in partner.bodies:
        assert b"MessageNumber" not in body.partition(b"AckRequested")[2].partition(b"/wsrm:AckRequested")[0]


@pytest.mark.spec("S-TRM-001", "S-TRM-004", "S-SND-008", "S-SND-009")
def test_the_end_is_told_when_all_is_acknowledged_and_the_next_message_begins_another_sequence(
    source: Source, partner: Partner
) -> None:
    send(source, "a", "b")
    assert source.end(THERE, 5)
    assert partner.within(lambda: partner.saying("TerminateSequence"))
    (end,) = partner.saying("TerminateSequence")
    assert text(end, "Identifier") == "urn:there:1"
    rm, last = partner.speak.rm, partner.received[-2].sequence
    assert last is not None
    if rm.has_last_message:
        assert (last.number, last.last, partner.received[-2].body) == (3, True, None)
        assert [one.action for one in partner.received[-2:-1]] == [rm.action("LastMessage")]
    else:
        assert (last.number, text(end, "LastMsgNumber")) == (2, "2")
    send(source, "c")
    assert source.flush(5)
    assert partner.places[-1] == ("urn:there:2", 1)
    assert [state for state, _given, _acknowledged in source.states()] == ["terminated", "created"]


@pytest.mark.peer("P-06")
def test_a_message_may_be_the_last_of_its_sequence(source: Source, partner: Partner) -> None:
    send(source, "a")
    send(source, "b", last=True)
    assert source.flush(5)
    assert partner.within(lambda: partner.saying("TerminateSequence"))
    last = [one.sequence.last for one in partner.received if one.sequence is not None]
    assert last == [False, partner.speak.rm.has_last_message]


@pytest.mark.peer("P-05")
def test_each_message_may_be_all_of_its_sequence(source: Source, partner: Partner) -> None:
    for count, one in enumerate("abc", 1):
        send(source, one, last=True)
        assert source.flush(5)
        assert partner.within(lambda count=count: len(partner.saying("TerminateSequence")) == count)
    assert [(one.action or "").rpartition("/")[2] for one in partner.received] == [
        *("CreateSequence", "put", "TerminateSequence")
    ] * 3
    assert partner.places == [(f"urn:there:{count}", 1) for count in (1, 2, 3)]
    lasts = [one.sequence.last for one in partner.received if one.sequence is not None]
    assert lasts == [partner.speak.rm.has_last_message] * 3


@pytest.mark.peer("P-61")
def test_a_line_that_breaks_at_the_first_sending_is_no_exception_and_a_refusal_without_resends_is_seen(
    open_source: Open, partner: Partner
) -> None:
    source = open_source(resend=Resend(()))
    partner.says = lambda received: LOST if received.sequence is not None else None
    send(source, "a")
    assert partner.within(lambda: len(partner.places) == 1)
    assert source.at_rest()
    assert (source.waiting, source.dead) == (1, [])
    partner.says = lambda _received: None
    source.try_now()
    assert source.in_time()
    assert partner.texts() == ["a"]
    partner.says = lambda received: None if received.sequence is None else partner.answered(400)
    with pytest.raises(NotFound, match=r"not sent any more .* Look at `dead`"):
        send(source, "b", acknowledged_within=5)
    assert [one.error for one in source.dead] == [f"{THERE}: answered 400"]


@pytest.mark.peer("P-50")
def test_where_an_endpoint_moves_what_waits_at_its_old_address_says_so_and_the_new_one_has_a_sequence_of_its_own(
    source: Source, partner: Partner
) -> None:
    moved = "http://partner.example/moved"
    send(source, "a")
    assert source.flush(5)
    partner.says = lambda received: partner.answered(404) if received.to == THERE else None
    (waiting,) = send(source, "b")
    assert partner.within(lambda: len(partner.places) == 2)
    assert source.at_rest()
    source.send(envelope(partner.speak, "c"), to=moved, action=ACTION, acknowledged_within=5)
    assert partner.places == [("urn:there:1", 1), ("urn:there:1", 2), ("urn:there:2", 1)]
    with pytest.raises(Pending, match=f"{THERE}: answered 404"):
        source.wait(Sent(waiting, source.rows("SELECT id FROM message WHERE message_id = ?", waiting)[0][0]), 0)
    partner.says = lambda _received: None
    assert source.in_time()


def test_a_sequence_that_is_created_ahead_has_the_first_request_and_is_created_once(
    source: Source, partner: Partner
) -> None:
    soap = partner.speak.soap.label
    source.create_sequence(THERE, soap=soap)
    assert partner.within(lambda: source.states() == [("created", 0, "")])
    assert partner.places == []
    source.create_sequence(THERE, soap=soap)
    send(source, "a")
    assert source.in_time()
    assert len(partner.saying("CreateSequence")) == 1
    assert partner.places == [("urn:there:1", 1)]


def test_a_sequence_that_is_created_ahead_and_refused_is_told(source: Source, partner: Partner) -> None:
    partner.says = lambda _received: partner.answered(401)
    source.create_sequence(THERE, soap=partner.speak.soap.label)
    assert partner.within(lambda: "401" in str(source.rows("SELECT last_error FROM entry")))


@pytest.mark.spec("S-CRE-009", "S-RET-008")
def test_a_create_sequence_that_got_lost_is_sent_again_as_it_was(source: Source, partner: Partner) -> None:
    lost = [LOST, partner.answered(503), LOST]
    partner.says = lambda _received: lost.pop(0) if lost else None
    send(source, "a")
    assert source.in_time()
    creates = [body for body in partner.bodies if b"CreateSequence" in body]
    assert (len(creates), len(set(creates))) == (4, 1)
    assert partner.places == [("urn:there:1", 1)]


@pytest.mark.spec("S-SND-005")
def test_behind_the_largest_number_a_new_sequence_begins(source: Source, partner: Partner) -> None:
    send(source, "a")
    assert source.flush(5)
    last = MAX_MESSAGE_NUMBER - 1
    given = last - 1
    source.run_sql(f"UPDATE outbound_sequence SET given = {given}, acknowledged = '1-{given}'")
    partner.numbers["urn:there:1"] = {last}
    send(source, "b", "c")
    assert source.flush(5)
    assert partner.places[1:] == [("urn:there:1", last), ("urn:there:2", 1)]


@pytest.mark.spec("S-SND-012")
def test_no_more_than_a_window_leaves_unacknowledged(
    source: Source, partner: Partner, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("wsrm_mq.queue.outbound.WINDOW", 4)
    partner.takes = lambda _received: False
    send(source, *"abcdefgh")
    assert partner.within(lambda: len(partner.places) == 4)
    partner.takes = lambda _received: True
    assert source.in_time()
    assert partner.places[:4] == [("urn:there:1", number) for number in (1, 2, 3, 4)]
    assert partner.texts() == [*"abcdefgh"]


def test_the_window_of_a_new_sequence_is_small_and_opens_with_what_is_acknowledged(
    source: Source, partner: Partner
) -> None:
    partner.takes = lambda _received: False
    send(source, *map(str, range(40)))
    assert partner.within(lambda: len(partner.places) == 8)
    assert source.at_rest()
    assert len(partner.places) == 8
    partner.takes = lambda received: received.sequence is not None and received.sequence.number <= 12
    source.pass_time(3)
    assert partner.within(lambda: source.states()[0][2] == "1-12")
    assert source.at_rest()
    assert max(number for _one, number in partner.places) == 12 + 12


@pytest.mark.spec("S-SND-012")
@pytest.mark.peer("P-67")
@pytest.mark.parametrize("room", [0, 2])
def test_no_more_leaves_than_the_destination_says_it_has_room_for(source: Source, partner: Partner, room: int) -> None:
    """Where it has none one message asks for it, as WCF leaves it unacknowledged."""
    said = [room]

    def says(received: Reply) -> bytes | None:
        if received.sequence is None:
            return None
        if partner.takes(received):
            partner.numbers[received.sequence.identifier].add(received.sequence.number)
        ack = partner.ack(received.sequence.identifier)._replace(buffer_remaining=said[0])
        return sequence_acknowledgement(partner.speak.soap, partner.speak.addressing, partner.speak.rm, [ack])

    partner.says = says
    send(source, "a")
    assert source.flush(5)
    partner.takes = lambda _received: False
    send(source, *"bcdefg")
    allowed = max(room, 1)
    assert partner.within(lambda: len(partner.places) == 1 + allowed)
    assert source.at_rest()
    assert len(partner.places) == 1 + allowed
    partner.takes, said[0] = lambda _received: True, 3
    assert source.in_time()
    assert partner.texts() == [*"abcdefg"]


@pytest.mark.peer("P-66")
def test_with_a_window_of_one_each_waits_for_the_one_before(
    source: Source, partner: Partner, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("wsrm_mq.queue.outbound.WINDOW", 1)
    partner.takes = lambda _received: False
    send(source, "a", "b", "c")
    assert partner.within(lambda: partner.places == [("urn:there:1", 1)])
    partner.takes = lambda _received: True
    assert source.in_time()
    assert [number for _one, number in partner.places] == [1, 1, 2, 3]


def test_an_envelope_keeps_what_it_has_and_gets_what_it_lacks(source: Source, partner: Partner) -> None:
    speak = partner.speak
    own = speak.envelope(ACTION, "<put/>", message_id="urn:mine", to="urn:logical", reply_to=speak.none)
    assert source.send(own, to=THERE).message_id == "urn:mine"
    assert source.flush(5)
    assert (partner.received[1].to, partner.received[1].message_id) == ("urn:logical", "urn:mine")
    stored = envelope(speak)
    assert source.send(stored, to=THERE, action=ACTION).message_id.startswith("urn:uuid:")
    assert source.flush(5)
    received = partner.received[2]
    assert (received.to, received.action) == (THERE, ACTION)
    assert b"ReplyTo" not in partner.bodies[2]


def test_what_cannot_be_sent_is_refused_in_words(source: Source, partner: Partner) -> None:
    speak = partner.speak
    other = speak.having(addressing=next(one for one in (WSA_2004, WSA_2005) if one is not speak.addressing))
    for wrong, to, words in (
        (b"no xml", THERE, "no SOAP envelope"),
        (envelope(speak), "mailto:a@example", "no address"),
        (envelope(speak), THERE, "no wsa:Action"),
        (speak.message("urn:a", 1), THERE, "WS-ReliableMessaging headers already"),
        (other.envelope(ACTION), THERE, "is to be spoken with"),
    ):
        with pytest.raises(BadRequest, match=words):
            source.send(wrong, to=to)
    with pytest.raises(BadRequest, match="give one of them alone"):
        source.send(speak.envelope("urn:one"), to=THERE, action="urn:other")
    assert (source.waiting, partner.bodies) == (0, [])


def test_versions_that_do_not_go_together_are_refused(open_source: Open) -> None:
    with pytest.raises(ConfigurationError, match=r"write 1\.0, 1\.1 or 1\.2"):
        open_source(rm="2.0")
    with pytest.raises(ConfigurationError, match=r"write 1\.0"):
        open_source(rm="1.2", addressing="2004/08")


def test_waiting_for_an_acknowledgement_ends_in_time_and_the_request_is_sent_all_the_same(
    source: Source, partner: Partner
) -> None:
    partner.says = lambda _received: LOST
    with pytest.raises(Pending) as pending:
        send(source, "a", acknowledged_within=0.05)
    assert source.at_rest()
    sent = Sent(pending.value.message_id, source.rows("SELECT max(id) FROM message WHERE action = ?", ACTION)[0][0])
    with pytest.raises(Pending, match=r"The last attempt: http://partner\.example/orders: the line broke"):
        source.wait(sent, 0)
    assert source.at_rest()
    assert (source.waiting, source.flush(0)) == (1, False)
    partner.says = lambda _received: None
    source.try_now()
    source.pass_time(60)
    assert source.flush(5)
    assert partner.received[-1].message_id == pending.value.message_id


def test_on_a_full_disk_a_request_is_refused_and_what_is_stored_is_sent(mount: Mount, partner: Partner) -> None:
    disk, speak = Disk(mount("-t", "tmpfs", "-o", "size=16m", "tmpfs")), partner.speak
    partner.says = lambda _received: LOST
    versions = {"rm": speak.rm.label, "addressing": speak.addressing.label}
    with RMSource(disk.point / "outbox.db", post=partner.post, **versions) as source:
        source.send(envelope(speak, "a"), to=THERE, action=ACTION)
        disk.fill()
        with pytest.raises(StoreFull):
            source.send(envelope(speak, "b" * 14 * MIB), to=THERE, action=ACTION)
        waiting = source.waiting
        disk.make_room()
        partner.says = lambda _received: None

        def is_tried() -> bool:  # whether there is room again is looked at once a second
            with suppress(StoreFull):
                source.try_now()
                return True
            return False

        assert partner.within(is_tried)
        assert source.flush(20)
        assert len(partner.texts()) == waiting
