"""Where the CPU of a message goes: the threads' own CPU time in each stage of its way, without that of the stages
within it. To look costs a microsecond or two for each stage; what is left of the process's time is the event loop, the
threads' waking, and the kernel's part outside of all stages."""

from __future__ import annotations

import functools
import importlib
import inspect
import threading
import time
import types
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Generator
from typing import Any, Final

__all__ = ["STAGES", "Stages"]

_HTTP: Final = "uvicorn.protocols.http.httptools_impl"

STAGES: Final[dict[str, tuple[str, ...]]] = {
    "HTTP, read and written (uvicorn)": (
        f"{_HTTP}:HttpToolsProtocol.data_received",
        f"{_HTTP}:RequestResponseCycle.receive",
        f"{_HTTP}:RequestResponseCycle.send",
    ),
    "the front": ("wsrm_mq.asgi:WSRMASGIMiddleware.__call__", "wsrm_mq.tick:Tick.commit"),
    "headers scanned": ("wsrm_mq.envelope.scan:Scanner.scan",),
    "sender named, verb chosen": ("wsrm_mq.front:Front.begin",),
    "accepted: the protocol's step": ("wsrm_mq.destination.destination:accept",),
    "settled": ("wsrm_mq.delivery.recording:settle",),
    "rows written": ("wsrm_mq.store.transaction:Transaction.flush",),
    "BEGIN and COMMIT, with fdatasync": ("wsrm_mq.store.group_commit:GroupCommit.run",),
    "callbacks called": ("wsrm_mq.tick:Tick._run", "wsrm_mq.tick:Tick._late", "wsrm_mq.store.writer:Writer._tell"),
    "answer rendered": ("wsrm_mq.destination.destination:RMDestination.finish",),
    "dispatched": ("wsrm_mq.delivery.dispatcher:Dispatcher._run",),
    "application called": ("wsrm_mq.delivery.application:Application.__call__",),
}
"""The functions of each stage, each where it is looked up."""


class Stages:
    """Counts from ``watch`` on, in all threads."""

    def __init__(self) -> None:
        self._inside = threading.local()
        self._spent: Counter[str] = Counter()

    def watch(self) -> None:
        """Put a clock around every function of ``STAGES``; for the rest of the process."""
        for stage, functions in STAGES.items():
            for place in functions:
                module, _, path = place.partition(":")
                owner: Any = importlib.import_module(module)
                *outer, name = path.split(".")
                for part in outer:
                    owner = getattr(owner, part)
                setattr(owner, name, self._clocked(getattr(owner, name), stage))

    def seconds(self) -> dict[str, float]:
        """CPU time until now, by stage."""
        return {stage: self._spent[stage] / 1e9 for stage in STAGES}

    def _clocked(self, function: Callable[..., Any], stage: str) -> Callable[..., Any]:
        if inspect.iscoroutinefunction(function):

            @functools.wraps(function)
            async def steps(*given: Any, **named: Any) -> Any:
                return await self._stepwise(function(*given, **named), stage)

            return steps

        @functools.wraps(function)
        def whole(*given: Any, **named: Any) -> Any:
            begun = self._enter()
            try:
                return function(*given, **named)
            finally:
                self._leave(stage, begun)

        return whole

    @types.coroutine
    def _stepwise(self, coroutine: Coroutine[Any, Any, Any], stage: str) -> Generator[Any, Any, Any]:
        """Run it as it runs by itself; between its steps other requests have theirs."""
        step: Callable[[], Awaitable[Any]] = functools.partial(coroutine.send, None)
        while True:
            begun = self._enter()
            try:
                waited_for = step()
            except StopIteration as end:
                return end.value
            finally:
                self._leave(stage, begun)
            try:
                step = functools.partial(coroutine.send, (yield waited_for))
            except BaseException as error:
                step = functools.partial(coroutine.throw, error)

    def _enter(self) -> int:
        within = self._inside.__dict__.setdefault("stages", [])
        within.append(0)
        return time.thread_time_ns()

    def _leave(self, stage: str, begun: int) -> None:
        taken = time.thread_time_ns() - begun
        within = self._inside.stages
        self._spent[stage] += taken - within.pop()  # threads may lose a count: one in many thousands
        if within:
            within[-1] += taken
