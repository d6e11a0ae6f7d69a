"""shalott-etcd: locks by leases, and members that are asked to defragment."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from functools import partial
from types import SimpleNamespace
from typing import Any, cast

import pytest

from shalott.checkers.linearizability.run_checker import Linearizability
from shalott.core.doors import load_module
from shalott.core.errors import Definite, Indefinite, Unreachable
from shalott.core.op import Completion, Invocation
from shalott.core.plan import FaultAction
from shalott.nemesis.context import FaultContext
from shalott.workloads.lock import lock_checkers, lock_workload
from shalott_etcd import defragment, leases, system
from tests.plug_ins import forget
from tests.plugins.test_etcd import CLOSED, SILENT, Answer, b64, done, plan

pytestmark = pytest.mark.unit

GRANTED = (200, {"ID": "77", "TTL": "5"})
PUT: Answer = (200, {"succeeded": True})
TAKEN: Answer = (200, {})
REVOKED: Answer = (200, {})
GONE = (200, {"result": {"ID": "77"}})  # a TTL of nothing is left out
ALIVE = (200, {"result": {"ID": "77", "TTL": "1"}})


def made(ttl_s: int = 60, *, by_clock: bool = True) -> Any:
    return partial(leases.LeaseClient, ttl_s=ttl_s, by_clock=by_clock)


async def acquire(one: Any) -> Completion:
    return cast(Completion, await one.invoke(Invocation(f="acquire", key="a")))


async def acquire_and_release(one: Any) -> list[str]:
    got = await acquire(one)
    return [got.type, (await one.invoke(Invocation(f="release", key="a"))).type]


def test_a_lock_is_a_key_of_a_lease_and_goes_with_it() -> None:
    got, asked = done(made(), acquire_and_release, [GRANTED, PUT, REVOKED])
    assert got == ["ok", "ok"]
    assert [path for path, _ in asked] == ["/v3/lease/grant", "/v3/kv/txn", "/v3/lease/revoke"]
    assert asked[1][1]["compare"][0]["createRevision"] == "0"
    assert asked[1][1]["success"][0]["requestPut"] == {
        "key": b64("lock/a"), "value": b64("77"), "lease": "77"
    }  # fmt: skip


def test_a_lock_that_another_has_is_refused() -> None:
    got, asked = done(made(), acquire, [GRANTED, TAKEN, REVOKED])
    assert got == Completion(type="fail", error="empty")
    assert asked[-1] == ("/v3/lease/revoke", {"ID": "77"})


@pytest.mark.parametrize(
    ("answers", "outcome"),
    [
        ([SILENT], Definite),  # a lease without a key holds nothing
        ([GRANTED, SILENT], Indefinite),
        ([GRANTED, CLOSED], Indefinite),
        ([GRANTED, (400, {"error": "requested lease not found"})], Definite),
    ],
)
def test_a_lock_is_unknown_only_once_it_was_asked_for(
    answers: Sequence[Answer], outcome: type
) -> None:
    assert isinstance(done(made(), acquire, answers)[0], outcome)


def test_a_lock_that_came_too_late_may_be_nobodys() -> None:
    assert isinstance(done(made(0), acquire, [GRANTED, PUT])[0], Indefinite)


def test_a_release_that_is_not_answered_is_unknown() -> None:
    assert isinstance(done(made(), acquire_and_release, [GRANTED, PUT, SILENT])[0], Indefinite)


async def hold_until_lost(one: Any) -> object:
    await acquire(one)
    try:
        async with asyncio.timeout(2):
            await one.until_lost()
    except TimeoutError:
        return "held"
    with pytest.raises(Indefinite):
        await one.invoke(Invocation(f="release", key="a"))
    return "lost"


@pytest.mark.parametrize(
    ("trust", "renewals", "outcome"),
    [
        ("clock", [ALIVE, GONE], "lost"),
        ("clock", [(503, {})] * 50, "lost"),  # it may have ended
        ("answers", [ALIVE, GONE], "lost"),
        ("answers", [(503, {})] * 50, "held"),
    ],
)
def test_when_a_holder_takes_its_lock_for_lost(
    trust: str, renewals: Sequence[Answer], outcome: str
) -> None:
    kind = made(1, by_clock=trust == "clock")
    assert done(kind, hold_until_lost, [GRANTED, PUT, *renewals])[0] == outcome


def test_the_workload_of_locks_has_them_by_leases() -> None:
    try:
        load_module("shalott_etcd.system")
        wanted = plan(lease_ttl_s=3)
        built = lock_workload(wanted)
        checkers = lock_checkers(wanted)
    finally:
        forget()
    assert (built.queues, built.setup, built.port) == ((), (), "client")
    assert isinstance(built.make_client("127.0.0.1", 1), leases.LeaseClient)
    mutex = checkers[0]
    assert isinstance(mutex, Linearizability)
    assert mutex.kinds["overlap"] == "two-holders"


# -- defragment ------------------------------------------------------------------------------------


def context(asked: list[str], often: asyncio.Event, error: Exception | None) -> FaultContext:
    class Asked(system.EtcdSystem):
        async def defragment(self, cluster: object, node: str) -> None:
            asked.append(node)
            if len(asked) == 4:
                often.set()
            if error is not None:
                raise error

    processes = SimpleNamespace(state=lambda node: "running")
    made_of: Mapping[str, Any] = {"left": {}, "told": {}, "cluster": None, "processes": processes}
    return cast(FaultContext, SimpleNamespace(system=Asked(system.EtcdParameters()), **made_of))


@pytest.mark.parametrize(
    ("error", "done_and_moot"),
    [
        (None, (True, False)),
        (Definite("it knows no such thing"), (False, False)),
        (Indefinite("no answer"), (False, True)),  # other faults may have to do with it
        (Unreachable("nobody listens"), (False, True)),
    ],
)
def test_members_are_asked_again_and_again_until_it_is_over(
    error: Exception | None, done_and_moot: tuple[bool, bool]
) -> None:
    fault, asked = defragment.FAULT, list[str]()
    action = FaultAction(id=1, at_ms=0, duration_ms=1, kind="defragment", nodes=("n1", "n2"))

    async def scenario() -> tuple[list[object], list[object], int]:
        often = asyncio.Event()
        ctx = context(asked, often, error)
        await fault.inject(ctx, action)
        await often.wait()
        checks = fault.effective(ctx, action)
        looks: list[object] = [(await each.look(), await each.moot()) for each in checks]
        going: list[object] = [await each.look() for each in fault.healed(ctx, action)]
        await fault.heal(ctx, action)
        going += [await each.look() for each in fault.healed(ctx, action)]
        number = len(asked)
        await asyncio.sleep(3 * defragment.AGAIN_MS / 1000)
        return looks, going, len(asked) - number

    looks, going, later = asyncio.run(scenario())
    assert looks == [done_and_moot] * 2
    assert going == [False, False, True, True]
    assert (set(asked), later) == ({"n1", "n2"}, 0)


def test_etcd_can_be_asked() -> None:
    assert isinstance(system.EtcdSystem(system.EtcdParameters()), defragment.Defragments)
