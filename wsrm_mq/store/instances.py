"""Who uses the store: one lock file and one datagram socket for each running process.

An instance is alive while it holds ``flock`` on its own file; the system frees it at death, so a dead worker is known
at once, and a long operation that starves a heartbeat is not taken for a death. The socket carries wake-ups only: a
lost one costs a poll interval, never a message.

Order matters: first the lock, then the row. Names are random and never used again.
"""

from __future__ import annotations

import fcntl
import os
import secrets
import select
import socket
from collections.abc import Iterable
from pathlib import Path

from wsrm_mq.errors import StoreUnavailable

__all__ = ["Presence", "is_alive", "wake"]


def _directory(store: Path) -> Path:
    return store.with_name(store.name + ".d")


def _address(directory: int, name: str) -> str:
    """A socket's address through an open directory: a Unix path may have 107 characters, a store's may have more."""
    return f"/proc/self/fd/{directory}/{name}.sock"


class Presence:
    """This process's claim to be alive. Made before its row is written."""

    def __init__(self, store: Path) -> None:
        self.name = secrets.token_hex(8)
        self._home = _directory(store)
        try:
            self._home.mkdir(mode=0o700, exist_ok=True)
            directory = os.open(self._home, os.O_RDONLY | os.O_DIRECTORY)
            lock = os.open(self._home / f"{self.name}.lock", os.O_CREAT | os.O_RDWR, 0o600)
        except OSError as error:
            raise StoreUnavailable(f"{self._home}: {error.strerror}.") from error
        self._handles: tuple[int, ...] = (lock, directory)
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        self._socket: socket.socket | None = None
        try:
            listener = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
            listener.bind(_address(directory, self.name))
            self._socket = listener
        except OSError:
            pass  # without a socket the poll is all there is

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
        for suffix in ("sock", "lock"):
            (self._home / f"{self.name}.{suffix}").unlink(missing_ok=True)

    def abandon(self) -> None:
        """Close what is open here, without unlocking it: after a fork the lock is the parent's."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None
        handles, self._handles = self._handles, ()
        for handle in handles:
            try:
                os.close(handle)
            except OSError:
                pass


def is_alive(store: Path, name: str) -> bool:
    """Whether the instance of this name still runs."""
    try:
        handle = os.open(_directory(store) / f"{name}.lock", os.O_RDWR)
    except FileNotFoundError:
        return False
    except OSError:  # not known: a live one must not be taken for dead
        return True
    try:
        fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(handle)
    return False


def bury(store: Path, name: str) -> None:
    """Take a dead instance's files away."""
    for suffix in ("sock", "lock"):
        (_directory(store) / f"{name}.{suffix}").unlink(missing_ok=True)


def wake(store: Path, names: Iterable[str], word: str = "look") -> None:
    """Tell instances that there may be something to do: ``word`` is ``look``, or a position that was settled."""
    try:
        directory = os.open(_directory(store), os.O_RDONLY | os.O_DIRECTORY)
    except OSError:
        return
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK) as sender:
            for name in names:
                try:
                    sender.sendto(word.encode("ascii"), _address(directory, name))
                except OSError:
                    continue
    finally:
        os.close(directory)
