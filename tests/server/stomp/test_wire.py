"""The demands of the specifications of STOMP on a server, by bytes."""

from __future__ import annotations

import time
import zlib
from collections.abc import Callable

import pytest
from websockets.exceptions import ConnectionClosedError
from websockets.sync.client import connect
from websockets.typing import Subprotocol

from tests.server.stomp.conftest import SECRET, Connect, Peer, Running, Start, ack_of, acknowledge
from wsrm_mq.server.stomp.client import Patience, Terms
from wsrm_mq.server.stomp.protocol import HeartBeats, Limits, Version

Make = Callable[[], Peer]


@pytest.mark.stomp("STOMP-012", "STOMP-013", "STOMP-014", "STOMP-015", "STOMP-017")
def test_a_connection_has_the_highest_version_of_both(stomp: Running) -> None:
    for command, accepts, version in [("CONNECT", "1.0,1.1,2.0", "1.1"), ("STOMP", "1.1,1.2", "1.2")]:
        for host in ("host:anything\n", ""):
            with Peer(stomp.port, "1.2") as peer:
                peer.send(f"{command}\naccept-version:{accepts}\n{host}passcode:{SECRET}\n\n\0".encode())
                connected = peer.frame("CONNECTED")
                assert connected.headers["version"] == version
                assert connected.headers["server"].startswith("wsrm-mq/")


@pytest.mark.stomp("STOMP-016", "STOMP-018", "STOMP-044")
@pytest.mark.parametrize("said", ["", "accept-version:1.0\n", "accept-version:2.0\n"])
def test_a_client_without_a_version_in_common_is_told_those_that_there_are(stomp: Running, said: str) -> None:
    with Peer(stomp.port, "1.2") as peer:
        peer.send(f"CONNECT\n{said}passcode:{SECRET}\n\n\0".encode())
        assert peer.error().headers["version"] == "1.1,1.2"


@pytest.mark.stomp("STOMP-019", "STOMP-020", "STOMP-021", "STOMP-022")
def test_heart_beats_are_sent_as_often_as_was_agreed_on(stomp_with: Start, version: Version) -> None:
    stomp = stomp_with(terms=Terms(beats=HeartBeats(200, 200)))
    with Peer(stomp.port, version) as peer:
        time.sleep(0.1)  # the server has begun to serve it
        assert peer.connect(heart_beat="0,200").headers["heart-beat"] == "200,200"
        began = time.monotonic()
        assert peer.is_silent(1.1)
        assert peer.beats >= (time.monotonic() - began) / 0.2 - 1
    with Peer(stomp.port, version) as peer:
        peer.connect()
        assert peer.is_silent(0.5)
        assert peer.beats == 0
    with Peer(stomp.port, version) as peer:
        peer.say("CONNECT", accept_version=version, passcode=SECRET, heart_beat="often")
        assert "`heart-beat` is 'often'" in peer.error().headers["message"]


def test_a_client_that_has_promised_heart_beats_and_sends_none_is_cut_off(stomp_with: Start, version: Version) -> None:
    stomp = stomp_with(terms=Terms(beats=HeartBeats(0, 100)))
    with Peer(stomp.port, version) as silent, Peer(stomp.port, version) as beating:
        beating.connect(heart_beat="100,0")
        silent.connect(heart_beat="100,0")
        for _ in range(6):
            beating.send(b"\n")
            time.sleep(0.05)
        assert "It took too long" in silent.error().headers["message"]
        beating.asked("SEND", b"here", destination="/queue/a")


@pytest.mark.stomp("STOMP-024", "STOMP-040", "STOMP-041", "STOMP-042", "STOMP-043")
def test_what_is_sent_comes_with_its_headers(connected: Connect) -> None:
    peer = connected()
    peer.asked("SEND", b"{}", destination="/queue/orders", content_type="application/json", region="eu", type="Order")
    peer.say("SUBSCRIBE", id="one", destination="/queue/orders", ack="client")
    peer.say("SUBSCRIBE", id="two", destination="/queue/other")
    first = peer.frame("MESSAGE")
    assert first.body == b"{}"
    wanted = {"subscription": "one", "destination": "/queue/orders", "content-type": "application/json"}
    assert {**first.headers, **wanted, "region": "eu", "type": "Order"} == first.headers
    assert ("ack" in first.headers) is (peer.version == "1.2")
    acknowledge(peer, first)
    peer.asked("SEND", b"more", destination="/queue/orders")
    second = peer.frame("MESSAGE")
    assert second.headers["message-id"] != first.headers["message-id"]
    peer.say("SEND", b"other", destination="/queue/other")
    third = peer.frame("MESSAGE")
    assert third.headers["subscription"] == "two"
    assert "ack" not in third.headers


@pytest.mark.stomp("STOMP-002", "STOMP-003", "STOMP-005", "STOMP-006", "STOMP-011")
@pytest.mark.parametrize("value", ["a:b", "a\nb", "\\n", " padded ", "", "Größe 🐘", "end\r", "\r\n\r\n\n:\\"])
def test_special_characters_come_as_they_were_sent(connected: Connect, value: str) -> None:
    peer = connected()
    name = f" na:me\\{value}"
    body = f"{name}\n\n{value}".encode()
    peer.say("SUBSCRIBE", id="1", destination="/queue/a")
    peer.say("SEND", body, destination="/queue/a", **{name: value})
    message = peer.frame("MESSAGE")
    assert message.body == body
    assert message.headers[name.replace("_", "-")] == value


@pytest.mark.stomp("STOMP-004", "STOMP-044", "STOMP-052")
@pytest.mark.parametrize("escape", [b"\\t", b"\\", b"\\:"])
def test_an_escape_sequence_that_is_none_ends_the_connection(connected: Connect, escape: bytes) -> None:
    peer = connected()
    peer.send(b"SEND\ndestination:/queue/a\nreceipt:5\nx:" + escape + b"\n\n\0")
    error = peer.error()
    assert "no escape sequence" in error.headers["message"]
    assert error.headers["receipt-id"] == "5"


@pytest.mark.stomp("STOMP-001", "STOMP-004")
def test_lines_may_end_with_a_carriage_return_in_1_2(connected: Connect) -> None:
    peer = connected()
    peer.send(b"SUBSCRIBE\r\nid:1\r\ndestination:/queue/a\r\n\r\n\0\r\n")
    if peer.version == "1.1":
        assert "no command" in peer.error().headers["message"]
        return
    peer.send(b"SEND\r\ndestination:/queue/a\r\n\r\nbody\r\n\0\r\n")
    assert peer.frame("MESSAGE").body == b"body\r\n"


@pytest.mark.stomp("STOMP-004")
def test_an_escaped_carriage_return_is_none_in_1_1(connected: Connect) -> None:
    peer = connected()
    peer.send(b"SEND\ndestination:/queue/a\nx:\\r\n\n\0")
    if peer.version == "1.1":
        peer.error()
    else:
        peer.asked("SEND", destination="/queue/a")


@pytest.mark.stomp("STOMP-008", "STOMP-009", "STOMP-010")
@pytest.mark.scenario("Q-033")
def test_a_body_has_as_many_bytes_as_its_length_says(connected: Connect) -> None:
    peer = connected()
    peer.say("SUBSCRIBE", id="1", destination="/queue/a")
    peer.send(b"SEND\ndestination:/queue/a\ncontent-length:5\n\n\0a\0\n\0\0")
    message = peer.frame("MESSAGE")
    assert (message.body, message.headers["content-length"]) == (b"\0a\0\n\0", "5")
    peer.send(b"SEND\ndestination:/queue/a\ncontent-length:1\n\nab\0")
    error = peer.error()
    assert error.headers["content-type"] == "text/plain"
    assert int(error.headers["content-length"]) == len(error.body)


@pytest.mark.stomp("STOMP-007")
@pytest.mark.parametrize(
    "frame", [b"SUBSCRIBE\nid:1\ndestination:/queue/a\n", b"DISCONNECT\n", b"BEGIN\ntransaction:t\n"]
)
def test_only_a_send_has_a_body(connected: Connect, frame: bytes) -> None:
    peer = connected()
    peer.send(frame + b"\nbody\0")
    assert "has a body" in peer.error().headers["message"]


@pytest.mark.stomp("STOMP-023", "STOMP-027", "STOMP-031", "STOMP-034", "STOMP-035")
@pytest.mark.parametrize(
    "frame",
    [
        b"SEND\n",
        b"SUBSCRIBE\nid:1\n",
        b"SUBSCRIBE\ndestination:/queue/a\n",
        b"UNSUBSCRIBE\n",
        b"UNSUBSCRIBE\nid:unknown\n",
        b"ACK\n",
        b"NACK\n",
        b"BEGIN\n",
        b"COMMIT\n",
        b"ABORT\n",
    ],
)
def test_a_frame_without_what_it_has_to_have_is_refused(connected: Connect, frame: bytes) -> None:
    peer = connected()
    peer.send(frame + b"\n\0")
    peer.error()


@pytest.mark.stomp("STOMP-032", "STOMP-033", "STOMP-034")
@pytest.mark.parametrize("command", ["ACK", "NACK"])
def test_an_acknowledgement_names_its_message_as_its_version_has_it(connected: Connect, command: str) -> None:
    peer = connected()
    peer.asked("SEND", b"1", destination="/queue/a")
    peer.say("SUBSCRIBE", id="1", destination="/queue/a", ack="client")
    message = peer.frame("MESSAGE")
    peer.asked(command, **ack_of(peer, message))
    peer.say(command, **({"id": "1"} if peer.version == "1.1" else {"message_id": "1", "subscription": "1"}))
    peer.error()


@pytest.mark.stomp("STOMP-025", "STOMP-026", "STOMP-044", "STOMP-052")
@pytest.mark.parametrize(
    ("command", "headers", "said"),
    [
        ("SEND", {"destination": "elsewhere"}, "`destination` is 'elsewhere'"),
        ("SEND", {"destination": "/queue/a", "priority": "high"}, "`priority` is 'high'"),
        ("SEND", {"destination": "/queue/a", "priority": "11"}, "`priority` is 11"),
        ("SEND", {"destination": "/topic/a", "mandatory": "true"}, "No queue takes"),
        ("SUBSCRIBE", {"id": "1", "destination": "/queue/a", "selector": "a =="}, "Write = for equal"),
        ("SUBSCRIBE", {"id": "1", "destination": "/queue/a", "prefetch-count": "-1"}, "`max_backlog` is -1"),
    ],
)
def test_what_cannot_be_done_is_told_and_the_connection_closed(
    connected: Connect, command: str, headers: dict[str, str], said: str
) -> None:
    peer = connected()
    peer.asked("SEND", b"before", destination="/queue/b")
    peer.say(command, receipt="r", **headers)
    error = peer.error()
    assert said in error.body.decode()
    assert error.headers["receipt-id"] == "r"


@pytest.mark.stomp("STOMP-028", "STOMP-036", "STOMP-037", "STOMP-038")
@pytest.mark.parametrize(
    ("frames", "said"),
    [
        ([("SUBSCRIBE", {"id": "1", "destination": "/queue/a"})] * 2, "is there already"),
        ([("BEGIN", {"transaction": "t"})] * 2, "is open already"),
        ([("COMMIT", {"transaction": "t"})], "no transaction 't'"),
        ([("BEGIN", {"transaction": "u"}), ("ABORT", {"transaction": "t"})], "no transaction 't'"),
        ([("SEND", {"transaction": "t", "destination": "/queue/a"})], "no transaction 't'"),
    ],
)
def test_names_are_of_one_subscription_and_of_one_transaction(
    connected: Connect, frames: list[tuple[str, dict[str, str]]], said: str
) -> None:
    peer = connected()
    for command, headers in frames:
        peer.say(command, **headers)
    assert said in peer.error().headers["message"]


@pytest.mark.stomp("STOMP-030")
def test_an_individual_acknowledgement_is_of_one_message(connected: Connect, stomp: Running) -> None:
    peer = connected()
    for body in (b"1", b"2", b"3"):
        peer.asked("SEND", body, destination="/queue/a")
    peer.say("SUBSCRIBE", id="1", destination="/queue/a", ack="client-individual", prefetch_count=3)
    messages = [peer.frame("MESSAGE") for _ in range(3)]
    acknowledge(peer, messages[1], receipt="2")
    peer.frame("RECEIPT")
    acknowledge(peer, messages[2], "NACK", action="reject", receipt="3")
    peer.frame("RECEIPT")
    stats = stomp.node.stats("a")
    assert (stats.leased, stats.dead) == (1, 1)


@pytest.mark.stomp("STOMP-048")
@pytest.mark.parametrize(("command", "left"), [("ACK", 0), ("NACK", 2)])
def test_a_cumulative_acknowledgement_is_of_all_up_to_its_message(
    connected: Connect, stomp: Running, command: str, left: int
) -> None:
    stomp.node.declare("a", retry=[60])
    peer = connected()
    for body in (b"1", b"2", b"3"):
        peer.asked("SEND", body, destination="/queue/a")
    peer.say("SUBSCRIBE", id="1", destination="/queue/a", ack="client", prefetch_count=3)
    messages = [peer.frame("MESSAGE") for _ in range(3)]
    acknowledge(peer, messages[1], command, receipt="2")
    peer.frame("RECEIPT")
    stats = stomp.node.stats("a")
    assert (stats.leased, sum(stats.held.values())) == (1, left)


@pytest.mark.stomp("STOMP-029")
@pytest.mark.scenario("Q-071")
def test_what_was_not_acknowledged_is_delivered_again(connected: Connect, stomp: Running) -> None:
    peer = connected()
    for body in (b"1", b"2", b"3"):
        peer.asked("SEND", body, destination="/queue/a")
    peer.say("SUBSCRIBE", id="1", destination="/queue/a", ack="client", prefetch_count=3)
    messages = [peer.frame("MESSAGE") for _ in range(3)]
    acknowledge(peer, messages[0], receipt="1")
    peer.frame("RECEIPT")
    peer.socket.close()
    other = connected()
    other.say("SUBSCRIBE", id="1", destination="/queue/a", ack="client", prefetch_count=3)
    again = [other.frame("MESSAGE") for _ in range(2)]
    assert [one.body for one in again] == [b"2", b"3"]
    assert {one.headers["redelivered"] for one in again} == {"true"}


@pytest.mark.stomp("STOMP-049")
def test_nothing_has_to_be_acknowledged_with_ack_auto(connected: Connect, stomp: Running) -> None:
    peer = connected()
    for number in range(10):
        peer.asked("SEND", b"%d" % number, destination="/queue/a")
    peer.say("SUBSCRIBE", id="1", destination="/queue/a")
    assert [peer.frame("MESSAGE").body for _ in range(10)] == [b"%d" % number for number in range(10)]
    stats = stomp.node.stats("a")
    assert (stats.ready, stats.leased) == (0, 0)
    peer.say("SUBSCRIBE", id="2", destination="/queue/a", ack="sometimes")
    assert "`ack` is 'sometimes'" in peer.error().headers["message"]


@pytest.mark.stomp("STOMP-046", "STOMP-047", "STOMP-038")
@pytest.mark.scenario("Q-011")
def test_a_transaction_is_done_together_or_not_at_all(connected: Connect, stomp: Running) -> None:
    peer = connected()
    peer.asked("SEND", b"order", destination="/queue/a")
    peer.say("SUBSCRIBE", id="1", destination="/queue/a", ack="client")
    message = peer.frame("MESSAGE")
    for end in ("ABORT", "COMMIT"):
        peer.asked("BEGIN", transaction="t")
        peer.asked("SEND", b"invoice", destination="/queue/b", transaction="t")
        peer.asked("ACK", **ack_of(peer, message), transaction="t")
        assert (stomp.node.stats("a").leased, stomp.node.keys()) == (1, ["a"])
        peer.asked(end, transaction="t")
    assert (stomp.node.stats("a").leased, stomp.node.stats("b").ready) == (0, 1)
    peer.asked("BEGIN", transaction="u")
    peer.asked("SEND", b"never", destination="/queue/b", transaction="u")
    peer.asked("DISCONNECT")
    assert peer.is_closed()
    assert stomp.node.stats("b").ready == 1


@pytest.mark.stomp("STOMP-046")
@pytest.mark.scenario("Q-012")
def test_a_transaction_whose_connection_is_lost_is_not_done(connected: Connect, stomp: Running) -> None:
    peer = connected()
    peer.asked("BEGIN", transaction="t")
    peer.asked("SEND", b"never", destination="/queue/b", transaction="t")
    peer.socket.close()
    connected().asked("SEND", b"1", destination="/queue/b")
    assert stomp.node.stats("b").ready == 1


@pytest.mark.stomp("STOMP-039", "STOMP-043")
def test_nothing_behind_disconnect_is_done(connected: Connect, stomp: Running) -> None:
    peer = connected()
    peer.say("SEND", b"1", destination="/queue/a")
    peer.say("DISCONNECT", receipt="77")
    peer.say("SEND", b"2", destination="/queue/a")
    assert peer.frame("RECEIPT").headers["receipt-id"] == "77"
    assert peer.is_closed()
    assert stomp.node.stats("a").ready == 1


@pytest.mark.stomp("STOMP-045")
def test_clients_connect_and_disconnect_in_quick_succession(stomp: Running, version: Version) -> None:
    for number in range(100):
        with Peer(stomp.port, version) as peer:
            peer.connect()
            peer.say("SEND", b"%d" % number, destination="/queue/a")
            if number % 2:
                peer.say("DISCONNECT")
    with Peer(stomp.port, version) as peer:
        peer.connect()
        peer.say("SUBSCRIBE", id="1", destination="/queue/a")
        assert {int(peer.frame("MESSAGE").body) for _ in range(100)} == set(range(100))


@pytest.mark.stomp("STOMP-050")
def test_the_first_of_a_repeated_header_counts(connected: Connect) -> None:
    peer = connected()
    peer.say("SUBSCRIBE", id="1", destination="/queue/a")
    peer.send(b"SEND\ndestination:/queue/a\nfoo:World\nfoo:Hello\ndestination:/queue/b\n\n\0")
    assert peer.frame("MESSAGE").headers["foo"] == "World"


@pytest.mark.stomp("STOMP-051")
@pytest.mark.parametrize(
    "data",
    [
        b"SEND\n" + b"a:b\n" * 101,
        b"SEND\na:" + b"b" * 9_000,
        b"SEND\ndestination:/queue/a\ncontent-length:5001\n\n",
        b"SEND\ndestination:/queue/a\n\n" + b"x" * 5_001,
        b"\n" * 100 + b"X" * 9_000,
    ],
)
def test_what_is_too_large_is_refused_before_it_is_whole(stomp_with: Start, version: Version, data: bytes) -> None:
    stomp = stomp_with(terms=Terms(limits=Limits(body=5_000)))
    with Peer(stomp.port, version) as peer:
        peer.connect()
        peer.send(data)
        assert "more than" in peer.error().headers["message"]


def test_a_compressed_frame_of_a_websocket_is_not_read(stomp: Running) -> None:
    """Ten kilobytes would become ten megabytes."""
    deflating = zlib.compressobj(9, zlib.DEFLATED, -15)
    bomb = deflating.compress(b"\n" * 10_000_000) + deflating.flush(zlib.Z_SYNC_FLUSH)
    where, spoken = f"ws://127.0.0.1:{stomp.websocket_port}/", [Subprotocol("v12.stomp")]
    with connect(where, subprotocols=spoken, compression="deflate") as one:
        assert one.protocol.extensions == []
        one.socket.sendall(b"\xc2\xfe" + len(bomb).to_bytes(2, "big") + bytes(4) + bomb)
        with pytest.raises(ConnectionClosedError) as closed:
            one.recv(timeout=20)
    assert closed.value.rcvd is not None
    assert closed.value.rcvd.code == 1002


def test_a_frame_that_comes_too_slowly_is_refused(stomp_with: Start, version: Version) -> None:
    stomp = stomp_with(terms=Terms(patience=Patience(connect=0.5, frame=0.5)))
    with Peer(stomp.port, version) as silent, Peer(stomp.port, version) as slow, Peer(stomp.port, version) as idle:
        idle.connect()
        slow.connect()
        for byte in b"SEND\ndestination":
            slow.send(bytes([byte]))
            time.sleep(0.02)
        assert "It took too long" in slow.error().headers["message"]
        assert "It took too long" in silent.error().headers["message"]
        idle.asked("SEND", destination="/queue/a")
