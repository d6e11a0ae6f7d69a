"""Shards of one night, put together."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import pyarrow as pa

from shalott.core.errors import UsageError
from shalott.harness.fleet.matrix.cells import expand
from shalott.harness.fleet.matrix.journal import (
    NIGHT,
    NIGHTS,
    SUMMARY,
    Journal,
    NightHead,
    read_night,
)
from shalott.harness.fleet.matrix.running import due_once
from shalott.harness.fleet.matrix.summary import told
from shalott.harness.fleet.matrix.written import (
    View,
    before,
    chosen,
    notify,
    summary_of,
    write_files,
)
from shalott.harness.fleet.runs.table import refresh
from shalott.harness.run.provenance import source_of_project


def merge_shards(
    stores: Sequence[Path], out: Path, notify_command: str, tell: Callable[[str], None]
) -> int:
    """The shards of one night, each in a store of its own or all in one, as one summary; the exit
    code. Raises UsageError if they do not belong together or one is missing."""
    journals, tables = [], []
    for store in stores:
        newest = _newest(store)
        journals += newest
        tables.append(refresh(store).table)
    heads = [journal.head for journal in journals]
    _check_shards(heads)
    head = heads[0]
    night = head.matrix.definition.night
    cells = chosen(expand(head.matrix.definition, head.name).cells, head.only)
    table = _distinct_runs(tables)
    view = View(
        head=head,
        cells=cells,
        due=tuple(due_once(cells, 1, 1)),
        earlier=before(table, heads, night.compare_with),
        commit=source_of_project().commit,
        store=out,
    )
    summary = summary_of(view, journals, sum(journal.spent_s for journal in journals))
    outcomes = [one for journal in journals for one in journal.outcomes]
    write_files(out, summary, cells, outcomes, "shalott matrix --merge")
    for line in told(summary):
        tell(line)
    tell(f"Summary: {out / SUMMARY}")
    notify(notify_command, summary, tell)
    return summary.exit_code


def _newest(store: Path) -> list[Journal]:
    """The shards of the night that was begun last in a store."""
    found = [read_night(path.parent) for path in (store / NIGHTS).glob(f"*/{NIGHT}")]
    if not found:
        raise UsageError(f"{store} holds no night")
    last = max(found, key=lambda journal: journal.head.started_wall_ns).head
    return [
        journal
        for journal in found
        if (journal.head.name, journal.head.matrix.digest) == (last.name, last.matrix.digest)
    ]


def _check_shards(heads: Sequence[NightHead]) -> None:
    first = heads[0]
    for head in heads[1:]:
        if (head.matrix.digest, head.shards, head.only, head.repeat, head.deflake) != (
            *(first.matrix.digest, first.shards, first.only, first.repeat, first.deflake),
        ):
            raise UsageError(
                f"nights {first.name} and {head.name} are no shards of one: they were begun with"
                " another file or other flags"
            )
        if head.name != first.name and any(axes.new_seeds for axes in head.matrix.definition.cells):
            raise UsageError("shards with new seeds need one --night: theirs differ")
    shards = sorted(head.shard for head in heads)
    missing = [str(n) for n in range(1, first.shards + 1) if n not in shards]
    if missing:
        raise UsageError(f"shard {', '.join(missing)} of {first.shards} is missing")
    if len(dict.fromkeys(shards)) < len(shards):
        raise UsageError(f"there are several of a shard: {', '.join(map(str, shards))}")


def _distinct_runs(tables: Sequence[pa.Table]) -> pa.Table:
    """The rows of all tables; stores that were copies of one share runs."""
    joined = pa.concat_tables(tables, promote_options="default")
    first: dict[tuple[str, str], int] = {}
    for place, key in enumerate(
        zip(joined["run"].to_pylist(), joined["night"].to_pylist(), strict=True)
    ):
        first.setdefault(key, place)
    return joined.take(pa.array(list(first.values()), pa.int64()))
