from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from functools import partial

import pytest

from wsrm_mq.errors import ConfigurationError, NotAllowed, NotAuthenticated, NotFound, TooManyLogins
from wsrm_mq.events.telling import Events
from wsrm_mq.server import tokens
from wsrm_mq.server.access import Access
from wsrm_mq.server.logins import MOST, SECONDS
from wsrm_mq.server.rights import Grant
from wsrm_mq.store.store import Store
from wsrm_mq.testing import ManualClock

PUTS = (Grant("put", "orders*"),)
HERE = "192.0.2.7"
PROXY = "10.0.0.1"


class Passing:
    """A clock that never goes back, set by hand."""

    def __init__(self) -> None:
        self.at = 0.0

    def __call__(self) -> float:
        return self.at


@pytest.fixture
def passing() -> Passing:
    return Passing()


@pytest.fixture
def access(store: Store, events: Events, passing: Passing) -> Access:
    return Access(
        *(store, events),
        trusted_proxies=["10.0.0.0/8"],
        address_header="X-Forwarded-For",
        name_header="X-Client-Name",
        monotonic=passing,
    )


@pytest.fixture
def add(store: Store) -> Callable[..., str]:
    def added(name: str = "shop", **options: object) -> str:
        secret = tokens.new_secret()
        store.call(lambda tx: tokens.add(tx, name, PUTS, secret=secret, **options))  # type: ignore[arg-type]
        return secret

    return added


def column(store: Store, name: str) -> list[object]:
    with closing(sqlite3.connect(store.path)) as db:
        return [value for (value,) in db.execute(f"SELECT {name} FROM token")]


def test_a_token_is_of_its_principal_and_its_secret_is_not_in_the_store(
    store: Store, access: Access, add: Callable[..., str]
) -> None:
    secret = add()
    principal = access.authenticate(secret, HERE)
    assert (principal.name, principal.grants) == ("shop", PUTS)
    assert access.of_request({"authorization": f"bearer {secret}"}, HERE) == principal
    store.close()
    for file in store.path.parent.rglob("*"):
        assert not file.is_file() or secret.encode() not in file.read_bytes()


def test_who_shows_nothing_is_turned_away_with_what_to_show(access: Access) -> None:
    for headers in ({}, {"authorization": "Basic c2hvcDo="}, {"authorization": "Bearer "}):
        with pytest.raises(NotAuthenticated, match="Authorization: Bearer TOKEN") as refused:
            access.of_request(headers, HERE)
        assert refused.value.challenge == 'Bearer realm="wsrm-mq"'


def test_a_wrong_token_is_turned_away_and_told_without_it(access: Access, events: Events) -> None:
    wrong = tokens.new_secret()
    with pytest.raises(NotAuthenticated, match="is not known here") as refused:
        access.authenticate(wrong, HERE)
    assert refused.value.challenge.endswith('error="invalid_token"')
    assert wrong not in str(refused.value)
    assert events.take_counts()["login.failed"] == 1


def test_a_token_that_has_expired_says_so_to_who_has_it(
    access: Access, add: Callable[..., str], clock: ManualClock
) -> None:
    secret = add(expires_at=clock() + 1_000)
    principal = access.authenticate(secret, HERE)
    clock.advance(1_000)
    with pytest.raises(NotAuthenticated, match="The token shop has expired"):
        access.authenticate(secret, HERE)
    with pytest.raises(NotAuthenticated, match="was revoked, or has expired"):
        access.still(principal)


def test_a_token_that_is_revoked_is_refused_within_a_second_also_to_who_is_there_already(
    store: Store, access: Access, add: Callable[..., str], passing: Passing
) -> None:
    secret = add()
    principal = access.authenticate(secret, HERE)
    assert access.still(principal) == principal
    store.call(partial(tokens.revoke, name="shop"))
    passing.at += 1.0
    with pytest.raises(NotAuthenticated):
        access.authenticate(secret, HERE)
    with pytest.raises(NotAuthenticated):
        access.still(principal)


def test_another_token_of_the_same_name_is_another_principal(
    store: Store, access: Access, add: Callable[..., str], passing: Passing, clock: ManualClock
) -> None:
    principal = access.authenticate(add(), HERE)
    store.call(partial(tokens.revoke, name="shop"))
    clock.advance(1)
    add()
    passing.at += 1.0
    with pytest.raises(NotAuthenticated):
        access.still(principal)


def test_the_use_of_a_token_is_written_down_now_and_then(
    store: Store, access: Access, add: Callable[..., str], clock: ManualClock, passing: Passing
) -> None:
    secret = add()
    first = clock()
    for _ in range(3):
        access.authenticate(secret, HERE)
        clock.advance(60_000)
        passing.at += 60.0
    store.call(lambda tx: None)
    assert column(store, "used_at") == [first]
    clock.advance(600_000)
    access.authenticate(secret, HERE)
    store.call(lambda tx: None)
    assert column(store, "used_at") == [clock()]


@pytest.mark.parametrize(
    ("address", "is_believed"), [(PROXY, True), (HERE, False), (None, False)], ids=["proxy", "stranger", "socket"]
)
def test_the_name_of_a_tls_client_is_believed_from_a_trusted_proxy_alone(
    store: Store, access: Access, address: str | None, is_believed: bool
) -> None:
    store.call(lambda tx: tokens.add(tx, "shop", PUTS, certificate="CN=shop,O=Example"))
    headers = {"x-client-name": "CN=shop,O=Example"}
    if is_believed:
        assert access.of_request(headers, address).name == "shop"
        with pytest.raises(NotAuthenticated, match="No token is for the client CN=else"):
            access.of_request({"x-client-name": "CN=else"}, address)
    else:
        with pytest.raises(NotAuthenticated, match="Credentials are required"):
            access.of_request(headers, address)


def test_log_ins_that_fail_are_bounded_by_the_place_that_they_come_from_and_a_token_is_taken_all_the_same(
    access: Access, add: Callable[..., str], events: Events, passing: Passing
) -> None:
    secret = add()

    def fails(peer: str) -> type[NotAuthenticated]:
        with pytest.raises(NotAuthenticated) as refused:
            access.authenticate("wrong", peer)
        return refused.type

    assert [fails(HERE) for _ in range(MOST)] == [NotAuthenticated] * MOST
    assert [fails(HERE) for _ in range(1_000)] == [TooManyLogins] * 1_000
    assert fails("192.0.2.8") is NotAuthenticated
    assert access.authenticate(secret, HERE).name == "shop"
    counts = events.take_counts()
    assert (counts["login.failed"], counts["login.flooded"]) == (2, 1)
    passing.at += SECONDS
    assert fails(HERE) is NotAuthenticated


def test_a_network_of_version_6_is_one_place(access: Access) -> None:
    for number in range(MOST):
        with pytest.raises(NotAuthenticated):
            access.authenticate("wrong", f"2001:db8::{number:x}")
    with pytest.raises(TooManyLogins) as refused:
        access.authenticate("wrong", "2001:db8::ffff")
    assert 0 < refused.value.seconds <= SECONDS


def test_the_place_of_a_log_in_is_the_client_of_a_trusted_proxy(access: Access) -> None:
    def fail(reported: str) -> None:
        headers = {"authorization": "Bearer wrong", "x-forwarded-for": reported}
        access.of_request(headers, PROXY)

    for _ in range(MOST):
        with pytest.raises(NotAuthenticated):
            fail(f"203.0.113.1, {HERE}")
    with pytest.raises(TooManyLogins):
        fail(HERE)
    with pytest.raises(NotAuthenticated) as refused:
        fail("203.0.113.1")
    assert refused.type is NotAuthenticated


def test_a_token_has_a_name_of_its_own(store: Store, add: Callable[..., str]) -> None:
    add()
    store.call(lambda tx: tokens.add(tx, "ops", PUTS, certificate="CN=ops"))
    with pytest.raises(NotAllowed, match="There is a token shop"):
        add()
    with pytest.raises(NotAllowed, match="The token ops has this certificate"):
        store.call(lambda tx: tokens.add(tx, "other", PUTS, certificate="CN=ops"))
    for name in ("", "a/b", "x" * 201, "a\nb"):
        with pytest.raises(ConfigurationError, match="is no name of a token"):
            add(name)
    with pytest.raises(NotFound, match="There is no token else"):
        store.call(partial(tokens.revoke, name="else"))
