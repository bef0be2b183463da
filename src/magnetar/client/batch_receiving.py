"""Receives several messages at once, limited by number, size and time."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING

from magnetar.client.exceptions import InvalidConfiguration, Timeout
from magnetar.client.message import Message
from magnetar.io.interfaces import Loop

if TYPE_CHECKING:
    from magnetar.client.consumer import Consumer
    from magnetar.client.gathered import GatheredConsumer


@dataclass(frozen=True)
class BatchReceivePolicy:
    """The limits at which a batch of received messages is complete, with the official client's names and
    defaults.

    A value of 0 or less means no limit; at least one limit is required.
    """

    max_num_message: int = -1
    """Maximum number of messages."""
    max_num_bytes: int = 10 * 1024 * 1024
    """Total size of the payloads at which the batch is complete, in bytes."""
    timeout_ms: int = 100
    """Maximum time to wait, in milliseconds."""

    def check(self) -> None:
        """Checks the policy.

        :raises InvalidConfiguration: the policy has no limit
        """
        if max(self.max_num_message, self.max_num_bytes, self.timeout_ms) <= 0:
            raise InvalidConfiguration(
                "max_num_message, max_num_bytes or timeout_ms must be above 0: a batch needs a limit"
            )

    def is_enough(self, messages: int, size: int) -> bool:
        """Whether a batch of ``messages`` messages with ``size`` bytes in total is complete."""
        return 0 < self.max_num_message <= messages or 0 < self.max_num_bytes <= size


async def receive_batch(
    loop: Loop,
    consumer: Consumer | GatheredConsumer,
    policy: BatchReceivePolicy,
    fetched: deque[Message] | None = None,
) -> list[Message]:
    """Returns the next messages; an empty list if no message arrives in time. The last message can exceed the
    size limit. On cancellation or failure, the messages return to the consumer's queue.

    :param fetched: messages that were taken from the consumer earlier, and come first; None: no messages
    :raises InvalidConfiguration: the policy has no limit
    :raises PulsarException: the consumer is closed or has failed permanently
    """
    policy.check()
    end = loop.time() + policy.timeout_ms / 1000 if policy.timeout_ms > 0 else None
    messages: list[Message] = []
    size = 0
    try:
        while not policy.is_enough(len(messages), size):
            message = _first(fetched) or consumer.take()
            if message is None:
                left = None if end is None else (end - loop.time()) * 1000
                if left is not None and left <= 0:
                    break
                try:
                    message = await consumer.receive(left)
                except Timeout:
                    break
            messages.append(message)
            size += len(message.data())
    except BaseException:
        for message in reversed(messages):
            consumer.take_back(message)
        raise
    return messages


def _first(fetched: deque[Message] | None) -> Message | None:
    try:
        return fetched.popleft() if fetched else None
    except IndexError:
        # Another thread took the last one.
        return None
