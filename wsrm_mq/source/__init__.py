"""The RM Source: requests that are stored before they leave, and sent until their destination has acknowledged them.

``ReliableClient``, ``AsyncReliableClient``, ``ReliablePlugin``, ``ReliableTransport`` and ``reliable`` are for zeep,
which is imported when they are asked for, as is what ``Signature`` signs by.
"""

from typing import TYPE_CHECKING

from wsrm_mq.later import later
from wsrm_mq.source.looking import DeadRequest, Reply, Sent
from wsrm_mq.source.notices import Notice
from wsrm_mq.source.source import RMSource

if TYPE_CHECKING:
    from wsrm_mq.source.async_client import AsyncReliableClient
    from wsrm_mq.source.signing import Signature
    from wsrm_mq.source.zeep_client import ReliableClient, ReliablePlugin, ReliableTransport, reliable

__all__ = [
    "AsyncReliableClient",
    "DeadRequest",
    "Notice",
    "RMSource",
    "ReliableClient",
    "ReliablePlugin",
    "ReliableTransport",
    "Reply",
    "Sent",
    "Signature",
    "reliable",
]
_LATER = {
    "AsyncReliableClient": ".async_client",
    "Signature": ".signing",
    **dict.fromkeys(("ReliableClient", "ReliablePlugin", "ReliableTransport", "reliable"), ".zeep_client"),
}
__getattr__ = later(__name__, _LATER)
