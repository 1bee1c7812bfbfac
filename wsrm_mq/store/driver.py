"""The names of the store's driver that the rooms above use. SQLite's is the only driver yet; ``port`` describes one."""

from __future__ import annotations

from wsrm_mq.store.sqlite.connection import Error, connect_reader, file_of, snapshot, store_errors
from wsrm_mq.store.sqlite.looking import connect_looker
from wsrm_mq.store.sqlite.presence import InstanceFiles as instances_of
from wsrm_mq.store.sqlite.reserve import is_spent
from wsrm_mq.store.sqlite.schema import HEAD, ensure, known_revision
from wsrm_mq.store.sqlite.space import space
from wsrm_mq.store.sqlite.witness import mark_for_rehearsal

__all__ = [
    "HEAD",
    "Error",
    "connect_looker",
    "connect_reader",
    "ensure",
    "file_of",
    "instances_of",
    "is_spent",
    "known_revision",
    "mark_for_rehearsal",
    "snapshot",
    "space",
    "store_errors",
]
