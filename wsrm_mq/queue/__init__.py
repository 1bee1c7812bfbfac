"""Verbs on queues: functions ``verb(tx, …)``, each run in one transaction of the store.

A service whose messages are taken and called has no need of the verbs that are named here: they are loaded where a
reply or a request leaves, or a message is copied.
"""

from typing import TYPE_CHECKING

from wsrm_mq.later import later

if TYPE_CHECKING:
    from wsrm_mq.queue.hearing import hear as hear
    from wsrm_mq.queue.requests import leave_gap as leave_gap
    from wsrm_mq.queue.requests import sent as sent
    from wsrm_mq.queue.topics import publish_copy as publish_copy

__getattr__ = later(
    __name__, {"hear": ".hearing", "leave_gap": ".requests", "publish_copy": ".topics", "sent": ".requests"}
)
