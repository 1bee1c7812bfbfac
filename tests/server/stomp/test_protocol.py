"""STOMP without a wire: bytes in, events out, and frames into bytes."""

from __future__ import annotations

from itertools import product

import pytest

from wsrm_mq.server.stomp.protocol import (
    VERSIONS,
    Conversation,
    Event,
    Frame,
    HeartBeats,
    Limits,
    ProtocolError,
    Version,
    encode,
)

LIMITS = Limits(headers=5, line=60, body=100, subscriptions=2, transactions=2, frames=3, bytes=200)
both_versions = pytest.mark.parametrize("version", VERSIONS)


def connected(version: Version, limits: Limits = LIMITS) -> Conversation:
    conversation = Conversation(limits)
    conversation.receive(f"CONNECT\naccept-version:{version}\n\n\0".encode())
    assert conversation.next_event() is not None
    return conversation


def events(conversation: Conversation, data: bytes) -> list[Event]:
    conversation.receive(data)
    found = []
    while (event := conversation.next_event()) is not None:
        found.append(event)
    return found


def refusal(conversation: Conversation, data: bytes) -> Frame:
    with pytest.raises(ProtocolError) as refused:
        events(conversation, data)
    assert conversation.is_ended
    assert events(conversation, b"SEND\ndestination:/queue/a\n\n\0") == []
    return refused.value.frame


@both_versions
def test_a_frame_is_the_same_however_its_bytes_are_cut(version: Version) -> None:
    data = b"\n\nSEND\ndestination:/queue/a\nx:\\c\\\\\\n\n\ncontent\0"
    data += b"\nSEND\ndestination:b\ncontent-length:3\n\n\0\n\0\0\n"
    wanted = [
        Frame("SEND", {"destination": "/queue/a", "x": ":\\\n"}, b"content"),
        Frame("SEND", {"destination": "b", "content-length": "3"}, b"\0\n\0"),
    ]
    for size in (1, 2, 3, 7, len(data)):
        conversation = connected(version)
        found = [
            event.frame for at in range(0, len(data), size) for event in events(conversation, data[at : at + size])
        ]
        assert found == wanted
        assert not conversation.is_within_frame


def test_what_is_written_is_read_as_it_was() -> None:
    hard = ["a:b", "a\nb", "a\\nb", " padded ", "\\", "", "Größe 🐘", "a\\c:"]
    for version, name, value in product(VERSIONS, ["name", "na:me", " n\\n\n "], hard):
        frame = Frame("SEND", {"destination": "/queue/a", name: value}, b"x")
        [event] = events(connected(version, Limits()), encode(frame, version))
        assert event.frame.headers[name] == value


def test_a_carriage_return_is_escaped_in_1_2_and_as_it_is_in_1_1() -> None:
    frame = Frame("MESSAGE", {"x": "a\rb"})
    assert encode(frame, "1.2") == b"MESSAGE\nx:a\\rb\n\n\0"
    assert encode(frame, "1.1") == b"MESSAGE\nx:a\rb\n\n\0"
    [event] = events(connected("1.2"), b"SEND\r\ndestination:a\r\nx:1\\r\r\n\r\nbody\r\n\0\r\n")
    assert event.frame == Frame("SEND", {"destination": "a", "x": "1\r"}, b"body\r\n")
    [event] = events(connected("1.1"), b"SEND\ndestination:a\nx:1\r\n\nbody\0\r\n")
    assert event.frame.headers["x"] == "1\r"
    refusal(connected("1.1"), b"SEND\ndestination:a\nx:1\\r\n\n\0")


def test_a_header_that_no_escape_can_say_is_left_out() -> None:
    assert encode(Frame("MESSAGE", {"bad": "a\0b", "good": "1"}), "1.2") == b"MESSAGE\ngood:1\n\n\0"
    assert b"?" in encode(Frame("MESSAGE", {"surrogate": "\ud800"}), "1.2")


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"HELLO\n\n\0", "no command of a client"),
        (b"MESSAGE\n\n\0", "no command of a client"),
        (b"SEND\ndestination\n\n\0", "no colon"),
        (b"SEND\n:x\n\n\0", "no name"),
        (b"SEND\ndestination:a\nx:\\t\n\n\0", "is no escape sequence"),
        (b"SEND\ndestination:a\nx:\\", None),
        (b"SEND\ndestination:a\nx:\\\n\n\0", "is no escape sequence"),
        (b"SEND\ndestination:a\nx:\xff\n\n\0", "not in UTF-8"),
        (b"SEND\ndestination:a\0\n\n\0", "A NUL stands"),
        (b"SEND\ndestination:a\ncontent-length:-1\n\n\0", "`content-length` is '-1'"),
        (b"SEND\ndestination:a\ncontent-length:1\n\nab\0", "No NUL ends the frame"),
        (b"SEND\ndestination:a\ncontent-length:101\n\n", "more than 100 bytes"),
        (b"SEND\ndestination:a\n\n" + b"x" * 101, "more than 100 bytes"),
        (b"SEND\n" + b"x" * 61, "more than 60 bytes"),
        (b"SEND\n" + b"a:b\n" * 6, "more than 5 headers"),
        (b"SEND\n\n\0", "no header `destination`"),
        (b"SUBSCRIBE\ndestination:a\n\n\0", "no header `id`"),
        (b"SUBSCRIBE\ndestination:a\nid:1\nack:maybe\n\n\0", "`ack` is 'maybe'"),
        (b"UNSUBSCRIBE\nid:9\n\n\0", "no subscription '9'"),
        (b"BEGIN\n\n\0", "no header `transaction`"),
        (b"COMMIT\ntransaction:t\n\n\0", "no transaction 't'"),
        (b"SEND\ndestination:a\ntransaction:t\n\n\0", "no transaction 't'"),
        (b"BEGIN\ntransaction:t\n\nbody\0", "has a body"),
        (b"CONNECT\naccept-version:1.2\n\n\0", "connected already"),
    ],
)
@both_versions
def test_what_breaks_the_protocol_or_a_limit_ends_it(version: Version, data: bytes, said: str | None) -> None:
    if said is None:
        assert events(connected(version), data) == []
        return
    frame = refusal(connected(version), data)
    assert frame.command == "ERROR"
    assert said in frame.headers["message"]
    assert said in frame.body.decode()


@both_versions
def test_an_error_names_the_receipt_that_its_frame_has_asked_for(version: Version) -> None:
    assert refusal(connected(version), b"SEND\nreceipt:r\n\n\0").headers["receipt-id"] == "r"
    assert refusal(connected(version), b"SEND\nreceipt:r\nbad\n\n\0").headers["receipt-id"] == "r"
    assert "receipt-id" not in refusal(connected(version), b"SEND\n\n\0").headers


@pytest.mark.parametrize(
    ("accepts", "version"),
    [("1.2", "1.2"), ("1.0,1.1,2.0", "1.1"), ("1.1,1.2", "1.2"), ("1.2,1.1", "1.2"), ("1.0", None), (None, None)],
)
def test_the_highest_version_of_both_is_spoken(accepts: str | None, version: str | None) -> None:
    conversation = Conversation(LIMITS)
    said = "" if accepts is None else f"accept-version:{accepts}\n"
    data = f"STOMP\r\n{said}\n\0".encode()
    if version is None:
        frame = refusal(conversation, data)
        assert frame.headers["version"] == "1.1,1.2"
        return
    events(conversation, data)
    assert conversation.version == version
    assert conversation.connected("s", "x/1").headers["version"] == version


def test_a_connection_begins_with_connect() -> None:
    frame = refusal(Conversation(), b"SEND\ndestination:a\n\n\0")
    assert "The first frame is CONNECT" in frame.headers["message"]
    refusal(Conversation(), b"CONNECT\naccept-version:1.2\n\nbody\0")


@pytest.mark.parametrize(
    ("said", "agreed"),
    [
        (None, (0, 0)),
        ("0,0", (0, 0)),
        ("0,5000", (10_000, 0)),
        ("5000,0", (0, 20_000)),
        ("60000,60000", (60_000, 60_000)),
        ("999999999999999,1", (10_000, 86_400_000)),
    ],
)
def test_heart_beats_are_as_rare_as_the_rarer_of_both(said: str | None, agreed: tuple[int, int]) -> None:
    conversation = Conversation(LIMITS, HeartBeats(10_000, 20_000))
    header = "" if said is None else f"heart-beat:{said}\n"
    events(conversation, f"CONNECT\naccept-version:1.2\n{header}\n\0".encode())
    assert conversation.beats == agreed


@pytest.mark.parametrize("said", ["", "1", "1,", "-1,0", "1, 2", "a,b", "1,2,3", "9" * 16 + ",0"])
def test_heart_beats_that_are_no_two_numbers_are_refused(said: str) -> None:
    refusal(Conversation(LIMITS), f"CONNECT\naccept-version:1.2\nheart-beat:{said}\n\n\0".encode())


@both_versions
def test_the_first_of_a_repeated_header_counts(version: Version) -> None:
    [event] = events(connected(version), b"SEND\ndestination:a\nfoo:World\nfoo:Hello\n\n\0")
    assert event.frame.headers["foo"] == "World"


@both_versions
def test_acknowledgements_have_the_headers_of_their_version(version: Version) -> None:
    old, new = b"ACK\nmessage-id:1\nsubscription:s\n\n\0", b"NACK\nid:1\n\n\0"
    good, bad = (old, new) if version == "1.1" else (new, old)
    assert len(events(connected(version), good)) == 1
    refusal(connected(version), bad)


@both_versions
def test_a_transaction_buffers_its_frames_until_it_is_committed(version: Version) -> None:
    conversation = connected(version)
    send = b"SEND\ndestination:%b\ntransaction:t\n\n\0"
    found = events(conversation, b"BEGIN\ntransaction:t\n\n\0" + send % b"a" + send % b"b")
    assert [(one.frame.command, one.is_buffered) for one in found] == [("BEGIN", False), ("SEND", True), ("SEND", True)]
    [commit] = events(conversation, b"COMMIT\ntransaction:t\n\n\0")
    assert [one.headers["destination"] for one in commit.frames] == ["a", "b"]
    refusal(conversation, b"COMMIT\ntransaction:t\n\n\0")


@both_versions
def test_an_aborted_transaction_leaves_its_room_to_the_next(version: Version) -> None:
    conversation = connected(version)
    for _ in range(5):
        begun = b"BEGIN\ntransaction:t\n\n\0" + b"SEND\ndestination:a\ntransaction:t\n\n\0" * 3
        [*_, aborted] = events(conversation, begun + b"ABORT\ntransaction:t\n\n\0")
        assert aborted.frames == ()


@both_versions
@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"BEGIN\ntransaction:t\n\n\0" * 2, "is open already"),
        (b"".join(b"BEGIN\ntransaction:%d\n\n\0" % n for n in range(3)), "2 open transactions"),
        (b"BEGIN\ntransaction:t\n\n\0" + b"SEND\ndestination:a\ntransaction:t\n\n\0" * 4, "3 frames of 200 bytes"),
        (
            b"BEGIN\ntransaction:t\n\n\0" + b"SEND\ndestination:a\ntransaction:t\n\n" + b"x" * 90 + b"\0"
            b"SEND\ndestination:a\ntransaction:t\n\n" + b"x" * 90 + b"\0",
            "3 frames of 200 bytes",
        ),
        (b"".join(b"SUBSCRIBE\ndestination:a\nid:%d\n\n\0" % n for n in range(3)), "2 subscriptions"),
        (b"SUBSCRIBE\ndestination:a\nid:1\n\n\0" * 2, "is there already"),
    ],
)
def test_what_a_client_may_have_open_is_bounded(version: Version, data: bytes, said: str) -> None:
    assert said in refusal(connected(version), data).headers["message"]


@both_versions
def test_nothing_is_read_behind_disconnect(version: Version) -> None:
    conversation = connected(version)
    found = events(conversation, b"DISCONNECT\nreceipt:r\n\n\0SEND\ndestination:a\n\n\0")
    assert [one.frame.command for one in found] == ["DISCONNECT"]
    assert conversation.is_ended


def test_many_bytes_that_come_one_by_one_are_each_looked_at_once() -> None:
    conversation = connected("1.2", Limits())
    conversation.receive(b"SEND\ndestination:a\n\n")
    for _ in range(200_000):  # minutes, if each were looked at again
        conversation.receive(b"x")
        conversation.next_event()
    [event] = events(conversation, b"\0")
    assert len(event.frame.body) == 200_000
