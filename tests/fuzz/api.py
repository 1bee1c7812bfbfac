"""``make schemathesis``: what the OpenAPI document allows, and what it does not, is asked of a queue server, which
answers nothing with 5xx and everything as it is described.

    python -m tests.fuzz.api [--seconds N] [--seed N]

Long polls are kept short, so that requests do not wait for messages.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, Final

from tests.servers.queues import TOKEN, grant_all
from wsrm_mq.node import Node
from wsrm_mq.server.http.application import ALL
from wsrm_mq.server.http.openapi import document

CHECKS: Final = (
    "not_a_server_error",
    "status_code_conformance",
    "content_type_conformance",
    "response_headers_conformance",
    "response_schema_conformance",
)
WAITS: Final = ("wait", "timeout")
LONGEST: Final = 0.05


def described() -> dict[str, Any]:
    """The document; nothing waits longer than ``LONGEST`` seconds."""
    found = document(ALL)
    for methods in found["paths"].values():
        for operation in methods.values():
            for parameter in operation["parameters"]:
                if parameter["name"] in WAITS:
                    parameter["schema"]["maximum"] = LONGEST
    return found


def main() -> int:
    parser = argparse.ArgumentParser(prog="make schemathesis", description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=int, default=60)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        store, api = Path(directory) / "store.db", Path(directory) / "openapi.json"
        with Node(store) as node:
            grant_all(node)
        api.write_text(json.dumps(described()))
        begun = [sys.executable, "-m", "tests.server.http_server", str(store), "0"]
        with subprocess.Popen(begun, stdout=subprocess.PIPE, text=True) as server:
            assert server.stdout is not None
            address = f"http://127.0.0.1:{server.stdout.readline().strip()}"
            try:
                return subprocess.run(_command(api, address, arguments), cwd=directory, check=False).returncode
            finally:
                server.terminate()


def _command(api: Path, address: str, arguments: argparse.Namespace) -> list[str]:
    return [
        str(Path(sys.executable).with_name("schemathesis")),
        *("run", str(api), "--url", address, "--header", f"Authorization: Bearer {TOKEN}"),
        *("--checks", ",".join(CHECKS), "--seed", str(arguments.seed), "--max-time", str(arguments.seconds)),
        *("--request-timeout", "10", "--continue-on-failure", "--no-color", "--warnings", "off"),
    ]


if __name__ == "__main__":
    sys.exit(main())
