"""Coverage: which events a campaign wants to see, and how often one run showed each of them.

After Antithesis' *sometimes* assertions: a search that finds nothing proves little if no mirror was
ever promoted in it. Counted from the history alone: node events, faults that took hold, and what
clients were told.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from shalott.core.history import History
from shalott.core.json_value import Json, JsonObject
from shalott.core.op import NEMESIS

# Node events that count under their own name.
_PLAIN = (
    *("not_promoted", "demoted", "partition", "partial_partition", "paused", "resumed"),
    *("autoheal", "autoheal_lost", "discarded", "stopped", "deleted", "crashed"),
    *("elected", "truncated"),
)
_DETAILED = ("promoted", "sync_done", "wiped", "loss_window")


def sometimes(history: History) -> dict[str, int]:
    counts: Counter[str] = Counter()
    _count_events(history, counts)
    _count_masters(history, counts)
    _count_operations(history, counts)
    return dict(sorted(counts.items()))


def _count_events(history: History, counts: Counter[str]) -> None:
    kinds = pc.value_counts(history.events["kind"])
    for entry in kinds.to_pylist():
        if entry["values"] in _PLAIN:
            counts[entry["values"]] += entry["counts"]
    told = pc.is_in(history.events["kind"], value_set=_strings(_DETAILED))
    for row in history.events.filter(told).select(["kind", "detail"]).to_pylist():
        counts[_detailed_name(row["kind"], _decoded(row["detail"]))] += 1


def _count_masters(history: History, counts: Counter[str]) -> None:
    """Roles and sets of brokers whose groups have slaves."""
    roles = history.events.filter(pc.equal(history.events["kind"], "role"))
    slaves = pc.sum(pc.equal(roles["role"], "slave")).as_py() or 0
    if not slaves:
        return
    masters = roles.filter(pc.equal(roles["role"], "master"))["node"].to_pylist()
    counts["became_slave"] += slaves
    counts["became_master"] += len(masters)
    moves = sum(before != after for before, after in zip(masters, masters[1:], strict=False))
    counts["mastership_moved"] += moves
    changes = history.events.filter(pc.equal(history.events["kind"], "set_changed"))
    size = 0
    for text in changes["detail"].to_pylist():
        members = _length(_decoded(text).get("set"))
        if members != size:
            counts["set_expanded" if members > size else "set_shrunk"] += 1
        size = members
    for name in ("became_master", "mastership_moved"):
        if not counts[name]:
            del counts[name]


def _detailed_name(kind: str, detail: JsonObject) -> str:
    if kind == "promoted":
        return "promoted" if detail.get("synchronised", True) else "promoted_unsynchronised"
    if kind == "sync_done":
        ended_well = detail.get("outcome") in ("complete", "already synchronised")
        return "sync_complete" if ended_well else "sync_interrupted"
    if kind == "wiped":
        return "rejoined_and_wiped" if detail.get("count") else "rejoined_empty"
    return f"loss_window_{str(detail.get('reason', '')).partition(':')[0] or 'unnamed'}"


def _count_operations(history: History, counts: Counter[str]) -> None:
    ops = history.ops
    is_client = pc.not_equal(ops["process"], NEMESIS)
    for entry in pc.value_counts(ops.filter(is_client)["type"]).to_pylist():
        counts[f"client_{entry['values']}"] += entry["counts"]
    redelivered = pc.sum(pc.and_kleene(is_client, ops["redelivered"])).as_py()
    if redelivered:
        counts["redelivered"] += redelivered
    waited = ops.filter(pc.equal(ops["f"], "trigger"))
    for row in waited.select(["extra"]).to_pylist():
        extra = _decoded(row["extra"])
        if extra.get("fired") is not None:
            kind = str(extra.get("waits_for", "")).partition(",")[0].partition("=")[0]
            counts[f"trigger_{kind}" if extra["fired"] else "trigger_never"] += 1
    ours = pc.invert(
        pc.is_in(ops["f"], value_set=_strings(("observe", "probe", "trigger", "phase")))
    )
    for row in ops.filter(pc.and_(pc.invert(is_client), ours)).select(["f", "extra"]).to_pylist():
        extra = _decoded(row["extra"])
        if row["f"] == "operator":
            counts["operator_restart"] += _length(extra.get("restarted"))
        elif "fault" in extra and not extra.get("skipped"):
            name = str(row["f"])
            counts["fault_partition" if name.startswith("partition") else f"fault_{name}"] += 1


def _decoded(extra: str | None) -> JsonObject:
    decoded: JsonObject = msgspec.json.decode(extra) if extra else {}
    return decoded


def _length(value: Json) -> int:
    return len(value) if isinstance(value, Sequence) else 0


def _strings(names: Sequence[str]) -> pa.Array:
    return pa.array(names, pa.string())
