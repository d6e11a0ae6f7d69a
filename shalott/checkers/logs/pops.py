"""pops: what a group that pops messages was given (clients/rocketmq/pops.py).

A ``pop`` row has {"popped": [[key, offset, value], ...], "acked": [[key, offset], ...], "unsure":
[...], "broker": who gave them}. Found are: acked-again, what was acknowledged, and the broker said
so, is given from the same place again; pop-lost, an acknowledged message that was not acknowledged
by the group when nothing more came; early, one that came again before its time was up, in a run of
one master whose clock nothing disturbs; phantom, one whose send had failed.

What is given and not acknowledged may come more than once: each time it has a place of its own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import msgspec
import numpy as np

from shalott.checkers.checker import OPERATIONS_MAX, Anomaly, Result
from shalott.checkers.history.faults import read_surroundings
from shalott.checkers.logs.records import FAIL, LogHistory, read_log
from shalott.core.history import History

INVISIBLE_NS = 2_700_000_000  # nine tenths of what the client asks for
QUIET_NS = 10_000_000_000  # without a message, and then none comes
RETRY = "%RETRY%"
KINDS = ("acked-again", "pop-lost", "early", "phantom")

Place = tuple[str, int]


class _Said(msgspec.Struct):
    popped: list[tuple[str, int, int | None]] = []
    acked: list[tuple[str, int]] = []
    unsure: list[tuple[str, int]] = []
    broker: str = ""


@dataclass(frozen=True, slots=True)
class Pop:
    """One that was answered. ``index``: in the history."""

    index: int
    begin_ns: int
    end_ns: int
    said: _Said


@dataclass(frozen=True, slots=True)
class Pops:
    name: str = "pops"

    def check(self, history: History) -> Result:
        log = read_log(history)
        pops = _pops(log, history)
        is_drained = _is_drained(log, pops)
        around = read_surroundings(history)
        clocks = any(fault.kind.startswith("clock") for fault in around.injected)
        found = [
            *_acked_again(pops),
            *(_lost(log, pops) if is_drained else ()),
            *(() if clocks else _early(log, pops)),
            *_phantoms(log, pops),
        ]
        counts = {f"{kind}-count": sum(kind == one[0] for one in found) for kind in KINDS}
        notes = () if is_drained else ("The group was not given everything at the end.",)
        return Result(
            checker=self.name,
            valid=False if found else ("unknown" if notes else True),
            counts={
                "pop-count": len(pops),
                "popped-count": sum(len(pop.said.popped) for pop in pops),
                "acked-count": sum(len(pop.said.acked) for pop in pops),
                **counts,
            },
            anomalies=tuple(_anomaly(kind, found) for kind in KINDS if counts[f"{kind}-count"]),
            notes=notes,
        )


def _pops(log: LogHistory, history: History) -> list[Pop]:
    ops = log.ops
    table = history.ops
    extra = table.filter(table["process"].to_numpy() >= 0)["extra"]
    decoder = msgspec.json.Decoder(_Said)
    return [
        Pop(
            int(ops.index[row]),
            int(ops.invoke_ns[row]),
            int(ops.complete_ns[row]),
            decoder.decode(extra[row].as_py() or "{}"),
        )
        for row in np.flatnonzero(ops.f.equal("pop") & ops.type.equal("ok")).tolist()
    ]


def _is_drained(log: LogHistory, pops: Sequence[Pop]) -> bool:
    """Whether the last pops found nothing for so long, and none failed meanwhile; a pop of which
    nothing is known may have acknowledged what it was given."""
    ops = log.ops
    if (ops.f.equal("pop") & ops.type.equal("info")).any():
        return False
    asked = np.flatnonzero(ops.f.equal("pop"))
    empty = {pop.index for pop in pops if not pop.said.popped}
    last = [row for row in asked.tolist() if int(ops.index[row]) not in empty]
    begin_ns = int(ops.complete_ns[last[-1]]) if last else 0
    return bool(len(asked)) and int(ops.invoke_ns[asked[-1]]) - begin_ns >= QUIET_NS


Found = tuple[str, str, tuple[int, ...]]  # kind, sentence, rows


def _acked_again(pops: Sequence[Pop]) -> list[Found]:
    acked: dict[Place, Pop] = {}
    for pop in pops:
        for key, offset in pop.said.acked:
            acked.setdefault((key, offset), pop)
    found = list[Found]()
    for pop in pops:
        for key, offset, value in pop.said.popped:
            before = acked.get((key, offset))
            if before is not None and before.end_ns < pop.begin_ns:
                text = f"message {value} at offset {offset} of {key} was given again"
                text += f" {(pop.begin_ns - before.end_ns) / 1e9:.1f} s after it was acknowledged"
                found.append(("acked-again", text, (before.index, pop.index)))
    return found


def _lost(log: LogHistory, pops: Sequence[Pop]) -> list[Found]:
    done: dict[int | None, None] = {}
    for pop in pops:
        ended = dict.fromkeys([*pop.said.acked, *pop.said.unsure])
        done |= {value: None for key, offset, value in pop.said.popped if (key, offset) in ended}
    sends = log.sends
    return [
        (
            "pop-lost",
            f"message {sends.value[row]} was acknowledged, and the group never was done with it",
            (int(log.ops.index[sends.row[row]]),),
        )
        for row in np.flatnonzero(sends.is_acked).tolist()
        if int(sends.value[row]) not in done
    ]


def _early(log: LogHistory, pops: Sequence[Pop]) -> list[Found]:
    """Copies that came too soon after their message. Of a transaction two may be there, another
    master has another clock, and fillers of a batch have no value that tells them apart."""
    if len({pop.said.broker for pop in pops}) > 1:
        return []
    found, given = list[Found](), dict[int | None, Pop]()
    twice = dict.fromkeys(log.sends.value[log.sends.is_transaction].tolist())
    for pop in sorted(pops, key=lambda pop: pop.begin_ns):
        for key, _, value in pop.said.popped:
            before = None if value is None else given.get(value)
            if not key.startswith(RETRY):
                given[value] = pop
            elif before and value not in twice and pop.end_ns < before.begin_ns + INVISIBLE_NS:
                text = f"message {value} was given again after"
                text += f" {(pop.end_ns - before.begin_ns) / 1e9:.1f} s"
                found.append(("early", text, (before.index, pop.index)))
    return found


def _phantoms(log: LogHistory, pops: Sequence[Pop]) -> list[Found]:
    failed = dict.fromkeys(log.sends.value[log.sends.outcome == FAIL].tolist())
    return [
        ("phantom", f"message {value} was given, and its send had failed", (pop.index,))
        for pop in pops
        for _, _, value in pop.said.popped
        if value in failed
    ]


def _anomaly(kind: str, found: Sequence[Found]) -> Anomaly:
    own = [one for one in found if one[0] == kind]
    rows = dict.fromkeys(row for _, _, rows in own for row in rows)
    first = f"1 {kind}: " if len(own) == 1 else f"{len(own)} {kind}, the first: "
    detail: Mapping[str, object] = {"count": len(own)}
    return Anomaly(
        kind=kind,
        summary=first + own[0][1],
        operations=tuple(rows)[:OPERATIONS_MAX],
        detail=dict(detail),
    )
