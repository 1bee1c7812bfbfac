"""Clients of STOMP use queues: their options, their leases, their subscriptions, and what they may not."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.server.stomp.conftest import Connect, Peer, Running, Start, ack_of, acknowledge
from wsrm_mq.node.message import Message
from wsrm_mq.server.stomp.client import Patience, Terms
from wsrm_mq.server.stomp.protocol import Limits, Version
from wsrm_mq.server.stomp.serving import TEMPORARY


def counted(stomp: Running, queue: str) -> tuple[int, int, int]:
    """Ready, leased and dead messages."""
    stats = stomp.node.stats(queue)
    return stats.ready, stats.leased, stats.dead


def within(seconds: float, stomp: Running, queue: str, wanted: tuple[int, int, int]) -> bool:
    deadline = time.monotonic() + seconds
    while counted(stomp, queue) != wanted and time.monotonic() < deadline:
        time.sleep(0.02)
    return counted(stomp, queue) == wanted


def taken_over(stomp: Running) -> list[Message]:
    """The message of the only subscription is another consumer's, once its lease has ended."""
    stomp.node.subscriptions[0].replace("priority = 9")
    return stomp.node.receive("a", wait=10, lease=60)


def test_options_are_headers(connected: Connect, stomp: Running) -> None:
    peer = connected()
    options = {"type_": "Order", "sender_message_id": "m1", "priority": 9, "ttl": 60, "group": "g"}
    for _ in range(2):
        peer.asked("SEND", b"1", destination="/queue/a", region="eu", **options)
    [message] = stomp.node.peek("a")
    assert (message.type, message.message_id, message.priority, message.number) == ("Order", "m1", 9, 1)
    assert message.properties == {"region": "eu"}


def test_many_sends_that_come_together_share_commits(connected: Connect, stomp: Running) -> None:
    peer = connected()
    peer.asked("SEND", b"first", destination="/queue/a")
    before = stomp.node.store.writer.commits
    for number in range(200):
        peer.say("SEND", b"%d" % number, destination="/queue/a", receipt=number)
    assert [peer.frame("RECEIPT").headers["receipt-id"] for _ in range(200)] == [str(number) for number in range(200)]
    assert stomp.node.store.writer.commits - before < 100
    assert [one.body for one in stomp.node.peek("a", limit=300)][1:] == [b"%d" % number for number in range(200)]


def test_of_sends_that_come_together_those_before_a_wrong_one_are_done(connected: Connect, stomp: Running) -> None:
    peer = connected()
    data = b"".join(
        b"SEND\ndestination:%b\nreceipt:%b\n\n\0" % one for one in [(b"/queue/a", b"1"), (b"nowhere", b"2")]
    )
    peer.send(data + b"SEND\ndestination:/queue/a\nreceipt:3\n\n\0")
    assert peer.frame("RECEIPT").headers["receipt-id"] == "1"
    assert peer.error().headers["receipt-id"] == "2"
    assert counted(stomp, "a") == (1, 0, 0)


@pytest.mark.scenario("Q-066")
@pytest.mark.parametrize(
    ("command", "action", "left"),
    [
        ("ACK", "ack", (0, 0, 0)),
        ("ACK", "expire", (0, 0, 1)),
        ("NACK", "reject", (0, 0, 1)),
        ("NACK", "expire", (0, 0, 1)),
        ("NACK", "nack", (0, 0, 0)),
    ],
)
def test_an_acknowledgement_says_what_is_done(
    connected: Connect, stomp: Running, command: str, action: str, left: tuple[int, int, int]
) -> None:
    stomp.node.declare("a", retry=[60])
    peer = connected()
    peer.asked("SEND", b"1", destination="/queue/a")
    peer.say("SUBSCRIBE", id="1", destination="/queue/a", ack="client-individual")
    message = peer.frame("MESSAGE")
    peer.asked(command, **ack_of(peer, message), action=action, reason="it is no good")
    assert counted(stomp, "a") == left
    if action in ("nack", "reject"):
        name = "a" if action == "nack" else "a#dead"
        assert [one.last_error for one in stomp.node.peek(name)] == ["it is no good"]


@pytest.mark.scenario("Q-064")
def test_what_is_released_comes_again_and_is_no_failure(connected: Connect) -> None:
    peer = connected()
    peer.asked("SEND", b"1", destination="/queue/a")
    peer.say("SUBSCRIBE", id="1", destination="/queue/a", ack="client-individual")
    acknowledge(peer, peer.frame("MESSAGE"), "NACK", action="release")
    again = peer.frame("MESSAGE")
    assert (again.headers["redelivered"], again.headers["deliveries"]) == ("true", "2")
    acknowledge(peer, again, action="sleep")
    assert "`action` is 'sleep'" in peer.error().headers["message"]


@pytest.mark.scenario("Q-055")
def test_the_backlog_is_what_was_asked_for_or_one(connected: Connect) -> None:
    peer = connected()
    for number in range(5):
        peer.asked("SEND", b"%d" % number, destination="/queue/a")
    peer.say("SUBSCRIBE", id="1", destination="/queue/a", ack="client")
    first = peer.frame("MESSAGE")
    assert peer.is_silent()
    acknowledge(peer, first)
    assert peer.frame("MESSAGE").body == b"1"
    peer.say("SUBSCRIBE", id="2", destination="/queue/a", ack="client", prefetch_count=2)
    assert [peer.frame("MESSAGE").body for _ in range(2)] == [b"2", b"3"]
    assert peer.is_silent()


@pytest.mark.scenario("Q-074")
def test_a_selector_is_a_filter(connected: Connect) -> None:
    peer = connected()
    peer.asked("SEND", b"data", destination="/queue/b", region="x' OR 1=1 --")
    peer.asked("SEND", b"other", destination="/queue/b", region="eu")
    peer.say("SUBSCRIBE", id="2", destination="/queue/b", selector="region = 'x'' OR 1=1 --'")
    assert peer.frame("MESSAGE").body == b"data"
    peer.say("SUBSCRIBE", id="1", destination="/queue/a", selector="region = 'eu' and priority > 5")
    for region, priority in [("us", 9), ("eu", 4), ("eu", 6)]:
        peer.asked("SEND", f"{region}{priority}".encode(), destination="/queue/a", region=region, priority=priority)
    assert peer.frame("MESSAGE").body == b"eu6"
    assert peer.is_silent()


@pytest.mark.scenario("Q-068")
def test_a_lease_that_has_ended_is_lost(connected: Connect, stomp: Running) -> None:
    peer = connected()
    peer.asked("SEND", b"1", destination="/queue/a")
    peer.say("SUBSCRIBE", id="1", destination="/queue/a", ack="client", lease=0.3)
    message = peer.frame("MESSAGE")
    [taken] = taken_over(stomp)
    acknowledge(peer, message)
    peer.asked("SEND", b"it goes on", destination="/queue/b")
    assert counted(stomp, "a") == (0, 1, 0)
    acknowledge(peer, message, receipt="r")
    assert peer.error().headers["receipt-id"] == "r"
    taken.ack()


@pytest.mark.scenario("Q-082")
def test_what_is_leased_when_its_time_is_over_is_acknowledged_or_a_dead_letter_when_its_lease_ends(
    connected: Connect, stomp: Running
) -> None:
    peer = connected()
    peer.say("SUBSCRIBE", id="1", destination="/queue/a", ack="client-individual", prefetch_count=2, lease=1)
    for number in range(2):
        peer.asked("SEND", b"%d" % number, destination="/queue/a", ttl=0.4)
    one, _two = peer.frame("MESSAGE"), peer.frame("MESSAGE")
    time.sleep(0.4)
    peer.asked("ACK", **ack_of(peer, one))
    assert within(20, stomp, "a", (0, 0, 1))
    [letter] = stomp.node.dead("a").peek()
    assert (letter.body, letter.reason) == (b"1", "ttl_expired")


def test_a_lost_lease_fails_its_transaction_whole(connected: Connect, stomp: Running) -> None:
    peer = connected()
    peer.asked("SEND", b"1", destination="/queue/a")
    peer.say("SUBSCRIBE", id="1", destination="/queue/a", ack="client-individual", lease=0.3)
    message = peer.frame("MESSAGE")
    peer.asked("BEGIN", transaction="t")
    peer.asked("SEND", b"invoice", destination="/queue/b", transaction="t")
    peer.asked("ACK", **ack_of(peer, message), transaction="t")
    assert len(taken_over(stomp)) == 1
    peer.say("COMMIT", transaction="t", receipt="c")
    error = peer.error()
    assert error.headers["receipt-id"] == "c"
    assert stomp.node.keys() == ["a"]
    assert counted(stomp, "a") == (0, 1, 0)


def test_an_error_gives_back_what_was_leased_uncounted(connected: Connect, stomp: Running) -> None:
    peer = connected()
    for _ in range(3):
        peer.asked("SEND", destination="/queue/a")
    peer.say("SUBSCRIBE", id="1", destination="/queue/a", ack="client", prefetch_count=3)
    for _ in range(3):
        peer.frame("MESSAGE")
    peer.send(b"NONSENSE\n\n\0")
    peer.error()
    assert counted(stomp, "a") == (3, 0, 0)
    assert {one.failures for one in stomp.node.peek("a")} == {0}


@pytest.mark.scenario("Q-078")
def test_only_the_message_at_which_connections_break_off_again_and_again_is_given_up(
    connected: Connect, stomp: Running, caplog: pytest.LogCaptureFixture
) -> None:
    stomp.node.declare("a", max_failures=1, retry=[])
    stomp.node.put_many("a", range(3))
    for left in ((3, 0, 0), (3, 0, 0), (2, 0, 1)):
        peer = connected()
        peer.say("SUBSCRIBE", id="1", destination="/queue/a", ack="client", prefetch_count=3)
        assert [peer.frame("MESSAGE").body for _ in range(3)] == [b"0", b"1", b"2"]
        peer.socket.close()
        assert within(20, stomp, "a", left)
    assert [one.body for one in stomp.node.dead("a").peek()] == [b"0"]
    assert {one.failures for one in stomp.node.peek("a")} == {0}
    assert caplog.text.count("stomp.gone") == 3


def test_what_was_leased_goes_back_at_unsubscribe(connected: Connect, stomp: Running) -> None:
    peer = connected()
    peer.asked("SEND", b"1", destination="/queue/a")
    peer.say("SUBSCRIBE", id="1", destination="/queue/a", ack="client")
    message = peer.frame("MESSAGE")
    peer.asked("UNSUBSCRIBE", id="1")
    assert counted(stomp, "a") == (1, 0, 0)
    acknowledge(peer, message)
    if peer.version == "1.1":
        assert "no such `subscription`" in peer.error().headers["message"]
    else:
        peer.asked("SUBSCRIBE", id="1", destination="/queue/a", ack="client")
        assert peer.frame("MESSAGE").headers["redelivered"] == "true"


@pytest.mark.scenario("Q-022")
def test_a_topic_is_published_to_all_who_have_subscribed(connected: Connect, stomp: Running) -> None:
    one, two, three = connected(), connected(), connected()
    one.asked("SUBSCRIBE", id="1", destination="/topic/db/#")
    two.asked("SUBSCRIBE", id="1", destination="/topic/db/*", ack="client")
    three.asked("SUBSCRIBE", id="1", destination="/topic/db/delete")
    one.say("SEND", b"row", destination="/topic/db/add")
    for peer in (one, two):
        message = peer.frame("MESSAGE")
        assert (message.body, message.headers["destination"]) == (b"row", "/topic/db/add")
    assert three.is_silent(0.1)
    for peer in (one, two, three):
        peer.asked("DISCONNECT")
    assert stomp.node.keys() == []


@pytest.mark.scenario("Q-030")
def test_a_durable_subscription_collects_while_its_client_is_away(connected: Connect, stomp: Running) -> None:
    named = {"durable_subscription_name": "mine", "destination": "/topic/db/#"}
    for number in range(3):
        peer = connected(client_id="laptop")
        peer.asked("SUBSCRIBE", id="1", ack="client", **named)
        if number:
            message = peer.frame("MESSAGE")
            assert message.body == b"%d" % (number - 1)
            peer.asked("ACK", **ack_of(peer, message))
        peer.asked("DISCONNECT")
        stomp.node.publish("db/add", b"%d" % number)
    assert stomp.node.keys() == ["everything/laptop/mine"]
    peer = connected(client_id="laptop")
    peer.asked("SUBSCRIBE", id="1", **named)
    assert peer.frame("MESSAGE").body == b"2"
    peer.asked("UNSUBSCRIBE", id="1", durable_subscription_name="mine")
    assert stomp.node.keys() == []


@pytest.mark.scenario("Q-025", "Q-027")
def test_a_client_that_was_away_gets_what_it_had_not_acknowledged_and_then_what_it_missed(
    connected: Connect, stomp: Running
) -> None:
    durable = {"id": "1", "ack": "client-individual", "destination": "/topic/db/#", "prefetch_count": 10}
    durable |= {"durable_subscription_name": "mine"}
    peer = connected(client_id="laptop")
    peer.asked("SUBSCRIBE", **durable)
    for number in range(10):
        stomp.node.publish("db/add", b"%d" % number)
    messages = [peer.frame("MESSAGE") for _ in range(10)]
    for message in messages[:6]:
        peer.asked("ACK", **ack_of(peer, message))
    peer.socket.close()
    assert within(10, stomp, "everything/laptop/mine", (4, 0, 0))
    for number in range(10, 60):
        stomp.node.publish("db/add", b"%d" % number)
    again = connected(client_id="laptop")
    again.asked("SUBSCRIBE", **durable)
    stomp.node.publish("db/add", b"60")
    for number in range(6, 61):
        message = again.frame("MESSAGE")
        assert (message.body, "redelivered" in message.headers) == (b"%d" % number, number < 10)
        acknowledge(again, message)


def test_subscriptions_that_a_dead_server_has_left_are_ended(stomp_with: Start, tmp_path: Path) -> None:
    stomp = stomp_with()
    name = f"{TEMPORARY}left"
    stomp.node.subscribe_durable("db/#", name, client="shop")
    stomp.node.subscribe_durable("db/#", "lasting", client="shop")
    stomp.close()
    again = stomp_with()
    assert again.node.keys() == ["shop/lasting"]


def test_messages_of_a_group_come_one_after_the_other(connected: Connect) -> None:
    peer = connected()
    for number in range(3):
        peer.asked("SEND", b"%d" % number, destination="/queue/a", group="g")
    peer.say("SUBSCRIBE", id="1", destination="/queue/a", ack="client-individual", prefetch_count=10)
    for number in range(3):
        message = peer.frame("MESSAGE")
        assert (message.body, message.headers["number"]) == (b"%d" % number, str(number + 1))
        assert peer.is_silent(0.1)
        acknowledge(peer, message)


def test_a_message_of_a_group_whose_lease_has_ended_comes_again(connected: Connect) -> None:
    peer = connected()
    for number in range(2):
        peer.asked("SEND", b"%d" % number, destination="/queue/a", group="g")
    peer.say("SUBSCRIBE", id="1", destination="/queue/a", ack="client-individual", prefetch_count=5, lease=0.3)
    first = peer.frame("MESSAGE")
    again = peer.frame("MESSAGE")
    assert (first.body, again.body, again.headers["redelivered"]) == (b"0", b"0", "true")
    peer.asked("ACK", **ack_of(peer, again))
    assert peer.frame("MESSAGE").body == b"1"


def test_express_messages_are_sent_and_consumed(connected: Connect) -> None:
    peer = connected()
    peer.say("SUBSCRIBE", id="1", destination="/queue/a", ack="client", prefetch_count=2)
    for durability in ("express", "recoverable"):
        peer.say("SEND", durability.encode(), destination="/queue/a", durability=durability)
    messages = [peer.frame("MESSAGE") for _ in range(2)]
    assert {one.body for one in messages} == {b"express", b"recoverable"}
    peer.asked("ACK", **ack_of(peer, messages[1]))


@pytest.mark.parametrize("grouped", [{}, {"group": "g"}])
def test_express_messages_that_are_acknowledged_make_room_for_others(
    connected: Connect, grouped: dict[str, str]
) -> None:
    peer = connected()
    peer.say("SUBSCRIBE", id="1", destination="/queue/a", ack="client-individual", prefetch_count=2)
    for number in range(6):
        peer.say("SEND", b"%d" % number, destination="/queue/a", durability="express", **grouped)
    for number in range(6):
        message = peer.frame("MESSAGE")
        assert message.body == b"%d" % number
        peer.asked("ACK", **ack_of(peer, message))


# overload


def test_a_full_queue_that_blocks_keeps_its_producer_waiting(connected: Connect, stomp: Running) -> None:
    stomp.node.declare("a", max_messages=1, overflow="block")
    peer = connected()
    peer.asked("SEND", b"1", destination="/queue/a")
    peer.say("SEND", b"2", destination="/queue/a", receipt="2")
    assert peer.is_silent(0.5)
    [message] = stomp.node.receive("a")
    message.ack()
    assert peer.frame("RECEIPT").headers["receipt-id"] == "2"


def test_a_full_queue_that_rejects_answers_an_error(connected: Connect, stomp: Running) -> None:
    stomp.node.declare("a", max_messages=1)
    peer = connected()
    peer.asked("SEND", b"1", destination="/queue/a")
    peer.say("SEND", b"2", destination="/queue/a", receipt="2")
    assert "a has 1 messages" in peer.error().headers["message"]


def test_a_store_that_takes_nothing_keeps_producers_waiting(connected: Connect, stomp: Running) -> None:
    peer = connected()
    peer.asked("SEND", b"before", destination="/queue/a")
    with stomp.blocked():
        peer.say("SEND", b"1", destination="/queue/a", receipt="1")
        assert peer.is_silent(1.0)
    assert peer.frame("RECEIPT").headers["receipt-id"] == "1"
    assert [one.body for one in stomp.node.peek("a")] == [b"before", b"1"]


def test_a_client_that_takes_nothing_is_cut_off(stomp_with: Start, version: Version) -> None:
    stomp = stomp_with(terms=Terms(patience=Patience(stalled=0.5)))
    stomp.node.put_many("a", [b"x" * 100_000] * 200)
    with Peer(stomp.port, version) as peer:
        peer.connect()
        peer.say("SUBSCRIBE", id="1", destination="/queue/a", ack="client-individual", prefetch_count=200)
        deadline = time.monotonic() + 10
        while not stomp.node.stats("a").leased and time.monotonic() < deadline:
            time.sleep(0.01)
        assert within(10, stomp, "a", (200, 0, 0))


# attacks


def test_no_header_of_a_sender_makes_another_header_or_frame(connected: Connect) -> None:
    peer = connected()
    peer.say("SUBSCRIBE", id="1", destination="/queue/a", ack="client")
    evil = "1\nreceipt-id:77\n\n\0ERROR\n\n\0"
    peer.say(
        "SEND", b"\0ERROR\nmessage:x\n\n\0", destination="/queue/a", x=evil.replace("\0", ""), subscription="9", ack="9"
    )
    message = peer.frame("MESSAGE")
    assert message.headers["x"] == evil.replace("\0", "")
    assert message.headers["subscription"] == "1"
    assert message.headers.get("ack") != "9"
    assert message.body == b"\0ERROR\nmessage:x\n\n\0"


def test_a_wrong_token_and_none_are_turned_away(stomp: Running, version: Version) -> None:
    for secret in ("wsrm-mq-wrong", ""):
        with Peer(stomp.port, version) as peer:
            peer.say("CONNECT", accept_version=version, **({"passcode": secret} if secret else {}))
            said = peer.error().body.decode()
            assert secret not in said if secret else "a token as `passcode`" in said
    with Peer(stomp.port, version) as peer:
        peer.say("SEND", destination="/queue/a")
        peer.error()
    assert stomp.node.keys() == []


def test_another_ones_queue_is_as_one_that_is_not_there(connected: Connect, stomp: Running) -> None:
    stomp.grant("alice", "wsrm-mq-alice", ("put", "a*"), ("consume", "a*"), ("put", "topic:a/#"))
    stomp.node.put("bobs", b"secret")
    for command, headers in [("SEND", {}), ("SUBSCRIBE", {"id": "1"})]:
        told = []
        for queue in ("bobs", "none"):
            peer = connected("wsrm-mq-alice")
            peer.say(command, destination=f"/queue/{queue}", **headers)
            told.append(peer.error().body.decode().replace(queue, "QUEUE"))
        assert told[0] == told[1]
    for command in ("SEND", "SUBSCRIBE"):
        peer = connected("wsrm-mq-alice")
        peer.say(command, id="1", destination="/topic/b/c")
        peer.error()
    connected("wsrm-mq-alice").asked("SEND", b"1", destination="/queue/a1")
    assert counted(stomp, "bobs") == (1, 0, 0)


def test_a_report_goes_only_where_its_sender_may_put(connected: Connect, stomp: Running) -> None:
    stomp.grant("alice", "wsrm-mq-alice", ("put", "a*"))
    stomp.node.declare("bobs")
    told = []
    for queue in ("bobs", "none"):
        peer = connected("wsrm-mq-alice")
        peer.say("SEND", b"1", destination="/queue/a1", report_to=queue, report="reached")
        told.append(peer.error().body.decode().replace(queue, "QUEUE"))
    assert told[0] == told[1]
    assert counted(stomp, "bobs") == (0, 0, 0)


def test_a_transaction_may_no_more_than_its_client(connected: Connect, stomp: Running) -> None:
    stomp.grant("alice", "wsrm-mq-alice", ("put", "a*"))
    peer = connected("wsrm-mq-alice")
    peer.asked("BEGIN", transaction="t")
    peer.say("SEND", b"1", destination="/queue/a1", transaction="t")
    peer.say("SEND", b"1", destination="/queue/bobs", transaction="t")
    peer.say("COMMIT", transaction="t", receipt="c")
    peer.error()
    assert stomp.node.keys() == []


def test_a_message_is_acknowledged_only_by_who_was_given_it(connected: Connect, stomp: Running) -> None:
    peer, thief = connected(), connected()
    peer.asked("SEND", b"1", destination="/queue/a")
    peer.say("SUBSCRIBE", id="1", destination="/queue/a", ack="client")
    message = peer.frame("MESSAGE")
    acknowledge(thief, message)
    thief.error()
    assert counted(stomp, "a") == (0, 1, 0)


def test_a_million_subscriptions_are_a_few(connected: Connect, stomp: Running) -> None:
    peer = connected()

    def flood() -> None:
        for number in range(1_000_000):
            try:
                peer.say("SUBSCRIBE", id=number, destination="/queue/a")
            except OSError:
                return

    flooding = threading.Thread(target=flood)
    flooding.start()
    assert "may have 256 subscriptions" in peer.error().headers["message"]
    flooding.join()
    assert len(stomp.node.subscriptions) == 0


def test_what_one_principal_has_is_bounded_over_its_connections(stomp_with: Start, version: Version) -> None:
    stomp = stomp_with(subscriptions=3, sessions=3)
    peers = [Peer(stomp.port, version) for _ in range(4)]
    for peer in peers[:3]:
        peer.connect()
    peers[3].say("CONNECT", accept_version=version, passcode="wsrm-mq-secret-of-everything")
    assert "sessions" in peers[3].error().headers["message"]
    for number in range(3):
        peers[0].asked("SUBSCRIBE", id=number, destination="/queue/a")
    peers[1].say("SUBSCRIBE", id="1", destination="/queue/a")
    assert "subscriptions" in peers[1].error().headers["message"]
    for peer in peers:
        peer.socket.close()


def test_a_transaction_is_bounded(stomp_with: Start, version: Version) -> None:
    stomp = stomp_with(terms=Terms(limits=Limits(frames=10)))
    with Peer(stomp.port, version) as peer:
        peer.connect()
        peer.asked("BEGIN", transaction="t")
        for _ in range(11):
            peer.say("SEND", destination="/queue/a", transaction="t")
        assert "commit smaller ones" in peer.error().headers["message"]
        assert stomp.node.keys() == []


def test_a_token_that_is_revoked_ends_its_connections(
    connected: Connect, stomp: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("wsrm_mq.server.stomp.client.WATCH_SECONDS", 0.2)
    stomp.grant("alice", "wsrm-mq-alice", ("put", "a*"))
    peer = connected("wsrm-mq-alice")
    stomp.revoke("alice")
    assert "revoked" in peer.error().headers["message"]


def test_a_connection_beyond_those_that_are_served_at_a_time_is_closed_at_once(
    connected: Connect, peer: Callable[[], Peer], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("wsrm_mq.server.stomp.server.MOST", 1)
    served = connected()
    assert peer().is_closed()
    served.asked("SEND", b"1", destination="/queue/a")


def test_no_secret_is_told(stomp: Running, version: Version, caplog: pytest.LogCaptureFixture) -> None:
    secret = "wsrm-mq-never-told"
    for data in (f"passcode:{secret}", f"passcode {secret}", f"passcode:{secret}\nheart-beat:no"):
        with Peer(stomp.port, version) as peer:
            peer.send(f"CONNECT\naccept-version:{version}\n{data}\n\n\0".encode())
            assert secret not in str(peer.error())
    assert secret not in caplog.text
