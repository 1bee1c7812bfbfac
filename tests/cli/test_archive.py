"""``archive``, and what waits for one, as an operator types it."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import msgspec
import pytest

from tests.archive.local import archive, held
from tests.cli.conftest import HOUR, Service
from tests.support.commands import Wsrm, document
from wsrm_mq.archive.files import commit, load

YES = ("--yes", "--reason", "why", "--actor", "ada")


@pytest.fixture
def place(somewhere: Path) -> Path:
    (somewhere / "wsrm-mq.toml").write_text("retain_until_archived = true\nretain = 60\n")
    return somewhere / "archive"


@pytest.fixture
def identifier(service: Service, place: Path) -> str:
    """A sequence that got 1, 2 and 3, of which 1 and 2 were delivered an hour ago, archived and not confirmed."""
    made = service.sequence(1, 2, 3, partner="acme")
    service.deliver(made, 1, 2)
    archive(service.path, place)
    return made.terms.identifier


@pytest.mark.parametrize(
    "act",
    [
        ("show",),
        ("verify",),
        ("confirm", "--actor", "ada"),
        ("withdraw", "--reason", "it is lost"),
        ("forget", "--message-id", "urn:message:1", *YES),
    ],
    ids=lambda act: act[0],
)
def test_an_archive_is_named_by_its_path_or_as_a_file_and_by_no_other_address(
    identifier: str, wsrm: Wsrm, place: Path, act: tuple[str, ...]
) -> None:
    verb, *options = act
    assert wsrm("archive", "confirm", "archive").exit_code == 0
    result = wsrm("archive", verb, "s3a://bucket/archive", *options)
    assert (result.exit_code, "addresses with s3a: are not supported yet." in result.stderr) == (2, True), result.output
    assert wsrm("archive", verb, f"file:{place}", *options).exit_code == 0


def test_an_archive_is_read_by_its_relative_name_whatever_that_is(identifier: str, wsrm: Wsrm, place: Path) -> None:
    name = "april:a b"
    place.rename(place.with_name(name))
    done = wsrm("archive", "verify", name, "--all")
    assert (done.exit_code, "has what" in done.stderr) == (0, True), done.output
    done = wsrm("archive", "forget", name, "--message-id", "urn:message:1", *YES)
    assert done.exit_code == 0, done.output


def test_prune_keeps_what_no_archive_holds_and_says_so(identifier: str, wsrm: Wsrm) -> None:
    before = wsrm("store", "prune", "--older-than", "PT1M", *YES)
    assert "No archive holds 2 messages" in before.stderr
    assert "Deleted 0 messages" in before.stderr
    confirmed = wsrm("archive", "confirm", "archive", "--actor", "ada")
    assert "what manifest 1 of" in confirmed.stderr
    after = wsrm("store", "prune", "--older-than", "PT1M", *YES)
    assert "No archive holds" not in after.stderr
    assert "Deleted 2 messages" in after.stderr


def test_prune_without_the_configuration_warns_of_what_no_archive_holds(
    identifier: str, service: Service, somewhere: Path, wsrm: Wsrm
) -> None:
    assert wsrm("archive", "confirm", "archive", "--actor", "ada").exit_code == 0
    service.deliver(service.sequence(1, partner="acme"), 1)
    (somewhere / "wsrm-mq.toml").rename(somewhere / "elsewhere.toml")
    asked = ("store", "prune", "--older-than", "0", "--dry-run")
    assert "and not 1 message and 0 bodies" in " ".join(wsrm(*asked).stderr.split())
    assert "name that with --config FILE" in " ".join(wsrm(*asked).stderr.split())
    assert "Archives hold messages" not in wsrm(*asked, "--config", "elsewhere.toml").stderr


def test_what_is_kept_too_long_alarms_until_an_archive_is_confirmed(
    identifier: str, service: Service, wsrm: Wsrm
) -> None:
    limits = ("--warning", "unarchived=60", "--critical", "unarchived=")
    assert "unarchived=0s" not in wsrm("check", *limits).stdout
    assert "how long what no archive holds is kept beyond its retain" in wsrm("check", *limits).stdout
    service.instance.db.execute("UPDATE entry SET settled_at = settled_at - ? WHERE settled_at > 0", (30 * 24 * HOUR,))
    told = wsrm("status").stdout
    assert "Nothing has been archived for 30 d" in told
    assert "wsrm-mq archive list" in told
    assert wsrm("archive", "confirm", "archive").exit_code == 0
    assert "unarchived=0s" in wsrm("check", *limits).stdout


def test_an_archive_that_nothing_waits_for_does_not_alarm(identifier: str, somewhere: Path, wsrm: Wsrm) -> None:
    (somewhere / "wsrm-mq.toml").write_text("retain = 60\n")
    assert "unarchived=0s" in wsrm("check").stdout


def test_the_archives_that_were_confirmed_are_listed_and_withdrawn(identifier: str, place: Path, wsrm: Wsrm) -> None:
    assert wsrm("archive", "confirm", "archive/manifest.json", "--actor", "ada").exit_code == 0
    (found,) = document(wsrm("archive", "list", "--json"))["archives"]
    assert found["archive"] == load(place).archive
    assert (found["number"], found["actor"], found["positions"]) == (1, "ada", 2)
    assert found["archive"] in wsrm("archive", "list").stdout
    gone = wsrm("archive", "withdraw", found["archive"][:6], "--reason", "its disk is dead")
    assert gone.exit_code == 0
    assert document(wsrm("archive", "list", "--json"))["archives"] == []
    assert "archive_withdrawn" in wsrm("audit", "list").stdout
    assert wsrm("archive", "confirm", "archive").exit_code == 0
    assert wsrm("archive", "withdraw", "archive", "--reason", "its disk is dead").exit_code == 0, "by its place"
    again = wsrm("archive", "withdraw", found["archive"], "--reason", "again")
    assert (again.exit_code, "no archive was confirmed that begins with or is at" in again.stderr) == (3, True)


def test_an_archive_is_verified_against_its_store_which_is_told(
    identifier: str, service: Service, place: Path, wsrm: Wsrm
) -> None:
    good = wsrm("archive", "verify", "archive", "--all", "--json")
    assert json.loads(good.stdout)["confirmed"] is True
    assert json.loads(good.stdout)["not_read"] == 0
    again = wsrm("archive", "verify", "archive")
    assert (
        "files were compared before and not read again, but for their length: --all reads every file." in again.stderr
    )
    assert document(wsrm("archive", "list", "--json"))["archives"][0]["positions"] == 2
    service.instance.db.execute("UPDATE message SET body = CAST('<Other/>' AS BLOB) WHERE id = 2")
    bad = wsrm("archive", "verify", "archive", "--all")
    assert bad.exit_code == 1
    assert ["other", "messages", "2"] in [line.split() for line in bad.stdout.splitlines()]
    assert "1 difference from" in bad.stderr


def test_what_was_not_compared_is_not_confirmed_and_what_to_do_is_said(
    identifier: str, place: Path, wsrm: Wsrm
) -> None:
    known = load(place)
    fresh = tuple(msgspec.structs.replace(one, verified_at=None) for one in known.segments)
    commit(place, msgspec.structs.replace(known, segments=fresh))
    refused = wsrm("archive", "confirm", "archive")
    assert refused.exit_code == 4
    assert f"{len(fresh)} of its files were not compared with the store" in refused.stderr
    assert "Run `wsrm-mq archive verify`" in refused.stderr
    assert wsrm("archive", "verify", "archive", "--no-confirm").exit_code == 0
    assert document(wsrm("archive", "list", "--json"))["archives"] == []
    assert wsrm("archive", "confirm", "archive").exit_code == 0


def test_a_message_is_forgotten_and_the_manifest_says_by_whom(identifier: str, place: Path, wsrm: Wsrm) -> None:
    dry = wsrm("archive", "forget", "archive", "--message-id", "urn:message:1", "--dry-run")
    assert "This would take 1 message and 0 sequences out" in dry.stderr
    assert wsrm("archive", "forget", "archive", "--message-id", "urn:message:1", "--yes").exit_code == 4
    done = wsrm("archive", "forget", "archive", "--message-id", "urn:message:1", *YES, "--json")
    assert json.loads(done.stdout)["rows"] == {"messages": 1}
    assert held(place, "messages", "position") == [(2,)]
    shown = wsrm("archive", "show", "archive").stdout
    assert next(line.split()[:2] for line in shown.splitlines() if "forgotten" in line) == ["2", "forgotten"]
    assert document(wsrm("archive", "show", "archive", "--json"))["records"][-1]["reason"] == "why"
    missing = wsrm("archive", "forget", "archive", "--message-id", "urn:message:1", *YES)
    assert (missing.exit_code, "has nothing of the message" in missing.stderr) == (3, True)


def test_all_of_a_partner_is_forgotten(identifier: str, place: Path, wsrm: Wsrm) -> None:
    assert wsrm("archive", "forget", "archive", *YES).exit_code == 2
    assert wsrm("archive", "forget", "archive", "--partner", "acme", *YES).exit_code == 0
    assert held(place, "messages", "position") == held(place, "sequences", "key") == []


@pytest.mark.parametrize(
    ("arguments", "status", "told"),
    [
        (("archive", "show", "nowhere"), 3, "nowhere: there is no archive."),
        (("archive", "verify", "nowhere"), 3, "nowhere: there is no archive."),
        (("archive", "forget", "nowhere", "--partner", "acme", *YES), 3, "nowhere: there is no archive."),
        (("archive", "confirm", "broken.json"), 5, "is no manifest that can be read"),
        (("archive", "show", "april"), 5, "april: is an export, and no archive"),
        (("archive", "confirm", "other"), 4, "the archive is of the store"),
        (("archive", "verify", "april"), 5, "april: is an export, and no archive"),
        (("archive", "forget", "april", "--partner", "acme", *YES), 5, "april: is an export, and no archive"),
        (("archive", "confirm", "april/manifest.json"), 5, "manifest.json: is an export, and no archive"),
    ],
)
def test_what_cannot_be_used_is_said_in_one_line(
    identifier: str, place: Path, somewhere: Path, wsrm: Wsrm, arguments: tuple[str, ...], status: int, told: str
) -> None:
    (somewhere / "broken.json").write_text("{")
    assert wsrm("store", "export", "april").exit_code == 0
    exported = (somewhere / "april" / "manifest.json").read_bytes()
    shutil.copytree(place, somewhere / "other")
    commit(somewhere / "other", msgspec.structs.replace(load(place), store="another"))
    result = wsrm(*arguments)
    assert (result.exit_code, told in result.stderr) == (status, True), result.output
    assert not (somewhere / "nowhere").exists()
    assert (somewhere / "april" / "manifest.json").read_bytes() == exported
    assert not (somewhere / "april" / "lock").exists()
