"""The RM Source: requests that are stored before they leave, and sent until their destination has acknowledged them.

``ReliableClient``, ``ReliablePlugin``, ``ReliableTransport`` and ``reliable`` are for zeep, which is imported when they
are asked for.
"""

from typing import TYPE_CHECKING, Any

from wsrm_mq.source.source import DeadRequest, Reply, RMSource, Sent

if TYPE_CHECKING:
    from wsrm_mq.source.zeep_client import ReliableClient, ReliablePlugin, ReliableTransport, reliable

__all__ = [
    "DeadRequest",
    "RMSource",
    "ReliableClient",
    "ReliablePlugin",
    "ReliableTransport",
    "Reply",
    "Sent",
    "reliable",
]
_OF_ZEEP = ("ReliableClient", "ReliablePlugin", "ReliableTransport", "reliable")


def __getattr__(name: str) -> Any:
    if name not in _OF_ZEEP:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from wsrm_mq.source import zeep_client

    return getattr(zeep_client, name)
