"""Each verdict as an operator meets it: ``status`` leads there, a printed command cures it, the service proves it."""

from __future__ import annotations

import json
import re

import pytest

from tests.stories.conftest import NOTHING, Operator, Serve, done, send, until_shown
from tests.support.orders_server import within
from wsrm_mq.views.verdict import WORDS

HOUR = 3600
DAY = 24 * HOUR
TOLD = {"ok", "running", "waiting", "blocked", "held", "faulted", "incomplete", "silent", "expiring", "ended"}


def test_each_verdict_has_its_story() -> None:
    assert set(WORDS) == TOLD


def test_ok_all_that_came_is_delivered_and_nothing_is_to_be_done(operator: Operator, serve: Serve) -> None:
    server = serve()
    sender = send(server, 1, 2)
    assert done(server, 1, 2)
    shown = until_shown(operator, "verdicts            1 ok\n")
    assert shown.startswith(NOTHING)
    assert operator.type("wsrm-mq check").startswith("WSRM OK")
    (line,) = operator.type("wsrm-mq sequence list --verdict ok").splitlines()[1:]
    assert line.startswith(f"{sender.identifier}\t/orders\tcreated\tok\t2\t0\t")
    explained = operator.type(f"wsrm-mq sequence explain {sender.identifier}")
    assert explained.startswith("ok: All 2 received messages are settled; number 3 is expected next.")
    assert "next:" not in explained


def test_waiting_an_operator_delivers_past_the_gap(operator: Operator, serve: Serve) -> None:
    server = serve()
    sender = send(server, 1, 3)
    shown = until_shown(operator, ": waiting. It waits for number 2")
    letter = operator.follow(shown, "--for-partner")
    assert "Numbers missing:             2\n" in letter
    explained = operator.type(f"wsrm-mq sequence explain {sender.identifier}")
    operator.follow(explained, "sequence force")
    assert done(server, 1, 3)
    assert NOTHING in operator.status()
    sender.send(2)
    assert done(server, 1, 3, 2), "what was missing comes late, and is delivered all the same"


@pytest.mark.peer("P-65")
def test_blocked_an_operator_repairs_the_cause_and_resumes(operator: Operator, serve: Serve) -> None:
    server = serve(retry=[])
    sender = send(server, 1, 2, text="fail=1")
    shown = until_shown(operator, ": blocked. Number 2 stopped the sequence")
    told = json.loads(operator.type(f"wsrm-mq sequence show {sender.identifier} --json"))
    assert (told["sequence"]["verdict"], told["sequence"]["received"]) == ("blocked", [[1, 2]])
    (failed,) = (row for row in told["ledger"] if row["event"] == "failed")
    assert "the operation fails, as it was told to" in failed["reason"]
    assert failed["at"] > 0
    operator.follow(shown, "sequence resume")
    assert done(server, 1, 2)
    assert NOTHING in until_shown(operator, NOTHING)


def test_held_an_operator_lets_it_go_on(operator: Operator, serve: Serve) -> None:
    server = serve()
    sender = send(server, 1)
    assert done(server, 1)
    operator.type(f"wsrm-mq sequence hold {sender.identifier} --reason 'the backend moves' --actor ada")
    sender.send(2)
    shown = until_shown(operator, ": held. ada holds it since")
    assert ": the backend moves. 1 message waits, and nothing is delivered until it is resumed." in shown
    operator.follow(shown, "sequence resume")
    assert done(server, 1, 2)
    assert NOTHING in operator.status()


def test_faulted_an_operator_sees_what_the_service_said_and_confirms(operator: Operator, serve: Serve) -> None:
    """Two messages were acknowledged, answered with a Client fault, and their sender does not know."""
    server = serve()
    sender = send(server, 1, 2, text="client-fault")
    shown = until_shown(operator, "1 message of /orders, taken in the last 24 h, the service answered with a fault")
    assert "WARNING" in shown
    failure = operator.follow(shown, "failure show")
    assert "no such order" in failure
    explained = operator.type(f"wsrm-mq sequence explain {sender.identifier}")
    assert explained.startswith("faulted: Of 2 received messages the service took 1 and answered with a fault")
    assert "no such order" in explained
    operator.follow(explained, "message confirm")
    assert NOTHING in operator.status()
    assert done(server, 1)


def test_running_says_which_operation_and_since_when(operator: Operator, serve: Serve) -> None:
    server = serve(ago=600)
    sender = send(server, 1, text="gate=go")
    within(5, lambda: server.rows("select n from calls"), bool)
    explained = operator.type(f"wsrm-mq sequence explain {sender.identifier}")
    assert explained.startswith("running: Number 1 (put_order) has been running since ")
    assert "attempt 1, in instance" in explained
    shown = until_shown(operator, ": running. Number 1 (put_order) has been running since ")
    assert "gate=go" not in shown
    assert "REMOTE_ADDR" in operator.follow(shown, "message show")
    server.open_gate("go")
    assert done(server, 1)
    shown = within(5, lambda: operator.type(f"wsrm-mq sequence explain {sender.identifier}"), lambda s: s[:3] == "ok:")
    assert shown.startswith("ok: All 1 received messages are settled")


def test_silent_a_source_that_is_gone_is_ended_in_its_stead(operator: Operator, serve: Serve) -> None:
    server = serve(ago=3 * HOUR)
    sender = send(server, 1, 3)
    shown = until_shown(operator, ": silent. Nothing has come from its source since ")
    assert "WARNING" in shown
    explained = operator.type(f"wsrm-mq sequence explain {sender.identifier}")
    operator.follow(explained, "sequence terminate")
    assert done(server, 1, 3), "what was held is delivered as NoDiscard says"
    assert "SequenceTerminated" in str(sender.post(sender.message(2)).body)
    ended = within(
        5, lambda: operator.type(f"wsrm-mq sequence explain {sender.identifier}"), lambda s: s[:6] == "ended:"
    )
    assert ended.startswith("ended: ")
    assert NOTHING in until_shown(operator, NOTHING)


def test_silent_without_a_gap_is_no_alarm_and_can_be_ended(operator: Operator, serve: Serve) -> None:
    server = serve(ago=2 * DAY)
    sender = send(server, 1, 2)
    assert done(server, 1, 2)
    server.set_clock(0)
    shown = until_shown(operator, "verdicts            1 silent\n")
    assert shown.startswith(NOTHING)
    assert sender.identifier in operator.type("wsrm-mq sequence list --verdict silent")
    explained = operator.type(f"wsrm-mq sequence explain {sender.identifier}")
    assert explained.startswith("silent: Nothing has come from its source since ")
    assert "and the sequence is still open; all 2 received messages are settled" in explained
    operator.follow(explained, "sequence terminate")
    assert "SequenceTerminated" in str(sender.post(sender.message(3)).body)
    assert done(server, 1, 2)
    assert "1 ended" in until_shown(operator, NOTHING)


def test_ended_what_was_given_up_with_it_is_delivered_after_all(operator: Operator, serve: Serve) -> None:
    server = serve()
    sender = send(server, 1, 3)
    assert done(server, 1)
    operator.type(f"wsrm-mq sequence terminate {sender.identifier} --now --reason 'they begin anew'")
    shown = until_shown(operator, "1 dead letter of /orders that no operator has confirmed.")
    assert "verdicts            1 ended\n" in shown
    explained = operator.type(f"wsrm-mq sequence explain {sender.identifier}")
    assert explained.startswith("ended: It ended at ")
    assert " went to the dead letters (terminated_by_operator)." in explained
    assert "\tterminated_by_operator\t" in operator.follow(explained, "dead-letter list")
    operator.type(f"wsrm-mq dead-letter redrive seq:{sender.identifier} --reason 'they did not'")
    assert done(server, 1, 3)
    assert len(operator.typed) == 4, "status, and three"
    assert NOTHING in until_shown(operator, NOTHING)


def test_ended_by_its_source_says_so_and_needs_nothing(operator: Operator, serve: Serve) -> None:
    server = serve()
    sender = send(server, 1, 2)
    assert sender.terminate(2).status == 200
    shown = until_shown(operator, "verdicts            1 ended\n")
    assert shown.startswith(NOTHING)
    explained = operator.type(f"wsrm-mq sequence explain {sender.identifier}")
    assert "the source terminated it; nothing is left to deliver." in explained
    assert "next:" not in explained
    assert "UnknownSequence" in str(sender.post(sender.message(3)).body)
    assert done(server, 1, 2)


def test_expiring_the_partner_is_told_in_time_and_fills_the_gap(operator: Operator, serve: Serve) -> None:
    server = serve(ago=DAY - 300, max_expires=DAY)
    sender = send(server, 1, 3)
    server.set_clock(0)
    shown = until_shown(operator, ": expiring. It ends in ")
    assert "what is held (1 message) is then delivered across the gap" in shown
    letter = operator.follow(shown, "--for-partner")
    assert "Numbers missing:             2\n" in letter
    assert re.search(r"^Ends: +at the latest ", letter, re.MULTILINE)
    sender.send(2)
    assert done(server, 1, 2, 3), "in order: it has not ended"
    assert NOTHING in until_shown(operator, NOTHING)
    explained = operator.type(f"wsrm-mq sequence explain {sender.identifier}")
    assert explained.startswith("expiring: It ends in ")
    assert "nothing is left to deliver" in explained


def test_expiring_an_operator_keeps_what_waits(operator: Operator, serve: Serve) -> None:
    server = serve(ago=DAY - 300, max_expires=DAY)
    sender = send(server, 1, 3)
    shown = until_shown(operator, ": expiring. It ends in ")
    assert "it still lacks number 2" in shown
    explained = operator.type(f"wsrm-mq sequence explain {sender.identifier}")
    operator.follow(explained, "sequence hold")
    server.set_clock(300)
    assert within(10, lambda: operator.type(f"wsrm-mq sequence show {sender.identifier}"), lambda s: "expired" in s)
    assert done(server, 1), "it has ended, and what it holds waits for the operator"
    operator.type(f"wsrm-mq sequence resume {sender.identifier} --reason TEXT")
    assert done(server, 1, 3)


def test_incomplete_what_was_skipped_is_delivered_after_all(operator: Operator, serve: Serve) -> None:
    server = serve(retry=[])
    sender = send(server, 1, 2, text="fail=1")
    shown = until_shown(operator, ": blocked. Number 2 stopped the sequence")
    explained = operator.type(f"wsrm-mq sequence explain {sender.identifier}")
    operator.follow(explained, "sequence skip")
    explained = operator.type(f"wsrm-mq sequence explain {sender.identifier}")
    assert explained.startswith("incomplete: All 2 received messages are settled; number 3 is expected next. ")
    assert "Not delivered, and confirmed by nobody: number 2 (skipped)." in explained
    assert sender.identifier in operator.type("wsrm-mq sequence list verdict:incomplete")
    letter = operator.type(f"wsrm-mq sequence explain {sender.identifier} --for-partner")
    assert "no action" not in letter
    assert "The service has not got 1 message that we received and acknowledged: number 2." in " ".join(letter.split())
    operator.follow(explained, "dead-letter redrive")
    assert done(server, 1, 2)
    shown = within(
        5, lambda: operator.type(f"wsrm-mq sequence explain {sender.identifier}"), lambda text: text[:3] == "ok:"
    )
    assert "Not delivered" not in shown
    assert NOTHING in until_shown(operator, NOTHING)
