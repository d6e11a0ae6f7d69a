"""Workers: outcomes become history rows, an info retires its process, and the rate is kept."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from shalott.core.errors import Definite, Indefinite, Unreachable
from shalott.core.generator import (
    Answer,
    Completed,
    Context,
    Generator,
    Limit,
    Scheduled,
    Stagger,
    TimeLimit,
)
from shalott.core.op import Completion, Invocation
from shalott.core.queue_generator import queue_mix
from shalott.core.recording import HistoryWriter, recover
from shalott.harness.run.stage import Interpreter
from tests.world.clock.turns import turns

pytestmark = pytest.mark.unit

Behaviour = Callable[["ScriptedClient", Invocation], Any]


class ScriptedClient:
    """Does what ``behaviour`` says with each invocation; a callable result is awaited."""

    opened = 0
    closed = 0

    def __init__(self, node: str, behaviour: Behaviour, log: list[str]) -> None:
        self.node = node
        self.behaviour = behaviour
        self.log = log

    async def open(self) -> None:
        self.log.append(f"open {self.node}")

    async def invoke(self, invocation: Invocation) -> Completion:
        answer = self.behaviour(self, invocation)
        if isinstance(answer, BaseException):
            raise answer
        if callable(answer):
            await answer()
        return answer if isinstance(answer, Completion) else Completion(type="ok")

    async def close(self) -> None:
        self.log.append(f"close {self.node}")


def interpret(
    path: Path,
    behaviour: Behaviour,
    generator: Generator,
    *,
    nodes: tuple[str, ...] = ("n1", "n2"),
    concurrency: int = 2,
    op_timeout_ms: int = 1000,
) -> tuple[list[dict[str, Any]], list[str]]:
    log: list[str] = []

    async def main() -> None:
        record = HistoryWriter(path / "history.jsonl")
        interpreter = Interpreter(
            nodes,
            concurrency,
            lambda node: ScriptedClient(node, behaviour, log),
            record,
            op_timeout_ms=op_timeout_ms,
            seed=1,
        )
        await interpreter.run(generator)
        await interpreter.close()
        record.close()

    asyncio.run(main())
    return recover(path / "history.jsonl").ops.to_pylist(), log


def some(count: int) -> Generator:
    return Limit(queue_mix(("q",), 1.0, 1), count)


def test_each_process_is_bound_to_a_node_in_turn(tmp_path: Path) -> None:
    rows, _ = interpret(tmp_path, lambda client, op: None, some(40), concurrency=4)
    assert {(row["process"], row["node"]) for row in rows} == {
        (0, "n1"), (1, "n2"), (2, "n1"), (3, "n2"),
    }  # fmt: skip
    assert {row["type"] for row in rows} == {"ok"}


@pytest.mark.parametrize(
    ("raised", "kind", "error"),
    [
        (Definite("nack"), "fail", "nack"),
        (Indefinite("connection lost"), "info", "connection lost"),
        (ConnectionResetError("reset"), "info", "ConnectionResetError: reset"),
        (KeyError("unforeseen"), "info", "KeyError: 'unforeseen'"),
        (TimeoutError(), "info", "timeout"),
    ],
)
def test_only_what_is_definite_is_a_fail(
    tmp_path: Path, raised: Exception, kind: str, error: str
) -> None:
    rows, _ = interpret(tmp_path, lambda client, op: raised, some(1), concurrency=1)
    assert (rows[0]["type"], rows[0]["error"]) == (kind, error)
    assert rows[0]["value"] is not None and rows[0]["complete_ns"] > rows[0]["invoke_ns"]


def test_an_info_retires_the_process_and_its_client(tmp_path: Path) -> None:
    def behaviour(client: ScriptedClient, op: Invocation) -> object:
        return Indefinite("nobody knows") if client.node == "n1" else None

    rows, log = interpret(tmp_path, behaviour, some(12))
    mine = [row["process"] for row in rows if row["node"] == "n1"]
    assert len(mine) > 2 and mine == [0 + 2 * n for n in range(len(mine))]
    assert {row["process"] for row in rows if row["node"] == "n2"} == {1}
    assert log.count("open n1") == len(mine) == log.count("close n1")


def test_a_fail_keeps_the_process_and_its_client(tmp_path: Path) -> None:
    rows, log = interpret(tmp_path, lambda client, op: Definite("no"), some(5), concurrency=1)
    assert {row["process"] for row in rows} == {0}
    assert log == ["open n1", "close n1"]


def test_an_operation_that_hangs_is_an_info_after_the_timeout(tmp_path: Path) -> None:
    def behaviour(client: ScriptedClient, op: Invocation) -> object:
        return asyncio.Event().wait

    rows, _ = interpret(tmp_path, behaviour, some(1), concurrency=1, op_timeout_ms=50)
    assert (rows[0]["type"], rows[0]["error"]) == ("info", "timeout")
    assert rows[0]["complete_ns"] - rows[0]["invoke_ns"] >= 50_000_000


def test_a_lost_connection_is_replaced_and_the_process_lives_on(tmp_path: Path) -> None:
    answers = [None, Unreachable("connection lost"), None]
    rows, log = interpret(
        tmp_path, lambda client, op: answers.pop(0), some(3), concurrency=1, nodes=("n1",)
    )
    assert [row["type"] for row in rows] == ["ok", "fail", "ok"]
    assert {row["process"] for row in rows} == {0}
    assert log == ["open n1", "close n1", "open n1", "close n1"]


def test_a_node_that_refuses_is_a_certain_fail_with_growing_pauses(tmp_path: Path) -> None:
    class Refusing(ScriptedClient):
        async def open(self) -> None:
            raise ConnectionRefusedError("no")

    async def main() -> None:
        record = HistoryWriter(tmp_path / "history.jsonl")
        interpreter = Interpreter(
            ("n1",), 1, lambda node: Refusing(node, lambda client, op: None, []), record,
            op_timeout_ms=500, seed=1,
        )  # fmt: skip
        await interpreter.run(TimeLimit(queue_mix(("q",), 1.0, 1), 900_000_000))
        record.close()

    asyncio.run(main())
    rows = recover(tmp_path / "history.jsonl").ops.to_pylist()
    assert {(row["type"], row["error"], row["process"]) for row in rows} == {
        ("fail", "no connection: ConnectionRefusedError: no", 0)
    }
    gaps_ms = [
        (after["invoke_ns"] - before["complete_ns"]) / 1e6
        for before, after in zip(rows, rows[1:], strict=False)
    ]
    assert 2 <= len(gaps_ms) <= 8
    assert min(gaps_ms) >= 50 and gaps_ms[-1] > gaps_ms[0]


def test_what_a_client_tells_is_in_the_row(tmp_path: Path) -> None:
    completion = Completion(
        type="ok", value=9, redelivered=True, error="corrupted", extra={"body_bytes": 3}
    )
    rows, _ = interpret(tmp_path, lambda client, op: completion, some(1), concurrency=1)
    row = rows[0]
    assert (row["value"], row["redelivered"], row["error"]) == (9, True, "corrupted")
    assert json.loads(row["extra"]) == {"body_bytes": 3}


class Held:
    """A generator of one operation that waits for a minute, or until the client loses its hold."""

    def __init__(self, *, asked: bool = False) -> None:
        self.asked = asked

    def next(self, context: Context) -> tuple[Answer, Generator]:
        if self.asked:
            return None, self
        due_ns = context.now_ns + 60_000_000_000
        return Scheduled(due_ns, Invocation(f="release"), when_lost=True), Held(asked=True)

    def update(self, event: Completed) -> Generator:
        return self


def test_an_operation_that_hurries_when_the_client_has_lost_its_hold(tmp_path: Path) -> None:
    class LosingClient(ScriptedClient):
        async def until_lost(self) -> None:
            await turns()

    async def main() -> None:
        record = HistoryWriter(tmp_path / "history.jsonl")
        client = LosingClient("n1", lambda client, op: None, [])
        interpreter = Interpreter(
            ("n1",), 1, lambda node: client, record, op_timeout_ms=1000, seed=1
        )
        await interpreter.run(some(1))  # so that there is a client
        async with asyncio.timeout(10):
            await interpreter.run(Held())
        await interpreter.close()
        record.close()

    asyncio.run(main())
    rows = recover(tmp_path / "history.jsonl").ops.to_pylist()
    assert [row["f"] for row in rows] == ["enqueue", "release"]


def test_without_a_client_that_watches_it_waits_until_it_is_due(tmp_path: Path) -> None:
    class Soon(Held):
        def next(self, context: Context) -> tuple[Answer, Generator]:
            answer, generator = super().next(context)
            if not isinstance(answer, Scheduled):
                return None, self
            return msgspec.structs.replace(answer, at_ns=context.now_ns + 30_000_000), generator

    rows, _ = interpret(tmp_path, lambda client, op: None, Soon(), concurrency=1)
    (row,) = rows
    assert row["f"] == "release" and row["invoke_ns"] >= 30_000_000


def test_the_rate_is_shared_by_all_workers(tmp_path: Path) -> None:
    paced = Stagger(queue_mix(("q",), 1.0, 1), 2_000_000, 5)
    rows, _ = interpret(
        tmp_path, lambda client, op: None, TimeLimit(paced, 600_000_000), concurrency=8
    )
    # 500 a second for 0.6 s, whatever the number of workers.
    assert 50 <= len(rows) <= 330
    # The history says when each was due, which is not after it began.
    assert all(row["due_ns"] <= row["invoke_ns"] for row in rows)
    due_ns = sorted(row["due_ns"] for row in rows)
    assert due_ns[-1] <= due_ns[0] + 600_000_000
