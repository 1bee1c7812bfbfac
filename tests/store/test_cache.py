from __future__ import annotations

from wsrm_mq.store.cache import Cache


def test_what_is_settled_for_ever_outlives_what_others_write_but_no_rollback() -> None:
    cache = Cache()
    cache.validate(1)
    cache.connections.set_floor("a connection", 7)
    cache.validate(2)
    assert cache.connections.floors == {"a connection": 7}
    cache.clear()
    assert not cache.connections.floors, "a transaction that was rolled back may have settled it"
