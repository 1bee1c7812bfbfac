"""Programs that a test begins with this Python are forked from a process that has imported what most of them import:
a start takes a second of a core, and the suite has more than a thousand.

A program is a process of its own and a child of the test's all the same: it is killed, ends and leaves its files as one
that begins anew. One with an option of the interpreter other than ``-u``, with a ``preexec_fn`` or with another
environment of Python begins anew, as before: a test that is about the start itself gives ``-E``.

A plug-in of pytest (``tests/conftest.py`` names it). It needs Linux: elsewhere all programs begin anew.
"""

from __future__ import annotations

import ctypes
import gc
import io
import json
import os
import platform
import runpy
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any, Final, NamedTuple

import pytest

ROOT: Final = Path(__file__).parents[2]
SERVERS: Final = ("spyne.server.wsgi", "spyne.protocol.soap", "waitress", "uvicorn", "tests.servers.fronts")
IMPORTED: Final = ("wsrm_mq.node.node", "wsrm_mq.wsgi", "wsrm_mq.asgi", "wsrm_mq.server", *SERVERS)
"""Beside the commands of ``wsrm-mq``."""
READ_AT_START: Final = ("PYTHON", "LANG", "LC_", "LD_", "MALLOC_")
"""The beginnings of the variables that a process reads when it begins, and not again."""
SYS_CLONE: Final = {"x86_64": 56, "aarch64": 220}
CLONE_PARENT: Final = 0x8000
_begin_anew: Final = subprocess.Popen._execute_child  # type: ignore[attr-defined]


class Program(NamedTuple):
    """``flag``: ``-c`` or ``-m``; ``text``: the program, or the name of its module."""

    words: list[str]
    flag: str
    text: str
    arguments: list[str]
    is_unbuffered: bool
    directory: str
    environment: dict[str, str]
    is_leader: bool


def _program(words: Any, cwd: Any, env: Any, is_leader: bool) -> Program | None:
    """The program that a command is; ``None``: it has to begin anew."""
    words = [os.fspath(word) for word in words] if isinstance(words, list | tuple) else []
    rest = words[2:] if words[1:2] == ["-u"] else words[1:]
    if words[:1] != [sys.executable] or len(rest) < 2 or rest[0] not in ("-c", "-m"):
        return None
    if rest[0] == "-m" and not rest[1].startswith(("wsrm_mq", "tests.")):
        return None
    own, environment = dict(os.environ), dict(os.environ if env is None else env)
    changed = {name for name in own.keys() | environment.keys() if own.get(name) != environment.get(name)}
    if any(name.startswith(READ_AT_START) for name in changed):
        return None
    directory = os.fspath(cwd or os.getcwd())
    return Program(words, rest[0], rest[1], rest[2:], rest != words[1:], directory, environment, is_leader)


class Source:
    """The process that all programs of one pytest are forked from."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._line: socket.socket | None = None
        self._owner = 0

    def fork(self, program: Program, streams: list[int]) -> int:
        """Answers the number of the process; its standard streams are copies of ``streams``."""
        text = json.dumps(program).encode()
        with self._lock:
            if self._line is None or self._owner != os.getpid():
                self._begin()
            assert self._line is not None
            socket.send_fds(self._line, [len(text).to_bytes(8, "big")], streams)
            self._line.sendall(text)
            answer = self._line.recv(8, socket.MSG_WAITALL)
        if not answer:
            raise OSError("the process that programs are forked from has ended; its standard error says why")
        return int.from_bytes(answer, "big")

    def _begin(self) -> None:
        self._line, theirs = socket.socketpair()
        self._owner = os.getpid()
        with theirs:
            command = [sys.executable, "-m", "tests.support.quick_start", str(theirs.fileno())]
            subprocess.Popen(command, pass_fds=[theirs.fileno()], cwd=ROOT)


SOURCE: Final = Source()


def _execute_child(
    popen: Any,
    args: Any,
    executable: Any,
    preexec_fn: Any,
    close_fds: Any,
    pass_fds: Any,
    cwd: Any,
    env: Any,
    *rest: Any,
) -> None:
    """The method of ``Popen``. ``rest``: startupinfo, creationflags, shell, six ends of pipes, restore_signals, gid,
    gids, uid, umask, start_new_session, process_group."""
    pipes, others, is_leader = rest[3:9], (*rest[:3], *rest[10:14], *rest[15:]), rest[14]
    is_plain = close_fds and all(one in (None, False, 0, -1, ()) for one in (executable, preexec_fn, pass_fds, *others))
    program = _program(args, cwd, env, is_leader) if is_plain else None
    if program is None:
        _begin_anew(popen, args, executable, preexec_fn, close_fds, pass_fds, cwd, env, *rest)
        return
    ends = (pipes[0], pipes[3], pipes[5])
    popen.pid = SOURCE.fork(program, [own if end == -1 else end for own, end in enumerate(ends)])
    popen._child_created = True
    popen._close_pipe_fds(*pipes)


def pytest_configure(config: pytest.Config) -> None:
    begins_workers = getattr(config.option, "numprocesses", None) and not hasattr(config, "workerinput")
    if sys.platform == "linux" and platform.machine() in SYS_CLONE and not begins_workers:
        subprocess.Popen._execute_child = _execute_child  # type: ignore[attr-defined]


# the process that is forked from


def serve(number: int) -> None:
    line = socket.socket(fileno=number)
    _import_all()
    while True:
        start, streams, _flags, _address = socket.recv_fds(line, 8, 3)
        if not start:
            return
        length = int.from_bytes(start, "big")
        program = Program(*json.loads(line.recv(length, socket.MSG_WAITALL)))
        child = _fork_sibling()
        if child == 0:
            line.close()
            _become(program, streams)
            return
        for stream in streams:
            os.close(stream)
        line.sendall(child.to_bytes(8, "big"))


def _import_all() -> None:
    from wsrm_mq.cli import COMMANDS

    for name in (*IMPORTED, *(module for module, _text in COMMANDS.values())):
        with suppress(ImportError):
            import_module(name)
    gc.freeze()


def _fork_sibling() -> int:
    """As ``os.fork``, but the child's parent is the parent of this process, which can wait for it."""
    python = ctypes.pythonapi
    python.PyOS_BeforeFork()
    child: int = ctypes.PyDLL(None).syscall(SYS_CLONE[platform.machine()], CLONE_PARENT | signal.SIGCHLD, 0, 0, 0, 0)
    if child == 0:
        python.PyOS_AfterFork_Child()
    else:
        python.PyOS_AfterFork_Parent()
    if child < 0:
        raise OSError("no process could be forked")
    return child


def _become(program: Program, streams: list[int]) -> None:
    """Run a program in this process, which ends as Python does when this returns."""
    for own, stream in enumerate(streams):
        os.dup2(stream, own)
    os.closerange(3, 256)
    if program.is_leader:
        os.setsid()
    os.chdir(program.directory)
    os.environ.clear()
    os.environ.update(program.environment)
    time.tzset()
    tempfile.tempdir = None
    _open_streams(program.is_unbuffered)
    sys.orig_argv = program.words
    sys.argv = [program.flag, *program.arguments]
    sys.path[0] = "" if program.flag == "-c" else program.directory
    main = sys.modules["__main__"] = ModuleType("__main__")
    if program.flag == "-c":
        exec(compile(program.text, "<string>", "exec"), main.__dict__)
    else:
        runpy._run_module_as_main(program.text)  # type: ignore[attr-defined]


def _open_streams(is_unbuffered: bool) -> None:
    for own, (name, mode) in enumerate({"stdin": "r", "stdout": "w", "stderr": "w"}.items()):
        before: io.TextIOWrapper = getattr(sys, name)
        binary = open(own, f"{mode}b", buffering=0 if is_unbuffered and own else -1, closefd=False)  # noqa: SIM115
        stream = io.TextIOWrapper(
            binary,
            encoding=before.encoding,
            errors=before.errors,
            line_buffering=own == 2 or os.isatty(own),
            write_through=is_unbuffered,
        )
        stream.mode = mode  # type: ignore[misc]
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)


if __name__ == "__main__":
    serve(int(sys.argv[1]))
