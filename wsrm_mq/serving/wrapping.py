"""The search for our middleware in an application, which may be reliable already.

Wrapped twice, a message would be taken by the outer one and refused by the inner one. So middlewares are followed to
the applications that they call, as far as they show them.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping
from contextlib import suppress
from types import CodeType
from typing import Any, Final

from wsrm_mq.front import Served
from wsrm_mq.wsgi import WSRMMiddleware

_INNER: Final = ("app", "wsgi_app", "application", "wsgi_application", "__wrapped__")
"""Attributes in which a middleware keeps the application that it calls, and Flask its own."""
_MOST: Final = 100
"""The largest number of objects that are looked at: one that has every attribute would lead on for ever."""


def found_in(application: Any) -> list[Served]:
    """Every middleware of ours in ``application``, the outermost first."""
    found: list[Served] = []
    waiting, seen = [application], 0
    known: set[int] = set()
    while waiting and (seen := seen + 1) <= _MOST:
        one = waiting.pop(0)
        if id(one) in known:
            continue
        known.add(id(one))
        if isinstance(one, Served):
            found.append(one)
        else:
            waiting.extend(_called_by(one))
    return found


def outermost(application: Any) -> WSRMMiddleware | None:
    """The middleware, if it is all that ``application`` does with a request: then an event loop may do its work.
    Anything before it may change address, path and principal, and has to stay there."""
    if _calls_wsgi_app_alone(application):
        application = application.wsgi_app
    if isinstance(application, WSRMMiddleware) and type(application).__call__ is WSRMMiddleware.__call__:
        return application
    return None


def named_by(application: Any) -> bool:
    """Whether ``application`` is to be wrapped by itself later: Starlette's ``add_middleware`` names a class."""
    named = getattr(application, "user_middleware", ())
    classes = [getattr(one, "cls", None) for one in named] if isinstance(named, list | tuple) else []
    return any(isinstance(one, type) and issubclass(one, Served) for one in classes)


def _called_by(one: Any) -> Iterator[Any]:
    for name in _INNER:
        with suppress(Exception):  # an attribute may run any code
            inner = getattr(one, name, None)
            if callable(inner):
                yield inner
    mounts = getattr(one, "mounts", None)  # werkzeug's DispatcherMiddleware
    if isinstance(mounts, Mapping):
        yield from mounts.values()


class _Plain:
    """A class with the ``__call__`` of Flask."""

    wsgi_app: Any

    def __call__(self, environ: Any, start_response: Any) -> Any:
        return self.wsgi_app(environ, start_response)


def _calls_wsgi_app_alone(application: Any) -> bool:
    """Whether it is called as Flask is; a class of its own may do more there."""
    code = getattr(inspect.getattr_static(type(application), "__call__"), "__code__", None)
    plain = _Plain.__call__.__code__
    return isinstance(code, CodeType) and (code.co_code, code.co_names) == (plain.co_code, plain.co_names)
