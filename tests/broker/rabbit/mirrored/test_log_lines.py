"""The lines of the startup race's document are in the log of a cluster that goes through it.

Pasted as they stand there (RabbitMQ 3.7, two nodes), with what follows the process's number. Names,
numbers of processes and the policy's settings are another cluster's, and so substituted. The author
of the document had the row's writes printed under a name of their own, which is left out.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Iterator

import pytest

from shalott.broker.rabbit.config import NodeConfig
from shalott.broker.rabbit.metadata.records import PolicyRow, policy_key
from shalott.broker.rabbit.mirrored import log_lines
from shalott.broker.rabbit.mirrored.messages import Claim
from shalott.broker.rabbit.processes.messages import Pid
from shalott.broker.rabbit.processes.process import Process
from shalott.broker.rabbit.processes.runtime import Runtime
from shalott.broker.rabbit.queue_process import starting
from tests.broker.rabbit.mirrored.test_known_bugs_masters import AUTO, Late, mirrored_queue
from tests.world.clock.latency import sim
from tests.world.clock.turns import passes
from tests.world.rabbit.queues import CODEC, Cluster, run, until

pytestmark = pytest.mark.unit

BUGS = ("KB-RMQ-01", "KB-RMQ-02", "KB-RMQ-37", "KB-RMQ-38")

NODE_A = r"""
Supervisor {<0.6502.0>,rabbit_amqqueue_sup} started rabbit_prequeue:start_link({amqqueue,{resource,<<"/">>,queue,<<"celtics_5">>},true,false,none,[],<0.7744.0>,[],[],[],[{vhost,...},...],...}, recovery, <0.6501.0>) at pid <0.6503.0>
hncscwc {resource,<<"/">>,queue,<<"celtics_5">>} pid:<0.6503.0>, slave_pids [], gm_pids []
hncscwc {resource,<<"/">>,queue,<<"celtics_5">>} pid:<0.6503.0>, slave_pids [], gm_pids [{<0.7275.0>,<0.6503.0>}]
Restarting crashed queue 'celtics_5' in vhost '/'.
** When Server state == {q,{amqqueue,{resource,<<"/">>,queue,<<"celtics_5">>},true,false,none,[],<0.6503.0>,[],[],[],[{vhost,<<"/">>},{name,<<"ha-all">>},{pattern,<<"^">>},{'apply-to',<<"all">>},{definition,[{<<"ha-mode">>,<<"all">>},{<<"ha-sync-mode">>,<<"automatic">>},{<<"max-length">>,60000000},{<<"message-ttl">>,172800000}]},{priority,0}],undefined,[],undefined,live,0,[],<<"/">>,#{user => <<"root">>}},none,false,undefined,undefined,{state,{queue,[],[],0},{active,-576460695583028,1.0}},undefined,undefined,undefined,undefined,{state,fine,20000,undefined},{0,nil},undefined,undefined,undefined,{state,{dict,0,16,16,8,80,48,{[],[],[],[],[],[],[],[],[],[],[],[],[],[],[],[]},{{[],[],[],[],[],[],[],[],[],[],[],[],[],[],[],[]}}},delegate},undefined,undefined,undefined,undefined,'drop-head',0,0,running}
Supervisor {<0.6502.0>,rabbit_amqqueue_sup} had child rabbit_amqqueue started with rabbit_prequeue:start_link({amqqueue,{resource,<<"/">>,queue,<<"celtics_5">>},true,false,none,[],<0.7744.0>,[],[],[],[{vhost,...},...],...}, recovery, <0.6501.0>) at <0.6503.0> exit with reason no match of right hand value {error,{queue_supervisor_not_found,[]}} in rabbit_amqqueue_sup_sup:start_queue_process/3 line 45 in context child_terminated
Mirrored queue 'celtics_5' in vhost '/': Adding mirror on node cba@node1: <19334.12919.0>
Mirrored queue 'celtics_5' in vhost '/': Synchronising: 0 messages to synchronise
Mirrored queue 'celtics_5' in vhost '/': Synchronising: batch size: 16384
Mirrored queue 'celtics_5' in vhost '/': Synchronising: all slaves already synced
"""  # noqa: E501

NODE_B = r"""
Mirrored queue 'celtics_5' in vhost '/': Adding mirror on node cba@node1: <0.11086.0>
Supervisor {<0.11085.0>,rabbit_amqqueue_sup} started rabbit_prequeue:start_link({amqqueue,{resource,<<"/">>,queue,<<"celtics_5">>},true,false,none,[],<23290.7978.0>,[],[],[],[{...},...],...}, slave, <0.11084.0>) at pid <0.11086.0>
hncscwc {resource,<<"/">>,queue,<<"celtics_5">>} pid:<23290.7978.0>, slave_pids [<0.11086.0>], gm_pids [{<0.11089.0>,<0.11086.0>},{<23290.8601.0>,<23290.7978.0>},{<23290.7275.0>,<23290.6503.0>}]
hncscwc {resource,<<"/">>,queue,<<"celtics_5">>} pid:<0.11086.0>, slave_pids [], gm_pids [{<0.11089.0>,<0.11086.0>}]
Mirrored queue 'celtics_5' in vhost '/': Slave <cba@node1.3.11086.0> saw deaths of mirrors <cba@node2.3.7978.0> <cba@node2.3.6503.0>
Mirrored queue 'celtics_5' in vhost '/': Promoting slave <cba@node1.3.11086.0> to master
Mirrored queue 'celtics_5' in vhost '/': Stopping all nodes on master shutdown since no synchronised slave is available
hncscwc {resource,<<"/">>,queue,<<"celtics_5">>} stop all slaves with reason: shutdown
"""  # noqa: E501

MISSING = (
    "Mirrored queue 'celtics_5' in vhost '/': Missing 'DOWN' message from <0.12919.0> in node"
    " cba@node1"
)
OLD = (
    "Discarding message {'$gen_cast',claim} from <0.753.0> to <0.943.0> in an old incarnation (3)"
    " of this node (1)"
)


def here(line: str) -> str:
    """A line of the document with this cluster's names: its B is b, its A is a."""
    line = line.removeprefix("hncscwc ").replace("celtics_5", "q").replace("root", "guest")
    line = line.replace("16384", "4096")  # this broker's usual batch
    return line.replace("cba@node1", "b").replace("cba@node2", "a")


def plain(line: str) -> str:
    """A line without the numbers of processes, of versions and of times."""
    line = re.sub(r"<([ab])\.\d+\.\d+\.0>", r"<\1's>", line)
    line = re.sub(r"<\d+\.\d+\.\d+>", "<pid>", line)
    line = re.sub(r"(?<=active,)-?\d+", "time", line)
    line = re.sub(r"(?<=,live,)\d+", "version", line)
    line = re.sub(r"(?<=,\[\],\[\],)\[b?\](?=,\[\{vhost,<<)", "[recoverable]", line)
    # One for each start of A's master, of which there may be more or fewer.
    line = re.sub(r"( <a's>)+$", " <a's>", line)
    return re.sub(r"gm_pids \[\{.*\}\]", "gm_pids [members]", line)


class _Said(logging.Handler):
    """What each node says, by the process of the simulation that says it."""

    def __init__(self) -> None:
        super().__init__()
        self.by_node: dict[str, list[str]] = {}
        self.at_s: dict[str, float] = {}

    def emit(self, record: logging.LogRecord) -> None:
        process = sim().process
        text = record.getMessage()
        self.by_node.setdefault("" if process is None else process.name, []).append(text)
        self.at_s.setdefault(text, sim().time())


@pytest.fixture
def said() -> Iterator[_Said]:
    handler, logger = _Said(), logging.getLogger("shalott.broker")
    before = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.DEBUG)
    yield handler
    logger.removeHandler(handler)
    logger.setLevel(before)


async def the_ten_steps(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """test_known_bugs_masters.test_02 says what happens here."""
    late = Late()
    monkeypatch.setattr(starting, "pause_ms", late.pause)
    await cluster.kill_all()
    cluster.boot("b", supervisor=False)
    a = cluster.boot("a")
    object.__setattr__(a.env, "buggify", late)
    await asyncio.wait_for(late.is_held.wait(), 5)
    cluster["b"].start_supervisor()
    await until(lambda: cluster["b"].role("q") == "master")
    late.may_go.set()
    await until(lambda: any(e.node == "b" for e in cluster.events_of("demoted")))
    await passes(0.2)


async def declared_under_the_policy(cluster: Cluster) -> None:
    definition = {
        "ha-mode": "all",
        "ha-sync-mode": "automatic",
        "max-length": 60000000,
        "message-ttl": 172800000,
    }
    row = PolicyRow(vhost="/", name="ha-all", pattern="^", definition=definition, apply_to="all")
    key = policy_key("/", "ha-all")
    await cluster["a"].metadata.transact(lambda tx: tx.write("policy", key, row))
    await until(lambda: all(node.metadata.rows("policy") for node in cluster.nodes.values()))
    await cluster["a"].declare("q")
    await cluster.mirrored_on("q", "b", synchronised=True)


def test_each_line_of_the_document_is_in_the_log_of_its_node(
    said: _Said, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario() -> None:
        async with Cluster("ab", bugs=BUGS) as cluster:
            await declared_under_the_policy(cluster)
            said.by_node.clear()
            await the_ten_steps(cluster, monkeypatch)

    run(scenario())
    for node, pasted in (("a", NODE_A), ("b", NODE_B)):
        lines = dict.fromkeys(map(plain, said.by_node[node]))
        for line in pasted.strip().splitlines():
            assert plain(here(line)) in lines, line


def test_after_it_nobody_serves_the_queue_until_somebody_acts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The row names A's master, as stopped, and no process has it: a publish reaches no process."""

    async def scenario() -> None:
        async with Cluster("ab", bugs=BUGS) as cluster:
            await mirrored_queue(cluster)
            await the_ten_steps(cluster, monkeypatch)
            await passes(60)
            row = cluster["b"].row("q")
            assert row is not None and row.pid is not None and row.slave_pids == ()
            assert row.state == "stopped" and row.pid.node == "a"
            assert cluster.master("q") == "" and cluster.mirrors("q") == []
            # Both views at once: A knows that its process is gone, B sees that A is there.
            assert not cluster["a"].queues.is_available(row)
            assert cluster["b"].queues.is_available(row)
            channel = cluster["b"].channel()
            channel.publish("q", b"to nobody")
            await until(lambda: channel.nacked == [b"to nobody"])
            await cluster["b"].queues.remove(row)
            await cluster["b"].declare("q")
            await cluster.mirrored_on("q", "a", synchronised=True)
            await cluster["b"].channel().publish_all("q", [b"to a queue"])

    run(scenario())


@pytest.mark.parametrize("left_out", BUGS)
def test_without_any_one_of_the_bugs_the_queue_is_not_left_to_nobody_as_stopped(
    left_out: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario() -> None:
        bugs = tuple(bug for bug in BUGS if bug != left_out)
        async with Cluster("ab", bugs=bugs) as cluster:
            await mirrored_queue(cluster)
            if left_out in ("KB-RMQ-01", "KB-RMQ-02"):  # it doesn't come as far
                await cluster.kill_all()
                cluster.boot("b", supervisor=False)
                cluster.boot("a")
                await passes(0.3)
                cluster["b"].start_supervisor()
            else:
                await the_ten_steps(cluster, monkeypatch)
            await passes(1)
            row = cluster["a"].row("q")
            assert row is not None
            served = cluster.master("q") != ""
            assert served if left_out != "KB-RMQ-38" else row.state == "live"

    run(scenario())


def test_a_mirror_that_does_not_end_is_told_of_after_fifteen_seconds(said: _Said) -> None:
    async def scenario() -> None:
        async with Cluster("ab") as cluster:
            await cluster.set_policy({"ha-mode": "all"})
            await cluster["b"].declare("q")
            await cluster.kill("b")
            b = cluster.boot("b", supervisor=False)
            b.config = NodeConfig(name="b", data_dir="")  # its time to wait is the usual one
            b.start_supervisor()
            await until(lambda: cluster.master("q") == "a")
            channel = cluster["a"].channel()
            await channel.publish_all("q", [b"one"])
            a = cluster["a"]
            assert a.supervisor is not None
            a.supervisor.children.process_of("q@/").shell.config = b.config  # type: ignore[union-attr]
            b.life.freeze()
            await a.supervisor.children.stop_all(20_000)

    run(scenario())
    stopping = next(t for t in said.at_s if "Stopping all nodes on master shutdown" in t)
    missing = next(t for t in said.at_s if "Missing 'DOWN' message" in t)
    assert plain(here(MISSING)) == plain(missing)
    assert said.at_s[missing] - said.at_s[stopping] == pytest.approx(15, abs=0.01)


def test_what_is_sent_to_a_former_life_is_discarded_and_told(said: _Said) -> None:
    async def scenario() -> None:
        runtime = Runtime("b", 1, CODEC)
        me = runtime.spawn(Process())
        runtime.send(Pid("b", 3, 943), Claim())
        with pytest.raises(Exception, match="not alive"):
            await runtime.call(Pid("b", 3, 943), Claim(), timeout_ms=10, caller=me)
        await runtime.kill(me)

    run(scenario())
    assert [t for t in said.by_node["test"] if t.startswith("Discarding message")] == [
        OLD.replace("<0.753.0>", who) for who in ("<0.0.0>", "<0.1.0>")
    ]


def test_a_queue_that_is_not_mirrored_has_a_name_for_its_errors() -> None:
    assert log_lines.queue_of("q@/") == "queue 'q' in vhost '/'"
    assert AUTO["ha-mode"] == "all"
