"""What a command proposes to type works as it is printed: in every state of a sequence, on the store and on a copy."""

from __future__ import annotations

import json
import shlex
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import HOUR, Service
from tests.support.commands import Wsrm, document
from tests.views.test_losses import BRIEF, ENDINGS, FATES, One, replays_before_its_turn
from wsrm_mq.errors import StoreUnconfirmed
from wsrm_mq.queue.operate import hold
from wsrm_mq.queue.policy import QueuePolicy
from wsrm_mq.store.sqlite.witness import admit

WORDS = {"TEXT": "why", "NEW": "orders:new", "MANIFEST": "manifest.json"}
ALLOWED = {"doctor": (0, 1), "store verify": (0, 1)}
"""Statuses of commands that tell of findings by them."""


def stays(_one: One) -> None:
    pass


WAITS: dict[str, Callable[[One], object]] = {
    "waiting": stays,
    "held": lambda one: one.run(lambda tx: hold(tx, one.identifier, actor="ann", reason="ticket 17")),
    "lacks": replays_before_its_turn,
    "silent": stays,
    "expiring": stays,
}
"""What becomes of a sequence that waits for number 2."""
POLICIES = {"expired": BRIEF, "expiring": QueuePolicy(max_expires=HOUR + 300_000)}


def befallen(service: Service, fate: str, ending: str, has_gap: bool) -> None:
    if ending == "silent":
        service.clock.advance(-2 * HOUR)
    one = One(service, service.sequence(1, policy=POLICIES.get(ending, QueuePolicy())).terms.identifier)
    one.deliver(1)
    for number in (3,) if ending == "lacks" else (3, 4) if has_gap else (2, 3, 4):
        service.instance.take(one.identifier, number)
    one.deliver(*([] if has_gap else [2]))
    if ending in WAITS:
        WAITS[ending](one)
    else:
        ENDINGS[ending](one)
        FATES[fate].befalls(one)


STATES = {
    **{fate: (fate, "open", False) for fate in FATES},
    **{ending: ("delivered", ending, True) for ending in ENDINGS if ending != "open"},
    **{ending: ("delivered", ending, True) for ending in WAITS},
}


def offered(wsrm: Wsrm, *place: object) -> Iterator[list[str]]:
    """The commands that are proposed at one place, to be typed one of them; the first may have to come before."""

    def told(*command: object) -> Any:
        shown = wsrm(*command, "--json", *place)
        return json.loads(shown.stdout)

    sequences = [one["identifier"] for one in told("sequence", "list")["sequences"]]
    found = [told("sequence", "explain", name)["next_steps"] for name in sequences]
    found += [one["next_steps"] for one in told("sequence", "explain", "queue:/orders")["verdicts"]]
    found += [one["next_steps"] for one in told("status")["attention"]]
    found += [told("failure", "show", one["key"])["next_steps"] for one in told("failure", "list")["failures"]]
    letters = told("dead-letter", "list")["dead_letters"]
    found += [told("dead-letter", "show", one["position"])["next_steps"] for one in letters]
    yield from ([step["command"] for step in steps] for steps in found)


def typed(wsrm: Wsrm, line: str) -> None:
    _program, *words = [WORDS.get(word, word) for word in shlex.split(line)]
    acts = "--reason" in words or words[:2] == ["store", "rehearse"]
    result = wsrm(*words, *(["--yes"] if acts and words[:2] != ["replay", "plan"] else []))
    name = " ".join(words[: 1 if words[0] == "doctor" else 2])
    assert result.exit_code in ALLOWED.get(name, (0,)), f"{line}\n{result.output}"


def copied_as(one: Path, other: Path) -> None:
    if one.is_dir():
        shutil.copytree(one, other, ignore=shutil.ignore_patterns("*.sock"))
    else:
        shutil.copyfile(one, other)


def restore(whole: Path, place: Path) -> None:
    for one in place.parent.glob(f"{place.name}*"):
        shutil.rmtree(one) if one.is_dir() else one.unlink()
    for one in whole.iterdir():
        copied = place.parent / one.name
        copied_as(one, copied)
    (place.parent / "plan.json").unlink(missing_ok=True)


def as_it_is(_wsrm: Wsrm, store: Path) -> Path:
    return store


def backed_up(wsrm: Wsrm, store: Path) -> Path:
    place = store.with_name("copy.db")
    assert wsrm("store", "backup", place).exit_code == 0
    return place


def use(wsrm: Wsrm) -> None:
    """The store is known in its place from then on."""
    assert wsrm("sequence", "note", "queue:/orders", "--yes", "--reason", "seen").exit_code == 0


def copied(wsrm: Wsrm, store: Path) -> Path:
    """As ``cp wsrm.db* elsewhere`` does it."""
    use(wsrm)
    for suffix in ("", "-wal"):
        shutil.copyfile(f"{store}{suffix}", store.with_name(f"copy.db{suffix}"))
    return store.with_name("copy.db")


def put_back(wsrm: Wsrm, store: Path) -> Path:
    """The place is that of a store which was served, and knows it."""
    place = backed_up(wsrm, store)
    use(wsrm)
    beside = place.with_name("copy.db.d")
    beside.mkdir()
    shutil.copyfile(store.with_name("wsrm.db.d") / "witness", beside / "witness")
    return place


PLACES = {"store": as_it_is, "copy": backed_up, "cp": copied, "put_back": put_back}
ALL_STATES = [
    pytest.param(state, place, marks=() if (index + at) % 2 else pytest.mark.long)
    for index, state in enumerate(STATES)
    for at, place in enumerate(("store", "copy"))
]
"""Each state at one place of two, and at both with ``--long``."""
SOME_STATES = [(state, place) for state in ("blocks", "dead", "waiting") for place in ("cp", "put_back")]


@pytest.mark.parametrize(("state", "where"), [*ALL_STATES, *SOME_STATES])
def test_what_is_proposed_can_be_typed(service: Service, wsrm: Wsrm, somewhere: Path, state: str, where: str) -> None:
    befallen(service, *STATES[state])
    whole, place = somewhere / "whole", PLACES[where](wsrm, somewhere / "wsrm.db")
    whole.mkdir()
    service.presence.abandon()  # it was killed
    for one in somewhere.glob(f"{place.name}*"):
        copied_as(one, whole / one.name)
    flag = () if where == "store" else ("--store", place)
    known = {tuple(commands) for commands in offered(wsrm, *flag) if commands}
    assert known
    acts = [command for commands in known for command in commands if " --reason " in command]
    assert not acts or where != "put_back", "no act works before that is adopted"
    assert acts or where != "cp", "they may be rehearsed"
    done = set[tuple[str, ...]]()
    for commands in sorted(known):
        first = commands[:1] if commands[0].startswith("wsrm-mq store rehearse") else ()
        for command in commands[len(first) :]:
            line = (*first, command)
            if line in done or not command.startswith("wsrm-mq "):
                continue
            done.add(line)
            restore(whole, place)
            for one in line:
                typed(wsrm, one)


@pytest.fixture
def copy(service: Service, wsrm: Wsrm, somewhere: Path) -> Path:
    """Of a store whose only sequence is blocked."""
    service.fail(service.sequence(1, 2), 1, "OSError: no space left")
    assert wsrm("store", "backup", "copy.db").exit_code == 0
    return somewhere / "copy.db"


def test_a_repair_is_rehearsed_on_a_copy_which_nothing_serves(service: Service, wsrm: Wsrm, copy: Path) -> None:
    at = ("--store", copy)
    (name,) = (one["identifier"] for one in document(wsrm("sequence", "list", "--json", *at))["sequences"])
    resume = ("sequence", "resume", name, "--yes", "--reason", "try it", *at)
    refused = wsrm(*resume)
    assert (refused.exit_code, f"`wsrm-mq store rehearse --store {copy}`" in refused.stderr) == (5, True)
    before = copy.read_bytes()
    assert wsrm("store", "rehearse", "--dry-run", *at).exit_code == 0
    assert (copy.read_bytes(), wsrm(*resume).exit_code) == (before, 5)
    for _ in range(2):
        assert wsrm("store", "rehearse", "--yes", *at).exit_code == 0
        assert "store rehearse" not in wsrm("sequence", "explain", name, *at).stdout
    for verb in (("resume",), ("hold",), ("terminate", "--now")):
        acted = wsrm("sequence", verb[0], name, *verb[1:], "--yes", "--reason", "try it", *at)
        assert acted.exit_code == 0, acted.output
    assert document(wsrm("sequence", "show", name, "--json", *at))["sequence"]["state"] == "ended"
    assert document(wsrm("sequence", "show", name, "--json"))["sequence"]["verdict"] == "blocked", "the store itself"
    with pytest.raises(StoreUnconfirmed, match="is a copy of"):
        admit(copy)
    assert wsrm("store", "adopt", "--yes", "--reason", "it is good", *at).exit_code == 0
    assert not (copy.parent / "copy.db.d" / "rehearsal").exists()
    admit(copy)


def test_a_store_that_is_or_was_in_use_in_its_place_is_no_ground_for_rehearsals(
    service: Service, wsrm: Wsrm, copy: Path, somewhere: Path
) -> None:
    assert wsrm("sequence", "note", "queue:/orders", "--yes", "--reason", "seen").exit_code == 0
    for _ in ("it lives", "it is stopped"):
        refused = wsrm("store", "rehearse", "--yes")
        assert (refused.exit_code, "wsrm-mq store backup FILE" in refused.stderr) == (4, True), refused.output
        service.close()
    shutil.copyfile(copy, somewhere / "wsrm.db")  # put back
    for file in somewhere.glob("wsrm.db-*"):
        file.unlink()
    assert wsrm("store", "rehearse", "--yes").exit_code == 4
