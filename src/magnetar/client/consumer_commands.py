"""Builds the commands of one consumer."""

from __future__ import annotations

from magnetar.client.enums import ConsumerType
from magnetar.client.message_id import MessageId
from magnetar.client.options import ConsumerOptions
from magnetar.protocol.frames import signed
from magnetar.protocol.pulsar_api_pb2 import (
    BaseCommand,
    CommandAck,
    CommandGetLastMessageIdResponse,
    KeySharedMode,
    MessageIdData,
)

_U64 = 2**64


class ConsumerCommands:
    __slots__ = ("_id", "_makes_topic", "_name", "_options", "_subscription", "_topic")

    def __init__(
        self,
        consumer_id: int,
        topic: str,
        subscription: str,
        name: str,
        options: ConsumerOptions,
        *,
        makes_topic: bool = True,
    ) -> None:
        """:param makes_topic: whether the broker may create the topic if it does not exist"""
        self._id = consumer_id
        self._topic = topic
        self._subscription = subscription
        self._name = name
        self._options = options
        self._makes_topic = makes_topic

    def subscribe(self, request_id: int, start: MessageId | int | None, epoch: int = 0) -> BaseCommand:
        """Returns the command SUBSCRIBE.

        :param start: start position of a non-durable subscription, or the age of its first message in
            seconds; None: the broker decides
        :param epoch: the consumer epoch: how often the consumer has requested redelivery of all messages; 0
            is not sent
        """
        options = self._options
        command = BaseCommand(type=BaseCommand.SUBSCRIBE)
        subscribe = command.subscribe
        subscribe.topic = self._topic
        subscribe.subscription = self._subscription
        subscribe.subType = int(options.consumer_type)  # type: ignore[assignment]
        subscribe.consumer_id = self._id
        subscribe.request_id = request_id
        subscribe.consumer_name = self._name
        subscribe.priority_level = options.priority_level
        subscribe.durable = options.durable
        if not self._makes_topic:
            subscribe.force_topic_creation = False
        subscribe.read_compacted = options.is_read_compacted
        subscribe.initialPosition = int(options.initial_position)  # type: ignore[assignment]
        if options.replicate_subscription_state_enabled:
            subscribe.replicate_subscription_state = True
        if epoch:
            subscribe.consumer_epoch = epoch
        for key, value in options.properties.items():
            subscribe.metadata.add(key=key, value=value)
        for key, value in options.subscription_properties.items():
            subscribe.subscription_properties.add(key=key, value=value)
        if not options.durable:
            if isinstance(start, MessageId):
                subscribe.start_message_id.CopyFrom(start.to_wire())
            elif start is not None:
                subscribe.start_message_rollback_duration_sec = start
        if options.schema is not None:
            options.schema.fill(subscribe.schema)
        ranges = options.key_shared_ranges
        if options.consumer_type == ConsumerType.KeyShared or (ranges and not options.durable):
            meta = subscribe.keySharedMeta
            meta.allowOutOfOrderDelivery = options.key_shared_allow_out_of_order
            meta.keySharedMode = KeySharedMode.STICKY if ranges else KeySharedMode.AUTO_SPLIT
            for first, last in ranges:
                meta.hashRanges.add(start=first, end=last)
        return command

    def flow(self, permits: int) -> BaseCommand:
        command = BaseCommand(type=BaseCommand.FLOW)
        command.flow.consumer_id = self._id
        command.flow.messagePermits = permits
        return command

    def redeliver(self, positions: list[tuple[int, int]], epoch: int) -> BaseCommand:
        """Returns the command that requests redelivery.

        :param positions: the entries to redeliver; empty: all unacknowledged messages
        :param epoch: the consumer epoch, which the broker repeats in every later MESSAGE; 0 is not sent
        """
        command = BaseCommand(type=BaseCommand.REDELIVER_UNACKNOWLEDGED_MESSAGES)
        redeliver = command.redeliverUnacknowledgedMessages
        redeliver.consumer_id = self._id
        if epoch:
            redeliver.consumer_epoch = epoch
        for ledger_id, entry_id in positions:
            redeliver.message_ids.add(ledgerId=ledger_id % _U64, entryId=entry_id % _U64)
        return command

    def discard(self, message_id: MessageId, why: CommandAck.ValidationError) -> BaseCommand:
        """Returns the command that acknowledges a message that cannot be read, with the reason.

        :param why: what is wrong with the message
        """
        command = BaseCommand(type=BaseCommand.ACK)
        command.ack.consumer_id = self._id
        command.ack.ack_type = CommandAck.Individual
        command.ack.validation_error = why
        ledger_id, entry_id = message_id.position
        command.ack.message_id.append(MessageIdData(ledgerId=ledger_id % _U64, entryId=entry_id % _U64))
        return command

    def seek(self, request_id: int, target: MessageId | int) -> BaseCommand:
        """Returns the command SEEK.

        :param target: the id of a message, or a publish time in milliseconds since 1970
        """
        command = BaseCommand(type=BaseCommand.SEEK)
        command.seek.consumer_id = self._id
        command.seek.request_id = request_id
        if isinstance(target, MessageId):
            command.seek.message_id.CopyFrom(target.to_wire())
        else:
            command.seek.message_publish_time = target
        return command

    def last_message_id(self, request_id: int) -> BaseCommand:
        command = BaseCommand(type=BaseCommand.GET_LAST_MESSAGE_ID)
        command.getLastMessageId.consumer_id = self._id
        command.getLastMessageId.request_id = request_id
        return command

    def unsubscribe(self, request_id: int) -> BaseCommand:
        command = BaseCommand(type=BaseCommand.UNSUBSCRIBE)
        command.unsubscribe.consumer_id = self._id
        command.unsubscribe.request_id = request_id
        return command

    def close(self, request_id: int) -> BaseCommand:
        command = BaseCommand(type=BaseCommand.CLOSE_CONSUMER)
        command.close_consumer.consumer_id = self._id
        command.close_consumer.request_id = request_id
        return command


def last_message_of(answer: CommandGetLastMessageIdResponse) -> tuple[MessageId, tuple[int, int] | None]:
    """Returns the id of the topic's last message, and the subscription's mark-delete position (None if the
    broker does not send this position).
    """
    mark = None
    if answer.HasField("consumer_mark_delete_position"):
        position = answer.consumer_mark_delete_position
        mark = (signed(position.ledgerId), signed(position.entryId))
    return MessageId.from_wire(answer.last_message_id), mark
