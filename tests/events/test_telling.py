"""Lines that no peer can forge, and a hook that breaks and blocks nothing."""

from __future__ import annotations

import contextlib
import io
import json
import logging
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.in_process import InProcess, taken, until
from wsrm_mq.events import telling
from wsrm_mq.events.telling import Event, Events, line
from wsrm_mq.serving.logs import JSONLines, TextLines

HOSTILE = 'boom\r\n2026-01-01 CRITICAL wsrm_mq.store store.rescued\x1b[2J\u2028\u202e" forged="yes\\'


@pytest.fixture
def written() -> Iterator[io.StringIO]:
    """What a plain handler of the application's own writes."""
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(logging.Formatter("%(levelname)s %(name)s %(message)s"))
    logging.getLogger("wsrm_mq").addHandler(handler)
    yield stream
    logging.getLogger("wsrm_mq").removeHandler(handler)


def test_text_of_a_peer_makes_no_line_of_its_own_and_commands_no_terminal(written: io.StringIO) -> None:
    Events().tell("delivery.failed", sequence=HOSTILE, number=1, error=HOSTILE)
    text = written.getvalue()
    assert text.count("\n") == 1
    assert text.removesuffix("\n").isprintable()
    assert text.startswith("ERROR wsrm_mq.delivery delivery.failed sequence=")


def test_a_value_cannot_pretend_to_be_another_field() -> None:
    assert line("a.b", {"x": 'y" z="1'}) == 'a.b x="y\\" z=\\"1"'
    assert line("a.b", {"x": "y z=1"}) == 'a.b x="y z=1"'
    assert line("a.b", {"x": "end\\"}) == 'a.b x="end\\\\"'
    assert line("a.b", {"x": "", "n": 7, "none": None}) == 'a.b x="" n=7'


def test_a_value_of_any_length_makes_a_line_of_some() -> None:
    assert len(line("a.b", {"x": "y" * 1_000_000})) < 5_000


def test_the_text_of_a_traceback_cannot_be_taken_for_lines_of_the_log(written: io.StringIO) -> None:
    try:
        raise OSError(HOSTILE)
    except OSError as error:
        Events().tell("watch.failed", trouble=error)
    first, *rest = written.getvalue().split("\n")[:-1]
    assert first.startswith('ERROR wsrm_mq.watch watch.failed error="OSError: ')
    assert rest
    assert all(one.startswith("    ") and one.isprintable() for one in rest)


def test_a_record_says_who_told_it_and_what(caplog: pytest.LogCaptureFixture) -> None:
    Events().tell("instance.gone", name="x", sequences=2)
    (record,) = caplog.records
    assert (record.event, record.fields) == ("instance.gone", {"name": "x", "sequences": 2})  # type: ignore[attr-defined]
    assert record.filename == Path(__file__).name


# formatters of `serve`


def record(message: str, **more: Any) -> logging.LogRecord:
    made = logging.LogRecord("other.library", logging.WARNING, "x.py", 1, message, (), None)
    made.__dict__.update(more)
    return made


def test_json_is_one_ascii_object_a_line_with_the_fields(caplog: pytest.LogCaptureFixture) -> None:
    Events().tell("delivery.failed", sequence="urn:s", number=3, attempt=2, error=HOSTILE)
    text = JSONLines().format(caplog.records[0])
    assert text.isascii()
    assert "\n" not in text
    found = json.loads(text)
    assert found.pop("at").endswith("Z")
    assert found == {
        "level": "ERROR",
        "logger": "wsrm_mq.delivery",
        "event": "delivery.failed",
        "sequence": "urn:s",
        "number": 3,
        "attempt": 2,
        "error": HOSTILE,
    }


def test_json_of_another_library_has_its_message() -> None:
    found = json.loads(JSONLines().format(record("a\nb")))
    assert (found["message"], found["logger"]) == ("a\nb", "other.library")
    assert "event" not in found


def test_text_of_another_library_is_one_line_too() -> None:
    assert TextLines().format(record("a\nb\x1b[2J")).endswith("WARNING other.library a\\nb\\x1b[2J")


# the hook


def test_the_hook_hears_what_an_operator_should_and_no_more() -> None:
    heard: list[Event] = []
    events = Events(heard.append)
    events.tell("sequence.created", sequence="urn:s")
    events.tell("delivery.failed", sequence="urn:s", number=1, error="x")
    events.tell("store.write_failed", error="no space")
    events.stop()
    assert [(one.name, one.sequence, one.number, one.detail) for one in heard] == [
        ("delivery.failed", "urn:s", 1, "x"),
        ("store.write_failed", None, None, "no space"),
    ]


def test_the_hook_hears_what_was_raised_though_it_gets_no_traceback() -> None:
    heard: list[Event] = []
    events = Events(heard.append)
    events.tell("watch.failed", trouble=OSError("no room"))
    events.tell("dispatch.failed", key=1, error="the words of its own", trouble=OSError("no room"))
    events.stop()
    assert [(one.detail, one.fields["error"]) for one in heard] == [
        ("OSError: no room", "OSError: no room"),
        ("the words of its own", "the words of its own"),
    ]


def test_a_hook_that_raises_is_logged_and_hears_the_next(caplog: pytest.LogCaptureFixture) -> None:
    heard: list[str] = []

    def hook(event: Event) -> None:
        heard.append(event.name)
        raise RuntimeError(HOSTILE)

    events = Events(hook)
    events.tell("watch.failed")
    events.tell("instance.gone")
    events.stop()
    assert heard == ["watch.failed", "instance.gone"]
    assert [one.event for one in caplog.records].count("on_event.failed") == 2  # type: ignore[attr-defined]


def test_a_hook_that_hangs_holds_up_no_delivery_and_what_is_too_much_is_dropped_aloud(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(telling, "MOST_WAITING", 5)
    hanging, going_on, heard = threading.Event(), threading.Event(), []

    def hook(event: Event) -> None:
        hanging.set()
        going_on.wait(20)
        heard.append(event.name)

    events = Events(hook)
    events.tell("instance.gone")
    assert hanging.wait(10)
    begun = time.monotonic()
    for _ in range(19):
        events.tell("instance.gone")
    assert time.monotonic() - begun < 5
    going_on.set()
    events.stop(10)
    assert len(heard) == 6
    assert [one.event for one in caplog.records].count("on_event.dropped") == 1  # type: ignore[attr-defined]
    assert events.take_counts() == {"instance.gone": 20, "on_event.dropped": 1}


def test_delivery_goes_on_while_the_hook_hangs_and_raises(tmp_path: Path) -> None:
    hanging = threading.Event()
    heard: list[Event] = []

    def hook(event: Event) -> None:
        heard.append(event)
        hanging.wait(20)
        raise RuntimeError

    def app(environ: dict[str, Any], start_response: Any) -> Any:
        if environ["wsrm.attempt"] == 1:
            raise OSError("once")
        return taken(start_response)

    wsrm = InProcess(tmp_path, app, retry=[0.01], on_event=hook)
    try:
        identifier = wsrm.create()
        for number in (1, 2, 3):
            wsrm.put(identifier, number)
        assert until(lambda: wsrm.rows("SELECT count(*) FROM entry WHERE outcome = 'delivered'") == [(3,)])
        assert (heard[0].name, heard[0].sequence, heard[0].number) == ("delivery.failed", identifier, 1)
    finally:
        hanging.set()
        wsrm.middleware.close(5)


def test_what_was_rolled_back_is_not_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    wsrm = InProcess(tmp_path, lambda _environ, start_response: taken(start_response))
    try:
        identifier = wsrm.create()

        def verb(tx: Any) -> None:
            tx.ledger("blocked", tx.sequence_named(identifier), number=1, reason="x")
            raise RuntimeError("and now this")

        with pytest.raises(RuntimeError):
            wsrm.middleware.engine.store.call(verb)
        assert "sequence.blocked" not in caplog.text
    finally:
        wsrm.middleware.close(5)


# what tells never harms what does


class Raising(logging.Filter):
    def __init__(self, error: type[BaseException]) -> None:
        super().__init__()
        self.error = error

    def filter(self, _record: logging.LogRecord) -> bool:
        raise self.error("from a filter")


@contextlib.contextmanager
def filtered(name: str, one: logging.Filter) -> Iterator[None]:
    logging.getLogger(name).addFilter(one)
    try:
        yield
    finally:
        logging.getLogger(name).removeFilter(one)


@pytest.mark.parametrize("error", [RuntimeError, SystemExit, KeyboardInterrupt])
def test_a_filter_that_raises_loses_its_line_and_says_so_once(
    error: type[BaseException], capsys: pytest.CaptureFixture[str]
) -> None:
    heard: list[Event] = []
    events = Events(heard.append)
    with filtered("wsrm_mq.instance", Raising(error)):
        events.tell("instance.gone", name="x")
        events.tell("instance.gone", name="y")
        telling.tell("instance.gone", name="z")
    counts = events.take_counts()
    events.stop()
    assert counts == {"instance.gone": 2, "log.failed": 2}
    assert [one.name for one in heard] == ["log.failed", "instance.gone", "instance.gone"]
    first, of_no_engine = capsys.readouterr().err.splitlines()
    assert first == of_no_engine == 'log.failed event=instance.gone error="from a filter"'


class Speechless(Exception):
    def __str__(self) -> str:
        raise SystemExit("no text")


def test_an_error_whose_text_raises_is_told_by_its_type(written: io.StringIO) -> None:
    heard: list[Event] = []
    events = Events(heard.append)
    events.tell("delivery.failed", sequence="urn:s", number=1, error=Speechless(), trouble=Speechless())
    events.stop()
    assert "Speechless, whose text cannot be read" in written.getvalue().splitlines()[0]
    assert [one.detail for one in heard] == ["Speechless, whose text cannot be read"]


@pytest.mark.parametrize("error", [SystemExit, KeyboardInterrupt, GeneratorExit])
def test_a_hook_that_exits_is_logged_and_hears_the_next(
    error: type[BaseException], caplog: pytest.LogCaptureFixture
) -> None:
    heard: list[str] = []

    def hook(event: Event) -> None:
        heard.append(event.name)
        raise error

    events = Events(hook)
    events.tell("watch.failed")
    assert until(lambda: heard == ["watch.failed"])
    events.tell("instance.gone")
    events.stop()
    assert heard == ["watch.failed", "instance.gone"]
    assert [one.event for one in caplog.records].count("on_event.failed") == 2  # type: ignore[attr-defined]


def test_a_hook_for_which_there_was_no_thread_hears_what_waits_with_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    heard: list[str] = []
    events = Events(lambda event: heard.append(event.name))
    with monkeypatch.context() as scarce:
        scarce.setattr(threading.Thread, "start", no_thread)
        events.tell("watch.failed")
    events.tell("instance.gone")
    events.stop()
    assert heard == ["watch.failed", "instance.gone"]


def no_thread(_self: threading.Thread) -> None:
    raise RuntimeError("can't start new thread")
