"""Brokers broken on purpose, one defect each, and what the harness must say of them.

A mutant is data: what is replaced in the broker's sources, the run that shows it, and the verdict.
The runs are those that end-to-end tests make of the sound broker, or like them. It is valid in all
of them (tests/planted/test_mutants_sim.py), so a verdict is about the defect and not about the run.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal

import pytest

from tests.end_to_end.runs import Done
from tests.end_to_end.scenarios import arguments, one_at_a_time
from tests.world.mutants import Edit

World = Literal["sim", "local", "docker"]


@dataclass(frozen=True, slots=True)
class Mutant:
    """``scenario``: a key of SCENARIOS. ``valid``, ``checker`` and ``kind``: the verdict on the
    run, the checker that says it, and the kind of anomaly that it names; none: it has notes only.
    ``worlds``: where it can be shown. ``awaits``: what is not judged yet, if the verdict is not
    what it must be; the test then fails as soon as it is. ``on_nodes``: the checker that says it of
    real nodes, if another."""

    name: str
    breaks: str
    edits: tuple[Edit, ...]
    scenario: str
    checker: str
    kind: str = ""
    valid: bool | Literal["unknown"] = False
    worlds: tuple[World, ...] = ("sim", "local", "docker")
    awaits: str = ""
    on_nodes: str = ""


_KILL = one_at_a_time()
# Deep enough that a mirror is promoted before all that it was given has been delivered.
_DEEP = ("--workload", "fifo", "--depth", "40", "--enqueue-fraction", "0.8", "--ack-after", "20ms")
SCENARIOS: dict[str, tuple[str, ...]] = {
    "kill": tuple(arguments("kill", _KILL)),
    "kill-one": tuple(arguments("kill", one_at_a_time("one"))),
    "kill-all": tuple(arguments("kill-all", replace(_KILL, targets="one", interval_s=3))),
    "kill-fifo": (*arguments("kill", _KILL), *_DEEP),
    "calm": tuple(arguments("none", _KILL)),
    "isolate-controlled": (
        *("test", "--system", "controller", "--profile", "safe", "--nemesis", "partition-one"),
        *("--targets", "master", "--time-limit", "24", "--nemesis-interval", "10"),
        *("--nemesis-duration", "8", "--rate", "40", "--seed", "3"),
    ),
}

_REPLICA = "shalott/broker/rabbit/replica"
_STORAGE = "shalott/broker/rabbit/storage"

# A mirror that ends by no assertion when it holds other messages than its master.
_QUIET_MIRROR = Edit(
    f"{_REPLICA}/mirror.py",
    '        assert self.depth_delta + change >= 0, f"depth delta {self.depth_delta}'
    ' and {change}"\n'
    "        self._set_delta(self.depth_delta + change)\n",
    "        self._set_delta(max(0, self.depth_delta + change))\n",
)

MUTANTS: tuple[Mutant, ...] = (
    Mutant(
        name="crash-loop",
        breaks="a mirror's process ends by an exception after every few messages, for ever",
        edits=(
            Edit(
                f"{_REPLICA}/mirror.py",
                '                self.confirms.match(channel, content.id, "published")\n',
                "                if content.id % 20 == 0:\n"
                "                    raise RuntimeError('planted')\n"
                '                self.confirms.match(channel, content.id, "published")\n',
            ),
        ),
        scenario="calm",
        checker="crashes",
        kind="crashed",
    ),
    Mutant(
        name="out-of-memory",
        breaks="a node is killed as the kernel kills who takes too much memory",
        edits=(
            Edit(
                f"{_STORAGE}/backing_queue.py",
                "        assert content.id not in self.messages.entries,",
                "        if self._serial == 60:\n"
                "            import os\n\n"
                "            os.kill(os.getpid(), 9)\n"
                "        assert content.id not in self.messages.entries,",
            ),
        ),
        scenario="calm",
        checker="deaths",
        kind="died",
        worlds=("local", "docker"),
    ),
    Mutant(
        name="dropped-mirror-write",
        breaks="a mirror forgets one message in five, and confirms it",
        edits=(
            Edit(
                f"{_REPLICA}/mirror.py",
                "                    mark = self.queue.publish(content, redelivered=True,"
                " expiry=expiry)\n",
                "                    mark = self.queue.index.mark\n"
                "                    if content.id % 5:\n"
                "                        mark = self.queue.publish(content)\n",
            ),
            _QUIET_MIRROR,
        ),
        scenario="kill",
        checker="total-queue",
        kind="lost",
    ),
    Mutant(
        name="lost-requeue",
        breaks="what a dead client had not acknowledged is not given to anybody else",
        edits=(
            Edit(
                f"{_STORAGE}/backing_queue.py",
                "        entries = self.messages.unacked_among(ids)\n"
                "        for entry in entries:\n",
                "        entries = self.messages.unacked_among(())\n"
                "        for entry in entries:\n",
            ),
        ),
        scenario="kill",
        checker="total-queue",
        kind="lost",
    ),
    Mutant(
        name="wrong-redelivered-flag",
        breaks="the flag redelivered is never set",
        edits=(
            Edit(
                f"{_STORAGE}/backing_queue.py",
                "        return Fetched(content, redelivered, self.messages.ready)\n",
                "        return Fetched(content, False, self.messages.ready)\n",
            ),
        ),
        scenario="kill-one",
        checker="total-queue",
        kind="unflagged",
    ),
    Mutant(
        name="ack-before-fsync",
        breaks="publishes are confirmed before they are written, and written seconds later",
        edits=(
            Edit(
                f"{_STORAGE}/flusher.py",
                "        return self._journal.durable_mark\n\n    def append",
                "        return self._journal.mark\n\n    def append",
            ),
            Edit(f"{_STORAGE}/flusher.py", "LAZY_FLUSH_MS = 50\n", "LAZY_FLUSH_MS = 2000\n"),
            Edit(
                f"{_STORAGE}/flusher.py",
                "self.sync_interval_ms if eager else LAZY_FLUSH_MS\n",
                "LAZY_FLUSH_MS\n",
            ),
        ),
        scenario="kill-all",
        checker="total-queue",
        kind="lost",
    ),
    Mutant(
        name="reordered-sync",
        breaks="a synchronisation sends the messages to a mirror in the wrong order",
        edits=(
            Edit(
                f"{_REPLICA}/sync.py",
                "        self._messages = queue.snapshot()\n",
                "        self._messages = queue.snapshot()\n"
                "        self._messages._entries = self._messages._entries[::-1]\n",
            ),
            _QUIET_MIRROR,
        ),
        scenario="kill-fifo",
        checker="fifo-order",
        kind="order",
    ),
    Mutant(
        name="stuck-queue",
        breaks="a queue's master stops to answer consumers after a while",
        edits=(
            Edit(
                "shalott/broker/rabbit/queue_process/process.py",
                "        answer = master.handle_call(request)\n        while answer is None",
                "        if isinstance(request, Get) and master.queue._serial > 80:\n"
                "            return None\n"
                "        answer = master.handle_call(request)\n        while answer is None",
            ),
        ),
        scenario="calm",
        checker="total-queue",
        valid="unknown",
    ),
    Mutant(
        name="slow-leak",
        breaks="one message in fifty is forgotten when its turn comes to be delivered",
        edits=(
            Edit(
                f"{_STORAGE}/backing_queue.py",
                "        redelivered, content = entry.redelivered, entry.content\n",
                "        if entry.serial % 50 == 0:\n"
                "            self.messages.await_ack(entry)\n"
                "            self._remove([entry])\n"
                "            return self.fetch(no_ack=no_ack)\n"
                "        redelivered, content = entry.redelivered, entry.content\n",
            ),
        ),
        scenario="calm",
        checker="total-queue",
        kind="lost",
    ),
    Mutant(
        name="ack-before-slave",
        breaks="a master under controllers confirms what no slave has yet",
        edits=(
            Edit(
                "shalott/broker/rocket/ha/group_transfer.py",
                "            return all(ack.offset >= next_offset for ack in self._members())\n",
                "            return True\n",
            ),
        ),
        scenario="isolate-controlled",
        checker="log",
        kind="lost-write",
        on_nodes="i1-acked-on-members",
    ),
    Mutant(
        name="lost-truncation",
        breaks="a former master keeps a tail that the new one's log does not have",
        edits=(
            Edit(
                "shalott/broker/rocket/autoswitch/client.py",
                "        truncated = point < replicated.max_offset\n",
                "        truncated = False\n",
            ),
        ),
        scenario="isolate-controlled",
        checker="log",
        kind="lost-on-node",
        valid="unknown",
        on_nodes="liveness",  # the cluster never comes to rest
    ),
    Mutant(
        name="mirror-answers-as-master",
        breaks="a consumer is served by the mirror on its node, beside the master",
        edits=(
            Edit(
                "shalott/broker/rabbit/amqp/queue_methods.py",
                "                    row.pid, request, timeout_ms=None,",
                "                    next(\n"
                "                        (p for p in row.sync_slave_pids\n"
                "                         if p.node == self._context.pid.node\n"
                "                         and type(request).__name__ == 'Get'),\n"
                "                        row.pid,\n"
                "                    ), request, timeout_ms=None,",
            ),
            Edit(
                "shalott/broker/rabbit/queue_process/process.py",
                "        if not isinstance(master, Master):\n            return Failed",
                "        head = master.queue.messages.peek() if isinstance(master, Mirror) else"
                " None\n"
                "        if head is not None and isinstance(request, Get):\n"
                "            return Got(0, head.redelivered, head.content, 0)\n"
                "        if not isinstance(master, Master):\n            return Failed",
            ),
            Edit(
                "shalott/broker/rabbit/queue_process/process.py",
                "from shalott.broker.rabbit.amqp.queue_protocol import ",
                "from shalott.broker.rabbit.amqp.queue_protocol import Get, Got\n"
                "from shalott.broker.rabbit.amqp.queue_protocol import ",
            ),
        ),
        scenario="calm",
        checker="total-queue",
        kind="unflagged",
    ),
)


def command(scenario: str, world: World) -> list[str]:
    """Real nodes take seconds to start again: there a run is long enough for three faults or four.
    A copy that a synchronisation made rules only after the third. Controllers miss a master that is
    cut off after ten seconds and more: there the cuts last twice that."""
    longer_s = {"calm": 10, "kill-fifo": 30, "isolate-controlled": 75}.get(scenario, 16)
    longer = () if world == "sim" else ("--time-limit", str(longer_s))
    if scenario == "isolate-controlled" and world != "sim":
        longer = (*longer, "--nemesis-duration", "20", "--nemesis-interval", "26")
    return [*SCENARIOS[scenario], *longer, "--cluster", world]


def assert_found(mutant: Mutant, run: Done, world: World) -> None:
    """The verdict is what the mutant says, by that checker and for that reason."""
    assert run.exit_code == {False: 1, "unknown": 2}[mutant.valid], run
    assert run.results.valid == mutant.valid, run
    is_other = bool(mutant.on_nodes) and world != "sim"
    checker = mutant.on_nodes if is_other else mutant.checker
    (result,) = [each for each in run.results.results if each.checker == checker]
    assert result.valid == mutant.valid, result
    kinds = {anomaly.kind for anomaly in result.anomalies}
    if mutant.kind and not is_other:
        assert mutant.kind in kinds, result
    else:
        assert result.notes or result.anomalies, result


# Their runs take the most of all; what they break, others that are found break as well.
LONG = (
    "crash-loop",
    "reordered-sync",
    "lost-requeue",
    "slow-leak",
    "stuck-queue",
    "wrong-redelivered-flag",
)


def cases(*worlds: World) -> list[Any]:
    """What pytest is to run: each mutant in those of these worlds in which it can be shown."""
    tiers = {"sim": pytest.mark.sim, "local": pytest.mark.local, "docker": pytest.mark.docker}
    found = []
    for world in worlds:
        for mutant in MUTANTS:
            if world in mutant.worlds:
                awaited = [pytest.mark.xfail(reason=mutant.awaits)] if mutant.awaits else []
                night = [pytest.mark.nightly("longest of its kind")] if mutant.name in LONG else []
                marks = (tiers[world], *awaited, *night)
                found.append(pytest.param(world, mutant, marks=marks, id=f"{world}-{mutant.name}"))
    return found
