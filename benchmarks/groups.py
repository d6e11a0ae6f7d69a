"""How fast the checkers of consumer groups judge: ``python benchmarks/groups.py [deliveries]``.

The history is built column by column: four groups (concurrent, orderly, with tags, broadcast) of
four members each over 16 queues, deliveries with their commits, locks and send-backs, three nodes'
final reads. Nothing is wrong with it. Prints rows, seconds of all checkers together and of each,
and the machine's load.
"""

from __future__ import annotations

import json
import os
import resource
import sys
import time

import numpy as np
import pyarrow as pa

from shalott.checkers.groups.group_checkers import group_checkers
from shalott.checkers.groups.group_rules import Group, GroupRules
from shalott.core.history import EVENT_SCHEMA, HISTORY_SCHEMA, History

QUEUES = 16
MEMBERS = 4
MS = 1_000_000
BATCH = 200  # messages a poll
COMMIT_EVERY = 50  # deliveries of a queue
GROUPS = (
    Group(name="concurrent", topics=("bench",)),
    Group(name="orderly", topics=("bench",), orderly=True),
    Group(name="tagged", topics=("bench",), tags=("tag0", "tag1")),
    Group(name="broadcast", topics=("bench",), broadcast=True),
)


class Columns:
    """Blocks of rows, put in order of time at the end."""

    def __init__(self) -> None:
        self._blocks: list[pa.Table] = []
        self.end_ns = 0

    def add(
        self, f: str, begin_ns: np.ndarray, *, key: np.ndarray | str = "", **more: object
    ) -> None:
        """Rows of one kind; what is not given is null, or of every row the same."""
        count = len(begin_ns)
        defaults: dict[str, object] = {
            "process": 1, "node": "n1", "f": f, "key": key, "type": "ok", "invoke_ns": begin_ns,
            "complete_ns": begin_ns + MS,
        }  # fmt: skip
        given = defaults | more
        columns = [pa.array(np.zeros(count, np.int64))]
        for field in list(HISTORY_SCHEMA)[1:]:
            value = given.get(field.name)
            if value is None:
                columns.append(pa.nulls(count, field.type))
            elif isinstance(value, (np.ndarray, list)):
                columns.append(pa.array(value, field.type))
            else:
                columns.append(pa.array(np.full(count, value), field.type))
        self._blocks.append(pa.Table.from_arrays(columns, schema=HISTORY_SCHEMA))
        self.end_ns = max(self.end_ns, int(begin_ns.max(initial=0)) + MS)

    def history(self, phases: list[tuple[str, int, int]]) -> History:
        for name, begin_ns, end_ns in phases:
            told, end = [json.dumps({"phase": name})], np.array([end_ns])
            self.add(
                "phase", np.array([begin_ns]), process=-1, node="", complete_ns=end, extra=told
            )
        table = pa.concat_tables(self._blocks).sort_by("invoke_ns").combine_chunks()
        index = pa.array(np.arange(table.num_rows))
        table = table.set_column(0, HISTORY_SCHEMA.field(0), index)
        return History(ops=table, events=EVENT_SCHEMA.empty_table())


def build(deliveries: int) -> tuple[History, GroupRules]:
    """A history with about so many deliveries."""
    # Of a message: two to the clustering groups, two thirds of one to the tagged, four broadcasts.
    messages = int(deliveries / (2 + 2 / 3 + MEMBERS)) // QUEUES * QUEUES
    number = np.arange(messages)
    queue, offset = number % QUEUES, number // QUEUES
    keys = np.array([f"bench/{each}" for each in range(QUEUES)])
    begin_ns = 1000 * MS + number * MS // 4
    tag = number % 3
    columns = Columns()
    said = np.array([json.dumps({"tag": f"tag{each}"}) for each in range(3)])
    columns.add("send", begin_ns, key=keys[queue], value=number + 1, offset=offset, extra=said[tag])
    load_ns = columns.end_ns + 1000 * MS
    for group in GROUPS:
        wanted = np.flatnonzero(tag < 2) if group.tags else number
        members = range(MEMBERS) if group.broadcast else [None]
        for member in members:
            _group(columns, group, member, wanted, begin_ns, load_ns)
    _final(columns, keys, messages, load_ns + 2000 * MS)
    end_ns = columns.end_ns
    phases = [("load", 0, load_ns), ("heal", load_ns, load_ns), ("drain", load_ns, end_ns)]
    rules = GroupRules(groups=GROUPS, queues=tuple(keys.tolist()), levels_ms=(1000, 5000))
    return columns.history(phases), rules


def _group(
    columns: Columns,
    group: Group,
    member: int | None,
    wanted: np.ndarray,
    begin_ns: np.ndarray,
    load_ns: int,
) -> None:
    """One group's rows, or one member's of a broadcast."""
    queue, offset = wanted % QUEUES, wanted // QUEUES
    who = np.full(len(wanted), member) if member is not None else queue % MEMBERS
    words = [{"member": f"{group.name}-{one}", "group": group.name} for one in range(MEMBERS)]
    said = np.array([json.dumps(one | {"outcome": "success", "reconsumed": 0}) for one in words])
    key = np.array([f"bench/{each}" for each in range(QUEUES)])
    columns.add("deliver", begin_ns[wanted] + 2 * MS, key=key[queue], value=wanted + 1,
                offset=offset, extra=said[who])  # fmt: skip
    for one in range(MEMBERS) if member is None else [member]:
        words_ = words[one] | {"broadcast": group.broadcast, "orderly": group.orderly}
        columns.add("member", np.array([500 * MS]), key=group.name,
                    complete_ns=np.array([load_ns + 1000 * MS]),
                    extra=[json.dumps(words_ | {"ended": "left"})])  # fmt: skip
        own = range(QUEUES) if member is not None else range(one, QUEUES, MEMBERS)
        for each in own:
            told = [json.dumps(words[one] | {"why": "first", "ended": "left"})]
            columns.add(
                "assignment",
                np.array([600 * MS]),
                key=f"bench/{each}",
                complete_ns=np.array([load_ns + 1000 * MS]),
                offset=np.array([0]),
                extra=told,
            )
    if member is not None:
        return
    plain = np.array([json.dumps(one) for one in words])
    some = np.flatnonzero(offset % COMMIT_EVERY == 0)
    columns.add("commit", begin_ns[wanted[some]] + 4 * MS, key=key[queue[some]],
                offset=offset[some] + 1, extra=plain[who[some]])  # fmt: skip
    last = np.array([offset[queue == each].max() + 1 for each in range(QUEUES)])
    columns.add("commit", np.full(QUEUES, load_ns + 900 * MS), key=key, offset=last,
                extra=plain[np.arange(QUEUES) % MEMBERS])  # fmt: skip
    columns.add("final-offset", np.full(QUEUES, load_ns + 9000 * MS), key=key, offset=last,
                extra=[json.dumps({"group": group.name})] * QUEUES)  # fmt: skip
    if group.orderly:
        held = np.array([json.dumps(one | {"held": True}) for one in words])
        times = np.arange(590 * MS, load_ns, 10_000 * MS)
        asked = np.repeat(times, QUEUES)
        places = np.tile(np.arange(QUEUES), len(times))
        columns.add("lock", asked, key=key[places], extra=held[places % MEMBERS])


def _final(columns: Columns, keys: np.ndarray, messages: int, at_ns: int) -> None:
    """Every queue at every node, in batches."""
    extras = [f"%RETRY%{g.name}/0" for g in GROUPS] + [f"%DLQ%{g.name}/0" for g in GROUPS]
    for node in ("n1", "n2", "n3"):
        for number, key in enumerate([*keys.tolist(), *extras]):
            mine = np.arange(number, messages, QUEUES) if number < QUEUES else np.arange(0)
            rows = []
            for start in range(0, len(mine), BATCH):
                records = [[start + at, int(each) + 1]
                           for at, each in enumerate(mine[start : start + BATCH])]  # fmt: skip
                rows.append(json.dumps({"from": start, "records": records}))
            count = len(rows)
            columns.add("poll", np.full(count, at_ns), key=key, node=node, extra=rows)
            empty = json.dumps({"from": len(mine), "records": []})
            columns.add("poll", np.array([at_ns + MS]), key=key, node=node, extra=[empty],
                        type="fail", error="empty")  # fmt: skip


def main() -> None:
    deliveries = int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000
    history, rules = build(deliveries)
    before_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    rows = int((history.ops["f"].to_numpy() == "deliver").sum())
    print(f"{history.ops.num_rows:,} rows, {rows:,} deliveries; load {os.getloadavg()[0]:.1f}")
    total = total_cpu = 0.0
    for checker in group_checkers(rules):
        begun, cpu_begun = time.perf_counter(), time.process_time()
        result = checker.check(history)
        seconds, cpu = time.perf_counter() - begun, time.process_time() - cpu_begun
        assert result.valid is True, (result.checker, result.notes, result.anomalies)
        total, total_cpu = total + seconds, total_cpu + cpu
        print(f"{checker.name:20} {seconds:.3f} s ({cpu:.3f} s CPU)")
    peak_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"all checkers: {total:.2f} s ({total_cpu:.2f} s CPU)")
    print(f"peak memory {peak_mb:.0f} MiB, of which {before_mb:.0f} MiB before the checks")


if __name__ == "__main__":
    main()
