"""The drivers that the suite of the port runs on, each with what it takes to make a store in it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, closing
from pathlib import Path
from typing import Final, NamedTuple

import pytest

from wsrm_mq.store.port import Connection, Instances
from wsrm_mq.store.sqlite import connection, presence, schema


class Driver(NamedTuple):
    """``make`` makes an empty store; where it is goes to all the others."""

    name: str
    make: Callable[[Path], Path]
    connect_writer: Callable[[Path], Connection]
    connect_reader: Callable[[Path], Connection]
    instances: Callable[[Path], Instances]
    store_errors: Callable[[Path], AbstractContextManager[None]]


def _sqlite_file(home: Path) -> Path:
    path = home / "store.db"
    schema.ensure(path)
    return path


DRIVERS: Final = (
    Driver(
        "sqlite",
        _sqlite_file,
        connection.connect_writer,
        connection.connect_reader,
        presence.InstanceFiles,
        connection.store_errors,
    ),
)


class Place:
    """A store of one driver. What is opened here is closed at the end."""

    def __init__(self, driver: Driver, home: Path, opened: ExitStack) -> None:
        self.driver = driver
        self.where = driver.make(home)
        self._opened = opened

    def writer(self) -> Connection:
        db = self._opened.enter_context(closing(self.driver.connect_writer(self.where)))
        db.for_writing()
        return db

    def reader(self) -> Connection:
        return self._opened.enter_context(closing(self.driver.connect_reader(self.where)))

    def instances(self) -> Instances:
        return self.driver.instances(self.where)

    def errors(self) -> AbstractContextManager[None]:
        return self.driver.store_errors(self.where)


@pytest.fixture(params=DRIVERS, ids=lambda driver: driver.name)
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    with ExitStack() as opened:
        yield Place(request.param, tmp_path, opened)
