"""The tables of a report over many runs: their columns, the same for each engine.

One table a job; docs/how-to/report-on-many-runs.md tells each column. Times are int64 nanoseconds
from the run's start, ids are signed. A column's place and type are a contract: files of different
nights are read as one.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import pyarrow as pa

Row = dict[str, Any]  # of one of the tables below, as Python has it
OPERATIONS_MAX = 32  # evidence kept of one kind, run and lane

_TEXT, _LONG = pa.string(), pa.int64()
_TEXTS, _LONGS = pa.list_(_TEXT), pa.list_(_LONG)


def _schema(**columns: pa.DataType) -> pa.Schema:
    return pa.schema([pa.field(name, kind) for name, kind in columns.items()])


def _of(kind: pa.DataType, *names: str) -> dict[str, pa.DataType]:
    return dict.fromkeys(names, kind)


# Outcomes of messages are those of checkers/queues/outcomes.py.
MESSAGE_OUTCOMES = (
    *("delivered_once", "recovered", "lost", "duplicated", "redelivered", "phantom"),
    "not_enqueued",
)
EVIDENCE = ("lost", "duplicated", "phantom", "unexpected")
OF_LOGS = ("unseen", "lost_on_node", "vanished")  # of replicated logs alone; null elsewhere

# One row a run and queue that any message or delivery names.
LOST_MESSAGES = _schema(
    run=_TEXT,
    queue=_TEXT,
    **_of(_LONG, "attempts", "acknowledged", *MESSAGE_OUTCOMES),
    **_of(_LONG, "unexpected", "corrupted", "too_early", *OF_LOGS),
    **_of(_LONGS, *(f"{kind}_operations" for kind in EVIDENCE)),
)

# Of runs with consumers: one row a run and queue (kind consume) or consumer group (kind group).
CONSUMED_COUNTS = (
    *("attempts", "acknowledged", "deliveries", "again", "again_unflagged"),
    *("consumed", "drained", "dead_lettered", "unsure", "skipped", "gone", "lost"),
)
CONSUMED_EVIDENCE = ("lost", "skipped", "again")
CONSUMED = _schema(
    **_of(_TEXT, "run", "kind", "lane"),
    **_of(_LONG, *CONSUMED_COUNTS),
    **_of(_LONGS, *(f"{kind}_operations" for kind in CONSUMED_EVIDENCE)),
)

# One row for two nodes that were masters of one group at once; times are null where only the epoch
# is shared. kind: claimed, effective; witness: events, observed, epoch.
DUAL_MASTERS = _schema(
    **_of(_TEXT, "run", "group", "kind", "witness"),
    nodes=_TEXTS,
    **_of(_LONG, "begin_ns", "end_ns", "epoch"),
    evidence=_LONGS,
)

# One row a run, group and kind: how often, and how long without counting any instant twice.
TENURE_TIMES = _schema(
    **_of(_TEXT, "run", "group", "kind"), **_of(_LONG, "overlaps", "stretches", "total_ns")
)

# Queues that can't be known to be empty at the end.
UNDRAINED = _schema(**_of(_TEXT, "run", "queue", "why"))

# What came more than once. kind: queue, consume, group; lane: a queue or a group.
REDELIVERIES = _schema(
    **_of(_TEXT, "run", "kind", "lane"),
    **_of(_LONG, "deliveries", "again", "unflagged", "by_one_master", "most"),
)

# Why deliveries of consumers came again, by the checkers' words; lane "": all queues of the run.
REDELIVERY_CAUSES = _schema(**_of(_TEXT, "run", "kind", "lane", "cause"), deliveries=_LONG)

# kind load: the longest stretch of each queue without an acknowledgement; kind fault: one row a
# fault, with its longest stretch and how long nothing was acknowledged from when it took hold.
UNAVAILABILITY = _schema(
    **_of(_TEXT, "run", "kind", "fault", "target", "queue"),
    **_of(_LONG, "fault_id", "effective_ns", "healed_ns", "begin_ns", "end_ns", "gap_ns"),
    **_of(_LONG, "recovery_ns", "operations", "acknowledged"),
)

# One row a run, lane and kind of breach, and one with no breach ("") for each lane that was judged.
ORDER = _schema(
    **_of(_TEXT, "run", "kind", "lane", "breach"),
    **_of(_LONG, "judged", "count"),
    operations=_LONGS,
)

# One row a run and queue (kind consume) or group: the longest time without a delivery while its
# consumers were there, who was stuck, and what a group passed over.
CONSUMER_GAPS = _schema(
    **_of(_TEXT, "run", "kind", "lane"),
    **_of(_LONG, "deliveries", "longest_ns", "begin_ns", "end_ns", "stuck", "skipped"),
    skipped_operations=_LONGS,
)

# Of log systems: one row a run and group.
ELECTIONS = _schema(
    **_of(_TEXT, "run", "group"),
    **_of(_LONG, "elections", "masters", "epoch_max", "epoch_regressions", "acked_while_deposed"),
    **_of(_LONG, "misheard", "truncations", "truncated", "truncated_most", "cut_acknowledged"),
)

# One row a run and object. valid: true, false or unknown.
LINEARIZABILITY = _schema(
    **_of(_TEXT, "run", "object", "model", "valid", "how", "reason"),
    judged=_LONG,
    operations=_LONGS,
)

# Runs whose files could not be read when it came to that.
PROBLEMS = _schema(**_of(_TEXT, "run", "why"))

TABLES: Final[Mapping[str, pa.Schema]] = {
    "lost_messages": LOST_MESSAGES,
    "consumed_messages": CONSUMED,
    "dual_masters": DUAL_MASTERS,
    "tenure_times": TENURE_TIMES,
    "undrained": UNDRAINED,
    "redeliveries": REDELIVERIES,
    "redelivery_causes": REDELIVERY_CAUSES,
    "unavailability": UNAVAILABILITY,
    "order": ORDER,
    "consumer_gaps": CONSUMER_GAPS,
    "elections": ELECTIONS,
    "linearizability": LINEARIZABILITY,
    "problems": PROBLEMS,
}
BY_SQL: Final = ("lost_messages", "consumed_messages", "dual_masters", "tenure_times", "undrained")


def sort_table(name: str, table: pa.Table) -> pa.Table:
    """By run, then by what else names a row, so that equal stores give equal files."""
    keys = [each.name for each in TABLES[name] if each.type == _TEXT]
    numbers = [n for n in ("fault_id", "begin_ns", "end_ns") if n in TABLES[name].names]
    return table.sort_by([(key, "ascending") for key in (*keys, *numbers)])
