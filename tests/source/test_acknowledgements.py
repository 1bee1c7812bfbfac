"""What a partner says of requests: what counts is what it may say, wherever it stands."""

from __future__ import annotations

import sqlite3
from contextlib import closing

import pytest

from tests.source.conftest import Open, Source
from tests.source.partner import ACTION, LOST, THERE, Partner
from tests.source.test_sending import send
from wsrm_mq.delivery import recording
from wsrm_mq.queue.policy import Resend
from wsrm_mq.testing import Reply
from wsrm_mq.versions import MAX_MESSAGE_NUMBER

ONE = "urn:there:1"


def silent(partner: Partner) -> None:
    """From now on messages are answered by an empty 202."""
    partner.says = lambda received: None if received.sequence is None else partner.answered(202)


def saying(partner: Partner, *said: object) -> None:
    """The next messages are answered so, those behind them by an empty 202."""
    answers = list(said)

    def says(received: Reply) -> object:
        if received.sequence is None:
            return None
        return answers.pop(0) if answers else partner.answered(202)

    partner.says = says  # type: ignore[assignment]


def acknowledged(source: Source) -> str:
    return source.states()[0][2]


def sent_in_vain(source: Source, partner: Partner, count: int = 5) -> None:
    """So many messages are sent, and not acknowledged."""
    silent(partner)
    send(source, *map(str, range(count)))
    assert partner.within(lambda: len(partner.places) == count)
    assert source.at_rest()


@pytest.mark.spec("S-RET-001", "S-RET-002", "S-RET-003", "S-RET-007")
def test_what_is_not_acknowledged_is_sent_again_with_the_same_bytes(source: Source, partner: Partner) -> None:
    sent_in_vain(source, partner, 2)
    source.pass_time(2)
    saying(partner, partner.saying_ack(ONE, (1, 1)), partner.saying_ack(ONE, (1, 2)))
    source.pass_time(1)
    assert source.flush(5)
    assert [number for _one, number in partner.places] == [1, 2, 1, 2]
    assert partner.bodies[1:3] == partner.bodies[3:5]
    source.pass_time(3600)
    assert len(partner.places) == 4


@pytest.mark.spec("S-RET-004")
def test_each_wait_is_longer_than_the_one_before(source: Source, partner: Partner) -> None:
    sent_in_vain(source, partner, 1)
    for seconds in (3, 10, 30, 120):
        count = len(partner.places)
        source.pass_time(seconds - 1)
        assert not partner.within(lambda count=count: len(partner.places) > count, 0.02)
        source.pass_time(1)
        assert partner.within(lambda count=count: len(partner.places) == count + 1)
        assert source.at_rest()


@pytest.mark.spec("S-RET-004")
def test_messages_that_were_sent_together_do_not_come_back_together(open_source: Open, partner: Partner) -> None:
    source = open_source(resend=Resend((3_000, 60_000), spread=0.5))
    now = source.clock()
    sent_in_vain(source, partner)
    due = sorted(at - now for (at,) in source.rows("SELECT retry_at FROM entry WHERE retry_at IS NOT NULL"))
    assert 3_000 <= due[0] < due[-1] <= 4_500
    source.pass_time(due[0] / 1000)
    assert partner.within(lambda: len(partner.places) > 5)
    assert source.at_rest()
    assert len(partner.places) < 10
    source.pass_time((due[-1] - due[0]) / 1000)
    assert partner.within(lambda: len(partner.places) == 10)


def test_what_those_behind_it_have_overtaken_is_sent_again_at_once(source: Source, partner: Partner) -> None:
    """Three times at most; then it waits as ``resend`` says."""
    send(source, *map(str, range(1, 21)))
    assert source.flush(5)
    partner.takes = lambda received: received.sequence is None or received.sequence.number != 21
    for number in range(21, 36):
        send(source, str(number))
        assert partner.within(lambda number=number: number == 21 or acknowledged(source).endswith(f"{number}"))
        assert source.at_rest()
    assert partner.places.count((ONE, 21)) == 4
    partner.takes = lambda _received: True
    assert source.in_time(20)
    assert partner.texts() == [*map(str, range(1, 36))]
    assert len(partner.places) == 34 + 5


def test_what_two_behind_it_have_overtaken_may_be_on_its_way(source: Source, partner: Partner) -> None:
    partner.takes = lambda received: received.sequence is None or received.sequence.number != 2
    send(source, *"abcd")
    assert partner.within(lambda: acknowledged(source) == "1,3-4")
    assert source.at_rest()
    assert partner.places.count((ONE, 2)) == 1


@pytest.mark.spec("S-ACK-001", "S-ACK-006", "S-ACK-007", "S-ACK-008")
def test_ranges_release_what_they_name_in_any_order(source: Source, partner: Partner) -> None:
    sent_in_vain(source, partner)
    saying(partner, partner.saying_ack(ONE, (4, 5), (1, 1), (2, 2)), partner.saying_ack(ONE, (1, 1)))
    source.pass_time(3)
    assert partner.within(lambda: acknowledged(source) == "1-2,4-5")
    assert source.waiting == 1
    saying(partner, partner.saying_ack(ONE, (1, 3), (2, 5)))
    assert source.in_time(step=5)


@pytest.mark.spec("S-ACK-002", "S-ACK-003", "S-ACK-015")
@pytest.mark.parametrize(
    "ranges", [((1, 6),), ((2, 1),), ((1, MAX_MESSAGE_NUMBER),)], ids=["beyond", "upside-down", "everything"]
)
def test_what_cannot_be_true_releases_nothing(
    source: Source, partner: Partner, ranges: tuple[tuple[int, int], ...]
) -> None:
    refused(source, partner, partner.saying_ack(ONE, *ranges))


def refused(source: Source, partner: Partner, said: object) -> None:
    sent_in_vain(source, partner)
    count = len(partner.places)
    saying(partner, said)
    source.pass_time(3)
    assert partner.within(lambda: len(partner.places) == count + 5)
    assert (acknowledged(source), source.waiting) == ("", 5)
    partner.says = lambda _received: None
    assert source.in_time()


@pytest.mark.spec("S-ACK-004", "S-ACK-009")
@pytest.mark.parametrize("said", ["Lower 0", "None and a range", "Nack and Final", "nothing"])
def test_what_does_not_go_together_releases_nothing(source: Source, partner: Partner, said: str) -> None:
    speak = partner.speak
    children = {
        "Lower 0": '<wsrm:AcknowledgementRange Lower="0" Upper="2"/>',
        "None and a range": "<wsrm:Nack>1</wsrm:Nack><wsrm:None/>",
        "Nack and Final": "<wsrm:Nack>1</wsrm:Nack><wsrm:Final/>",
        "nothing": "",
    }[said]
    block = f"<wsrm:SequenceAcknowledgement><wsrm:Identifier>{ONE}</wsrm:Identifier>{children}"
    headers = f"{block}</wsrm:SequenceAcknowledgement>"
    refused(source, partner, speak.envelope(speak.rm.action("SequenceAcknowledgement"), "", headers=headers))


@pytest.mark.spec("S-ACK-005", "S-ACK-017")
def test_nothing_and_what_is_unknown_are_no_errors(source: Source, partner: Partner) -> None:
    speak = partner.speak
    room = '<n:BufferRemaining xmlns:n="http://schemas.microsoft.com/ws/2006/05/rm">8</n:BufferRemaining>'
    nothing = "<wsrm:None/>" if speak.rm.has_none else '<wsrm:AcknowledgementRange Lower="0" Upper="0"/>'
    some = f'<wsrm:AcknowledgementRange Lower="1" Upper="2"/>{room}'
    said = [
        f"<wsrm:SequenceAcknowledgement><wsrm:Identifier>{ONE}</wsrm:Identifier>{one}</wsrm:SequenceAcknowledgement>"
        for one in (nothing, some)
    ]
    action = speak.rm.action("SequenceAcknowledgement")
    sent_in_vain(source, partner, 2)
    saying(partner, *[speak.envelope(action, "", headers=one) for one in said])
    source.pass_time(3)
    assert source.flush(5)


@pytest.mark.spec("S-RET-005", "S-RET-006")
def test_a_nack_has_the_number_sent_at_once(source: Source, partner: Partner) -> None:
    sent_in_vain(source, partner)
    saying(partner, partner.saying_ack(ONE, (1, 1), (3, 5)), partner.saying_ack(ONE, nacks=(2, 3)))
    count = len(partner.places)
    source.pass_time(3)
    assert partner.within(lambda: len(partner.places) >= count + 2)
    saying(partner, partner.saying_ack(ONE, (1, 5)))
    assert source.in_time()
    assert {number for _one, number in partner.places[count + 1 :]} == {2}


@pytest.mark.spec("S-ACK-010", "S-ACK-013", "S-ACK-016")
def test_acknowledgements_count_wherever_they_ride(source: Source, partner: Partner) -> None:
    """On a fault, on an application's reply, with another beside them that names what is not known here."""
    speak = partner.speak
    sent_in_vain(source, partner, 3)
    blocks = [speak.acknowledgement_header(ONE, (1, last)) for last in (1, 2, 3)]
    stranger = speak.acknowledgement_header("urn:unknown", (1, 9))
    failed = speak.envelope(
        speak.addressing.soap_fault_action,
        f"<soap:Fault>{'<faultcode>soap:Server</faultcode><faultstring>no</faultstring>'}</soap:Fault>"
        if speak.soap.label == "1.1"
        else "<soap:Fault><soap:Code><soap:Value>soap:Receiver</soap:Value></soap:Code><soap:Reason>"
        '<soap:Text xml:lang="en">no</soap:Text></soap:Reason></soap:Fault>',
        headers=blocks[0],
    )
    reply = speak.envelope(f"{ACTION}Response", "<done/>", headers=stranger + blocks[1])
    saying(partner, partner.answered(500, failed), reply, speak.acknowledgement(ONE, (1, 3)))
    source.pass_time(3)
    assert source.flush(5)
    assert acknowledged(source) == "1-3"


@pytest.mark.spec("S-RET-008")
@pytest.mark.parametrize("status", [400, 404, 500, 502, 503, 504, "lost", "garbage"])
def test_what_is_no_answer_is_followed_by_a_resend(source: Source, partner: Partner, status: object) -> None:
    send(source, "a")
    assert source.flush(5)
    wrong = {"lost": LOST, "garbage": partner.answered(200, b"<<<")}
    saying(partner, wrong.get(str(status)) or partner.answered(int(str(status))), partner.saying_ack(ONE, (1, 2)))
    send(source, "b")
    assert partner.within(lambda: len(partner.places) == 2)
    assert source.at_rest()
    source.try_now()
    source.pass_time(3)
    assert source.flush(5)
    assert partner.bodies[2] == partner.bodies[3]
    assert source.dead == []
    if status in (502, 503, 504, "lost"):
        assert source.rows("SELECT max(failures) FROM entry") == [(0,)], "to be away is no failure"


@pytest.mark.spec("S-RET-009")
def test_what_is_sent_as_often_as_may_be_is_told_and_those_behind_it_go_on(source: Source, partner: Partner) -> None:
    """Its sequence has a gap for ever, so what is behind it goes on in another one."""
    partner.takes = lambda received: b">b<" not in partner.bodies[-1]
    send(source, "a", "b", "c")
    assert partner.within(lambda: acknowledged(source) == "1,3")
    for _ in range(12):
        assert source.at_rest()
        count = len(partner.places)
        source.pass_time(8 * 3600)
        assert partner.within(lambda count=count: len(partner.places) > count or source.dead)
    assert partner.within(lambda: len(source.dead) == 1)
    (dead,) = source.dead
    assert (dead.to, dead.reason) == (THERE, "not_acknowledged")
    source.nudge()
    assert partner.within(lambda: source.states()[0][0] in ("closed", "terminated", "expired"))
    send(source, "d")
    assert source.flush(5)
    assert partner.texts()[-1] == "d"
    assert partner.places[-1][0] == "urn:there:2"


@pytest.mark.peer("P-62")
def test_two_waits_are_three_sendings_and_no_more(open_source: Open, partner: Partner) -> None:
    source = open_source(resend=Resend((1_000, 2_000)))
    sent_in_vain(source, partner, 1)
    for seconds in (1, 2, 4):
        assert source.at_rest()
        source.pass_time(seconds)
        partner.within(lambda seconds=seconds: len(partner.places) > seconds, 0.3)
    assert partner.within(lambda: source.dead)
    assert partner.places == [(ONE, 1)] * 3
    assert [one.reason for one in source.dead] == ["not_acknowledged"]


def test_the_outcomes_of_a_run_are_committed_together_with_what_their_answers_acknowledge(
    open_source: Open, partner: Partner, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recording, "_AHEAD_SECONDS", 60.0)  # however slow the machine is
    partner.says = lambda _received: LOST  # type: ignore[assignment]
    source = open_source()
    send(source, *map(str, range(60)))
    source.close()
    partner.says = lambda _received: None  # type: ignore[assignment]
    source = open_source()
    assert source.in_time()
    assert acknowledged(source) == "1-60"
    assert [number for _one, number in partner.places] == [*range(1, 61)]
    assert source._engine.store.writer.commits < 60 or not partner.speak.rm.has_close


def test_an_acknowledgement_counts_although_another_process_has_the_sequence_by_now(
    source: Source, partner: Partner
) -> None:
    def says(received: Reply) -> None:
        if received.sequence is not None:
            with closing(sqlite3.connect(source.path, timeout=30)) as db, db:
                db.execute("UPDATE lane SET fence = fence + 1")

    partner.says = says
    send(source, "a")
    assert source.flush(5)
    assert acknowledged(source) == "1"
    assert [number for _one, number in partner.places] == [1]
