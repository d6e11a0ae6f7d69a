"""The agent's part in clock faults, with a host's clock that is made up: nothing is set here."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from shalott.cluster import faketime
from shalott.cluster.ssh.agent import clocks, firewall
from shalott.cluster.ssh.agent import state as states
from shalott.cluster.ssh.agent.agent_node import Node, NodeError
from shalott.cluster.ssh.agent.clocks import NodeClock
from shalott.cluster.ssh.agent.host_clock import HostClock, Reading
from shalott.cluster.ssh.agent.state import State, read_state, undo, write_state
from tests.world.clock.turns import until

pytestmark = pytest.mark.unit

S = 1_000_000_000
TRUE_NS = 1_700_000_000 * S  # the wall clock at boot


class MadeUp:
    """A host's clock; ``boot_ns`` passes by itself only when told to."""

    def __init__(self) -> None:
        self.boot_ns = 1000 * S
        self.offset_ns = 0
        self.refuses = False

    def read(self) -> Reading:
        return self.boot_ns - 50 * S, self.boot_ns, TRUE_NS + self.boot_ns + self.offset_ns

    def write(self, wall_ns: int) -> None:
        if self.refuses:
            raise PermissionError(1, "Operation not permitted")
        self.offset_ns = wall_ns - TRUE_NS - self.boot_ns

    @property
    def clock(self) -> HostClock:
        return HostClock(self.read, self.write)


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Where states are written, instead of /run."""
    monkeypatch.setattr(states, "state_root", lambda: tmp_path)
    monkeypatch.setattr(firewall, "remove", lambda name: None)
    yield tmp_path


def made_state(place: Path, name: str = "x-n1") -> State:
    state = State(name=name, run="r", owner="", directory=str(place / f"{name}.d"), lease_s=5)
    (place / name).mkdir()
    (Path(state.directory) / "config").mkdir(parents=True)
    (Path(state.directory) / "config" / clocks.FILE).write_text(faketime.file_text(0))
    write_state(state)
    return state


def made_clock(state: State, host: MadeUp) -> NodeClock:
    return NodeClock(state, Node(state, None, lambda code: None), host.clock)


def request(way: str, offset_ms: float, drift_ppm: float = 0) -> dict[str, Any]:
    return {"way": way, "offset_ms": offset_ms, "drift_ppm": drift_ppm}


def test_the_agent_and_the_harness_write_the_same_file() -> None:
    assert clocks.FILE == faketime.FILE and clocks.TICK_S == faketime.TICK_S
    for offset_ms in (0, 0.5, -5000, 3.6e6):
        assert clocks.file_text(offset_ms) == faketime.file_text(offset_ms)


def test_a_clock_file_is_written_in_place_and_a_drift_is_made_of_steps(place: Path) -> None:
    state, host = made_state(place), MadeUp()
    path = Path(state.directory) / "config" / clocks.FILE
    node = path.stat().st_ino

    async def scene() -> None:
        clock = made_clock(state, host)
        clock.set(request("library", -5000))
        assert float(path.read_text()) == -5
        clock.set(request("library", 0, 100_000))
        seen = {path.read_text()}

        def is_seen_often() -> bool:
            seen.add(path.read_text())
            return len(seen) > 4

        await until(is_seen_often, "it is written again and again", within_s=10)
        assert all(float(text) >= 0 for text in seen)
        clock.set(request("library", 0))
        await asyncio.sleep(3 * clocks.TICK_S)
        assert float(path.read_text()) == 0

    asyncio.run(scene())
    assert path.stat().st_ino == node
    assert host.offset_ns == 0 and state.true_ns is None


def test_a_hosts_clock_is_set_from_the_true_time_and_set_right_again(place: Path) -> None:
    state, host = made_state(place), MadeUp()

    async def scene() -> None:
        clock = made_clock(state, host)
        clock.set(request("host", 60_000))
        assert host.offset_ns == 60 * S
        host.boot_ns += 7 * S
        clock.set(request("host", -500))  # of the true time, not of the wrong one
        assert host.offset_ns == -S // 2
        host.boot_ns += 7 * S
        clock.set(request("host", 0))
        assert host.offset_ns == 0 and state.true_ns is None
        host.refuses = True
        clock.set(request("host", 0))  # nothing is set where nothing is wrong
        with pytest.raises(PermissionError):
            clock.set(request("host", 5))

    asyncio.run(scene())


def test_a_hosts_clock_drifts_by_steps(place: Path) -> None:
    state, host = made_state(place), MadeUp()

    async def scene() -> None:
        clock = made_clock(state, host)
        clock.set(request("host", 0, -100_000))
        await until(lambda: host.offset_ns < -5_000_000, "it runs slow", within_s=10)
        assert -S < host.offset_ns < -5_000_000
        clock.close()
        before = host.offset_ns
        await asyncio.sleep(3 * clocks.TICK_S)
        assert host.offset_ns == before

    asyncio.run(scene())


def test_what_sets_the_clock_right_is_written_down_before_it_is_set(place: Path) -> None:
    """The keeper, or a sweep, has nothing but the file."""
    state, host = made_state(place), MadeUp()

    def write(wall_ns: int) -> None:
        written = json.loads((place / state.name / "state.json").read_text())
        assert written["true_ns"] == TRUE_NS
        host.write(wall_ns)

    clock = NodeClock(state, Node(state, None, lambda code: None), HostClock(host.read, write))
    asyncio.run(_set(clock, request("host", 3_600_000)))
    assert host.offset_ns == 3600 * S
    host.boot_ns += 90 * S
    left = read_state(state.name)
    assert left is not None
    undo(left, host.clock)
    assert host.offset_ns == 0
    assert not (place / state.name).exists()


async def _set(clock: NodeClock, asked: dict[str, Any]) -> None:
    clock.set(asked)


def test_a_clock_that_can_not_be_set_right_stays_written_down(place: Path) -> None:
    state, host = made_state(place), MadeUp()
    asyncio.run(_set(made_clock(state, host), request("host", 1000)))
    host.refuses = True
    undo(state, host.clock)
    assert host.offset_ns == S
    left = read_state(state.name)
    assert left is not None and left.true_ns == TRUE_NS
    host.refuses = False
    undo(left, host.clock)
    assert host.offset_ns == 0 and read_state(state.name) is None


def test_undoing_a_run_that_never_set_the_clock_does_not_set_it(place: Path) -> None:
    state, host = made_state(place), MadeUp()
    host.refuses = True
    undo(state, host.clock)
    assert read_state(state.name) is None


def test_two_runs_can_not_set_one_clock(place: Path) -> None:
    first, second, host = made_state(place), made_state(place, "y-n1"), MadeUp()
    asyncio.run(_set(made_clock(first, host), request("host", 1000)))
    with pytest.raises(NodeError, match="another run has set this host's clock already"):
        asyncio.run(_set(made_clock(second, host), request("host", 1000)))
    assert host.offset_ns == S and second.true_ns is None


def test_a_state_of_an_older_agent_is_read(place: Path) -> None:
    state = made_state(place)
    path = place / state.name / "state.json"
    older = json.loads(path.read_text())
    del older["true_ns"]
    path.write_text(json.dumps(older))
    left = read_state(state.name)
    assert left is not None and left.true_ns is None


def test_a_reading_is_compared_with_the_true_time(place: Path) -> None:
    state, host = made_state(place), MadeUp()

    class Beside(Node):
        said = ""

        async def run_beside(self, command: Any, timeout_s: float) -> dict[str, Any]:
            return {"exit_code": 0, "output": self.said}

    async def scene() -> None:
        node = Beside(state, None, lambda code: None)
        clock = NodeClock(state, node, host.clock)
        monotonic, _, wall = host.read()
        node.said = f"{monotonic} {wall + 5 * S}\n"  # libfaketime's doing
        assert await clock.offset_ms(["read"]) == 5000
        clock.set(request("host", 2000))
        monotonic, _, wall = host.read()
        node.said = f"{monotonic} {wall}\n"  # a node that reads the host's clock
        assert await clock.offset_ms(["read"]) == 2000
        node.said = "no python3"
        with pytest.raises(NodeError, match="its clock can't be read by its python3: no python3"):
            await clock.offset_ms(["read"])

    asyncio.run(scene())
