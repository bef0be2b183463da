"""The base classes of Pulsar Functions. Brokers of Magnetar do not run functions; programs that define
functions can be imported and tested.
"""

from __future__ import annotations

import pickle
from abc import abstractmethod

__all__ = ["Context", "Function", "IdentitySerDe", "PickleSerDe", "SerDe"]


class SerDe:
    """Base class of serializers for functions: converts values to bytes and back."""

    @abstractmethod
    def serialize(self, input: object) -> bytes:
        """Returns the bytes of a value."""
        raise NotImplementedError

    @abstractmethod
    def deserialize(self, input_bytes: bytes) -> object:
        """Returns the value that the bytes represent."""
        raise NotImplementedError


class PickleSerDe(SerDe):
    """Converts values with ``pickle``; only for bytes from trusted sources, because unpickling can run any
    code.
    """

    def serialize(self, input: object) -> bytes:
        return pickle.dumps(input)

    def deserialize(self, input_bytes: bytes) -> object:
        return pickle.loads(input_bytes)  # nosec B301 - what the class is for


class IdentitySerDe(SerDe):
    """Leaves bytes unchanged; converts numbers and strings to text in UTF-8, and back."""

    def serialize(self, input: object) -> bytes:
        """See :meth:`SerDe.serialize`.

        :raises TypeError: the value has another type
        """
        if type(input) in (int, float, complex, str):
            return str(input).encode()
        if isinstance(input, bytes):
            return input
        raise TypeError(f"IdentitySerde cannot serialize object of type {type(input)}")

    def deserialize(self, input_bytes: bytes) -> object:
        """Returns the value that the text represents: the first of int, float, complex and str that fits; the
        bytes themselves if they are not text.
        """
        try:
            text = input_bytes.decode()
        except UnicodeDecodeError:
            return input_bytes
        for kind in (int, float, complex):
            try:
                return kind(text)
            except ValueError:
                continue
        return text


class Function:
    """A function; subclasses implement :meth:`process`."""

    @abstractmethod
    def process(self, input: object, context: Context) -> object:
        """Returns the output for an input; None: there is no output for this input."""
        raise NotImplementedError


class Context:
    """The interface through which a running function uses Pulsar; the environment that runs functions
    implements it.
    """

    @abstractmethod
    def get_message_id(self) -> object:
        raise NotImplementedError

    @abstractmethod
    def get_message_key(self) -> object:
        raise NotImplementedError

    @abstractmethod
    def get_message_eventtime(self) -> object:
        raise NotImplementedError

    @abstractmethod
    def get_message_properties(self) -> object:
        raise NotImplementedError

    @abstractmethod
    def get_current_message_topic_name(self) -> object:
        raise NotImplementedError

    @abstractmethod
    def get_function_tenant(self) -> object:
        raise NotImplementedError

    @abstractmethod
    def get_function_namespace(self) -> object:
        raise NotImplementedError

    @abstractmethod
    def get_function_name(self) -> object:
        raise NotImplementedError

    @abstractmethod
    def get_function_id(self) -> object:
        raise NotImplementedError

    @abstractmethod
    def get_instance_id(self) -> object:
        raise NotImplementedError

    @abstractmethod
    def get_function_version(self) -> object:
        raise NotImplementedError

    @abstractmethod
    def get_logger(self) -> object:
        raise NotImplementedError

    @abstractmethod
    def get_user_config_value(self, key: str) -> object:
        raise NotImplementedError

    @abstractmethod
    def get_user_config_map(self) -> object:
        raise NotImplementedError

    @abstractmethod
    def get_secret(self, secret_name: str) -> object:
        raise NotImplementedError

    @abstractmethod
    def get_partition_key(self) -> object:
        raise NotImplementedError

    @abstractmethod
    def get_ordering_key(self) -> object:
        raise NotImplementedError

    @abstractmethod
    def record_metric(self, metric_name: str, metric_value: float) -> object:
        raise NotImplementedError

    @abstractmethod
    def publish(
        self,
        topic_name: str,
        message: object,
        serde_class_name: str = "serde.IdentitySerDe",
        properties: object = None,
        compression_type: object = None,
        callback: object = None,
        message_conf: object = None,
    ) -> object:
        raise NotImplementedError

    @abstractmethod
    def get_input_topics(self) -> object:
        raise NotImplementedError

    @abstractmethod
    def get_output_topic(self) -> object:
        raise NotImplementedError

    @abstractmethod
    def get_output_serde_class_name(self) -> object:
        raise NotImplementedError

    @abstractmethod
    def ack(self, msgid: object, topic: str) -> object:
        raise NotImplementedError

    @abstractmethod
    def incr_counter(self, key: str, amount: int) -> object:
        raise NotImplementedError

    @abstractmethod
    def get_counter(self, key: str) -> object:
        raise NotImplementedError

    @abstractmethod
    def del_counter(self, key: str) -> object:
        raise NotImplementedError

    @abstractmethod
    def put_state(self, key: str, value: object) -> object:
        raise NotImplementedError

    @abstractmethod
    def get_state(self, key: str) -> object:
        raise NotImplementedError
