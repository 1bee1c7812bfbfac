"""A function that is called with messages, by some threads: acknowledged when it returns, failed when it raises."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from inspect import isawaitable

from wsrm_mq.errors import ConfigurationError, LeaseLost, SubscriptionClosed, WSRMError
from wsrm_mq.events.inert import as_error
from wsrm_mq.node.message import Message
from wsrm_mq.node.subscription import Subscription


class Handling:
    """Handles the messages of a subscription, by so many threads or tasks, until it is stopped or one has failed."""

    def __init__(self, subscription: Subscription, workers: int) -> None:
        self._inner = subscription
        self._lock = threading.Lock()
        self._running = workers
        self._is_stopping = False
        self.error: BaseException | None = None
        """The error that ended it; ``None`` after ``stop``."""

    def _finish(self, by: str) -> None:
        """Begin no other message."""
        self._is_stopping = True
        self._inner.flow.finish(by)

    def _end(self, error: BaseException, *, is_told: bool) -> None:
        """An error has ended one of them; the first is told."""
        with self._lock:
            is_first, self.error = self.error is None, self.error or error
        self._finish(f"an error in its consumer: {as_error(error)}")
        if is_first and is_told:
            self._inner.events.tell("consumer.ended", queue=", ".join(self._inner.flow.names), error=error)

    def _is_last(self) -> bool:
        """One of them is through; answers whether no other runs: that one closes the subscription."""
        with self._lock:
            self._running -= 1
            return not self._running


class Consumer(Handling):
    """Made by ``Node.consume``; ``stop`` ends it, and so does ``with``."""

    def __init__(self, subscription: Subscription, function: Callable[[Message], object], threads: int) -> None:
        super().__init__(subscription, threads)
        self.subscription = subscription
        self._function = function
        self._threads = [
            threading.Thread(target=self._loop, name=f"wsrm-mq-consumer-{number}", daemon=True)
            for number in range(threads)
        ]
        for thread in self._threads:
            thread.start()

    def __enter__(self) -> Consumer:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self, timeout: float | None = None) -> bool:
        """Begin no other message, wait for those that were begun, ``timeout`` seconds at most for each thread, and
        close the subscription. Answers whether all were through: called by its own function it waits for none, and the
        last thread that is through closes the subscription."""
        self._finish("its consumer's `stop`")
        if threading.current_thread() in self._threads:
            return False
        for thread in self._threads:
            thread.join(timeout)
        is_through = not any(one.is_alive() for one in self._threads)
        self.subscription.close()
        return is_through

    def join(self) -> None:
        """Wait until it has ended."""
        for thread in self._threads:
            thread.join()

    def _loop(self) -> None:
        try:
            while not self._is_stopping:
                message = self.subscription.take()
                if message is not None:
                    self._handle(message)
        except SubscriptionClosed as error:
            if not self._is_stopping:
                self._end(error, is_told=False)
        except BaseException as error:
            self._end(error, is_told=True)
        finally:
            if self._is_last():
                with suppress(WSRMError):  # the store is gone, and the leases are with it
                    self.subscription.close()

    def _handle(self, message: Message) -> None:
        try:
            if isawaitable(self._function(message)):
                raise ConfigurationError("The function answers what is to be awaited: use `wsrm_mq.connect_async`.")
        except BaseException as error:  # sys.exit() too: it has not taken the message
            try:
                message.nack(error)
            except LeaseLost:  # it is delivered again in any case
                self.subscription.flow.late()
            return
        self.subscription.acknowledge(message)
