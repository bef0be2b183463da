"""Names for producers that come without one."""

from __future__ import annotations


class ProducerNames:
    """Names that are unique in the cluster: ``CLUSTER-LIFE-N``."""

    def __init__(self, cluster: str) -> None:
        self._cluster = cluster
        self._given = 0
        self.life = 0
        """The number of this broker start in the cluster: clients reconnect with names from earlier ones."""

    def next(self) -> str:
        number = self._given
        self._given += 1
        return f"{self._cluster}-{self.life}-{number}"
