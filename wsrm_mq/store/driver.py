"""The names of the store's driver that other modules use, of this room too. SQLite's is the only driver yet; ``port``
describes one."""

from __future__ import annotations

from wsrm_mq.store.sqlite.connection import (
    BUSY_TIMEOUT_MS,
    Error,
    connect_reader,
    connect_writer,
    file_of,
    refuse_place,
    snapshot,
    store_errors,
    translate,
    why_not_written,
)
from wsrm_mq.store.sqlite.files import (
    FileIds,
    beside,
    clock_file,
    content_of,
    is_locked,
    keep_private,
    log_bytes,
    refuse_foreign,
)
from wsrm_mq.store.sqlite.looking import connect_looker, temporary_copy
from wsrm_mq.store.sqlite.presence import InstanceFiles as instances_of
from wsrm_mq.store.sqlite.reserve import Reserve, is_spent
from wsrm_mq.store.sqlite.schema import HEAD, ensure, known_revision, revision
from wsrm_mq.store.sqlite.space import space
from wsrm_mq.store.sqlite.temporary import Change, Fetched, Fleeting, Temporary, recorded
from wsrm_mq.store.sqlite.vitals import damage, dangling, dropped_pages, tells_damage
from wsrm_mq.store.sqlite.witness import Guard, Witness, admit, mark_for_rehearsal
