"""What is posted goes to the address that was judged, whatever a name server says a moment later."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from tests.support.name_server import NameServer
from tests.support.target import Target, serving
from wsrm_mq.errors import ConfigurationError, NotAllowed, NotAnswered, Unread
from wsrm_mq.outbound import addresses
from wsrm_mq.outbound.addresses import Allowed, check_url
from wsrm_mq.outbound.names import Names
from wsrm_mq.outbound.posting import Poster, tls

NONE = Allowed("replay_targets", ())
KEY = Path(__file__).parent / "service.pem"
"""Of service.example; made for this test, and good for nothing else."""
FIELDS = {"Content-Type": "text/xml"}


@pytest.fixture
def target() -> Iterator[Target]:
    with serving(Target()) as made:
        yield made


@pytest.fixture
def one_is_public(monkeypatch: pytest.MonkeyPatch) -> None:
    """127.0.0.1 stands for an address of the Internet, 127.0.0.2 for one that is not."""
    monkeypatch.setattr(addresses, "is_public", lambda address: address in ("127.0.0.1", "127.0.0.3"))


def test_a_name_that_leads_inside_once_it_was_judged_gets_nothing(names: NameServer, target: Target) -> None:
    names.answers = {"rebound.example": [["1.1.1.1"], ["127.0.0.1"]]}
    url = f"http://rebound.example:{target.port}/orders"
    check_url(url, NONE, Names().look_up)
    with pytest.raises(NotAllowed, match=r"rebound\.example.*private network.*127\.0\.0\.1"):
        Poster(NONE).post(url, FIELDS, b"<order/>")
    assert target.requests == []


@pytest.mark.usefixtures("one_is_public")
def test_a_connection_goes_to_the_address_that_was_judged_with_one_question(names: NameServer, target: Target) -> None:
    """A second one would be answered with an address inside."""
    names.answers = {"service.example": [["127.0.0.1"], ["127.0.0.2"]]}
    poster = Poster(NONE)
    url = f"http://service.example:{target.port}/orders"
    for _ in range(2):
        assert poster.post(url, FIELDS, b"<order/>").status == 202
    assert names.asked == ["service.example"]
    assert [fields["Host"] for fields, _body in target.requests] == [f"service.example:{target.port}"] * 2


@pytest.mark.usefixtures("one_is_public")
def test_each_connection_is_judged_anew(names: NameServer, target: Target) -> None:
    names.answers = {"service.example": [["127.0.0.1"], ["127.0.0.2"]]}
    url = f"http://service.example:{target.port}/"
    Poster(NONE).post(url, FIELDS, b"<order/>")
    with pytest.raises(NotAllowed):
        Poster(NONE).post(url, FIELDS, b"<order/>")
    assert len(target.requests) == 1


@pytest.mark.usefixtures("one_is_public")
def test_of_several_addresses_the_first_that_takes_a_connection_is_used(names: NameServer, target: Target) -> None:
    names.answers = {"service.example": [["127.0.0.3", "127.0.0.1"]]}
    assert Poster(NONE).post(f"http://service.example:{target.port}/", FIELDS, b"<order/>").status == 202


@pytest.mark.usefixtures("one_is_public")
def test_a_certificate_is_held_against_the_name(names: NameServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(KEY))
    names.answers = {"service.example": [["127.0.0.1"]], "other.example": [["127.0.0.1"]]}
    with serving(Target(), key=KEY) as target:
        poster = Poster(NONE)
        assert poster.post(f"https://service.example:{target.port}/", FIELDS, b"<order/>").status == 202
        with pytest.raises(NotAnswered, match="Hostname mismatch"):
            poster.post(f"https://other.example:{target.port}/", FIELDS, b"<order/>")
    assert len(target.requests) == 1


@pytest.mark.spec("SEC-018", versions="all")
def test_the_silent_names_of_one_never_keep_those_of_another_from_being_looked_up(
    names: NameServer, target: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They were found at the door, and their name server is silent from then on; his own hosts are all new here."""
    monkeypatch.setattr("wsrm_mq.outbound.names.SECONDS", 0.0)
    names.answers = {f"{number}.example": [["127.0.0.1"]] for number in range(200)}
    names.answers["partner.example"] = [["127.0.0.1"]]
    poster = Poster(Allowed.listed("decoupled", ["127.0.0.0/8"]))
    names.speaks.clear()
    for number in range(200):
        with pytest.raises(NotAnswered):
            poster.post(f"http://{number}.example:{target.port}/", FIELDS, b"<order/>", "stranger")
    asked = len(names.asked)
    monkeypatch.setattr("wsrm_mq.outbound.names.SECONDS", 5.0)
    threading.Timer(0.1, names.speaks.set).start()
    url = f"http://partner.example:{target.port}/"
    assert poster.post(url, FIELDS, b"<order/>", "partner").status == 202
    assert len(names.asked) == asked + 1


def test_an_address_that_is_listed_may_lead_inside(names: NameServer, target: Target) -> None:
    names.answers = {"inside.example": [["127.0.0.1"]]}
    poster = Poster(Allowed("replay_targets", [f"http://inside.example:{target.port}/orders"]))
    assert poster.post(f"http://inside.example:{target.port}/orders", FIELDS, b"<order/>").status == 202
    with pytest.raises(NotAllowed):
        poster.post(f"http://inside.example:{target.port}/admin", FIELDS, b"<order/>")
    assert len(target.requests) == 1


def test_a_redirect_is_an_answer_and_not_followed(target: Target) -> None:
    target.answers[1] = (302, b"")
    assert Poster(Allowed("replay_targets", [target.url])).post(target.url, FIELDS, b"<order/>").status == 302
    assert len(target.requests) == 1


@pytest.mark.parametrize("variable", ["HTTP_PROXY", "http_proxy", "ALL_PROXY"])
def test_no_proxy_of_the_environment_is_asked(target: Target, monkeypatch: pytest.MonkeyPatch, variable: str) -> None:
    monkeypatch.setenv(variable, "http://127.0.0.1:9")
    assert Poster(Allowed("replay_targets", [target.url])).post(target.url, FIELDS, b"<order/>").status == 202


def test_a_host_that_is_gone_is_told_in_a_line(names: NameServer) -> None:
    names.answers = {"gone.example": [[]]}
    with pytest.raises(NotAnswered, match=r"^http://gone\.example/: there is no host gone\.example: \[Errno"):
        Poster(NONE).post("http://gone.example/", FIELDS, b"<order/>")


def test_an_answer_without_an_end_is_left(target: Target, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("wsrm_mq.outbound.posting._MAX_ANSWER", 100)
    target.answers[1] = (200, b" " * 1000)
    with pytest.raises(NotAnswered, match="more than 100 bytes"):
        Poster(Allowed("replay_targets", [target.url])).post(target.url, FIELDS, b"<order/>")


def test_a_server_is_shown_the_certificate_and_vouched_for_by_the_file_that_are_configured(names: NameServer) -> None:
    names.answers = {"service.example": [["127.0.0.1"]]}
    with serving(Target(), key=KEY) as secure:
        url = f"https://service.example:{secure.port}/"
        allowed = Allowed("decoupled", [url])
        assert Poster(allowed, context=tls(str(KEY), str(KEY))).post(url, FIELDS, b"<a/>").status == 202
        with pytest.raises(NotAnswered, match="certificate verify failed"):
            Poster(allowed, context=tls()).post(url, FIELDS, b"<a/>")


@pytest.mark.parametrize("files", [("/nowhere.pem", None), (None, "/nowhere.pem"), (__file__, None)])
def test_a_file_that_has_no_certificate_is_told_before_anything_is_sent(files: tuple[str | None, str | None]) -> None:
    with pytest.raises(ConfigurationError, match=r"\.pem|\.py"):
        tls(*files)


def test_all_goes_through_the_proxy_that_is_configured_and_nothing_that_is_not_allowed(target: Target) -> None:
    """The proxy gets the whole address."""
    with serving(Target()) as proxy:
        poster = Poster(Allowed("decoupled", ["http://10.1.2.3"], is_public=False), proxy=proxy.url)
        assert poster.post("http://10.1.2.3/cb", FIELDS, b"<a/>").status == 202
        assert [fields["Host"] for fields, _body in proxy.requests] == ["10.1.2.3"]
        with pytest.raises(NotAllowed, match="decoupled"):
            poster.post(target.url, FIELDS, b"<a/>")
    assert target.requests == []


def test_a_proxy_of_https_gets_by_tls_what_is_for_http_too_and_the_password_in_its_url(names: NameServer) -> None:
    names.answers = {"service.example": [["127.0.0.1"]]}
    allowed = Allowed("decoupled", ["http://10.1.2.3"], is_public=False)
    with serving(Target(), key=KEY) as proxy:
        url = f"https://ann:a%40b@service.example:{proxy.port}"
        assert (
            Poster(allowed, context=tls(str(KEY)), proxy=url).post("http://10.1.2.3/cb", FIELDS, b"<a/>").status == 202
        )
        ((fields, body),) = proxy.requests
        assert (fields["Host"], body) == ("10.1.2.3", b"<a/>")
        assert {name.lower(): value for name, value in fields.items()}["proxy-authorization"] == "Basic YW5uOmFAYg=="
        with pytest.raises(NotAnswered, match="certificate verify failed"):
            Poster(allowed, context=tls(), proxy=url).post("http://10.1.2.3/cb", FIELDS, b"<a/>")


def test_an_endpoint_of_https_is_reached_through_a_proxy_that_the_same_authority_vouches_for(
    names: NameServer,
) -> None:
    names.answers = {"service.example": [["127.0.0.1"]]}
    allowed = Allowed("decoupled", ["https://10.1.2.3"], is_public=False)
    with serving(Target(), key=KEY) as proxy:
        url = f"https://service.example:{proxy.port}"
        with pytest.raises(NotAnswered, match="Tunnel connection failed: 501"):
            Poster(allowed, context=tls(str(KEY)), proxy=url).post("https://10.1.2.3/cb", FIELDS, b"<a/>")


@pytest.mark.parametrize("proxy", ["proxy:3128", "socks5://proxy:1080", "http://"])
def test_a_proxy_that_cannot_be_spoken_to_is_refused_at_once(proxy: str) -> None:
    with pytest.raises(ConfigurationError, match="write http://host:port"):
        Poster(NONE, proxy=proxy)


@pytest.mark.parametrize("piece", [b"X", b"HTTP/1.1 100 Continue\r\n\r\n"], ids=["a header", "interim answers"])
@pytest.mark.parametrize("entry", ["the address", "127.0.0.0/8"])
def test_an_answer_that_drips_before_its_content_is_left(piece: bytes, entry: str) -> None:
    """The time-out of a connection counts from byte to byte."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def drip() -> None:
            connection, _peer = server.accept()
            with connection, suppress(OSError):
                connection.recv(65_536)
                connection.sendall(b"HTTP/1.1 200 OK\r\n" if piece == b"X" else piece)
                for _ in range(100):
                    connection.sendall(piece)
                    time.sleep(0.1)

        threading.Thread(target=drip, daemon=True).start()
        url = f"http://127.0.0.1:{server.getsockname()[1]}/"
        allowed = Allowed.listed("decoupled", [url if entry == "the address" else entry])
        begun = time.monotonic()
        with pytest.raises(NotAnswered, match=r"timed out|too long"):
            Poster(allowed, seconds=0.3).post(url, FIELDS, b"<order/>")
        assert time.monotonic() - begun < 5


@pytest.mark.parametrize("entry", ["https://slow.example", "public"], ids=["listed", "judged"])
def test_a_name_server_that_is_silent_keeps_no_thread_that_sends(
    names: NameServer, monkeypatch: pytest.MonkeyPatch, entry: str
) -> None:
    monkeypatch.setattr("wsrm_mq.outbound.names.SECONDS", 0.05)
    names.answers = {"slow.example": [["1.1.1.1"]]}
    names.speaks.clear()
    poster = Poster(Allowed.listed("decoupled", [entry]))
    for _ in range(2):
        with pytest.raises(NotAnswered, match=r"^https://slow\.example/: no name server says in time"):
            poster.post("https://slow.example/", FIELDS, b"<order/>")
    assert names.asked == ["slow.example"], "it is being looked up: that is waited for, once"


@pytest.mark.parametrize("answers_others", [True, False])
def test_a_large_message_is_unread_only_where_its_host_answers_one_without_content(answers_others: bool) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:

        def run() -> None:
            with suppress(OSError):
                while True:
                    connection, _address = server.accept()
                    with connection:
                        if b"Content-Length: 0" in connection.recv(10_000) and answers_others:
                            connection.sendall(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n")

        threading.Thread(target=run, daemon=True).start()
        url = f"http://127.0.0.1:{server.getsockname()[1]}/orders"
        poster = Poster(Allowed.listed("to", ("127.0.0.1",)))
        for size, is_unread in ((100, False), (100_000, answers_others)):
            with pytest.raises(NotAnswered) as raised:
                poster.post(url, FIELDS, b"x" * size)
            assert isinstance(raised.value, Unread) is is_unread
        server.shutdown(socket.SHUT_RDWR)


def test_a_large_message_is_sent_once_more_by_a_new_connection_where_one_that_was_kept_breaks_off() -> None:
    """Its host may have closed that in the same moment: it says nothing of the size."""
    bodies: list[int] = []

    class Closing(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        is_kept = False

        def do_POST(self) -> None:
            if self.is_kept:
                self.close_connection = True
                return
            self.is_kept = True
            bodies.append(len(self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(202)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_arguments: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Closing) as server:
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        poster = Poster(Allowed.listed("to", ("127.0.0.1",)))
        url = f"http://127.0.0.1:{server.server_port}/orders"
        assert [poster.post(url, FIELDS, b"x" * size).status for size in (100, 100_000)] == [202, 202]
        assert bodies == [100, 100_000]
        server.shutdown()


def test_an_upload_that_goes_on_is_not_cut_off_by_the_time_that_one_piece_has() -> None:
    class Slow(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            left = int(self.headers["Content-Length"])
            while left:
                left -= len(self.rfile.read(min(left, 2_000_000)))
                time.sleep(0.2)
            self.send_response(202)
            self.end_headers()

        def log_message(self, *_arguments: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Slow) as server:
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        poster = Poster(Allowed.listed("to", ("127.0.0.1",)), seconds=2.0)
        assert poster.post(f"http://127.0.0.1:{server.server_port}/orders", FIELDS, bytes(40_000_000)).status == 202
        server.shutdown()


_OK = b"HTTP/1.1 200 OK\r\nContent-Type: text/xml\r\n"


@pytest.mark.parametrize(
    ("said", "content", "is_kept"),
    [
        ([_OK + b"Content-Length: 4\r\n\r\n<a/>"], b"<a/>", True),
        ([_OK, b"Content-Length: 4\r\n\r", b"\n<a", b"/>"], b"<a/>", True),
        ([_OK + b"Content-Length: 4\r\n\r\n<a", b"/>"], b"<a/>", True),
        ([_OK + b"Connection: Keep-Alive\r\nContent-Length: 0\r\n\r\n"], b"", True),
        ([_OK + b"Set-Cookie: a\r\nSet-Cookie: b\r\nContent-Length: 4\r\n\r\n<a/>"], b"<a/>", True),
        ([_OK + b"Transfer-Encoding: chunked\r\n\r\n2\r\n<a\r\n2\r\n/>\r\n0\r\n\r\n"], b"<a/>", True),
        ([b"HTTP/1.1 100 Continue\r\n\r\n" + _OK + b"Content-Length: 4\r\n\r\n<a/>"], b"<a/>", True),
        ([b"HTTP/1.1 204 No Content\r\nContent-Length: 9\r\n\r\n"], b"", True),
        ([_OK + b"X-Folded: a\r\n b\r\nContent-Length: 4\r\n\r\n<a/>"], b"<a/>", True),
        ([_OK + b"Content-Length: 4\r\n\r\n<a/>HTTP/1.1 200 OK\r\n"], b"<a/>", False),
        ([_OK + b"Connection: close\r\nContent-Length: 4\r\n\r\n<a/>"], b"<a/>", False),
        ([b"HTTP/1.0 200 OK\r\nContent-Length: 4\r\n\r\n<a/>"], b"<a/>", False),
    ],
    ids=["plain", "dripping", "in two", "keep", "twice", "chunks", "interim", "none", "folded", "more", "close", "1.0"],
)
def test_an_answer_is_read_to_its_end_and_no_further(said: list[bytes], content: bytes, is_kept: bool) -> None:
    with _speaking(said) as (url, connections):
        poster = Poster(Allowed.listed("to", ("127.0.0.1",)), seconds=5.0)
        answers = [poster.post(url, FIELDS, b"<order/>") for _ in range(2)]
        assert [answer.content for answer in answers] == [content] * 2
        assert answers[0].status in (200, 204)
        assert len(connections) == (1 if is_kept else 2)


@pytest.mark.parametrize("said", [b"", _OK + b"Content-Length: 9\r\n\r\n<a/>", b"SMTP\r\n\r\n"])
def test_an_answer_that_breaks_off_is_none(said: bytes) -> None:
    with _speaking([said], ends=True) as (url, _connections), pytest.raises(NotAnswered):
        Poster(Allowed.listed("to", ("127.0.0.1",)), seconds=5.0).post(url, FIELDS, b"<order/>")


def test_a_header_that_would_be_two_is_not_sent_nor_quoted() -> None:
    with pytest.raises(ValueError, match="'SOAPAction' cannot be sent") as raised:
        Poster(Allowed.listed("to", ("127.0.0.1",))).post("http://127.0.0.1:9/", {"SOAPAction": "a\r\nb: c"}, b"")
    assert "b: c" not in str(raised.value)


@contextmanager
def _speaking(said: list[bytes], *, ends: bool = False) -> Iterator[tuple[str, list[object]]]:
    """A server that answers every request with these pieces; its URL, and the connections that it has had."""
    connections: list[object] = []

    def answer(connection: socket.socket) -> None:
        with connection, suppress(OSError):
            while connection.recv(65_536):
                for piece in said:
                    connection.sendall(piece)
                    time.sleep(0.01)
                if ends:
                    return

    def run() -> None:
        with suppress(OSError):
            while True:
                connection, _peer = server.accept()
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                connections.append(connection)
                threading.Thread(target=answer, args=(connection,), daemon=True).start()

    with socket.create_server(("127.0.0.1", 0)) as server:
        threading.Thread(target=run, daemon=True).start()
        yield f"http://127.0.0.1:{server.getsockname()[1]}/", connections
        server.shutdown(socket.SHUT_RDWR)
