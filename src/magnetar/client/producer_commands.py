"""Builds the commands of one producer."""

from __future__ import annotations

from magnetar.client.options import ProducerOptions
from magnetar.protocol.pulsar_api_pb2 import BaseCommand


def announcement(
    topic: str,
    producer_id: int,
    name: str,
    options: ProducerOptions,
    *,
    request_id: int,
    epoch: int,
    topic_epoch: int | None,
    encrypts: bool,
    in_transactions: bool,
) -> BaseCommand:
    """Returns the command PRODUCER.

    :param name: the name that the program chose, or that the broker chose earlier; empty: the broker chooses
        a name
    :param epoch: number of earlier PRODUCER commands of this producer
    :param topic_epoch: the topic epoch in the broker's last answer to an exclusive producer; None: no epoch
    :param in_transactions: whether the client has used transactions, so that messages may belong to them
    """
    command = BaseCommand(type=BaseCommand.PRODUCER)
    producer = command.producer
    producer.topic = topic
    producer.producer_id = producer_id
    producer.request_id = request_id
    producer.epoch = epoch
    if name:
        producer.producer_name = name
    producer.encrypted = encrypts
    producer.user_provided_producer_name = bool(options.producer_name)
    for key, value in options.properties.items():
        producer.metadata.add(key=key, value=value)
    producer.producer_access_mode = int(options.access_mode)  # type: ignore[assignment]
    if options.initial_subscription_name:
        producer.initial_subscription_name = options.initial_subscription_name
    if options.schema is not None:
        options.schema.fill(producer.schema)
    if topic_epoch is not None:
        producer.topic_epoch = topic_epoch
    if in_transactions:
        producer.txn_enabled = True
    return command
