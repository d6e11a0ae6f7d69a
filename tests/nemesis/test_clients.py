"""Cuts between clients and nodes: counted, proved, and told when they do nothing or stay."""

from __future__ import annotations

import asyncio
import importlib
from collections.abc import Coroutine, Iterator
from typing import Any

import pytest

from shalott.checkers.runs.stats import Stats
from shalott.core.plan import FaultAction
from shalott.nemesis import clients
from shalott.nemesis.record import FAULTS
from shalott.nemesis.runner import NemesisRunner
from shalott.nemesis.weaker import weaker_actions
from tests.world.clock import virtual
from tests.world.harness.nemesis import FakeCluster, FakeSystem, MemoryRecorder, make_plan

pytestmark = pytest.mark.unit

IS_ANSWERED = clients.is_answered  # the tests but one replace it
BOTH = "client-cut"
ONE_WAY = "client-cut-one-way"


class Scene:
    """A runner with fakes around it; clients use one port of two."""

    def __init__(self, *faults: FaultAction) -> None:
        self.cluster = FakeCluster()
        self.system = FakeSystem({"n2": []})
        self.recorder = MemoryRecorder()
        self.runner = NemesisRunner(
            self.cluster,  # type: ignore[arg-type]
            self.system,  # type: ignore[arg-type]
            make_plan(*faults),
            self.recorder,
            client_ports=("amqp",),
            proof_timeout_s=0.3,
        )

    async def perform(self) -> None:
        await self.runner.run()
        await self.runner.heal()

    def fault(self) -> dict[str, Any]:
        (fault,) = self.recorder.faults()
        return fault

    def probes(self, phase: str) -> dict[str, Any]:
        rows = [row["extra"] for row in self.recorder.of("probe")]
        return {row["check"]: row["seen"] for row in rows if row["phase"] == phase}


@pytest.fixture(autouse=True)
def fake_connections(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, Any]]:
    """A node answers unless either direction is cut."""
    here: dict[str, Any] = {}

    async def is_answered(host: str, port: int) -> bool:
        cluster = here["cluster"]
        up = cluster.states[host] != "exited"
        return up and not any(host in link for link in cluster.clients_cut)

    monkeypatch.setattr(clients, "is_answered", is_answered)
    yield here


def cut(kind: str, number: int = 1, **more: Any) -> FaultAction:
    timing = {"at_ms": 0, "duration_ms": 20} | more
    return FaultAction(id=number, kind=kind, target="n2", nodes=("n2",), **timing)


def within(seconds: float, scene: Coroutine[Any, Any, None]) -> None:
    """In virtual time."""
    # A simulation loads nothing: neither what is installed nor what pyarrow needs for an array.
    FAULTS.names()
    importlib.import_module("numpy.ma")

    async def bounded() -> None:
        async with asyncio.timeout(seconds):
            await scene

    virtual.run(bounded())


@pytest.mark.parametrize(
    ("kind", "links"), [(BOTH, "clients->n2 n2->clients"), (ONE_WAY, "n2->clients")]
)
def test_it_is_made_proved_and_healed(
    kind: str, links: str, fake_connections: dict[str, Any]
) -> None:
    async def scene() -> None:
        s = Scene(cut(kind))
        fake_connections["cluster"] = s.cluster
        await s.perform()
        fault = s.fault()
        assert fault["proved_effective"] and fault["proved_healed"] and fault["error"] is None
        assert fault["effects"] == ["cuts-clients"] and fault["links"] == []
        made = {"client cuts n2": links, "connect n2 amqp": False}
        assert s.probes("effective") == made | {"reach n2->n1": True, "reach n1->n2": True}
        assert s.probes("healed") == {"client cuts n2": "", "connect n2 amqp": True}
        assert s.cluster.clients_cut == ()

    within(5, scene())


@pytest.mark.parametrize("kind", [BOTH, ONE_WAY])
def test_one_that_does_nothing_makes_the_run_unknown(
    kind: str, fake_connections: dict[str, Any]
) -> None:
    async def scene() -> None:
        s = Scene(cut(kind))
        fake_connections["cluster"] = s.cluster
        s.cluster.client_cuts_do_nothing = True
        await s.perform()
        assert s.fault()["proved_effective"] is False
        result = Stats(min_acked=0).check(s.recorder.history())
        assert result.valid == "unknown"
        assert any("was not proved effective" in note for note in result.notes)

    within(5, scene())


def test_one_that_stays_is_not_proved_healed(fake_connections: dict[str, Any]) -> None:
    async def scene() -> None:
        s = Scene(cut(BOTH))
        fake_connections["cluster"] = s.cluster
        s.cluster.client_cuts_stay = True
        await s.perform()
        assert s.fault()["proved_effective"] is True and s.fault()["proved_healed"] is False

    within(5, scene())


def test_a_cut_that_parts_the_nodes_too_is_not_proved(fake_connections: dict[str, Any]) -> None:
    async def scene() -> None:
        s = Scene(cut(BOTH))
        fake_connections["cluster"] = s.cluster
        s.cluster.cuts.update([("n1", "n2")])
        await s.perform()
        assert s.fault()["proved_effective"] is False

    within(5, scene())


def test_two_that_overlap_are_mended_when_both_are_over(fake_connections: dict[str, Any]) -> None:
    async def scene() -> None:
        s = Scene(cut(BOTH, 1, duration_ms=150), cut(ONE_WAY, 2, at_ms=50, duration_ms=300))
        fake_connections["cluster"] = s.cluster
        await s.perform()
        made = [call for call in s.cluster.calls if call.startswith("set_client_cuts")]
        assert made == [
            "set_client_cuts clients->n2 n2->clients",
            "set_client_cuts clients->n2 n2->clients",
            "set_client_cuts n2->clients",
            "set_client_cuts",
        ]
        assert all(f["proved_effective"] and f["proved_healed"] for f in s.recorder.faults())

    within(5, scene())


def test_a_world_that_can_not_makes_no_such_fault(fake_connections: dict[str, Any]) -> None:
    class Plain:
        backend = "plain"
        links = None

    async def scene() -> None:
        s = Scene(cut(BOTH))
        fake_connections["cluster"] = s.cluster
        s.runner._client_cuts._cluster = Plain()  # type: ignore[assignment]
        await s.perform()
        assert "the plain cluster can't part clients from nodes" in s.fault()["error"]
        assert s.fault()["proved_effective"] is False

    within(5, scene())


def test_the_weaker_one_is_the_one_way_cut() -> None:
    assert [other.kind for other in weaker_actions(cut(BOTH))] == [ONE_WAY]
    assert [*weaker_actions(cut(ONE_WAY))] == []


def test_a_refusal_is_an_answer() -> None:
    """As of a backup, which does not listen: its clients are not cut off."""

    async def scene() -> None:
        server = await asyncio.start_server(lambda _, writer: writer.close(), "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        assert await IS_ANSWERED("127.0.0.1", port)
        server.close()
        await server.wait_closed()
        assert await IS_ANSWERED("127.0.0.1", port)

    asyncio.run(scene())
