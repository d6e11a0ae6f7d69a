"""A property of the simulated network: whatever is written, cut, lost, throttled and paused, in any
order, each direction delivers exactly the bytes written, in order, or the connection ends."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shalott.cluster.nodes import LinkShape
from shalott.cluster.sim.network.network import NetworkKnobs
from tests.world.clock.turns import passes
from tests.world.network.hosts import End, Joined, World

pytestmark = pytest.mark.explore

QUIET_S = 130  # longer than the longest retransmission timeout

LINKS = st.sampled_from([("a", "b"), ("b", "a")])
STEPS = st.one_of(
    st.tuples(st.just("write"), st.integers(1, 3000)),
    st.tuples(st.just("answer"), st.integers(1, 3000)),
    st.tuples(st.just("cut"), LINKS),
    st.tuples(st.just("mend"), LINKS),
    st.tuples(st.just("loss"), st.sampled_from([0.0, 0.3, 1.0])),
    st.tuples(st.just("rate"), st.sampled_from([0, 5_000])),
    st.tuples(st.just("delay"), st.sampled_from([0, 40])),
    st.tuples(st.just("clog"), st.integers(1, 3000)),
    st.tuples(st.just("read"), st.booleans()),
    st.tuples(st.just("run"), st.booleans()),
    st.tuples(st.just("wait_ms"), st.sampled_from([0.1, 1, 100, 700, 3000])),
)


@dataclass
class Storm:
    """What was done to one connection so far."""

    world: World
    joined: Joined
    sent: dict[str, bytearray] = field(
        default_factory=lambda: {"write": bytearray(), "answer": bytearray()}
    )
    loss: float = 0.0
    rate: int = 0
    delay: int = 0

    async def step(self, kind: str, what: object) -> None:
        network, joined = self.world.network, self.joined
        match kind, what:
            case (("write" | "answer"), int(size)):
                self._send(joined.near if kind == "write" else joined.far, self.sent[kind], size)
            case "cut", tuple(link):
                network.cut([link])
            case "mend", tuple(link):
                network.mend([link])
            case "loss" | "rate" | "delay", _:
                setattr(self, kind, what)
                network.shape(
                    "a", "b", LinkShape(loss=self.loss, rate_bytes_s=self.rate, delay_ms=self.delay)
                )
            case "clog", int(duration_ms):
                network.clog("a", "b", duration_ms)
            case "read", bool(resumes):
                transport = joined.far.transport
                if joined.server.state == "running":
                    (transport.resume_reading if resumes else transport.pause_reading)()
            case "run", bool(resumes):
                self._run(resumes)
            case "wait_ms", (int() | float()) as delay_ms:
                await passes(delay_ms / 1000)
            case _:
                raise AssertionError(kind)

    def _send(self, end: End, sent: bytearray, size: int) -> None:
        if not end.transport.is_closing():
            data = bytes((len(sent) + number) % 251 for number in range(size))
            sent += data
            end.transport.write(data)

    def _run(self, resumes: bool) -> None:
        if resumes:
            self.world.loop.resume(self.joined.server)
        elif self.joined.server.state == "running":
            self.joined.server.state = "paused"

    async def end(self) -> None:
        """Undo everything, and let the kernels do what is left."""
        self.world.network.heal()
        self._run(resumes=True)
        self.joined.far.transport.resume_reading()
        await passes(QUIET_S)
        joined, sent = self.joined, self.sent
        assert sent["write"].startswith(joined.far.received), "wrong bytes"
        assert sent["answer"].startswith(joined.near.received), "wrong bytes"


def storm(
    steps: list[tuple[str, object]], window: int, jitter_us: int, *, last: str | None = None
) -> Storm:
    async def main() -> Storm:
        found = Storm(world, await world.join())
        for kind, what in steps:
            await found.step(kind, what)
        if last == "kill":
            world.kill(found.joined.server)
        elif last == "power":
            world.power_off(found.joined.server)
            await passes(1)
            world.network.host_up("b")
        elif last == "close":
            found.joined.near.transport.close()
        await found.end()
        return found

    world = World(NetworkKnobs(window_bytes=window, jitter_us=jitter_us))
    result: Storm = world.run(main())
    return result


def settled(*, examples: int = 100) -> settings:
    return settings(max_examples=examples, deadline=None)


STORMS = st.lists(STEPS, max_size=30)
WINDOWS = st.sampled_from([1000, 100_000])
JITTERS = st.sampled_from([0, 2000])


@given(steps=STORMS, window=WINDOWS, jitter_us=JITTERS)
@settled(examples=150)
def test_a_live_connection_delivers_everything_in_order(
    steps: list[tuple[str, object]], window: int, jitter_us: int
) -> None:
    found = storm(steps, window, jitter_us)
    near, far = found.joined.near, found.joined.far
    assert far.received == found.sent["write"]
    assert near.received == found.sent["answer"]
    assert not near.lost.is_set()
    assert not far.lost.is_set()


@given(steps=STORMS, window=WINDOWS, jitter_us=JITTERS)
@settled()
def test_a_closed_connection_delivers_everything_and_its_end_or_breaks(
    steps: list[tuple[str, object]], window: int, jitter_us: int
) -> None:
    found = storm(steps, window, jitter_us, last="close")
    near, far = found.joined.near, found.joined.far
    assert near.lost.is_set()
    assert near.error is None or isinstance(near.error, ConnectionResetError)
    if far.error is None:
        assert far.received == found.sent["write"]
        assert far.ended or far.lost.is_set()
    if not found.sent["answer"]:
        assert far.error is None


@given(steps=STORMS, window=WINDOWS, jitter_us=JITTERS)
@settled()
def test_the_peer_of_a_killed_process_is_reset(
    steps: list[tuple[str, object]], window: int, jitter_us: int
) -> None:
    found = storm(steps, window, jitter_us, last="kill")
    assert isinstance(found.joined.near.error, ConnectionResetError)


@given(steps=STORMS, window=WINDOWS, jitter_us=JITTERS)
@settled()
def test_the_peer_of_a_host_without_power_is_reset_once_it_has_something_to_send(
    steps: list[tuple[str, object]], window: int, jitter_us: int
) -> None:
    found = storm(steps, window, jitter_us, last="power")
    near = found.joined.near
    unsent = near.transport.get_write_buffer_size()
    assert not unsent, "what waits for room must meet the reset"
    if near.lost.is_set():
        assert isinstance(near.error, ConnectionResetError)
