"""The witness's service for ``wsrm-mq serve``, on its event loop: ``application``, set up by the environment."""

from __future__ import annotations

from tests.servers.given import given
from wsrm_mq.asgi import WSRMASGIMiddleware

_service, _options = given()
application = WSRMASGIMiddleware(_service, **_options)
