"""Runs of the workloads ``consume`` and ``group`` made up by chance: all rows by the contract."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from shalott.core.history import HISTORY_SCHEMA, History, events_table
from tests.world.harness.report_run import FAULTS, MS, NODES, S

LOAD_S, END_S = 50, 65
LOST = 97  # of a group's run every message whose number it divides is in no log at the end
PHASES = (("load", 0, LOAD_S), ("heal", LOAD_S, 52), ("settle", 52, 55), ("drain", 55, END_S))


@dataclass
class Told:
    """Rows as they come; sorted and numbered when the history is made."""

    rows: list[dict[str, Any]] = field(default_factory=list)

    def add(self, f: str, begin: float, end: float | None, **cells: Any) -> None:
        """``begin`` and ``end`` in ns."""
        extra = cells.pop("extra", None)
        self.rows.append(
            {
                "process": 1, "node": "n1", "f": f, "key": "", "type": "ok",
                "invoke_ns": int(begin), "complete_ns": None if end is None else int(end),
                "extra": None if extra is None else json.dumps(extra), **cells,
            }
        )  # fmt: skip

    def history(self) -> History:
        ordered = sorted(self.rows, key=lambda row: row["invoke_ns"])
        rows = [{"index": index, **row} for index, row in enumerate(ordered)]
        return History(ops=pa.Table.from_pylist(rows, HISTORY_SCHEMA), events=events_table([]))


def surroundings(told: Told) -> None:
    for name, begin, end in PHASES:
        told.add("phase", begin * S, end * S, process=-1, node="", extra={"phase": name})
    for id, kind, target, nodes, links, begin, end in FAULTS:
        told.add(
            kind, begin * S, end * S, process=-1, node="", type="info",
            extra={
                "fault": id, "kind": kind, "target": target, "nodes": list(nodes),
                "links": [list(link) for link in links], "effective_ns": begin * S + 40 * MS,
                "healed_ns": end * S, "proved_effective": True, "proved_healed": True,
            },
        )  # fmt: skip


def consume_run(
    seed: int = 1, queues: Sequence[str] = ("q1", "q2"), consumers: int = 4, messages: int = 3000
) -> History:
    """Consumers that live some seconds and end somehow; what they had not acknowledged comes again.

    ``consumers`` at a time and queue.
    """
    rng = np.random.default_rng(seed)
    told = Told()
    surroundings(told)
    for number, queue in enumerate(queues):
        _queue(told, rng, queue, consumers, messages // len(queues), 10_000_000 * number)
    told.add("blocked", 20 * S, 22 * S, extra={"why": "low on memory", "connection": "c1"})
    told.add("delete-queue", 30 * S, 30.1 * S, key=queues[0])
    return told.history()


@dataclass
class _Consumer:
    name: str
    channel: str
    begin: float
    end: float
    prefetch: int
    tag: int = 0


_ENDS = ("cancelled", "lost", "hung-up", "channel-closed", "cancelled-by-server")


def _queue(
    told: Told, rng: np.random.Generator, queue: str, seats: int, messages: int, first: int
) -> None:
    people: list[_Consumer] = []
    for seat in range(seats):
        at = rng.uniform(0, 2) * S
        while at < 58 * S:
            until = min(60 * S, at + rng.exponential(14) * S + 0.5 * S)
            name = f"{queue}-c{seat}-{len(people)}"
            one = _Consumer(name, f"ch-{name}", at, until, int(rng.choice((1, 10, 50))))
            people.append(one)
            ended = "closed" if until == 60 * S else str(rng.choice(_ENDS))
            extra = {
                "consumer": name, "channel": one.channel, "prefetch": one.prefetch,
                "global": False, "no_ack": False, "active_ns": int(at + MS), "leaving_ns": None,
                "ended": ended, **({"error": "connection reset"} if ended == "lost" else {}),
            }  # fmt: skip
            node = str(rng.choice(NODES))
            told.add("consumer", at, until, key=queue, node=node, extra=extra)
            channel = {"channel": one.channel, "connection": f"co-{name}", "ended": ended}
            if ended.startswith("cancelled"):
                channel["ended"] = "channel-closed"
            told.add("channel", at - MS, until, node=node, extra=channel)
            at = until + rng.uniform(0.2, 2) * S
    for number in range(messages):
        _message(told, rng, queue, people, first + number, rng.uniform(0, LOAD_S) * S)
    for name in (queue, f"{queue}.dead"):
        for node in NODES:
            told.add("dequeue", 59 * S, 59.01 * S, key=name, node=node, type="fail",
                     error="empty", process=2)  # fmt: skip


def _message(
    told: Told, rng: np.random.Generator, queue: str, people: Sequence[_Consumer], value: int,
    at: float,
) -> None:  # fmt: skip
    kind = "ok" if rng.random() < 0.97 else "info"
    told.add("enqueue", at, at + rng.exponential(6) * MS + MS, key=queue, value=value, type=kind)
    chance = rng.random()
    if chance < 0.02:  # half of them are lost
        if chance < 0.01:
            told.add("dequeue", 57 * S, 57.01 * S, key=queue, value=value, process=2)
        return
    at += rng.lognormal(1.5, 1) * MS + (rng.exponential(2) * S if 8 * S < at < 18 * S else 0)
    again = False
    for _ in range(6):
        alive = [one for one in people if one.begin < at < one.end - 10 * MS]
        if not alive:
            return
        one = alive[int(rng.integers(len(alive)))]
        one.tag += 1
        extra = {"consumer": one.name, "channel": one.channel, "tag": one.tag}
        told.add("deliver", at, at, key=queue, value=value, redelivered=again, extra=extra)
        done = at + rng.exponential(0.6) * S
        again = rng.random() < 0.95
        if done >= one.end:
            at = one.end + rng.uniform(1, 400) * MS
            continue
        extra = {"channel": one.channel, "tag": one.tag}
        chance = rng.random()
        if chance < 0.95:
            known = "ok" if chance < 0.9 else "info"
            told.add("ack", done, done + 5 * MS, key=queue, value=value, type=known, extra=extra)
            return
        if chance < 0.96:
            extra |= {"multiple": True, "upto": one.tag}
            told.add("ack", done, done + 5 * MS, key=queue, extra=extra)
            return
        if chance < 0.98:
            told.add("reject", done, done + 5 * MS, key=queue, value=value,
                     extra={**extra, "requeue": False})  # fmt: skip
            if chance < 0.97:
                deaths = [{"queue": queue, "reason": "rejected", "count": 1}]
                told.add("dequeue", 58 * S, 58.01 * S, key=f"{queue}.dead", value=value,
                         process=2, extra={"deaths": deaths})  # fmt: skip
            return
        told.add(
            "nack", done, done + 5 * MS, key=queue, value=value, extra={**extra, "requeue": True}
        )
        at = done + 3 * MS


def group_run(
    seed: int = 1, groups: Sequence[str] = ("g1", "g2"), queues: int = 6, messages: int = 3000
) -> History:
    """Members come and go; at each change the queues are dealt anew."""
    rng = np.random.default_rng(seed)
    told = Told()
    surroundings(told)
    keys = [f"orders/{number}" for number in range(queues)]
    logs: dict[str, list[int]] = {key: [] for key in keys}
    sends = []
    for number in range(messages):
        key, at = str(rng.choice(keys)), rng.uniform(0, LOAD_S) * S
        offset = len(logs[key])
        logs[key].append(number)
        sends.append((key, number, offset, at))
        told.add(
            "send", at, at + rng.exponential(4) * MS + MS, key=key, value=number,
            offset=offset, extra={"tag": str(rng.choice(("a", "b")))},
        )  # fmt: skip
    for group in groups:
        logs |= _group(told, rng, group, keys, sends)
    told.add("reset", 40 * S, 40.1 * S, key=keys[0], offset=0, extra={"group": groups[0]})
    for key, log in logs.items():
        _read_at_the_end(told, key, [at for at in enumerate(log) if at[1] % LOST])
        for group in groups:
            told.add("final-offset", 64 * S, 64.01 * S, key=key, process=2,
                     offset=len(log) - int(rng.integers(0, 3)), extra={"group": group})  # fmt: skip
    return told.history()


def _read_at_the_end(told: Told, key: str, log: Sequence[tuple[int, int]]) -> None:
    """Each node's log to its end. A gap is what compaction leaves: nobody asks for it again."""
    end = log[-1][0] + 1 if log else 0
    for node in NODES:
        records = [list(record) for record in log]
        extra: dict[str, Any] = {"from": 0, "records": records}
        told.add("poll", 62 * S, 62.01 * S, key=key, node=node, value=0, process=2, extra=extra)
        empty: dict[str, Any] = {"from": end, "records": []}
        told.add("poll", 63 * S, 63.01 * S, key=key, node=node, value=end, process=2, type="fail",
                 error="empty", extra=empty)  # fmt: skip


def _group(
    told: Told, rng: np.random.Generator, group: str, keys: Sequence[str],
    sends: Sequence[tuple[str, int, int, float]],
) -> dict[str, list[int]]:  # fmt: skip
    """Returns the group's own logs: retries, and dead letters."""
    cuts = [0.5 * S, *sorted(rng.uniform(5, 50, 4) * S), 61 * S]
    had: list[tuple[str, str, float, float]] = []
    for epoch, (begin, end) in enumerate(zip(cuts, cuts[1:], strict=False)):
        members = [f"{group}-m{epoch // 2}{letter}" for letter in "abc"[: 2 + epoch % 2]]
        for number, key in enumerate([*keys, f"%RETRY%{group}/0"]):
            member = members[number % len(members)]
            late = rng.uniform(0, 0.4) * S
            had.append((member, key, begin + late, end))
            why = str(rng.choice(("rebalanced", "rebalanced", "died", "left")))
            extra = {
                "member": member, "group": group, "why": "committed",
                "ended": "closed" if end == 61 * S else why,
            }  # fmt: skip
            told.add("assignment", begin + late, end, key=key, offset=0, extra=extra)
    names = sorted({member for member, *_ in had})
    for member in names:
        spans = [(begin, end) for who, _, begin, end in had if who == member]
        whole = {"member": member, "group": group, "broadcast": False, "orderly": False,
                 "tags": [], "ended": "left"}  # fmt: skip
        told.add("member", spans[0][0], spans[-1][1], key=group, extra=whole)
    own: dict[str, list[int]] = {f"%RETRY%{group}/0": [], f"%DLQ%{group}/0": []}
    for key, value, offset, sent in sends:
        if value % LOST and rng.random() < 0.99:  # else it is skipped
            _consumed(told, rng, group, had, key, value, offset, sent, own)
    return own


def _consumed(
    told: Told, rng: np.random.Generator, group: str, had: Sequence[tuple[str, str, float, float]],
    key: str, value: int, offset: int, sent: float, own: dict[str, list[int]],
) -> None:  # fmt: skip
    at, times = sent + rng.lognormal(2, 1) * MS, 0
    for _ in range(5):
        member = next((m for m, k, b, e in had if k == key and b < at < e - MS), None)
        if member is None:
            at += 400 * MS
            continue
        outcome = str(rng.choice(("success", "later", "dropped", ""), p=(0.88, 0.08, 0.03, 0.01)))
        extra = {"member": member, "group": group, "outcome": outcome, "reconsumed": times,
                 "tag": "a", "origin": "orders"}  # fmt: skip
        done = at + rng.exponential(60) * MS
        if not outcome:  # its member died, as far as anybody can say
            del extra["outcome"]
        told.add("deliver", at, done if outcome else None, key=key, value=value, offset=offset,
                 redelivered=times > 0, type="ok" if outcome else "info", extra=extra)  # fmt: skip
        if outcome in ("success", ""):
            return
        if outcome == "later":
            back = {"member": member, "group": group, "level": 0, "reconsumed": times}
            told.add("send-back", done, done + 4 * MS, key=key, value=value, offset=offset,
                     extra=back)  # fmt: skip
            times += 1
            key = f"%RETRY%{group}/0" if times < 2 else f"%DLQ%{group}/0"
            offset = len(own[key])
            own[key].append(value)
            if times == 2:
                return
        at = done + 10 * MS + (times and 1 * S)


def large_run(deliveries: int, consumers: int = 120) -> History:
    """Every message published, delivered and acknowledged once, in columns: 3 rows a delivery."""
    number = np.arange(deliveries)
    at = (number * (LOAD_S * S / deliveries)).astype(np.int64)
    who = pa.array((number % consumers).astype(str))
    queue = pc.binary_join_element_wise("q", pa.array((number % 6).astype(str)), "")
    tag = pa.array((number // consumers).astype(str))
    link = pc.binary_join_element_wise('"channel": "ch', who, '", "tag": ', tag, "}", "")
    given = pc.binary_join_element_wise('{"consumer": "c', who, '", ', link, "")
    said = pc.binary_join_element_wise("{", link, "")
    parts = [
        _columns("enqueue", queue, number, at, at + MS, pa.nulls(deliveries, pa.string())),
        _columns("deliver", queue, number, at + 2 * MS, at + 2 * MS, given),
        _columns("ack", queue, number, at + 300 * MS, at + 310 * MS, said),
    ]
    told = Told()
    surroundings(told)
    for each in range(consumers):
        extra = {"consumer": f"c{each}", "channel": f"ch{each}", "prefetch": 10, "ended": "closed"}
        told.add("consumer", 0, 60 * S, key=f"q{each % 6}", extra={**extra, "active_ns": MS})
        told.add("channel", 0, 60 * S, extra=extra)
    small = told.history()
    ops = pa.concat_tables([small.ops, *parts]).sort_by("invoke_ns")
    return History(
        ops=ops.set_column(0, HISTORY_SCHEMA.field("index"), pa.array(np.arange(len(ops)))),
        events=small.events,
    )


def _columns(
    f: str, queue: pa.Array, value: Any, begin: Any, end: Any, extra: pa.Array
) -> pa.Table:  # fmt: skip
    count = len(queue)
    return pa.Table.from_arrays(
        [
            pa.array(np.zeros(count, np.int64)),
            pa.array(np.ones(count, np.int32)),
            *(pa.repeat(pa.scalar(text), count) for text in ("n1", f)),
            queue,
            pa.array(value),
            pa.nulls(count, pa.int64()),
            pa.repeat(pa.scalar("ok"), count),
            pa.array(begin),
            pa.array(end),
            pa.nulls(count, pa.bool_()),
            pa.nulls(count, pa.string()),
            extra,
            pa.nulls(count, pa.int64()),
        ],
        schema=HISTORY_SCHEMA,
    )
