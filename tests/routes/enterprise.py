"""Nodes of an enterprise for tests: a store and a queue server each, in processes of their own, which know one another
by their tokens."""

from __future__ import annotations

import signal
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

from tests.support.programs import free_port
from tests.support.queue_server import QueueServer
from wsrm_mq.node import Node
from wsrm_mq.queue import routing
from wsrm_mq.server import tokens
from wsrm_mq.server.rights import check_grant

RIGHTS = ("consume *", "peek *")


class Place:
    """One node: its directory has its store and its configuration. ``end`` kills its server, ``begin`` begins it
    anew at the same address."""

    def __init__(self, directory: Path, name: str, site: str) -> None:
        directory.mkdir()
        self.directory, self.name, self.site = directory, name, site
        self.store = directory / "wsrm.db"
        self.config = directory / "wsrm-mq.toml"
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.server: QueueServer | None = None

    def begin(self) -> None:
        self.server = QueueServer(self.directory, "--port", str(self.port))

    def end(self, how: int = signal.SIGKILL) -> None:
        if self.server is not None:
            self.server.end(how)
            self.server = None


def secret(at: str, of: str) -> str:
    """What the node ``of`` shows at the node ``at``."""
    return f"wsrm-mq-of-{of}-at-{at}"


def variable(at: str, of: str) -> str:
    return f"TOKEN_OF_{of}_AT_{at}".upper()


def enterprise(
    directory: Path,
    sites: Mapping[str, str],
    queues: Mapping[str, Mapping[str, str]],
    *,
    rights: Sequence[str] = RIGHTS,
) -> tuple[dict[str, Place], dict[str, str]]:
    """The nodes of these ``sites``, which are not begun, with these ``queues``: scopes by name; and the environment
    that has their tokens."""
    places = {name: Place(directory / name, name, site) for name, site in sites.items()}
    environment, grants = {}, [check_grant(*right.split(" ")) for right in rights]
    for name, place in places.items():
        sections = [f'site = "{place.site}"']
        with Node(place.store) as node:
            node.call(partial(routing.name_node, name=name))
            for queue, scope in queues[name].items():
                node.declare(queue, scope=scope)
            for other, there in places.items():
                if other != name:
                    environment[variable(name, other)] = secret(name, other)
                    node.call(partial(tokens.add, name=other, grants=grants, secret=secret(name, other)))
                    said = f'url = "{there.url}"\nsite = "{there.site}"\ntoken_env = "{variable(other, name)}"'
                    sections.append(f"[node.{other}]\n{said}")
        place.config.write_text("\n".join(sections))
    return places, environment
