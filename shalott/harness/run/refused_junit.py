"""What ``--junit FILE`` holds of a command line that has not become a run.

It is written before anything heavy is imported, as an error that says that the run did not end, so
that a harness that is killed at any moment leaves one; a refusal replaces it with its sentence. The
runs themselves replace it with theirs (harness/run/junit_file.py).
"""

from __future__ import annotations

import shlex
import time
from collections.abc import Sequence
from pathlib import Path

from shalott.core.errors import StoreError, UsageError
from shalott.harness.report.junit import NOT_ENDED, render_refusal
from shalott.harness.run.atomic_file import write_atomically


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
