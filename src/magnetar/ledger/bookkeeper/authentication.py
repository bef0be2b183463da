"""The first messages of a connection to a bookie: TLS and authentication, before any request.

Client and bookie exchange AUTH messages, in the connection's version of the protocol, until both accept. A
bookie that rejects a client stops answering.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import NamedTuple

from google.protobuf.message import DecodeError

from magnetar.io.interfaces import ConnectingNetwork, Future, Loop, StreamProtocol, Transport
from magnetar.io.waiting import outcome, settle
from magnetar.ledger.bookkeeper import bookie_protocol_pb2 as pb
from magnetar.protocol.digest_md5 import DigestClient, DigestRefused, NameAndPassword

_LENGTH = struct.Struct(">I")
_PREFIX_2 = b"\x02\x03\x00\x00"
"""Version, operation and flags of an AUTH message in version 2 of the protocol."""
_AUTH = 5
"""The number of the AUTH operation in version 3 of the protocol."""
_OF_TLS = b"\x0a\x06\x08\x03\x10\x09"
"""The start of a second answer to the request for TLS. It comes after the handshake, from a bookie whose
plugin requires credentials in addition to a certificate."""
_MAX_BYTES = 1 << 16
_NOBODY_ASKS = "AuthDisabledPlugin"
"""The plugin name in answers of bookies without authentication."""
_SASL = "sasl"
_SERVICE = "bookkeeper/bookkeeper"
_NONCE_BYTES = 16
_MAX_ANSWER_BYTES = 1024
# A Request with its header (version 3, operation 9, number 1) and an empty startTLSRequest.
_REQUEST = b"\x0a\x06\x08\x03\x10\x09\x18\x01" + b"\xd2\x06\x00"
QUESTION = _LENGTH.pack(len(_REQUEST)) + _REQUEST
_HEADER_TAG = 0x0A
_GOOD = b"\x10\x00"
"""The status field EOK, which follows the header of a successful Response."""


class NotAuthenticated(OSError):
    """A bookie refuses the credentials, or does not authenticate itself."""


class DigestConversation:
    """The client side of BookKeeper's SASL exchange with DIGEST-MD5 (``SASLClientProviderFactory``)."""

    plugin = _SASL

    def __init__(self, credentials: NameAndPassword, nonce: str) -> None:
        self._user = credentials.username
        self._client = DigestClient(credentials, _SERVICE, nonce)
        self._responded = False

    @property
    def doubt(self) -> str:
        if not self._responded:
            return "it does not answer SASL"
        return f"it does not accept the user {self._user!r} with this password (SASL, DIGEST-MD5)"

    def begin(self) -> bytes:
        return b""

    def answer(self, said: bytes) -> bytes | None:
        try:
            if self._responded:
                self._client.verify(said)
                return None
            self._responded = True
            return self._client.respond(said)
        except DigestRefused as error:
            raise NotAuthenticated(f"SASL, DIGEST-MD5: {error}") from error


class AuthProvider(NamedTuple):
    """The way in which a client authenticates at bookies."""

    converse: Callable[[], DigestConversation]
    """Starts the exchange of AUTH messages with one bookie."""
    answer_seconds: float = 5.0
    """The time in seconds after which a bookie that does not answer is taken to have rejected the
    credentials."""


def digest_auth_provider(credentials: NameAndPassword, random: Callable[[int], bytes]) -> AuthProvider:
    """Returns a provider that authenticates connections to bookies with DIGEST-MD5.

    :param random: returns the number of random bytes that its argument states
    """
    return AuthProvider(lambda: DigestConversation(credentials, random(_NONCE_BYTES).hex()))


async def connect_authenticated(
    loop: Loop,
    network: ConnectingNetwork,
    where: tuple[str, int],
    link: StreamProtocol,
    auth_provider: AuthProvider,
    *,
    version_3: bool,
) -> None:
    """Connects and authenticates, then passes the connection to ``link``.

    :param version_3: whether to use version 3 of the protocol instead of version 2
    :raises OSError: the address does not answer
    :raises NotAuthenticated: the bookie refuses the credentials, or does not authenticate itself
    """
    authenticating = _Authenticating(
        loop, link, auth_provider.converse(), _VERSION_3 if version_3 else _VERSION_2
    )
    await network.connect(*where, lambda: authenticating)
    limit = loop.call_later(auth_provider.answer_seconds, authenticating.doubted)
    try:
        await outcome(loop, authenticating.ended)
    except BaseException:
        authenticating.transport.abort()
        raise
    finally:
        limit.cancel()


class _Frames(NamedTuple):
    """The framing of messages in one version of the protocol."""

    made: Callable[[pb.AuthMessage], bytes]
    read: Callable[[bytes], pb.AuthMessage]
    """Returns the message in a frame; raises DecodeError if the frame contains no such message."""


def _made_2(said: pb.AuthMessage) -> bytes:
    return _PREFIX_2 + said.SerializeToString()


def _read_2(frame: bytes) -> pb.AuthMessage:
    if not frame.startswith(_PREFIX_2[:2]):
        raise DecodeError("the frame is not an authentication message")
    return pb.AuthMessage.FromString(frame[len(_PREFIX_2) :])


def _made_3(said: pb.AuthMessage) -> bytes:
    header = pb.Header(version=3, operation=_AUTH, txnId=0)
    return pb.Request(header=header, authRequest=said).SerializeToString()


def _read_3(frame: bytes) -> pb.AuthMessage:
    answer = pb.Response.FromString(frame)
    if answer.header.operation != _AUTH or answer.status or not answer.HasField("authResponse"):
        raise DecodeError("the bookie did not answer AUTH with success")
    return answer.authResponse


_VERSION_2 = _Frames(_made_2, _read_2)
_VERSION_3 = _Frames(_made_3, _read_3)


class _Authenticating:
    """A ``StreamProtocol`` that exchanges the AUTH messages, and afterwards passes all data to ``link``."""

    transport: Transport

    def __init__(
        self, loop: Loop, link: StreamProtocol, conversation: DigestConversation, frames: _Frames
    ) -> None:
        self._link = link
        self._conversation = conversation
        self._frames = frames
        self._held = b""
        self._over = False
        self.ended: Future[None] = loop.create_future()

    def doubted(self) -> None:
        """Handles a bookie that has not answered in time."""
        self._fail(self._conversation.doubt)

    def _fail(self, reason: str) -> None:
        if not self.ended.done():
            self.ended.set_exception(NotAuthenticated(reason))

    def _say(self, payload: bytes) -> None:
        said = pb.AuthMessage(authPluginName=self._conversation.plugin, payload=payload)
        made = self._frames.made(said)
        self.transport.write(_LENGTH.pack(len(made)) + made)

    def connection_made(self, transport: Transport) -> None:
        self.transport = transport
        self._say(self._conversation.begin())

    def data_received(self, data: bytes) -> None:
        if self._over:
            self._link.data_received(data)
            return
        self._held += data
        try:
            while not self._over and (frame := self._frame()) is not None:
                if not frame.startswith(_OF_TLS):
                    self._hear(self._frames.read(frame))
        except DecodeError:
            self._fail("it answers AUTH with another message")
        except NotAuthenticated as error:
            self._fail(str(error))
        if self._over and self._held:
            self._link.data_received(self._held)

    def _frame(self) -> bytes | None:
        """Returns the next frame; None if it is not complete yet."""
        if len(self._held) < _LENGTH.size:
            return None
        (length,) = _LENGTH.unpack_from(self._held)
        if length > _MAX_BYTES:
            raise DecodeError(f"the frame has {length} bytes; at most {_MAX_BYTES} are accepted")
        end = _LENGTH.size + length
        if len(self._held) < end:
            return None
        frame, self._held = self._held[_LENGTH.size : end], self._held[end:]
        return frame

    def _hear(self, said: pb.AuthMessage) -> None:
        if self.ended.done():
            return
        if said.authPluginName != _NOBODY_ASKS:
            if said.authPluginName != self._conversation.plugin:
                raise NotAuthenticated(f"the bookie requires authentication by {said.authPluginName!r}")
            reply = self._conversation.answer(said.payload)
            if reply is not None:
                self._say(reply)
                return
        self._over = True
        self._link.connection_made(self.transport)
        settle(self.ended)

    def eof_received(self) -> bool | None:
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        if self._over:
            self._link.connection_lost(exc)
        else:
            self._fail(f"it closes the connection: {self._conversation.doubt}")

    def pause_writing(self) -> None:
        if self._over:
            self._link.pause_writing()

    def resume_writing(self) -> None:
        if self._over:
            self._link.resume_writing()


def answer_bytes(begun: bytes) -> int:
    """Returns the length in bytes of the answer that begins with ``begun``; while the answer's length field
    is incomplete, the length of this field.
    """
    if len(begun) < _LENGTH.size:
        return _LENGTH.size
    (length,) = _LENGTH.unpack_from(begun)
    # A longer answer is not valid; its first bytes show that.
    return int(_LENGTH.size + min(length, _MAX_ANSWER_BYTES))


def refused(answer: bytes) -> str:
    """Returns the reason why the bookie's answer refuses TLS; empty if the bookie accepts it."""
    body = answer[_LENGTH.size :]
    (length,) = _LENGTH.unpack_from(answer)
    if length != len(body) or len(body) < 4 or body[0] != _HEADER_TAG or body[1] > len(body) - 4:
        return "its answer is not that of a bookie"
    status = body[2 + body[1] :]
    return "" if status[:2] == _GOOD else "it does not support TLS"
