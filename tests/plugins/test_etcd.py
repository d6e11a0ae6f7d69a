"""shalott-etcd: what becomes of operations by what a member answers, and what plans it takes."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

import pytest

from shalott.cluster.nodes import Endpoint, Topology
from shalott.core.errors import Definite, Indefinite, Unreachable, UsageError
from shalott.core.plan import (
    ClusterPlan,
    FaultAction,
    GatePlan,
    Plan,
    SystemPlan,
    WorkloadPlan,
)
from shalott_etcd import client, system

pytestmark = pytest.mark.unit

HOST = "127.0.0.1"
SILENT, CLOSED = (0, "silent"), (0, "closed")
TIMED_OUT = {"error": "etcdserver: request timed out", "code": 14}
Answer = tuple[int, object]


def b64(text: object) -> str:
    return base64.b64encode(str(text).encode()).decode()


def pair(key: str, value: object, revision: int) -> dict[str, str]:
    return {"key": b64(key), "value": b64(value), "mod_revision": str(revision)}


def read(*pairs: Mapping[str, str]) -> Answer:
    return (200, {"header": {"revision": "9"}, "kvs": list(pairs)})


def looked(*pairs: Mapping[str, str] | None) -> Answer:
    """One range of a transaction for each."""
    parts = [{"response_range": {"kvs": [each] if each else []}} for each in pairs]
    return (200, {"succeeded": True, "responses": parts})


def done(
    kind: Callable[..., Any],
    act: Callable[[Any], Awaitable[Any]],
    answers: Sequence[Answer],
    *,
    watch: Sequence[object] = (),
) -> tuple[Any, list[tuple[str, Any]]]:
    """What it returns or raises, and what was asked: path and body, the first one. A watch gets its
    lines, and stays open."""
    asked: list[tuple[str, Any]] = []
    left = list(answers)
    serving: set[asyncio.Task[None]] = set()

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        serving.add(asyncio.ensure_future(serve(reader, writer)))

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError, asyncio.IncompleteReadError):  # a client may hang up
            await answer(reader, writer)
        writer.close()
        with suppress(ConnectionError):
            await writer.wait_closed()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        fields = dict(line.split(": ", 1) for line in head.split("\r\n")[1:] if line)
        content = await reader.readexactly(int(fields["Content-Length"]))
        asked.append((head.split()[1], json.JSONDecoder().raw_decode(content.decode())[0]))
        if asked[-1][0] == "/v3/watch":
            writer.write(b"HTTP/1.1 200 X\r\nTransfer-Encoding: chunked\r\n\r\n")
            for told in watch:
                line = json.dumps({"result": told}).encode() + b"\n"
                writer.write(f"{len(line):x}\r\n".encode() + line + b"\r\n")
            await reader.read()
            return
        status, body = left.pop(0) if left else CLOSED
        if (status, body) == SILENT:
            await reader.read()
        elif (status, body) != CLOSED:
            content = json.dumps(body).encode()
            length = f"Content-Length: {len(content)}"
            writer.write(f"HTTP/1.1 {status} X\r\n{length}\r\n\r\n".encode() + content)

    async def scenario() -> Any:
        server = await asyncio.start_server(accept, HOST, 0)
        made = kind(HOST, server.sockets[0].getsockname()[1], timeout_ms=1000)
        try:
            await made.open()
            return await act(made)
        except Exception as error:
            return error
        finally:
            await made.close()
            server.close()
            await asyncio.gather(*serving, return_exceptions=True)

    return asyncio.run(scenario()), asked


# -- registers -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("answer", "outcome"),
    [
        ((200, {"header": {"revision": "2"}}), type(None)),
        ((400, {"error": "no"}), Definite),
        ((429, {"error": "too many requests"}), Definite),
        ((503, TIMED_OUT), Indefinite),
        ((500, {"error": "leader changed"}), Indefinite),
        (SILENT, Indefinite),
        (CLOSED, Indefinite),
    ],
)
def test_a_write_that_may_have_been_proposed_is_unknown(answer: Answer, outcome: type) -> None:
    got, asked = done(client.RegisterClient, lambda made: made.write("r", 3), [answer])
    assert isinstance(got, outcome)
    assert asked == [("/v3/kv/put", {"key": b64("r"), "value": b64(3)})]


def test_a_member_that_is_not_there_was_sent_nothing() -> None:
    async def scenario() -> None:
        with pytest.raises(Unreachable):
            await client.RegisterClient(HOST, 1, timeout_ms=1000).write("r", 3)

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("answer", "value"), [(read(), None), (read(pair("r", 3, 7)), 3)], ids=("none", "three")
)
def test_a_read_is_what_is_there(answer: Answer, value: int | None) -> None:
    assert done(client.RegisterClient, lambda made: made.read("r"), [answer])[0] == value


@pytest.mark.parametrize("answer", [(503, TIMED_OUT), SILENT, CLOSED])
def test_a_read_that_fails_has_done_nothing(answer: Answer) -> None:
    got, _ = done(client.RegisterClient, lambda made: made.read("r"), [answer])
    assert isinstance(got, Definite)


@pytest.mark.parametrize("held", [True, False])
def test_a_cas_tells_whether_it_held(held: bool) -> None:
    got, _ = done(
        client.RegisterClient, lambda made: made.cas("r", 1, 2), [(200, {"succeeded": held})]
    )
    assert got is held


# -- transactions ----------------------------------------------------------------------------------

MOPS = [("r", 1, None), ("append", 1, 5), ("append", 2, 6), ("r", 1, None)]
SEEN = looked(pair("txn/1", "[3,4]", 8), None)


def test_a_transaction_reads_its_own_appends_and_writes_if_nothing_changed() -> None:
    got, asked = done(
        client.TransactionClient,
        lambda made: made.transact(MOPS),
        [SEEN, (200, {"succeeded": True})],
    )
    assert got == [("r", 1, [3, 4]), ("append", 1, 5), ("append", 2, 6), ("r", 1, [3, 4, 5])]
    body = asked[1][1]
    assert [each["modRevision"] for each in body["compare"]] == ["8", "0"]
    assert [each["requestPut"]["value"] for each in body["success"]] == [b64("[3,4,5]"), b64("[6]")]


def test_a_transaction_that_only_reads_is_one_request() -> None:
    got, asked = done(
        client.TransactionClient, lambda made: made.transact([("r", 1, None)]), [looked(None)]
    )
    assert (got, len(asked)) == ([("r", 1, None)], 1)


@pytest.mark.parametrize(
    ("answers", "outcome"),
    [
        ([SEEN, (200, {"succeeded": False})], Definite),
        ([SEEN, (503, TIMED_OUT)], Indefinite),
        ([SEEN, SILENT], Indefinite),
        ([(503, TIMED_OUT)], Definite),  # nothing was written yet
        ([SILENT], Definite),
    ],
)
def test_a_transaction_is_unknown_only_once_it_wrote(
    answers: Sequence[Answer], outcome: type
) -> None:
    got, _ = done(client.TransactionClient, lambda made: made.transact(MOPS), answers)
    assert isinstance(got, outcome)


# -- the log ---------------------------------------------------------------------------------------


def events(*pairs: Mapping[str, str]) -> dict[str, object]:
    return {"header": {"revision": "9"}, "events": [{"kv": each} for each in pairs]}


def test_a_send_tells_its_revision() -> None:
    answer = (200, {"header": {"revision": "7"}})
    got, _ = done(client.LogClient, lambda made: made.transact([("send", 3, 5)], {}), [answer])
    assert got == [(7, 5)]


def test_a_poll_watches_up_to_what_was_there_and_goes_on() -> None:
    async def twice(made: Any) -> Any:
        return [
            await made.transact([("poll",)], {0: 0, 1: 0}),
            await made.transact([("poll",)], {0: 3, 1: 0}),
            await made.transact([("poll",)], {0: 5, 1: 0}),
        ]

    told = [{"created": True}, events(pair("log/0", 10, 2)), events(pair("log/0", 20, 4))]
    answers = [read(pair("log/0", 10, 2)), *[read(pair("log/0", 20, 4))] * 2]
    got, asked = done(client.LogClient, twice, answers, watch=told)
    assert got == [[{0: [(2, 10)]}], [{0: [(4, 20)]}], [{}]]
    assert [path for path, _ in asked].count("/v3/watch") == 1
    started = next(body for path, body in asked if path == "/v3/watch")
    assert started["create_request"]["start_revision"] == "1"


def test_what_comes_again_is_shown_again() -> None:
    """A watch that goes back is for the checker to see, not for the client to hide."""
    told = [events(pair("log/0", 10, 2), pair("log/0", 20, 4), pair("log/0", 10, 2))]
    got, _ = done(
        client.LogClient,
        lambda made: made.transact([("poll",)], {0: 0}),
        [read(pair("log/0", 20, 4))],
        watch=told,
    )
    assert got == [{0: [(2, 10), (4, 20), (2, 10)]}]


def test_a_watch_that_goes_back_from_poll_to_poll_is_shown() -> None:
    async def twice(made: Any) -> Any:
        return [
            await made.transact([("poll",)], {0: 0}),
            await made.transact([("poll",)], {0: 5}),
        ]

    first, again, then = pair("log/0", 10, 2), pair("log/0", 20, 4), pair("log/0", 30, 6)
    told = [events(first, again), events(first, again, then)]
    got, _ = done(client.LogClient, twice, [read(again), read(then)], watch=told)
    assert got == [[{0: [(2, 10), (4, 20)]}], [{0: [(2, 10), (4, 20), (6, 30)]}]]


@pytest.mark.parametrize(
    "told",
    [
        [],  # what is there does not come
        [{"canceled": True, "cancel_reason": "compacted"}],
        ["nonsense"],
    ],
)
def test_a_poll_that_fails_has_done_nothing(told: Sequence[object]) -> None:
    got, _ = done(
        client.LogClient,
        lambda made: made.transact([("poll",)], {0: 0}),
        [read(pair("log/0", 20, 4))],
        watch=told,
    )
    assert isinstance(got, Definite)


# -- the system ------------------------------------------------------------------------------------

NODES = ("n1", "n2", "n3")


def plan(*faults: FaultAction, **parameters: object) -> Plan:
    return Plan(
        name="etcd",
        seed=5,
        time_limit_ms=1000,
        cluster=ClusterPlan(backend="docker", nodes=NODES),
        system=SystemPlan(name="etcd", profile="default", parameters=parameters),
        workload=WorkloadPlan(name="register", rate_hz=10, concurrency=6),
        gates=GatePlan(),
        faults=faults,
    )


def words(**parameters: Any) -> Sequence[str]:
    at = {
        n: {"client": Endpoint("0.0.0.0", 2379), "peer": Endpoint("0.0.0.0", 2380)} for n in NODES
    }
    topology = Topology(
        listen=at,
        dial={n: {m: at[m] for m in NODES if m != n} for n in NODES},
        data_dir=dict.fromkeys(NODES, "/data"),
        config_dir=dict.fromkeys(NODES, "/etc/shalott"),
    )
    made = system.EtcdSystem(system.EtcdParameters(**parameters))
    return tuple(made.node_specs(topology)[1].command)


def test_every_member_is_told_who_it_is_and_who_the_others_are() -> None:
    flags = words(election_timeout_ms=700)
    assert "--name=n2" in flags and "--election-timeout=700" in flags
    assert "--initial-cluster=n1=http://n1:2380,n2=http://n2:2380,n3=http://n3:2380" in flags


def test_flags_are_those_of_the_release() -> None:
    assert "--unsafe-no-fsync=true" in words(unsafe_no_fsync=True)
    assert "--experimental-initial-corrupt-check=true" in words(version="3.5.0", corrupt_check=True)
    assert "--feature-gates=InitialCorruptCheck=true" in words(corrupt_check=True)
    assert not any("compaction" in word or "snapshot" in word for word in words())
    assert "--auto-compaction-retention=500ms" in words(compact_every_ms=500)
    assert "--compaction-batch-limit=7" in words(compaction_batch=7)
    old = words(version="3.5.2", compaction_batch=7)
    assert "--experimental-compaction-batch-limit=7" in old


def seen(**changes: Any) -> dict[str, Any]:
    def claim(node: str) -> dict[str, object]:
        role = "master" if node == "n1" else "mirror"
        return {"role": role, "master": "n1", "epoch": 3, "applied": 40, **changes.get(node, {})}

    return {node: {"claims": [claim(node)]} for node in NODES}


@pytest.mark.parametrize(
    ("answers", "reason"),
    [
        (seen(), ""),
        (seen(n1={"applied": 39}), ""),  # others were asked later
        (seen(n2={"master": ""}), "master: n1 says n1, n2 says , n3 says n1"),
        (seen(n3={"epoch": 4}), "epoch: n1 says 3, n2 says 3, n3 says 4"),
        (seen(n3={"applied": 39}), "n3 has not applied 40"),
        ({**seen(), "n2": None}, "n2 did not answer"),
    ],
)
def test_what_a_cluster_that_has_not_settled_waits_for(answers: Any, reason: str) -> None:
    assert system.EtcdSystem(system.EtcdParameters()).why_unsettled(answers, ()) == reason


def test_a_wiped_member_and_a_hasty_election_are_refused() -> None:
    system.check(plan())
    wipe = FaultAction(id=1, at_ms=0, duration_ms=1, kind="wipe", nodes=("n1",))
    with pytest.raises(UsageError, match="replace-node in place of wipe"):
        system.check(plan(wipe))
    with pytest.raises(UsageError, match="at least five heartbeats"):
        system.check(plan(election_timeout_ms=400))


def test_a_member_that_was_let_in_is_called_by_its_host() -> None:
    assert system.Member(ID="7", peerURLs=("http://n2:2380",)).node == "n2"
    assert system.Member(ID="7", name="n3", peerURLs=("http://n2:2380",)).node == "n3"
