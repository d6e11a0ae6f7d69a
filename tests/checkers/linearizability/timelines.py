"""Histories and explanations made up for the tests of the timeline."""

from __future__ import annotations

import heapq
import random

import numpy as np

from shalott.checkers.history.columns import Words
from shalott.checkers.history.concurrent import INFO, NEVER, OK, ConcurrentHistory, Values
from shalott.checkers.linearizability.explanation import (
    CONCURRENT,
    EARLIER,
    STUCK,
    TYPES,
    WITNESS,
    Blocked,
    Explanation,
    PartialLinearization,
    ShownOperation,
    Step,
    operation_text,
)


def register_history(
    operations: int, clients: int, *, crashed: float = 0.01, seed: int = 7
) -> ConcurrentHistory:
    """Linearizable: reads and writes of one register by clients that never rest.

    A crashed client is succeeded by process + clients, as Jepsen does it.
    """
    rng = random.Random(seed)
    ready = [(rng.random(), client) for client in range(clients)]
    heapq.heapify(ready)
    events: list[tuple[float, int, bool]] = []
    rows: list[tuple[int, str, int | None, float, float | None, float]] = []
    process = list(range(clients))
    for number in range(operations):
        at, client = heapq.heappop(ready)
        takes = rng.lognormvariate(0, 0.7)
        fails = rng.random() < crashed
        f = "write" if rng.random() < 0.5 else "read"
        end = None if fails else at + takes
        effect = at + takes * rng.random()
        rows.append((process[client], f, number if f == "write" else None, at, end, effect))
        events.append((at, number, True))
        if end is not None:
            events.append((end, number, False))
        else:
            process[client] += clients
        heapq.heappush(ready, (at + takes + rng.expovariate(4), client))
    events.sort()
    call, ret = np.zeros(operations, dtype=np.int32), np.full(operations, NEVER, dtype=np.int32)
    for rank, (_, number, is_call) in enumerate(events):
        (call if is_call else ret)[number] = rank
    values = np.array([0 if row[2] is None else row[2] for row in rows], dtype=np.int64)
    kind = np.ones(operations, dtype=np.uint8)
    seen = None
    for number in sorted(range(operations), key=lambda i: rows[i][5]):
        if rows[number][1] == "write":
            seen = number
        elif seen is None or ret[number] == NEVER:
            kind[number] = 0
        else:
            values[number] = seen
    column = Values(kind, values)
    milliseconds = 1_000_000
    return ConcurrentHistory(
        f=Words(np.array([row[1] == "read" for row in rows], dtype=np.int32), ("write", "read")),
        key=Words(np.zeros(operations, dtype=np.int32), ("",)),
        argument=column,
        result=column,
        type=np.where(ret == NEVER, INFO, OK).astype(np.uint8),
        process=np.array([row[0] for row in rows], dtype=np.int32),
        call=call,
        ret=ret,
        call_ns=np.array([int(row[3] * milliseconds) for row in rows], dtype=np.int64),
        ret_ns=np.array(
            [-1 if row[4] is None else int(row[4] * milliseconds) for row in rows], dtype=np.int64
        ),
        place=np.arange(operations, dtype=np.int64) * 2 + 1,
        place_name="line",
        source="register.edn",
    )


def shown(history: ConcurrentHistory, row: int, role: str) -> ShownOperation:
    ret = int(history.ret[row])
    return ShownOperation(
        process=int(history.process[row]),
        text=operation_text(history.operation(row), int(history.type[row])),
        type=TYPES[history.type[row]],
        role=role,
        call=int(history.call[row]),
        ret=None if ret == NEVER else ret,
        place=int(history.place[row]),
    )


def made_up(history: ConcurrentHistory, near: int) -> Explanation:
    """Roles and orders as an explanation of the operation ``near`` would have them.

    What is drawn is tested with it, not whether it is true.
    """
    stuck_ret = int(history.ret[near])
    concurrent = np.flatnonzero((history.call < stuck_ret) & (history.ret > stuck_ret))[-12:]
    before = np.flatnonzero(history.ret < history.call[near])[-6:]
    roles = dict.fromkeys(before.tolist(), EARLIER) | dict.fromkeys(concurrent.tolist(), CONCURRENT)
    roles |= {int(before[0]): WITNESS, int(before[3]): WITNESS, near: STUCK}
    rows = sorted(roles)
    operations = tuple(shown(history, row, roles[row]) for row in rows)
    order = sorted(
        (at for at in range(len(rows)) if rows[at] != near),
        key=lambda at: min(operations[at].ret or NEVER, stuck_ret) + operations[at].call,
    )
    steps = tuple(Step(at, f"register {at}") for at in order)
    stop = Blocked(rows.index(near), "it returned 3, and the register holds 5")
    other = (*steps[:-2], steps[-1], steps[-2])
    return Explanation(
        model="register",
        reason="read of 3 by process 7 returned when the register could only be 1 or 5: 3 had been "
        "overwritten before the read was called",
        by="register monitor",
        operation_count=len(history),
        prefix=stuck_ret,
        prefix_count=int((history.call <= stuck_ret).sum()),
        operations=operations,
        linearizations=(
            PartialLinearization("the register holds 0", steps, (stop,)),
            PartialLinearization("the register holds 0", other, (stop,)),
        ),
        place_name=history.place_name,
        source=history.source,
    )
