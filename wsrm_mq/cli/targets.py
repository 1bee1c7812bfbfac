"""Where a replay goes to, as an operator names it: ``app``, ``module:attribute`` or a URL."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from wsrm_mq.cli.exits import Exit, Stopped
from wsrm_mq.cli.place import Place
from wsrm_mq.errors import NotAllowed, NotAnswered

if TYPE_CHECKING:
    from wsrm_mq.delivery.delivery import Call
    from wsrm_mq.queue.policy import QueuePolicy


def check_target(place: Place, target: str) -> None:
    """Raises what ``call_of`` does, and for an address that does not answer."""
    call_of(place, target, connects=True)


def call_of(place: Place, target: str, *, connects: bool = False) -> Call | None:
    """What delivers here; ``None``: the service that runs does. Where that cannot be called it ends the command, with
    status 2."""
    from wsrm_mq.replay import check_address, to_address, to_application

    if target == "app":
        return None
    if "://" in target:
        try:
            check_address(target, place.settings.replay_targets, connects=connects)
        except (NotAllowed, NotAnswered) as error:
            raise Stopped(f"--to {error}", Exit.USAGE) from error
        return to_address(target, policy_of(place), place.settings.replay_targets)
    if ":" not in target:
        raise Stopped(f"--to {target}: is no target; write app, MODULE:ATTRIBUTE or a URL.", Exit.USAGE)
    from wsrm_mq.cli.importing import imported
    from wsrm_mq.engine.engine import standing_aside
    from wsrm_mq.hooks import is_asgi
    from wsrm_mq.serving.wrapping import found_in

    with standing_aside():  # this process delivers what the plan says, and nothing else
        application = imported(target)
    wrapped = found_in(application)
    if is_asgi(application):
        told = f"--to {target}: is an ASGI application, which needs its server: serve it, and use --to app."
        raise Stopped(told, Exit.USAGE)
    if wrapped:
        return wrapped[0].deliver
    settings = place.settings
    return to_application(application, policy_of(place), headers=settings.headers, max_reply=settings.max_reply)


def policy_of(place: Place) -> Callable[[str | None], QueuePolicy]:
    """The policy of a partner, as it is configured where the command runs."""
    settings = place.settings
    return lambda partner: settings.policy(settings.partners.get(partner or ""))


def named(target: str) -> str:
    """For people."""
    return "the service that runs" if target == "app" else target
