"""`shalott bugs --original`: the ladder of RocketMQ's known bugs, run on its own releases."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from rich.console import Console
from rich.text import Text

from shalott.core.errors import UsageError
from shalott.harness.originals.document import DOCUMENT, write_document
from shalott.harness.originals.evidence import Look, load_looks
from shalott.harness.originals.ladder import LADDER, find_row
from shalott.harness.originals.row import RELEASES, Row
from shalott.harness.originals.running import LadderRequest, run_in_store, run_ladder


def run_originals(
    bug: str | None, asked: LadderRequest, directory: Path, store: Path, console: Console
) -> None:
    """Run what is missing of one row, or of all, and write the document. Raises UsageError."""
    rows = LADDER if bug is None else (_row_with_plan(bug),)
    if asked.repeat < 1:
        raise UsageError(f"--repeat {asked.repeat}: give 1 or more")
    if asked.version and asked.version not in RELEASES:
        raise UsageError(f"--version {asked.version}: there are {', '.join(RELEASES)}")

    def tell(row: Row, look: Look) -> None:
        found = "found" if look.found else f"void: {look.void}" if look.void else "not found"
        where = f"{look.side} on {look.release}, load {look.load:.1f}"
        console.print(Text(f"{row.id}: {found} ({where}); {', '.join(look.classes) or 'valid'}"))

    run_plan = partial(run_in_store, store_root=store)
    write_document(directory, run_ladder(rows, asked, run_plan, directory, tell))
    console.print(Text(f"{directory / DOCUMENT} is written."))


def document_originals(directory: Path, console: Console) -> None:
    """Write docs/originals.md from what was run before."""
    write_document(directory, load_looks(directory))
    console.print(Text(f"{directory / DOCUMENT} is written."))


def _row_with_plan(bug: str) -> Row:
    row = find_row(bug)
    if row.same_as:
        return find_row(row.same_as)
    if row.setup is None:
        raise UsageError(f"{row.id} has no plan: it waits for {row.waits_for}")
    return row
