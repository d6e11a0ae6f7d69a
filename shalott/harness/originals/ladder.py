"""The ladder: every row, and finding one."""

from __future__ import annotations

import difflib

from shalott.broker.known_bugs import known_bug
from shalott.core.errors import UsageError
from shalott.harness.originals.controller_rows import CONTROLLER_ROWS
from shalott.harness.originals.replication_rows import REPLICATION_ROWS
from shalott.harness.originals.row import Row
from shalott.harness.originals.undecided_rows import UNDECIDED_ROWS


def _family(row_id: str) -> str:
    return row_id.rpartition("-")[0] if row_id.startswith("KB") else row_id[0]


LADDER: tuple[Row, ...] = tuple(
    sorted(
        (*REPLICATION_ROWS, *CONTROLLER_ROWS, *UNDECIDED_ROWS),
        key=lambda row: (("KB-RKT", "KB-DL", "M", "W").index(_family(row.id)), row.id),
    )
)


def title_of(row: Row) -> str:
    """The row's own, or the catalogue's."""
    return row.title or known_bug(row.id).title


def links_of(row: Row) -> tuple[str, ...]:
    if row.links or row.title:
        return row.links
    return known_bug(row.id).links


def find_row(row_id: str) -> Row:
    """Raises UsageError, naming near ones or all."""
    by_id = {row.id: row for row in LADDER}
    if row_id.upper() in by_id:
        return by_id[row_id.upper()]
    near = difflib.get_close_matches(row_id.upper(), by_id, n=3, cutoff=0.7)
    advice = f"did you mean {' or '.join(near)}?" if near else f"there are {', '.join(by_id)}"
    raise UsageError(f"the ladder has no {row_id}: {advice}")
