"""shalott-rabbitmq: what becomes of operations by what the library says, its log, its plans."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("aio_pika")
client = pytest.importorskip("shalott_rabbitmq.client")
system = pytest.importorskip("shalott_rabbitmq.system")
unconfirmed = pytest.importorskip("shalott_rabbitmq.unconfirmed")

from aio_pika.exceptions import (  # noqa: E402
    AMQPConnectionError,
    ChannelInvalidStateError,
    ChannelNotFoundEntity,
    DeliveryError,
    PublishError,
)
from pamqp.commands import Basic  # noqa: E402

from shalott.core.errors import Definite, Indefinite, Unreachable, UsageError  # noqa: E402
from shalott.core.plan import ClusterPlan, FaultAction, GatePlan, Plan, SystemPlan, WorkloadPlan  # noqa: E402
from tests.checkers.histories import Story  # noqa: E402

pytestmark = pytest.mark.unit


class Library:
    """A channel, its exchange, and a queue of aio-pika's, all in one: it does what it is told."""

    def __init__(self, outcome: object = None, *, is_closed: bool = False) -> None:
        self.outcome, self.is_closed = outcome, is_closed
        self.default_exchange = self
        self.published: list[tuple[object, ...]] = []

    async def publish(self, message: Any, routing_key: str, *, mandatory: bool) -> None:
        self.published.append((message.body, message.delivery_mode, routing_key, mandatory))
        await self._answer()

    async def get_queue(self, name: str, *, ensure: bool) -> Library:
        return self

    async def get(self, *, no_ack: bool, fail: bool) -> object:
        assert (no_ack, fail) == (False, False)
        return await self._answer()

    async def _answer(self) -> object:
        if isinstance(self.outcome, Exception):
            raise self.outcome
        if self.outcome == "hangs":
            await asyncio.Event().wait()
        return self.outcome


def returned() -> PublishError:
    error = PublishError.__new__(PublishError)
    error.frame = Basic.Return()
    return error


def at(library: Library) -> Any:
    made = client.QueueClient("127.0.0.1", 1, timeout_ms=50)
    made._channel = library
    return made


def test_a_send_is_persistent_and_mandatory() -> None:
    library = Library()
    asyncio.run(at(library).send("q", b"body"))
    assert library.published == [(b"body", 2, "q", True)]


@pytest.mark.parametrize(
    ("outcome", "error"),
    [
        (returned(), Definite),
        (DeliveryError(None, Basic.Nack()), Indefinite),  # it may lie on a disk
        ("hangs", Indefinite),
        (AMQPConnectionError("gone"), Indefinite),
        (ConnectionResetError(), Indefinite),
        (ChannelInvalidStateError("gone"), Indefinite),
        (ChannelNotFoundEntity("404"), Indefinite),  # perhaps of an earlier acknowledgement
    ],
)
def test_a_send_that_was_not_confirmed(outcome: object, error: type[Exception]) -> None:
    with pytest.raises(error) as found:
        asyncio.run(at(Library(outcome)).send("q", b"body"))
    assert found.type is error


@pytest.mark.parametrize(
    ("outcome", "error"),
    [
        ("hangs", Indefinite),
        (AMQPConnectionError("gone"), Indefinite),
        (ChannelNotFoundEntity("404"), Definite),  # what it took, if anything, comes again
    ],
)
def test_a_receive_that_got_no_answer(outcome: object, error: type[Exception]) -> None:
    with pytest.raises(error) as found:
        asyncio.run(at(Library(outcome)).receive("q"))
    assert found.type is error
    assert asyncio.run(at(Library(None)).receive("q")) is None


def test_nothing_is_asked_of_a_channel_that_is_closed() -> None:
    gone = Library(is_closed=True)
    for ask in (at(gone).send("q", b""), at(gone).receive("q")):
        with pytest.raises(Unreachable):
            asyncio.run(ask)
    assert gone.published == []
    with pytest.raises(Unreachable):
        asyncio.run(client.QueueClient("127.0.0.1", 1, timeout_ms=500).open())


class Stream(client.StreamClient):  # type: ignore[misc, name-defined]
    """``chunks``: what a read from an offset on finds, and what one of the last chunk does."""

    def __init__(self, chunks: Mapping[int | str, list[tuple[int, int]]]) -> None:
        super().__init__("127.0.0.1", 1, timeout_ms=500)
        self.chunks = chunks

    async def _read(self, key: int, place: int | str, first_s: float) -> list[tuple[int, int]]:
        return self.chunks.get(place, [])


def test_a_poll_finds_nothing_only_at_the_end_of_the_stream() -> None:
    there: Mapping[int | str, list[tuple[int, int]]] = {0: [(0, 7), (1, 8)], "last": [(1, 8)]}
    assert asyncio.run(Stream(there)._poll(1, 0)) == [(0, 7), (1, 8)]
    assert asyncio.run(Stream(there)._poll(1, 2)) == []
    assert asyncio.run(Stream({})._poll(1, 0)) == []  # nothing was ever sent
    assert asyncio.run(Stream({1: [(0, 7), (1, 8)]})._poll(1, 1)) == [(1, 8)]  # a chunk's beginning
    for odd, place in (({"last": [(1, 8)]}, 1), ({"last": [(1, 8)]}, 0), ({}, 2)):
        with pytest.raises(Definite, match="did not come in time"):
            asyncio.run(Stream(odd)._poll(1, place))  # type: ignore[arg-type]


# -- what nodes say


LOG = """\
2026-11-28 17:54:10.000001+00:00 [notice] <0.45.0>  Starting RabbitMQ 4.0.5 on Erlang 27.3.4.1 [jit]
2026-11-28 17:54:10.000002+00:00 [info] <0.9.0> Server startup complete; 3 plugins started.
2026-11-28 17:54:11.000000+00:00 [notice] <0.9.0> queue 'q' in vhost '/': candidate -> leader in \
term: 2 machine version: 5, last applied 1
2026-11-28 17:54:12.000000+00:00 [info] <0.9.0> queue 'q' in vhost '/': detected a new leader \
{'%2F_q',rabbit@n3} in term 3
2026-11-28 17:54:13.000000+00:00 [info] <0.9.0> rabbit on node rabbit@n3 down
2026-11-28 17:54:14.000000+00:00 [error] <0.9.0> Mnesia(rabbit@n1): ** ERROR ** mnesia_event got \
{inconsistent_database, running_partitioned_network, rabbit@n3}
2026-11-28 17:54:15.000000+00:00 [warning] <0.9.0> Cluster minority/secondary status detected - \
awaiting recovery
a line of another shape
"""


def test_the_log_says_who_leads_and_when_a_role_ends(tmp_path: Path) -> None:
    (tmp_path / "n1" / "log").mkdir(parents=True)
    (tmp_path / "n1" / "log" / "rabbit@n1.log").write_text(LOG)
    start = 1_795_888_450_000_000_000
    rows = list(system.RabbitmqSystem(plan()).read_events(tmp_path, start))
    assert [(row["kind"], row["group"], row["role"], row["epoch"]) for row in rows] == [
        ("starting", "", "", 0),
        ("role", "", "running", 0),
        ("promoted", "q", "master", 2),
        ("role", "q", "master", 2),
        ("role", "q", "mirror", 3),
        ("peer_down", "", "", 0),
        ("partition", "", "", 0),
        ("role", "q", "none", 0),
        ("role", "", "paused", 0),
    ]
    assert {row["node"] for row in rows} == {"n1"}
    assert rows[2]["wall_ns"] - rows[2]["run_ns"] == start
    assert rows[6]["detail"] == '{"parted_from":"n3"}'


QUORUM = {
    "name": "q", "type": "quorum", "state": "running", "node": "rabbit@n1", "leader": "rabbit@n1",
    "members": ["rabbit@n1", "rabbit@n2", "rabbit@n3"], "online": ["rabbit@n1", "rabbit@n3"],
}  # fmt: skip


def test_a_claim_is_what_a_node_says_of_a_queue() -> None:
    claim = system.claim_of("n2", QUORUM)
    assert (claim["role"], claim["master"], claim["mirrors"]) == ("mirror", "n1", ["n2", "n3"])
    assert claim["online"] == ["n1", "n3"] and claim["by_majority"]
    assert system.claim_of("n1", QUORUM)["role"] == "master"
    lost = {key: value for key, value in QUORUM.items() if key != "leader"}
    assert system.claim_of("n2", lost)["master"] == ""
    classic = {"name": "q", "type": "classic", "state": "running", "node": "rabbit@n2"}
    assert system.claim_of("n2", classic)["role"] == "master"
    assert not system.claim_of("n3", classic)["by_majority"]


def plan(
    profile: str = "safe", workload: str = "queue", fault: str = "", **parameters: object
) -> Plan:
    own = {**system.SYSTEM.profiles[profile].parameters, **parameters}
    return Plan(
        name="rabbitmq4",
        seed=1,
        time_limit_ms=1000,
        cluster=ClusterPlan(backend="docker", nodes=("n1", "n2", "n3")),
        system=SystemPlan(name="rabbitmq4", profile=profile, parameters=own),
        workload=WorkloadPlan(name=workload, rate_hz=1, concurrency=3),
        gates=GatePlan(),
        faults=(FaultAction(id=1, at_ms=0, duration_ms=1, kind=fault),) if fault else (),
    )


def test_settled_is_one_leader_with_all_its_members() -> None:
    asked = system.RabbitmqSystem(plan())
    nodes = ["n1", "n2", "n3"]
    everywhere = {**QUORUM, "online": QUORUM["members"]}

    def seen(**queue: object) -> dict[str, Any]:
        told = {**everywhere, **queue}
        return {
            node: {"running": nodes, "partitions": [], "claims": [system.claim_of(node, told)]}
            for node in nodes
        }

    whole = seen()
    assert asked.why_unsettled(whole, ["q"]) == ""
    for odd, why in (
        ({**whole, "n2": None}, "n2 can't be asked"),
        ({**whole, "n2": {**whole["n2"], "running": ["n2"]}}, "n2 doesn't run with n1, n3"),
        ({**whole, "n3": {**whole["n3"], "partitions": ["n1"]}}, "n3 reports a partition from n1"),
        ({**whole, "n1": {**whole["n1"], "claims": []}}, "n1 says that it is not there"),
        (seen(online=["rabbit@n1"]), "1 of 3 members are there"),
        (seen(leader=None), "led by no node"),
        ({**whole, "n3": seen(leader="rabbit@n3")["n3"]}, "its leader is n1 or n3"),
    ):
        assert why in asked.why_unsettled(odd, ["q"])


def test_releases_have_the_metadata_store_that_they_have() -> None:
    assert system.parameters_of(plan()).store == "mnesia"
    assert system.parameters_of(plan(version="4.3")).store == "khepri"
    system.check(plan(metadata="khepri"))
    with pytest.raises(UsageError, match="no Mnesia any more"):
        system.check(plan(version="4.3", metadata="mnesia"))


def test_what_quorum_queues_can_t_have_is_refused() -> None:
    with pytest.raises(UsageError, match="replace-node"):
        system.check(plan(fault="wipe"))
    with pytest.raises(UsageError, match="have no workload consume"):
        system.check(plan(workload="consume"))
    system.check(plan("default", workload="consume", fault="kill"))
    system.check(plan(fault="replace-node"))


def test_its_configuration_is_what_the_profile_says() -> None:
    for profile, handling in (("safe", "pause_minority"), ("unsafe", "autoheal")):
        written = system.configuration(system.parameters_of(plan(profile)), ["n1", "n2"])
        assert f"cluster_partition_handling = {handling}\n" in written
        assert "classic_config.nodes.2 = rabbit@n2\n" in written
        assert "net_ticktime = 4\n" in written
    assert system.queues(plan(client="own")) is None  # then the workload's own client does it
    assert system.queues(plan()).port == "amqp"


# -- the checker


def silent_send(
    *, later_s: float | None = 22, took: float | None = 30, fault_ends: int = 20
) -> Any:
    """A publish at 10 s without an answer, and one that was confirmed later."""
    story = Story().fault(1, "partition-bridge", 5, fault_ends)
    story.row("enqueue", 10, kind="info", value=1, took=took, error="TimeoutError")
    if later_s is not None:
        story.row("enqueue", later_s, value=2, process=1)
    return unconfirmed.Unconfirmed().check(story.history())


def test_a_channel_that_waits_for_ever_is_told() -> None:
    result = silent_send()
    assert result.valid is False
    assert [anomaly.kind for anomaly in result.anomalies] == ["unconfirmed"]


@pytest.mark.parametrize(
    "odd",
    [
        {"later_s": None},  # the queue may be without a leader
        {"later_s": 15},  # the fault is in force
        {"later_s": 35},  # not long enough after that
        {"took": 5},  # it was given up
        {"took": None},  # the run ended
        {"fault_ends": 30},
    ],
)
def test_a_confirm_that_may_yet_come_is_not_missed(odd: Any) -> None:
    assert silent_send(**odd).valid is True
