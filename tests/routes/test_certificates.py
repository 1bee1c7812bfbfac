"""A node that is known by its TLS certificate: what is in front of the next one asks for it, and names who has it."""

from __future__ import annotations

import ssl
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from tests.routes.net import until
from tests.support.queue_server import Started, asked, serve_queues
from wsrm_mq import connect
from wsrm_mq.cli.node import hops_of
from wsrm_mq.config import settings_from
from wsrm_mq.routes.hops import ask
from wsrm_mq.routes.running import Routing
from wsrm_mq.server import tokens
from wsrm_mq.server.rights import Grant

__all__ = ["serve_queues"]


def certificate(directory: Path, name: str) -> str:
    """The file of a certificate, of this name and for this machine, that vouches for itself, and of its key."""
    key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-keyout", "key.pem"]
    names = ["-subj", f"/CN={name}", "-addext", "subjectAltName=IP:127.0.0.1"]
    command = ["openssl", "req", "-x509", "-days", "2", *key, *names, "-out", "one.pem"]
    subprocess.run(command, cwd=directory, check=True, capture_output=True)
    file = directory / f"{name}.pem"
    file.write_text((directory / "one.pem").read_text() + (directory / "key.pem").read_text())
    return str(file)


@contextmanager
def in_front(of: str, own: str, client: str) -> Iterator[str]:
    """The URL of a proxy that has the certificate ``own``, and asks for ``client``."""

    class Passing(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            (((_kind, name),),) = self.connection.getpeercert()["subject"]  # type: ignore[attr-defined]
            content = self.rfile.read(int(self.headers["Content-Length"]))
            said = {"Content_Type": self.headers["Content-Type"], "X_Client_Name": f"CN={name}"}
            status, headers, body = asked(of, "POST", self.path, None, content, **said)
            self.send_response_only(status)
            for key in ("content-type", "wsrm-mq-node"):
                if key in headers:
                    self.send_header(key, headers[key])
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=client)
    context.load_cert_chain(own)
    context.verify_mode = ssl.CERT_REQUIRED
    server = ThreadingHTTPServer(("127.0.0.1", 0), Passing)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"https://127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.mark.timeout(240)
def test_a_node_with_a_certificate_hands_over_without_a_token_and_one_without_is_told(
    somewhere: Path, serve_queues: Started
) -> None:
    (somewhere / "wsrm-mq.toml").write_text(
        'trusted_proxies = ["127.0.0.1"]\nclient_name_header = "X-Client-Name"\nnode_name = "north"\n'
    )
    own, mine = (certificate(somewhere, name) for name in ("north", "hub"))
    with connect(somewhere / "north.db") as north, connect(somewhere / "hub.db") as hub:
        north.declare("orders")
        north.call(partial(tokens.add, name="hub", grants=[Grant("route", "*")], certificate="CN=hub"))
        server = serve_queues("--store", str(somewhere / "north.db"))
        with in_front(server.url, own, mine) as url:
            section = {"url": url, "ca": own, "certificate": mine}
            hops = hops_of(settings_from({"nodes": {"north": section}}))
            for wrong in ({"certificate": None}, {"ca": mine}):
                why = ask(f"{url}/rm", hops[f"{url}/rm"]._replace(**wrong))
                assert why is not None
                assert "in its section [node.NAME] here `ca` is the file of who vouches for it" in why
            assert ask(f"{url}/rm", hops[f"{url}/rm"]) is None
            with Routing(hub, hops=hops):
                hub.route("orders", f"{url}/rm")
                hub.put("orders", b"1")
                assert until(lambda: [one.body for one in north.peek("orders")] == [b"1"])
            assert [one.node for one in hub.routes()] == ["north"]
