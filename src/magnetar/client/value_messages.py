"""Messages with decoded values, for consumers whose schema decodes values."""

from __future__ import annotations

from collections.abc import Callable

from magnetar.client.attachment import Services
from magnetar.client.exceptions import InvalidMessage, PulsarException
from magnetar.client.message import Message, Value
from magnetar.client.schema import BAD_VALUES, ValueSchema, topic_schema
from magnetar.io.tasks import KeyedTasks, TaskScope


class ValueMessage(Message):
    """A message whose payload is decoded with its consumer's schema."""

    __slots__ = ("_schema", "_writer")

    def __init__(self, message: Message, schema: ValueSchema, writer: object) -> None:
        """:param writer: the schema with which the message was written, as :meth:`ValueSchema.writer` returns
        it; or the exception that :meth:`value` raises, because this schema is unknown
        """
        super().__init__(
            message.topic_name(),
            message.message_id(),
            message._entry,
            message._single_raw,
            message.data(),
            message.redelivery_count(),
        )
        self._schema = schema
        self._writer = writer

    def value(self) -> Value:
        if isinstance(self._writer, PulsarException):
            raise self._writer
        try:
            return self._schema.value_of(self, self._writer)
        except BAD_VALUES as error:
            raise InvalidMessage(
                f"{self.message_id()}: the content does not match the consumer's schema: {error}"
            ) from error


class Values:
    """Decodes the messages of one consumer, each with the schema version with which it was written."""

    def __init__(
        self, services: Services, topic: str, schema: ValueSchema, found: Callable[[], object]
    ) -> None:
        """:param found: called when a lookup of a schema version has ended"""
        self._services = services
        self._topic = topic
        self._schema = schema
        self._found = found
        self._writers: dict[bytes, object] = {b"": None}
        """By schema version: what ``ValueSchema.writer`` returned, or the exception that explains why the
        schema cannot be used.
        """
        self._finding: KeyedTasks[bytes, None] = KeyedTasks(TaskScope(services.io.loop, topic))

    def is_known(self, message: Message) -> bool:
        """Returns whether the schema version of a message is known; if not, starts to look it up."""
        if not self._schema.needs_writer:
            return True
        version = message.schema_version()
        if version in self._writers:
            return True
        self._finding.start(version, lambda: self._find(version), "finding a schema", may_fail=True)
        return False

    async def _find(self, version: bytes) -> None:
        services = self._services
        try:
            found = await services.retrying(lambda: services.lookup.schema(self._topic, version))
            self._writers[version] = self._schema.writer(topic_schema(found))
        except PulsarException as error:
            self._writers[version] = error
        except BAD_VALUES as error:
            number = int.from_bytes(version, "big")
            self._writers[version] = InvalidMessage(
                f"{self._topic}: version {number} of the schema cannot be used: {error}"
            )
        self._found()

    def valued(self, message: Message) -> Message:
        """Returns a message that decodes its value on access; its schema version must be known."""
        if not self._schema.needs_writer:
            return ValueMessage(message, self._schema, None)
        version = message.schema_version()
        writer = self._writers[version]
        if isinstance(writer, PulsarException) and not isinstance(writer, InvalidMessage):
            # The next message tries again.
            del self._writers[version]
        return ValueMessage(message, self._schema, writer)

    def end(self) -> None:
        """Stops looking up schemas."""
        for _, task in self._finding.items():
            task.cancel()
