"""The JVM of a run's Java clients: shared, told of its death, and gone with who started it."""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from shalott.clients.java import build
from shalott.clients.java.build import JavaClient, java_client, obstacle
from shalott.clients.java.machine import JavaMachine
from shalott.core.client import ClientRows
from shalott.core.errors import Unreachable, UsageError
from shalott.core.memory_recording import MemoryRecorder
from tests.world.clock.turns import turns

pytestmark = pytest.mark.local

# Says that it is ready, answers clocks, and is silent about all else, as the bridge is.
BRIDGE = """
import json, sys, time
def say(**what):
    at = time.monotonic_ns() + 7_000_000_000
    print(json.dumps({"on": "", "at": at, **what}), flush=True)
say(said="ready", version="V0")
for line in sys.stdin:
    asked = json.loads(line)
    if asked["do"] == "clock":
        say(said="clock", id=asked["id"])
    if asked["do"] == "echo":
        say(said="echo", on=asked["on"], word=asked["word"])
    if asked["do"] == "die":
        print("no memory", file=sys.stderr, flush=True)
        sys.exit(3)
"""


@pytest.fixture
def fake(tmp_path: Path) -> JavaClient:
    """In place of a JVM: a process that is driven in the same words."""
    script, program = tmp_path / "bridge.py", tmp_path / "java"
    script.write_text(BRIDGE)
    program.write_text(f"#!/bin/sh\nexec {sys.executable} {script}\n")
    program.chmod(0o755)
    return JavaClient(str(program), tmp_path)


class Heard:
    """One client of the machine."""

    def __init__(self) -> None:
        self.said: asyncio.Queue[Any] = asyncio.Queue()
        self.ended: asyncio.Queue[str] = asyncio.Queue()


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def recorder() -> MemoryRecorder:
    clock = itertools.count(step=1000)
    return MemoryRecorder(lambda: next(clock), lambda: 0)


def test_clients_share_a_machine_that_ends_with_the_last_one(fake: JavaClient) -> None:
    told = recorder()

    async def live() -> int:
        machine, one, two = JavaMachine(lambda: fake), Heard(), Heard()
        rows = ClientRows(told, 0, "n1")
        await asyncio.gather(
            machine.acquire("one", one.said.put_nowait, one.ended.put_nowait, rows),
            machine.acquire("two", two.said.put_nowait, two.ended.put_nowait, rows),
        )
        pid = machine.pid
        assert pid is not None
        machine.tell("two", "echo", {"word": 5})
        assert (await two.said.get())["word"] == 5
        assert one.said.empty()
        await machine.release("one")
        assert machine.pid == pid and is_alive(pid)
        await machine.release("two")
        assert machine.pid is None and one.ended.empty() and two.ended.empty()
        return pid

    pid = asyncio.run(live())
    assert not is_alive(pid)
    (row,) = [row for row in told.history().ops.to_pylist() if row["f"] == "jvm"]
    assert row["type"] == "ok" and '"ended":"closed"' in row["extra"]


def test_clocks_are_compared(fake: JavaClient) -> None:
    """The bridge's is seven seconds ahead of ours."""

    told = recorder()

    async def live() -> None:
        machine, one = JavaMachine(lambda: fake), Heard()
        await machine.acquire(
            "one", one.said.put_nowait, one.ended.put_nowait, ClientRows(told, 0, "n1")
        )
        await machine.release("one")

    asyncio.run(live())
    (row,) = told.history().ops.to_pylist()
    extra = json.loads(row["extra"])
    assert abs(extra["clock_offset_ns"] - 7_000_000_000) <= extra["clock_error_ns"]
    assert 0 < extra["clock_error_ns"] < 5_000_000_000


def test_death_is_told_to_all_and_the_next_client_begins_another(fake: JavaClient) -> None:
    told = recorder()

    async def live() -> None:
        machine, one, two = JavaMachine(lambda: fake), Heard(), Heard()
        rows = ClientRows(told, 0, "n1")
        await machine.acquire("one", one.said.put_nowait, one.ended.put_nowait, rows)
        first = machine.pid
        machine.tell("one", "die", {})
        words = await one.ended.get()
        assert "(3)" in words and "no memory" in words
        with pytest.raises(Unreachable):
            machine.tell("one", "echo", {"word": 1})
        await machine.acquire("two", two.said.put_nowait, two.ended.put_nowait, rows)
        assert machine.pid not in (None, first)
        await machine.release("one")
        assert machine.pid is not None
        await machine.release("two")

    asyncio.run(live())
    ended = [row["extra"] for row in told.history().ops.to_pylist() if row["f"] == "jvm"]
    assert len(ended) == 2
    assert "ended (3): no memory" in ended[0] and '"ended":"closed"' in ended[1]


def test_who_waits_no_longer_leaves_the_machine_to_others(fake: JavaClient) -> None:
    async def live() -> int | None:
        machine, one, two = JavaMachine(lambda: fake), Heard(), Heard()
        first = asyncio.create_task(
            machine.acquire("one", one.said.put_nowait, one.ended.put_nowait, None)
        )
        await turns()
        first.cancel()
        await asyncio.gather(first, return_exceptions=True)
        await machine.acquire("two", two.said.put_nowait, two.ended.put_nowait, None)
        pid = machine.pid
        await machine.release("one")
        assert machine.pid == pid
        await machine.release("two")
        return machine.pid

    assert asyncio.run(live()) is None


def test_what_is_no_java_is_said(tmp_path: Path) -> None:
    program = tmp_path / "java"
    program.write_text("#!/bin/sh\necho Unrecognized option >&2\nexit 1\n")
    program.chmod(0o755)

    async def live() -> None:
        machine, one = JavaMachine(lambda: JavaClient(str(program), tmp_path)), Heard()
        try:
            await machine.acquire("one", one.said.put_nowait, one.ended.put_nowait, None)
        finally:
            await machine.release("one")

    with pytest.raises(Unreachable, match=r"ended \(1\): Unrecognized option"):
        asyncio.run(live())


# -- with a JVM ------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def client() -> Iterator[JavaClient]:
    if obstacle():
        pytest.skip(f"{obstacle()}: scripts/setup java-client")
    yield java_client()


def test_bridge_dies_with_its_standard_input(client: JavaClient) -> None:
    """As when the harness is killed."""
    command = [client.java, "-Xmx64m", "-cp", client.class_path, "Bridge"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None and process.stdin is not None
        assert b'"ready"' in process.stdout.readline()
        process.stdin.close()
        assert process.wait(10) == 0


def test_a_machine_that_is_killed_is_missed(client: JavaClient) -> None:
    async def live() -> str:
        machine, one = JavaMachine(lambda: client), Heard()
        await machine.acquire("one", one.said.put_nowait, one.ended.put_nowait, None)
        assert machine.pid is not None
        os.kill(machine.pid, signal.SIGKILL)
        words = await one.ended.get()
        await machine.release("one")
        return words

    assert "(-9)" in asyncio.run(live())


# -- what is missing -------------------------------------------------------------------------------


def test_without_programs_one_sentence_says_what_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    assert obstacle() == "java, javac, mvn not installed"
    with pytest.raises(UsageError, match="Java 11 or newer.*Maven.*scripts/setup java-client"):
        java_client()


def test_release_that_maven_has_not_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("java", "javac", "mvn"):
        program = tmp_path / name
        program.write_text("#!/bin/sh\necho '[ERROR] Could not resolve it'\nexit 1\n")
        program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setattr(build, "_directory", lambda: tmp_path / "built")
    with pytest.raises(UsageError, match="can't fetch RocketMQ's Java client 9.9.9: Could not"):
        java_client("9.9.9")
    assert list((tmp_path / "built").iterdir()) == []


@pytest.mark.parametrize("version", ["latest", "5.3.3; rm", "../5.3.3"])
def test_what_is_no_release_is_refused(version: str) -> None:
    with pytest.raises(UsageError, match="no release"):
        java_client(version)
