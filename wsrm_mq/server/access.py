"""Who asks, and what that principal may: by a token, or by the name of a TLS client that a trusted proxy reports.

Nothing is open: who shows neither is turned away, also on this machine.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping
from functools import partial
from types import MappingProxyType
from typing import Final, NamedTuple

from wsrm_mq.destination.connections import Proxies
from wsrm_mq.errors import NotAuthenticated, TooManyLogins
from wsrm_mq.events.telling import Events
from wsrm_mq.queue import browsing
from wsrm_mq.queue.policies import Scope
from wsrm_mq.server.logins import MOST, SECONDS, FailedLogins
from wsrm_mq.server.rights import Principal
from wsrm_mq.server.tokens import Token, digest, listed, used
from wsrm_mq.store.store import Store

CHALLENGE: Final = 'Bearer realm="wsrm-mq"'
_FRESH: Final = 1.0
"""Seconds for which tokens are remembered: after that one that is revoked is refused."""
_USED_EVERY: Final = 600_000
"""ms from one time that the use of a token is written down to the next."""


class _Known(NamedTuple):
    """The tokens as they were read. ``until``: of ``monotonic``."""

    by_digest: dict[str | None, Token]
    by_certificate: dict[str | None, Token]
    by_name: dict[str, Token]
    scopes: dict[str, Scope]
    """The scope of each queue that other nodes may see."""
    until: float


class Access:
    """For the threads of a process. ``address_header`` and ``name_header``: where trusted proxies report the address
    and the name of their TLS client. ``nodes``: the names of the other nodes, which their tokens have, each with
    whether it is of this one's site."""

    def __init__(
        self,
        store: Store,
        events: Events,
        *,
        trusted_proxies: Collection[str] = (),
        address_header: str | None = None,
        name_header: str | None = None,
        nodes: Mapping[str, bool] = MappingProxyType({}),
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._store = store
        self._events = events
        self._proxies = Proxies(trusted_proxies, "forwarded" if address_header else None)
        self._address_header = address_header and address_header.lower()
        self._name_header = name_header and name_header.lower()
        self._nodes = nodes
        self._monotonic = monotonic
        self._failed = FailedLogins(monotonic)
        self._used: dict[str, int] = {}
        """When the use of a token was written down last by this process, ms since the epoch."""
        self._known = _Known({}, {}, {}, {}, float("-inf"))

    def of_request(self, headers: Mapping[str, str], address: str | None) -> Principal:
        """The principal of a request over HTTP from ``address``; ``headers`` have names in lower case. See
        ``authenticate``."""
        peer = self._peer(headers, address)
        scheme, _, secret = headers.get("authorization", "").partition(" ")
        if scheme.lower() == "bearer":
            return self.authenticate(secret.strip(), peer)
        name = headers.get(self._name_header, "") if self._name_header is not None else ""
        if name and self._proxies.are_trusted(address):
            return self._admitted(self._tokens().by_certificate.get(name), peer, f"No token is for the client {name}.")
        return self.authenticate(None, peer)

    def authenticate(self, credentials: str | None, peer: str | None) -> Principal:
        """The principal that has the secret ``credentials``. ``peer``: the address that it is shown from. Raises
        ``NotAuthenticated``; where too many log-ins of that address have failed, it is ``TooManyLogins``."""
        if not credentials:
            raise NotAuthenticated(
                "Credentials are required: `Authorization: Bearer TOKEN`. `wsrm-mq token add` makes a token.", CHALLENGE
            )
        found = self._tokens().by_digest.get(digest(credentials))
        return self._admitted(found, peer, "The token is not known here: it is wrong, or was revoked.")

    def still(self, principal: Principal) -> Principal:
        """The rights that a principal that was admitted earlier has now. Raises ``NotAuthenticated`` where its token
        was revoked, or has expired."""
        token = self._tokens().by_name.get(principal.name)
        if token is None or token.created_at != principal.since or token.has_expired(self._store.clock()):
            raise NotAuthenticated(f"The token {principal.name} was revoked, or has expired.", CHALLENGE)
        return self._principal(token)

    def _principal(self, token: Token) -> Principal:
        principal, is_near = token.principal, self._nodes.get(token.name)
        if is_near is None:
            return principal
        scopes = self._tokens().scopes
        return principal._replace(
            offered=frozenset(name for name, scope in scopes.items() if is_near or scope == "enterprise")
        )

    def _peer(self, headers: Mapping[str, str], address: str | None) -> str | None:
        reported = headers.get(self._address_header, "") if self._address_header is not None else ""
        return self._proxies.sender({"REMOTE_ADDR": address, "HTTP_FORWARDED": reported})

    def _admitted(self, token: Token | None, peer: str | None, why_not: str) -> Principal:
        if token is None:
            raise self._refused(peer, why_not)
        if token.has_expired(self._store.clock()):
            raise self._refused(peer, f"The token {token.name} has expired.")
        self._note_use(token)
        return self._principal(token)

    def _refused(self, peer: str | None, why: str) -> NotAuthenticated:
        count, seconds = self._failed.note(peer)
        if count == 1:
            self._events.tell("login.failed", peer=peer, reason=why)
        if count <= MOST:
            return NotAuthenticated(why, f'{CHALLENGE}, error="invalid_token"')
        if count == MOST + 1:
            self._events.tell("login.flooded", peer=peer, count=MOST, seconds=SECONDS)
        return TooManyLogins(
            f"More than {MOST} log-ins from here have failed within {SECONDS:.0f} seconds: try again later.",
            seconds,
            CHALLENGE,
        )

    def _note_use(self, token: Token) -> None:
        now = self._store.clock()
        if now - max(token.used_at or 0, self._used.get(token.name, 0)) >= _USED_EVERY:
            self._used[token.name] = now
            self._store.submit(partial(used, name=token.name, at=now), _told_nowhere, is_relaxed=True)

    def _tokens(self) -> _Known:
        now = self._monotonic()
        if now >= self._known.until:
            with self._store.reader() as db:
                found = listed(db)
                scopes = browsing.scopes(db) if self._nodes else {}
            self._known = _Known(
                {one.digest: one for one in found if one.digest is not None},
                {one.certificate: one for one in found if one.certificate is not None},
                {one.name: one for one in found},
                scopes,
                now + _FRESH,
            )
        return self._known


def _told_nowhere(_result: None, _error: BaseException | None) -> None:
    """A use that was not written down is written down with a later one."""
