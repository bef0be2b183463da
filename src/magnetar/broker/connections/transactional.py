"""Publishing in transactions: the checks before a run is published normally."""

from __future__ import annotations

import logging

from magnetar.broker.connections.publishing import Publishing, part_of, refuse_each
from magnetar.broker.publishing.producer import Producer
from magnetar.broker.topics.persistent import TRANSACTIONS_DISABLED, Topic
from magnetar.broker.transactions.buffer import with_ids
from magnetar.errors import NotAllowed
from magnetar.protocol.hot_codec import SendRun

log = logging.getLogger(__name__)


def publish_in_transaction(
    publishing: Publishing, producer: Producer | None, buffer: bytes, sends: SendRun
) -> None:
    """Passes a run of a transaction to its topic.

    The first run waits until the topic has stored a snapshot of its transactions; no other command of the
    connection is handled until then.
    """
    if producer is None or producer.closed:
        publishing.unknown_producer(sends.producer_id, producer)
        return
    topic, txn = producer.topic, (sends.most_bits, sends.least_bits)
    if not isinstance(topic, Topic):
        log.warning(
            "closing the connection: the client sent a message of a transaction to a non-persistent topic",
            extra={"peer": producer.address, "topic": topic.full_name},
        )
        publishing.close()
        return
    known = topic.transactions
    refusal = None if known is None else known.refusal(txn)
    if refusal is None and (known is None or not known.ready):
        if topic.make_transactions is not None:
            publishing.publish_later(topic, buffer, part_of(sends, 0, sends.count))
            return
        refusal = NotAllowed(TRANSACTIONS_DISABLED)
    ids = sends.sequence_ids[: sends.count]
    if refusal is not None:
        refuse_each(publishing, producer, ids, refusal)
        return
    try:
        changed = with_ids(txn, buffer, sends.starts[: sends.count], sends.ends[: sends.count])
    except NotAllowed as error:
        refuse_each(publishing, producer, ids, error)
        return
    if changed is not None:
        sends = part_of(sends, 0, sends.count)
        buffer, sends.starts, sends.ends = changed
    publishing.publish(buffer, sends, txn)
