"""Tokens: a principal's secret, of which the store has a digest, or the certificate that it is known by, and what it
may."""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterable
from hashlib import sha256
from typing import Any, Final, NamedTuple

from wsrm_mq.errors import ConfigurationError, NotAllowed, NotFound
from wsrm_mq.server.rights import Grant, Principal
from wsrm_mq.store import subscribing
from wsrm_mq.store.port import Database
from wsrm_mq.store.unit_of_work import UnitOfWork

PREFIX: Final = "wsrm-mq-"
"""Secrets begin with it: what looks for secrets in files and logs finds them."""
_BYTES: Final = 32
"""Random ones of a secret: so many cannot be guessed, so a plain digest is as good as a slow one."""
LONGEST: Final = 200


class Token(NamedTuple):
    """A row of the table. Times are ms since the epoch."""

    name: str
    digest: str | None
    certificate: str | None
    grants: tuple[Grant, ...]
    created_at: int
    expires_at: int | None
    used_at: int | None

    @property
    def principal(self) -> Principal:
        return Principal(self.name, self.grants, self.created_at)

    def has_expired(self, now: int) -> bool:
        return self.expires_at is not None and self.expires_at <= now


def new_secret() -> str:
    return PREFIX + secrets.token_urlsafe(_BYTES)


def digest(secret: str) -> str:
    return sha256(secret.encode()).hexdigest()


def add(
    tx: UnitOfWork,
    name: str,
    grants: Iterable[Grant],
    *,
    secret: str | None = None,
    certificate: str | None = None,
    expires_at: int | None = None,
) -> None:
    """Write a token down, by its secret or its certificate. Raises ``ConfigurationError`` for what is no name, and
    ``NotAllowed`` where there is one of that name or certificate."""
    if not name or len(name) > LONGEST or name != name.strip() or not name.isprintable() or "/" in name:
        raise ConfigurationError(
            f"{name!r} is no name of a token: that has 1 to {LONGEST} printable characters and no slash."
        )
    if named(tx, name) is not None:
        raise NotAllowed(f"There is a token {name}: `wsrm-mq token revoke {name}` ends it.")
    other = certificate and tx.execute(subscribing.TOKEN_OF_CERTIFICATE, {"certificate": certificate}).fetchone()
    if other:
        raise NotAllowed(f"The token {other[0]} has this certificate: `wsrm-mq token revoke {other[0]}` ends it.")
    row = {
        "name": name,
        "digest": None if secret is None else digest(secret),
        "certificate": certificate,
        "grants": json.dumps(tuple(grants)),
        "created_at": tx.now,
        "expires_at": expires_at,
    }
    tx.execute(subscribing.ADD_TOKEN, row)


def revoke(tx: UnitOfWork, name: str) -> None:
    """Delete a token. Raises ``NotFound``."""
    if tx.execute(subscribing.DROP_TOKEN, {"name": name}).fetchone() is None:
        raise NotFound(f"There is no token {name}: `wsrm-mq token list` has those that there are.")


def used(tx: UnitOfWork, name: str, at: int) -> None:
    """Write down that a token was used."""
    tx.execute(subscribing.TOKEN_USED, {"name": name, "at": at})


def listed(db: Database) -> list[Token]:
    """All tokens, by their names."""
    return [_token(*row) for row in db.execute(subscribing.TOKENS).fetchall()]


def named(tx: UnitOfWork, name: str) -> Token | None:
    row = tx.execute(subscribing.TOKEN, {"name": name}).fetchone()
    return None if row is None else _token(*row)


def _token(name: str, hashed: str | None, certificate: str | None, grants: str, *times: Any) -> Token:
    return Token(name, hashed, certificate, tuple(Grant(*one) for one in json.loads(grants)), *times)
