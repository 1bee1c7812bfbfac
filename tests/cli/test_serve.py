"""`serve`: a service made reliable from the command line, and an end that loses nothing."""

from __future__ import annotations

import http.client
import json
import os
import re
import resource
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tests.cli.conftest import Shell
from tests.support.commands import Wsrm, document
from tests.support.serve_command import APPLICATION, SOURCE, Serve, Served, eventually
from wsrm_mq.cli.output import Stopped
from wsrm_mq.cli.serve import Listener, serving
from wsrm_mq.config import Settings
from wsrm_mq.config.loading import read
from wsrm_mq.testing import Reply

# serving


def test_a_service_is_made_reliable_by_one_command(serve: Serve, wsrm: Wsrm) -> None:
    served = serve("shop:app", "--port", "0", "--store", "shop.db")
    identifier = served.create()
    answer = served.post(SOURCE.message(identifier, 1))
    assert answer.status == 200
    assert Reply.parse(answer.read()).ack.ranges == ((1, 1),)
    assert eventually(lambda: served.calls() == ["begin", "end"])
    (found,) = document(wsrm("sequence", "list", "--json", "--store", "shop.db"))["sequences"]
    assert (found["identifier"], found["queue"]) == (identifier, "/orders")


def test_each_keep_alive_connection_is_recorded_as_one(serve: Serve, wsrm: Wsrm) -> None:
    served = serve("shop:app", "--port", "0")
    identifier = served.create()
    where = urlsplit(served.url)
    for numbers in ((1, 2), (3,)):
        kept = http.client.HTTPConnection(where.hostname or "", where.port, timeout=60)
        for number in numbers:
            message = SOURCE.message(identifier, number, reply_to="none")
            kept.request("POST", "/orders", message, {"Content-Type": SOURCE.content_type})
            assert kept.getresponse().read()
        kept.close()
    assert eventually(lambda: served.calls().count("end") == 3)
    found = document(wsrm("connection", "list", "--json"))["connections"]
    assert sorted(one["messages"] for one in found) == [1, 2]
    assert all(re.fullmatch(r"127\.0\.0\.1:\d+/\w+", one["name"]) for one in found), "a port that comes back is another"


def test_the_file_and_the_environment_say_what_is_served(
    serve: Serve, somewhere: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (somewhere / "wsrm-mq.toml").write_text('app = "shop:app"\nport = 0\npaths = ["/orders"]\n')
    monkeypatch.setenv("WSRM_MQ_STORE", "env.db")
    served = serve()
    assert Reply.parse(served.post(SOURCE.create_sequence()).read()).created is not None
    assert Reply.parse(served.post(SOURCE.create_sequence(), "/other").read()).created is None
    assert (somewhere / "env.db").exists()


def test_an_application_that_is_wrapped_already_is_served_as_it_is(serve: Serve, somewhere: Path) -> None:
    (somewhere / "wrapped.py").write_text(
        "from shop import app as plain\n"
        "from wsrm_mq.wsgi import WSRMMiddleware\n"
        "app = WSRMMiddleware(plain, store='own.db')\n"
        "class Flask:\n"
        "    wsgi_app = app\n"
        "    def __call__(self, environ, start_response):\n"
        "        return self.wsgi_app(environ, start_response)\n"
        "flask = Flask()\n"
    )
    for name in ("app", "flask"):
        served = serve(f"wrapped:{name}", "--port", "0", "--store", "other.db")
        assert served.create()
        status, said = served.end(signal.SIGTERM)
        assert status == 0
        assert "wrapped already; the options it was given hold, and --store changes nothing." in said
    assert (somewhere / "own.db").exists()
    assert not (somewhere / "other.db").exists()


ASGI_APPLICATION = """
import asyncio, json, os

def note(word):
    with open("calls", "a") as calls:
        calls.write(word + "\\n")

async def app(scope, receive, send):
    if scope["type"] == "lifespan":
        await receive()
        if os.path.exists("fail"):
            raise RuntimeError("no soap today")
        note("starts")
        await send({"type": "lifespan.startup.complete"})
        await receive()
        note("stops")
        await send({"type": "lifespan.shutdown.complete"})
        return
    while (await receive()).get("more_body"):
        pass
    if scope["method"] == "GET":  # it has no WSDL
        await send({"type": "http.response.start", "status": 404, "headers": [(b"content-length", b"0")]})
        return await send({"type": "http.response.body", "body": b""})
    note("begin")
    while os.path.exists("wait"):
        await asyncio.sleep(0.01)
    note("end")
    body = b"<s:Envelope xmlns:s='http://www.w3.org/2003/05/soap-envelope'><s:Body><done/></s:Body></s:Envelope>"
    headers = [(b"content-type", b"application/soap+xml"), (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": body})
"""


@pytest.mark.parametrize("reply_to", ["", "none"], ids=["two-way", "one-way"])
def test_an_asgi_application_is_served_and_what_it_runs_is_finished_before_it_stops(
    serve: Serve, somewhere: Path, reply_to: str
) -> None:
    (somewhere / "asgi_shop.py").write_text(ASGI_APPLICATION)
    served = serve("asgi_shop:app", "--port", "0")
    identifier = served.create()
    (somewhere / "wait").touch()
    answers: list[int] = []
    message = SOURCE.message(identifier, 1, reply_to=reply_to)
    sender = threading.Thread(target=lambda: answers.append(served.post(message).status))
    sender.start()
    assert eventually(lambda: served.calls() == ["starts", "begin"])
    served.process.send_signal(signal.SIGTERM)
    time.sleep(0.3)
    (somewhere / "wait").unlink()
    _, said = served.process.communicate(timeout=60)
    sender.join()
    assert (served.process.returncode, answers) == (0, [200]), said
    assert served.calls() == ["starts", "begin", "end", "stops"]


def test_an_asgi_application_that_is_wrapped_already_is_served_as_it_is(serve: Serve, somewhere: Path) -> None:
    (somewhere / "asgi_shop.py").write_text(
        ASGI_APPLICATION
        + "\nfrom wsrm_mq.asgi import WSRMASGIMiddleware\napp = WSRMASGIMiddleware(app, store='own.db')\n"
    )
    served = serve("asgi_shop:app", "--port", "0", "--store", "other.db")
    assert served.create()
    status, said = served.end(signal.SIGTERM)
    assert (status, "wrapped already" in said) == (0, True)
    assert served.calls() == ["starts", "stops"]
    assert not (somewhere / "other.db").exists()


def test_an_address_with_colons_is_shown_as_a_url(serve: Serve) -> None:
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        pytest.skip("needs the IPv6 loopback address")
    served = serve("shop:app", "--port", "0", "--host", "::1")
    assert served.url.startswith("http://[::1]:")
    assert served.create()


def test_a_body_over_the_limit_is_refused(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WSRM_MQ_MAX_BODY", "5000")
    served = serve("shop:app", "--port", "0")
    assert served.post(b"x" * 5001).status == 413


# stopping


@pytest.mark.parametrize(("number", "status"), [(signal.SIGTERM, 0), (signal.SIGINT, 130)])
def test_a_signal_stops_it_at_once_when_nothing_runs(serve: Serve, number: int, status: int) -> None:
    served = serve("shop:app", "--port", "0")
    begun = time.monotonic()
    assert served.end(number)[0] == status
    assert time.monotonic() - begun < 20
    with pytest.raises(ConnectionRefusedError):
        served.create()


@pytest.mark.parametrize("reply_to", ["", "none"], ids=["two-way", "one-way"])
def test_what_runs_is_finished_and_answered_before_the_end(
    serve: Serve, somewhere: Path, wsrm: Wsrm, reply_to: str
) -> None:
    served = serve("shop:app", "--port", "0")
    identifier = served.create()
    (somewhere / "wait").touch()
    answers: list[int] = []
    message = SOURCE.message(identifier, 1, reply_to=reply_to)
    sender = threading.Thread(target=lambda: answers.append(served.post(message).status))
    sender.start()
    assert eventually(lambda: served.calls() == ["begin"])
    served.process.send_signal(signal.SIGTERM)
    time.sleep(0.3)
    assert served.process.poll() is None
    (somewhere / "wait").unlink()
    _, said = served.process.communicate(timeout=60)
    sender.join()
    assert (served.process.returncode, answers) == (0, [200]), said
    assert served.calls() == ["begin", "end"]
    (message_,) = document(wsrm("message", "list", "--json"))["messages"]
    assert message_["state"] == "delivered"
    assert document(wsrm("store", "info", "--json"))["instances"] == []
    assert wsrm("store", "verify").exit_code == 0


def test_a_request_that_only_waits_for_a_gap_does_not_hold_up_the_end(serve: Serve, wsrm: Wsrm) -> None:
    served = serve("shop:app", "--port", "0")
    identifier = served.create()
    answers: list[int] = []
    message = SOURCE.message(identifier, 2, reply_to="")
    sender = threading.Thread(target=lambda: answers.append(served.post(message).status))
    sender.start()
    assert eventually(lambda: len(document(wsrm("message", "list", "--json"))["messages"]) == 1)
    begun = time.monotonic()
    assert served.end(signal.SIGTERM)[0] == 0
    sender.join()
    assert time.monotonic() - begun < 8  # hold_wait is 10
    assert answers == [202]


def test_an_idle_connection_does_not_hold_up_the_end(serve: Serve) -> None:
    served = serve("shop:app", "--port", "0")
    where = urlsplit(served.url)
    with socket.create_connection((where.hostname or "", where.port or 0)) as idle:
        idle.sendall(b"POST /orders HTTP/1.1\r\nHost: here\r\n")
        assert served.end(signal.SIGTERM)[0] == 0


def test_an_operation_that_never_ends_does_not_keep_it_for_ever(serve: Serve, somewhere: Path, wsrm: Wsrm) -> None:
    (somewhere / "patient.py").write_text(
        "import wsrm_mq.cli.serve, wsrm_mq.asgi\n"
        "wsrm_mq.cli.serve.DRAIN_SECONDS = wsrm_mq.asgi.DRAIN_SECONDS = 0.5\nfrom shop import app\n"
    )
    served = serve("patient:app", "--port", "0")
    identifier = served.create()
    (somewhere / "wait").touch()
    threading.Thread(target=lambda: served.post(SOURCE.message(identifier, 1, reply_to="")), daemon=True).start()
    assert eventually(lambda: served.calls() == ["begin"])
    begun = time.monotonic()
    status, said = served.end(signal.SIGTERM)
    assert time.monotonic() - begun < 15
    assert (status, "an operation still runs" in said, "were cut off" in said) == (0, True, True), said
    (found,) = document(wsrm("message", "list", "--json"))["messages"]
    assert found["state"] != "delivered"


def test_a_second_signal_ends_it_at_once(serve: Serve, somewhere: Path) -> None:
    served = serve("shop:app", "--port", "0")
    identifier = served.create()
    (somewhere / "wait").touch()
    served.post(SOURCE.message(identifier, 1))
    assert eventually(lambda: served.calls() == ["begin"])
    served.process.send_signal(signal.SIGTERM)
    time.sleep(0.3)
    assert served.end(signal.SIGTERM)[0] == -signal.SIGTERM


LEAKING = """
import os
leaked = []

async def app(scope, receive, send):
    if scope["type"] != "http":
        raise RuntimeError("no lifespan")
    try:
        while scope["path"] == "/leak":
            leaked.append(os.open("/dev/null", os.O_RDONLY))
    except OSError:
        pass
    while scope["path"] == "/free" and leaked:
        os.close(leaked.pop())
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"0")]})
    await send({"type": "http.response.body", "body": b""})
"""


def test_a_process_without_files_says_so_and_recovers(serve: Serve, somewhere: Path) -> None:
    (somewhere / "leaking.py").write_text(LEAKING)
    served = serve("leaking:app", "--port", "0")
    resource.prlimit(served.process.pid, resource.RLIMIT_NOFILE, (200, 200))
    where = urlsplit(served.url)
    kept = http.client.HTTPConnection(where.hostname or "", where.port, timeout=60)

    def asked(path: str) -> int:
        kept.request("GET", path)
        answer = kept.getresponse()
        answer.read()
        return answer.status

    lines: list[str] = []

    def says(event: str) -> None:
        assert served.process.stderr is not None
        while event not in "".join(lines[-1:]):
            lines.append(served.process.stderr.readline())
            assert lines[-1], lines

    assert asked("/leak") == 200
    says("serve.no_files")
    assert "limit=200" in lines[-1]
    with pytest.raises((OSError, http.client.HTTPException)):
        served.post(b"")
    assert asked("/free") == 200
    says("serve.files_again")
    assert served.create()
    assert served.end(signal.SIGTERM)[0] == 0


def test_it_keeps_no_more_connections_than_the_system_lets_it(serve: Serve, somewhere: Path) -> None:
    (somewhere / "few.py").write_text(
        "import resource\nresource.setrlimit(resource.RLIMIT_NOFILE, (120, 120))\nfrom shop import app\n"
    )
    served = serve("few:app", "--port", "0")
    where = urlsplit(served.url)
    wires = [socket.create_connection((where.hostname or "", where.port or 0)) for _ in range(200)]
    assert served.create()
    for wire in wires:
        wire.close()
    said = served.end(signal.SIGTERM)[1]
    assert "serve.few_files connections=54 limit=120" in said
    assert "serve.no_files" not in said


# what cannot be served


SERVING_EACH = """
import json, sys
from click.testing import CliRunner
from wsrm_mq.cli import program
told = [CliRunner().invoke(program, ["serve", name, "--port", "0"]) for name in sys.argv[1:]]
print(json.dumps([[one.exit_code, one.stderr] for one in told]))
"""
NOT_THERE = {
    "shop": "'shop' names no application; write MODULE:ATTRIBUTE",
    ":app": "names no application",
    "stores:app": "there is no module stores in ",
    "shop.inner:app": "there is no module shop.inner in ",
    "shop:application": "shop has no attribute application.",
    "shop:number": "shop:number is no application: it cannot be called.",
    "needs:app": "needs needs a_module_of_tomorrow, which is not installed.",
}


def test_an_application_that_is_not_there_is_told_in_words(somewhere: Path) -> None:
    (somewhere / "shop.py").write_text(APPLICATION)
    (somewhere / "needs.py").write_text("import a_module_of_tomorrow")
    command = [sys.executable, "-c", SERVING_EACH, *NOT_THERE]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    for (name, text), (status, told) in zip(NOT_THERE.items(), json.loads(done.stdout), strict=True):
        assert status == 2, name
        assert text in told, name
        assert "Traceback" not in told, name
    assert not (somewhere / "wsrm.db").exists()


@pytest.mark.parametrize("where", ["flag", "program"])
def test_a_wsdl_that_is_not_there_is_told_in_a_line(shell: Shell, somewhere: Path, where: str) -> None:
    (somewhere / "shop.py").write_text(APPLICATION)
    (somewhere / "wrapped.py").write_text(
        "from shop import app as plain\nfrom wsrm_mq import WSRMMiddleware\n"
        "app = WSRMMiddleware(plain, one_way=['nosuch.wsdl'])\n"
    )
    given = ("shop:app", "--one-way", "nosuch.wsdl") if where == "flag" else ("wrapped:app",)
    done = shell("serve", *given, "--port", "0")
    assert done.returncode == 2
    assert re.fullmatch(rb"wsrm-mq: one_way: nosuch\.wsdl cannot be read as a WSDL: .*\n", done.stderr)
    assert not (somewhere / "wsrm.db").exists()


def test_without_an_application_it_asks_for_one(wsrm: Wsrm) -> None:
    result = wsrm("serve")
    assert result.exit_code == 2
    assert "Name the application" in result.stderr


def test_an_asgi_application_that_does_not_start_ends_it(shell: Shell, somewhere: Path, wsrm: Wsrm) -> None:
    (somewhere / "asgi_shop.py").write_text(
        "async def app(scope, receive, send):\n    await receive()\n"
        "    await send({'type': 'lifespan.startup.failed', 'message': 'no soap today'})\n"
    )
    done = shell("serve", "asgi_shop:app", "--port", "0")
    assert done.returncode == 1
    assert b"no soap today" in done.stderr
    assert b"the application did not start" in done.stderr
    assert b"Traceback" not in done.stderr
    assert document(wsrm("store", "info", "--json"))["instances"] == []


def test_a_mistake_of_the_application_is_told_in_a_line_and_with_debug_in_whole(shell: Shell, somewhere: Path) -> None:
    (somewhere / "broken.py").write_text("1 / 0")
    done = shell("serve", "broken:app")
    assert done.returncode == 2
    mistake = f"broken cannot be imported: ZeroDivisionError: division by zero ({somewhere}/broken.py, line 1)."
    assert done.stderr.decode().startswith(f"wsrm-mq: {mistake} ")
    assert b"Traceback" not in done.stderr
    assert b"Traceback" in shell("--debug", "serve", "broken:app").stderr


def test_a_store_that_cannot_be_opened_is_told_with_its_status(shell: Shell, somewhere: Path) -> None:
    (somewhere / "shop.py").write_text(APPLICATION)
    (somewhere / "bad.db").write_bytes(b"This is a letter to my aunt.\n" * 40)
    for store, text in (("bad.db", b"not a database"), ("nowhere/wsrm.db", b"cannot be created")):
        done = shell("serve", "shop:app", "--port", "0", "--store", store)
        assert done.returncode == 5
        assert text in done.stderr
        assert b"Traceback" not in done.stderr


def test_a_port_in_use_is_told_and_leaves_the_store_closed(shell: Shell, somewhere: Path, wsrm: Wsrm) -> None:
    (somewhere / "shop.py").write_text(APPLICATION)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        done = shell("serve", "shop:app", "--port", port)
    assert done.returncode == 1
    assert f"cannot listen on 127.0.0.1, port {port}: Address already in use.".encode() in done.stderr
    assert document(wsrm("store", "info", "--json"))["instances"] == []
    assert not list(Path("wsrm.db.d").glob("*.lock"))


@pytest.mark.parametrize(
    ("given", "most"), [({"threads": 6}, 3), ({"threads": 1}, 0), ({"threads": 6, "max_waiting": 5}, 5)]
)
def test_half_the_threads_may_wait_unless_it_is_said_otherwise(given: dict[str, int], most: int) -> None:
    assert serving(read(None, {}, **given)).max_waiting == most


def test_a_host_that_is_none_is_told_in_words() -> None:
    with pytest.raises(Stopped, match=r"^cannot listen on no\.such\.host\.invalid: "):
        Listener(Settings(host="no.such.host.invalid", port=0))


def test_flags_stand_above_the_environment(wsrm: Wsrm, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WSRM_MQ_PORT", "1")
    result = wsrm("serve", "x:y", "--port", "99999")
    assert result.exit_code == 2
    assert "option port: 99999 is not allowed; allowed: a whole number from 0 to 65535." in result.stderr
    assert os.environ["WSRM_MQ_PORT"] == "1"


# observing


def answered(url: str, path: str) -> tuple[int, bytes]:
    where = urlsplit(url)
    connection = http.client.HTTPConnection(where.hostname or "", where.port, timeout=60)
    connection.request("GET", path)
    answer = connection.getresponse()
    return answer.status, answer.read()


def observed_at(served: Served) -> str:
    """The address that it said on standard error."""
    assert served.process.stderr is not None
    line = ""
    while "/metrics and /healthz on " not in line:
        line = served.process.stderr.readline()
        assert line
    return line.rpartition(" on ")[2].strip()


def test_metrics_and_health_have_a_port_of_their_own_on_loopback(serve: Serve) -> None:
    served = serve("shop:app", "--port", "0", "--observe-port", "0", "--log-format", "json")
    url = observed_at(served)
    assert url.startswith("http://127.0.0.1:")
    served.create()
    status, text = answered(url, "/metrics")
    assert status == 200
    assert b'wsrm_sequences{endpoint="/orders",state="created"} 1.0' in text
    assert answered(url, "/healthz")[0] == 200
    assert answered(served.url, "/metrics")[1] != text
    assert served.end(signal.SIGTERM)[0] == 0


def test_they_are_closed_unless_a_port_is_set(serve: Serve) -> None:
    served = serve("shop:app", "--port", "0")
    assert "/metrics" not in served.end(signal.SIGTERM)[1]


def test_the_log_is_json_where_that_is_asked_for(serve: Serve) -> None:
    served = serve("shop:app", "--port", "0", "--log-format", "json")
    served.post(b"<no")
    _, said = served.end(signal.SIGTERM)
    lines = [json.loads(line) for line in said.splitlines() if line.startswith("{")]
    assert [one["fault"] for one in lines if one.get("event") == "request.refused"]
