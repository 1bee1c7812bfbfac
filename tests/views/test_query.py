"""The query language: what each word finds, and what a wrong one is told."""

from __future__ import annotations

import re
import shlex
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.cli.conftest import PLAIN, Service
from tests.queue.build import sender
from wsrm_mq.errors import NotFound, QueryError
from wsrm_mq.queue import adopt, dead_letters, failure, operate, outbound, plans, replaying, requests
from wsrm_mq.queue.creation import create
from wsrm_mq.queue.policy import QueuePolicy
from wsrm_mq.sequence.elements import CreateSequence
from wsrm_mq.sequence.inbound import Disposition
from wsrm_mq.store import channels
from wsrm_mq.store.late_index import BY_CONNECTION, BY_LANE
from wsrm_mq.store.port import Database
from wsrm_mq.store.sqlite import schema
from wsrm_mq.store.sqlite.connection import connect_reader
from wsrm_mq.store.words import REASONS
from wsrm_mq.views import naming, reading
from wsrm_mq.views.query import KEYS, parse
from wsrm_mq.views.verdict import WORDS

PAGE = Path(__file__).parents[2] / "docs" / "queries.md"
DAY = 86_400_000
BEGAN = 1_700_000_000_000
NOW = BEGAN + DAY
DEAD_LETTERS = QueuePolicy(retry=(), on_poison="dead_letter")


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """Positions 1 to 3, delivered, of a partner; 4, delivered, and 5, held behind a gap, with other marks, an hour
    later; 6, a dead letter; 7, which blocks its sequence."""
    path = tmp_path_factory.mktemp("query") / "wsrm.db"
    schema.ensure(path)
    service = Service(path, BEGAN)
    one = service.instance
    of_partner = one.create(partner="acme")
    for number in (1, 2, 3):
        one.take(of_partner.terms.identifier, number, connection="a:1", action="urn:orders/place")
    service.deliver(of_partner, 1, 2, 3)
    service.clock.advance(3_600_000)
    other = sender(principal="cn=b", peer="192.0.2.9")
    with_gap = one.run(lambda tx: create(tx, other, CreateSequence(None, None), None, PLAIN)).created
    assert with_gap is not None
    marks = {"sender": other, "action": "urn:cancel", "environ": '{"REMOTE_ADDR":"192.0.2.9"}'}
    one.take(with_gap.terms.identifier, 1, **marks)
    one.take(with_gap.terms.identifier, 3, **marks, connection="b:2", message_id="urn:uuid:late")
    service.deliver(with_gap, 1)
    dead = service.sequence(1, policy=DEAD_LETTERS)
    one.run(lambda tx: BY_LANE.bring_forward(tx) and BY_CONNECTION.bring_forward(tx))
    one.fail(service.claim(dead), 1, DEAD_LETTERS, "no disk")
    blocked = service.sequence(1)
    service.fail(blocked, 1, "no disk")
    one.run(lambda tx: tx.ledger("noted", tx.sequence_named(blocked.terms.identifier), reason="seen", actor="tim"))
    yield service
    service.close()


@pytest.fixture
def db(service: Service) -> Iterator[Database]:
    db = connect_reader(service.path)
    yield db
    db.close()


def positions(db: Database, query: str) -> list[int]:
    return [one.position for one in reading.messages(db, parse(query, NOW))]


def order(db: Database, query: str) -> list[int]:
    """Which of the four sequences, as they were made."""
    made = [one.identifier for one in reading.sequences(db, parse("", NOW))][::-1]
    return sorted(made.index(one.identifier) + 1 for one in reading.sequences(db, parse(query, NOW)))


FOUND = {
    "": ([1, 2, 3, 4, 5, 6, 7], [1, 2, 3, 4]),
    "queue:/orders#dead": ([6], []),
    "queue:/orders": ([1, 2, 3, 4, 5, 6, 7], [1, 2, 3, 4]),
    "partner:acme": ([1, 2, 3], [1]),
    "-partner:acme": ([4, 5, 6, 7], [2, 3, 4]),
    "msg:2-": ([2, 3, 5], [1, 2]),
    "msg:1,3": ([1, 3, 4, 5, 6, 7], [1, 2, 3, 4]),
    "pos:2-4": ([2, 3, 4], [1, 2]),
    "state:held": ([5, 7], [2, 4]),
    "state:held,dead": ([5, 6, 7], [2, 3, 4]),
    "-state:delivered": ([5, 6, 7], [3, 4]),
    "state:created": ([1, 2, 3, 4, 5, 6, 7], [1, 2, 3, 4]),
    "state:ended": ([], []),
    "outcome:live": ([5, 7], [2, 4]),
    "outcome:dead": ([6], [3]),
    "reason:gap": ([5], [2]),
    "-reason:gap": ([1, 2, 3, 4, 6, 7], [1, 3, 4]),
    "reason:answered_with_fault": ([], []),
    "verdict:silent": ([1, 2, 3, 4, 5], [1, 2]),
    "verdict:blocked state:held": ([7], [4]),
    "-verdict:ok,blocked": ([1, 2, 3, 4, 5, 6], [1, 2, 3]),
    "verdict:incomplete": ([6], [3]),
    "op:place": ([1, 2, 3], [1]),
    "op:urn:cancel": ([4, 5], [2]),
    "principal:cn=b": ([4, 5], [2]),
    "peer:192.0.2.9": ([4, 5], [2]),
    "connection:a:1": ([1, 2, 3], [1]),
    "connection:b": ([5], [2]),
    "connection:b outcome:live": ([5], [2]),
    "age:23h": ([1, 2, 3, 4, 5, 6, 7], [1, 2, 3, 4]),
    "age:>23.5h": ([1, 2, 3], [1]),
    "age:<23.5h": ([4, 5, 6, 7], [2, 3, 4]),
    "age:>1d": ([1, 2, 3], [1]),
    "age:>1w": ([], []),
    "age:<1w": ([1, 2, 3, 4, 5, 6, 7], [1, 2, 3, 4]),
    "since:23h": ([4, 5, 6, 7], [2, 3, 4]),
    "until:2023-11-14T22:30:00": ([1, 2, 3], [1]),
    "since:2023-11-14T23:30:00+01:00 msg:3": ([5], [2]),
    "id:urn:uuid:late": ([5], [2]),
    "late": ([5], []),
    "urn:uuid:late": ([5], []),
    '"late"': ([5], []),
    "'late'": ([5], []),
    "connection:'b:2'": ([5], [2]),
    "op:'urn:cancel',place": ([1, 2, 3, 4, 5], [1, 2]),
    "-late": ([1, 2, 3, 4, 6, 7], [1, 2, 3, 4]),
    "fault:Client": ([], []),
    "exception:OSError": ([], []),
    "place:orders.py:4": ([], []),
    "failure:1": ([], []),
    "confirmed:yes": ([], []),
    "confirmed:no outcome:dead": ([6], [3]),
    "actor:tim": ([], [4]),
    "event:blocked": ([7], [4]),
    "op:place msg:1 -pos:1": ([], []),
}


@pytest.mark.parametrize("query", FOUND)
def test_a_query_finds_messages_and_sequences(db: Database, query: str) -> None:
    assert (positions(db, query), order(db, query)) == (sorted(FOUND[query][0]), FOUND[query][1])


def test_a_time_without_a_zone_is_utc_wherever_it_is_asked(db: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    try:
        for zone in ("America/New_York", "Asia/Kolkata"):
            monkeypatch.setenv("TZ", zone)
            time.tzset()
            assert positions(db, "until:2023-11-14T22:30:00") == [1, 2, 3]
            assert positions(db, "until:2023-11-14T23:30:00+01:00") == [1, 2, 3]
    finally:
        monkeypatch.undo()
        time.tzset()


def test_every_key_is_tried() -> None:
    assert set(KEYS) - {"seq"} == {key for query in FOUND for key in KEYS if f"{key}:" in query}


def test_a_sequence_is_named_by_a_part_of_its_identifier_that_no_other_has(db: Database) -> None:
    first = next(reading.sequences(db, parse("partner:acme", NOW))).identifier
    for part in (first, first[-12:], first.removeprefix("urn:uuid:")[:8]):
        assert positions(db, f"seq:{part}") == [1, 2, 3]
        assert order(db, f"-seq:{part}") == [2, 3, 4]
    with pytest.raises(NotFound, match="needs 6 characters"):
        positions(db, "seq:urn")


def test_a_value_that_was_given_apart_is_taken_as_it_is(db: Database) -> None:
    assert [one.position for one in reading.messages(db, parse("", NOW, queue="/orders#dead", msg=None))] == [6]
    with pytest.raises(QueryError, match="nothing came into /orders, /orders#dead") as raised:
        list(reading.messages(db, parse("", NOW, queue="/orders, /orders#dead")))
    assert raised.value.pointed == ()
    with pytest.raises(QueryError, match="state: hled is none of"):
        parse("", NOW, state="hled")


def test_a_list_may_begin_behind_a_position_or_a_sequence_or_at_the_end(db: Database) -> None:
    everything = parse("", NOW)
    assert [one.position for one in reading.messages(db, everything, after=5)] == [6, 7]
    assert [one.position for one in reading.messages(db, everything, limit=2, newest=True)] == [7, 6]
    newest, second, *rest = (one.identifier for one in reading.sequences(db, everything))
    assert [one.identifier for one in reading.sequences(db, everything, after=second)] == rest
    assert newest not in rest


def test_messages_are_read_in_pieces_and_none_is_missed(db: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "PIECE", 1)
    monkeypatch.setattr(reading, "LARGEST_PIECE", 2)
    for newest in (False, True):
        found = [one.position for one in reading.messages(db, parse("-partner:acme", NOW), newest=newest)]
        assert sorted(found) == [4, 5, 6, 7]
    assert len(list(reading.messages(db, parse("", NOW), limit=4))) == 4


WRONG = {
    "partnr:acme": ("partnr", "There is no key partnr (did you mean partner?). Keys: queue, "),
    "queue:/a colour:red": ("colour", "There is no key colour. Keys: queue, "),
    "state:held,hled": ("hled", "state: hled is none of held, leased, ready"),
    "age:>1y": (">1y", "age: y is no unit of time; there are ms, s,"),
    "age:5": ("5", "age: 5 has no unit of time"),
    "age:soon": ("soon", "is no length of time; write 90s"),
    "age: state:held": ("age:", "A shell takes > and < for itself"),
    "queue:": ("queue:", "queue: has no value."),
    'queue:""': ('""', "an empty value fits nothing"),
    "state:held,": ("", "state:  is none of"),
    "msg:1-3,x": ("x", "msg: x is no number; write 12"),
    "msg:9-3": ("9-3", "ends before it begins"),
    "since:yesterday": ("yesterday", "is no time; write 2026-11-01"),
    'queue:"/a b state:held': ('"', "This quote is not closed."),
    "verdict:stuck": ("stuck", "verdict: stuck is none of ok,"),
    "confirmed:maybe": ("maybe", "is neither yes nor no"),
    '-""': ('-""', "There is no word here."),
    "-": ("-", "There is no word here."),
}


@pytest.mark.parametrize("query", WRONG)
def test_a_wrong_word_is_pointed_at(query: str) -> None:
    word, what = WRONG[query]
    with pytest.raises(QueryError) as raised:
        parse(query, NOW)
    line, mark = raised.value.pointed
    assert what in str(raised.value)
    assert line == query
    assert line[mark.index("^") : len(mark)] == word


UNKNOWN = {
    "partner:acmee outcome:dead": ("acmee", "partner: nothing came from acmee (did you mean acme?)."),
    "partner:zzz": ("zzz", "partner: nothing came from zzz; there are acme."),
    "queue:/orders,/order": ("/order", "queue: nothing came into /order (did you mean /orders?)."),
    'state:held -queue:"/a b"': ('"/a b"', "queue: nothing came into /a b; there are /orders, /orders#dead."),
    "reason:gaap": ("gaap", "reason: no message is what it is because of gaap (did you mean gap?)."),
    "op:plce": ("plce", "op: no message has the action plce (did you mean place?)."),
    "op:urn:orders/place,Nobody": ("Nobody", "op: no message has the action Nobody; there are cancel, place, put."),
    "principal:cn=c": ("cn=c", "principal: nothing came from cn=c (did you mean cn=b?)."),
    "peer:192.0.2.99": ("192.0.2.99", "peer: nothing came from 192.0.2.99 (did you mean 192.0.2.9?)."),
    "event:skiped": ("skiped", "event: nothing has the event skiped (did you mean skipped?)."),
    "op:place reason:zzz": ("zzz", "there are answered_with_fault, backoff, by_operator"),
}


@pytest.mark.parametrize("query", UNKNOWN)
def test_a_name_that_nothing_has_is_pointed_at_and_no_empty_list_is_shown(db: Database, query: str) -> None:
    name, what = UNKNOWN[query]
    for asked in (positions, order):
        with pytest.raises(QueryError) as raised:
            asked(db, query)
        line, mark = raised.value.pointed
        assert what in str(raised.value)
        assert (line, line[mark.index("^") : len(mark)]) == (query, name)


def test_of_more_rows_than_are_looked_at_no_name_is_refused_and_the_empty_answer_says_what_was_looked_at(
    db: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(naming, "LOOKED_AT", 7)
    asked = parse("op:plce", NOW)
    assert list(reading.messages(db, asked)) == []
    assert naming.unseen(db, asked) == [
        "op: no message has the action plce (did you mean place?), as far as the newest 7 rows say."
    ]
    assert naming.unseen(db, parse("op:place", NOW)) == []


def test_an_exception_and_a_fault_are_unknown_only_where_something_failed(tmp_path: Path) -> None:
    schema.ensure(tmp_path / "wsrm.db")
    service = Service(tmp_path / "wsrm.db", BEGAN)
    db = service.instance.db
    try:
        for asked in ("exception:ValueErr", "fault:Server", "op:place", "peer:192.0.2.9", "event:skipped"):
            assert positions(db, asked) == []
        service.fail(service.sequence(1), 1, "no disk")
        db.execute("UPDATE ledger SET exception = 'builtins.ValueError', fault = 'soap:Server' WHERE event = 'failed'")
        for asked in ("exception:ValueError", "exception:builtins.ValueError", "fault:Server", "fault:soap:Server"):
            assert positions(db, asked) == [1]
        assert positions(db, "-op:cancel fault:Client") == []
        with pytest.raises(QueryError, match=r"nothing failed with ValueErr \(did you mean ValueError\?\)"):
            positions(db, "exception:ValueErr")
        with pytest.raises(QueryError, match=r"nothing was answered with Servr \(did you mean Server\?\)"):
            positions(db, "fault:Servr")
    finally:
        service.close()


def test_a_name_that_is_known_and_has_nothing_yet_finds_nothing(db: Database) -> None:
    assert list(reading.messages(db, parse("partner:globex", NOW, partners=["globex"]))) == []
    for reason in REASONS:
        assert positions(db, f"reason:{reason} msg:99") == []


def test_every_reason_that_a_message_may_get_is_known() -> None:
    given = {
        dead_letters.BY_OPERATOR,
        failure.NOT_TOLD,
        channels.FORGOTTEN,
        outbound.SEQUENCE_ENDED,
        operate.TERMINATED,
    }
    given |= {plans.CANCELLED, replaying.REPLAYED, requests.NOT_ACKNOWLEDGED, adopt.ADOPTED, *Disposition}
    assert given <= {*REASONS}


def test_a_store_that_has_taken_nothing_knows_no_queues(tmp_path: Path) -> None:
    schema.ensure(tmp_path / "wsrm.db")
    db = connect_reader(tmp_path / "wsrm.db")
    assert positions(db, "queue:/orders outcome:dead") == []
    db.close()


OPERATORS = {
    "state:held OR state:dead": ("OR", "There is no OR in a query: alternatives of one key stand with commas"),
    "state:held or partner:acme": ("or", "There is no OR in a query"),
    "state:held || state:dead": ("||", "There is no || in a query: alternatives"),
    "state:held AND op:place": ("AND", "There is no AND in a query: all words have to hold"),
    "NOT state:held": ("NOT", "There is no NOT in a query: write -key:value"),
    "!state:held": ("!", "There is no ! in a query: write -key:value"),
    "(state:held op:place)": ("(", "There is no ( in a query: its words have no order"),
}


@pytest.mark.parametrize("query", OPERATORS)
def test_what_another_language_has_is_refused_by_name_with_what_to_write(query: str) -> None:
    word, what = OPERATORS[query]
    with pytest.raises(QueryError) as raised:
        parse(query, NOW)
    line, mark = raised.value.pointed
    assert what in str(raised.value)
    assert (line, line[mark.index("^") : len(mark)]) == (query, word)
    assert parts_of('"or" "(x" order') == ["or", "(x", "order"]


def parts_of(query: str) -> list[str]:
    return [term.alternatives[0] for term in parse(query, NOW).terms]


def test_a_query_is_bounded() -> None:
    for query in ("x" * 4_001, "a " * 201, "msg:" + ",".join("1" * 201)):
        with pytest.raises(QueryError, match="may have"):
            parse(query)
    assert len(parse("msg:" + ",".join("1" * 200)).terms[0].alternatives) == 200


def test_a_query_as_large_as_it_may_be_is_answered(db: Database) -> None:
    assert positions(db, "-fault:a " * 200) == [1, 2, 3, 4, 5, 6, 7]
    assert positions(db, " ".join(["pos:" + ",".join("3" * 200)] * 4)) == [3]


@settings(deadline=None)
@given(st.text(st.characters(codec="utf-8"), max_size=60) | st.from_regex(r"-?[a-z]{2,5}:[\"'<>,0-9a-z :-]{0,20}"))
def test_whatever_is_written_is_a_query_or_an_error_that_points_into_it(text: str) -> None:
    try:
        parse(text, NOW)
    except QueryError as error:
        line, mark = error.pointed
        assert len(line) == len(text)
        assert mark.strip("^ ") == ""
        assert len(mark) <= len(line) + 1


def test_the_page_has_every_key_and_its_examples_can_be_read() -> None:
    page = PAGE.read_text()
    assert re.findall(r"^\| `(\w+):` \| (.*) \|$", page, re.M) == [(name, key.help) for name, key in KEYS.items()]
    examples = [line for line in page.splitlines() if line.startswith("wsrm-mq ")]
    assert len(examples) > 3
    for example in examples:
        words = [word for word in shlex.split(example, comments=True)[3:] if not word.startswith("--")]
        parse(" ".join(words), NOW)


@pytest.mark.parametrize("word", WORDS)
def test_only_sequences_that_may_have_a_verdict_are_judged_and_all_of_those(
    db: Database, monkeypatch: pytest.MonkeyPatch, word: str
) -> None:
    for now in (NOW, NOW + 10 * DAY):
        query = parse(f"verdict:{word}", now)
        found = [one.identifier for one in reading.sequences(db, query)]
        with monkeypatch.context() as without:
            without.setattr(reading, "_is_of_few", lambda _term: False)
            assert found == [one.identifier for one in reading.sequences(db, query)]


FOUND_BY_INDEX = (
    "seq:SEQUENCE",
    "seq:SEQUENCE outcome:live",
    "seq:SEQUENCE reason:gap",
    "connection:a:1",
    "connection:a:1 state:held",
    "outcome:live",
    "state:held,ready",
    "outcome:dead",
    "reason:answered_with_fault",
    "pos:3-5",
    "verdict:blocked seq:SEQUENCE",
)


@pytest.mark.parametrize("query", FOUND_BY_INDEX)
def test_what_has_an_index_is_found_by_it(db: Database, query: str) -> None:
    identifier = next(reading.sequences(db, parse("partner:acme", NOW))).identifier
    seen: list[str] = []
    db.set_trace_callback(seen.append)  # type: ignore[attr-defined]
    list(reading.messages(db, parse(query.replace("SEQUENCE", identifier), NOW)))
    db.set_trace_callback(None)  # type: ignore[attr-defined]
    listed = [statement for statement in seen if "FROM messages" in statement]
    assert listed
    for statement in listed:
        steps = [row[-1] for row in db.execute(f"EXPLAIN QUERY PLAN {statement}")]
        assert not [step for step in steps if re.match(r"SCAN (entry|message|sequence)\b(?! USING INDEX)", step)], steps
