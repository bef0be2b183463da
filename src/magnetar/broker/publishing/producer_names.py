"""Names of producers that come without one."""

from __future__ import annotations


class ProducerNames:
    """Unique in the cluster: ``CLUSTER-LIFE-N``."""

    def __init__(self, cluster: str) -> None:
        self._cluster = cluster
        self._given = 0
        self.life = 0
        """Which life of a broker of the cluster this is: its clients come back with names of earlier ones."""

    def next(self) -> str:
        number = self._given
        self._given += 1
        return f"{self._cluster}-{self.life}-{number}"
