"""Java's own HTTP client against `serve`, with the defaults that CXF takes over: it offers HTTP/2 with its body."""

from __future__ import annotations

import base64
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.support.serve_command import SOURCE, Serve
from wsrm_mq.testing import Reply

PROGRAM = Path(__file__).with_name("DefaultClient.java")


@pytest.mark.java
def test_a_default_java_client_is_answered_although_it_offers_http_2(serve: Serve, somewhere: Path) -> None:
    if shutil.which("javac") is None:
        pytest.skip("there is no Java here")
    (somewhere / "request.xml").write_bytes(SOURCE.create_sequence())
    served = serve("shop:app", "--port", "0")
    done = subprocess.run(
        ["java", str(PROGRAM), f"{served.url}/orders", SOURCE.content_type, str(somewhere / "request.xml")],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    answers = [line.split() for line in done.stdout.splitlines()]
    assert [(name, version, status) for name, version, status, _ in answers] == [
        (name, "HTTP_1_1", "200") for name in ("kept", "kept", "chunked", "expecting")
    ]
    created = [Reply.parse(base64.b64decode(body)).created for *_, body in answers]
    assert all(created)
    assert len({one.identifier for one in created if one is not None}) == 1, "the same request is answered alike"
