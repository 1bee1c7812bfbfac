"""WS-ReliableMessaging for any WSGI or ASGI SOAP service.

The public names; the first is all that most users need. They are loaded when first used, so that the command line and
the inbox stay quick to import.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from wsrm_mq.later import later

if TYPE_CHECKING:
    from wsrm_mq.client import connect as connect
    from wsrm_mq.client import connect_async as connect_async
    from wsrm_mq.config import Settings as Settings
    from wsrm_mq.errors import NotAuthenticated as NotAuthenticated
    from wsrm_mq.errors import StoreError as StoreError
    from wsrm_mq.errors import WSRMError as WSRMError
    from wsrm_mq.events.telling import Event as Event
    from wsrm_mq.inbox import once as once
    from wsrm_mq.node.message import Message as Message
    from wsrm_mq.node.node import Node as Node
    from wsrm_mq.node.subscription import Subscription as Subscription
    from wsrm_mq.queue.settling import Settlement as Settlement
    from wsrm_mq.wsgi import WSRMMiddleware as WSRMMiddleware

__version__ = "0.1.0.dev0"

_HOMES = {
    "Event": "wsrm_mq.events.telling",
    "Message": "wsrm_mq.node.message",
    "Node": "wsrm_mq.node.node",
    "NotAuthenticated": "wsrm_mq.errors",
    "Settings": "wsrm_mq.config",
    "Settlement": "wsrm_mq.queue.settling",
    "StoreError": "wsrm_mq.errors",
    "Subscription": "wsrm_mq.node.subscription",
    "WSRMError": "wsrm_mq.errors",
    "WSRMMiddleware": "wsrm_mq.wsgi",
    "connect": "wsrm_mq.client",
    "connect_async": "wsrm_mq.client",
    "once": "wsrm_mq.inbox",
}

__all__ = [*_HOMES]
__getattr__ = later(__name__, _HOMES)
