"""What either middleware lets its server do: start it, announce its end, close it."""

from __future__ import annotations

from wsrm_mq.engine.engine import Engine
from wsrm_mq.front import Front

__all__ = ["Served"]


class Served:
    _front: Front

    def start(self) -> None:
        """Open the store and begin to deliver, at once. To be called in a process that serves, not in one that only
        forks those that do."""
        self._front.start()

    def stop_waiting(self) -> None:
        """The end is near: answer the requests that wait for a message, and let none wait from now on."""
        self._front.is_ending = True

    def close(self, timeout: float | None = None) -> bool:
        """Finish what runs, give every sequence back, close the store. Answers whether all finished in ``timeout``
        seconds."""
        return self._front.close(timeout)

    @property
    def engine(self) -> Engine:
        return self._front.engine
