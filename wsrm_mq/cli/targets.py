"""Applications as an operator names them, and where a replay goes to: ``app``, ``module:attribute`` or a URL."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING, Any

from wsrm_mq.cli.output import Exit, Stopped, in_a_line
from wsrm_mq.cli.place import Place
from wsrm_mq.errors import NotAllowed, NotAnswered, WSRMError

if TYPE_CHECKING:
    from wsrm_mq.delivery.delivery import Call
    from wsrm_mq.queue.policy import QueuePolicy


# An application by its name, as an operator writes it.


def imported(name: str) -> Any:
    """The application that ``name`` means: ``module:attribute``."""
    module, colon, attribute = name.partition(":")
    if not (module and colon and attribute):
        raise Stopped(f"{name!r} names no application; write MODULE:ATTRIBUTE, for example orders:app.", Exit.USAGE)
    sys.path.insert(0, os.getcwd())
    try:
        found: Any = import_module(module)
    except ModuleNotFoundError as error:
        if error.name is None or not (module == error.name or module.startswith(f"{error.name}.")):
            raise Stopped(f"{module} needs {error.name}, which is not installed.", Exit.USAGE) from error
        raise Stopped(f"there is no module {error.name} in {os.getcwd()} or on the Python path.", Exit.USAGE) from error
    except WSRMError:
        raise
    except Exception as error:
        raise Stopped(f"{module} cannot be imported: {in_a_line(error)}", Exit.USAGE) from error
    for part in attribute.split("."):
        if not hasattr(found, part):
            raise Stopped(f"{module} has no attribute {attribute}.", Exit.USAGE)
        found = getattr(found, part)
    if not callable(found):
        raise Stopped(f"{name} is no application: it cannot be called.", Exit.USAGE)
    return found


def check_target(place: Place, target: str) -> None:
    """Raises what ``call_of`` does, and for an address that does not answer."""
    call_of(place, target, connects=True)


def call_of(place: Place, target: str, *, connects: bool = False) -> Call | None:
    """The call that delivers messages here to ``target``; ``None``: the service that runs delivers them. Where the
    target cannot be called the command ends, with status 2."""
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
    """The name of a target, for people."""
    return "the service that runs" if target == "app" else target
