"""Errors of pipelines."""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["ConfigurationRefused", "PipelineError"]


class PipelineError(Exception):
    """The pipeline cannot continue; ``str()`` returns why, and what to do about it."""


class ConfigurationRefused(PipelineError):
    """The configuration is not valid; nothing was started."""

    def __init__(self, problems: Sequence[str]) -> None:
        super().__init__("; ".join(problems))
        self.problems = list(problems)
