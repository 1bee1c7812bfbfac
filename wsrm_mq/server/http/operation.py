"""An operation: a method and a path, and what is done with a request there. The API's document is made of these too."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Literal
from urllib.parse import unquote_to_bytes

from msgspec import Struct
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from wsrm_mq.errors import BadRequest, Overloaded, WSRMError
from wsrm_mq.server.http.call import Call, Server, discard_rest
from wsrm_mq.server.http.problems import answer_of, as_problem, broken

Body = Literal["message", "messages", "either", "acts", "text"]
"""The body of a request or an answer that is no JSON: one message, several, one or several, messages and settlements,
or a text."""


@dataclass(frozen=True)
class Operation:
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

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, as an application of ASGI below that of ``scope``."""
        server: Server = scope["app"].server
        request = Request(scope, receive, send)
        call: Call | None = None
        is_refused = False
        server.running += 1
        try:
            if server.running > server.limits.running:
                raise Overloaded("The server has as many requests to answer as it may at a time.")
            peer = request.client.host if request.client is not None else None
            principal = server.access.of_request(request.headers, peer)
            _unquote(request)
            call = Call(server, request, principal)
            answer = await self.does(call)
        except WSRMError as error:
            is_refused, answer = True, answer_of(error)
        except Exception as error:
            server.node.telling.tell("server.broken", operation=f"{self.method} {self.path}", error=error)
            answer = as_problem(broken(), error)
        finally:
            server.running -= 1
            if call is not None:
                call.done()
        if is_refused:  # outside of what may run: a client that sends slowly holds up no other
            await discard_rest(request)
        await answer(scope, receive, send)


def _unquote(request: Request) -> None:
    """Read the names in the path. Raises ``BadRequest``."""
    try:
        for name, value in request.path_params.items():
            request.path_params[name] = unquote_to_bytes(value).decode()
    except UnicodeDecodeError:
        raise BadRequest("A name in the path is not in UTF-8.") from None
