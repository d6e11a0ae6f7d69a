"""shalott-redis: what becomes of operations by what a server answers, and what plans it takes."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

import pytest

pytest.importorskip("redis")
client = pytest.importorskip("shalott_redis.client")
system = pytest.importorskip("shalott_redis.system")

from shalott.core.errors import Definite, Indefinite, Unreachable, UsageError  # noqa: E402
from shalott.core.plan import (  # noqa: E402
    ClusterPlan,
    FaultAction,
    GatePlan,
    Plan,
    SystemPlan,
    WorkloadPlan,
)

pytestmark = pytest.mark.unit

OK, NIL = b"+OK\r\n", b"$-1\r\n"
HANG_UP = b""  # instead of an answer
COPIED = client.Ways(copies=2)


def number(value: int) -> bytes:
    return f":{value}\r\n".encode()


def bulk(*texts: str) -> bytes:
    items = b"".join(f"${len(text)}\r\n{text}\r\n".encode() for text in texts)
    return f"*{len(texts)}\r\n".encode() + items


class Server:
    """Answers each command by its first word, and is the sentinel too."""

    def __init__(self, answers: Mapping[str, bytes]) -> None:
        self.answers = {"PING": OK, "CLIENT": OK, **answers}
        self.asked: list[list[str]] = []

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while head := await reader.readline():
                words = []
                for _ in range(int(head[1:])):
                    length = int((await reader.readline())[1:])
                    words.append((await reader.readexactly(length + 2))[:-2].decode())
                self.asked.append(words)
                answer = self.answers[words[0].upper()]
                if answer == HANG_UP:
                    break
                writer.write(answer)
        finally:
            writer.close()


def ask(
    answers: Mapping[str, bytes],
    do: Callable[[Any], Awaitable[object]],
    *,
    ways: Any = COPIED,
    kind: Any = client.QueueClient,
) -> tuple[object, list[list[str]]]:
    async def session() -> tuple[object, list[list[str]]]:
        told = Server(answers)
        server = await asyncio.start_server(told.serve, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        told.answers.setdefault("SENTINEL", bulk("127.0.0.1", str(port)))
        asking = kind("127.0.0.1", port, timeout_ms=500, ways=ways)
        try:
            await asking.open()
            return await do(asking), told.asked
        finally:
            await asking.close()
            server.close()

    return asyncio.run(session())


def send(queue: Any) -> Awaitable[object]:
    return queue.send("q", b"body")  # type: ignore[no-any-return]


def receive(queue: Any) -> Awaitable[object]:
    return queue.receive("q")  # type: ignore[no-any-return]


def test_a_send_waits_for_copies_on_the_connection_of_the_write() -> None:
    _, asked = ask({"RPUSH": number(1), "WAIT": number(2)}, send)
    assert asked[-2:] == [["RPUSH", "q", "body"], ["WAIT", "2", "1000"]]


def test_a_synced_send_waits_for_the_disks_too() -> None:
    ways = client.Ways(copies=2, synced=True)
    synced = {"RPUSH": number(1), "WAITAOF": b"*2\r\n" + number(1) + number(2)}
    _, asked = ask(synced, send, ways=ways)
    assert asked[-1] == ["WAITAOF", "1", "2", "1000"]
    for local, copies in ((0, 2), (1, 1)):
        few = {**synced, "WAITAOF": b"*2\r\n" + number(local) + number(copies)}
        with pytest.raises(Indefinite, match="copies have it"):
            ask(few, send, ways=ways)


@pytest.mark.parametrize(
    ("answers", "error"),
    [
        ({"RPUSH": number(1), "WAIT": number(1)}, Indefinite),  # the master has it
        ({"RPUSH": number(1), "WAIT": b"-ERR no\r\n"}, Indefinite),
        ({"RPUSH": number(1), "WAIT": b"-READONLY it is a replica now\r\n"}, Indefinite),
        ({"RPUSH": HANG_UP, "WAIT": number(2)}, Indefinite),
        ({"RPUSH": b"", "WAIT": number(2)}, Indefinite),
        ({"RPUSH": b"-ERR anything\r\n", "WAIT": number(2)}, Indefinite),
        ({"RPUSH": b"-UNBLOCKED role changed\r\n", "WAIT": number(2)}, Indefinite),
        ({"RPUSH": b"-READONLY You can't write\r\n", "WAIT": number(0)}, Definite),
        ({"RPUSH": b"-NOREPLICAS Not enough\r\n", "WAIT": number(0)}, Definite),
        ({"RPUSH": b"-MOVED 1 127.0.0.1:1\r\n", "WAIT": number(0)}, Definite),
        ({"RPUSH": b"-LOADING it loads\r\n", "WAIT": number(0)}, Definite),
        ({"RPUSH": b"-CLUSTERDOWN it is\r\n", "WAIT": number(0)}, Definite),
        ({"RPUSH": b"-MISCONF no disk\r\n", "WAIT": number(0)}, Definite),
        ({"SENTINEL": b"*-1\r\n"}, Unreachable),
        ({"SENTINEL": HANG_UP}, Unreachable),
        ({"SENTINEL": bulk("127.0.0.1", "1")}, Unreachable),  # nothing listens there
    ],
)
def test_a_send_that_was_not_acknowledged(
    answers: Mapping[str, bytes], error: type[Exception]
) -> None:
    with pytest.raises(error) as found:
        ask(answers, send)
    assert found.type is error


def test_a_receive_gives_what_died_with_another_client_and_says_so() -> None:
    first = b"*3\r\n$4\r\nbody\r\n$4\r\nbody\r\n:0\r\n"
    received, _ = ask({"EVAL": first}, receive)
    assert (received.body, received.redelivered) == (b"body", None)  # type: ignore[attr-defined]
    received, _ = ask({"EVAL": first.replace(b":0", b":1")}, receive)
    assert received.redelivered is True  # type: ignore[attr-defined]


def test_a_queue_is_empty_only_if_no_other_client_has_a_message() -> None:
    assert ask({"EVAL": number(0)}, receive)[0] is None
    with pytest.raises(Definite, match="2 messages are with other clients"):
        ask({"EVAL": number(2)}, receive)
    with pytest.raises(Indefinite):
        ask({"EVAL": HANG_UP}, receive)


def test_a_message_is_settled_where_it_was_taken() -> None:
    async def take(queue: Any) -> None:
        await queue.settle(await queue.receive("q"))

    taken = {"EVAL": b"*3\r\n$3\r\n7-0\r\n$4\r\nbody\r\n:0\r\n", "ZREM": number(1)}
    assert ask(taken, take)[1][-1] == ["ZREM", "{q}.taken", "7-0"]
    stream = client.Ways(structure="stream")
    assert ask({**taken, "XACK": number(1)}, take, ways=stream)[1][-1][0] == "XACK"


def test_a_register_is_read_with_a_mark_that_all_copies_have() -> None:
    async def read(register: Any) -> object:
        return await register.read("r")

    told = {"GET": b"$1\r\n4\r\n", "INCR": number(1), "WAIT": number(2)}
    value, asked = ask(told, read, kind=client.RegisterClient)
    assert value == 4
    assert [words[0] for words in asked[-3:]] == ["GET", "INCR", "WAIT"]
    for few in ({"WAIT": number(1)}, {"INCR": HANG_UP}):
        with pytest.raises(Definite, match="a read changes nothing"):
            ask({**told, **few}, read, kind=client.RegisterClient)
    assert ask({"GET": NIL}, read, ways=client.Ways(), kind=client.RegisterClient)[0] is None


def test_a_cas_tells_whether_it_was_done() -> None:
    async def cas(register: Any) -> object:
        return await register.cas("r", 1, 2)

    for answer, done in ((1, True), (0, False)):
        told = {"EVAL": number(answer), "WAIT": number(2)}
        assert ask(told, cas, kind=client.RegisterClient)[0] is done
    with pytest.raises(Indefinite):
        ask({"EVAL": number(1), "WAIT": number(0)}, cas, kind=client.RegisterClient)


def test_a_log_s_length_says_where_a_message_stands() -> None:
    async def transact(log: Any) -> object:
        sent = await log.transact([("send", 1, 7)], {})
        return sent, await log.transact([("poll",)], {1: 3})

    told = {"RPUSH": number(5), "WAIT": number(2), "INCR": number(1), "LRANGE": bulk("8", "7")}
    answer, _ = ask(told, transact, kind=client.LogClient)
    assert answer == ([(4, 7)], [{1: [(3, 8), (4, 7)]}])


# -- plans


def plan(
    profile: str = "safe",
    nodes: int = 3,
    faults: Sequence[str] = (),
    name: str = "redis",
    **parameters: object,
) -> Plan:
    own = {**system.REDIS.profiles[profile].parameters, **parameters}
    return Plan(
        name="redis",
        seed=1,
        time_limit_ms=1000,
        cluster=ClusterPlan(backend="docker", nodes=tuple(f"n{i + 1}" for i in range(nodes))),
        system=SystemPlan(name=name, profile=profile, parameters=own),
        workload=WorkloadPlan(name="queue", rate_hz=1, concurrency=3),
        gates=GatePlan(),
        faults=tuple(
            FaultAction(id=i, at_ms=0, duration_ms=1, kind=kind) for i, kind in enumerate(faults)
        ),
    )


@pytest.mark.parametrize(
    ("refused", "why"),
    [
        (plan(faults=("kill", "wipe")), "does not promise .* over wipe"),
        (plan(faults=("power-all",)), "over power-all"),  # Redis 7.0 has no WAITAOF
        (plan(nodes=2), "majority"),
        (plan(mode="cluster"), "6 nodes, not 3"),
    ],
)
def test_a_plan_that_breaks_what_is_not_promised_is_refused(refused: Plan, why: str) -> None:
    with pytest.raises(UsageError, match=why):
        system.check(refused)


@pytest.mark.parametrize(
    "taken",
    [
        plan(faults=("kill", "pause", "partition-one", "kill-all")),
        plan(faults=("power-all",), name="valkey", version="8.1"),
        plan("default", faults=("wipe", "power-all")),
        plan(mode="cluster", nodes=6),
    ],
)
def test_other_plans_are_taken(taken: Plan) -> None:
    system.check(taken)


def test_who_waits_for_all_copies_reads_what_is_now() -> None:
    assert system.registers(plan()).promises == "linearizable"
    assert system.registers(plan("default")).promises == "sequential"
    assert system.ways_of(plan()).copies == 2
    assert system.ways_of(plan(nodes=5)).copies == 4
    assert system.ways_of(plan(nodes=6, mode="cluster")).copies == 1
    assert not system.ways_of(plan()).synced
    assert system.ways_of(plan(name="valkey", version="9.1")).synced


def claim(role: str, master: str, **more: object) -> dict[str, object]:
    mirrors = ["n2", "n3"] if role == "master" else []
    state = "running" if role == "master" else "up"
    told = {"group": "redis", "role": role, "epoch": 1, "master": master, "mirrors": mirrors}
    return {"claims": [{**told, "state": state, **more}]}


def test_settled_is_one_master_that_all_follow() -> None:
    asked = system.RedisSystem(plan())
    whole = {"n1": claim("master", "n1")} | {n: claim("mirror", "n1") for n in ("n2", "n3")}
    assert asked.why_unsettled(whole, ()) == ""
    for node, odd, why in (
        ("n2", None, "n2 did not answer"),
        ("n2", claim("master", "n2"), "n1, n2 would be master"),
        ("n1", claim("mirror", "n2"), "no node would be master"),
        ("n3", claim("mirror", "n1", state="down"), "n3: its link to n1 is down"),
        ("n3", claim("mirror", "n2"), "n3 follows n2"),
        ("n1", claim("master", "n1", mirrors=["n2"]), "n1 does not know n3"),
        ("n3", claim("mirror", "n1", epoch=2), "the sentinels are in the epochs 1, 2"),
    ):
        assert asked.why_unsettled({**whole, node: odd}, ()) == why
