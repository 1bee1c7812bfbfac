"""The names of the store's driver that other modules use, of this room too. SQLite's is the only driver yet; ``port``
describes one. Those of a look and of express messages are loaded when they are first used."""

from __future__ import annotations

from typing import TYPE_CHECKING

from wsrm_mq.later import later
from wsrm_mq.store.sqlite.connection import (
    BUSY_TIMEOUT_MS,
    Error,
    connect_reader,
    connect_writer,
    file_of,
    refuse_place,
    snapshot,
    space,
    store_errors,
    translate,
    why_not_written,
)
from wsrm_mq.store.sqlite.files import (
    FileIds,
    beside,
    content_of,
    is_locked,
    keep_private,
    log_bytes,
    refuse_foreign,
)
from wsrm_mq.store.sqlite.presence import InstanceFiles as instances_of
from wsrm_mq.store.sqlite.reserve import Reserve, is_spent
from wsrm_mq.store.sqlite.schema import HEAD, ensure, known_revision, revision
from wsrm_mq.store.sqlite.vitals import damage, dangling, dropped_pages, tells_damage
from wsrm_mq.store.sqlite.witness import Guard, Witness, admit, mark_for_rehearsal

if TYPE_CHECKING:
    from wsrm_mq.store.sqlite.looking import connect_looker, temporary_copy
    from wsrm_mq.store.sqlite.temporary import Change, Fetched, Fleeting, Temporary, recorded

_LOOKING = dict.fromkeys(("connect_looker", "temporary_copy"), ".sqlite.looking")
_EXPRESS = dict.fromkeys(("Change", "Fetched", "Fleeting", "Temporary", "recorded"), ".sqlite.temporary")
__getattr__ = later(__name__, _LOOKING | _EXPRESS)
