"""The file of ``shalott test --junit FILE``: one document over all runs that one command makes.

Each run's own junit.xml is in its directory from the run's first moment, as an error that says that
it did not end; this file holds what those say, replaced whenever a run begins or ends. A run that
is refused is an error with the refusal's sentence. A command that is killed leaves the last word
behind.

Before anything heavy is imported ``RefusedJunit`` writes the file as an error that says that the
run did not end; a refusal replaces it with its sentence, and the runs replace it with theirs.
"""

from __future__ import annotations

import shlex
import time
from collections.abc import Sequence
from pathlib import Path

from shalott.core.errors import StoreError, UsageError
from shalott.core.plan import Plan
from shalott.harness.report.junit import NOT_ENDED, combine, render_refusal, render_unended
from shalott.harness.report.meta import ReportMeta
from shalott.harness.run.atomic_file import write_atomically


class JunitFile:
    """Does nothing if no path was given. Raises StoreError."""

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._ended: list[bytes] = []

    def begin(self, plan: Plan, command: str, iteration: int) -> None:
        """A run begins; it is an error until it ends."""
        self._write([*self._ended, _unended(plan, command, iteration, NOT_ENDED)])

    def end(self, own: Path) -> None:
        """It ended; ``own``, its own junit.xml, says how."""
        if self._path is None:
            return
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


def path_named(arguments: Sequence[str]) -> Path | None:
    """What a command line gives to ``--junit``, before anything has read it. None: nothing."""
    for place, word in enumerate(arguments):
        if word.startswith("--junit="):
            return Path(word.removeprefix("--junit="))
        if word == "--junit" and place + 1 < len(arguments):
            return Path(arguments[place + 1])
    return None


class RefusedJunit:
    """The file, as long as it holds nothing but this."""

    def __init__(self, path: Path, arguments: Sequence[str]) -> None:
        """Writes it. Raises UsageError if it can't be written."""
        self._path = path
        self._command = shlex.join(["shalott", *arguments])
        self._began_ns = time.time_ns()
        self._written = render_refusal(self._command, self._began_ns, NOT_ENDED)
        try:
            write_atomically(path, self._written)
        except StoreError as error:
            raise UsageError(f"--junit {path}: {error}") from error

    def refuse(self, sentence: str) -> None:
        """Say why there was no run; if a run has written here, its word stands."""
        if self._path.read_bytes() == self._written:
            said = sentence[:1].upper() + sentence[1:]
            write_atomically(self._path, render_refusal(self._command, self._began_ns, said))
