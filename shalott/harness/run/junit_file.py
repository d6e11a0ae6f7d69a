"""The file of ``shalott test --junit FILE``: one document over all runs that one command makes.

Each run's own junit.xml is in its directory from the run's first moment, as an error that says that
it did not end; this file holds what those say, replaced whenever a run begins or ends. A run that
is refused is an error with the refusal's sentence (of a command line that never became a run:
harness/run/refused_junit.py). A command that is killed leaves the last word behind.
"""

from __future__ import annotations

import time
from pathlib import Path

from shalott.core.errors import StoreError
from shalott.core.plan import Plan
from shalott.harness.report.junit import NOT_ENDED, combine, render_unended
from shalott.harness.report.meta import ReportMeta
from shalott.harness.run.atomic_file import write_atomically
from shalott.harness.run.store import JUNIT, RunDirectory


class JunitFile:
    """Does nothing if no path was given. Raises StoreError."""

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._ended: list[bytes] = []

    def begin(self, plan: Plan, command: str, iteration: int) -> None:
        """A run begins; it is an error until it ends."""
        self._write([*self._ended, _unended(plan, command, iteration, NOT_ENDED)])

    def end(self, directory: RunDirectory) -> None:
        """It ended, and its own file says how."""
        if self._path is None:
            return
        own = directory.path / JUNIT
        try:
            self._ended.append(own.read_bytes())
        except OSError as error:
            raise StoreError(f"cannot read {own}: {error.strerror}") from error
        self._write(self._ended)

    def refuse(self, plan: Plan, command: str, iteration: int, sentence: str) -> None:
        """It could not begin, or could not be stored."""
        self._ended.append(_unended(plan, command, iteration, sentence))
        self._write(self._ended)

    def _write(self, documents: list[bytes]) -> None:
        if self._path is not None:
            write_atomically(self._path, combine(documents))


def _unended(plan: Plan, command: str, iteration: int, sentence: str) -> bytes:
    meta = ReportMeta(command=command, started_wall_ns=time.time_ns(), iteration=iteration)
    return render_unended(plan, meta, sentence)
