"""The unit of systemd, the Dockerfile, the compose file: parsed, and their commands run, without systemd or Docker."""

from __future__ import annotations

import configparser
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

import pytest

from tests.deploy.page import HOWTO
from tests.support.orders_server import within
from tests.support.pages import ROOT
from tests.support.programs import free_port
from wsrm_mq.cli.output import Exit
from wsrm_mq.cli.serve import DRAIN_SECONDS
from wsrm_mq.testing import EnvelopeFactory, HTTPWire, Operation, RMSender, SOAPVersion

DOCKERFILE: Final = ROOT / "examples/docker/Dockerfile"
COMPOSE: Final = ROOT / "examples/docker/compose.yaml"
UNIT: Final = ROOT / "examples/systemd/orders.service"
INSTRUCTIONS: Final = {"FROM", "COPY", "RUN", "WORKDIR", "USER", "ENV", "EXPOSE", "HEALTHCHECK", "CMD"}


def instructions() -> list[tuple[str, str]]:
    """Of the Dockerfile: each word with what follows it."""
    lines = DOCKERFILE.read_text().replace("\\\n", "").splitlines()
    found = [(line.partition(" ")[0], line.partition(" ")[2]) for line in lines if line and not line.startswith("#")]
    assert {word for word, _ in found} <= INSTRUCTIONS
    return found


def of(word: str) -> list[str]:
    return [text for name, text in instructions() if name == word]


def unit() -> dict[str, list[str]]:
    """The keys of the unit's service; some stand there more than once."""
    found: dict[str, list[str]] = {}
    for line in UNIT.read_text().partition("[Service]\n")[2].partition("\n[")[0].splitlines():
        key, _, value = line.partition("=")
        found.setdefault(key, []).append(value)
    return found


def seconds(text: str) -> int:
    return int(text.removesuffix("s"))


def environment(settings: list[str], directory: Path) -> dict[str, str]:
    given = dict(setting.split("=", 1) for setting in settings)
    store = {"WSRM_MQ_STORE": str(directory / Path(given["WSRM_MQ_STORE"]).name)}
    return {**os.environ, **given, **store, "PYTHONUNBUFFERED": "1", "PYTHONWARNINGS": "ignore"}


class Started:
    """A service by the command of a file; ports and programs are the test's."""

    def __init__(self, directory: Path, command: list[str], settings: list[str], programs: Path) -> None:
        self.ports = {"8080": str(free_port()), "9090": str(free_port())}
        shutil.copy(HOWTO / "orders.py", directory)
        words = [self.ports.get(word, word.replace("0.0.0.0", "127.0.0.1")) for word in command]
        self._programs, self._directory = programs, directory
        self.environment = {
            **environment(settings, directory),
            "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}",
        }
        words[0] = str(programs / Path(words[0]).name)
        with (directory / "log").open("w") as log:
            self.process = subprocess.Popen(words, cwd=directory, env=self.environment, stdout=log, stderr=log)

    @property
    def log(self) -> str:
        return (self._directory / "log").read_text()

    def is_healthy(self, check: str) -> bool:
        """``check`` is a command of the shell."""
        for port, instead in self.ports.items():
            check = check.replace(f":{port}", f":{instead}")
        return (
            subprocess.run(check, shell=True, env=self.environment, stderr=subprocess.DEVNULL, check=False).returncode
            == 0
        )

    def send(self, *texts: str) -> None:
        with RMSender(lambda: HTTPWire(int(self.ports["8080"])), EnvelopeFactory(soap=SOAPVersion.SOAP_1_1)) as sender:
            for number, text in enumerate(texts, 1):
                sender.send_until_acknowledged(number, Operation("{urn:example:orders}put", text=text))
            sender.wait_until_delivered(self.environment["WSRM_MQ_STORE"])

    def stop(self) -> int:
        self.process.terminate()
        return self.process.wait(timeout=40)


@pytest.fixture(params=["here", pytest.param("fresh", marks=[pytest.mark.long, pytest.mark.timeout(400)])])
def programs(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """Where the image's programs are: those of this environment, or of one made by the Dockerfile's own command."""
    if request.param == "here":
        return Path(sys.executable).parent
    subprocess.run([sys.executable, "-m", "venv", tmp_path / "venv"], check=True)
    (install,) = [text for text in of("RUN") if "pip install" in text]
    words = shlex.split(install.replace("/src", str(ROOT)))
    subprocess.run([tmp_path / "venv/bin" / words[0], *words[1:]], check=True, cwd=tmp_path, stdout=subprocess.DEVNULL)
    return tmp_path / "venv/bin"


def test_what_the_image_runs_takes_orders_says_that_it_is_well_and_ends(tmp_path: Path, programs: Path) -> None:
    (command,), (check,) = of("CMD"), of("HEALTHCHECK")
    started = Started(tmp_path, json.loads(command), of("ENV"), programs)
    try:
        assert within(30, lambda: started.is_healthy(check.partition("CMD ")[2]), bool), started.log
        started.send("two seats", "a window")
    finally:
        assert started.stop() == 0, started.log
    assert re.findall("an order: (.*)", started.log) == ["two seats", "a window"]
    assert not started.is_healthy(check.partition("CMD ")[2])


def test_what_the_unit_runs_takes_orders_and_ends(tmp_path: Path) -> None:
    (command,) = unit()["ExecStart"]
    started = Started(tmp_path, shlex.split(command), unit()["Environment"], Path(sys.executable).parent)
    try:
        assert within(30, lambda: "serving" in started.log, bool), started.log
        started.send("two seats")
    finally:
        assert started.stop() == 0, started.log
    assert re.findall("an order: (.*)", started.log) == ["two seats"]


def test_the_image_copies_what_there_is_and_does_not_run_as_root() -> None:
    for sources, _, _target in (text.rpartition(" ") for text in of("COPY")):
        assert (ROOT / sources).exists(), sources
    assert of("USER") == ["orders"]
    assert instructions().index(("USER", "orders")) < [word for word, _ in instructions()].index("CMD")


def test_the_compose_file_keeps_the_store_s_directory_and_gives_it_time_to_end() -> None:
    yaml = pytest.importorskip("yaml")
    composed: dict[str, Any] = yaml.safe_load(COMPOSE.read_text())
    (service,) = composed["services"].values()
    assert (COMPOSE.parent / service["build"]["context"]).resolve() == ROOT
    assert ROOT / service["build"]["dockerfile"] == DOCKERFILE
    (volume,) = service["volumes"]
    name, _, mounted = volume.partition(":")
    assert set(composed["volumes"]) == {name}
    assert f"WSRM_MQ_STORE={mounted}/wsrm.db" in of("ENV")
    assert seconds(service["stop_grace_period"]) > DRAIN_SECONDS
    assert service["ports"] == [f"127.0.0.1:{port}:{port}" for port in of("EXPOSE")]


def test_the_unit_gives_it_time_to_end_and_starts_nothing_again_that_waits_for_an_operator() -> None:
    service = unit()
    assert seconds(service["TimeoutStopSec"][0]) > DRAIN_SECONDS
    assert [int(status) for status in service["RestartPreventExitStatus"][0].split()] == [Exit.USAGE, Exit.STORE]
    assert f"WSRM_MQ_STORE=/var/lib/{service['StateDirectory'][0]}/wsrm.db" in service["Environment"]


def test_systemd_finds_nothing_wrong_with_the_unit(tmp_path: Path) -> None:
    parsed = configparser.ConfigParser(strict=False)
    parsed.optionxform = str  # type: ignore[method-assign, assignment]
    parsed.read(UNIT)
    assert parsed.sections() == ["Unit", "Service", "Install"]
    if shutil.which("systemd-analyze") is None:
        return
    copy = tmp_path / UNIT.name
    copy.write_text(UNIT.read_text().replace("/opt/orders/venv/bin/wsrm-mq", "/bin/true"))
    done = subprocess.run(["systemd-analyze", "verify", copy], capture_output=True, text=True, check=False)
    if "Failed to initialize manager" in done.stderr:
        return
    assert [line for line in done.stderr.splitlines() if UNIT.name in line] == []
    assert done.returncode == 0, done.stderr
