"""uWSGI, the server that forks its workers without telling Python.

It loads the application in its master, unless told ``lazy-apps``, and forks in C: no hook of Python's runs. A SQLite
connection that is open then would be worse than useless in a worker: SQLite goes by what it knows of its own process,
and believes in locks there that only the master has. So nothing is opened in the master; each worker starts for itself.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

from wsrm_mq.errors import ConfigurationError


def defer(start: Callable[[], None]) -> bool:
    """Whether this process is one that workers are forked from; then each of them calls ``start``, once it is one.

    Raises ``ConfigurationError`` where threads could not run between requests.
    """
    try:
        import uwsgi
    except ImportError:
        return False
    if not hasattr(uwsgi, "opt"):  # a directory of that name can be imported too
        return False
    if not {"threads", "enable-threads"} & {_text(option) for option in uwsgi.opt}:
        raise ConfigurationError(
            "uWSGI runs Python's threads only during requests, so nothing would be delivered between them."
            " Give it `enable-threads = true`, or `threads`."
        )
    if uwsgi.worker_id():
        return False
    with suppress(Exception):  # importing it replaces the hook that there is: better now than after ours
        import uwsgidecorators  # noqa: F401
    before: Callable[[], None] | None = getattr(uwsgi, "post_fork_hook", None)

    def in_worker() -> None:
        if before is not None:
            before()
        if uwsgi.worker_id():  # and no mule or spooler
            start()

    uwsgi.post_fork_hook = in_worker
    return True


def _text(name: Any) -> str:
    return name.decode() if isinstance(name, bytes) else str(name)
