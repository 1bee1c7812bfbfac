"""The functions that a program hands to a middleware and no configuration file can hold, and its application."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import Field, dataclass, fields
from typing import Any, Final, ParamSpec, TypedDict

from wsrm_mq.delivery.application import Environ
from wsrm_mq.envelope.headers import Headers
from wsrm_mq.errors import ConfigurationError, WSRMError
from wsrm_mq.events.inert import as_error
from wsrm_mq.events.telling import OnEvent
from wsrm_mq.store.clock import Clock, wall_clock
from wsrm_mq.store.sql import storable

P = ParamSpec("P")
Authenticate = Callable[[Environ, Headers], str | None]


@dataclass(frozen=True, slots=True)
class Hooks:
    """Options that no configuration file can hold; the same keywords of either front.

    ``authenticate(environ, headers) -> principal``
        runs before anything is stored; raises ``NotAuthenticated`` to turn a request away. Default: the TLS
        client's name, else REMOTE_USER.
    ``connection_key(environ) -> str``
        names the connection a request came on.
    ``on_event(event)``
        hears of what an operator should know, in a thread of its own.
    ``clock() -> int``
        ms since the epoch.
    """

    authenticate: Authenticate | None = None
    connection_key: Callable[[Environ], str | None] | None = None
    on_event: OnEvent | None = None
    clock: Clock = wall_clock

    def __post_init__(self) -> None:
        """Raises ``ConfigurationError`` for hooks that cannot be called as they are: each request would be refused."""
        wrong = [f"{one.name} {why}" for one in fields(self) if (why := _unfit(getattr(self, one.name), one))]
        if wrong:
            raise ConfigurationError(*wrong)


_GIVEN: Final = {
    "authenticate": ("environ", "headers"),
    "connection_key": ("environ",),
    "on_event": ("event",),
    "clock": (),
}
"""The arguments of each hook."""


def _unfit(hook: object, field: Field[object]) -> str | None:
    """Why ``hook`` cannot be called, as far as that is seen before it is."""
    if hook is field.default:
        return None
    given = _GIVEN[field.name]
    how = f"it is called as {field.name}({', '.join(given)})"
    if not callable(hook):
        return f"is {hook!r}, which is no function; {how}."
    if inspect.iscoroutinefunction(hook):
        return f"is an async function, which nothing would await; {how}, in a thread that may wait."
    error = _takes_not(hook, given)
    return None if error is None else f"does not fit: {how}, which says: {error}."


def _takes_not(function: Callable[..., object], given: tuple[str, ...]) -> TypeError | None:
    """The error of calling ``function`` with the arguments ``given``, as far as its signature says."""
    try:
        inspect.signature(function, follow_wrapped=False).bind(*given)
    except TypeError as error:
        return error
    except ValueError:  # a builtin may not say what it takes
        return None
    return None


def is_asgi(app: Any) -> bool:
    """Whether ``app`` is an ASGI application by its look: calling it makes a coroutine."""
    return inspect.iscoroutinefunction(inspect.unwrap(_called(app)))


def unfit_for_wsgi(app: Any) -> str | None:
    """Why ``app`` cannot be called as a WSGI application; ``None`` where its look says nothing against that."""
    if not callable(app):
        return None
    if inspect.iscoroutinefunction(_called(app)):
        return f"app is {app!r}, which is no WSGI application: calling it makes a coroutine."
    error = _takes_not(app, ("environ", "start_response"))
    return None if error is None else f"app is {app!r}, which does not take (environ, start_response): {error}."


def unfit_for_asgi(app: Any) -> str | None:
    """Why ``app`` cannot be called as an ASGI application; ``None`` where its look says nothing against that."""
    error = None if not callable(app) or is_asgi(app) else _takes_not(app, ("scope", "receive", "send"))
    return None if error is None else f"app is {app!r}, which does not take (scope, receive, send): {error}."


def _called(app: Any) -> Any:
    return app if inspect.isfunction(app) or inspect.ismethod(app) else getattr(app, "__call__", app)  # noqa: B004


class KeywordHooks(TypedDict, total=False):
    """``Hooks``, as keywords."""

    authenticate: Authenticate | None
    connection_key: Callable[[Environ], str | None] | None
    on_event: OnEvent | None
    clock: Clock


def answering_text(name: str, hook: Callable[P, object] | None) -> Callable[P, str | None] | None:
    """Wrap the hook ``name`` so that it keeps its word: it answers a text that can be stored, or None. Otherwise a
    wrong answer would be found out only where it is stored. The wrapper raises ``ConfigurationError`` for a wrong
    answer and for an error of the hook; it refuses that request."""
    if hook is None:
        return None

    def held(*given: P.args, **named: P.kwargs) -> str | None:
        try:
            answer = hook(*given, **named)
        except WSRMError:
            raise
        except Exception as error:
            raise ConfigurationError(f"{name} raised {as_error(error)}") from error
        if answer is None:
            return None
        if not isinstance(answer, str):
            raise ConfigurationError(f"{name} answered {type(answer).__name__}; it has to answer a text, or None.")
        if storable(answer) != answer:
            raise ConfigurationError(f"{name} answered {storable(answer, 100)!r}, which cannot be stored.")
        return answer

    return held
