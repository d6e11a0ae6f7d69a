"""Every seed gives one run: twice in one process, and in a fresh interpreter whose strings hash
otherwise and whose heap lies elsewhere. What breaks that is found, and its first event named.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator

import pytest

from shalott.broker.rabbit.processes.runtime import Runtime
from shalott.cluster.sim.loop.trace import Trace, differing_chunk, first_difference
from shalott.core.plan import Plan
from shalott.harness.run.simulate import simulate
from shalott.harness.scenarios.swarm import USUAL, Subject, draw_plan
from tests.tidy.sources import ROOT

pytestmark = pytest.mark.sim

SEEDS = (11, 12, 13)
TIME_LIMITS_MS = (20_000,)
ALIEN = "import json, sys; from tests.simulation.test_determinism import digests; "
# So that page-aligned heaps do not happen to repeat the low bits of addresses.
JUNK = "junk = [bytearray(37 * n % 5000 + 1) for n in range(20_000)]; "


def plan_of(seed: int) -> Plan:
    profile = "safe" if seed % 2 else "upstream"
    return draw_plan(Subject(profile=profile, swarm=USUAL.but(time_limit_ms=TIME_LIMITS_MS)), seed)


def digests(seeds: tuple[int, ...]) -> list[str]:
    return [simulate(plan_of(seed)).digest for seed in seeds]


@pytest.fixture(scope="module")
def first() -> list[str]:
    return digests(SEEDS)


def test_a_second_run_in_the_same_process_is_the_same(first: list[str]) -> None:
    assert digests(SEEDS) == first


def test_a_fresh_interpreter_with_other_hashes_and_another_heap_is_the_same(
    first: list[str],
) -> None:
    program = f"{JUNK}{ALIEN}json.dump(digests({SEEDS!r}), sys.stdout)"
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=ROOT,
        env={**os.environ, "PYTHONHASHSEED": "4711"},
        capture_output=True,
        text=True,
        timeout=280,
        check=True,
    )
    assert json.loads(done.stdout) == first


def test_other_seeds_are_other_runs(first: list[str]) -> None:
    assert len(dict.fromkeys(first)) == len(SEEDS)


@pytest.fixture
def unsteady(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A broker in which the 1000th message that a node sends is sent a little later in every second
    run: the smallest thing that a set or a module's counter might do.
    """
    sent, runs = [0], [0]
    original = Runtime.send

    def send(self: Runtime, to: object, message: object) -> None:
        sent[0] += 1
        if sent[0] == 1000 and runs[0] % 2:
            original(self, to, message)  # type: ignore[arg-type]
        original(self, to, message)  # type: ignore[arg-type]

    def fresh_run(*args: object, **more: object) -> None:
        sent[0] = 0
        runs[0] += 1

    monkeypatch.setattr(Runtime, "send", send)
    original_init = Trace.__init__

    def init(self: Trace, *, label_chunk: int | None = None) -> None:
        fresh_run()
        original_init(self, label_chunk=label_chunk)

    monkeypatch.setattr(Trace, "__init__", init)
    yield


@pytest.mark.usefixtures("unsteady")
def test_a_run_that_differs_is_noticed_and_the_first_event_named() -> None:
    plan = plan_of(SEEDS[0])
    traces = [simulate(plan).trace for _ in range(2)]
    assert traces[0] is not None
    assert traces[1] is not None
    chunk = differing_chunk(traces[0].checkpoints, traces[1].checkpoints)
    assert chunk is not None
    labelled = [simulate(plan, label_chunk=chunk).trace for _ in range(2)]
    assert labelled[0] is not None
    assert labelled[1] is not None
    sentence = first_difference(labelled[0].labels, labelled[1].labels)
    assert "t=1" in sentence
    assert "differs" in sentence
