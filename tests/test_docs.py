"""README and documentation, held against the code: what they say a user can type, see, set and follow is so.

The ``console`` blocks of README and tutorial are typed into a shell, and what it shows is compared
(``tests.support.pages``). ``sh`` blocks are not run: they install, or show a form.
"""

from __future__ import annotations

import inspect
import re
import shlex
import shutil
import tomllib
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import click
import pytest

from tests.support.pages import DOCS, ROOT, Shell, blocks, fits, session
from wsrm_mq import WSRMMiddleware
from wsrm_mq.asgi import WSRMASGIMiddleware
from wsrm_mq.cli import program
from wsrm_mq.cli.output import Exit
from wsrm_mq.config import Settings, load
from wsrm_mq.config.options import Kind, option_value
from wsrm_mq.config.settings import OPTIONS, PARTNER_DEFAULTS, PARTNER_OPTIONS
from wsrm_mq.config.writing import as_toml
from wsrm_mq.store.words import REASONS
from wsrm_mq.views.verdict import WORDS

README = ROOT / "README.md"
PAGES = sorted(DOCS.glob("*.md"))
HOWTO = sorted(DOCS.glob("howto/*.md"))
"""Followed by tests of their own."""
EXPLANATION = sorted(DOCS.glob("explanation/*.md"))
REFERENCE = sorted(DOCS.glob("reference/*.md"))
"""Tests of their own hold them against what they are about."""
PARTNERS = sorted(DOCS.glob("partners/*.md"))
"""What is typed and exchanged there, ``test_partners`` follows."""
TEXTS = [
    README,
    ROOT / "CHANGELOG.md",
    ROOT / "CONTRIBUTING.md",
    ROOT / "SECURITY.md",
    ROOT / "ARCHITECTURE.md",
    ROOT / "ROOMS.md",
    *PAGES,
    *HOWTO,
    *PARTNERS,
    *EXPLANATION,
    *sorted(ROOT.glob("examples/**/*.md")),
]


def named(paths: list[Path]) -> Any:
    return pytest.mark.parametrize("path", paths, ids=[str(path.relative_to(ROOT)) for path in paths])


# what a user types and sees


@pytest.mark.timeout(300)
def test_the_five_minutes_of_the_readme_go_as_it_says(shell: Shell, tmp_path: Path) -> None:
    for name in ("examples/orders_spyne/service.py", "docs/tutorial/send.py"):
        assert name in README.read_text()
        shutil.copy(ROOT / name, tmp_path)
    service = tmp_path / "service.py"
    known, wrapped = service.read_text(), "WSRMMiddleware(orders, store=STORE, "
    assert wrapped in known  # its options are its own: the environment has none of them
    # a busy machine does not reach `resume` before the fourth try, which is 15 seconds after the third
    service.write_text(known.replace(wrapped, f"{wrapped}retry=[1, 5, 300], "))
    commands = [typed for block in blocks(README) if block.kind == "console" for typed in session(block.text)]
    assert len(commands) > 8
    for typed in commands:
        shell.follow(typed)


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("page", "count"), [("tutorial.md", 25), ("queues-tutorial.md", 10), ("source-tutorial.md", 12)]
)
def test_the_tutorial_goes_as_it_says(shell: Shell, tmp_path: Path, page: str, count: int) -> None:
    """Its files are saved under the names that it says; a file shown as a difference takes the place of the old one."""
    followed = 0
    for kind, text in blocks(DOCS / page):
        if kind.startswith("{literalinclude}"):
            file = kind.split()[1]
            changed = re.search(r"^:diff: (.*)$", text, re.M)
            shutil.copy(DOCS / file, tmp_path / Path(changed[1] if changed else file).name)
        for typed in session(text) if kind == "console" else ():
            shell.follow(typed)
            followed += 1
    assert followed > count


def test_the_console_of_the_configuration_page_shows_what_is_said(shell: Shell) -> None:
    (console,) = [block.text for block in blocks(DOCS / "configuration.md") if block.kind == "console"]
    for typed in session(console):
        shell.follow(typed)


def test_what_is_shown_is_compared() -> None:
    assert fits("a\tb\t2026-11-21 15:25:52 UTC (3 s)\n", "a   b  2027-01-01 00:00:00 UTC (10 s)\n")
    assert fits("it failed, last with 'x y', 2 wait", "it failed, last with '…', 2 wait")
    assert not fits("acknowledged 1-3", "acknowledged 1-2")
    assert not fits("", "acknowledged 1-2")
    assert not fits("1 an order\n2 an order\n2 an order\n", "1 an order\n2 an order\n")


# code


def service(environ: Any, start_response: Any) -> list[bytes]:
    start_response("200 OK", [])
    return []


@named([path for path in PAGES if any(block.kind == "python" for block in blocks(path))])
def test_the_python_of_a_page_runs(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {"app": service}
    with ExitStack() as stack:
        for block in blocks(path):
            if block.kind != "python":
                continue
            exec(compile(block.text, f"{path.name}: {block.text[:30]!r}", "exec"), names)
            made = names.pop("application", None)
            if made is not None:
                stack.enter_context(made)
        if "node" in names:
            stack.enter_context(names["node"])


def test_the_functions_of_the_guarantees_page_do_what_it_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    for block in blocks(DOCS / "guarantees.md"):
        if block.kind == "python" and "def authenticate" not in block.text:
            exec(block.text, names)
    first, second = ({"wsrm.sequence_id": "urn:s", "wsrm.message_number": number} for number in (1, 2))
    for environ in (first, first):
        names["put_order"](environ, 1, "an order")
    assert [names["book"](second, seats) for seats in (2, 3)] == ["booked 2 seats"] * 2
    orders = names["sqlite3"].connect("orders.db").execute("SELECT n, text FROM orders").fetchall()
    assert orders == [(1, "an order")]


def test_the_python_of_the_readme_is_that_of_the_example() -> None:
    source = (ROOT / "examples/orders_spyne/service.py").read_text()
    shown = [block.text for block in blocks(README) if block.kind == "python"]
    assert shown
    for piece in (piece for text in shown for piece in text.split("...\n")):
        assert piece.strip("\n") in source


@named([path for path in PAGES if any(block.kind == "toml" for block in blocks(path))])
def test_the_toml_of_a_page_is_a_configuration(path: Path, tmp_path: Path) -> None:
    for block in blocks(path):
        if block.kind == "toml":
            file = tmp_path / "wsrm-mq.toml"
            file.write_text(block.text)
            assert load(file, {}) != Settings()


# commands


def commands(group: click.Group, name: str) -> Iterator[tuple[str, click.Command]]:
    """Every command that does something, by all its words."""
    context = click.Context(group)
    for word in group.list_commands(context):
        command = group.get_command(context, word)
        assert command is not None
        if isinstance(command, click.Group):
            yield from commands(command, f"{name} {word}")
        else:
            yield f"{name} {word}", command


COMMANDS = dict(commands(program, "wsrm-mq"))


def wsrm_mq_lines(path: Path) -> list[list[str]]:
    """The words of each wsrm-mq command that a text names: in a block, or between backticks."""
    text = path.read_text()
    inline = re.findall(r"`(wsrm-mq [^`\n]+)`", re.sub(r"^ *```.*?^ *```$", "", text, flags=re.M | re.S))
    typed = [line for block in blocks(path) for line in re.findall(r"\bwsrm-mq [a-z](?:(?! #)[^\n&|;>])*", block.text)]
    typed = [line for line in typed if not line.startswith("wsrm-mq serving")]
    return [shlex.split(line.partition(" 2>")[0].replace("$(cat", "X").replace(")", "")) for line in (*inline, *typed)]


def problem(words: list[str]) -> str | None:
    """What is wrong with a command line."""
    command: click.Command = program
    rest = words[1:]
    while isinstance(command, click.Group) and rest and not rest[0].startswith("-"):
        found = command.get_command(click.Context(command), rest[0])
        if found is None:
            return f"there is no command {rest[0]}"
        command, rest = found, rest[1:]
    options = {name for parameter in command.params for name in (*parameter.opts, *parameter.secondary_opts)}
    unknown = [word for word in rest if word.startswith("--") and word not in {*options, "--help"}]
    return f"there is no option {', '.join(unknown)}" if unknown else None


@named(TEXTS)
def test_the_commands_that_a_text_names_exist(path: Path) -> None:
    assert [(words, wrong) for words in wsrm_mq_lines(path) if (wrong := problem(words))] == []


def test_a_command_that_does_not_exist_is_found() -> None:
    assert problem(["wsrm-mq", "sequence", "restart", "X"]) == "there is no command restart"
    assert problem(["wsrm-mq", "sequence", "skip", "X", "3", "--because", "no"]) == "there is no option --because"
    assert sum(map(len, map(wsrm_mq_lines, TEXTS))) > 70


def table_after(path: Path, heading: str) -> list[list[str]]:
    """The cells of the first table below a heading, without its own."""
    below = path.read_text().split(f"\n## {heading}\n")[1]
    rows = re.search(r"(?:^\|.*\n)+", below, re.M)
    assert rows is not None
    return [[cell.strip() for cell in re.split(r"(?<!\\)\|", row)[1:-1]] for row in rows[0].splitlines()[2:]]


def test_the_operating_page_has_every_command() -> None:
    section = (DOCS / "operating.md").read_text().split("\n## The commands\n")[1].split("\n## ")[0]
    told = re.findall(r"^\| `(wsrm-mq [^`]+)` \|", section, re.M)
    assert [re.sub(r" [A-Z:]+", "", command) for command in told] == sorted(
        COMMANDS, key=[re.sub(r" [A-Z:]+", "", command) for command in told].index
    )


def test_the_operating_page_has_every_exit_status_and_every_verdict() -> None:
    statuses = [int(cells[0]) for cells in table_after(DOCS / "operating.md", "Exit status")]
    assert statuses == sorted(Exit)
    verdicts = [cells[0].strip("`") for cells in table_after(DOCS / "operating.md", "The verdicts")]
    assert sorted(verdicts) == sorted(WORDS)


# options

_TABLES = (
    "The store and the server",
    "The endpoint",
    "Delivery",
    "Limits",
    "Retention",
    "Addresses of sources",
    "Waiting and threads",
    "Connections",
)
_CONFIGURATION = DOCS / "configuration.md"


def default(cell: str, option: str, kind: Kind) -> object:
    """What a default cell of a table says, as the option's type reads it."""
    value = tomllib.loads(f"value = {cell.strip('`')}")["value"]
    return option_value(value, option, kind, option)


def test_every_option_is_told_once_with_its_default() -> None:
    rows = [row for heading in _TABLES for row in table_after(_CONFIGURATION, heading)]
    assert [row[0].strip("`") for row in rows] == list(OPTIONS)
    for key, told, value, meaning in rows:
        name = key.strip("`")
        assert default(told, name, OPTIONS[name]) == getattr(Settings(), name), name
        assert value
        assert meaning


def test_every_option_of_a_partner_is_told() -> None:
    own = [name for name in PARTNER_OPTIONS if name not in OPTIONS]
    rows = table_after(_CONFIGURATION, "Partners")
    assert [row[0].strip("`") for row in rows] == own
    for row in rows:
        name = row[0].strip("`")
        assert default(row[1], name, PARTNER_OPTIONS[name]) == PARTNER_DEFAULTS[name]
    listed = re.search(
        r"These keys of above may stand in a section too.*?: (.*?)\.\n", _CONFIGURATION.read_text(), re.S
    )
    assert listed is not None
    assert re.findall(r"`(\w+)`", listed[1]) == [name for name in PARTNER_OPTIONS if name in OPTIONS]


def test_who_changes_an_option_and_when_is_told_as_the_options_have_it() -> None:
    rows = table_after(_CONFIGURATION, "Who changes what, and when")
    told = re.findall(r"^# Changed by the (.+?): (.+)\.\n# .*\n# (\w+) = ", as_toml(Settings()), re.MULTILINE)
    assert rows[: len(OPTIONS)] == [[f"`{option}`", who, when] for who, when, option in told]
    own = [name for name in PARTNER_OPTIONS if name not in OPTIONS]
    assert [(option.strip("`"), bool(when)) for option, _who, when in rows[len(OPTIONS) :]] == [(o, True) for o in own]


def test_every_keyword_of_the_middleware_is_told() -> None:
    told = {row[0].strip("`") for row in table_after(_CONFIGURATION, "What only Python can say")}
    keywords = inspect.signature(WSRMASGIMiddleware.__init__).parameters
    assert set(keywords) >= set(inspect.signature(WSRMMiddleware.__init__).parameters)
    assert told == set(keywords) - {"self", "app", "store", "options"}


def test_every_reason_of_an_outcome_is_on_the_page_of_dead_letters() -> None:
    page = DOCS / "dead-letters.md"
    letters = [reason.strip("`") for reason, *_ in table_after(page, "Every reason")]
    below = page.read_text().split("\n## Every reason\n")[1].split("\n## ")[0]
    others = set(re.findall(r"`([a-z_]+)`", below.split("with no dead letter")[1])) & set(REASONS)
    assert len(letters) == len(set(letters))
    assert {*letters, *others} == set(REASONS)


def test_the_tests_that_show_the_capabilities_of_five_systems_exist() -> None:
    rows = [line for line in (DOCS / "explanation/seed-systems.md").read_text().splitlines() if line.startswith("| ")]
    for row in rows[1:]:
        *_, shown_by, _end = row.split("|")
        found = re.fullmatch(r" `(tests/[\w/]+\.py)::(test_\w+)` ", shown_by)
        assert found is not None, row
        assert re.search(rf"^(async )?def {found[2]}\(", (ROOT / found[1]).read_text(), re.M), row


# links


def anchor(heading: str) -> str:
    """What a heading is called in a link, as GitHub and MyST make it."""
    return re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-")


@named(TEXTS)
def test_the_links_of_a_text_lead_somewhere(path: Path) -> None:
    text = re.sub(r"^ *```.*?^ *```$", "", path.read_text(), flags=re.M | re.S)
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        assert not target.startswith("http"), f"{target}: nothing here needs the net"
        file, _, fragment = target.partition("#")
        there = (path.parent / file).resolve() if file else path
        assert there.exists(), target
        if fragment:
            anchors = [anchor(found) for found in re.findall(r"^#{1,3} (.*)$", there.read_text(), re.M)]
            assert fragment in anchors, target


@pytest.mark.parametrize(
    ("index", "pages"),
    [
        ("index.md", [*PAGES, *REFERENCE, *EXPLANATION, DOCS / "howto/index.md", DOCS / "partners/index.md"]),
        ("howto/index.md", HOWTO),
    ],
)
def test_no_page_is_left_out_of_the_contents(index: str, pages: list[Path]) -> None:
    here = DOCS / index
    (toctree,) = [block.text for block in blocks(here) if block.kind == "{toctree}"]
    listed = {here.parent / f"{name}.md" for name in toctree.split() if not name.startswith(":")}
    assert listed == {path for path in pages if path != here}
