"""The processes that use the store: one lock file and one datagram socket for each running process.

An instance is alive while it holds ``flock`` on its own file; the system frees it at death, so a dead worker is known
at once, and a long operation that starves a heartbeat is not taken for a death. The socket carries wake-ups only: a
lost one costs a poll interval, never a message.

Order matters: first the lock, then the row. Names are random and never used again.

The doorbell of queues is a second name of that socket, which only an instance has that has waited for messages: a
message that is put wakes no process that waits for none.

A missing lock file proves nothing: the directory may have been removed. The instance that it stood for makes it again
in its next poll; only one that does not, in several, is dead.
"""

from __future__ import annotations

import fcntl
import os
import secrets
import select
import socket
import stat
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from wsrm_mq.errors import StoreUnavailable
from wsrm_mq.store.sqlite.files import FileId, FileIds, beside, file_id, is_locked, tell_open

_SUFFIXES: Final = ("bell", "sock", "lock")


def _address(directory: int, file: str) -> str:
    """A socket's address through an open directory: a Unix path may have 107 characters, a store's may have more."""
    return f"/proc/self/fd/{directory}/{file}"


class Presence:
    """The lock file by which this process shows that it lives, and the socket that wakes it. Made before its row."""

    def __init__(self, store: Path) -> None:
        self.name = secrets.token_hex(8)
        self.home = beside(store)
        self._handles: list[int] = []
        self._lock: FileId = None
        self._opened: FileIds = ()
        self._socket: socket.socket | None = None
        self.take_place()

    @property
    def is_in_place(self) -> bool:
        """Whether the others can still see its lock."""
        return file_id(self._path("lock")) == self._lock

    def take_place(self) -> None:
        """Make the files. Also again, where they were removed."""
        self.abandon()
        try:
            self.home.mkdir(mode=0o700, exist_ok=True)
            directory = os.open(self.home, os.O_RDONLY | os.O_DIRECTORY)
            self._handles.append(directory)
            self._handles.append(_locked(self._path("lock"), self._opened))
        except OSError as error:
            self.abandon()
            raise StoreUnavailable(f"{self.home}: {error.strerror}.") from error
        self._lock = file_id(self._path("lock"))
        try:
            self._path("sock").unlink(missing_ok=True)
            listener = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
            listener.setblocking(False)  # not by a flag of its type: gevent's sockets wait all the same
            listener.bind(_address(directory, f"{self.name}.sock"))
            self._socket = listener
        except OSError:
            pass  # without a socket the poll is all there is

    def has_open(self, files: FileIds) -> None:
        """Tell the others which files this process has open; ``()`` for none."""
        self._opened = files
        if len(self._handles) == 2:
            tell_open(self._handles[1], files)

    def _path(self, suffix: str) -> Path:
        return self.home / f"{self.name}.{suffix}"

    def wait(self, seconds: float) -> set[str]:
        """Wait for a wake-up; answers the words that came, or nothing after ``seconds``."""
        poll = select.poll()  # not select: it fails on a descriptor above 1023
        if self._socket is not None:
            poll.register(self._socket, select.POLLIN)
        words: set[str] = set()
        ready = poll.poll(seconds * 1000)
        while ready and self._socket is not None:
            try:
                words.add(self._socket.recv(512).decode("ascii", "replace"))
            except OSError:
                break
        return words

    def close(self) -> None:
        """Give the claim up and take the files away."""
        self.abandon()
        for suffix in _SUFFIXES:
            self._path(suffix).unlink(missing_ok=True)

    def abandon(self) -> None:
        """Close what is open here, without unlocking it: after a fork the lock is the parent's."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None
        handles, self._handles = self._handles, []
        for handle in handles:
            try:
                os.close(handle)
            except OSError:
                pass


def _locked(path: Path, files: FileIds) -> int:
    """Make a lock file, which tells which ``files`` are open. It is shown when the lock is held: before, it would look
    like that of a dead instance."""
    unseen = path.with_suffix(".new")
    unseen.unlink(missing_ok=True)
    handle = os.open(unseen, os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_NOFOLLOW, 0o600)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        tell_open(handle, files)
        os.rename(unseen, path)
    except OSError:
        os.close(handle)
        raise
    return handle


def in_use(store: Path) -> int:
    """How many instances run on the store, whether it knows them or not."""
    return sum(bool(is_locked(lock)) for lock in beside(store).glob("*.lock"))


class InstanceFiles:
    """The port's ``Instances`` of a store that is a file: their lock files and sockets beside it."""

    def __init__(self, store: Path) -> None:
        self._store = store

    def enter(self) -> Presence:
        return Presence(self._store)

    def lives(self, name: str) -> bool | None:
        return is_locked(beside(self._store) / f"{name}.lock")

    def bury(self, name: str) -> None:
        for suffix in _SUFFIXES:
            (beside(self._store) / f"{name}.{suffix}").unlink(missing_ok=True)

    @contextmanager
    def alone(self, task: str) -> Iterator[bool]:
        try:
            handle = os.open(beside(self._store) / task, os.O_CREAT | os.O_RDWR | os.O_NOFOLLOW, 0o600)
        except OSError:  # without its directory no process can be agreed with
            yield False
            return
        is_alone = True
        try:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                is_alone = False
            yield is_alone
        finally:
            os.close(handle)

    def listen(self, name: str) -> None:
        home = beside(self._store)
        with suppress(OSError):  # it does already, or has no socket: it looks by itself soon
            os.link(home / f"{name}.sock", home / f"{name}.bell")

    def ring(self, word: str, but: str = "") -> None:
        with suppress(OSError):
            self._send((file for file in os.listdir(beside(self._store)) if _is_bell(file, but)), word)

    def wake(self, names: Iterable[str], word: str = "look") -> None:
        self._send((f"{name}.sock" for name in names), word)

    def _send(self, files: Iterable[str], word: str) -> None:
        try:
            directory = os.open(beside(self._store), os.O_RDONLY | os.O_DIRECTORY)
        except OSError:
            return
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
                sender.setblocking(False)
                for file in files:
                    try:
                        if stat.S_ISSOCK(os.stat(file, dir_fd=directory, follow_symlinks=False).st_mode):
                            sender.sendto(word.encode("ascii"), _address(directory, file))
                    except OSError:
                        continue
        except OSError:  # no file is free: they look by themselves soon
            return
        finally:
            os.close(directory)


def _is_bell(file: str, but: str) -> bool:
    name, _, suffix = file.rpartition(".")
    return suffix == "bell" and name != but
