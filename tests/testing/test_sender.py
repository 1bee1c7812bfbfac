"""The RM Source that is given to others: over each wire, on a bad line, and as its page shows it."""

from __future__ import annotations

import inspect
import textwrap
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer

import pytest
from lxml import etree

from tests.support.in_process import until
from wsrm_mq import WSRMMiddleware, testing
from wsrm_mq.asgi import WSRMASGIMiddleware
from wsrm_mq.testing import (
    WSA_2004,
    WSRM_1_0,
    ASGIWire,
    EnvelopeFactory,
    HTTPAnswer,
    HTTPWire,
    Lifespan,
    Line,
    LossyWire,
    Operation,
    Refused,
    Reply,
    RMSender,
    SOAPVersion,
    Unacknowledged,
    Undelivered,
    Wire,
    WSGIWire,
    shuffled_windows,
)

LAST = 40
ECHO = '<e:echo xmlns:e="urn:example"/>'


class Service:
    """Notes the numbers of its calls, and answers with what it was sent."""

    def __init__(self) -> None:
        self.calls: list[int] = []

    def __call__(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> list[bytes]:
        body = environ["wsgi.input"].read()
        self.calls.append(environ["wsrm.message_number"])
        start_response("200 OK", [("Content-Type", environ["CONTENT_TYPE"])])
        return [body]


@pytest.fixture
def service() -> Service:
    return Service()


@pytest.fixture(params=["wsgi", "asgi", "http"])
def connect(request: pytest.FixtureRequest, tmp_path: Path, service: Service) -> Iterator[Callable[[], Wire]]:
    """Opens a wire to the service behind the middleware."""
    options: dict[str, Any] = {"one_way": ["urn:example:orders/put"]}
    if request.param == "asgi":
        asgi = WSRMASGIMiddleware(service, tmp_path / "store.db", **options)
        yield lambda: ASGIWire(asgi, "/orders")
        assert asgi.close(10)
        return
    wsgi = WSRMMiddleware(service, tmp_path / "store.db", **options)
    if request.param == "wsgi":
        yield lambda: WSGIWire(wsgi, "/orders")
    else:
        with Served(wsgi) as port:
            yield lambda: HTTPWire(port, "/orders")
    assert wsgi.close(10)


class Served:
    """``wsgiref``, with a request a connection."""

    def __init__(self, app: Any) -> None:
        self._server = WSGIServer(("127.0.0.1", 0), Quiet)
        self._server.set_app(app)
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01})

    def __enter__(self) -> int:
        self._thread.start()
        return self._server.server_port

    def __exit__(self, *_exception: object) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


class Quiet(WSGIRequestHandler):
    def log_message(self, format: str, *args: Any) -> None:
        """Tell nothing."""


def test_numbers_in_any_order_are_acknowledged_and_delivered_in_order(
    connect: Callable[[], Wire], service: Service
) -> None:
    with RMSender(connect, expires="PT1H") as sender:
        for number in (3, 1):
            sender.send(number)
        assert sender.acknowledged == {1, 3}
        with sender.another() as other:
            assert other.send(2).acked == [(1, 3)]
        assert sender.acknowledged == {1, 2, 3}
        assert sender.ask().acked == [(1, 3)]
        assert until(lambda: service.calls == [1, 2, 3])
        assert sender.close(3).reply.ack.final
        assert sender.terminate(3).fault is None
    with pytest.raises(Refused, match="HTTP 500, UnknownSequence: "):
        sender.send(4)


def test_a_request_that_wants_an_answer_gets_it_and_so_does_its_resend(
    connect: Callable[[], Wire], service: Service
) -> None:
    with RMSender(connect) as sender:
        envelope = sender.message(1, ECHO, action="urn:example/echo", reply_to="")
        first, again = sender.post(envelope), sender.post(envelope)
        assert first.reply.body_name == again.reply.body_name == "echo"
        assert service.calls == [1]
        assert sender.acknowledged == {1}


def test_a_bad_line_loses_repeats_and_swaps_nothing(connect: Callable[[], Wire], service: Service) -> None:
    line = Line(loss=0.3, duplicates=0.2, delay=0.005, seed=5)
    with RMSender(lambda: LossyWire(connect(), line)) as sender:
        sender.send_all(shuffled_windows(LAST, 8, 5), connections=3, resend=0.02)
        assert sender.acknowledged == set(range(1, LAST + 1))
        assert until(lambda: len(service.calls) >= LAST)
        assert sender.terminate(LAST).fault is None
    assert service.calls == list(range(1, LAST + 1))
    traffic = line.traffic
    assert traffic.transmissions > LAST
    assert min(traffic.requests_lost, traffic.answers_lost, traffic.duplicates) > 0


@pytest.mark.peer("P-14")
def test_a_bad_line_loses_repeats_and_swaps_no_reply_in_the_offered_sequence(
    connect: Callable[[], Wire], service: Service
) -> None:
    line = Line(loss=0.3, duplicates=0.2, seed=5)
    last = 15
    with RMSender(lambda: LossyWire(connect(), line), offer="urn:uuid:0ffe4ed0-0000-4000-8000-000000000002") as sender:
        for number in range(1, last + 1):
            while number not in sender.replies:
                options = {"action": "urn:example/echo", "reply_to": "", "message_id": f"urn:request:{number}"}
                with suppress(OSError):
                    sender.post(sender.message(number, ECHO, **options))
        assert [Reply.parse(body).relates_to for _number, body in sorted(sender.replies.items())] == [
            f"urn:request:{number}" for number in range(1, last + 1)
        ]
    assert service.calls == list(range(1, last + 1))
    assert min(line.traffic.requests_lost, line.traffic.answers_lost, line.traffic.duplicates) > 0


class Deaf:
    """Answers that it has no time."""

    def __init__(self, *statuses: int) -> None:
        self.posted: list[bytes] = []
        self._statuses = list(statuses)

    def post(self, body: bytes, fields: object) -> HTTPAnswer:
        self.posted.append(body)
        return HTTPAnswer(self._statuses.pop(0) if len(self._statuses) > 1 else self._statuses[0], {}, b"")

    def post_half(self, body: bytes, fields: object) -> None:
        self.posted.append(body[: len(body) // 2])

    def close(self) -> None:
        pass


def test_what_is_not_acknowledged_in_time_is_told_and_was_the_same_message_each_time() -> None:
    wire = Deaf(503)
    with pytest.raises(Unacknowledged):
        RMSender(lambda: wire, identifier="urn:a").send_until_acknowledged(1, seconds=0.1)
    assert len(wire.posted) > 1
    assert len(set(wire.posted)) == 1


def test_a_refusal_ends_all_threads_and_is_told() -> None:
    wire = Deaf(503, 503, 500)
    with pytest.raises(Refused, match="500"):
        RMSender(lambda: wire, identifier="urn:a").send_all(range(1, 10), connections=3, resend=0.01)
    assert len(wire.posted) < 10


def test_a_sender_that_is_told_to_stop_stops() -> None:
    wire, stop = Deaf(503), threading.Event()
    threading.Timer(0.1, stop.set).start()
    RMSender(lambda: wire, identifier="urn:a").send_all([1], stop=stop, resend=0.01)
    assert wire.posted


def test_the_page_of_the_package_shows_what_works(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    service = Service()
    application = WSRMMiddleware(service, "wsrm.db", one_way=["urn:example:orders/put"])
    shown = inspect.getdoc(testing) or ""
    code = textwrap.dedent(shown.partition("::\n")[2].partition("\n\n``")[0])
    assert 5 < len(code.strip().splitlines()) <= 12
    exec(code, {**vars(testing), "application": application})
    assert until(lambda: len(service.calls) == 52)
    assert application.close(10)


# the user's own service


class Orders:
    """Answers ``count``; ``put`` has no answer, and ``bad`` is refused with a fault."""

    def __init__(self) -> None:
        self.seen: list[tuple[str | None, str]] = []

    def __call__(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> list[bytes]:
        body = Reply.parse(environ["wsgi.input"].read()).body
        self.seen.append((environ.get("HTTP_SOAPACTION"), etree.tostring(body, method="c14n", exclusive=True).decode()))
        name = etree.QName(body).localname
        if name == "broken":
            raise OSError("the database is away")
        fault = "<s:Fault><faultcode>s:Client</faultcode><faultstring>no such product</faultstring></s:Fault>"
        said = {"put": "", "bad": fault, "count": "<countResponse>7</countResponse>"}[name]
        envelope = (
            f'<s:Envelope xmlns:s="{SOAPVersion.SOAP_1_1.namespace}"><s:Body>{said}</s:Body></s:Envelope>'.encode()
        )
        start_response("500 no" if said is fault else "200 OK", [("Content-Type", "text/xml")])
        return [envelope]


SPEAK = EnvelopeFactory(rm=WSRM_1_0, soap=SOAPVersion.SOAP_1_1, addressing=WSA_2004)
URN = "{urn:my:shop}"


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[tuple[Orders, RMSender[WSGIWire]]]:
    orders = Orders()
    options: dict[str, Any] = {"one_way": [f"{URN}{name}" for name in ("put", "bad", "broken")], "retry": []}
    with WSRMMiddleware(orders, tmp_path / "wsrm.db", **options) as application:
        yield orders, RMSender(lambda: WSGIWire(application), SPEAK)


def test_an_operation_of_one_s_own_is_sent_in_soap_1_1_with_its_action(
    shop: tuple[Orders, RMSender[WSGIWire]], tmp_path: Path
) -> None:
    orders, sender = shop
    seats = [{"row": 1}, {"row": 2, "window": True}]
    sender.send(1, Operation(f"{URN}put", text="Grüße & <mehr>", seat=seats, note=None))
    sender.wait_until_delivered(tmp_path / "wsrm.db")
    assert sender.call(2, Operation(f"{URN}count"), action="urn:my:shop#count").body.text == "7"
    put = (
        '<put xmlns="urn:my:shop"><text>Grüße &amp; &lt;mehr&gt;</text>'
        "<seat><row>1</row></seat><seat><row>2</row><window>true</window></seat></put>"
    )
    count = '<count xmlns="urn:my:shop"></count>'
    assert orders.seen == [('"urn:my:shop/put"', put), ('"urn:my:shop#count"', count)]


@pytest.mark.parametrize(
    ("numbers", "operation", "why"),
    [
        ([1], "broken", "blocked.*the database is away|stopped the sequence.*the database is away"),
        ([1], "bad", "no such product"),
        ([2], "put", "number 2: held, gap"),
    ],
)
def test_what_is_acknowledged_and_not_delivered_is_told_with_the_reason(
    shop: tuple[Orders, RMSender[WSGIWire]], tmp_path: Path, numbers: list[int], operation: str, why: str
) -> None:
    _orders, sender = shop
    for number in numbers:
        sender.send(number, Operation(f"{URN}{operation}"))
    assert sender.acknowledged == set(numbers)
    with pytest.raises(Undelivered, match=why):
        sender.wait_until_delivered(tmp_path / "wsrm.db", seconds=0.5 if operation == "put" else 20)


def test_a_request_is_sent_until_its_reply_is_there() -> None:
    wire = Deaf(503)
    with pytest.raises(Unacknowledged):
        RMSender(lambda: wire, identifier="urn:a").call(1, seconds=0.1)
    assert len(wire.posted) > 1


class Living:
    """An ASGI application that notes what it is told; ``fails`` to start."""

    def __init__(self, fails: bool = False) -> None:
        self.told: list[str] = []
        self._fails = fails

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        while scope["type"] == "lifespan":
            message = await receive()
            self.told.append(message["type"])
            scope["state"]["database"] = "open"
            how = {"type": f"{message['type']}.failed", "message": "no database"} if self._fails else {}
            await send(how or {"type": f"{message['type']}.complete"})
            if how or message["type"] == "lifespan.shutdown":
                return


def test_the_lifespan_of_an_asgi_application_is_run() -> None:
    app = Living()
    with Lifespan(app) as lifespan:
        assert app.told == ["lifespan.startup"]
        assert lifespan.state == {"database": "open"}
    assert app.told == ["lifespan.startup", "lifespan.shutdown"]
    with pytest.raises(RuntimeError, match="startup: no database"):
        Lifespan(Living(fails=True)).__enter__()


def test_an_application_that_knows_no_lifespan_is_left_as_it_is() -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        assert scope["type"] == "http"

    with Lifespan(app):
        pass


def test_the_lifespan_starts_and_drains_the_middleware(tmp_path: Path, service: Service) -> None:
    application = WSRMASGIMiddleware(service, tmp_path / "wsrm.db", one_way=["urn:example:orders/put"])
    with Lifespan(application):
        sender = RMSender(lambda: ASGIWire(application))
        sender.send(1)
        sender.wait_until_delivered(tmp_path / "wsrm.db")
    assert service.calls == [1]
    with pytest.raises(Refused, match="503"):
        RMSender(lambda: ASGIWire(application))


def test_every_public_name_is_there() -> None:
    assert {"Ack", "Created", "EnvelopeFactory", "FRESH", "ManualClock", "Reply", "ReplyFault"} <= set(testing.__all__)
    assert all(hasattr(testing, name) for name in testing.__all__)
    assert EnvelopeFactory().having(to=None).to is None
