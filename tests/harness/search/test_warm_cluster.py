"""A warm cluster: which runs share machines, and which get new ones."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

import msgspec
import pytest

from shalott.cluster.system import System
from shalott.core.errors import HarnessError
from shalott.core.plan import Plan
from shalott.harness.run.store import RunDirectory
from shalott.harness.search import real_runs as warm_module
from shalott.harness.search.real_runs import WarmCluster, WarmOutcome
from tests.world.harness.memory import MemoryCluster, MemoryWorld, Trap, memory_plan

pytestmark = pytest.mark.unit

replace = msgspec.structs.replace


class KeptCluster(MemoryCluster):
    """A memory cluster whose machines can be used again; it writes down what becomes of them."""

    capabilities = frozenset({"kill", "cut"})
    did: list[str]

    async def boot(self, system: System) -> None:
        self.did.append("boot")
        await super().boot(system)

    async def clear(self) -> None:
        self.did.append("clear")

    async def boot_again(self, system: System) -> None:
        self.did.append("boot again")
        if self.fails_again:
            raise HarnessError("no engine answers")

    async def teardown(self) -> None:
        self.did.append("tear down")
        await super().teardown()

    fails_again = False
    is_reusable = True


class Warm:
    """A warm cluster over worlds in memory."""

    def __init__(self, path: Path, monkeypatch: pytest.MonkeyPatch, trap: Trap) -> None:
        self.memory = MemoryWorld(trap)
        self.memory.offer()
        self.did: list[str] = []
        self.made: list[KeptCluster] = []
        self._path = path
        self._warm = WarmCluster("test", path / "machines")
        monkeypatch.setattr(warm_module.backends, "make_cluster", self._make)
        monkeypatch.setattr(warm_module, "build_world", self._world)

    def _make(self, plan: Plan, run_id: str, work: Path, *, needs: Sequence[str]) -> KeptCluster:
        self.memory.cluster.__class__ = KeptCluster
        cluster = self.memory.cluster
        assert isinstance(cluster, KeptCluster)
        cluster.did = self.did
        self.did.append("make")
        self.made.append(cluster)
        return cluster

    def _world(self, plan: Plan, directory: RunDirectory, cluster: object) -> object:
        return self.memory.world(plan)

    def run(self, *plans: Plan) -> list[WarmOutcome]:
        async def main() -> list[WarmOutcome]:
            done = []
            for number, plan in enumerate(plans):
                path = self._path / f"run-{number}"
                path.mkdir()
                done.append(await self._warm.run(plan, RunDirectory(path), command="again"))
            await self._warm.close()
            return done

        return asyncio.run(main())


def warm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, **trap: object) -> Warm:
    return Warm(tmp_path, monkeypatch, Trap(**trap))  # type: ignore[arg-type]


def test_the_second_run_finds_the_machines_of_the_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = warm(tmp_path, monkeypatch)
    done = world.run(memory_plan(), replace(memory_plan(), seed=77))
    assert [each.warm for each in done] == [False, True]
    assert [each.outcome.valid for each in done] == [True, True]
    assert world.did == ["make", "boot", "clear", "boot again", "clear", "tear down"]


def test_a_plan_that_wants_other_machines_gets_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = warm(tmp_path, monkeypatch)
    plan = memory_plan()
    other = replace(plan, cluster=replace(plan.cluster, power_loss="drop"))
    done = world.run(plan, other)
    assert [each.warm for each in done] == [False, False]
    assert world.did == ["make", "boot", "clear", "tear down", "make", "boot", "clear", "tear down"]


def test_after_a_failure_of_the_harness_machines_are_new(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = warm(tmp_path, monkeypatch)
    monkeypatch.setattr(KeptCluster, "fails_again", True)
    first, second, third = world.run(memory_plan(), memory_plan(), memory_plan())
    assert not first.outcome.failures
    assert "no engine answers" in second.outcome.failures[0]
    assert not third.outcome.failures
    assert [each.warm for each in (first, second, third)] == [False, True, False]
    assert world.did.count("boot") == 2


def test_a_run_whose_boot_failed_leaves_nothing_warm(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = warm(tmp_path, monkeypatch, crash="await_ready")
    done = world.run(memory_plan(), memory_plan())
    assert all(each.outcome.failures for each in done)
    assert not any(each.warm for each in done)
    assert world.did.count("tear down") == 2
