"""The connections of a task: blocking clients that are opened on demand, and closed when the task ends."""

from __future__ import annotations

from types import TracebackType

from magnetar.admin_client import AdminClient
from magnetar.client.blocking import Client
from magnetar.spark.options import QueryOptions

__all__ = ["Connection"]


class Connection:
    """Connections to a cluster: a client for the binary protocol, and a client for the admin interface."""

    def __init__(self, options: QueryOptions) -> None:
        self.options = options
        self._client: Client | None = None
        self._admin: AdminClient | None = None

    @property
    def client(self) -> Client:
        """Returns the client for the binary protocol; the first call opens it.

        :raises PulsarException: the service URL is malformed
        """
        if self._client is None:
            self._client = Client(self.options.service_url, **self.options.client)
        return self._client

    @property
    def admin(self) -> AdminClient:
        """Returns the client of the admin interface; the first call opens it.

        :raises AdminError: the admin URL is malformed
        """
        if self._admin is None:
            access = self.options.access
            self._admin = AdminClient(
                self.options.admin_url, authentication=access.authentication, tls=access.tls
            )
        return self._admin

    def close(self) -> None:
        """Closes both clients. Idempotent."""
        client, self._client = self._client, None
        if client is not None:
            client.close()

    def __enter__(self) -> Connection:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
