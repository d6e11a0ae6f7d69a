"""group-reads: whether a group of consumers was given every message.

A group goes on where it committed, and a client commits what it was given and no more. So each
message of a log is given to some member, if not twice: one that no member was given, though the
group was given what stands behind it, is ``skipped``. What it had committed need not come again.
What stands behind all that it was given may come yet, unless the group was read to its end after
the heal: then it is ``withheld``, which is no proof, since a group may be slow to share its keys.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from shalott.checkers.checker import OPERATIONS_MAX, Anomaly, Result
from shalott.checkers.partitions.final_reads import VALUES_MAX, Row, final_reads, rows_of
from shalott.core.history import History

WORDS: Final = {
    "skipped": ("the group was not given 1 message", "the group was not given {n} messages"),
}


@dataclass(slots=True)
class _Group:
    """By key: what members were given, by offset, with the first operation that gave it."""

    given: dict[int, dict[int, int]] = field(default_factory=dict)
    again: int = 0
    commits: int = 0
    members: int = 0
    subscribed: dict[int, bool] = field(default_factory=dict)  # by process, as it was last

    def take(self, row: Row) -> None:
        if row.f in ("assign", "subscribe") and row.type == "ok":
            self.subscribed[row.process] = row.f == "subscribe"
            self.members += row.f == "subscribe"
        elif row.f == "commit":
            self.commits += row.type == "ok"
        elif row.type == "ok" and self.subscribed.get(row.process):
            for key, offset, _ in row.polled:
                known = self.given.setdefault(key, {})
                self.again += offset in known
                known.setdefault(offset, row.index)


@dataclass(frozen=True, slots=True)
class GroupReads:
    name: str = "group-reads"

    def check(self, history: History) -> Result:
        group, logs = _Group(), dict[int, dict[int, tuple[int, int]]]()
        for row in rows_of(history):
            group.take(row)
            for key, offset, value in row.polled if row.type == "ok" else ():
                logs.setdefault(key, {}).setdefault(offset, (value, row.index))
        for key, by_node in final_reads(history).by_key.items():
            for read in by_node.values():
                for offset, value in read.by_offset.items():
                    logs.setdefault(key, {}).setdefault(offset, (value, read.place))
        found, withheld = [], 0
        for key, log in sorted(logs.items()):
            given = group.given.get(key, {})
            lacks = sorted(set(log) - set(given))
            last = max(given, default=-1)
            if skipped := [offset for offset in lacks if offset < last]:
                found.append(_skipped(key, skipped, log, given))
            withheld += sum(offset > last for offset in lacks)
        notes = ["No client subscribed."] if not group.members else []
        if group.members and withheld:
            notes.append(f"The group was not given {withheld:,} messages at the end of logs.")
        return Result(
            checker=self.name,
            valid=False if found else "unknown" if notes else True,
            counts={
                "given-count": sum(map(len, group.given.values())),
                "given-again-count": group.again,
                "commit-count": group.commits,
                "skipped-count": sum(int(str(each.detail["count"])) for each in found),
                "withheld-count": withheld,
            },
            anomalies=tuple(found),
            notes=tuple(notes),
            headline=f"the group was given all of {sum(map(len, logs.values())):,} messages",
            words=WORDS,
        )


def _skipped(
    key: int, skipped: list[int], log: dict[int, tuple[int, int]], given: dict[int, int]
) -> Anomaly:
    first = skipped[0]
    behind = min(offset for offset in given if offset > first)
    listed = ", ".join(f"{log[offset][0]} at {offset}" for offset in skipped[:VALUES_MAX])
    more = f" and {len(skipped) - VALUES_MAX:,} more" if len(skipped) > VALUES_MAX else ""
    return Anomaly(
        kind="skipped",
        summary=f"key {key}: no member of the group was given {listed}{more}, though one was given"
        f" offset {behind}",
        operations=tuple(dict.fromkeys((*(log[each][1] for each in skipped), given[behind])))[
            :OPERATIONS_MAX
        ],
        detail={"key": key, "count": len(skipped), "offsets": skipped[:VALUES_MAX]},
    )
