"""A process that forks, as preforking servers with a preloaded application do: parent and child both go on, each as
an instance of its own. The process is another one: a test's own threads would not survive its fork."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
import textwrap
from collections import defaultdict
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]

PRELUDE = """
    import os, signal, sqlite3, sys, threading, time
    from pathlib import Path
    from tests.support.in_process import TWO_WAY, InProcess, taken, until

    home = Path(sys.argv[1])
    calls = os.open(home / "calls", os.O_APPEND | os.O_CREAT | os.O_RDWR)
    parent = os.getpid()

    def operation(environ, start_response):
        environ["wsgi.input"].read()
        names = ("wsrm.sequence_id", "wsrm.message_number", "wsrm.redelivery")
        os.write(calls, " ".join([str(os.getpid()), *(str(environ[name]) for name in names)]).encode() + b"\\n")
        return taken(start_response)

    def say(*words):
        os.write(1, " ".join(map(str, words)).encode() + b"\\n")

    def settled(service, identifier):
        key = "(select id from lane where identifier = ?)"
        query = f"select count(*) from entry where outcome is null and lane = {key}"
        return until(lambda: service.rows(query, identifier) == [(0,)])

    def in_time(what, *arguments, seconds=10, **options):
        '''What it answers, or that it hangs.'''
        answers = ["hangs"]
        thread = threading.Thread(target=lambda: answers.insert(0, what(*arguments, **options)), daemon=True)
        thread.start()
        thread.join(seconds)
        return answers[0]

    def forked(child):
        '''Fork; the child does this and ends.'''
        pid = os.fork()
        if not pid:
            try:
                child()
            finally:
                os._exit(0)
        return pid
    """


class Call(NamedTuple):
    pid: str
    sequence: str
    number: int
    is_redelivery: bool


def run(home: Path, code: str) -> list[str]:
    """The lines that a process says which runs ``code``."""
    program = textwrap.dedent(PRELUDE) + textwrap.dedent(code)
    command = [sys.executable, "-W", "ignore::DeprecationWarning", "-c", program, str(home)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr[-4000:]
    return done.stdout.splitlines()


def calls(home: Path) -> list[Call]:
    """What the service was called for, by whichever process."""
    lines = (line.split() for line in (home / "calls").read_text().splitlines())
    return [Call(pid, sequence, int(number), again == "True") for pid, sequence, number, again in lines]


def first_calls(home: Path) -> dict[str, list[int]]:
    """By sequence, the numbers that were not marked as called before."""
    found = defaultdict(list)
    for call in calls(home):
        if not call.is_redelivery:
            found[call.sequence].append(call.number)
    return found


def test_parent_and_children_serve_after_forks_under_load_and_lose_nothing(tmp_path: Path) -> None:
    said = run(
        tmp_path,
        """
        service = InProcess(home, operation)
        stopping = threading.Event()

        def send(identifier, numbers):
            last = 0
            for last in numbers:
                assert service.put(identifier, last).startswith("20")
                if stopping.is_set():
                    break
            say(identifier, last)

        def in_child():
            identifier = service.create()
            send(identifier, range(1, 31))
            settled(service, identifier)
            service.middleware.close(10)

        senders = [threading.Thread(target=send, args=(service.create(), range(1, 100_000))) for _ in range(4)]
        for sender in senders:
            sender.start()
        children = []
        for _ in range(4):
            time.sleep(0.3)
            children.append(forked(in_child))
        for child in children:
            os.waitpid(child, 0)
        time.sleep(0.3)
        stopping.set()
        for sender in senders:
            sender.join()
        until(lambda: service.rows("select count(*) from entry where outcome is null") == [(0,)])
        service.middleware.close(10)
        """,
    )
    sent = {identifier: int(last) for identifier, last in (line.split() for line in said)}
    assert len(sent) == 8
    assert first_calls(tmp_path) == {identifier: list(range(1, last + 1)) for identifier, last in sent.items()}
    assert len(calls(tmp_path)) == sum(sent.values()), "nothing was repeated either"
    with closing(sqlite3.connect(tmp_path / "store.db")) as db:
        assert db.execute("select count(*), count(ended_at), count(distinct pid) from instance").fetchone() == (5, 5, 5)


def test_a_process_that_forks_before_it_starts_serves_in_parent_and_child(tmp_path: Path) -> None:
    said = run(
        tmp_path,
        """
        service = InProcess(home, operation, start=False)

        def serve():
            identifier = service.create()
            say(identifier, service.put(identifier, 1))
            settled(service, identifier)
            service.middleware.close(10)

        child = forked(serve)
        serve()
        os.waitpid(child, 0)
        """,
    )
    assert [line.split()[1] for line in said] == ["200", "200"]
    assert len(first_calls(tmp_path)) == 2
    assert len({call.pid for call in calls(tmp_path)}) == 2


def test_what_a_child_ran_when_it_died_is_called_again_by_its_parent(tmp_path: Path) -> None:
    run(
        tmp_path,
        """
        def blocks_in_the_child(environ, start_response):
            answer = operation(environ, start_response)
            if os.getpid() != parent:
                time.sleep(60)
            return answer

        service = InProcess(home, blocks_in_the_child)
        child = forked(lambda: (service.put(service.create(), 1), time.sleep(60)))
        until(lambda: (home / "calls").stat().st_size)
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        until(lambda: service.rows("select count(*) from entry where outcome is null") == [(0,)])
        service.middleware.close(10)
        """,
    )
    first, second = calls(tmp_path)
    assert (first.sequence, first.number, first.is_redelivery) == (second.sequence, 1, False)
    assert (second.number, second.is_redelivery) == (1, True)
    assert first.pid != second.pid


LEAVE = """
    def never_ends(environ, start_response):
        begun.set()
        time.sleep(60)

    begun = threading.Event()
    service = InProcess(home, never_ends)
    identifier = service.create()
    for number in (1, 2, 3):
        service.put(identifier, number)
    begun.wait()
    os._exit(0)
    """
"""Three messages, of which none was delivered, and no live process."""


def test_a_process_that_forks_before_it_is_asked_leaves_what_waits_to_its_child(tmp_path: Path) -> None:
    run(tmp_path, LEAVE)
    (child,) = run(
        tmp_path,
        """
        service = InProcess(home, operation)

        def serve():
            until(lambda: service.rows("select count(*) from entry where outcome is null") == [(0,)])
            time.sleep(2)
            service.middleware.close(10)

        child = forked(serve)
        say(child)
        os.waitpid(child, 0)
        service.middleware.close(10)
        """,
    )
    assert [(call.pid, call.number) for call in calls(tmp_path)] == [(child, 1), (child, 2), (child, 3)]


def test_one_that_delivers_already_ends_what_it_runs_before_it_forks_and_leaves_the_rest(tmp_path: Path) -> None:
    """However long it takes: what the operation has open would be in the child."""
    run(tmp_path, LEAVE)
    parent, child, ended = run(
        tmp_path,
        """
        ends = []

        def slow(environ, start_response):
            answer = operation(environ, start_response)
            if os.getpid() == parent:
                time.sleep(3)
                ends.append(time.monotonic())
            return answer

        service = InProcess(home, slow)
        until(lambda: (home / "calls").stat().st_size)

        def serve():
            until(lambda: service.rows("select count(*) from entry where outcome is null") == [(0,)])
            service.middleware.close(10)

        child = forked(serve)
        say(parent)
        say(child)
        say(len(ends))
        os.waitpid(child, 0)
        service.middleware.close(10)
        """,
    )
    assert ended == "1"
    assert [(call.pid, call.number) for call in calls(tmp_path)] == [(parent, 1), (child, 2), (child, 3)]


def test_one_that_is_asked_after_its_fork_delivers_although_its_child_lives(tmp_path: Path) -> None:
    parent, answer = run(
        tmp_path,
        """
        service = InProcess(home, operation)
        child = forked(lambda: time.sleep(60))
        say(parent)
        identifier = service.create()
        say(service.put(identifier, 1))
        settled(service, identifier)
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        service.middleware.close(10)
        """,
    )
    assert answer == "200 OK"
    assert [call.pid for call in calls(tmp_path)] == [parent]


def test_an_operation_that_forks_does_not_end_the_delivering(tmp_path: Path) -> None:
    """It is no server's master, although this process has had no request yet."""
    run(tmp_path, LEAVE)
    (parent,) = run(
        tmp_path,
        """
        children = []

        def forks(environ, start_response):
            children.append(forked(lambda: time.sleep(60)))
            return operation(environ, start_response)

        service = InProcess(home, forks)
        say(parent)
        until(lambda: service.rows("select count(*) from entry where outcome is null") == [(0,)])
        for child in children:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
        service.middleware.close(10)
        """,
    )
    assert [(call.pid, call.number) for call in calls(tmp_path)] == [(parent, 1), (parent, 2), (parent, 3)]


def test_two_that_stand_by_do_not_wait_for_each_other_when_their_children_are_dead(tmp_path: Path) -> None:
    run(tmp_path, LEAVE)
    (parent,) = run(
        tmp_path,
        """
        services = [InProcess(home, operation) for _ in range(2)]
        child = forked(lambda: time.sleep(60))
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        say(parent)
        until(lambda: services[0].rows("select count(*) from entry where outcome is null") == [(0,)])
        for service in services:
            service.middleware.close(10)
        """,
    )
    assert [(call.pid, call.number) for call in calls(tmp_path)] == [(parent, 1), (parent, 2), (parent, 3)]


def test_a_child_serves_although_another_thread_named_a_connection_at_the_fork(tmp_path: Path) -> None:
    said = run(
        tmp_path,
        """
        hashing, going_on = threading.Event(), threading.Event()

        class Connection:
            def closed(self):
                return False

        class Slow(Connection):
            def __hash__(self):
                hashing.set()
                going_on.wait(20)
                return 1

        service = InProcess(home, operation)
        one, other = Slow(), Connection()
        name = service.middleware._front._connections.name
        slow = threading.Thread(target=name, args=({"waitress.client_disconnected": one.closed},))
        slow.start()
        hashing.wait()
        child = forked(lambda: say(in_time(name, {"REMOTE_ADDR": "::1", "waitress.client_disconnected": other.closed})))
        os.waitpid(child, 0)
        going_on.set()
        slow.join()
        service.middleware.close(10)
        """,
    )
    assert len(said) == 1
    assert said[0].startswith("::1:None/")


def test_a_fork_waits_for_a_start_and_no_child_waits_for_one_that_it_does_not_have(tmp_path: Path) -> None:
    said = run(
        tmp_path,
        """
        import subprocess

        InProcess(home, operation).middleware.close()
        service = InProcess(home, operation, start=False)
        code = "import sqlite3, sys, time; db = sqlite3.connect(sys.argv[1]);"
        code += "db.execute('begin immediate'); print(flush=True); time.sleep(1)"
        busy = subprocess.Popen([sys.executable, "-c", code, service.path], stdout=subprocess.PIPE)
        busy.stdout.readline()
        starting = threading.Thread(target=service.create)
        starting.start()
        time.sleep(0.3)
        child = forked(lambda: say(in_time(service.create)))
        os.waitpid(child, 0)
        starting.join()
        say(in_time(service.create))
        busy.wait()
        service.middleware.close(10)
        """,
    )
    assert [line[:9] for line in said] == ["urn:uuid:", "urn:uuid:"]


def test_a_child_has_all_the_places_of_those_that_wait_for_a_gap(tmp_path: Path) -> None:
    said = run(
        tmp_path,
        """
        service = InProcess(home, operation, max_waiting=1)

        def waits():
            '''Whether a request whose message has a gap before it is made to wait.'''
            identifier = service.create()
            asking = threading.Thread(target=service.put, args=(identifier, 2), kwargs={"reply_to": TWO_WAY})
            asking.start()
            asking.join(1)
            is_waiting = asking.is_alive()
            return is_waiting, asking, identifier

        def ends(waiting):
            service.put(waiting[2], 1)
            waiting[1].join(10)

        mine = waits()
        second = waits()

        def in_child():
            own = waits()
            say(own[0])
            ends(own)
            service.middleware.close(10)

        os.waitpid(forked(in_child), 0)
        say(mine[0], second[0])
        ends(mine)
        service.middleware.close(10)
        """,
    )
    assert said == ["True", "True False"]


def test_a_store_that_cannot_be_opened_again_after_a_fork_is_opened_as_soon_as_it_can(tmp_path: Path) -> None:
    """Meanwhile nothing waits for it but what was done and must be written down."""
    said = run(
        tmp_path,
        """
        import resource

        release = threading.Event()

        def gated(environ, start_response):
            if environ["wsrm.message_number"] == 2:
                release.wait(20)
            return operation(environ, start_response)

        service = InProcess(home, gated)
        identifier = service.create()
        service.put(identifier, 1)
        service.put(identifier, 2)
        until(lambda: (home / "calls").stat().st_size)
        time.sleep(0.2)
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (0, hard))
        os.waitpid(forked(lambda: None), 0)
        release.set()
        say(in_time(service.put, identifier, 3))
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        say(in_time(service.put, identifier, 3))
        say(in_time(settled, service, identifier))
        say(until(lambda: any(thread.name == "wsrm-mq-watch" for thread in threading.enumerate())))
        service.middleware.close(10)
        """,
    )
    assert said == ["503 Service Unavailable", "200 OK", "True", "True"]
    assert [call.number for call in calls(tmp_path)] == [1, 2, 3]


def test_a_child_forked_unheard_of_by_python_takes_nothing_and_says_why(tmp_path: Path) -> None:
    """SQLite would go by the locks of its parent's connections there, which it does not have."""
    said = run(
        tmp_path,
        """
        import ctypes, logging

        # A thread that waits for the interpreter takes a lock of its after each interval: a child that is forked then
        # finds it taken for ever. That is no matter of this test: its alarm ends it, and another is forked.
        sys.setswitchinterval(60)
        logging.basicConfig(stream=sys.stdout, format="%(message)s")
        service = InProcess(home, operation)
        identifier = service.create()
        sys.stdout.flush()
        for _again in range(5):
            child = ctypes.PyDLL(None).fork()  # no hook of Python's runs
            if not child:
                signal.alarm(20)
                say(in_time(service.put, identifier, 1))
                sys.stdout.flush()
                os._exit(0)
            if os.waitpid(child, 0)[1] != signal.SIGALRM:
                break
        say(service.put(identifier, 1))
        settled(service, identifier)
        service.middleware.close(10)
        """,
    )
    assert [line for line in said if line[0].isdigit()] == ["503 Service Unavailable", "200 OK"]
    assert any("Python was not told" in line and "start=False" in line for line in said)
    assert len(calls(tmp_path)) == 1


def test_a_process_that_ends_without_closing_drains(tmp_path: Path) -> None:
    run(
        tmp_path,
        """
        begun = threading.Event()

        def slow(environ, start_response):
            begun.set()
            time.sleep(1)
            return operation(environ, start_response)

        service = InProcess(home, slow)
        identifier = service.create()
        service.put(identifier, 1)
        assert begun.wait(20)  # what has not begun is the next start's
        """,
    )
    assert [call.number for call in calls(tmp_path)] == [1]
    with closing(sqlite3.connect(tmp_path / "store.db")) as db:
        assert db.execute("select count(*) from entry where outcome is null").fetchone() == (0,)
        assert db.execute("select count(*) from instance where ended_at is null").fetchone() == (0,)
