"""A PostgreSQL of the tests' own."""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NoReturn

import pytest


def absent(reason: str) -> NoReturn:
    """Skip, but where everything has to be there."""
    pytest.skip(reason)


@pytest.fixture(scope="session")
def postgres() -> Iterator[str]:
    """A PostgreSQL of the tests' own, on a socket in a directory of its own; the connection string."""
    debian = Path("/usr/lib/postgresql").glob("*/bin")
    places = os.pathsep.join([os.environ.get("PATH", ""), *map(str, debian)])
    initdb, server = (shutil.which(program, path=places) for program in ("initdb", "postgres"))
    if not initdb or not server:
        absent("PostgreSQL is not installed here (Debian: apt install postgresql)")
    owner: dict[str, Any] = {}
    if os.getuid() == 0:  # it refuses to be run by root
        try:
            account = pwd.getpwnam("postgres")
        except KeyError:
            absent("PostgreSQL will not run as root, and there is no user postgres")
        owner = {"user": account.pw_uid, "group": account.pw_gid, "extra_groups": []}
    with tempfile.TemporaryDirectory(prefix="wsrm-pg-") as directory:
        if owner:
            os.chown(directory, owner["user"], owner["group"])
        cluster = f"{directory}/cluster"
        command = [initdb, "-D", cluster, "-U", "postgres", "-A", "trust", "-N", "-E", "UTF8", "--locale=C"]
        made = subprocess.run(command, cwd=directory, capture_output=True, text=True, check=False, **owner)
        assert made.returncode == 0, made.stderr
        command = [server, "-D", cluster, "-k", directory, "-c", "listen_addresses=", "-c", "fsync=off"]
        with open(f"{directory}/log", "w") as log:
            running = subprocess.Popen(command, cwd=directory, stdout=log, stderr=log, **owner)
        where = f"host={directory} user=postgres dbname=postgres"
        try:
            _until_answering(where, running, Path(directory, "log"))
            yield where
        finally:
            running.send_signal(signal.SIGQUIT)
            running.wait(timeout=20)


def _until_answering(where: str, running: subprocess.Popen[bytes], log: Path) -> None:
    import psycopg  # here: every test run loads this module

    end = time.monotonic() + 30
    while True:
        try:
            psycopg.connect(where).close()
            return
        except psycopg.OperationalError:
            if running.poll() is not None or time.monotonic() > end:
                raise AssertionError(log.read_text()) from None
            time.sleep(0.05)
