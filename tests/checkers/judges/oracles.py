"""What judges must find, said anew: definitions over small histories, without regard to time.

Each oracle takes a history and gives the kinds of anomalies that are in it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import pairwise, permutations
from typing import NamedTuple

from tests.checkers.judges.written import Step, Value

NEVER = 10**9


class Op(NamedTuple):
    process: int
    f: str
    argument: Value
    result: Value
    type: str
    call: int
    ret: int

    def before(self, other: Op) -> bool:
        return self.ret < other.call


def ops_of(history: Sequence[Step]) -> list[Op]:
    """In the order of their ends; those that never ended are info."""
    open_ones: dict[int, tuple[int, Step]] = {}
    found: list[Op] = []
    for at, step in enumerate(history):
        if step.type == "invoke":
            open_ones[step.process] = (at, step)
            continue
        call, began = open_ones.pop(step.process)
        ret = NEVER if step.type == "info" else at
        found.append(Op(step.process, step.f, began.value, step.value, step.type, call, ret))
    for call, began in open_ones.values():
        found.append(Op(began.process, began.f, began.value, None, "info", call, NEVER))
    return found


def oks(ops: Iterable[Op], *fs: str) -> list[Op]:
    return [op for op in ops if op.type == "ok" and op.f in fs]


def bank(history: Sequence[Step], total: int, accounts: int) -> set[str]:
    kinds = set()
    for read in oks(ops_of(history), "read"):
        balances = list(read.result.values())
        if any(account not in range(accounts) for account in read.result):
            kinds.add("unexpected-key")
        if None in balances:
            kinds.add("nil-balance")
        elif sum(balances) != total:
            kinds.add("wrong-total")
        if None not in balances and min(balances, default=0) < 0:
            kinds.add("negative-value")
    return kinds


def set_full(history: Sequence[Step]) -> Counter[str]:
    """By looking at each element for each read, as jepsen.checker does it."""
    ops = ops_of(history)
    found: Counter[str] = Counter()
    reads = oks(ops, "read")
    adds = [op for op in ops if op.f == "add"]
    for value in {value for read in reads for value in read.result}:
        own = [add for add in adds if add.argument == value]
        first = min(read.ret for read in reads if value in read.result)
        found["unexpected"] += not own or first < min(add.call for add in own)
        found["duplicated"] += any(list(read.result).count(value) > 1 for read in reads)
    for add in adds:
        mine = [read for read in reads if read.ret > add.call]
        present = [read.call for read in mine if add.argument in read.result]
        absent = [
            read.call for read in mine if add.argument not in read.result and read.call > add.call
        ]
        known = min(
            [add.ret if add.type == "ok" else NEVER]
            + [read.ret for read in mine if add.argument in read.result]
        )
        if any(add.argument in read.result and read.ret < add.call for read in reads):
            continue
        last_present, last_absent = max(present, default=-1), max(absent, default=-1)
        if present and last_absent < last_present:
            found["stable"] += 1
            found["stale"] += known < last_absent
        elif known < last_absent and last_present < last_absent:
            found["lost"] += 1
        else:
            found["never-read"] += 1
    return +found


def final_set(history: Sequence[Step]) -> set[str]:
    ops = ops_of(history)
    last = oks(ops, "read")[-1]
    adds = [op for op in ops if op.f == "add"]
    kinds = set()
    if any(
        add.type == "ok" and add.before(last) and add.argument not in last.result for add in adds
    ):
        kinds.add("lost")
    if set(last.result) - {add.argument for add in adds}:
        kinds.add("unexpected")
    if any(add.type == "fail" and add.argument in last.result for add in adds):
        kinds.add("revived")
    return kinds


def counter(history: Sequence[Step]) -> set[str]:
    ops = ops_of(history)
    adds = [op for op in ops if op.f == "add" and op.type != "fail"]
    kinds = set()
    for read in oks(ops, "read"):
        certain = [add.argument for add in adds if add.before(read)]
        maybe = [add.argument for add in adds if not add.before(read) and add.call < read.ret]
        if read.result < sum(certain) + sum(each for each in maybe if each < 0):
            kinds.add("too-low")
        if read.result > sum(certain) + sum(each for each in maybe if each > 0):
            kinds.add("too-high")
    return kinds


def unique_ids(history: Sequence[Step]) -> set[str]:
    given = [op.result for op in oks(ops_of(history), "generate")]
    return {"duplicated"} if len(set(given)) < len(given) else set()


def _taken(ops: list[Op]) -> list[tuple[Value, int]]:
    taken: list[tuple[Value, int]] = []
    for op in oks(ops, "dequeue", "drain"):
        values = op.result if op.f == "drain" else [op.result] if op.result is not None else []
        taken += [(value, op.ret) for value in values]
    return taken


def queue(history: Sequence[Step]) -> bool:
    """Whether a fold over the history finds what it takes."""
    ops = ops_of(history)
    events = [(op.call, 1, op.argument) for op in ops if op.f == "enqueue"]
    events += [(ret, -1, value) for value, ret in _taken(ops)]
    held: Counter[Value] = Counter()
    for _, change, value in sorted(events, key=lambda event: event[0]):
        held[value] += change
        if held[value] < 0:
            return False
    return True


def total_queue(history: Sequence[Step]) -> set[str]:
    ops = ops_of(history)
    attempts = Counter(op.argument for op in ops if op.f == "enqueue")
    acknowledged = Counter(op.argument for op in oks(ops, "enqueue"))
    taken = Counter(value for value, _ in _taken(ops))
    kinds = set()
    if acknowledged - taken:
        kinds.add("lost")
    if set(taken) - set(attempts):
        kinds.add("unexpected")
    if any(times > attempts[value] > 0 for value, times in taken.items()):
        kinds.add("duplicated")
    return kinds


def causal_reverse(history: Sequence[Step]) -> set[str]:
    ops = ops_of(history)
    writes = {op.argument: op for op in ops if op.f == "write"}
    kinds = set()
    for read in oks(ops, "read"):
        for value in read.result:
            if value not in writes or writes[value].call > read.ret:
                kinds.add("unexpected")
                continue
            for other, write in writes.items():
                is_acknowledged = write.type == "ok" and write.before(writes[value])
                if is_acknowledged and other not in read.result:
                    kinds.add("missing-write")
    return kinds


def long_fork(history: Sequence[Step]) -> bool:
    states = [{key: value for _, key, value in op.result} for op in oks(ops_of(history), "read")]
    for one, other in permutations(states, 2):
        if set(one) == set(other):
            more = {key for key in one if one[key] is not None and other[key] is None}
            less = {key for key in one if one[key] is None and other[key] is not None}
            if more and less:
                return True
    return False


def grows(history: Sequence[Step]) -> bool:
    """Whether no process sees a number fall."""
    by_process: dict[int, list[int]] = {}
    for op in oks(ops_of(history), "read", "inc"):
        by_process.setdefault(op.process, []).append(op.result)
    return all(one <= other for seen in by_process.values() for one, other in pairwise(seen))


def monotonic_maps(history: Sequence[Step], realtime: bool) -> bool:
    """Whether the orders of all keys, and of time, agree: no circle in their closure."""
    ops = [op for op in oks(ops_of(history), "read", "inc") if isinstance(op.result, dict)]
    before = {
        (one, other)
        for one, other in permutations(range(len(ops)), 2)
        if any(
            key in ops[other].result and value < ops[other].result[key]
            for key, value in ops[one].result.items()
        )
        or (realtime and ops[one].before(ops[other]))
    }
    reached = set(before)
    while True:
        more = {(a, d) for a, b in reached for c, d in before if b == c} - reached
        if not more:
            return all(a != b for a, b in reached)
        reached |= more


def replica_logs(history: Sequence[Step]) -> set[str]:
    ops = ops_of(history)
    reads = oks(ops, "read")
    appends = {op.argument: op for op in ops if op.f == "append"}
    kinds = set()
    logs = [list(read.result[1]) for read in reads]
    for one, other in permutations(logs, 2):
        if one[: len(other)] != other[: len(one)]:
            kinds.add("differs")
    for one, other in permutations(reads, 2):
        is_later = one.result[0] == other.result[0] and one.before(other)
        if is_later and len(other.result[1]) < len(one.result[1]):
            kinds.add("shrunk")
    for read, log in zip(reads, logs, strict=True):
        if len(set(log)) < len(log):
            kinds.add("duplicated")
        if any(value not in appends or appends[value].call > read.ret for value in log):
            kinds.add("unexpected")
    if "differs" in kinds:
        return kinds  # there is no one log that could be judged further
    longest = max(logs, key=len, default=[])
    for later in longest:
        for earlier, append in appends.items():
            if append.type == "ok" and later in appends and append.before(appends[later]):
                if earlier not in longest:
                    kinds.add("lost")
                elif longest.index(earlier) > longest.index(later):
                    kinds.add("overtaken")
    return kinds


def sessions(history: Sequence[Step], *, is_log: bool) -> set[str]:
    """Of a set or a log: which of the four guarantees are broken."""
    ops = ops_of(history)
    reads = oks(ops, "read")
    writes = [op for op in ops if op.f in ("add", "append")]
    kinds = set()

    def covers(read: Op, earlier: Value, later: Value) -> bool:
        if earlier not in read.result:
            return False
        return not is_log or read.result.index(earlier) < read.result.index(later)

    for read in reads:
        own = [op for op in oks(writes, "add", "append") if op.process == read.process]
        if any(op.before(read) and op.argument not in read.result for op in own):
            kinds.add("unread-write")
        for other in reads:
            if other.process == read.process and other.before(read):
                there = [value for value in other.result if value in read.result]
                is_turned = is_log and sorted(there, key=read.result.index) != there
                if len(there) < len(other.result) or is_turned:
                    kinds.add("read-went-back")
        for later in writes:
            if later.argument not in read.result:
                continue
            before = [op for op in ops if op.process == later.process and op.before(later)]
            earlier = [op.argument for op in oks(before, "add", "append")]
            if not all(covers(read, value, later.argument) for value in earlier):
                kinds.add("write-overtaken")
            causes = [value for op in oks(before, "read") for value in op.result]
            if not all(covers(read, value, later.argument) for value in causes):
                kinds.add("cause-missing")
    return kinds


def register_sessions(history: Sequence[Step]) -> set[str]:
    """Of a register whose values are written once each: by real time, and by sessions."""
    ops = ops_of(history)
    reads = oks(ops, "read")
    writes = {op.argument: op for op in ops if op.f == "write"}
    kinds = set()

    def is_older(one: Value, other: Value) -> bool:
        if one == other or other not in writes:
            return False
        if one not in writes:
            return True
        return writes[one].type == "ok" and writes[one].before(writes[other])

    for read in reads:
        own = [w for w in writes.values() if w.process == read.process and w.before(read)]
        own = [write for write in own if write.type == "ok"]
        if own and is_older(read.result, own[-1].argument):
            kinds.add("unread-write")
        earlier = [each for each in reads if each.process == read.process and each.before(read)]
        if earlier:
            last = earlier[-1].result
            seen = [each.result for each in earlier]
            if is_older(read.result, last) or (read.result != last and read.result in seen):
                kinds.add("read-went-back")
        for each in earlier:
            newer = writes.get(each.result)
            write = writes.get(read.result)
            if newer is None:
                continue
            is_own = write is not None and write.process == newer.process
            if is_own and write.type == "ok" and write.before(newer):
                kinds.add("write-overtaken")
            causes = [r for r in reads if r.process == newer.process and r.before(newer)]
            if each.result != read.result and read.result in [r.result for r in causes]:
                kinds.add("cause-missing")
    return kinds
