"""The log destinations that a program can choose with ``Client(logger=...)``."""

from __future__ import annotations

import logging
import sys

from magnetar.pulsar.boundary import check_type
from magnetar.pulsar.enums import LoggerLevel

__all__ = ["ConsoleLogger", "FileLogger", "Logging"]
_LEVELS = {
    LoggerLevel.Debug: logging.DEBUG,
    LoggerLevel.Info: logging.INFO,
    LoggerLevel.Warn: logging.WARNING,
    LoggerLevel.Error: logging.ERROR,
}
_FORM = "%(asctime)s.%(msecs)03d %(levelname)-5s [%(thread)d] %(name)s:%(lineno)d | %(message)s"


class ConsoleLogger:
    """Chooses standard output as the log destination."""

    def __init__(self, log_level: LoggerLevel = LoggerLevel.Info) -> None:
        self.log_level = check_type(LoggerLevel, log_level, "log_level")


class FileLogger:
    """Chooses a file as the log destination."""

    def __init__(self, log_level: LoggerLevel, log_file: str) -> None:
        self.log_level = check_type(LoggerLevel, log_level, "log_level")
        self.log_file = check_type(str, log_file, "log_file")


class _Forwarding(logging.Handler):
    """A handler that passes log records to a program's logger, which filters them by its own level."""

    def __init__(self, logger: logging.Logger) -> None:
        super().__init__()
        self._logger = logger

    def emit(self, record: logging.LogRecord) -> None:
        if self._logger.isEnabledFor(record.levelno):
            self._logger.log(record.levelno, record.getMessage())


class Logging:
    """Sends the log records of ``magnetar.client`` to the destination that a program chose for a client,
    until :meth:`end`. All clients of a process share one logger, so each destination gets the records of all
    clients.
    """

    def __init__(self, chosen: object) -> None:
        """:param chosen: a :class:`logging.Logger`, ConsoleLogger or FileLogger; None: the program configures
            the loggers itself

        :raises ValueError: the argument has another type
        :raises OSError: the file cannot be written
        """
        self._source = logging.getLogger("magnetar.client")
        self._level = self._source.level
        self._handler: logging.Handler | None = None
        if chosen is None:
            return
        if isinstance(chosen, logging.Logger):
            self._handler = _Forwarding(chosen)
            level = chosen.getEffectiveLevel()
        elif isinstance(chosen, ConsoleLogger | FileLogger):
            self._handler = (
                logging.FileHandler(chosen.log_file)
                if isinstance(chosen, FileLogger)
                else logging.StreamHandler(sys.stdout)
            )
            level = _LEVELS[chosen.log_level]
            self._handler.setFormatter(logging.Formatter(_FORM, "%Y-%m-%d %H:%M:%S"))
        else:
            raise ValueError(
                "Logger is expected to be either None, logger.Logger, pulsar.ConsoleLogger or "
                "pulsar.FileLogger"
            )
        self._handler.setLevel(level)
        self._source.addHandler(self._handler)
        self._source.setLevel(level)

    def end(self) -> None:
        """Stops logging to the chosen destination. Idempotent."""
        if self._handler is not None:
            self._source.removeHandler(self._handler)
            self._source.setLevel(self._level)
            self._handler.close()
            self._handler = None
