"""The bench itself: what its generator sends and counts, one small run for real, and that nothing outlives it."""

from __future__ import annotations

import http.server
import json
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path

import pytest

from bench import inbound
from bench import load as generator
from bench.__main__ import QUICK, run
from bench.calls import code_lines, counted
from bench.figures import Bound, Figure, status, undisturbed
from bench.load import GeneratorTooBusy, Load, Plan, RunIsVoid, load, steps
from bench.measure import Spent
from bench.messages import UNKNOWN, template
from bench.parts import PARTS, floors
from bench.report import reached, report
from bench.samples import Sample, medians
from bench.sides import Amount, reliable, unless_too_busy
from bench.stages import STAGES
from wsrm_mq.testing import Reply

ROOT = Path(__file__).parents[2]
WANTED = {"gcc": "gcc libc6-dev", "soapcpp2": "gsoap libgsoap-dev"}


def needs(*tools: str) -> pytest.MarkDecorator:
    absent = [tool for tool in tools if shutil.which(tool) is None]
    return pytest.mark.skipif(
        bool(absent), reason=f"no {', '.join(absent)}: apt-get install {' '.join(WANTED[tool] for tool in absent)}"
    )


class Peer(http.server.ThreadingHTTPServer):
    """Answers with what ``answer`` says for a connection's identifier and number, and remembers what came."""

    daemon_threads = True

    def __init__(self, answer: Callable[[str, int], int]) -> None:
        super().__init__(("127.0.0.1", 0), Exchange)
        self.answer = answer
        self.came: dict[int, list[tuple[str, int, str]]] = {}


class Exchange(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Peer

    def do_POST(self) -> None:
        envelope = self.rfile.read(int(self.headers["Content-Length"]))
        said = Reply.parse(envelope)
        (header,) = said.body.getroottree().getroot().iter("{*}Sequence")
        identifier, number = header.findtext("{*}Identifier"), int(header.findtext("{*}MessageNumber"))
        self.server.came.setdefault(self.client_address[1], []).append((identifier, number, said.message_id or ""))
        self.send_response(self.server.answer(identifier, number))
        self.send_header("Content-Length", "5")
        self.end_headers()
        self.wfile.write(b"hello")

    def log_message(self, *_: object) -> None: ...


@pytest.fixture
def serve() -> Iterator[Callable[[Callable[[str, int], int]], Peer]]:
    peers: list[Peer] = []

    def begin(answer: Callable[[str, int], int]) -> Peer:
        peers.append(Peer(answer))
        threading.Thread(target=peers[-1].serve_forever, daemon=True).start()
        return peers[-1]

    yield begin
    for peer in peers:
        peer.shutdown()
        peer.server_close()


def planned(*connections: list[tuple[int, int]]) -> Plan:
    identifiers = [UNKNOWN.format(index) for index in range(3)]
    return Plan(identifiers, [steps(pairs) for pairs in connections], template(identifiers[0]))


@needs("gcc")
def test_the_generator_sends_the_planned_steps_of_each_connection_in_order(serve: Callable[..., Peer]) -> None:
    peer = serve(lambda _identifier, _number: 200)
    first, second = [(0, 1), (0, 2), (2, 70_000), (0, 2)], [(1, 9), (1, 8)]
    done = load(peer.server_port, planned(first, second))
    came = sorted(([(who, n) for who, n, _ in sent] for sent in peer.came.values()), key=len, reverse=True)
    assert came == [[(UNKNOWN.format(index), number) for index, number in pairs] for pairs in (first, second)]
    assert (done.messages, done.answer_bytes) == (6, 5.0)
    assert 0 < done.p50_us <= done.p99_us


@needs("gcc")
def test_a_message_sent_again_has_its_message_id_and_no_other_has(serve: Callable[..., Peer]) -> None:
    peer = serve(lambda _identifier, _number: 200)
    load(peer.server_port, planned([(0, 1), (0, 2), (0, 1), (1, 1)]))
    ((one, two, again, other),) = ([message_id for *_, message_id in sent] for sent in peer.came.values())
    assert one == again
    assert len({one, two, other}) == 3


@needs("gcc")
def test_the_generator_counts_what_it_is_answered_and_sends_again_what_was_refused_for_now(
    serve: Callable[..., Peer],
) -> None:
    refused = iter([503, 503, 202])
    peer = serve(lambda _identifier, number: {1: 200, 2: 400}.get(number) or next(refused))
    done = subprocess.run(
        [generator.compiled(), str(peer.server_port), "0", "0"],
        input=planned([(0, 1), (0, 2), (0, 3)]).written(),
        capture_output=True,
        check=True,
    )
    assert json.loads(done.stdout)["answers"] == {"200": 1, "202": 1, "503": 2, "other": 1}
    assert [number for _, number, _ in next(iter(peer.came.values()))] == [1, 2, 3, 3, 3]


@needs("gcc")
def test_an_answer_that_is_not_meant_makes_a_run_void(serve: Callable[..., Peer]) -> None:
    peer = serve(lambda _identifier, number: 500 if number == 2 else 200)
    with pytest.raises(RunIsVoid, match="500"):
        load(peer.server_port, planned([(0, 1), (0, 2)]))
    assert load(peer.server_port, planned([(0, 1), (0, 2)]), refusals=1).answers["other"] == 1


@needs("gcc")
def test_a_generator_that_needs_too_much_of_a_core_makes_a_run_void(
    serve: Callable[..., Peer], monkeypatch: pytest.MonkeyPatch
) -> None:
    peer = serve(lambda _identifier, _number: 200)
    monkeypatch.setattr(generator, "MOST_CPU_SHARE", 0.0)
    with pytest.raises(GeneratorTooBusy, match="the generator that is measured"):
        load(peer.server_port, planned([(0, number) for number in range(1, 50)]))


def busy_load(rate: int, share: float) -> Load:
    return Load(rate, 1.0, share, 1.0, 1.0, 5.0, {}, 0, 0)


@pytest.mark.parametrize("attempts", [1, 6])
def test_a_generator_that_is_too_busy_is_held_to_less_and_less_until_it_is_not(attempts: int) -> None:
    """However its share varies: here it says each time that it went faster than it was let."""
    held_to: list[int] = []

    def measure(most: int) -> str:
        held_to.append(most)
        if len(held_to) < attempts:
            raise GeneratorTooBusy(busy_load(10_000, 0.31))
        return "measured"

    assert unless_too_busy(measure) == "measured"
    assert held_to[0] == 0, "nothing is held that need not be"
    assert all(0 < after <= 0.81 * before for before, after in pairwise(held_to[1:]))
    assert len(held_to) == attempts


def test_a_run_is_void_only_when_no_try_was_good() -> None:
    held_to: list[int] = []

    def measure(most: int) -> None:
        held_to.append(most)
        raise GeneratorTooBusy(busy_load(most or 10_000, 0.60))

    with pytest.raises(GeneratorTooBusy):
        unless_too_busy(measure)
    assert len(held_to) == 6


@pytest.mark.parametrize(
    ("others", "counts"),
    [([0.0], 0), ([0.3, 0.01], 1), ([0.3, 0.2, 0.4], 1)],
    ids=["undisturbed", "undisturbed the second time", "never undisturbed"],
)
def test_a_round_that_others_disturbed_is_measured_again_and_the_least_disturbed_counts(
    others: list[float], counts: int
) -> None:
    measured = iter(range(len(others)))
    assert undisturbed(lambda: next(measured), lambda number: others[number]) == counts
    assert list(measured) == []


@pytest.mark.parametrize(
    ("value", "others", "verdict", "expected"),
    [(0.9, 0.5, "kept", 0), (0.8, 0.01, "MISSED", 1), (0.8, 0.5, "VOID", 2)],
)
def test_a_run_that_the_machine_disturbed_is_void_where_it_would_miss_a_bound(
    value: float, others: float, verdict: str, expected: int, capsys: pytest.CaptureFixture[str]
) -> None:
    figure = Figure("8 connections", "rate", [value] * 3, "×", Bound(">=", 0.85), [0.0, others, others])
    assert figure.verdict == verdict
    assert status([figure]) == expected
    assert capsys.readouterr().err.startswith(verdict if expected else "")


def test_what_others_had_of_the_machine_is_told_apart_from_what_is_measured() -> None:
    with subprocess.Popen([sys.executable, "-c", "while True: pass"]) as busy:
        apart, ours = Spent([]), Spent([busy.pid])
        while ours.cpu < 0.2:
            time.sleep(0.05)
        with_it, without = ours.others, apart.others
        busy.kill()
    assert 0 <= with_it < without <= 1


@needs("gcc")
def test_the_rate_is_held_to_what_is_asked_for(serve: Callable[..., Peer]) -> None:
    peer = serve(lambda _identifier, _number: 200)
    plan = planned([(0, number) for number in range(1, 21)])
    assert load(peer.server_port, plan, most_per_second=100).rate <= 106  # the first is not waited for
    assert load(peer.server_port, plan, most_per_second=100, seconds=0.05).messages < 10


@needs("gcc", "soapcpp2")
@pytest.mark.timeout(240)
def test_a_small_run_measures_server_null_application_and_gsoap(tmp_path: Path) -> None:
    scale = QUICK._replace(fronts=("waitress",), amount=Amount(0.1), gsoap_messages=300, directory=tmp_path)
    measured: dict[str, list[Sample]] = {}
    run(["a"], scale, measured)
    for connections in ("1 connection", "8 connections", "32 connections"):
        of_case = [sample for sample in measured["a"] if sample.case == connections]
        assert [sample.subject for sample in of_case] == ["gSOAP, plain", "gSOAP, queue", "waitress"]
        assert all(sample.values["rate"] > 0 and sample.values["generator"] < 30 for sample in of_case)
        ours = medians(of_case, connections, "waitress")
        assert ours["own_us"] == pytest.approx(ours["cpu_us"] - ours["null_cpu_us"])
        assert ours["to_queue"] == pytest.approx(ours["rate"] / medians(of_case, connections, "gSOAP, queue")["rate"])
    assert list(tmp_path.iterdir()) == []
    text = report(measured, scale, 60.0, 0.5)
    assert all(said in text for said in ("| waitress ", "fsync of a page: median", "of a core", "gSOAP 2.8"))


@needs("gcc", "soapcpp2")
@pytest.mark.timeout(240)
def test_small_runs_open_prepared_stores_and_send_a_mix(tmp_path: Path) -> None:
    scale = QUICK._replace(
        amount=Amount(0.1),
        gsoap_messages=300,
        open_sequences=(1, 40),
        gsoap_open_sequences=41,
        mixed=20,
        directory=tmp_path,
    )
    measured: dict[str, list[Sample]] = {}
    run(["d", "f"], scale, measured)
    assert [(sample.case, sample.subject.partition(",")[0]) for sample in measured["d"]] == [
        ("1 open", "gSOAP queue"),
        ("41 open", "gSOAP queue"),
        *[(case, "uvicorn") for case in ("1 open", "1 open", "40 open", "40 open")],
    ]
    assert [sample.subject for sample in measured["f"]] == ["uvicorn, in order", "uvicorn, mix"]
    assert all(sample.values["rate"] > 0 for samples in measured.values() for sample in samples)


@needs("gcc")
@pytest.mark.timeout(120)
def test_small_inbound_cases_hold_messages_behind_a_gap_and_restart(tmp_path: Path) -> None:
    """Delivered once and in order, say the cases."""
    size = inbound.Size(rounds=1, gap_rounds=1, held=1_200, held_at_restart=50)
    figures = inbound.run(list(inbound.CASES), size, tmp_path)
    assert {figure.case for figure in figures} == {"header scan", "1,200 held", "restart, 50 undelivered"}
    assert list(tmp_path.iterdir()) == []


@needs("gcc")
@pytest.mark.timeout(120)
def test_each_stage_of_a_message_has_its_cpu_and_all_of_them_are_less_than_the_whole(tmp_path: Path) -> None:
    measured: dict[str, list[Sample]] = {}
    run(["g"], QUICK._replace(amount=Amount(0.3), directory=tmp_path), measured)
    at_8 = {sample.subject: sample.values for sample in measured["g"] if sample.case == "8 connections"}
    assert [*at_8][:-1] == [*STAGES]
    assert all(at_8[stage]["us"] > 1 for stage in STAGES)
    assert sum(values["share"] for values in at_8.values()) == pytest.approx(100)
    assert at_8["headers scanned"]["us"] < at_8["BEGIN and COMMIT, with fdatasync"]["us"]


@pytest.mark.parametrize("letter", PARTS)
def test_every_part_says_how_it_is_measured_and_draws_what_its_tables_show(letter: str) -> None:
    part = PARTS[letter]
    assert part.title
    assert part.about
    shown = {column.key for column in part.columns}
    assert {key for key, _ in part.plotted} <= shown


def test_the_product_is_held_to_its_floor_by_the_median_of_the_rounds() -> None:
    def rounds(*ratios: float) -> list[Sample]:
        return [
            Sample("8 connections", f"uvicorn: the {side}", number, values)
            for number, ratio in enumerate(ratios)
            for side, values in (
                ("product", {"rate_to_floor": ratio, "cpu_to_floor": 1.0, "others": 0.0}),
                ("floor", {"rate_to_bare": 0.3, "cpu_to_bare": 3.0}),
            )
        ]

    kept, short = (
        [figure.verdict for figure in PARTS["h"].reach(rounds(*ratios))]
        for ratios in ((0.1, 0.9, 0.9), (0.9, 0.1, 0.1))
    )
    assert kept == ["kept", "kept", "", ""]
    assert short == ["MISSED", "kept", "", ""]


@needs("gcc")
@pytest.mark.timeout(240)
def test_a_small_run_measures_product_floor_and_server_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(floors, "CONNECTIONS", (8,))
    monkeypatch.setattr("bench.figures.DISTURBED", 1.0)  # other tests run beside this one
    measured: dict[str, list[Sample]] = {}
    run(["h"], QUICK._replace(amount=Amount(0.1), directory=tmp_path), measured)
    assert [sample.subject for sample in measured["h"]] == [
        f"{server}{side}"
        for server in ("uvicorn", "granian WSGI")
        for side in (": the product", ": the floor", " alone")
    ]
    assert [figure.bound is not None for figure in reached(measured)] == [True, True, False, False] * 2


@needs("gcc")
@pytest.mark.parametrize(("product", "floor"), [("serve", "uvicorn-as-serve"), ("granian", "granian")])
def test_a_floor_writes_and_answers_what_the_product_does(product: str, floor: str, tmp_path: Path) -> None:
    """Acknowledged, delivered once and in order, says ``side``."""
    written: list[list[set[str]]] = []
    answers: list[float] = []
    for front, options in ((product, ()), (floor, ("--floor",))):
        with reliable(front, tmp_path / "bench.db", *options) as server:
            done = server.side(3, Amount(0.3, messages=90))
            assert 0 < done.commits <= 1.5
            answers.append(done.load.answer_bytes)
            written.append([_filled_columns(server.store, table) for table in ("message", "entry")])
    assert written[0] == written[1]
    assert answers[0] == pytest.approx(answers[1], abs=2)


def _filled_columns(store: Path, table: str) -> set[str]:
    db = sqlite3.connect(f"file:{store}?mode=ro", uri=True)
    try:
        db.row_factory = sqlite3.Row
        return {name for row in db.execute(f"SELECT * FROM {table}") for name in row.keys() if row[name] is not None}  # noqa: SIM118
    finally:
        db.close()


def test_lines_of_code_are_counted_without_comments_and_docstrings(tmp_path: Path) -> None:
    (tmp_path / "module.py").write_text(
        '"""Of a module,\n\nof two lines."""\n\n# a comment\nx = (\n    1,  # one\n\n)\n"""Of a value."""\n\n\n'
        'def f():\n    """Of a function."""\n    return """text\n\nof three lines"""\n'
    )
    assert code_lines(tmp_path) == 3 + 1 + 3


@pytest.mark.parametrize("front", ["wsgi", "asgi"])
def test_calls_of_a_message_are_counted_in_the_package_alone(front: str) -> None:
    done = counted(ROOT, front, 2)
    assert 0 < done["changes"] < done["from_elsewhere"] < done["calls"] < 1_000
    assert 0 < done["rooms"] < done["modules"]
    assert 10 < done["modules"] < 100
    assert done["longest"] <= 60


STARTER = """
import sys, time
from bench.process import ServerProcess
server = ServerProcess("--front", sys.argv[1])
print(*server.pids, flush=True)
time.sleep(600)
"""


@pytest.mark.parametrize("front", ["waitress", "uvicorn"])
def test_no_server_outlives_a_bench_that_is_killed(front: str) -> None:
    with subprocess.Popen([sys.executable, "-c", STARTER, front], cwd=ROOT, stdout=subprocess.PIPE, text=True) as bench:
        assert bench.stdout is not None
        pids = [int(pid) for pid in bench.stdout.readline().split()]
        bench.send_signal(signal.SIGKILL)
    assert pids
    end = time.monotonic() + 10
    while any(map(_runs, pids)) and time.monotonic() < end:
        time.sleep(0.02)
    assert not any(map(_runs, pids))


def _runs(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return "State:\tZ" not in Path(f"/proc/{pid}/status").read_text()
