"""What report.html, results.json and junit.xml say of a run besides its results."""

from __future__ import annotations

import msgspec


class ReportMeta(msgspec.Struct, frozen=True, kw_only=True):
    """Known to the harness alone."""

    command: str  # repeats the run
    started_wall_ns: int
    elapsed_ns: int = 0  # the whole run, boot to checks
    versions: dict[str, str] = {}  # shalott, python, the system, docker, ...
    notes: tuple[str, ...] = ()  # which backend was chosen and why, what was cut short, ...
    directory: str = ""  # the run's directory, as the user would type it
