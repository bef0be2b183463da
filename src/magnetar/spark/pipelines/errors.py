"""What ends a pipeline."""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["ConfigurationRefused", "PipelineError"]


class PipelineError(Exception):
    """The pipeline cannot go on; ``str()`` says why, and what to do about it."""


class ConfigurationRefused(PipelineError):
    """The configuration says something that cannot be meant; nothing was begun."""

    def __init__(self, problems: Sequence[str]) -> None:
        super().__init__("; ".join(problems))
        self.problems = list(problems)
