"""A look at the whole store, for ``status`` and ``check``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from wsrm_mq.cli.place import Place, now_ms, unconfirmed
from wsrm_mq.cli.room import room

if TYPE_CHECKING:
    from wsrm_mq.store.port import Database
    from wsrm_mq.views.sight import Sight

LOCK_SECONDS: Final = 1.0
"""So long it tries to get the write lock: services hold it for much less."""


def see(place: Place, db: Database) -> Sight:
    from wsrm_mq.store.driver import snapshot
    from wsrm_mq.store.sqlite.connection import why_not_written
    from wsrm_mq.views.overview import overview, verdicts
    from wsrm_mq.views.plans import plans
    from wsrm_mq.views.sight import Sight

    now = now_ms()
    with snapshot(db):
        at, judged, doubt, replays = overview(db, now), verdicts(db, now), unconfirmed(place, db), plans(db)
    waits = [one.retain for one in place.settings.policies() if one.retain_until_archived and one.retain is not None]
    sight = Sight(
        *(now, at, judged, why_not_written(db, LOCK_SECONDS), doubt, replays, place.settings.max_store),
        archive_within=min(waits, default=None),
    )
    return sight._replace(room=room(place, db, now, at.used_bytes)) if sight.lacks_room else sight
