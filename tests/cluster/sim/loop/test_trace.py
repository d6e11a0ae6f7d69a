"""The trace: equal for equal runs, different for any difference, which it names."""

from __future__ import annotations

import asyncio

import pytest

from shalott.cluster.sim.loop.loop import SimLoop
from shalott.cluster.sim.loop.processes import SimProcess
from shalott.cluster.sim.loop.trace import Trace, differing_chunk, first_difference

pytestmark = pytest.mark.unit


def traced(
    *, rounds: int = 3000, odd_at: int | None = None, label_chunk: int | None = None
) -> Trace:
    """A run of two tasks; in round ``odd_at`` one callback more than usual."""
    trace = Trace(label_chunk=label_chunk)

    async def ticking() -> None:
        for number in range(rounds):
            await asyncio.sleep(0.001)
            if number == odd_at:
                asyncio.get_running_loop().call_soon(_the_odd_one)

    async def main() -> None:
        await asyncio.gather(ticking(), asyncio.create_task(ticking(), name="second"))

    SimLoop(trace=trace).run(main(), SimProcess("harness"))
    trace.digest()
    return trace


def _the_odd_one() -> None:
    pass


def test_equal_runs_have_equal_digests() -> None:
    assert traced().digest() == traced().digest()
    assert differing_chunk(traced().checkpoints, traced().checkpoints) is None


def test_one_callback_more_is_seen_and_named() -> None:
    plain, odd = traced(), traced(odd_at=2500)
    assert plain.digest() != odd.digest()
    chunk = differing_chunk(plain.checkpoints, odd.checkpoints)
    assert chunk is not None
    assert chunk > 0
    labels = traced(label_chunk=chunk).labels, traced(odd_at=2500, label_chunk=chunk).labels
    sentence = first_difference(*labels)
    assert "_the_odd_one" in sentence
    assert "t=1002.5" in sentence
    assert "harness#1" in sentence


def test_bytes_count_and_not_only_their_number() -> None:
    digests = []
    for payload in (b"abc", b"abd"):
        trace = Trace()
        trace.segment(5, payload)
        digests.append(trace.digest())
    assert digests[0] != digests[1]


def test_labels_name_no_addresses() -> None:
    labels = traced(rounds=10, label_chunk=0).labels
    assert labels
    assert not any("0x" in label for label in labels)
    assert any("task second" in label for label in labels)
