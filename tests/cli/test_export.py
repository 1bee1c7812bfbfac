"""``store export`` and ``message export`` as an operator types them."""

from __future__ import annotations

import csv
import gzip
import os
from pathlib import Path

import pytest

from tests.cli.conftest import Service, Shell
from tests.support.commands import Wsrm, document
from wsrm_mq.cli import archive as command
from wsrm_mq.export import TABLES, load
from wsrm_mq.export.formats import format_named


def test_what_help_offers_is_what_there_is() -> None:
    assert tuple(TABLES) == command.TABLES
    assert all(map(format_named, command.FORMATS))


def test_a_store_is_exported_while_its_service_runs(service: Service, wsrm: Wsrm, somewhere: Path) -> None:
    made = service.sequence(1, 2, 4)
    service.deliver(made, 1)
    found = document(wsrm("store", "export", "out", "--json", "--segment-rows", 2))
    assert found["tables"]["messages"]["upper"] == 3
    assert [one["rows"] for one in found["segments"] if one["table"] == "messages"] == [2, 1]
    assert load(somewhere / "out").store == found["store"]
    assert (somewhere / "out").stat().st_mode & 0o777 == 0o700
    assert {one.stat().st_mode & 0o777 for one in (somewhere / "out").rglob("*") if one.is_file()} == {0o600}


def test_people_are_told_each_segment_and_what_it_came_to(service: Service, wsrm: Wsrm) -> None:
    service.sequence(1, 2)
    result = wsrm("message", "export", "out", "--bodies")
    assert result.stdout.split()[:4] == ["directory", "out", "messages", "2"]
    assert "messages/000001.ndjson.gz: 2 rows, messages up to 2 of 2" in result.stderr
    assert "without it, and marked as not replayable" in result.stderr


def test_a_query_says_which_messages(service: Service, wsrm: Wsrm) -> None:
    service.sequence(1, 2, 4, 7)
    result = wsrm("message", "export", "out", "state:held", "-msg:7")
    assert result.stdout.split()[2:4] == ["messages", "1"]
    result = wsrm("message", "export", "none", "stat:held")
    assert (result.exit_code, "did you mean state?" in result.stderr) == (2, True)


def test_what_cannot_be_is_one_line_that_says_what_to_do(service: Service, wsrm: Wsrm, somewhere: Path) -> None:
    service.sequence(1)
    for arguments, status, told in (
        (("out", "--store", "none.db"), 5, "there is no such store"),
        (("out", "--format", "zip"), 2, "zip is for messages with their envelopes"),
        (("out", "--header", "Cookie"), 2, "'Cookie' cannot be exported: it is never stored"),
        ((".",), 4, "is not empty, and has no export. Name another directory."),
    ):
        result = wsrm("store", "export", *arguments)
        assert (result.exit_code, len(result.stderr.splitlines())) == (status, 1), result.stderr
        assert told in result.stderr
    assert not (somewhere / "out").exists()


@pytest.mark.parametrize("command", ["store", "message"])
def test_an_address_that_is_not_of_this_machine_is_refused_and_nothing_is_made(
    service: Service, wsrm: Wsrm, somewhere: Path, command: str
) -> None:
    """Else the export would lie in a directory of that name, and its exit status would say that all went well."""
    service.sequence(1)
    before = set(somewhere.iterdir())
    result = wsrm(command, "export", "s3a://bucket/out")
    assert (result.exit_code, "addresses with s3a: are not supported yet." in result.stderr) == (2, True), result.output
    assert set(somewhere.iterdir()) == before


@pytest.mark.parametrize("name", ["audit 2026-11-23T23:00", "ü%20#x", "s3a:bucket"])
def test_an_export_is_where_it_was_asked_for_whatever_its_name(
    service: Service, wsrm: Wsrm, somewhere: Path, name: str
) -> None:
    service.sequence(1)
    before = set(somewhere.iterdir())
    assert wsrm("message", "export", name).exit_code == 0
    assert set(somewhere.iterdir()) - before == {somewhere / name}
    assert wsrm("message", "export", f"file:{somewhere}/second").exit_code == 0
    assert (somewhere / "second" / "manifest.json").exists()


def test_a_directory_that_cannot_be_made_is_told(service: Service, wsrm: Wsrm) -> None:
    service.sequence(1)
    result = wsrm("store", "export", os.devnull + "/out")
    assert result.exit_code == 5
    assert "cannot be written: Not a directory. See to that, and run the command again" in result.stderr


def test_ctrl_c_leaves_what_goes_on(service: Service, shell: Shell, wsrm: Wsrm, somewhere: Path) -> None:
    service.sequence(*range(1, 40))
    stop = (
        "import signal, os, wsrm_mq.cli.archive as e\n"
        "say, e.say = e.say, lambda text: (say(text), os.kill(os.getpid(), signal.SIGINT))\n"
    )
    (somewhere / "sitecustomize.py").write_text(stop)
    result = shell("message", "export", "out", "--segment-rows", 10, env={**os.environ, "PYTHONPATH": str(somewhere)})
    assert (result.returncode, b"Traceback" in result.stderr) == (130, False)
    assert document(wsrm("message", "export", "out", "--segment-rows", 10, "--json"))["segments"][-1]["last"] == [39]


def test_what_a_spreadsheet_would_compute_is_text_where_that_is_asked_for(
    service: Service, wsrm: Wsrm, somewhere: Path
) -> None:
    for action in FORMULAS:
        service.sequence(1, action=action)

    def actions(directory: str, *options: str) -> list[str]:
        assert wsrm("message", "export", directory, "--format", "csv", *options).exit_code == 0
        with gzip.open(somewhere / directory / "messages" / "000001.csv.gz", "rt", newline="") as file:
            return [row["action"] for row in csv.DictReader(file)]

    assert actions("exact") == FORMULAS
    assert actions("shown", "--for-spreadsheet") == [f"'{one}" for one in FORMULAS[:-1]] + FORMULAS[-1:]
    assert load(somewhere / "shown").encoding == "spreadsheet"
    assert wsrm("message", "export", "other", "--for-spreadsheet").exit_code == 2
    assert not (somewhere / "other").exists()


FORMULAS = ['=cmd|"/c calc"!A1', "+1", "-1", "@SUM(A1)", "\t=1", "urn:orders/put=1"]
