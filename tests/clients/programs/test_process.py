"""What becomes of operations of clients that are programs, whichever way these go wrong."""

from __future__ import annotations

import asyncio
import os
import random
import sys
import time
from collections.abc import Callable, Coroutine
from pathlib import Path

import pytest

from shalott.clients.programs.build import built
from shalott.clients.programs.process import PLACES, ProgramProcess
from shalott.clients.programs.ways import (
    ProgramPartitioned,
    ProgramQueued,
    ProgramRegistered,
    ProgramTransactor,
)
from shalott.clients.queued_client import QueuedClient
from shalott.core.errors import CLIENT_PROGRAM, Definite, Indefinite, Unreachable, UsageError
from shalott.core.op import Invocation, OpType
from shalott.core.recording import HistoryWriter
from shalott.core.worker import Worker
from shalott.workloads.programs import find_program

STRANGE = Path(__file__).with_name("strange.py")
TIMEOUT_MS = 400
# Certainly nothing is known of an operation that ends so.
UNKNOWN = (
    *("dies", "is-killed", "closes", "stalls", "stops-reading", "no-json", "half-a-line"),
    *("no-object", "no-text", "deep", "wrong-id", "id-of-text", "wrong-type", "no-type"),
    *("wrong-value", "huge-line", "endless-line", "floods-errors", "late", "leaves-children"),
)


def process(how: str, times: int = 0, timeout_ms: int = TIMEOUT_MS) -> ProgramProcess:
    words = (sys.executable, str(STRANGE), how, str(times))
    return ProgramProcess(words, "127.0.0.1", 1, workload="queue", timeout_ms=timeout_ms)


def asked(
    how: str, do: Callable[[ProgramProcess], Coroutine[object, object, object]], times: int = 0
) -> object:
    async def run() -> object:
        program = process(how, times)
        try:
            await program.open()
            return await do(program)
        finally:
            await program.close()

    return asyncio.run(run())


@pytest.mark.explore
@pytest.mark.parametrize("how", UNKNOWN)
def test_what_is_no_answer_leaves_open_what_was_done(how: str) -> None:
    began = time.monotonic()
    with pytest.raises(Indefinite, match=f"^{CLIENT_PROGRAM}: "):
        asked(how, lambda program: ProgramRegistered(program).read("x"))
    assert time.monotonic() - began < 5


@pytest.mark.explore
def test_the_last_words_of_a_program_are_told() -> None:
    with pytest.raises(Indefinite, match="exit code 3: Traceback: it broke"):
        asked("dies", lambda program: ProgramRegistered(program).write("x", 1))


@pytest.mark.explore
def test_what_a_program_says_of_itself_counts() -> None:
    with pytest.raises(Definite, match="^refused$"):
        asked("says-fail", lambda program: ProgramRegistered(program).write("x", 1))
    with pytest.raises(Indefinite, match="^who knows$"):
        asked("says-info", lambda program: ProgramRegistered(program).write("x", 1))


@pytest.mark.explore
def test_an_answer_that_was_not_asked_for_spoils_what_was_not_begun() -> None:
    """The first answer is taken; the second is one too many, and the next operation is not even
    written. After that another process is there."""

    async def run() -> None:
        client = ProgramRegistered(process("answers-twice"))
        await client.open()
        try:
            assert await client.read("x") is None
            await asyncio.sleep(0.1)
            with pytest.raises(Unreachable, match="not asked"):
                await client.read("x")
            assert await client.read("x") is None
        finally:
            await client.close()

    asyncio.run(run())


@pytest.mark.explore
def test_every_way_takes_good_answers() -> None:
    async def run() -> None:
        program = process("dies", times=100)
        await program.open()
        try:
            queued = ProgramQueued(program)
            await queued.send("q", b"\x00\xff")
            assert await queued.receive("q") is None
            registered = ProgramRegistered(program)
            await registered.write("x", 3)
            assert await registered.cas("x", 3, 4) is True
            partitioned = ProgramPartitioned(program)
            assert await partitioned.transact([("send", 1, 7)], {}) == [(0, 7)]
            assert await partitioned.transact([("poll",)], {1: 0}) == [{}]
            mops = [("r", 1, None), ("append", 1, 2)]
            assert await ProgramTransactor(program).transact(mops) == mops
        finally:
            await program.close()

    asyncio.run(run())


@pytest.mark.explore
def test_beside_others_keys_have_the_run_s_prefix() -> None:
    async def run() -> None:
        program, other = (
            process(how, timeout_ms=30_000) for how in ("tells-of-all", "tells-of-others")
        )
        try:
            logs = ProgramPartitioned(program, "p-")
            assert await logs.transact([("send", 3, 7)], {}) == [(0, 7)]
            assert await logs.transact([("poll",)], {0: 5, 3: 0}) == [{0: [(5, 0)], 3: [(0, 3)]}]
            transactor = ProgramTransactor(program, "p-")
            assert await transactor.transact([("append", 4, 1)]) == [("append", 4, 1)]
            with pytest.raises(Indefinite, match="it answers of 0, which it was not asked for"):
                await ProgramPartitioned(other, "p-").transact([("poll",)], {0: 5})
        finally:
            await program.close()
            await other.close()

    asyncio.run(run())


@pytest.mark.explore
def test_a_program_knows_whom_it_serves(tmp_path: Path) -> None:
    program = tmp_path / "client.sh"
    program.write_text(
        '#!/bin/sh\nread line\necho "{\\"id\\": 1, \\"type\\": \\"fail\\", \\"error\\":'
        ' \\"$SHALOTT_NODE $SHALOTT_PORT $SHALOTT_NODES $SHALOTT_WORKLOAD\\"}"\n'
    )
    program.chmod(0o755)

    async def run() -> None:
        PLACES.set({"n1": ("127.0.0.1", 1), "n2": ("127.0.0.2", 2)})
        client = ProgramProcess(
            (str(program),), "127.0.0.2", 2, workload="queue", timeout_ms=TIMEOUT_MS
        )
        await client.open()
        try:
            with pytest.raises(Definite, match="^n2 2 n1=127.0.0.1:1,n2=127.0.0.2:2 queue$"):
                await client.ask("send", key="q")
        finally:
            await client.close()

    asyncio.run(run())


@pytest.mark.explore
def test_nothing_is_left_of_a_program_that_starts_others() -> None:
    async def run() -> int:
        program = process("leaves-children")
        await program.open()
        with pytest.raises(Indefinite):
            await program.ask("send", key="q", value="x")
        assert program._process is not None
        group = program._process.pid
        await program.close()
        return group

    group = asyncio.run(run())
    deadline = time.monotonic() + 2
    while time.monotonic() < deadline:
        try:
            os.killpg(group, 0)
        except ProcessLookupError:
            return
        time.sleep(0.01)
    pytest.fail("a child of the program still runs")


@pytest.mark.explore
@pytest.mark.parametrize("seed", range(2))
def test_fuzz_no_program_makes_a_fail_of_what_may_have_been_done(seed: int, tmp_path: Path) -> None:
    """A worker whose programs go wrong in drawn ways: an operation is ok where it was answered
    well, fail only where the program said so or was not asked, else info; the next is served."""
    draw = random.Random(seed)
    ways = (*UNKNOWN, "answers-twice", "floods-output", "says-fail", "says-info")
    hows = [(draw.choice(ways), draw.randrange(3)) for _ in range(12)]
    made: list[str] = []

    async def run() -> list[tuple[str, OpType, str]]:
        started = iter(hows)

        def make_client(node: str) -> QueuedClient:
            how, times = next(started, ("dies", 10**6))
            made.append(how)
            return QueuedClient(ProgramQueued(process(how, times)), 64, TIMEOUT_MS)

        writer = HistoryWriter(tmp_path / f"history-{seed}")
        worker = Worker(0, "n1", 1, make_client, writer, op_timeout_ms=TIMEOUT_MS, seed=seed)
        done: list[tuple[str, OpType, str]] = []
        for count in range(30):
            f = draw.choice(("enqueue", "dequeue"))
            value = count if f == "enqueue" else None
            completion = await worker.perform(Invocation(f=f, key="q", value=value))
            done.append((made[-1], completion.type, completion.error or ""))
        await worker.close()
        writer.close()
        return done

    done = asyncio.run(run())
    for how, kind, error in done:
        if kind == "fail":
            assert error in ("empty", "refused") or "it was not asked" in error, (how, error)
        if kind == "ok":
            assert not error
    assert done[-1][1] in ("ok", "fail"), "a sound program took the last one's place"
    assert any(kind == "info" for _, kind, _ in done)


@pytest.mark.unit
def test_a_client_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no such program"):
        find_program("./nowhere")
    plain = tmp_path / "plain"
    plain.write_text("#!/bin/sh\n")
    with pytest.raises(UsageError, match="chmod"):
        find_program(str(plain))
    with pytest.raises(UsageError, match="No closing quotation"):
        find_program("'x")
    assert find_program("cat -u") == ("cat", "-u")


@pytest.mark.unit
def test_a_source_of_go_needs_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = tmp_path / "client.go"
    source.write_text("package main\n")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(UsageError, match="apt-get install golang-go"):
        built((str(source),))
