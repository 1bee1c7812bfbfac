"""Verbs on queues: functions ``verb(tx, …)``, each run in one transaction of the store.

A service whose messages are taken and called has no need of the verbs that are named here: they are loaded where a
message is consumed or copied, or a reply or a request leaves.
"""

from typing import TYPE_CHECKING

from wsrm_mq.later import later

if TYPE_CHECKING:
    from wsrm_mq.queue.declaring import policy_of as policy_of
    from wsrm_mq.queue.filters import parse as parse
    from wsrm_mq.queue.hearing import hear as hear
    from wsrm_mq.queue.promoting import refuse_unusable as refuse_unusable
    from wsrm_mq.queue.pulling import count_arrived as count_arrived
    from wsrm_mq.queue.pulling import expiry as expiry
    from wsrm_mq.queue.pulling import lack_in_queue as lack_in_queue
    from wsrm_mq.queue.reporting import settled as settled
    from wsrm_mq.queue.reporting import went_on as went_on
    from wsrm_mq.queue.requests import leave_gap as leave_gap
    from wsrm_mq.queue.requests import sent as sent
    from wsrm_mq.queue.topics import publish_copy as publish_copy

_HOMES = {
    "policy_of": ".declaring",
    "parse": ".filters",
    "hear": ".hearing",
    "refuse_unusable": ".promoting",
    **dict.fromkeys(("count_arrived", "expiry", "lack_in_queue"), ".pulling"),
    **dict.fromkeys(("settled", "went_on"), ".reporting"),
    **dict.fromkeys(("leave_gap", "sent"), ".requests"),
    "publish_copy": ".topics",
}
__getattr__ = later(__name__, _HOMES)
