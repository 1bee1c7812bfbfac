"""`config show|check|init`: what holds and where it comes from."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support.commands import Wsrm, document
from wsrm_mq.config import Settings, load
from wsrm_mq.config.settings import OPTIONS


def test_show_names_the_origin_of_every_value(wsrm: Wsrm, somewhere: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (somewhere / "wsrm-mq.toml").write_text('port = 1\nthreads = 2\n[partner.acme]\npath = "/a"\nwindow = 5\n')
    monkeypatch.setenv("WSRM_MQ_PORT", "3")
    told = document(wsrm("config", "show", "--json"))
    assert told["file"] == "wsrm-mq.toml"
    assert list(told["options"]) == list(OPTIONS)
    assert told["options"]["port"] == {"value": 3, "origin": "env"}
    assert told["options"]["threads"] == {"value": 2, "origin": "file"}
    assert told["options"]["host"] == {"value": "127.0.0.1", "origin": "default"}
    assert told["partners"] == {"acme": {"path": "/a", "window": 5}}
    lines = wsrm("config", "show").stdout.splitlines()
    assert "port\t3\tenv" in lines
    assert 'window\t"none"\tdefault' in lines
    assert "partner.acme.window\t5\tfile" in lines


def test_show_as_a_file_is_a_file_that_means_the_same(
    wsrm: Wsrm, somewhere: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WSRM_MQ_RETRY", "1,PT2M")
    shown = wsrm("config", "show", "--toml").stdout
    assert "\nretry = [1.0, 120.0]  # env\n" in shown
    (somewhere / "other.toml").write_text(shown)
    assert load(Path("other.toml"), {}) == load(None, {"WSRM_MQ_RETRY": "1,PT2M"})


def test_check_says_what_it_looked_at(wsrm: Wsrm, somewhere: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert wsrm("config", "check").stderr.startswith("There is no configuration file")
    (somewhere / "other.toml").write_text("port = 1")
    assert wsrm("config", "check", "--config", "other.toml").stderr == "other.toml: good.\n"
    monkeypatch.setenv("WSRM_MQ_CONFIG", "other.toml")
    assert wsrm("config", "check").stderr == "other.toml: good.\n"
    monkeypatch.setenv("WSRM_MQ_CONFIG", "gone.toml")
    result = wsrm("config", "check")
    assert result.exit_code == 2
    assert "gone.toml: there is no such file" in result.stderr


def test_check_reads_the_wsdls_that_one_way_names(wsrm: Wsrm, somewhere: Path) -> None:
    (somewhere / "some.wsdl").write_text('<definitions xmlns="http://schemas.xmlsoap.org/wsdl/"/>')
    (somewhere / "none.WSDL").write_text("<page/>")
    named = {
        '["urn:put", "some.wsdl"]': None,
        '"auto"': None,
        '["nosuch.wsdl"]': "one_way: nosuch.wsdl cannot be read as a WSDL: No such file or directory.",
        '["urn:put", "none.WSDL"]': "one_way: none.WSDL cannot be read as a WSDL: not a WSDL 1.1 document.",
    }
    for one_way, problem in named.items():
        (somewhere / "wsrm-mq.toml").write_text(f"one_way = {one_way}")
        result = wsrm("config", "check")
        said = f"wsrm-mq: {problem}" if problem else "wsrm-mq.toml: good."
        assert (result.exit_code, result.stderr) == (2 if problem else 0, f"{said}\n")


def test_check_tells_a_program_what_is_wrong(wsrm: Wsrm, somewhere: Path) -> None:
    told = document(wsrm("config", "check", "--json"))
    assert (told["file"], told["problem"], told["problems"]) == (None, None, [])
    (somewhere / "wsrm-mq.toml").write_text("port = 'high'")
    result = wsrm("config", "check", "--json")
    assert result.exit_code == 2
    told = json.loads(result.stdout)
    assert told["file"] == "wsrm-mq.toml"
    assert told["problem"].startswith("wsrm-mq.toml: port: 'high' is not allowed")
    assert result.stderr == f"wsrm-mq: {told['problem']}\n"


def test_check_shows_all_mistakes_at_once_also_those_in_wsdls(
    wsrm: Wsrm, somewhere: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (somewhere / "wsrm-mq.toml").write_text(
        "max_hold = 5\none_way = ['gone.wsdl', 'lost.wsdl']\n"
        "[partner.acme]\nprincipal = 'acme'\none_way = ['away.wsdl']\nordred = false\n"
    )
    monkeypatch.setenv("WSRM_MQ_PORT", "x")
    result = wsrm("config", "check")
    assert result.exit_code == 2
    said = result.stderr.removeprefix("wsrm-mq: ").splitlines()
    assert [line.strip().partition(": ")[2].partition(": ")[0] for line in said[:3]] == [
        "max_hold",
        "partner.acme.ordred",
        "WSRM_MQ_PORT",
    ]
    why = "cannot be read as a WSDL: No such file or directory."
    assert said[3:] == [
        f"  one_way: gone.wsdl {why}",
        f"  one_way: lost.wsdl {why}",
        f"  partner.acme.one_way: away.wsdl {why}",
    ]
    told = json.loads(wsrm("config", "check", "--json").stdout)
    assert told["problems"] == [line.strip() for line in said]
    assert told["problem"] == told["problems"][0]


def test_check_lists_the_headers_that_are_stored(wsrm: Wsrm, somewhere: Path) -> None:
    (somewhere / "wsrm-mq.toml").write_text("keep_headers = ['X-Tenant']")
    told = document(wsrm("config", "check", "--json"))["kept_headers"]
    assert {"SOAPAction", "User-Agent", "X-Tenant"} <= set(told)
    assert "X-API-Key" not in told
    assert f"{', '.join(told)}." in wsrm("config", "check").stdout.replace("\n", " ")


def test_init_writes_a_file_that_changes_nothing(wsrm: Wsrm, somewhere: Path) -> None:
    assert wsrm("config", "init").stderr == "Wrote wsrm-mq.toml.\n"
    assert load(somewhere / "wsrm-mq.toml", {}) == Settings()
    assert wsrm("config", "init", "-").stdout == (somewhere / "wsrm-mq.toml").read_text()


def test_init_tells_a_program_which_file_it_wrote(wsrm: Wsrm, somewhere: Path) -> None:
    assert document(wsrm("config", "init", "a.toml", "--json")) == {"path": "a.toml"}
    assert (somewhere / "a.toml").exists()
    assert wsrm("config", "init", "-", "--json").exit_code == 2


def test_init_leaves_a_file_that_is_there(wsrm: Wsrm, somewhere: Path) -> None:
    (somewhere / "wsrm-mq.toml").write_text("port = 1")
    result = wsrm("config", "init")
    assert result.exit_code == 4
    assert (somewhere / "wsrm-mq.toml").read_text() == "port = 1"


def test_init_into_nowhere_fails_in_words(wsrm: Wsrm) -> None:
    result = wsrm("config", "init", "nowhere/wsrm-mq.toml")
    assert result.exit_code == 1
    assert result.stderr == "wsrm-mq: nowhere/wsrm-mq.toml cannot be written: No such file or directory.\n"
