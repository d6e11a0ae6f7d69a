"""How a broker gets its id: the crash points of ReplicasManagerRegisterTest as ours, and crashes at
every moment.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from shalott.broker.base.disk import File
from shalott.broker.base.env import Env, seeded_rng
from shalott.broker.base.errors import StorageError
from shalott.broker.rocket.controller.client import Master
from shalott.broker.rocket.controller.messages import BrokerIdInvalid
from shalott.broker.rocket.remoting.client import Unanswered
from shalott.broker.rocket.replicas.identity import (
    PATH,
    TEMPORARY_PATH,
    BrokerIdentity,
    RegisterState,
)
from shalott.cluster.sim.disk.disk import SimDisk
from shalott.cluster.sim.loop.loop import SimLoop
from shalott.cluster.sim.loop.processes import SimProcess
from tests.world.clock.turns import passes
from tests.world.env import Events, LoopClock

pytestmark = pytest.mark.unit

CLUSTER, GROUP, ADDRESS = "c", "g", "a:10911"
MASTER = Master(1, ADDRESS, 1, (1,), 1)


class Controllers:
    """What controllers remember of ids. ``fails`` is asked with the step's name; a step may fail
    before anything happened, or after ("step answered")."""

    def __init__(self) -> None:
        self.codes: dict[int, str] = {}
        self.registered: list[int] = []
        self.fails: Callable[[str], bool] = lambda step: False

    def _step(self, name: str) -> None:
        if self.fails(name):
            raise Unanswered(name)

    async def next_broker_id(self, cluster: str, group: str) -> int:
        await passes(0.001)
        self._step("next id")
        return max(self.codes, default=0) + 1

    async def apply_broker_id(
        self, cluster: str, group: str, broker_id: int, check_code: str
    ) -> None:
        await passes(0.001)
        self._step("apply")
        if self.codes.setdefault(broker_id, check_code) != check_code:
            raise BrokerIdInvalid(2014, "it is another broker's")
        await passes(0.001)
        self._step("apply answered")

    async def register_broker(
        self, cluster: str, group: str, broker_id: int, address: str
    ) -> Master:
        await passes(0.001)
        self._step("register")
        assert broker_id in self.codes
        self.registered.append(broker_id)
        return MASTER


class BrokenDisk:
    """A disk on which one path can't be written."""

    def __init__(self, disk: SimDisk, path: str) -> None:
        self._disk = disk
        self._path = path

    async def rename(self, source: str, target: str) -> None:
        if target == self._path:
            raise OSError(5, "the disk is broken")
        await self._disk.rename(source, target)

    async def open(self, path: str, *, create: bool) -> File:
        return await self._disk.open(path, create=create)

    async def remove(self, path: str) -> None:
        await self._disk.remove(path)

    async def sync_dir(self, path: str) -> None:
        await self._disk.sync_dir(path)

    async def listdir(self, path: str) -> list[str]:
        return await self._disk.listdir(path)

    async def free_bytes(self) -> int:
        return await self._disk.free_bytes()


class World:
    def __init__(self, seed: int = 1) -> None:
        self.loop = SimLoop()
        self.disk = SimDisk(self.loop, seed, "a")
        self.controllers = Controllers()

    def run(self, scenario: Callable[[World], Coroutine[Any, Any, None]]) -> None:
        self.loop.run(scenario(self), SimProcess("test", fenced=False))

    async def open(self, *, group: str = GROUP, broken: str = "") -> BrokerIdentity:
        disk: Any = BrokenDisk(self.disk, broken) if broken else self.disk
        env = Env("a", 1, LoopClock(), seeded_rng(1, 1), disk, Events("a", []))
        return await BrokerIdentity.open(env, cluster=CLUSTER, group=group, address=ADDRESS)

    def files(self) -> list[str]:
        return [path for path in self.disk.files() if not path.endswith(".new")]


def test_a_broker_registers() -> None:
    async def scenario(world: World) -> None:
        identity = await world.open()
        assert await identity.register(world.controllers) == MASTER
        assert identity.state is RegisterState.REGISTERED
        assert identity.broker_id == 1
        assert world.files() == [PATH]
        assert world.disk.read_all(PATH) == b"c#g#1"

    World().run(scenario)


def test_a_restarted_broker_has_its_id() -> None:
    async def scenario(world: World) -> None:
        await (await world.open()).register(world.controllers)
        identity = await world.open()
        assert identity.state is RegisterState.CREATE_METADATA_FILE_DONE
        assert identity.broker_id == 1
        await identity.register(world.controllers)
        assert list(world.controllers.codes) == [1]

    World().run(scenario)


def test_an_identity_of_another_group_is_refused() -> None:
    async def scenario(world: World) -> None:
        await (await world.open()).register(world.controllers)
        with pytest.raises(StorageError, match="belongs to"):
            await world.open(group="another")

    World().run(scenario)


def test_no_next_id() -> None:
    async def scenario(world: World) -> None:
        world.controllers.fails = lambda step: step == "next id"
        identity = await world.open()
        with pytest.raises(Unanswered):
            await identity.register(world.controllers)
        assert identity.state is RegisterState.INITIAL
        assert identity.broker_id is None
        assert world.files() == []

    World().run(scenario)


def test_no_temporary_file() -> None:
    async def scenario(world: World) -> None:
        identity = await world.open(broken=TEMPORARY_PATH)
        with pytest.raises(StorageError):
            await identity.register(world.controllers)
        assert identity.state is RegisterState.INITIAL
        assert world.files() == []
        assert world.controllers.codes == {}

    World().run(scenario)


@pytest.mark.parametrize("step", ["apply", "apply answered"])
def test_an_application_without_an_answer_is_repeated_with_the_same_code(step: str) -> None:
    async def scenario(world: World) -> None:
        world.controllers.fails = lambda name: name == step
        identity = await world.open()
        with pytest.raises(Unanswered):
            await identity.register(world.controllers)
        assert identity.state is RegisterState.CREATE_TEMP_METADATA_FILE_DONE
        assert identity.broker_id is None
        assert world.files() == [TEMPORARY_PATH]
        world.controllers.fails = lambda name: False
        identity = await world.open()
        await identity.register(world.controllers)
        assert identity.broker_id == 1
        assert list(world.controllers.codes) == [1]
        assert world.files() == [PATH]

    World().run(scenario)


def test_no_metadata_file() -> None:
    """The application succeeded: the next id is 2 by now, and this broker is 1 all the same."""

    async def scenario(world: World) -> None:
        identity = await world.open(broken=PATH)
        with pytest.raises(StorageError):
            await identity.register(world.controllers)
        assert identity.state is RegisterState.CREATE_TEMP_METADATA_FILE_DONE
        assert identity.broker_id is None
        assert world.files() == [TEMPORARY_PATH]
        identity = await world.open()
        await identity.register(world.controllers)
        assert identity.broker_id == 1
        assert world.files() == [PATH]
        assert world.controllers.registered == [1]

    World().run(scenario)


def test_no_registration() -> None:
    async def scenario(world: World) -> None:
        world.controllers.fails = lambda step: step == "register"
        identity = await world.open()
        with pytest.raises(Unanswered):
            await identity.register(world.controllers)
        assert identity.state is RegisterState.CREATE_METADATA_FILE_DONE
        assert identity.broker_id == 1
        assert world.files() == [PATH]
        world.controllers.fails = lambda step: step == "apply"  # it is not asked again
        identity = await world.open()
        await identity.register(world.controllers)
        assert identity.state is RegisterState.REGISTERED

    World().run(scenario)


def test_an_id_that_another_broker_got_first_is_given_up() -> None:
    async def scenario(world: World) -> None:
        identity = await world.open()
        world.controllers.fails = lambda step: step == "apply"
        with pytest.raises(Unanswered):
            await identity.register(world.controllers)
        world.controllers.codes[1] = "b:10911;7"
        world.controllers.fails = lambda step: False
        with pytest.raises(BrokerIdInvalid):
            await identity.register(world.controllers)
        assert identity.state is RegisterState.INITIAL
        assert world.files() == []
        await identity.register(world.controllers)
        assert identity.broker_id == 2

    World().run(scenario)


@pytest.mark.parametrize("content", [b"", b"c#g", b"c#g#x", b"c#g#1#code", b"\xff"])
def test_a_damaged_identity_is_noticed(content: bytes) -> None:
    async def scenario(world: World) -> None:
        file = await world.disk.open(PATH, create=True)
        await file.pwrite(content, 0)
        await file.close()
        with pytest.raises(StorageError):
            await world.open()

    World().run(scenario)


@pytest.mark.explore
@pytest.mark.parametrize("seed", range(60))
def test_a_crash_at_any_moment_costs_no_second_id(seed: int) -> None:
    """Kills and power losses, one after another, until it is registered."""

    async def scenario(world: World) -> None:
        for life in range(20):
            identities: list[BrokerIdentity] = []

            async def live(found: list[BrokerIdentity]) -> None:
                identity = await world.open()
                found.append(identity)
                await identity.register(world.controllers)

            process = SimProcess("a", life + 1)
            world.loop.add_process(process)
            task = world.loop.create_task(live(identities), context=process.context)
            await passes(0.0003 * (seed + 1) * (1 + life % 3))
            if task.done():
                task.result()
                assert identities[0].broker_id == 1
                break
            process.freeze()
            (world.disk.power_loss if (seed + life) % 2 else world.disk.kill)()
        else:
            identity = await world.open()
            await identity.register(world.controllers)
            assert identity.broker_id == 1
        assert list(world.controllers.codes) == [1]

    World(seed).run(scenario)
