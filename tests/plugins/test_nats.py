"""shalott-nats: what becomes of operations by what a server answers, and what plans it takes."""

from __future__ import annotations

import asyncio
import json
import subprocess
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from shalott.cluster.nodes import Endpoint
from shalott.core.errors import Definite, Indefinite, Unreachable, UsageError
from shalott.core.plan import (
    ClusterPlan,
    FaultAction,
    GatePlan,
    Plan,
    SystemPlan,
    WorkloadPlan,
)
from shalott_nats import client, monitor, system
from shalott_nats.registers import RegisterClient

pytestmark = pytest.mark.unit

HOST, QUEUE = "127.0.0.1", "shalott.1"
PUBLISH, NEXT = "queues.shalott.1", "$JS.API.CONSUMER.MSG.NEXT.shalott_1.shared"
ABOUT, STREAM = "$JS.API.CONSUMER.INFO.shalott_1.shared", "$JS.API.STREAM.INFO.shalott_1"
LOG_NEXT = "$JS.API.CONSUMER.MSG.NEXT.log.r1"
NO_ONE, NO_MESSAGES, SILENCE, HANG_UP = "503", "404 No Messages", "", "hang up"
ACKED = {"stream": "shalott_1", "seq": 7}
GONE = {"error": {"code": 404, "err_code": 10059, "description": "stream not found"}}
UNAVAILABLE = {"error": {"code": 503, "err_code": 10008, "description": "temporarily unavailable"}}
UNSTORED = {"error": {"code": 503, "err_code": 10077, "description": "store failed"}}

Answer = str | Mapping[str, Any] | list[tuple[str, str, bytes]]


def message(subject: str, body: bytes, *, sequence: int, delivered: int = 1) -> Answer:
    """A stream's, which comes under its own subject: what it is answered under, and its body."""
    token = f"$JS.ACK.s.c.{delivered}.{sequence}.{sequence}.1700000000000000000.0"
    return [(subject, token, body)]


class ScriptedServer:
    """Speaks as much of NATS as the library asks for. ``answers``: by subject, one after another,
    the last for good."""

    def __init__(self, answers: Mapping[str, list[Answer]]) -> None:
        self.answers = {subject: list(each) for subject, each in answers.items()}
        self.asked: list[tuple[str, bytes]] = []
        self.headers: list[dict[str, str]] = []
        self.serving: set[asyncio.Task[None]] = set()
        self._inboxes: dict[str, str] = {}  # subject as subscribed -> its number

    async def accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.serving.add(asyncio.ensure_future(self.serve(reader, writer)))

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        info = {"server_name": "n1", "version": "2.12.1", "headers": True, "max_payload": 1 << 20}
        writer.write(b"INFO " + json.dumps(info).encode() + b"\r\n")
        try:
            while line := await reader.readline():
                word, *rest = line.decode().split()
                if word == "PING":
                    writer.write(b"PONG\r\n")
                elif word == "SUB":
                    self._inboxes[rest[0]] = rest[-1]
                elif word in ("PUB", "HPUB"):
                    body = await reader.readexactly(int(rest[-1]) + 2)
                    headers = int(rest[-2]) if word == "HPUB" else 0
                    if headers:
                        lines = body[:headers].decode().split("\r\n")[1:]
                        pairs = (line.partition(":") for line in lines if line)
                        self.headers.append({name: value.strip() for name, _, value in pairs})
                    self.asked.append((rest[0], body[headers:-2]))
                    if self._answer(rest[0], rest[1], writer) == HANG_UP:
                        break
        finally:
            writer.close()
            await writer.wait_closed()

    def _answer(self, subject: str, inbox: str, writer: asyncio.StreamWriter) -> Answer:
        own = self.answers.get(subject, [SILENCE])
        answer = own.pop(0) if len(own) > 1 else own[0]
        number = next(
            n for at, n in self._inboxes.items() if at == inbox or inbox.startswith(at.rstrip("*"))
        )
        if isinstance(answer, list):
            for at, reply, body in answer:
                writer.write(f"MSG {at} {number} {reply} {len(body)}\r\n".encode() + body + b"\r\n")
            status = NO_MESSAGES if subject == LOG_NEXT else ""
        else:
            status = answer if isinstance(answer, str) and answer != HANG_UP else ""
        if isinstance(answer, Mapping):
            body = json.dumps(answer).encode()
            writer.write(f"MSG {inbox} {number} {len(body)}\r\n".encode() + body + b"\r\n")
        if status:
            head = f"NATS/1.0 {status}\r\n\r\n".encode()
            sizes = f"{len(head)} {len(head)}"
            writer.write(f"HMSG {inbox} {number} {sizes}\r\n".encode() + head + b"\r\n")
        return answer


def done(
    act: Callable[[Any], Awaitable[Any]],
    answers: Mapping[str, list[Answer]],
    kind: Callable[..., Any] = client.QueueClient,
) -> tuple[Any, ScriptedServer]:
    """What it returns or raises."""
    fake = ScriptedServer(answers)

    async def scenario() -> Any:
        server = await asyncio.start_server(fake.accept, HOST, 0)
        made = kind(HOST, server.sockets[0].getsockname()[1], timeout_ms=1000)
        try:
            await made.open()
            return await act(made)
        except Exception as error:
            return error
        finally:
            await made.close()
            server.close()
            await asyncio.gather(*fake.serving, return_exceptions=True)

    return asyncio.run(scenario()), fake


# -- queues ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("answer", "outcome"),
    [
        (ACKED, type(None)),
        (NO_ONE, Definite),
        (SILENCE, Indefinite),
        (HANG_UP, Indefinite),
        (UNAVAILABLE, Indefinite),
        (UNSTORED, Indefinite),
    ],
)
def test_a_message_is_sent_once_whatever_is_answered(answer: Answer, outcome: type) -> None:
    got, fake = done(lambda made: made.send(QUEUE, b"x"), {PUBLISH: [answer]})
    assert isinstance(got, outcome)
    assert fake.asked == [(PUBLISH, b"x")]


def test_a_server_that_is_not_there_was_sent_nothing() -> None:
    async def scenario() -> None:
        made = client.QueueClient(HOST, 1, timeout_ms=1000)
        with pytest.raises(Unreachable):
            await made.send(QUEUE, b"x")

    asyncio.run(scenario())


@pytest.mark.parametrize(("delivered", "again"), [(1, False), (2, True)])
def test_a_message_says_whether_it_came_before(delivered: int, again: bool) -> None:
    answer = message(PUBLISH, b"x", sequence=7, delivered=delivered)
    got, _ = done(lambda made: made.receive(QUEUE), {NEXT: [answer]})
    assert (got.body, got.redelivered) == (b"x", again)


def about(pending: int, unsettled: int) -> Mapping[str, Any]:
    none = {"consumer_seq": 0, "stream_seq": 0}
    return {
        "name": "shared", "stream_name": "shalott_1", "config": {}, "delivered": none,
        "created": "2026-11-28T00:00:00Z",
        "ack_floor": none, "num_pending": pending, "num_ack_pending": unsettled,
    }  # fmt: skip


def test_a_queue_is_empty_when_nothing_is_unsettled() -> None:
    got, _ = done(lambda made: made.receive(QUEUE), {NEXT: [NO_MESSAGES], ABOUT: [about(0, 0)]})
    assert got is None


@pytest.mark.parametrize(("pending", "unsettled"), [(1, 0), (0, 1)])
def test_a_queue_is_not_empty_while_something_may_come(pending: int, unsettled: int) -> None:
    answers = {NEXT: [NO_MESSAGES], ABOUT: [about(pending, unsettled)]}
    assert isinstance(done(lambda made: made.receive(QUEUE), answers)[0], Definite)


@pytest.mark.parametrize(
    ("stream", "outcome"), [(GONE, type(None)), (UNAVAILABLE, Definite), (SILENCE, Definite)]
)
def test_a_stream_that_is_forgotten_is_empty_and_one_without_a_leader_is_not(
    stream: Answer, outcome: type
) -> None:
    got, _ = done(lambda made: made.receive(QUEUE), {NEXT: [NO_ONE], STREAM: [stream]})
    assert isinstance(got, outcome)


@pytest.mark.parametrize(
    ("answer", "outcome"),
    [({}, type(None)), (NO_ONE, Definite), (SILENCE, Indefinite), (HANG_UP, Indefinite)],
)
def test_a_settling_that_is_not_answered_is_unknown(answer: Answer, outcome: type) -> None:
    async def both(made: Any) -> None:
        await made.settle(await made.receive(QUEUE))

    token = "$JS.ACK.s.c.1.7.7.1700000000000000000.0"
    answers = {NEXT: [message(PUBLISH, b"x", sequence=7)], token: [answer]}
    got, fake = done(both, answers)
    assert isinstance(got, outcome)
    assert fake.asked[-1] == (token, b"+ACK")


# -- the log ---------------------------------------------------------------------------------------

PLACED = {
    "$JS.API.STREAM.INFO.log": [{
        "config": {"name": "log"}, "created": "2026-11-28T00:00:00Z",
        "state": {"messages": 2, "bytes": 2, "first_seq": 1, "last_seq": 2, "consumer_count": 0},
        "cluster": {"name": "c", "leader": "n2", "replicas": [{"name": "n1", "current": True,
                                                              "active": 1}]},
    }],
    "$JS.API.CONSUMER.DELETE.log.r0": [{"success": True}],
}  # fmt: skip


def placed(name: str, node: str) -> Answer:
    return {**about(2, 0), "name": name, "cluster": {"name": "c", "leader": node}}


def test_a_send_tells_its_sequence() -> None:
    got, _ = done(
        lambda made: made.transact([("send", 3, 5)], {}), {"log.3": [ACKED]}, client.LogClient
    )
    assert got == [(7, 5)]


def test_a_poll_reads_the_copy_of_its_own_node_to_the_end() -> None:
    first = [("log.0", f"$JS.ACK.log.r1.1.{at}.{at}.1700000000000000000.0", b"%d" % (10 * at))
             for at in (1, 2)]  # fmt: skip
    answers: dict[str, list[Answer]] = {
        **PLACED,
        "$JS.API.CONSUMER.CREATE.log": [placed("r0", "n3"), placed("r1", "n1")],
        LOG_NEXT: [first, []],
    }

    async def twice(made: Any) -> Any:
        return [
            await made.transact([("poll",)], {0: 0, 1: 0}),
            await made.transact([("poll",)], {0: 3, 1: 0}),
        ]

    got, fake = done(twice, answers, client.LogClient)
    assert got == [[{0: [(1, 10), (2, 20)]}], [{}]]
    made = [subject for subject, _ in fake.asked if "CREATE" in subject or "DELETE" in subject]
    assert made == [
        "$JS.API.CONSUMER.CREATE.log",
        "$JS.API.CONSUMER.DELETE.log.r0",
        "$JS.API.CONSUMER.CREATE.log",
    ]


@pytest.mark.parametrize("answer", [SILENCE, HANG_UP, NO_ONE])
def test_a_poll_that_fails_has_done_nothing(answer: Answer) -> None:
    got, _ = done(
        lambda made: made.transact([("poll",)], {0: 0}),
        {**PLACED, "$JS.API.CONSUMER.CREATE.log": [placed("r1", "n1")], LOG_NEXT: [answer]},
        client.LogClient,
    )
    assert isinstance(got, Definite)


# -- the system ------------------------------------------------------------------------------------

NODES = ("n1", "n2", "n3")


def plan(*faults: FaultAction, **parameters: object) -> Plan:
    return Plan(
        name="nats",
        seed=5,
        time_limit_ms=1000,
        cluster=ClusterPlan(backend="docker", nodes=NODES),
        system=SystemPlan(name="nats", profile="default", parameters=parameters),
        workload=WorkloadPlan(name="queue", rate_hz=10, concurrency=6),
        gates=GatePlan(),
        faults=faults,
    )


def seen(group: str, **changes: Mapping[str, object]) -> dict[str, Any]:
    def claims(node: str) -> list[dict[str, object]]:
        role = "master" if node == "n1" else "mirror"
        alike = {"master": "n1", "role": role, "epoch": 3, "last_offset": 40}
        return [
            {"group": "meta", **alike},
            {"group": group, **alike, **changes.get(node, {})},
        ]

    return {node: {"claims": claims(node)} for node in NODES}


@pytest.mark.parametrize(
    ("answers", "reason"),
    [
        (seen("q"), ""),
        (seen("q", n1={"last_offset": 39}), ""),  # others were asked later
        (seen("q", n2={"master": ""}), "q: master: n1 says n1, n2 says , n3 says n1"),
        (seen("q", n3={"epoch": 4}), "q: epoch: n1 says 3, n2 says 3, n3 says 4"),
        (seen("q", n3={"last_offset": 39}), "q: n3 has not come to 40"),
        (seen("q", n3={"group": "other"}), "q: 2 of 3 copies"),
        ({**seen("q"), "n2": None}, "n2 did not answer"),
    ],
)
def test_what_a_cluster_that_has_not_settled_waits_for(answers: Any, reason: str) -> None:
    assert system.NatsSystem(system.NatsParameters()).why_unsettled(answers, ("q",)) == reason


def test_what_it_can_not_be_told_is_refused() -> None:
    system.check(plan())
    with pytest.raises(UsageError, match="--replicas 5: there are 3 nodes"):
        system.check(plan(replicas=5))
    with pytest.raises(
        UsageError, match="under another name: use --nemesis replace-node in place of wipe"
    ):
        system.check(plan(FaultAction(id=1, at_ms=0, duration_ms=1, kind="wipe", nodes=("n1",))))
    for wrong in ("never", "2", "1h", "always }"):
        with pytest.raises(UsageError):
            system.check(plan(sync_interval=wrong))


def test_a_release_is_an_image_of_its_own() -> None:
    images = {system.NatsSystem(system.NatsParameters(version=version)).image
              for version in ("2.10.20", "2.15.3")}  # fmt: skip
    assert {image.rpartition(":")[2] for image in images} == {"2.10.20", "2.15.3"}


# -- members ---------------------------------------------------------------------------------------

REMOVE = "$JS.API.SERVER.REMOVE"
TOLD = {"p2": "n2@1700000000", "p3": "n3@1700000000"}


class Groups:
    """A meta group, as n1 has it. ``removes``: whether what was asked for comes about."""

    def __init__(self, *, removes: bool = True) -> None:
        self.peers = dict(TOLD)
        self.removes = removes
        self.fake = ScriptedServer({REMOVE: [{"success": True}]})

    async def look(self, at: Any, path: str = "") -> dict[str, monitor.Group]:
        if self.removes:
            for _, body in self.fake.asked:
                self.peers.pop(json.loads(body)["peer_id"], None)
        peers = {peer: monitor.Peer(name=name) for peer, name in self.peers.items()}
        return {"_meta_": monitor.Group(state="LEADER", term=1, peers=peers)}


def with_groups(
    groups: Groups, monkeypatch: pytest.MonkeyPatch, act: Callable[[Any, Any], Awaitable[Any]]
) -> Any:
    """What ``act`` with a system and a cluster of one server returns or raises."""
    monkeypatch.setattr(system, "raft_groups", groups.look)
    monkeypatch.setattr(system, "FORGET_MS", 300)

    async def scenario() -> Any:
        server = await asyncio.start_server(groups.fake.accept, HOST, 0)
        at = Endpoint(HOST, server.sockets[0].getsockname()[1])
        files = SimpleNamespace(output=lambda node, lines: asyncio.sleep(0, ""))
        cluster = SimpleNamespace(endpoint=lambda node, port: at, nodes=NODES, files=files)
        try:
            return await act(system.NatsSystem(system.NatsParameters()), cluster)
        except Exception as error:
            return error
        finally:
            server.close()
            await asyncio.gather(*groups.fake.serving, return_exceptions=True)

    return asyncio.run(scenario())


def test_a_server_is_its_node_under_whatever_name(monkeypatch: pytest.MonkeyPatch) -> None:
    groups = Groups()

    async def act(made: Any, cluster: Any) -> Any:
        before = await made.members(cluster, "n1")
        groups.peers["p2"] = ""  # n1 started again, and has not met n2 since
        groups.peers["p4"] = "n3@1700000009"
        return before, await made.members(cluster, "n1")

    assert with_groups(groups, monkeypatch, act) == (["n1", "n2", "n3"], ["n1", "n2", "n3"])


def test_every_life_of_a_node_is_forgotten_once(monkeypatch: pytest.MonkeyPatch) -> None:
    groups = Groups()
    groups.peers["p4"] = "n3@1700000009"

    async def act(made: Any, cluster: Any) -> Any:
        await made.forget(cluster, "n3", "n1")
        await made.forget(cluster, "n3", "n1")
        out = [*made.left_out]
        await made.admit(cluster, "n3", "n1")
        return out, [*made.left_out], await made.members(cluster, "n1")

    assert with_groups(groups, monkeypatch, act) == (["n3"], [], ["n1", "n2"])
    asked = [json.loads(body)["peer_id"] for subject, body in groups.fake.asked]
    assert asked == ["p3", "p4"]


@pytest.mark.parametrize(
    "answer", [{"error": {"code": 400, "description": "not a member"}}, {"success": True}]
)
def test_what_is_answered_and_not_done_is_not_forgotten(
    monkeypatch: pytest.MonkeyPatch, answer: Mapping[str, Any]
) -> None:
    groups = Groups(removes=False)
    groups.fake.answers[REMOVE] = [answer]

    async def act(made: Any, cluster: Any) -> Any:
        with pytest.raises(Indefinite):
            await made.forget(cluster, "n3", "n1")
        return made.left_out

    assert with_groups(groups, monkeypatch, act) == ()


def test_a_disk_gives_its_server_a_name_which_it_keeps(tmp_path: Path) -> None:
    """The start, with a program in the server's place that says what it was called with."""
    (tmp_path / "nats-server").write_text('#!/bin/sh\nprintf "%s\\n" "$@"\n')
    (tmp_path / "nats-server").chmod(0o755)
    made = system.NatsSystem(system.NatsParameters())
    command = made._command("n1")
    place = command[4].replace("{data}", str(tmp_path))
    environment = {"PATH": f"{tmp_path}:/usr/bin:/bin"}

    def start() -> str:
        words = [*command[:4], place, *command[5:]]
        ran = subprocess.run(words, env=environment, capture_output=True, text=True, check=True)
        return ran.stdout.split()[1]

    first = start()
    assert (monitor.node_of(first), start()) == ("n1", first)
    Path(place).write_text("n1@1\n")
    assert start() == "n1@1"
    still = system.NatsSystem(system.NatsParameters(fresh_names=False))
    assert still._command("n1")[:3] == ("nats-server", "-n", "n1")


# -- registers -------------------------------------------------------------------------------------

GET, DIRECT = (
    "$JS.API.STREAM.MSG.GET.KV_registers",
    "$JS.API.DIRECT.GET.KV_registers.$KV.registers.k",
)
PUT = "$KV.registers.k"
HELD = {"message": {"subject": PUT, "seq": 9, "data": "NA==", "time": "2026-11-28T00:00:00Z"}}
NOT_THERE = {"error": {"code": 404, "err_code": 10037, "description": "no message found"}}
NOT_THE_LAST = {"error": {"code": 400, "err_code": 10071, "description": "wrong last sequence: 10"}}
STORED = {"stream": "KV_registers", "seq": 10}


def registers(*, direct: bool = False) -> Callable[..., Any]:
    return partial(RegisterClient, direct=direct)


@pytest.mark.parametrize(
    ("answer", "found"),
    [(HELD, 4), (NOT_THERE, None), (GONE, None), (NO_ONE, Definite), (SILENCE, Definite)],
)
def test_a_value_is_read_at_the_leader(answer: Answer, found: Any) -> None:
    got, fake = done(lambda made: made.read("k"), {GET: [answer]}, registers())
    assert got == found if not isinstance(found, type) else isinstance(got, found)
    assert [json.loads(body) for _, body in fake.asked] == [{"last_by_subj": PUT}]


def test_a_direct_read_asks_whichever_copy_answers() -> None:
    got, fake = done(lambda made: made.read("k"), {DIRECT: [NO_ONE]}, registers(direct=True))
    assert isinstance(got, Definite)
    assert fake.asked == [(DIRECT, b"")]


@pytest.mark.parametrize(
    ("answer", "outcome"),
    [(STORED, True), (NOT_THE_LAST, Definite), (SILENCE, Indefinite), (UNSTORED, Indefinite)],
)
def test_a_compare_and_set_writes_behind_what_it_read(answer: Answer, outcome: Any) -> None:
    got, fake = done(lambda made: made.cas("k", 4, 3), {GET: [HELD], PUT: [answer]}, registers())
    assert got is True if outcome is True else isinstance(got, outcome)
    assert fake.headers == [{"Nats-Expected-Last-Subject-Sequence": "9"}]


def test_a_compare_and_set_of_another_value_writes_nothing() -> None:
    got, fake = done(lambda made: made.cas("k", 3, 4), {GET: [HELD]}, registers())
    assert got is False
    assert [subject for subject, _ in fake.asked] == [GET]


def test_what_direct_reads_promise_is_less() -> None:
    def promised(**parameters: object) -> str:
        return system.registers(plan(**parameters)).promises

    assert (promised(), promised(reads="direct")) == ("linearizable", "monotonic")
