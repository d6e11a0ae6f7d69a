"""How many cases of each anomaly a history of partitions has, by their definitions alone.

Each is looked for as jepsen.tests.kafka describes it, in dictionaries of whole histories: slow, and
with nothing in common with the engine but the rule which message an offset with several has.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from itertools import pairwise

from tests.checkers.partitions.simulated_logs import Operation, Poll, Send

Message = tuple[int, int]  # key, value


def _sends(op: Operation) -> list[tuple[Message, int | None]]:
    return [((mop.key, mop.value), mop.offset) for mop in op.mops if isinstance(mop, Send)]


def _polls(op: Operation) -> list[tuple[Message, int | None]]:
    return [
        ((key, value), offset)
        for mop in op.mops
        if isinstance(mop, Poll)
        for key, pairs in mop.by_key.items()
        for offset, value in pairs
    ]


class Oracle:
    def __init__(self, operations: list[Operation]) -> None:
        ended = [op for op in operations if op.ended is not None]
        never = [op for op in operations if op.ended is None]
        self.ops = sorted(ended, key=lambda op: op.ended or 0)
        self.ops += sorted(never, key=lambda op: op.called)
        self.data = [op for op in self.ops if op.f in ("send", "poll", "txn")]
        self.writer: dict[Message, Operation] = {}
        self.sent: dict[Message, set[str]] = defaultdict(set)
        for op in self.data:
            for message, _ in _sends(op):
                self.writer[message] = op
                self.sent[message].add(op.type)
        self.read = {m for op in self.data for m, _ in _polls(op)}
        self.read_ok = {m for op in self.data if op.type == "ok" for m, _ in _polls(op)}
        self.log: dict[int, dict[int, set[int]]] = defaultdict(lambda: defaultdict(set))
        for op in self.data:
            for (key, value), offset in _polls(op) + (_sends(op) if self._committed(op) else []):
                if offset is not None:
                    self.log[key][offset].add(value)
        self.index: dict[Message, int] = {}
        self.order: dict[int, list[Message]] = defaultdict(list)
        for key, log in self.log.items():
            self._order(key, log)

    def _committed(self, op: Operation) -> bool:
        if op.type == "info":
            return any(message in self.read_ok for message, _ in _sends(op))
        return op.type == "ok"

    def _order(self, key: int, log: dict[int, set[int]]) -> None:
        """Of several messages at an offset one that stands nowhere else, and of those one that was
        polled, and of those the one that the history shows first."""
        times = Counter(value for values in log.values() for value in values)
        seen = self._first_shown(key)
        for index, offset in enumerate(sorted(log)):
            best = max(
                log[offset],
                key=lambda value: (
                    times[value] == 1,
                    (key, value) in self.read_ok,
                    -seen.index(value),
                ),
            )
            self.index[key, best] = index
            self.order[key].append((key, best))

    def _first_shown(self, key: int) -> list[int]:
        """The values of a key in the order in which the history names them."""
        named: list[tuple[float, int, int]] = []
        for op in self.data:
            for at, mop in enumerate(op.mops):
                if isinstance(mop, Send) and mop.key == key:
                    named.append((op.called, at, mop.value))
                elif isinstance(mop, Poll):
                    shown = op.ended if op.ended is not None else op.called
                    named += [(shown, at, value) for _, value in mop.by_key.get(key, [])]
        return [value for _, _, value in sorted(named, key=lambda each: each[:2])]

    def _distance(self, first: Message, second: Message) -> int:
        from_, to = self.index.get(first), self.index.get(second)
        return 1 if from_ is None or to is None else to - from_

    # --- counts -------------------------------------------------------------------------------

    def counts(self) -> dict[str, int]:
        counts: Counter[str] = Counter()
        for key, log in self.log.items():
            times = Counter(value for values in log.values() for value in values)
            counts["duplicate"] += sum(number > 1 for number in times.values())
            counts["inconsistent-offsets"] += sum(len(values) > 1 for values in log.values())
            counts["lost-write"] += self._lost(key, log)
        unseen = {m for m, how in self.sent.items() if "ok" in how and m not in self.read_ok}
        counts["unseen"] = len(unseen)
        counts["unexpected"] = len(self.read - self.writer.keys())
        for op in self.data:
            counts["G1a"] += (op.type == "ok") * sum(
                self.sent.get(message) == {"fail"} for message, _ in _polls(op)
            )
            own = {message for message, _ in _sends(op)}
            counts["precommitted-read"] += len({m[0] for m, _ in _polls(op) if m in own})
            self._within(op, counts)
        for process in {op.process for op in self.ops}:
            self._along([op for op in self.ops if op.process == process], counts)
        return {kind: number for kind, number in counts.items() if number}

    def _lost(self, key: int, log: dict[int, set[int]]) -> int:
        offsets = sorted(log)
        first: dict[int, int] = {}
        last: dict[int, int] = {}
        for index, offset in enumerate(offsets):
            for value in log[offset]:
                first.setdefault(value, index)
                last[value] = index
        bound = max((first[value] for value in first if (key, value) in self.read_ok), default=-1)
        return sum(
            last[value] <= bound
            and (key, value) not in self.read_ok
            and (key, value) in self.writer
            and self._committed(self.writer[key, value])
            for value in last
        )

    def _within(self, op: Operation, counts: Counter[str]) -> None:
        for name, elements in (("send", _sends(op)), ("poll", _polls(op))):
            by_key: dict[int, list[Message]] = defaultdict(list)
            for message, _ in elements:
                by_key[message[0]].append(message)
            for key, messages in by_key.items():
                if name == "poll" and key in op.moved:
                    continue
                for pair in pairwise(messages):
                    delta = self._distance(*pair)
                    counts[f"int-{name}-skip"] += delta > 1
                    counts[f"int-nonmonotonic-{name}"] += delta < 1

    def _along(self, ops: list[Operation], counts: Counter[str]) -> None:
        """What one process does, from one operation to the next."""
        last_polled: dict[int, Message] = {}
        last_sent: dict[int, Message] = {}
        for op in ops:
            if op.f in ("assign", "subscribe") and op.type != "fail":
                for last in (last_polled, last_sent):
                    for key in list(last):
                        if key not in op.keys or (op.rewinds and last is last_polled):
                            del last[key]
            polls, sends = _polls(op), _sends(op)
            for key, message in _firsts(polls).items():
                if key in last_polled:
                    delta = self._distance(last_polled[key], message)
                    counts["poll-skip"] += delta > 1
                    counts["nonmonotonic-poll"] += delta < 1
            if op.type == "ok":
                last_polled |= {message[0]: message for message, _ in polls}
            if op.type == "fail":
                continue
            for key, message in _firsts(sends).items():
                if key in last_sent:
                    counts["nonmonotonic-send"] += self._distance(last_sent[key], message) < 1
            last_sent |= {message[0]: message for message, _ in sends}


def _firsts(elements: list[tuple[Message, int | None]]) -> dict[int, Message]:
    firsts: dict[int, Message] = {}
    for message, _ in elements:
        firsts.setdefault(message[0], message)
    return firsts


Edge = tuple[int, int]


class Graph:
    """The operations that did not fail, with an edge where one comes before another."""

    def __init__(self, oracle: Oracle) -> None:
        self.oracle = oracle
        self.ops = [op for op in oracle.data if op.type != "fail" or op.ended is None]
        self.number = {id(op): number for number, op in enumerate(self.ops)}

    def _writer(self, message: Message) -> int | None:
        return self.number.get(id(self.oracle.writer.get(message)))

    def wr(self) -> set[Edge]:
        edges = {
            (self._writer(message), reader)
            for reader, op in enumerate(self.ops)
            for message, _ in _polls(op)
        }
        return {(a, b) for a, b in edges if a is not None and a != b}

    def ww(self) -> set[Edge]:
        """A message that stands at several places is followed from each, and follows at its own."""
        edges: set[Edge] = set()
        for messages in self.oracle.order.values():
            before = None
            for index, message in enumerate(messages):
                writer = self._writer(message)
                if writer is None:
                    continue
                if before not in (None, writer) and self.oracle.index[message] == index:
                    edges.add((before, writer))  # type: ignore[arg-type]
                before = writer
        return edges

    def rw(self) -> set[Edge]:
        edges: set[Edge] = set()
        for reader, op in enumerate(self.ops):
            newest: dict[int, int] = {}
            for message, _ in _polls(op):
                if message in self.oracle.index:
                    key = message[0]
                    newest[key] = max(newest.get(key, -1), self.oracle.index[message])
            for key, index in newest.items():
                behind = self.oracle.order[key][index + 1 :]
                writers = [w for w in map(self._writer, behind) if w not in (None, reader)]
                edges |= {(reader, w) for w in writers[:1] if w is not None}
        return edges

    def process(self) -> set[Edge]:
        return {
            (a, b)
            for b, later in enumerate(self.ops)
            for a, op in enumerate(self.ops)
            if op.type == "ok" and op.ended and op.process == later.process
            and op.ended < later.called
        }  # fmt: skip

    def realtime(self) -> set[Edge]:
        return {
            (a, b)
            for b, later in enumerate(self.ops)
            for a, op in enumerate(self.ops)
            if op.type == "ok" and op.ended and op.ended < later.called
        }

    def has_cycle(self, *kinds: set[Edge]) -> bool:
        """Whether something is left when all that nothing comes before is taken away."""
        edges = set().union(*kinds)
        while edges:
            ends = {end for _, end in edges}
            left = {(begin, end) for begin, end in edges if begin in ends}
            if left == edges:
                return True
            edges = left
        return False
