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


class Consumer:
    """Made by ``Node.consume``; ``stop`` ends it, and so does ``with``."""

    def __init__(self, subscription: Subscription, function: Callable[[Message], object], threads: int) -> None:
        self.subscription = subscription
        self._function = function
        self._stopping = threading.Event()
        self._lock = threading.Lock()
        self._running = threads
        self.error: BaseException | None = None
        """The error that ended it; ``None`` after ``stop``."""
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

    def _finish(self, by: str) -> None:
        self._stopping.set()
        self.subscription.flow.finish(by)

    def _loop(self) -> None:
        try:
            while not self._stopping.is_set():
                message = self.subscription.take()
                if message is not None:
                    self._handle(message)
        except SubscriptionClosed as error:
            if not self._stopping.is_set():
                self._end(error)
        except BaseException as error:
            if self._end(error):
                self.subscription.events.tell(
                    "consumer.ended", queue=", ".join(self.subscription.flow.names), error=error
                )
        finally:
            with self._lock:
                self._running -= 1
                is_last = not self._running
            if is_last:
                with suppress(WSRMError):  # the store is gone, and the leases are with it
                    self.subscription.close()

    def _end(self, error: BaseException) -> bool:
        """Begin no other message: the last thread closes the subscription. Answers whether this error is the first."""
        with self._lock:
            is_first = self.error is None
            self.error = self.error or error
        self._finish(f"an error in its consumer: {as_error(error)}")
        return is_first

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
