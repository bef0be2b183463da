"""The options of a producer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from magnetar.client.enums import CompressionType, ProducerAccessMode
from magnetar.client.exceptions import InvalidConfiguration
from magnetar.client.schema import ProducerSchema

if TYPE_CHECKING:
    from magnetar.client.encryption.key_readers import KeyReader


@dataclass(frozen=True)
class ProducerOptions:
    """Names and defaults are those of the official client; batching is on, as in its asyncio client."""

    producer_name: str | None = None
    initial_sequence_id: int | None = None
    send_timeout_millis: int = 30000
    """0: no time-out."""
    compression_type: CompressionType = CompressionType.NONE
    max_pending_messages: int = 1000
    block_if_queue_full: bool = False
    batching_enabled: bool = True
    batching_max_messages: int = 1000
    batching_max_allowed_size_in_bytes: int = 128 * 1024
    batching_max_publish_delay_ms: float = 10
    properties: Mapping[str, str] = field(default_factory=dict)
    access_mode: ProducerAccessMode = ProducerAccessMode.Shared
    schema: ProducerSchema | None = None
    """The declared schema; contents are sent unchanged. None: no schema."""
    chunking_enabled: bool = False
    """Sends messages that are larger than an entry in chunks; not with batching."""
    encryption_key: str | None = None
    """The name of the key for encryption; None: without encryption."""
    crypto_key_reader: KeyReader | None = None
    """The source of that key."""

    def check(self) -> None:
        """:raises InvalidConfiguration: a limit is not above 0, or two options exclude each other"""
        if self.chunking_enabled and self.batching_enabled:
            raise InvalidConfiguration("chunking_enabled and batching_enabled cannot be used together")
        if self.encryption_key is not None and self.crypto_key_reader is None:
            raise InvalidConfiguration("encryption_key requires a crypto_key_reader")
        for name in (
            "max_pending_messages",
            "batching_max_messages",
            "batching_max_allowed_size_in_bytes",
            "batching_max_publish_delay_ms",
        ):
            if getattr(self, name) <= 0:
                raise InvalidConfiguration(f"{name} must be above 0")
