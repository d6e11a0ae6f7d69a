"""Clients of a plug-in that are made to lie, so that a checker must find it out.

The class of each client is exchanged for one of its own that answers some writes falsely: what else
it is able to do (core/client.py: Recording, Holding, Watchful) stays as it is. A write is an
operation that has a value, and is none of the workload's ``reads``.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Literal

from shalott.core.client import Client
from shalott.core.op import Completion, Invocation
from shalott.core.plan import Plan
from shalott.workloads.record import WORKLOADS, Workload, WorkloadRecord

EVERY = 5  # write is answered falsely
Lie = Literal["acknowledges without sending", "refuses what it sent"]
Invoke = Callable[[Client, Invocation], Awaitable[Completion]]


@contextmanager
def lying(record: WorkloadRecord, lie: Lie) -> Iterator[str]:
    """While it lasts there is a workload of that name whose clients lie."""
    counter = _Counter(record, lie)

    def build(plan: Plan) -> Workload:
        made = record.build(plan)
        several = made.several
        if several is not None:
            make = several.make_client
            several = dataclasses.replace(
                several, make_client=lambda ports: counter.turn(make(ports))
            )
        return dataclasses.replace(
            made,
            make_client=lambda host, port: counter.turn(made.make_client(host, port)),
            several=several,
        )

    name = f"{record.name}-that-lies"
    WORKLOADS.offer(dataclasses.replace(record, name=name, build=build))
    try:
        yield name
    finally:
        WORKLOADS.withdraw(name)


def is_write(record: WorkloadRecord, invocation: Invocation) -> bool:
    return invocation.value is not None and invocation.f not in record.reads


class _Counter:
    """Counts the writes of all clients together."""

    def __init__(self, record: WorkloadRecord, lie: Lie) -> None:
        self._record = record
        self._lie = lie
        self._writes = 0

    def turn(self, client: Client) -> Client:
        honest = type(client)
        sends: Invoke = honest.invoke

        async def invoke(own: Client, invocation: Invocation) -> Completion:
            if not is_write(self._record, invocation):
                return await sends(own, invocation)
            self._writes += 1
            is_turn = self._writes % EVERY == 0
            if is_turn and self._lie == "acknowledges without sending":
                return Completion(type="ok", value=invocation.value)
            done = await sends(own, invocation)
            if is_turn and done.type == "ok":
                return Completion(type="fail", error="refused, says a client that was made to lie")
            return done

        # Without a layout of its own it can take the place of any class.
        client.__class__ = type(honest.__name__, (honest,), {"__slots__": (), "invoke": invoke})
        return client
