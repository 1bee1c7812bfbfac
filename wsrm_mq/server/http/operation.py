"""An operation: a method and a path, and what is done with a request there. The API's document is made of these too."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Literal, NamedTuple

from msgspec import Struct
from starlette.responses import Response

from wsrm_mq.server.http.call import Call

Body = Literal["message", "messages", "either", "acts", "text"]
"""The body of a request or an answer that is no JSON: one message, several, one or several, messages and settlements,
or a text."""


class Operation(NamedTuple):
    """``does``: its docstring says what that is. ``query`` and ``takes``: the types of its parameters and its body;
    ``gives``: that of its answer, one of several, or ``None``. ``status``: of an answer with something in it;
    ``may_be_empty``: 204 is an answer too."""

    method: str
    path: str
    does: Callable[[Call], Awaitable[Response]]
    query: type[Struct] | None = None
    takes: type[Any] | Body | None = None
    gives: type[Any] | tuple[type[Any], ...] | Body | None = None
    status: int = 200
    may_be_empty: bool = False
