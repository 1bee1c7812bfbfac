"""What needs attention: each kind measured, judged and told, worst first."""

from __future__ import annotations

import shlex
import subprocess

from wsrm_mq.cli.place import line_of
from wsrm_mq.store.counting import ACK_NOT_SENT, Refusal
from wsrm_mq.views import attention, findings, store_findings
from wsrm_mq.views.attention import Range, Severity
from wsrm_mq.views.overview import REFUSED_WITHIN, Overview, Room, Sight, Verdicts
from wsrm_mq.views.query import parse
from wsrm_mq.views.rows import Instance

NOW = 1_700_000_000_000
WELL = Overview(
    is_served=True,
    instances=[Instance(1, "a", "here", 1, NOW)],
    dead_instances=0,
    sequences={},
    blocked={},
    waiting={},
    dead_letters={},
    dead_letters_unconfirmed={},
    faulted={},
    faulted_in_all=0,
    refused=[],
    file_bytes=1,
    wal_bytes=0,
    disk_free=10**12,
    is_reserve_spent=False,
    used_bytes=1,
    unserved=[],
    unacknowledged_replies={},
)
NONE = Verdicts({}, [], True)


def told(at: Overview, **more: object) -> list[attention.Finding]:
    sight = Sight(NOW, at, NONE)._replace(**more)  # type: ignore[arg-type]
    return attention.attention(sight, attention.severities(sight))


def test_a_store_that_is_well_needs_none() -> None:
    assert told(WELL) == []


def test_the_worst_comes_first() -> None:
    at = WELL._replace(
        instances=[], faulted={"/orders": 2}, dead_letters={"/orders": 3}, dead_letters_unconfirmed={"/orders": 3}
    )
    found = [(one.kind, one.severity) for one in told(at, max_store=1)]
    assert found == [
        ("over_max_store", Severity.CRITICAL),
        ("instances", Severity.CRITICAL),
        ("faulted", Severity.WARNING),
        ("dead_letters", Severity.WARNING),
    ]


def test_what_is_confirmed_needs_none() -> None:
    confirmed = WELL._replace(dead_letters={"/orders": 3}, dead_letters_unconfirmed={"/orders": 0}, faulted_in_all=4)
    assert told(confirmed) == []


def test_a_refusal_is_told_once_under_what_it_means() -> None:
    refused = [Refusal(reason, "acme", 7, NOW - 1000) for reason in ("max_store", "max_held", "http_413")]
    old = Refusal("disk_full", "", 1, NOW - REFUSED_WITHIN - 1)
    found = told(WELL._replace(refused=[*refused, old]))
    assert [(one.kind, one.severity.name) for one in found] == [("nothing_taken", "CRITICAL"), ("refused", "WARNING")]
    assert found[0].fact.sentence == (
        "Messages of acme were refused, the last 1 s ago: max_store is reached (7 times in all)."
    )
    sight = Sight(NOW, WELL._replace(refused=refused), NONE, room=Room("PT1H", 1, 2_000_000))
    assert sight.lacks_room
    (fact,) = store_findings.nothing_taken(sight)
    assert line_of(fact.steps[0]) == "wsrm-mq store prune --older-than PT1H --reason TEXT"
    assert fact.steps[0].effect == "deletes 1 message or more (2.0 MB), settled that long ago"


def test_one_full_disk_is_one_finding() -> None:
    full = WELL._replace(disk_free=1, is_reserve_spent=True, refused=[Refusal("disk_full", "", 7, NOW - 1000)])
    assert [one.kind for one in told(full)] == ["reserve_spent"]
    over = told(full._replace(disk_free=10**12, is_reserve_spent=False))
    assert [(one.kind, one.severity.name) for one in over] == [("recovered", "WARNING")]


def test_acknowledgements_that_no_address_takes_are_told_while_that_lasts() -> None:
    (found,) = told(WELL._replace(refused=[Refusal(ACK_NOT_SENT, "", 7, NOW - 1000)]))
    assert (found.kind, found.severity.name) == ("not_sent", "WARNING")
    assert "were not taken there, the last 1 s ago (7 times in all)" in found.fact.sentence
    assert told(WELL._replace(refused=[Refusal(ACK_NOT_SENT, "", 7, NOW - REFUSED_WITHIN - 1)])) == []


def test_what_no_process_sends_is_told_where_processes_live() -> None:
    (found,) = told(WELL._replace(unsent=NOW - 90_000))
    assert (found.kind, found.severity.name) == ("unsent", "CRITICAL")
    assert "have waited for 90 s to be sent, and no process takes them up" in found.fact.sentence
    assert "unsent" not in [one.kind for one in told(WELL._replace(unsent=NOW - 90_000, instances=[]))]


def test_where_nothing_may_be_pruned_it_is_said_with_what_else_to_do() -> None:
    full = WELL._replace(is_reserve_spent=True, dead_letters={"/orders": 2})
    (fact,) = store_findings.reserve_spent(Sight(NOW, full, NONE, room=Room()))
    assert (
        "Nothing may be pruned: what is there is undelivered, a dead letter, or was settled just now." in fact.sentence
    )
    assert fact.sentence.endswith("Free space on the disk: delete other files there.")
    assert [line_of(step) for step in fact.steps] == ["wsrm-mq dead-letter list", "wsrm-mq doctor"]
    (fact,) = store_findings.over_max_store(Sight(NOW, WELL, NONE, room=Room(), max_store=1))
    assert fact.sentence.endswith("Raise max_store, and start the service anew.")


def test_a_threshold_makes_it_worse_or_takes_it_away() -> None:
    sight = Sight(NOW, WELL._replace(dead_letters_unconfirmed={"/orders": 3}), NONE)
    usual = attention.severities(sight)["dead_letters"]
    worse = attention.severities(sight, critical={"dead_letters": Range.parse("2")})
    assert (usual, worse["dead_letters"]) == (Severity.WARNING, Severity.CRITICAL)
    none = attention.severities(sight, warning={"dead_letters": None})
    assert attention.attention(sight, none) == []


def test_names_with_a_blank_or_worse_are_quoted_in_commands() -> None:
    for name in ("/orders", "/a b;c", "/it's", '/"a",b'):
        (one,) = findings.dead_letters(Sight(NOW, WELL._replace(dead_letters_unconfirmed={name: 1}), NONE))
        _program, _noun, _verb, *words = shlex.split(line_of(one.steps[0]))
        (queue,) = (term.alternatives for term in parse(" ".join(words)).terms if term.key == "queue")
        assert queue == (name,)


def test_names_with_control_characters_are_written_as_a_shell_reads_them() -> None:
    for name in ("/a\x1b[31m", "/a\n\\b'", "/\u2028\u00e9", '/"\t"'):
        (one,) = findings.dead_letters(Sight(NOW, WELL._replace(dead_letters_unconfirmed={name: 1}), NONE))
        assert line_of(one.steps[0]).isprintable()
        typed = ["bash", "-c", f"printf '%s\\0' {line_of(one.steps[0])}"]
        words = subprocess.run(typed, capture_output=True, check=True).stdout.decode().split("\0")[3:-1]
        (queue,) = (term.alternatives for term in parse(" ".join(words)).terms if term.key == "queue")
        assert queue == (name,)
