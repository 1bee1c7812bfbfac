"""Spyne tells the middleware the exceptions of its operations: the fault in its answer says only "Internal Error".

The middleware listens to every Spyne application that is there when it is made. To one that is made later, as by a
module that is imported with the first request, listen yourself::

    from wsrm_mq.contrib.spyne_errors import tell_failures

    tell_failures(application)

Nothing here imports Spyne.
"""

from __future__ import annotations

import sys
from typing import Any, Final

from wsrm_mq.contrib.spyne_compat import application_of

_RAISED: Final = "method_exception_object"
"""The event of an operation that raised; Spyne fires it while the exception is handled."""


def tell_failures(app: object) -> None:
    """Have the operations of a Spyne ``Application``, or of a server around one, tell their exceptions, by the
    ``wsrm.failed`` of the request. A second call changes nothing, nor does one for another kind of application."""
    application = application_of(app)
    for owner in () if application is None else (application, *application.services):
        owner.event_manager.add_listener(_RAISED, _tell)


def tell_all_failures(app: object) -> None:
    """``tell_failures`` of ``app``, and of each application that Spyne knows, however it is wrapped or mounted. Of
    several with the same name it knows the last; their services tell where the last one has them too."""
    tell_failures(app)
    registry = sys.modules.get("spyne.util.appreg")
    for registered in tuple(registry.applications.values()) if registry is not None else ():
        tell_failures(registered.app)


def _tell(ctx: Any) -> None:
    failed = _environ(ctx).get("wsrm.failed")
    error = sys.exception()
    if failed is not None and error is not None:
        failed(error)


def _environ(ctx: Any) -> dict[str, Any]:
    """The environ of the request. Spyne's ``req`` is the environ itself, or the request of Django."""
    request = getattr(ctx.transport, "req", None)
    found = request if isinstance(request, dict) else getattr(request, "META", None)
    return found if isinstance(found, dict) else {}
