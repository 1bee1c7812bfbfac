"""The queue server: the queues of a store for programs on other machines."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from wsrm_mq.server.http.application import QueueApplication


def queue_application(where: str | os.PathLike[str], **options: Any) -> QueueApplication:
    """An ASGI application that serves the queues of the store ``where`` to clients that have a token of it. The options
    are those of ``QueueApplication``."""
    from wsrm_mq.server.http.application import QueueApplication

    return QueueApplication(where, **options)
