"""The columns of ``runs.parquet``: one schema, for who writes the table and for all who read it.

A row is a run, a finding of a search, or a campaign of a search (``kind``). What a run's files do
not say is null: nothing is guessed, and nothing that is missing keeps a run out.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa

Row = dict[str, Any]  # of the table, as Python has it
SCHEMA_VERSION = 1
TABLE = "runs.parquet"
RUN, FINDING, CAMPAIGN = "run", "finding", "campaign"

ANOMALY = pa.struct(
    [("checker", pa.string()), ("kind", pa.string()), ("count", pa.int64()), ("broken", pa.bool_())]
)
BUCKET = pa.struct([("bucket", pa.int32()), ("count", pa.int64())])
_TEXTS = pa.list_(pa.string())

# (name, Arrow type, nullable, meaning)
COLUMNS: tuple[tuple[str, pa.DataType, bool, str], ...] = (
    ("run", pa.string(), False, "the directory, relative to the store"),
    ("kind", pa.string(), False, "run, finding (of a search: chosen, no sample) or campaign"),
    ("name", pa.string(), True, "the plan's"),
    ("started_wall_ns", pa.int64(), True, "when it was made, by the true UTC clock"),
    ("virtual_started_ns", pa.int64(), True, "of simulations: what their own clock showed then"),
    ("elapsed_ns", pa.int64(), True, "real time from boot to the checks"),
    ("iteration", pa.int32(), True, "which of the runs that one command made"),
    ("commit", pa.string(), True, "of this project; null if it is not known"),
    ("tree", pa.string(), True, "clean or changed"),
    ("shalott", pa.string(), True, "its version"),
    ("tested", pa.string(), True, "JSON: all that results.json says of what was tested"),
    ("image", pa.string(), True, "the nodes' image; null if there is none"),
    ("image_digest", pa.string(), True, "a registry's; null if there is none"),
    ("system", pa.string(), True, ""),
    ("profile", pa.string(), True, ""),
    ("workload", pa.string(), True, ""),
    ("cluster", pa.string(), True, "the world: docker, local, ssh, sim"),
    ("backend", pa.string(), True, "the same, by the plan's word for it"),
    ("nodes", pa.int32(), True, "how many"),
    ("seed", pa.int64(), True, ""),
    ("parameters", pa.string(), True, "JSON: workload, system, policy, layout and gates"),
    ("bugs", _TEXTS, True, "known bugs that were switched on"),
    ("nemesis", _TEXTS, True, "kinds of faults in the plan, sorted"),
    ("faults_made", pa.int32(), True, "faults that took effect"),
    ("faults_skipped", pa.int32(), True, ""),
    ("faults_unproved", pa.int32(), True, ""),
    ("rate_asked_hz", pa.float64(), True, ""),
    ("rate_reached_hz", pa.float64(), True, "operations begun in the load"),
    ("rate_acknowledged_hz", pa.float64(), True, ""),
    ("concurrency", pa.int32(), True, "clients"),
    ("time_limit_ns", pa.int64(), True, "of the load"),
    ("valid", pa.string(), True, "true, false or unknown; null: it has no verdict (yet)"),
    ("complete", pa.bool_(), True, "false: the recording was cut short"),
    ("failed_checkers", _TEXTS, True, "that said no"),
    ("unknown_checkers", _TEXTS, True, "that could not say"),
    ("anomalies", pa.list_(ANOMALY), True, "broken: because of this kind the checker said no"),
    ("acknowledged", pa.int64(), True, "messages"),
    ("lost", pa.int64(), True, "acknowledged messages that are gone"),
    ("lost_unexplained", pa.int64(), True, "of them, by no documented window"),
    ("recovered", pa.int64(), True, ""),
    ("duplicated", pa.int64(), True, ""),
    ("redelivered", pa.int64(), True, ""),
    ("dual_master_claimed", pa.int64(), True, "times"),
    ("dual_master_effective", pa.int64(), True, "times"),
    ("rto_ms", pa.float64(), True, "longest time from a fault to the next acknowledgement"),
    ("never_recovered", pa.int32(), True, "faults after which nothing was acknowledged"),
    ("rpo_messages", pa.int64(), True, "messages acknowledged and lost"),
    ("unavailable_ms_max", pa.float64(), True, "longest time without an acknowledgement"),
    ("latency", pa.list_(BUCKET), True, "of acknowledged operations (store/run_row.py)"),
    ("latency_p50_ms", pa.float64(), True, ""),
    ("latency_p99_ms", pa.float64(), True, ""),
    ("harness_failures", _TEXTS, True, "the harness's own: no verdict on the system"),
    ("headline", pa.string(), True, "the verdict as a sentence"),
    ("command", pa.string(), True, "repeats it"),
    ("tags", pa.string(), True, "JSON: what --tag said"),
    ("night", pa.string(), False, "of a matrix: which night; empty otherwise"),
    ("cell", pa.string(), False, "of a matrix: which cell; empty otherwise"),
    ("campaign", pa.string(), False, "of findings and campaigns: the search's name"),
    ("seeds_wanted", pa.int64(), True, "of campaigns"),
    ("seeds_judged", pa.int64(), True, "of campaigns: the denominator of the next three"),
    ("seeds_valid", pa.int64(), True, ""),
    ("seeds_invalid", pa.int64(), True, ""),
    ("seeds_unknown", pa.int64(), True, ""),
    ("seeds_not_booted", pa.int64(), True, "of campaigns: did not reach their end"),
    ("unreadable", _TEXTS, False, "sentences: which of its files could not be read"),
    ("files_changed_ns", pa.int64(), False, "newest of the files that the row was made from"),
    ("schema_version", pa.int32(), False, ""),
)

RUNS_SCHEMA = pa.schema(
    [pa.field(name, kind, nullable=null) for name, kind, null, _ in COLUMNS],
    metadata={"shalott.table": "runs", "shalott.version": str(SCHEMA_VERSION)},
)
