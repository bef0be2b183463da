"""The TLS contexts of listeners, created from settings and reloaded when the files change."""

from __future__ import annotations

import asyncio
import logging
import ssl

from magnetar.config.settings import SettingsContradict
from magnetar.io.interfaces import Io, Worker
from magnetar.io.real.tls_network import Handshakes, TlsServerNetwork
from magnetar.io.tasks import TaskScope, owner_goes_on
from magnetar.io.tls import TlsFiles, TlsRefused, server_context
from magnetar.io.waiting import run_job
from magnetar.security.key_material import WatchedFiles
from magnetar.server.process_settings import ListenerSettings
from magnetar.server.security import tls_files, tls_rules

log = logging.getLogger(__name__)


class ListenerTls:
    """The TLS contexts of the binary listener and of HTTP."""

    def __init__(self, io: Io, loop: asyncio.AbstractEventLoop, settings: ListenerSettings) -> None:
        """:raises SettingsContradict: the files cannot be used"""
        self._io = io
        self._settings = settings
        self._files: TlsFiles = tls_files(settings)
        self._tasks = TaskScope(io.loop, "TLS", owner_goes_on)
        self._worker: Worker = io.start_worker("tls")
        try:
            self._contexts = self._read()
        except TlsRefused as error:
            self._worker.close()
            raise SettingsContradict(f"TLS: {error}") from error
        handshakes = Handshakes()
        self.binary = TlsServerNetwork(loop, lambda: self._contexts[0], handshakes=handshakes)
        self.http = TlsServerNetwork(loop, lambda: self._contexts[1], handshakes=handshakes)
        seconds = settings.tls_cert_refresh_check_duration_sec
        self._watched = WatchedFiles(io, self._worker, self._files.paths, seconds, self._changed)

    def _read(self) -> tuple[ssl.SSLContext, ssl.SSLContext]:
        settings, files = self._settings, self._files
        trusts = bool(files.trust or files.trust_store)
        ask = trusts and not settings.tls_allow_insecure_connection
        require = settings.tls_require_trusted_client_cert_on_connect
        if require and settings.tls_allow_insecure_connection:
            raise TlsRefused(
                "tlsRequireTrustedClientCertOnConnect and tlsAllowInsecureConnection cannot be "
                "used together; disable one of them"
            )
        binary, http = (
            server_context(files, tls_rules(settings, http=of_http), ask_client=ask, require_client=require)
            for of_http in (False, True)
        )
        return binary, http

    def _changed(self) -> None:
        self._tasks.start(self._reload(), "reading changed certificates")

    async def _reload(self) -> None:
        """Uses the changed files for new connections, or keeps the former files if the changed files cannot
        be used.
        """
        try:
            self._contexts = await run_job(self._io.loop, self._worker, self._read)
        except TlsRefused as error:
            log.error(
                "cannot use the changed certificates; keeping the former ones", extra={"reason": str(error)}
            )
            return
        log.info("certificates reloaded")

    def close(self) -> None:
        self._watched.close()
        self._worker.close()
