"""Random faults under safe settings: kills, power losses, partitions, pauses, disks that are full,
slow or short, of one node or two at a time; invariants I1 to I4 all the time, equal bytes after
the heal.

I1 is judged from outside: whenever a send is acknowledged, its bytes are found on the disk of every
member of the controller's set and of the master's. I2 and I4: a new master was elected from the set
and is the only one of its epoch. I3: its log has all that was acknowledged before.
"""

from __future__ import annotations

import asyncio
import dataclasses
import random

import pytest

from shalott.broker.rocket.autoswitch.client import Slave
from shalott.broker.rocket.autoswitch.service import AutoSwitchHAService
from shalott.broker.rocket.commitlog.replica import PutStatus
from shalott.cluster.nodes import DiskFaults
from shalott.cluster.sim.network.network import NetworkKnobs
from tests.world.clock.turns import passes
from tests.world.rocket.replicas import CONTROLLER, Broker, Group

pytestmark = pytest.mark.explore

GROUP = "shalott"
DISKS = {
    "disk full": DiskFaults(full=True),
    "disk slow": DiskFaults(slow_ms=40),
    "disk short": DiskFaults(short=True),
}
FAULTS = (
    "kill",
    "power",
    "isolate",
    "cut one way",
    "pause",
    "controller",
    "two at once",
    *DISKS,
)


class Explorer:
    """One run. ``problems`` are violations, in the order in which they were seen."""

    def __init__(self, group: Group, seed: int) -> None:
        self.group = group
        self.rng = random.Random(seed)
        self.acknowledged: dict[bytes, int] = {}  # and where it ends
        self.problems: list[str] = []
        self.masters: dict[int, str] = {}  # of epochs
        self.members: tuple[int, ...] = ()  # of the set that the controller last knew
        self._stop = asyncio.Event()

    # -- producing ---------------------------------------------------------------------------------

    async def produce(self) -> None:
        number = 0
        while not self._stop.is_set():
            number += 1
            body = b"<%08d>" % number + b"." * self.rng.randrange(700)
            broker = self.group[self.rng.choice(self.group.names)]
            if broker.is_up and broker.role == "master":
                await self._send(broker, body)
            await passes(self.rng.random() * 0.02)

    async def _send(self, broker: Broker, body: bytes) -> None:
        task = asyncio.create_task(broker.put(body))
        await asyncio.wait([task], timeout=0.5)
        task.add_done_callback(lambda done: self._sent(broker, body, done))

    def _sent(self, broker: Broker, body: bytes, done: asyncio.Task[object]) -> None:
        result = done.result()
        if getattr(result, "status", None) is not PutStatus.PUT_OK:
            return
        end = result.stage.end  # type: ignore[attr-defined]
        self.acknowledged[body] = end
        self._check_i1(broker, body, end)

    def _check_i1(self, broker: Broker, body: bytes, end: int) -> None:
        controller = self.group.controller
        if controller.is_up and controller.controller.is_serving:
            groups = controller.controller.replicated.applied.groups
            self.members = groups[GROUP].sync.members
        members = list(self.members)
        tenure = broker.replica.service.tenure if broker.is_up else None
        if tenure is not None:
            members += tenure.set.members
        for other in self.group.brokers.values():
            if other.lives and other.id in members and not self._is_durable(other, body):
                self.problems.append(f"I1: {other.name} lacks {body[:10]!r} at {end}")

    def _is_durable(self, broker: Broker, body: bytes) -> bool:
        """On the disk itself: what a power loss would leave, too."""
        files = [path for path in broker.disk.files() if path.startswith("commitlog/")]
        inodes = [broker.disk._tree.find_file(path) for path in files]
        return body in b"".join(bytes(inode.durable) for inode in inodes)

    # -- faults ------------------------------------------------------------------------------------

    async def break_things(self, rounds: int) -> None:
        for _ in range(rounds):
            await passes(self.rng.random() * 4)
            fault = self.rng.choice(FAULTS)
            names = [self.rng.choice(self.group.names)]
            if fault == "two at once":
                names = self.rng.sample(self.group.names, 2)
                fault = self.rng.choice(("kill", "isolate"))
            for name in names:
                self._break(fault, name)
            await passes(self.rng.random() * 6)
            await self._repair()

    def _break(self, fault: str, name: str) -> None:
        group, network = self.group, self.group.world.network
        if fault == "kill":
            group[name].kill()
        elif fault == "power":
            group[name].lose_power()
        elif fault == "isolate":
            group.isolate(name, *([CONTROLLER] if self.rng.random() < 0.3 else []))
        elif fault == "cut one way":
            other = self.rng.choice([one for one in group.nodes if one != name])
            network.cut([(name, other) if self.rng.random() < 0.5 else (other, name)])
        elif fault == "pause":
            process = group[name].process
            assert process is not None
            process.state = "paused"
        elif fault in DISKS:
            group[name].disk.set_faults(DISKS[fault])
        elif self.rng.random() < 0.5:
            group.controller.kill()
        else:
            group.controller.lose_power()

    async def _repair(self) -> None:
        self.group.heal()
        for node in (self.group.controller, *self.group.brokers.values()):
            node.disk.set_faults(None)
            if node.process is not None:
                self.group.world.loop.resume(node.process)
            if node.process is None:
                await node.start()

    # -- judging -----------------------------------------------------------------------------------

    def judge_events(self) -> None:
        for event in self.group.events:
            if event.kind == "elected" and event.detail.get("unclean"):
                self.problems.append(f"I2: unclean election {event}")
            if event.kind != "role" or event.role != "master":
                continue
            other = self.masters.setdefault(event.epoch, event.node)
            if other != event.node:
                self.problems.append(f"I4: {other} and {event.node} in epoch {event.epoch}")
        for name, broker in self.group.brokers.items():
            epochs = [e.epoch for e in self.group.events if e.node == name and e.kind == "epoch"]
            if epochs != sorted(epochs):
                self.problems.append(f"{name}: epochs go back: {epochs}")
            self.problems += [f"{name} gave itself up: {why}" for why in broker.failures]
        cuts = [e for e in self.group.events if e.kind == "truncated"]
        for cut in cuts:
            if cut.detail["to"] < cut.detail["confirmed"]:
                self.problems.append(f"{cut.node} cut what was confirmed: {cut.detail}")

    async def judge_logs(self) -> None:
        logs = {name: await broker.log() for name, broker in self.group.brokers.items()}
        if len(dict.fromkeys(logs.values())) != 1:
            self.problems.append(f"logs differ: { {k: len(v) for k, v in logs.items()} }")
        for name, log in logs.items():
            lost = [body for body in self.acknowledged if log.count(body) != 1]
            if lost:
                self.problems.append(f"{name} lost {len(lost)}, first {lost[0][:10]!r}")
        entries = [broker.replica.service.cache.entries for broker in self.group.brokers.values()]
        if len(dict.fromkeys(entries)) != 1:
            self.problems.append(f"epochs differ: {entries}")

    async def judge_queues(self) -> None:
        """Queue offsets are given once, without a gap, and every message is found by its own."""
        for broker in self.group.brokers.values():
            end = broker.end
            await broker.here(broker.store.dispatched(min(end, broker.store.confirm_offset)))
        master = self.group.master()
        assert master is not None
        first, end = master.store.reader.queue_range("t", 0)
        found: list[bytes] = []
        while first < end:
            got = await master.here(
                master.store.reader.get("t", 0, first, max_messages=32, max_bytes=1 << 20)
            )
            found += got.messages
            first = got.next_offset
        offsets = [int.from_bytes(data[20:28], "big") for data in found]
        if offsets != list(range(len(found))):
            self.problems.append("queue offsets are not 0, 1, 2, ...")
        missing = [b for b in self.acknowledged if not any(b in data for data in found)]
        if missing:
            self.problems.append(f"consumers never see {missing[0][:10]!r} and {len(missing)} more")

    async def run(self, rounds: int) -> None:
        await self.group.start()
        await self.group.settled()
        producing = asyncio.create_task(self.produce())
        await self.break_things(rounds)
        self._stop.set()
        await producing
        await self.group.settled()
        master = self.group.master()
        assert master is not None
        await master.put_ok(b"<the end>")
        await self.group.settled()
        self.judge_events()
        await self.judge_logs()
        await self.judge_queues()


def explore(seed: int, *bugs: str, rounds: int = 6) -> Explorer:
    knobs = NetworkKnobs(jitter_us=500, loss=0.01) if seed % 2 else NetworkKnobs(jitter_us=2000)
    group = Group(bugs=bugs, seed=seed, knobs=knobs)
    runs: list[Explorer] = []

    async def scenario(group: Group) -> None:
        runs.append(Explorer(group, seed))
        await runs[0].run(rounds)

    group.run(scenario)
    return runs[0]


@pytest.mark.parametrize("seed", range(1, 5))
def test_no_acknowledged_message_is_lost(seed: int) -> None:
    run = explore(seed)
    assert run.problems == []
    assert len(run.acknowledged) > 50


def test_the_explorer_sees_slaves_that_acknowledge_what_is_not_on_their_disk(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    slave_of = AutoSwitchHAService._slave

    def hasty(service: AutoSwitchHAService) -> Slave:
        return dataclasses.replace(slave_of(service), acks_flushed=False)

    monkeypatch.setattr(AutoSwitchHAService, "_slave", hasty)
    run = explore(1, rounds=1)
    assert any(problem.startswith("I1") for problem in run.problems)
