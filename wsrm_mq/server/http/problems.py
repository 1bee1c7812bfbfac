"""Errors as problem documents (RFC 9457): the code is the class of the error, and the next step stands beside it."""

from __future__ import annotations

from http import HTTPStatus
from typing import Final

from msgspec import UNSET, Struct, UnsetType
from starlette.responses import Response

from wsrm_mq import errors
from wsrm_mq.server.http.answers import as_json

KIND: Final = "application/problem+json"


class Problem(Struct, omit_defaults=True):
    """An error. ``retry_after``: after so many seconds it may be otherwise. ``lasts``, ``blocks``: of a queue without
    room, whether it never has it, and whether its producers are to wait for it. ``expected``: the last number that the
    server has of a lane."""

    status: int
    title: str
    code: str
    detail: str
    next_step: str
    retry_after: float | UnsetType = UNSET
    lasts: bool | UnsetType = UNSET
    blocks: bool | UnsetType = UNSET
    expected: int | UnsetType = UNSET


_READ: Final = "Read the message above and the API reference; send the request again once it is mended."
_AGAIN: Final = "Send the request again after the seconds that Retry-After says; nothing was done."
_STATUS: Final[dict[type[errors.WSRMError], tuple[int, str]]] = {
    errors.TooLarge: (413, "Send less in one request, or in one message."),
    errors.BadRequest: (400, _READ),
    errors.ConfigurationError: (400, _READ),
    errors.QueryError: (400, "Write the filter as docs/queues.md says, and send the request again."),
    errors.TooManyLogins: (429, _AGAIN),
    errors.NotAuthenticated: (401, "Send `Authorization: Bearer TOKEN` with a token that an operator has given out."),
    errors.Unrouted: (404, "Bind a queue to the topic, or leave `mandatory` out."),
    errors.NotFound: (404, "Check the name, and that your rights cover it."),
    errors.RightMissing: (403, "Ask an operator for a token with that right."),
    errors.LaneGap: (409, "Go on with the number behind `expected`."),
    errors.LeaseLost: (409, "Let it go: the message comes again, to this consumer or another one."),
    errors.QueueBusy: (409, "Wait until the other consumer has closed, then try again."),
    errors.NotAllowed: (409, _READ),
    errors.SessionEnded: (410, "Begin another session: POST /sessions."),
    errors.LimitReached: (429, "End some of what you have, then send the request again."),
    errors.Overloaded: (503, _AGAIN),
    errors.QuotaExceeded: (503, "Have messages consumed, or wait for that, and send it again; nothing was stored."),
    errors.KeeperGone: (503, "Have the queue declared as express again, or put with another durability."),
    errors.StoreUnavailable: (503, _AGAIN),
    errors.StoreError: (500, "Ask the operator of the server, who runs `wsrm-mq doctor`."),
}
RETRY_SECONDS: Final = 1.0
_RETRIED: Final = (429, 503)


def problem_of(error: errors.WSRMError) -> Problem:
    """The document of an error."""
    status, next_step = next((_STATUS[kind] for kind in type(error).__mro__ if kind in _STATUS), (500, _READ))
    detail = str(error.args[0]) if isinstance(error, errors.StoreError) else str(error)
    found = Problem(status, HTTPStatus(status).phrase, type(error).__name__, detail, next_step)
    if isinstance(error, errors.QuotaExceeded):
        found.lasts = error.lasts
        found.blocks = error.blocks
        if error.lasts:
            found.status, found.title = 413, HTTPStatus(413).phrase
            found.next_step = "Send smaller messages, or have the queue declared with a larger bound."
    if isinstance(error, errors.LaneGap):
        found.expected = error.expected
    if found.status in _RETRIED:
        found.retry_after = error.seconds if isinstance(error, errors.TooManyLogins) else RETRY_SECONDS
    return found


def broken() -> Problem:
    """The document of an error of ours, which the log has."""
    return Problem(
        500,
        "Internal Server Error",
        "InternalError",
        "The server has made an error, which its log tells.",
        "Send the request again; where it stays so, ask the operator of the server.",
    )


def answer_of(error: errors.WSRMError) -> Response:
    return as_problem(problem_of(error), error)


def as_problem(problem: Problem, error: BaseException) -> Response:
    answer = as_json(problem, problem.status)
    headers = answer.headers
    headers["Content-Type"] = KIND
    if problem.retry_after is not UNSET:
        headers["Retry-After"] = str(max(1, round(problem.retry_after)))
    if isinstance(error, errors.NotAuthenticated):
        headers["WWW-Authenticate"] = error.challenge
    if problem.status in (408, 413):
        headers["Connection"] = "close"
    return answer
