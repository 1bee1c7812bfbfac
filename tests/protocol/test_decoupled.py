"""A source with an endpoint of its own: acknowledgements, replies and responses are sent there, and nothing else is."""

from __future__ import annotations

import re
import socket
import time
import uuid
from contextlib import ExitStack
from pathlib import Path

import pytest
from click.testing import CliRunner

from tests.protocol.conftest import Servers
from tests.support.endpoint import ALLOWED, Endpoint, listening
from tests.support.orders import Orders
from tests.support.orders_server import OrdersServer, within
from tests.support.source import Source, each_rm, each_rm_at_length, every_version, in_1_0, in_1_1
from wsrm_mq.cli import program
from wsrm_mq.delivery.hanging import KNOWN
from wsrm_mq.replay.acts import redrive
from wsrm_mq.store.counting import ACK_NOT_SENT, in_files
from wsrm_mq.testing import HTTPAnswer, Place, Reply
from wsrm_mq.versions import WSA_2005


@pytest.fixture
def server(servers: Servers) -> OrdersServer:
    """One that may send to this machine."""
    return servers(decoupled=ALLOWED, resend=[0.3, 0.3, 0.3, 30])


def is_empty_202(answer: HTTPAnswer) -> bool:
    return answer.status == 202 and answer.body == b""


def created(source: Source, endpoint: Endpoint, **options: str) -> str:
    """A sequence whose acknowledgements and responses go to the endpoint."""
    answer = source.post(
        source.speak.create_sequence(acks_to=endpoint.url, reply_to=endpoint.url, expires="PT1H", **options)
    )
    assert is_empty_202(answer), answer
    response = endpoint.one("CreateSequenceResponse").created
    assert response is not None
    return response.identifier


@pytest.mark.spec("D-CRE-006", "D-CRE-014", "H-001")
@every_version
def test_the_response_to_a_create_sequence_is_sent_to_its_reply_to(
    source: Source, endpoint: Endpoint, speak: Orders
) -> None:
    request = speak.create_sequence(
        acks_to=endpoint.url, reply_to=endpoint.url, message_id="urn:create:1", expires="PT1H"
    )
    assert is_empty_202(source.post(request))
    response = endpoint.one("CreateSequenceResponse")
    assert response.relates_to == "urn:create:1"
    assert response.to == endpoint.url
    assert (response.soap, response.addressing, response.rm) == (speak.soap, speak.addressing, speak.rm)
    assert response.message_id


@pytest.mark.spec("H-002", "D-ACK-020", "D-ACK-023", "D-ACK-027", "RSP-012")
@every_version
def test_a_one_way_message_is_answered_empty_and_acknowledged_at_the_endpoint(
    source: Source, endpoint: Endpoint
) -> None:
    identifier = created(source, endpoint)
    for number in (1, 2, 3):
        assert is_empty_202(source.put(identifier, number))
    assert endpoint.acknowledged(identifier, (1, 3))
    said = endpoint.saying("SequenceAcknowledgement")
    assert all(one.to == endpoint.url and one.body is None and one.relates_to is None for one in said)
    assert all(one.soap is source.speak.soap for one in said)
    assert len(said) <= 2, "they are collected"


@pytest.mark.spec("D-ACK-023")
@each_rm_at_length
def test_the_acknowledgement_leaves_within_the_configured_interval_by_itself(
    servers: Servers, speak: Orders, endpoint: Endpoint
) -> None:
    """Without another message, and not at once: what comes in the meantime rides along."""
    interval = 1.0
    one = {"path": "/", "acknowledgement_interval": interval}
    with Source(servers(decoupled=ALLOWED, partners={"one": one}), speak) as source:
        identifier = source.create(acks_to=endpoint.url)
        begun = time.monotonic()
        assert is_empty_202(source.put(identifier, 1))
        assert endpoint.acknowledged(identifier, (1, 1), seconds=interval + 2)
        assert interval / 2 < time.monotonic() - begun < interval + 2, "slack is for a busy machine"
        assert len(endpoint.received) == 1


@pytest.mark.spec("H-007", "D-ACK-028", "A-014")
@pytest.mark.peer("P-10")
@every_version
def test_the_reply_to_a_request_is_sent_to_its_reply_to(source: Source, endpoint: Endpoint) -> None:
    identifier = created(source, endpoint)
    answer = source.echo(identifier, 1, "one", reply_to=endpoint.url, message_id="urn:request:1")
    assert is_empty_202(answer)
    reply = endpoint.one("echoResponse")
    assert (reply.relates_to, reply.to, reply.sequence) == ("urn:request:1", endpoint.url, None)
    assert reply.ack.ranges == ((1, 1),)


@pytest.mark.spec("H-018", "F-021")
@in_1_1
def test_close_and_terminate_are_answered_at_the_endpoint(source: Source, endpoint: Endpoint) -> None:
    identifier = created(source, endpoint)
    source.put(identifier, 1)
    assert is_empty_202(source.close(identifier, 1, reply_to=endpoint.url))
    closed = endpoint.one("CloseSequenceResponse")
    assert (closed.ack.ranges, closed.ack.final, closed.to) == (((1, 1),), True, endpoint.url)
    assert is_empty_202(source.terminate(identifier, 1, reply_to=endpoint.url))
    ended = endpoint.one("TerminateSequenceResponse")
    assert (ended.ack.ranges, ended.ack.final) == (((1, 1),), True)


def times(replies: list[Reply]) -> dict[int, int]:
    """How often each of the first two numbers came."""
    numbers = [one.sequence.number for one in replies if one.sequence is not None]
    return {number: numbers.count(number) for number in (1, 2)}


@pytest.mark.spec("H-007", "D-ACK-020", "S-RET-001")
@each_rm
def test_replies_are_numbered_in_the_offered_sequence_and_sent_until_they_are_acknowledged(
    source: Source, endpoint: Endpoint
) -> None:
    offered = uuid.uuid4().urn
    identifier = created(source, endpoint, offer=offered, offer_endpoint=endpoint.url)
    assert endpoint.one("CreateSequenceResponse").created.accept is not None  # type: ignore[union-attr]
    for number in (1, 2):
        source.echo(identifier, number, f"text {number}", reply_to=endpoint.url)
    again = within(10, lambda: endpoint.saying("echoResponse"), lambda found: min(times(found).values()) >= 2)
    assert min(times(again).values()) >= 2
    assert len({(one.message_id, one.sequence) for one in again}) == 2, "what is sent again is the same message"
    source.post(source.speak.acknowledgement(offered, (1, 2)))
    left = "select 1 from entry join channel using (lane) where is_numbered and outcome is null and address = ?"
    assert source.store.rows(left, endpoint.url) == []


@pytest.mark.spec("D-CRE-015", "A-008", "A-009", "SEC-019")
@every_version
def test_reference_parameters_come_back_as_header_blocks_with_what_is_sent_there(
    source: Source, endpoint: Endpoint, speak: Orders
) -> None:
    """In whatever namespace they are written, but for those that a receiver would take for ours."""
    parameters = '<p:ticket xmlns:p="urn:p" p:kind="a">1 &lt; 2</p:ticket><wsrm:Sequence/>'
    there = f"<wsa:Address>{endpoint.url}</wsa:Address><wsa:ReferenceParameters>{parameters}</wsa:ReferenceParameters>"
    source.post(speak.create_sequence(acks_to=there, reply_to=there, expires="PT1H"))
    response = endpoint.one("CreateSequenceResponse").created
    assert response is not None
    source.put(response.identifier, 1)
    source.echo(response.identifier, 2, "two", reply_to=there)
    assert endpoint.acknowledged(response.identifier, (1, 2))
    for _fields, body in endpoint.requests:
        assert body.count(b"ticket") == 2, body
        assert b">1 &lt; 2</p:ticket>" in body
        assert (b'IsReferenceParameter="true"' in body) == (speak.addressing is WSA_2005)
        assert Reply.parse(body).sequence is None


@pytest.mark.spec("A-008", "A-009", "SEC-019", half="source")
@every_version
def test_reference_parameters_come_back_with_replies_in_the_offered_sequence_too(
    source: Source, endpoint: Endpoint, speak: Orders
) -> None:
    parameters = '<p:ticket xmlns:p="urn:p">1 &lt; 2</p:ticket><wsrm:Sequence/><soap:x/><wsa:To>urn:else</wsa:To>'
    there = f"<wsa:Address>{endpoint.url}</wsa:Address><wsa:ReferenceParameters>{parameters}</wsa:ReferenceParameters>"
    offered = uuid.uuid4().urn
    offer = {"offer": offered, "offer_endpoint": there}
    source.post(speak.create_sequence(acks_to=there, reply_to=there, expires="PT1H", **offer))
    response = endpoint.one("CreateSequenceResponse").created
    assert response is not None
    source.echo(response.identifier, 1, "one", reply_to=there)
    reply = endpoint.one("echoResponse")
    (body,) = {body for _fields, body in endpoint.requests if b"echoResponse" in body}
    assert reply.sequence is not None
    assert reply.sequence[:2] == (offered, 1)
    assert (body.count(b">1 &lt; 2</p:ticket>"), body.count(b"urn:else"), body.count(b"soap:x")) == (1, 0, 0)
    assert (b'IsReferenceParameter="true"' in body) == (speak.addressing is WSA_2005)
    assert len(re.findall(rb"<[^/<>]*\bSequence[ >/]", body)) == 1
    source.post(speak.acknowledgement(offered, (1, 1)))


@pytest.mark.spec("D-ACK-020", "D-CRE-014", "H-004", "D-DEL-021")
@each_rm
def test_a_reply_on_the_response_carries_no_acknowledgement_that_goes_elsewhere(
    source: Source, endpoint: Endpoint
) -> None:
    answer = source.post(source.speak.create_sequence(acks_to=endpoint.url, expires="PT1H"))
    assert answer.reply.created is not None
    identifier = answer.reply.created.identifier
    reply = source.echo(identifier, 1, "one").reply
    assert (reply.body_name, reply.acks) == ("echoResponse", ())
    assert endpoint.acknowledged(identifier, (1, 1))


@pytest.mark.spec("H-007", "H-001", "D-ACK-021", "D-ACK-028")
@each_rm
def test_acknowledgements_stay_on_the_response_where_the_reply_is_sent(source: Source, endpoint: Endpoint) -> None:
    identifier = source.create(expires="PT1H")
    answer = source.echo(identifier, 1, "one", reply_to=endpoint.url)
    assert (answer.status, answer.reply.ack.ranges, answer.reply.body) == (200, ((1, 1),), None)
    reply = endpoint.one("echoResponse")
    assert (reply.acks, reply.body_name) == ((), "echoResponse")


@pytest.mark.spec("D-ACK-015", "D-ACK-024")
@each_rm_at_length
def test_who_asks_and_who_leaves_a_gap_is_acknowledged_at_once(
    servers: Servers, endpoint: Endpoint, speak: Orders
) -> None:
    slow = {"path": "/", "acknowledgement_interval": 60}
    with Source(servers(decoupled=ALLOWED, partners={"slow": slow}), speak) as source:
        identifier = created(source, endpoint)
        assert is_empty_202(source.put(identifier, 1))
        assert is_empty_202(source.put(identifier, 3))
        assert endpoint.acknowledged(identifier, (1, 1), (3, 3)), "a gap"
        assert is_empty_202(source.put(identifier, 2))
        assert not endpoint.acknowledged(identifier, (1, 3), seconds=0.5)
        assert is_empty_202(source.ask(identifier))
        assert endpoint.acknowledged(identifier, (1, 3))


@pytest.mark.spec("F-022", "RSP-012")
@each_rm
def test_a_fault_about_a_known_sequence_goes_where_its_acknowledgements_go(source: Source, endpoint: Endpoint) -> None:
    identifier = created(source, endpoint)
    assert is_empty_202(source.put(identifier, 2**63, message_id="urn:too:far"))
    (told,) = endpoint.soon(lambda: [one for one in endpoint.received if one.fault is not None])
    assert told.fault is not None
    assert (told.fault.subcode, told.to, told.relates_to) == ("MessageNumberRollover", endpoint.url, "urn:too:far")


@pytest.mark.spec("F-023", "SEC-002")
@pytest.mark.peer("P-46")
@each_rm_at_length
def test_unknown_sequence_follows_fault_to_else_reply_to_and_leaves_no_row(
    source: Source, endpoint: Endpoint, speak: Orders
) -> None:
    unknown, before = uuid.uuid4().urn, source.store.everything()
    fault_to = f"<wsa:FaultTo>{speak.endpoint(endpoint.url + '/faults')}</wsa:FaultTo>"
    assert is_empty_202(source.echo(unknown, 1, "one", reply_to=endpoint.url, headers=fault_to))
    assert is_empty_202(source.echo(unknown, 1, "one", reply_to=endpoint.url))
    told = endpoint.soon(lambda: [one for one in endpoint.received if one.fault is not None], 2)
    assert sorted(str(one.to) for one in told) == [endpoint.url, f"{endpoint.url}/faults"]
    assert {one.fault.subcode for one in told if one.fault is not None} == {"UnknownSequence"}
    assert {one.action for one in told} == {speak.rm.fault_action(speak.addressing)}
    assert source.store.everything() == before


@pytest.mark.spec("H-007", "F-021")
@each_rm
def test_a_fault_of_the_service_is_sent_to_fault_to(source: Source, endpoint: Endpoint, speak: Orders) -> None:
    identifier = created(source, endpoint)
    fault_to = f"<wsa:FaultTo>{speak.endpoint(endpoint.url + '/faults')}</wsa:FaultTo>"
    source.echo(identifier, 1, "client-fault", reply_to=endpoint.url, headers=fault_to, message_id="urn:request:7")
    (told,) = endpoint.soon(lambda: [one for one in endpoint.received if one.fault is not None])
    assert (told.to, told.relates_to) == (f"{endpoint.url}/faults", "urn:request:7")


@pytest.mark.spec("D-ACK-025")
@each_rm
def test_an_acknowledgement_that_is_not_taken_is_made_up_for_by_the_next(source: Source, endpoint: Endpoint) -> None:
    identifier = created(source, endpoint)
    endpoint.answers = {2: (503, b"")}
    source.put(identifier, 1)
    assert endpoint.acknowledged(identifier, (1, 1)), "it came, and was answered 503"
    source.put(identifier, 2)
    assert endpoint.acknowledged(identifier, (1, 2))
    stored = [reason for (reason,) in source.store.rows("select reason from refusal")]
    assert ACK_NOT_SENT in [*stored, *(one.reason for one in in_files(source.server.store))], "status tells of it"


@pytest.mark.spec("H-007", "SEC-032")
@pytest.mark.peer("P-10")
@each_rm_at_length
def test_a_reply_that_is_not_taken_is_sent_again_as_the_same_message(source: Source, endpoint: Endpoint) -> None:
    identifier = created(source, endpoint)
    endpoint.answers = dict.fromkeys(range(2, 100), (500, b""))  # acknowledgements may come between
    source.echo(identifier, 1, "one", reply_to=endpoint.url)
    endpoint.soon(lambda: endpoint.saying("echoResponse"), 2)
    endpoint.answers = {}
    tries = endpoint.soon(lambda: endpoint.saying("echoResponse"), 3)
    assert len(tries) >= 3
    assert len({one.message_id for one in tries}) == 1


@pytest.mark.spec("SEC-032")
@each_rm
def test_a_reply_that_is_never_acknowledged_is_a_dead_letter(
    servers: Servers, endpoint: Endpoint, speak: Orders
) -> None:
    with Source(servers(decoupled=ALLOWED, resend=[0.1]), speak) as source:
        identifier = created(source, endpoint, offer=uuid.uuid4().urn, offer_endpoint=endpoint.url)
        source.echo(identifier, 1, "one", reply_to=endpoint.url)
        dead = "select entry.reason from entry join channel using (lane) where address = ? and outcome = 'dead'"
        letters = within(10, lambda: source.store.rows(dead, endpoint.url), bool)
        assert letters == [("not_acknowledged",)]
        assert len(endpoint.saying("echoResponse")) == 2


@pytest.mark.spec("D-DUR-001")
@each_rm_at_length
def test_what_was_not_sent_when_the_process_died_is_sent_after_its_restart(
    tmp_path: Path, endpoint: Endpoint, speak: Orders
) -> None:
    server = OrdersServer(tmp_path, decoupled=ALLOWED, resend=[0.2] * 20)
    server.start()
    with Source(server, speak) as source:
        identifier = created(source, endpoint)
        endpoint.answers = dict.fromkeys(range(100), (503, b""))
        source.echo(identifier, 1, "one", reply_to=endpoint.url)
        first = endpoint.one("echoResponse")
        server.kill()
        endpoint.answers = {}
        sent = len(endpoint.saying("echoResponse"))
        server.start()
        again = endpoint.soon(lambda: endpoint.saying("echoResponse"), sent + 1)
        assert again[-1].message_id == first.message_id
        settled = "select outcome from entry join channel using (lane) where message = ("
        settled += "select id from message where message_id = ?)"
        assert within(10, lambda: source.store.rows(settled, first.message_id), lambda rows: rows == [("delivered",)])
    server.stop()


@pytest.mark.spec("SEC-018")
@each_rm
def test_endpoints_that_hang_leave_the_application_its_threads_and_are_few_at_a_time(
    server: OrdersServer, source: Source, endpoint: Endpoint, speak: Orders
) -> None:
    identifier = created(source, endpoint)
    endpoint.hang()
    for number in range(1, 81):  # each address is an endpoint of its own
        source.echo(identifier, number, "text", reply_to=f"{endpoint.url}/{number}")
    within(20, lambda: endpoint.most_at_a_time, lambda most: most >= KNOWN // 2)
    with Source(server, speak) as other:
        begun = time.monotonic()
        plain = other.create()
        assert other.echo(plain, 1, "still here").reply.body_name == "echoResponse"
        assert time.monotonic() - begun < 5
    endpoint.go_on.set()
    replies = endpoint.soon(lambda: endpoint.saying("echoResponse"), 80, seconds=20)
    assert {str(one.to).rpartition("/")[2] for one in replies} == {str(number) for number in range(1, 81)}
    assert endpoint.most_at_a_time == KNOWN // 2, "what is left is for others, acknowledgements included"


@pytest.mark.spec("SEC-018")
@each_rm_at_length
def test_a_partner_whose_endpoint_hangs_keeps_no_other_from_its_replies_and_acknowledgements(
    servers: Servers, endpoint: Endpoint, speak: Orders
) -> None:
    with (
        socket.create_server(("127.0.0.1", 0), backlog=200) as silent,
        Source(servers(decoupled=ALLOWED, send_timeout=1.2, resend=[0.1] * 90), speak) as source,
    ):
        hangs = f"http://127.0.0.1:{silent.getsockname()[1]}/"
        for identifier in [source.create(acks_to=hangs) for _ in range(32)]:
            for number in (1, 2):
                source.echo(identifier, number, "text", reply_to=hangs)
        well = source.create(acks_to=endpoint.url)  # the last of them: its key is the highest
        source.echo(well, 1, "text", reply_to=endpoint.url)
        assert len(endpoint.soon(lambda: endpoint.saying("echoResponse"))) == 1
        source.put(well, 2)
        assert endpoint.acknowledged(well, (1, 2))


@pytest.mark.spec("SEC-018")
@each_rm_at_length
def test_the_first_contact_with_a_host_that_hangs_takes_one_thread(
    servers: Servers, endpoint: Endpoint, speak: Orders
) -> None:
    """Another partner's replies leave while all that is known of it is that it was asked."""
    with Source(servers(decoupled=ALLOWED, send_timeout=20, resend=[0.2] * 5), speak) as source:
        endpoint.hang()
        identifier = source.create()
        for number in range(1, 33):  # each address is an endpoint of its own
            source.echo(identifier, number, "text", reply_to=f"{endpoint.url}/{number}")
        within(5, lambda: endpoint.most_at_a_time, bool)
        with listening() as other:
            source.echo(source.create(), 1, "text", reply_to=other.url)
            assert len(other.soon(lambda: other.saying("echoResponse"))) == 1
        assert endpoint.most_at_a_time == 1
        endpoint.go_on.set()
        replies = endpoint.soon(lambda: endpoint.saying("echoResponse"), 32, seconds=20)
        assert len({one.to for one in replies}) == 32


@pytest.mark.spec("SEC-018")
@each_rm_at_length
def test_endpoints_of_a_stranger_that_hang_keep_no_partner_from_its_first_reply_nor_from_the_next(
    servers: Servers, endpoint: Endpoint, speak: Orders
) -> None:
    """Each of them is another endpoint, and takes connections for longer than anybody waits here."""
    with ExitStack() as silent, Source(servers(decoupled=ALLOWED, send_timeout=20), speak) as source:
        known = source.create(acks_to=endpoint.url)
        source.echo(known, 1, "one", reply_to=endpoint.url)
        endpoint.one("echoResponse")
        stranger = source.create()
        for number in range(1, 61):
            port = silent.enter_context(socket.create_server(("127.0.0.1", 0))).getsockname()[1]
            source.echo(stranger, number, "text", reply_to=f"http://127.0.0.1:{port}/")
        with listening() as new:
            source.echo(known, 2, "two", reply_to=endpoint.url)
            first = source.create(acks_to=new.url)
            source.echo(first, 1, "one", reply_to=new.url)
            source.put(first, 2)
            assert new.soon(lambda: new.saying("echoResponse"), seconds=5)
            assert new.acknowledged(first, (1, 2), seconds=5)
            assert len(endpoint.soon(lambda: endpoint.saying("echoResponse"), 2, seconds=5)) == 2


@pytest.mark.spec("SEC-018")
@each_rm_at_length
def test_who_has_answered_is_known_after_a_restart(servers: Servers, endpoint: Endpoint, speak: Orders) -> None:
    server = servers(decoupled=ALLOWED)
    with Source(server, speak) as source:
        source.echo(source.create(), 1, "one", reply_to=endpoint.url)
        endpoint.one("echoResponse")
        taken = "select 1 from entry join channel using (lane) where outcome = 'delivered' and address = ?"
        assert within(5, lambda: source.store.rows(taken, endpoint.url), bool)
    server.stop()
    server.start()
    endpoint.hang()
    with Source(server, speak) as source:
        identifier = source.create()
        for number in range(1, 5):
            source.echo(identifier, number, "text", reply_to=f"{endpoint.url}/{number}")
        assert within(5, lambda: endpoint.most_at_a_time, lambda most: most == 4) == 4
    endpoint.go_on.set()


@pytest.mark.spec("SEC-018", "H-007")
@each_rm
def test_what_could_not_be_tried_for_a_day_at_a_host_that_never_answered_is_a_dead_letter(
    servers: Servers, endpoint: Endpoint, speak: Orders
) -> None:
    server = servers(decoupled=ALLOWED, send_timeout=1.2, resend=[0.05] * 50)
    with Source(server, speak) as source:
        endpoint.hang()
        identifier = source.create()
        for number in range(1, 6):
            source.echo(identifier, number, "text", reply_to=f"{endpoint.url}/{number}")
        waits = "select count(*) from entry join channel using (lane) where address like ? and last_error is not null"
        within(5, lambda: source.store.rows(waits, f"{endpoint.url}/%"), lambda rows: rows[0][0] >= 4)
        server.set_clock(90_000)
        dead = "select reason, last_error from entry join channel using (lane) where outcome = 'dead'"
        rows = within(15, lambda: source.store.rows(dead), lambda found: len(found) >= 4)
        assert {reason for reason, _error in rows} == {"never_answered"}
        assert all("is left alone for" in error for _reason, error in rows)
    server.set_clock(0)
    endpoint.go_on.set()


@pytest.mark.spec("SEC-032", "H-007")
@each_rm_at_length
def test_what_waits_for_a_host_that_is_left_alone_keeps_its_attempts(
    servers: Servers, endpoint: Endpoint, speak: Orders
) -> None:
    """Two attempts are all that is granted, and the host hangs for longer: what was not tried is not given up."""
    with Source(servers(decoupled=ALLOWED, send_timeout=1.2, resend=[0.05]), speak) as source:
        endpoint.hang()
        identifier, count = source.create(), 6
        for number in range(1, count + 1):
            source.echo(identifier, number, "text", reply_to=f"{endpoint.url}/{number}")
        there = f"{endpoint.url}/%"
        failed = "select coalesce(sum(failures), 0) from entry join channel using (lane) where address like ?"
        [(failures,)] = within(10, lambda: source.store.rows(failed, there), lambda rows: rows[0][0] > 0)
        assert failures <= len(endpoint.requests), "none but what was sent has failed"
        waits = (
            "select s.identifier from entry e join channel c using (lane) join lane s on s.id = e.lane "
            "where c.address like ? and e.failures = 0 and e.outcome is null and e.last_error is not null"
        )
        waiting = within(10, lambda: source.store.rows(waits, there), bool)[0][0]
        explain = ["sequence", "explain", waiting, "--store", str(source.server.store)]

        def told() -> str:
            return " ".join(CliRunner().invoke(program, explain, prog_name="wsrm-mq").output.split())

        assert "is left alone for" in within(10, told, lambda text: "is left alone for" in text)
        endpoint.go_on.set()
        sent = "select count(*) from entry join channel using (lane) where outcome = 'delivered' and address like ?"
        assert within(20, lambda: source.store.rows(sent, there), lambda rows: rows == [(count,)]) == [(count,)]


@pytest.mark.spec("D-DUR-001", "H-007")
@each_rm_at_length
def test_what_one_process_could_not_send_another_one_sends_when_it_is_gone(
    tmp_path: Path, endpoint: Endpoint, speak: Orders
) -> None:
    one, other = (OrdersServer(tmp_path, decoupled=ALLOWED, resend=[0.2] * 30) for _ in range(2))
    one.start()
    other.start()
    with Source(one, speak) as source:
        identifier = created(source, endpoint)
        endpoint.answers = dict.fromkeys(range(200), (503, b""))
        source.echo(identifier, 1, "one", reply_to=endpoint.url)
        first = endpoint.one("echoResponse")
    one.kill()
    endpoint.answers = {}
    with Source(other, speak) as source:
        settled = "select outcome from entry where message = (select id from message where message_id = ?)"
        sent = within(10, lambda: source.store.rows(settled, first.message_id), lambda rows: rows == [("delivered",)])
        assert sent == [("delivered",)]
        assert len({one.message_id for one in endpoint.saying("echoResponse")}) == 1
        assert is_empty_202(source.put(identifier, 2))
        assert endpoint.acknowledged(identifier, (1, 2))
    other.stop()


@pytest.mark.spec("H-002", "S-TRM-004")
@in_1_0
def test_in_1_0_the_last_message_and_the_end_of_the_offered_sequence_are_sent_too(
    source: Source, endpoint: Endpoint, speak: Orders
) -> None:
    offered = uuid.uuid4().urn
    identifier = created(source, endpoint, offer=offered)
    source.echo(identifier, 1, "one", reply_to=endpoint.url)
    assert endpoint.one("echoResponse").sequence == Place(offered, 1)
    assert is_empty_202(source.post(speak.last_message(identifier, 2, message_id="urn:last:1")))
    last = endpoint.one("LastMessage")
    assert (last.sequence, last.body, last.to) == (Place(offered, 2, True), None, endpoint.url)
    source.post(speak.acknowledgement(offered, (1, 2)))
    assert is_empty_202(source.terminate(identifier, reply_to="none"))
    ended = endpoint.one("TerminateSequence")
    assert ended.body is not None
    assert (ended.body[0].text, ended.to) == (offered, endpoint.url)


def offering(source: Source, endpoint: Endpoint) -> tuple[str, str]:
    """A sequence, and the one that is offered with it for the endpoint."""
    offered = uuid.uuid4().urn
    return created(source, endpoint, offer=offered, offer_endpoint=endpoint.url), offered


def is_end_of(offered: str, last: str, ended: Reply) -> bool:
    assert ended.body is not None
    return [one.text for one in ended.body] == [offered, last]


@pytest.mark.spec("S-RET-013", "S-TRM-001", "S-TRM-003", "S-TRM-008")
@pytest.mark.parametrize("acknowledges_last", [True, False], ids=["acknowledged-last", "terminated-last"])
@in_1_1
def test_the_end_of_the_offered_sequence_is_sent_when_its_source_has_ended_and_acknowledged_all(
    acknowledges_last: bool, source: Source, endpoint: Endpoint
) -> None:
    identifier, offered = offering(source, endpoint)
    source.echo(identifier, 1, "one", reply_to=endpoint.url)
    endpoint.one("echoResponse")
    acts = [
        lambda: source.terminate(identifier, 1, reply_to=endpoint.url),
        lambda: source.post(source.speak.acknowledgement(offered, (1, 1))),
    ]
    first, second = acts if acknowledges_last else reversed(acts)
    assert is_empty_202(first())
    assert endpoint.saying("TerminateSequence") == []
    assert is_empty_202(second())
    ended = endpoint.one("TerminateSequence")
    assert is_end_of(offered, "1", ended)
    assert (ended.to, ended.relates_to) == (endpoint.url, None)
    assert is_empty_202(source.terminate(identifier, 1, reply_to=endpoint.url))
    assert is_empty_202(source.post(source.speak.acknowledgement(offered, (1, 1))))
    endpoint.soon(lambda: endpoint.saying("TerminateSequenceResponse"), 2)
    later = endpoint.soon(lambda: endpoint.saying("TerminateSequence"), 2, seconds=1)
    assert len(later) == 1, "it is told once"
    numbered = [one.sequence is not None for one in endpoint.received]
    ends = [one.action == ended.action for one in endpoint.received]
    assert not any(numbered[ends.index(True) :]), "nothing else of the sequence is sent"


@pytest.mark.spec("H-018", "S-TRM-001")
@pytest.mark.parametrize("place", ["", "/other"], ids=["one endpoint", "two endpoints"])
@in_1_1
def test_the_response_to_the_end_and_the_end_of_the_offered_sequence_leave_at_once(
    place: str, source: Source, endpoint: Endpoint
) -> None:
    """Both follow from one request, and both are in some hand: no run has broken off."""
    identifier, _offered = offering(source, endpoint)
    assert is_empty_202(source.terminate(identifier, reply_to=endpoint.url + place))
    endpoint.one("TerminateSequence")
    endpoint.one("TerminateSequenceResponse")
    there = "select entry.id from entry join channel using (lane) where address like ?"
    broke_off = f"select count(*) from ledger where event = 'broke_off' and position in ({there})"
    assert source.store.rows(broke_off, f"{endpoint.url}%") == [(0,)]


@pytest.mark.spec("S-TRM-003")
@in_1_1
def test_cxf_is_told_of_the_end_on_a_response(server: OrdersServer, speak: Orders, endpoint: Endpoint) -> None:
    """At its own endpoint it fails over it: a NullPointerException, and the sequence stays."""
    with Source(server, speak, fields=("User-Agent: Apache-CXF/4.1.5",)) as source:
        identifier, offered = offering(source, endpoint)
        source.echo(identifier, 1, "one", reply_to=endpoint.url)
        assert endpoint.one("echoResponse").sequence == Place(offered, 1)
        source.terminate(identifier, 1, reply_to=endpoint.url)
        ended = source.post(speak.acknowledgement(offered, (1, 1))).reply
        assert ended.action == speak.rm.action("TerminateSequence")
        assert is_end_of(offered, "1", ended)
        endpoint.one("TerminateSequenceResponse")
        assert endpoint.saying("TerminateSequence") == []


@pytest.mark.spec("D-TRM-010", "S-TRM-003")
@in_1_1
def test_the_offered_sequence_goes_on_until_what_came_before_the_end_is_done(
    source: Source, endpoint: Endpoint
) -> None:
    identifier, offered = offering(source, endpoint)
    gate = uuid.uuid4().hex
    source.echo(identifier, 1, f"gate={gate}", reply_to=endpoint.url)
    source.put(identifier, 2, f"gate={gate}2")
    source.terminate(identifier, 2, reply_to=endpoint.url)
    source.server.open_gate(gate)
    assert endpoint.one("echoResponse").sequence == Place(offered, 1)
    source.post(source.speak.acknowledgement(offered, (1, 1)))
    assert endpoint.saying("TerminateSequence") == []
    source.server.open_gate(f"{gate}2")
    assert is_end_of(offered, "1", endpoint.one("TerminateSequence"))


@pytest.mark.spec("S-TRM-003")
@in_1_1
def test_the_end_is_not_told_for_ever_to_one_that_is_gone(source: Source, endpoint: Endpoint) -> None:
    identifier, offered = offering(source, endpoint)
    source.echo(identifier, 1, "one", reply_to=endpoint.url)
    endpoint.one("echoResponse")
    source.post(source.speak.acknowledgement(offered, (1, 1)))
    endpoint.answers = dict.fromkeys(range(100), (503, b""))
    source.terminate(identifier, 1)
    about = "(select e.id from entry e join channel c using (lane) join lane s on s.id = c.answers"
    tries = f"select event, attempt, reason from ledger where position in {about} where s.identifier = ?) order by id"
    said = within(10, lambda: source.store.rows(tries, identifier), lambda rows: len(rows) >= 4)
    assert [(event, attempt) for event, attempt, _reason in said] == [
        *(("failed", attempt) for attempt in (1, 2, 3)),
        ("discarded", None),
    ]
    assert said[-1][2] == "not_told"


@pytest.mark.spec("H-007")
@in_1_1
def test_a_dead_letter_that_is_redriven_is_sent_as_the_message_that_it_was(
    servers: Servers, endpoint: Endpoint, speak: Orders
) -> None:
    """With the number that it has in the offered sequence."""
    offered = uuid.uuid4().urn
    with Source(servers(decoupled=ALLOWED, resend=[0.1]), speak) as source:
        identifier = created(source, endpoint, offer=offered, offer_endpoint=endpoint.url)
        source.echo(identifier, 1, "one", reply_to=endpoint.url)
        dead = "select entry.id from entry join channel using (lane) where address = ? and outcome = 'dead'"
        [(position,)] = within(10, lambda: source.store.rows(dead, endpoint.url), bool)
        before = endpoint.saying("echoResponse")
        redrive(source.server.store, [position], actor="test", reason="its endpoint is back")
        again = endpoint.soon(lambda: endpoint.saying("echoResponse"), len(before) + 1)
        assert len(again) == len(before) + 1
        assert (again[-1].message_id, again[-1].sequence) == (before[0].message_id, Place(offered, 1))
        outcome = "select outcome from entry where replay_of = ?"
        settled = within(10, lambda: source.store.rows(outcome, position), lambda rows: rows == [("delivered",)])
        assert settled == [("delivered",)]
