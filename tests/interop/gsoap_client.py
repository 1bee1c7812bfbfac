"""A gSOAP RM Source under the tests' control.

``build`` compiles the C program in ``gsoap/`` with the system's gSOAP, once for each variant and state of the
sources. ``GsoapClient`` runs it: a conversation is a list of steps (``gsoap/rmclient.c`` lists them), and
what it knows after each step comes back as a ``Step``.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pytest

from wsrm_mq.versions import WSA_2004, WSA_2005, WSRM_1_0, WSRM_1_1, AddressingVersion, RMVersion, SOAPVersion

SOURCES: Final = Path(__file__).with_name("gsoap")
GSOAP: Final = Path("/usr/share/gsoap")
ENGINE: Final = ("plugin/wsaapi.c", "custom/duration.c")
"""Parts of gSOAP that are shipped as source. ``gsoap/plugin.c`` includes one more."""


CLIENT: Final = ("rmclient.c", "source.c", "endpoint.c", "plugin.c")


@dataclass(frozen=True, slots=True)
class Variant:
    """One combination of versions that gSOAP speaks."""

    rm: RMVersion
    soap: SOAPVersion
    addressing: AddressingVersion = WSA_2005

    def __str__(self) -> str:
        wsa = "-wsa2004" if self.addressing is WSA_2004 else ""
        return f"rm{self.rm.label}{wsa}-soap{self.soap.label}"


VARIANTS: Final = (
    Variant(WSRM_1_1, SOAPVersion.SOAP_1_1),
    Variant(WSRM_1_1, SOAPVersion.SOAP_1_2),
    Variant(WSRM_1_0, SOAPVersion.SOAP_1_1),
    Variant(WSRM_1_0, SOAPVersion.SOAP_1_2),
    Variant(WSRM_1_0, SOAPVersion.SOAP_1_1, WSA_2004),
    Variant(WSRM_1_0, SOAPVersion.SOAP_1_2, WSA_2004),
)
OPPOSITES: Final = (VARIANTS[1], VARIANTS[4])
"""Each version there is has its turn in one of the two: what holds in both is repeated with the others at length."""


def _parametrize(variants: Iterable[Variant], usual: Iterable[Variant] = OPPOSITES) -> pytest.MarkDecorator:
    chosen = [pytest.param(v.rm, v, id=str(v), marks=() if v in usual else pytest.mark.long) for v in variants]
    return pytest.mark.parametrize(("rm", "variant"), chosen)


every_variant: Final = _parametrize(VARIANTS)
"""Run a test that takes the fixture ``gsoap`` with every combination of versions: with ``OPPOSITES``, and at length
with the others."""
rm_1_1: Final = _parametrize(v for v in VARIANTS if v.rm is WSRM_1_1)
rm_1_0: Final = _parametrize(v for v in VARIANTS if v.rm is WSRM_1_0)
each_addressing: Final = _parametrize((VARIANTS[1], VARIANTS[3], VARIANTS[4]))
"""Each RM version with each version of WS-Addressing that goes with it, and both SOAP versions."""
at_length: Final = _parametrize((VARIANTS[1], VARIANTS[3], VARIANTS[4]), VARIANTS[1:2])
"""The same for what takes seconds: all but the newest versions at length."""
one_variant: Final = _parametrize(VARIANTS[1:2])
"""For tests of what does not depend on versions."""


def missing() -> str | None:
    """Why gSOAP cannot be used here, or None if it can."""
    absent = [tool for tool in ("soapcpp2", "gcc") if shutil.which(tool) is None]
    absent += [str(GSOAP / part) for part in (*ENGINE, "plugin/wsrmapi.c") if not (GSOAP / part).is_file()]
    return f"no {', '.join(absent)}: apt-get install gsoap libgsoap-dev gcc" if absent else None


def build(variant: Variant, root: Path) -> Path:
    """The program for ``variant``, compiled below ``root`` unless these very sources were before; for RM 1.1
    over SOAP 1.2 ``rmserver`` is beside it. (gSOAP's plug-in for servers does not compile with the header of 1.0.)"""
    parts = [*sorted(SOURCES.iterdir()), *(GSOAP / part for part in (*ENGINE, "plugin/wsrmapi.c"))]
    soap = "-1" if variant.soap is SOAPVersion.SOAP_1_1 else "-2"
    header = f"rm{variant.rm.label.replace('.', '')}.h"
    state = hashlib.sha256(b"\0".join([header.encode(), soap.encode(), *(part.read_bytes() for part in parts)]))
    target = root / f"{header[:-2]}{soap}-{state.hexdigest()[:16]}"
    if not target.exists():
        root.mkdir(parents=True, exist_ok=True)
        scratch = Path(tempfile.mkdtemp(dir=root))
        try:
            _compile(scratch, header, soap, has_server=header == "rm11.h" and soap == "-2")
            scratch.rename(target)
        except OSError:  # not empty: another test process was faster
            assert target.exists()
        finally:
            shutil.rmtree(scratch, ignore_errors=True)
    return target / "rmclient"


def _compile(where: Path, header: str, soap: str, *, has_server: bool) -> None:
    imports = f"{SOURCES}:{GSOAP / 'import'}:{GSOAP}"
    stubs = ["soapcpp2", "-c", "-x", "-w", "-L", "-a", soap, f"-I{imports}", str(SOURCES / header)]
    program = [
        "gcc",
        "-O1",
        "-DSOAP_WSRM_FAST_ALLOC",
        "-o",
        "rmclient",
        "-I.",
        f"-I{SOURCES}",
        f"-I{GSOAP / 'plugin'}",
        f"-I{GSOAP}",
    ]
    program += [str(SOURCES / part) for part in CLIENT]
    generated = [
        "soapC.c",
        "soapClient.c",
        "soapServer.c",
        *(str(GSOAP / part) for part in ENGINE),
        "-lgsoap",
        "-lpthread",
    ]
    commands = [stubs, [*program, *generated]]
    server = [part if part != "rmclient" else "rmserver" for part in program[: -len(CLIENT)]]
    server += [str(SOURCES / "rmserver.c"), str(GSOAP / "plugin/wsrmapi.c"), str(GSOAP / "plugin/threads.c")]
    if has_server:
        commands.append([*server, *generated])
    for command in commands:
        done = subprocess.run(command, cwd=where, capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"{command[0]}: {done.stdout}{done.stderr}"


@dataclass(frozen=True, slots=True)
class Fault:
    code: str
    subcode: str | None
    reason: str
    identifier: str | None
    """Identifier of the sequence, from the detail, where gSOAP could read it."""

    @property
    def name(self) -> str | None:
        """Local name of the RM fault, wherever the SOAP version has it."""
        return (self.subcode or self.code).rpartition(":")[2]


@dataclass(frozen=True, slots=True)
class Step:
    """What the source knows after a step; the fields are those of ``gsoap/rmclient.c``."""

    step: str
    error: int
    http: int
    fault: Fault | None
    acked: list[tuple[int, int]] | None
    final: bool
    pending: list[int]
    seq: str | None
    state: str | None
    lifetime: int
    received: list[tuple[int, int]]
    reply: str | None
    replies: list[tuple[int, str]]
    more: bool
    port: int
    message_id: str | None
    relates_to: str | None
    connections: int

    @classmethod
    def from_json(cls, line: str) -> Step:
        fields: dict[str, Any] = json.loads(line)
        for pairs in ("acked", "received", "replies"):
            if fields[pairs] is not None:
                fields[pairs] = [(first, second) for first, second in fields[pairs]]
        if fields["fault"] is not None:
            fields["fault"] = Fault(**fields["fault"])
        return cls(**fields)


class Conversation:
    """A running source that takes one step after the other."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def step(self, line: str) -> Step:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(line + "\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline()
        if not answer:
            raise AssertionError(f"rmclient ended at {line!r} with status {self._process.wait()}")
        return Step.from_json(answer)

    def steps(self, *lines: str) -> list[Step]:
        return [self.step(line) for line in lines]


@dataclass(frozen=True, slots=True)
class GsoapClient:
    """A gSOAP RM Source for the service at ``url``."""

    binary: Path
    url: str
    addressing: AddressingVersion = WSA_2005

    @contextmanager
    def conversation(self) -> Iterator[Conversation]:
        """Start the source; its sequence and connection live until the end of the block."""
        command = [str(self.binary), self.url, "2004" if self.addressing is WSA_2004 else "2005"]
        pipe = subprocess.PIPE
        with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) as process:
            try:
                yield Conversation(process)
            finally:
                assert process.stdin is not None
                process.stdin.close()

    def run(self, steps: Iterable[str]) -> list[Step]:
        """Have a whole conversation: one ``Step`` for each of ``steps``."""
        with self.conversation() as conversation:
            return conversation.steps(*steps)
