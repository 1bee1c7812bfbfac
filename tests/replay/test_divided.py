"""A plan in parts: what is frozen of it, how a part is run, and what an attempt leaves to the next."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.synced import Synced
from wsrm_mq.delivery.delivery import Delivery, Outcome
from wsrm_mq.errors import NotAllowed, NotFound
from wsrm_mq.replay.divided import (
    GIVES_UP,
    PARTS,
    Content,
    DividedPlan,
    Journal,
    Manifest,
    Part,
    PartLine,
    Rehearsal,
    Tally,
    freeze,
    run_part,
    state_of,
)
from wsrm_mq.replay.plan import encoded
from wsrm_mq.replay.run import Pace
from wsrm_mq.testing import EnvelopeFactory

SPEAK = EnvelopeFactory()
ENVELOPE = SPEAK.message("urn:uuid:1", 1, "<put/>")


class Target:
    """Takes what is not ``refused``, and knows what it was sent."""

    def __init__(self, *refused: tuple[str, int]) -> None:
        self.refused = set(refused)
        self.sent: list[tuple[str, int]] = []
        self.keys: list[str] = []

    def __call__(self, delivery: Delivery) -> Outcome:
        self.sent.append((delivery.key.identifier, delivery.key.number))
        self.keys.append(delivery.key.replay_id)
        return Outcome(error="no such customer" if self.sent[-1] in self.refused else None)


def line(sequence: str, number: int) -> PartLine:
    return PartLine(
        group=ord(sequence),
        position=number,
        queue="/orders",
        sequence=sequence,
        number=number,
        message_id=None,
        action=None,
        size=1,
        state="delivered",
        store="node",
    )


LINES = [line(sequence, number) for number in (1, 2, 3) for sequence in "ab"]
"""a1 b1 a2 b2 a3 b3"""


def numbered() -> Iterator[tuple[int, PartLine]]:
    return iter(enumerate(LINES, 1))


def contents(*missing: int, redacted: int = 0) -> Iterator[Content]:
    there = (number for number in range(1, len(LINES) + 1) if number not in missing)
    return iter([Content(number, ENVELOPE, number != redacted, "{}") for number in there])


def run(directory: Path, target: Target, run: str = "first", found: Iterator[Content] | None = None) -> Tally:
    with Journal(directory, run) as journal:
        return run_part(journal, numbered(), found or contents(), target)


def test_a_part_is_sent_in_the_order_of_its_lines(tmp_path: Path) -> None:
    target = Target()
    assert run(tmp_path / "0", target) == Tally(delivered=6)
    assert target.sent == [("a", 1), ("b", 1), ("a", 2), ("b", 2), ("a", 3), ("b", 3)]
    assert set(target.keys) == {""}


def test_a_sequence_stands_still_at_its_first_fault_and_the_others_go_on(tmp_path: Path) -> None:
    target = Target(("a", 2))
    assert run(tmp_path / "0", target) == Tally(delivered=4, stopped=1)
    assert [one for one in target.sent if one[0] == "a"] == [("a", 1), ("a", 2)]
    [record] = state_of(tmp_path / "0").stopped.values()
    assert (record.line, record.error) == (3, "no such customer")


def test_another_attempt_of_a_run_leaves_what_stopped_alone_and_another_run_goes_on_there(tmp_path: Path) -> None:
    run(tmp_path / "0", Target(("a", 2)))
    again, mended = Target(("a", 2)), Target()
    assert run(tmp_path / "0", again) == Tally()
    assert again.sent == []
    assert run(tmp_path / "0", mended, "second") == Tally(delivered=2)
    assert mended.sent == [("a", 2), ("a", 3)]
    assert (state_of(tmp_path / "0").delivered, state_of(tmp_path / "0").stopped) == (6, {})


def test_what_was_delivered_is_not_sent_again(tmp_path: Path) -> None:
    class Dies(Target):
        def __call__(self, delivery: Delivery) -> Outcome:
            outcome = super().__call__(delivery)
            if len(self.sent) == 4:
                raise KeyboardInterrupt
            return outcome

    first, second = Dies(), Target()
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path / "0", first)
    run(tmp_path / "0", second)
    assert first.sent[:3] + second.sent == [("a", 1), ("b", 1), ("a", 2), ("b", 2), ("a", 3), ("b", 3)]


def test_an_attempt_that_was_given_up_sends_no_more_once_a_newer_one_has_the_part(tmp_path: Path) -> None:
    newer: list[Tally] = []
    second = Target()

    class Overtaken(Target):
        def __call__(self, delivery: Delivery) -> Outcome:
            if len(self.sent) == 2:
                newer.append(run(tmp_path / "0", second))
            return super().__call__(delivery)

    first = Overtaken()
    assert run(tmp_path / "0", first) == Tally(delivered=3, superseded=True)
    assert newer == [Tally(delivered=4)]
    assert first.sent == [("a", 1), ("b", 1), ("a", 2)]
    assert second.sent == [("a", 2), ("b", 2), ("a", 3), ("b", 3)]
    assert state_of(tmp_path / "0").delivered == 6


def test_a_target_that_takes_nothing_is_left_in_peace(tmp_path: Path) -> None:
    many = [line(chr(256 + n), 1) for n in range(2 * GIVES_UP)]
    target = Target(*((one.sequence or "", 1) for one in many))
    found = iter([Content(number, ENVELOPE, True, "{}") for number in range(1, len(many) + 1)])
    with Journal(tmp_path / "0", "first") as journal:
        tally = run_part(journal, iter(enumerate(many, 1)), found, target)
    assert tally == Tally(stopped=GIVES_UP, gave_up=True)
    assert len(target.sent) == GIVES_UP


def test_what_cannot_be_sent_as_it_was_received_stops_its_sequence(tmp_path: Path) -> None:
    target = Target()
    assert run(tmp_path / "0", target, found=contents(3, redacted=4)) == Tally(delivered=2, stopped=2)
    missing, redacted = (record.error for record in state_of(tmp_path / "0").stopped.values())
    assert missing is not None
    assert missing.startswith("its envelope is not there")
    assert redacted is not None
    assert redacted.startswith("not replayable")


def test_a_rehearsal_says_what_a_run_would_do_and_writes_nothing(tmp_path: Path) -> None:
    run(tmp_path / "0", Target(("b", 1)), found=contents(3))
    before = (tmp_path / "0" / "000001.ndjson").read_bytes()
    assert run_part(Rehearsal(state_of(tmp_path / "0"), "second"), numbered(), contents(3)) == Tally(3, stopped=1)
    assert [file.read_bytes() for file in (tmp_path / "0").iterdir()] == [before]


def test_of_two_contents_of_a_line_the_first_is_sent(tmp_path: Path) -> None:
    twice = iter([one for content in contents() for one in (content, content._replace(envelope=None))])
    assert run(tmp_path / "0", Target(), found=twice) == Tally(delivered=6)


def test_the_pace_is_kept() -> None:
    pace = Pace(20)
    time.sleep(0.3)  # turns that were not taken are not made up for
    began = time.monotonic()
    for _ in range(6):
        pace.wait()
    assert time.monotonic() - began >= 0.25


def test_a_line_of_a_journal_that_was_not_finished_tells_nothing_and_a_broken_one_is_refused(tmp_path: Path) -> None:
    run(tmp_path / "0", Target())
    file = tmp_path / "0" / "000001.ndjson"
    content = file.read_bytes()
    file.write_bytes(content[:-5])
    assert state_of(tmp_path / "0").delivered == 5
    file.write_bytes(b"{}\n" + content)
    with pytest.raises(NotAllowed, match="line 1 cannot be read"):
        state_of(tmp_path / "0")


def test_what_a_journal_tells_is_on_disk_after_a_moment_and_at_its_end(
    tmp_path: Path, synced: Synced, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "0" / "000001.ndjson"
    with Journal(tmp_path / "0", "first") as journal:
        monkeypatch.setattr("wsrm_mq.replay.divided.SYNC_SECONDS", 0)
        journal.delivered(1, 1)
        assert synced[file] == file.stat().st_size > 0
        monkeypatch.setattr("wsrm_mq.replay.divided.SYNC_SECONDS", 1_000)
        journal.delivered(2, 1)
        assert synced[file] < file.stat().st_size
    assert synced[file] == file.stat().st_size


# what is frozen


@pytest.fixture
def plan(tmp_path: Path) -> Path:
    directory = tmp_path / "plan"
    (directory / PARTS).mkdir(parents=True)
    content = b"".join(map(encoded, LINES))
    (directory / PARTS / "0.ndjson").write_bytes(content)
    part = Part(file="0.ndjson", messages=6, sha256=hashlib.sha256(content).hexdigest())
    about = dict.fromkeys(("id", "actor", "reason", "query", "target"), "x")
    about |= dict.fromkeys(("made_at", "messages", "groups", "bytes", "earliest", "latest"), 1)
    about |= dict.fromkeys(("as_new", "skip_missing", "security"), False)
    about |= dict.fromkeys(("left_out", "warnings", "stores", "sources", "headers"), ())
    freeze(directory, Manifest(wsrm_mq_plan=1, counts={}, parts=(part,), **about))
    return directory


def test_the_lines_of_a_part_are_those_that_were_written(plan: Path) -> None:
    assert [one for _number, one in DividedPlan(plan).lines(0)] == LINES


def test_a_changed_part_and_a_changed_manifest_are_refused(plan: Path) -> None:
    found = DividedPlan(plan)
    part = plan / PARTS / "0.ndjson"
    part.write_bytes(part.read_bytes().replace(b'"number":3', b'"number":4'))
    with pytest.raises(NotAllowed, match="was changed since the plan was made"):
        next(found.lines(0))
    manifest = plan / "plan.json"
    manifest.write_bytes(manifest.read_bytes().replace(b'"target": "x"', b'"target": "y"'))
    with pytest.raises(NotAllowed, match="was changed since the plan was made"):
        DividedPlan(plan)


def test_a_directory_without_a_plan_is_told(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="has no plan"):
        DividedPlan(tmp_path)
