"""The HTTP form of a node's verbs, over a real server."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from tests.server.http.conftest import Answer, Http, Serve, queue
from wsrm_mq.errors import KeeperGone
from wsrm_mq.server.http.problems import problem_of

HttpOf = Callable[..., Http]


def settled(messages: list[dict[str, Any]], action: str = "ack", **options: Any) -> dict[str, Any]:
    return {
        "settlements": [
            {"position": one["position"], "lease": one["lease"], "action": action, **options} for one in messages
        ]
    }


def refused(answer: Answer, status: int, code: str) -> dict[str, Any]:
    """The problem that an answer is."""
    assert (answer.status, answer.headers["content-type"]) == (status, "application/problem+json"), answer
    problem: dict[str, Any] = answer.json()
    assert problem["code"] == code
    assert problem["detail"]
    assert problem["next_step"]
    assert problem["status"] == status
    return problem


def test_a_message_is_put_leased_and_settled(http: Http) -> None:
    put = http(
        "POST", queue("a/b", "/messages"), b"\x00\xff", {"type": "T", "properties": {"n": "ü"}}, Content_Type="a/b"
    )
    assert put.status == 201
    session = http.begin("w1")
    got = session("POST", queue("a/b", "/leases"))
    assert (got.status, got.body, got.headers["content-type"]) == (200, b"\x00\xff", "a/b")
    told = got.message()
    assert (told["position"], told["type"], told["properties"]) == (put.json()["position"], "T", {"n": "ü"})
    assert session("POST", queue("a/b", "/leases")).status == 204
    assert session("POST", "/settlements", settled([told])).json() == {"settlements": ["settled"]}
    assert session("POST", "/settlements", settled([told])).json() == {"settlements": ["already_settled"]}
    stats = http("GET", queue("a/b")).json()
    assert (stats["ready"], stats["leased"], stats["messages"]) == (0, 0, 0)
    assert session("GET", "/session").json()["leased"] == 0
    assert session("DELETE", "/session").status == 204
    refused(session("GET", "/session"), 410, "SessionEnded")


@pytest.mark.scenario("Q-002")
def test_many_are_put_in_one_commit_and_leased_together(http: Http) -> None:
    parts = [({"type": f"T{n % 3}"}, f"body {n}\r\n--".encode()) for n in range(100)]
    positions = http.several(queue("orders", "/messages"), parts).json()["positions"]
    assert positions == sorted(set(positions))
    found = (
        http("POST", queue("orders", "/leases?max=60")).parts() + http("POST", "/leases?queue=orders&max=60").parts()
    )
    assert [(one["position"], one["type"], body) for one, body in found] == [
        (position, said["type"], body) for position, (said, body) in zip(positions, parts, strict=True)
    ]
    assert (
        http("POST", "/settlements", settled([one for one, _body in found])).json()["settlements"] == ["settled"] * 100
    )


def test_of_a_batch_all_are_put_or_none(http: Http) -> None:
    http("PUT", queue("orders"), {"max_messages": 2})
    problem = refused(http.several(queue("orders", "/messages"), [({}, b"x")] * 3), 503, "QuotaExceeded")
    assert (problem["lasts"], problem["blocks"], problem["retry_after"]) == (False, False, 1.0)
    refused(
        http.several(queue("orders", "/messages"), [({}, b"x"), ({"priority": 77}, b"y")]), 400, "ConfigurationError"
    )
    assert http("GET", queue("orders")).json()["messages"] == 0


def test_messages_by_themselves_have_a_result_each(http: Http) -> None:
    http("PUT", queue("small"), {"max_bytes": 3})
    http("PUT", "/bindings", {"pattern": "db/#", "queue": "audit"})
    http("PUT", queue("audit"), {})
    http("PUT", "/bindings", {"pattern": "db/#", "queue": "audit"})
    answer = http.several(
        "/messages",
        [
            ({"queue": "orders"}, b"1"),
            ({"queue": "small"}, b"much too long"),
            ({"topic": "db/add"}, b"2"),
            ({"queue": "x", "topic": "y"}, b"3"),
            ({"queue": "orders", "unknown": 1}, b"4"),
        ],
    )
    one, two, three, four, five = answer.json()["results"]
    assert one["position"] > 0
    assert (two["problem"]["code"], two["problem"]["lasts"]) == ("QuotaExceeded", True)
    assert (three["queues"], three["position"] > 0) == (["audit"], True)
    assert four["problem"]["code"] == five["problem"]["code"] == "ConfigurationError"


@pytest.mark.scenario("Q-011")
def test_a_transaction_is_one_commit_of_puts_and_settlements(http: Http) -> None:
    session = http.begin()
    http("PUT", queue("done"), {})
    http.several(queue("orders", "/messages"), [({}, b"1"), ({}, b"2")])
    (one, _), (two, _) = session("POST", queue("orders", "/leases?max=2")).parts()
    acts: list[Any] = [
        ({"queue": "done"}, b"a"),
        ({"queue": "done"}, b"b"),
        *(({"Settlement": json.dumps(settled([each])["settlements"][0])}, b"") for each in (one, two)),
    ]
    session("POST", "/settlements", settled([two], "release"))
    refused(session.several("/transactions", acts), 409, "LeaseLost")
    assert http("GET", queue("done")).json()["messages"] == 0
    assert http("GET", queue("orders")).json()["leased"] == 1
    done = session.several("/transactions", acts[:3])
    assert done.status == 200
    assert [body for _told, body in http("GET", queue("done", "/messages")).parts()] == [b"a", b"b"]
    assert [told["position"] for told, _body in http("GET", queue("done", "/messages")).parts()] == done.json()[
        "positions"
    ]


def test_a_consumer_waits_and_gets_what_is_put(http: Http, http_of: HttpOf) -> None:
    http("PUT", queue("orders"), {})
    got: list[Answer] = []
    waiting = threading.Thread(target=lambda: got.append(http_of().begin()("POST", queue("orders", "/leases?wait=20"))))
    waiting.start()
    deadline = time.monotonic() + 20
    seen = http_of()
    while b"wsrm_queue_server_waiting 1\n" not in seen("GET", "/metrics").body:
        assert time.monotonic() < deadline
        time.sleep(0.02)
    refused(http_of("anna")("GET", "/metrics"), 404, "UnknownQueue")
    http("POST", queue("orders", "/messages"), b"x")
    waiting.join(20)
    assert (got[0].status, got[0].body) == (200, b"x")


def test_a_consumer_that_has_gone_while_it_waited_leases_nothing(http: Http, http_of: HttpOf) -> None:
    http("PUT", queue("orders"), {})
    gone = http_of().begin()
    gone.connection.request(
        "POST", queue("orders", "/leases?wait=20"), headers={"Authorization": "Bearer wsrm-mq-secret-of-root"}
    )
    time.sleep(0.3)
    gone.close()
    time.sleep(0.2)
    http("POST", queue("orders", "/messages"), b"x")
    time.sleep(0.2)
    assert http("GET", queue("orders")).json()["ready"] == 1


def test_what_was_leased_by_an_answer_that_did_not_come_goes_back_in_its_place(http: Http) -> None:
    session = http.begin()
    http.several(queue("orders", "/messages"), [({}, b"%d" % number) for number in range(4)])
    leases = queue("orders", "/leases?max=2")
    assert len(session("POST", leases, Request="1").parts()) == 2
    again = session("POST", leases, Request="2", Lost="1").parts()
    assert [(body, head["failures"]) for head, body in again] == [(b"0", 0), (b"1", 0)]
    assert [body for _head, body in session("POST", leases, Request="3").parts()] == [b"2", b"3"]
    assert session("GET", "/session", Lost="3, 2").json()["leased"] == 0
    assert session("POST", leases, Request="2").status == 204, "it came later than what says that it is lost"


def test_a_request_settles_and_brings_the_next_and_sent_again_it_settles_no_more(http: Http) -> None:
    session = http.begin()
    http.several(queue("orders", "/messages"), [({}, b"%d" % number) for number in range(6)])
    made = session("POST", "/subscriptions", {"queues": ["orders"], "max_backlog": 3}).json()
    leases = f"/subscriptions/{made['subscription']}/leases?max=3&wait=10"
    told: list[Any] = []
    while len(told) < 3:
        told += [head for head, _body in session("POST", leases).parts()]
    first = session("POST", leases, settled(told[:2]))
    assert first.headers["settled"] == "settled,settled"
    assert first.parts()[0][1] == b"3"
    wrong = [{**told[2], "lease": 99}]
    again = session("POST", leases.replace("10", "0"), settled([*told[:2], *wrong]))
    assert again.headers["settled"] == "already_settled,already_settled,lost"
    refused(session("POST", "/subscriptions/99/leases", settled(told[2:])), 404, "NotFound")
    assert session("GET", "/session").json()["leased"] >= 2, "what an unknown subscription was to settle is there"
    refused(session("POST", leases, settled(told * 34)), 400, "ConfigurationError")


def test_what_was_settled_is_told_though_taking_fails_as_the_session_ends(http: Http) -> None:
    session = http.begin()
    http("POST", queue("orders", "/messages"), b"0")
    made = session("POST", "/subscriptions", {"queues": ["orders"]}).json()
    leases = f"/subscriptions/{made['subscription']}/leases?max=3&wait=20"
    told = [head for head, _body in session("POST", leases).parts()]
    answers: list[Answer] = []
    waiting = Http(session.port, session.who, session.session)
    thread = threading.Thread(target=lambda: answers.append(waiting("POST", leases, settled(told))))
    thread.start()
    deadline = time.monotonic() + 20
    while session("GET", "/session").json()["leased"]:
        assert time.monotonic() < deadline
        time.sleep(0.02)
    assert session("DELETE", "/session").status == 204
    thread.join(20)
    assert [(one.status, one.headers["settled"]) for one in answers] == [(204, "settled")]
    waiting.close()


@pytest.mark.scenario("Q-080")
@pytest.mark.parametrize("subscribes", [True, False])
def test_a_barrier_of_an_answer_that_did_not_come_is_the_next_that_comes(http: Http, subscribes: bool) -> None:
    session = http.begin()
    http("PUT", queue("orders"), {"barrier": "type = 'end of day'"})
    http("POST", queue("orders", "/messages"), b"barrier", Message='{"type": "end of day"}')
    http.several(queue("orders", "/messages"), [({}, b"%d" % number) for number in range(4)])
    leases = queue("orders", "/leases?max=3&wait=10")
    if subscribes:
        made = session("POST", "/subscriptions", {"queues": ["orders"], "max_backlog": 4}).json()
        leases = f"/subscriptions/{made['subscription']}/leases?max=3&wait=10"
    assert session("POST", leases, Request="1").parts()[0][1] == b"barrier"
    for number in (2, 3):
        again = session("POST", leases, Request=str(number), Lost=str(number - 1)).parts()
        assert [body for _head, body in again] == [b"barrier"]
    found: list[bytes] = []
    while len(found) < 4:
        found += [body for _head, body in session("POST", leases, Request=str(4 + len(found))).parts()]
    assert found == [b"0", b"1", b"2", b"3"]


@pytest.mark.scenario("Q-080")
def test_barriers_of_answers_that_did_not_come_are_told_whatever_came_after_them(http: Http) -> None:
    session = http.begin()
    http("PUT", queue("orders"), {"barrier": "type = 'end of day'"})
    for body in (b"first", b"second", b"third"):
        http("POST", queue("orders", "/messages"), body, Message='{"type": "end of day"}')

    def received(number: int, **lost: str) -> list[bytes]:
        answer = session("POST", queue("orders", "/leases?max=1"), Request=str(number), **lost)
        return [body for _head, body in answer.parts()] if answer.status == 200 else []

    assert received(1) == [b"first", b"second", b"third"]
    assert received(2) == []
    again = received(3, Lost="1"), received(4, Lost="3"), received(5), received(6)
    assert again == ([b"first"], [b"first"], [b"second"], [b"third"])


def test_what_a_request_has_leased_that_a_proxy_sends_again_comes_again(http: Http) -> None:
    session = http.begin()
    http.several(queue("orders", "/messages"), [({}, b"%d" % number) for number in range(4)])
    leases = queue("orders", "/leases?max=2")
    for _ in range(2):
        assert [body for _head, body in session("POST", leases, Request="1").parts()] == [b"0", b"1"]
    assert [body for _head, body in session("POST", leases, Request="2").parts()] == [b"2", b"3"]


def test_a_request_that_waits_is_ended_when_its_client_waits_no_longer(http: Http) -> None:
    session = http.begin()
    http("PUT", queue("orders"), {})
    answers: list[Answer] = []
    wait = queue("orders", "/leases?max=1&wait=60")
    waiting = Http(session.port, session.who, session.session)
    thread = threading.Thread(target=lambda: answers.append(waiting("POST", wait, Request="7")))
    thread.start()
    deadline = time.monotonic() + 20
    while b"wsrm_queue_server_waiting 1\n" not in http("GET", "/metrics").body:
        assert time.monotonic() < deadline
        time.sleep(0.02)
    assert session("GET", "/session", Lost="7").status == 200
    thread.join(20)
    assert [one.status for one in answers] == [204]


@pytest.mark.parametrize(
    ("name", "value"), [("Request", "one"), ("Request", "-1"), ("Lost", "1,x"), ("Lost", "1," * 101)]
)
def test_a_number_of_a_request_is_one_and_of_a_session(http: Http, name: str, value: str) -> None:
    session = http.begin()
    http("PUT", queue("orders"), {})
    refused(session("POST", queue("orders", "/leases"), **{name: value}), 400, "BadRequest")
    refused(http("POST", queue("orders", "/leases"), **{name: "1"}), 400, "BadRequest")


def test_a_subscription_is_taken_from_replaced_and_ended(http: Http) -> None:
    session = http.begin("w1")
    http("PUT", queue("orders"), {"max_backlog": 3})
    made = session("POST", "/subscriptions", {"queues": ["orders"], "max_backlog": 9, "lease": 60})
    assert (made.status, made.json()["max_backlog"], made.json()["lease"]) == (201, 3, 60.0)
    key = made.json()["subscription"]
    http.several(queue("orders", "/messages"), [({"type": "ab"[n % 2]}, b"%d" % n) for n in range(6)])
    found: list[Any] = []
    while len(found) < 3:
        found += session("POST", f"/subscriptions/{key}/leases?max=5&wait=5").parts()
    assert [body for _told, body in found] == [b"0", b"1", b"2"]
    assert session("GET", f"/subscriptions/{key}?last=2").json() == {
        "last_missed": 6,
        "is_behind": False,
        "leased": [1, 2],
    }
    assert session("PATCH", f"/subscriptions/{key}", {"filter": "type = 'b'"}).status == 204
    session("POST", "/settlements", settled([told for told, _body in found]))
    more: list[Any] = []
    while len(more) < 2:
        more += session("POST", f"/subscriptions/{key}/leases?max=5&wait=5").parts()
    assert [body for _told, body in more] == [b"3", b"5"]
    (client,) = http("GET", "/clients").json()["clients"]
    assert (client["name"], client["queues"]) == ("w1", ["orders"])
    assert session("DELETE", f"/subscriptions/{key}").status == 204
    refused(session("POST", f"/subscriptions/{key}/leases"), 404, "NotFound")
    assert http("GET", queue("orders")).json()["ready"] == 3


@pytest.mark.scenario("Q-025")
def test_a_durable_subscription_collects_while_no_one_is_there(http: Http) -> None:
    assert http("PUT", "/durable/n", {"topic": "db/#", "client": "w1"}).json() == {"queue": "w1/n"}
    for number in range(3):
        assert http("POST", "/topics/db%2Fadd/messages", b"%d" % number).json()["queues"] == ["w1/n"]
    session = http.begin("w1")
    made = session("POST", "/subscriptions", {"topic": "db/#", "name": "n", "max_backlog": 10}).json()
    assert made["queues"] == ["w1/n"]
    found = session("POST", f"/subscriptions/{made['subscription']}/leases?max=10&wait=5").parts()
    assert [(body, told["topic"]) for told, body in found] == [(b"%d" % n, "db/add") for n in range(3)]
    session("DELETE", "/session")
    assert http("DELETE", "/durable/n?client=w1").json() == {"settled": 3, "skipped": 0}
    refused(http("POST", "/topics/db%2Fadd/messages?mandatory=true", b"x"), 404, "Unrouted")


def test_queues_are_declared_looked_into_purged_and_deleted(http: Http) -> None:
    policy = http("PUT", queue("orders"), {"lease": 5, "max_failures": 1})
    assert (policy.status, policy.json()["lease"], policy.json()["access"]) == (200, 5.0, "shared")
    assert http("GET", queue("orders", "/policy")).json() == policy.json()
    positions = http.several(queue("orders", "/messages"), [({"type": "T"}, b"%d" % n) for n in range(5)]).json()[
        "positions"
    ]
    peeked = http("GET", queue("orders", f"/messages?after={positions[0]}&limit=2&filter=type%20%3D%20'T'")).parts()
    assert [(told["position"], told["state"], told["lease"]) for told, _body in peeked] == [
        (position, "ready", None) for position in positions[1:3]
    ]
    one = http("GET", queue("orders", f"/messages/{positions[4]}"))
    assert (one.body, one.message()["position"]) == (b"4", positions[4])
    assert http("GET", queue("orders", "/ready")).json() == {"ready": 5}
    purged = http("DELETE", queue("orders", f"/messages?lower={positions[0]}&upper={positions[1]}"))
    assert purged.json() == {"settled": 2, "skipped": 0}
    assert http("POST", queue("orders", "/acknowledgements"), {"position": positions[2]}).json() == {
        "settlement": "settled"
    }
    many = {"positions": [positions[2], positions[-1] + 9]}
    assert http("POST", queue("orders", "/acknowledgements"), many).json() == {
        "settlements": ["already_settled", "unknown"]
    }
    told = http("POST", queue("orders", "/leases")).message()
    http("POST", "/settlements", settled([told], "nack", reason="broken"))
    assert http("GET", "/dead/orders").json() == {"queue": "orders#dead"}
    ((letter, _body),) = http("GET", queue("orders#dead", "/messages")).parts()
    assert (letter["last_error"], letter["reason"]) == ("broken", "max_failures")
    assert http("POST", "/dead/orders/redrive", {"positions": [letter["position"]]}).json() == {"count": 1}
    assert (
        http("POST", queue("orders", "/settlements"), {"filter": "type = 'T'", "action": "reject"}).json()["settled"]
        == 2
    )
    assert http("POST", "/dead/orders/discard", {}).json() == {"count": 2}
    assert http("GET", "/queues").json() == {"queues": ["orders"]}
    assert http("DELETE", queue("orders", "?if_empty=true")).json() == {"settled": 0, "skipped": 0}
    refused(http("GET", queue("orders")), 404, "UnknownQueue")


def test_journals_and_what_is_retained_are_looked_at(http: Http) -> None:
    http("PUT", queue("orders"), {"journal": True})
    http("POST", queue("orders", "/messages"), b"x")
    assert http("GET", "/journals/orders").json() == {"queue": "orders#journal"}
    http("POST", "/settlements", settled([http("POST", queue("orders", "/leases")).message()]))
    ((told, body),) = http("GET", "/journals/orders/messages").parts()
    assert (body, told["of"]["queue"], told["of"]["outcome"]) == (b"x", "orders", "delivered")
    assert http("POST", "/journals/orders/leases").message()["of"]["outcome"] == "delivered"
    assert http("GET", "/journal").json() == {"queue": "#journal"}
    assert http("GET", "/journal/messages").status == 204
    assert http("PUT", "/topics/db%2F%23", {"retain": 60}).status == 204
    position = http("POST", "/topics/db%2Fadd/messages", b"1").json()["position"]
    http("POST", "/topics/db%2Fadd/messages", b"2")
    assert [body for _told, body in http("GET", "/topics/db%2F%23/messages").parts()] == [b"1", b"2"]
    assert [body for _told, body in http("GET", f"/topics/db%2F*/messages?position={position + 1}").parts()] == [b"2"]
    ((event),) = http("GET", "/buckets/db/events").json()["events"]
    assert (event["name"], event["messages"]) == ("add", 2)


@pytest.mark.parametrize(
    ("method", "where", "body", "status", "code"),
    [
        ("GET", "/nowhere", None, 404, "UnknownPath"),
        ("POST", "/queues/a/messages/", b"x", 404, "UnknownPath"),
        ("PATCH", "/queues", None, 405, "UnknownMethod"),
        ("GET", "/queues/none", None, 404, "UnknownQueue"),
        ("GET", "/queues/%FF", None, 400, "BadRequest"),
        ("POST", "/queues/a/leases?max=0", None, 400, "ConfigurationError"),
        ("POST", "/queues/a/leases?wait=nan", None, 400, "ConfigurationError"),
        ("POST", "/queues/a/leases?max=1&max=2", None, 400, "ConfigurationError"),
        ("POST", "/queues/a/leases?filter=((", None, 400, "FilterError"),
        ("POST", "/queues/a/leases?nothing=1", None, 400, "ConfigurationError"),
        ("POST", "/queues/a/leases", b"x", 413, "TooLarge"),
        ("POST", "/settlements", b"{", 400, "ConfigurationError"),
        ("POST", "/settlements", b"[" * 50_000, 400, "ConfigurationError"),
        ("POST", "/settlements", {"settlements": [{"position": 1}]}, 400, "ConfigurationError"),
        ("PUT", "/queues/a", {"unknown": 1}, 400, "ConfigurationError"),
        ("PUT", "/queues/a%23b", {}, 400, "ConfigurationError"),
        ("POST", "/messages", b"x", 400, "BadRequest"),
        ("POST", "/subscriptions", {"queues": ["a"]}, 400, "BadRequest"),
        ("POST", "/topics/a%2F%2Fb/messages", b"x", 400, "ConfigurationError"),
        ("GET", "/queues/a/messages/x", None, 400, "BadRequest"),
        ("GET", "/queues/a/messages/99", None, 404, "NotFound"),
    ],
)
def test_what_is_wrong_is_a_problem_with_its_next_step(
    http: Http, method: str, where: str, body: Any, status: int, code: str
) -> None:
    http("PUT", queue("a"), {})
    refused(http(method, where, body), status, code)


def test_that_no_process_keeps_express_messages_is_a_problem_with_its_next_step() -> None:
    problem = problem_of(KeeperGone("No process keeps the express messages of ticks."))
    assert (problem.status, "declared as express again" in problem.next_step) == (503, True)


def test_a_header_that_is_no_json_is_a_problem(http: Http) -> None:
    for header in ("{", '{"priority": "x"}', '{"type": "\xff"}', "[" * 5_000):
        answer = http("POST", queue("a", "/messages"), b"x", Message=header)
        assert "Message" in refused(answer, 400, "ConfigurationError")["detail"]


def test_who_has_no_right_learns_nothing(http: Http, http_of: HttpOf) -> None:
    http("POST", queue("boris-orders", "/messages"), b"secret")
    anna = http_of("anna")
    there = [
        anna("GET", queue("boris-orders")),
        anna("POST", queue("boris-orders", "/leases?wait=1")),
        anna("POST", queue("boris-orders", "/messages"), b"x"),
        anna("PUT", queue("boris-orders"), {}),
    ]
    for answer in there:
        refused(answer, 404, "UnknownQueue")
    absent = anna("GET", queue("boris-nothing"))
    assert absent.body.replace(b"boris-nothing", b"boris-orders") == there[0].body
    assert anna("GET", "/queues").json() == {"queues": []}
    assert anna("GET", "/clients").json() == {"clients": []}
    refused(anna("POST", "/topics/boris%2Fx/messages", b"x"), 403, "RightMissing")
    refused(anna("POST", queue("anna-own", "/messages"), b"x", {"report_to": "boris-orders"}), 404, "UnknownQueue")
    refused(anna("PUT", "/durable/n", {"topic": "anna/#", "client": "boris"}), 404, "UnknownQueue")
    assert anna("POST", queue("anna-own", "/messages"), b"x").status == 201


def test_nothing_is_served_without_credentials(http_of: HttpOf) -> None:
    for who in (None, "wrong"):
        answer = http_of(who)("GET", "/queues")
        refused(answer, 401, "NotAuthenticated")
        assert answer.headers["www-authenticate"].startswith("Bearer")


def test_a_lease_is_of_the_session_that_has_it(http: Http, http_of: HttpOf) -> None:
    http("POST", queue("anna-orders", "/messages"), b"x")
    anna = http_of("anna").begin()
    told = anna("POST", queue("anna-orders", "/leases")).message()
    stolen = http_of("boris").begin()
    assert stolen("POST", "/settlements", settled([told])).json() == {"settlements": ["lost"]}
    refused(Http(http.port, "boris", anna.session)("POST", "/settlements", settled([told])), 410, "SessionEnded")
    assert anna("POST", "/settlements", settled([told])).json() == {"settlements": ["settled"]}


def test_a_content_type_of_a_message_adds_no_header(serve: Serve) -> None:
    served = serve()
    served.node.declare("orders")
    served.node.put("orders", b"x", content_type="a/b\r\nSet-Cookie: x=1")
    got = served.http()("POST", queue("orders", "/leases"))
    assert "set-cookie" not in got.headers
    assert got.message()["content_type"] == "a/b\r\nSet-Cookie: x=1"


def test_a_put_waits_for_room_where_its_queue_says_so(http: Http, http_of: HttpOf) -> None:
    http("PUT", queue("orders"), {"max_messages": 1, "overflow": "block"})
    http("POST", queue("orders", "/messages"), b"1")
    problem = refused(http("POST", queue("orders", "/messages"), b"2"), 503, "QuotaExceeded")
    assert problem["blocks"] is True
    got: list[Answer] = []
    waiting = threading.Thread(
        target=lambda: got.append(http_of()("POST", queue("orders", "/messages?timeout=20"), b"2"))
    )
    waiting.start()
    time.sleep(0.3)
    assert not got
    http("POST", "/settlements", settled([http("POST", queue("orders", "/leases")).message()]))
    waiting.join(20)
    assert got[0].status == 201
