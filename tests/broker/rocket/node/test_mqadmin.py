"""mqadmin's invocations at RocketMQ itself and at our broker: what works there works here.

The table is printed: ``pytest -s`` shows it.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from shalott.broker.rocket.config import parse_address
from shalott.clients.rocketmq.rocket_client import Queue, RocketClient
from tests.world.rocket import original
from tests.world.rocket.original import Both

pytestmark = [pytest.mark.local, pytest.mark.nightly("mqadmin runs a hundred times")]

PROGRAM = Path(__file__).with_name("Administration.java")
# {n}: the name server, {b}: the broker's address, {c}: its cluster, and its group too.
COMMANDS = (
    "clusterList -n {n}",
    "topicList -n {n}",
    "updateTopic -n {n} -b {b} -t AdmT{c} -r 4 -w 4 -a +message.type=NORMAL",
    "updateTopic -n {n} -b {b} -t AdmO{c} -r 2 -w 2",
    "topicRoute -n {n} -t AdmT{c}",
    "topicClusterList -n {n} -t AdmT{c}",
    "topicStatus -n {n} -t AdmT{c}",
    "updateTopicPerm -n {n} -t AdmO{c} -b {b} -p 4",
    "updateSubGroup -n {n} -b {b} -g admg -r 5 -q 2",
    "getConsumerConfig -n {n} -g admg",
    "sendMessage -n {n} -t AdmT{c} -p hello -k akey -c atag",
    "sendMessage -n {n} -t AdmT{c} -p hello2 -b {c} -i 1",
    "consumeMessage -n {n} -t AdmT{c} -b {c} -i 1 -o 0 -c 1",
    "queryMsgByKey -n {n} -t AdmT{c} -k akey",
    "queryMsgByOffset -n {n} -t AdmT{c} -b {c} -i 1 -o 0",
    "queryCq -n {n} -t AdmT{c} -q 1 -i 0 -c 10 -b {b}",
    "brokerStatus -n {n} -b {b}",
    "getBrokerConfig -n {n} -b {b}",
    "updateBrokerConfig -n {n} -b {b} -k flushDelayOffsetInterval -v 9000",
    "wipeWritePerm -n {n} -b {c}",
    "addWritePerm -n {n} -b {c}",
    "sendMsgStatus -n {n} -b {c} -s 10 -c 2",
    "consumerProgress -n {n} -g offg",
    "producer -n {n} -b {b}",
    "brokerConsumeStats -n {n} -b {b}",
    "resetOffsetByTime -n {n} -g offg -t AdmT{c} -s now",
    "setConsumeMode -n {n} -b {b} -t AdmT{c} -g admg -m POP -q 8",
    "haStatus -n {n} -b {b}",
    "resetMasterFlushOffset -n {n} -b {b} -o 0",
    "cleanExpiredCQ -n {n} -b {b}",
    "deleteExpiredCommitLog -n {n} -b {b}",
    "cleanUnusedTopic -n {n} -b {b}",
    "exportMetadata -n {n} -b {b} -t -f {home}/exp",
    "exportMetadata -n {n} -b {b} -g -f {home}/exp",
    "exportMetadata -n {n} -c {c} -f {home}/exp",
    "exportMetrics -n {n} -c {c} -f {home}/exp",
    "getColdDataFlowCtrInfo -n {n} -b {b}",
    "updateColdDataFlowCtrGroupConfig -n {n} -b {b} -g admg -v 100",
    "removeColdDataFlowCtrGroupConfig -n {n} -b {b} -g admg",
    "checkRocksdbCqWriteProgress -n {n} -c {c} -t AdmT{c}",
    "deleteSubGroup -n {n} -b {b} -g admg",
    "deleteTopic -n {n} -c {c} -t AdmO{c}",
    "topicList -n {n} -c",
)
# Not there: run-time configuration and POP, which are refused in words, and rates of puts.
REFUSED = ("updateBrokerConfig", "setConsumeMode", "exportMetrics")


async def consumed(address: str, topic: str, group: str) -> None:
    """A group that is not there any more left an offset behind."""
    client = RocketClient([], dial=parse_address, group="offg", timeout_ms=10_000)
    try:
        await client.create_topic(address, topic, 4)
        for queue_id in range(4):
            queue = Queue(topic, group, queue_id)
            await client.pull(address, queue, 0, wait_ms=1)  # makes the group
            await client.commit_offset(address, queue, 0)
    finally:
        await client.close()


def outcomes(both: Both, group: str, home: Path) -> dict[str, str]:
    """By command, without its arguments: what mqadmin said."""
    (home / "exp").mkdir(parents=True)
    address = both.brokers[group]
    asyncio.run(consumed(address, f"AdmT{group}", group))
    lines = [
        command.format(n=both.name_server, b=address, c=group, home=home) for command in COMMANDS
    ]
    commands = home / "commands"
    commands.write_text("\n".join(lines) + "\n")
    classes = ["-cp", f"{original.jars()}/*", f"-Duser.home={home}"]
    done = subprocess.run(
        ["java", *classes, str(PROGRAM), str(commands)],
        capture_output=True,
        text=True,
        timeout=280,
        cwd=home,
        env=os.environ | {"ROCKETMQ_HOME": str(home)},
    )
    parts = done.stdout.split("\n### ")[1:]
    assert len(parts) == len(COMMANDS), done.stdout[-2000:] + done.stderr[-2000:]
    return dict(zip(COMMANDS, (part.partition("\n")[2] for part in parts), strict=True))


def is_ok(said: str) -> bool:
    return "Exception" not in said


def test_what_works_at_an_original_works_at_ours(both: Both, tmp_path: Path) -> None:
    if shutil.which("javac") is None:
        pytest.skip("a Java compiler is not installed")
    said = {group: outcomes(both, group, tmp_path / group) for group in both.brokers}
    rows = {
        command: {group: is_ok(said[group][command]) for group in both.brokers}
        for command in COMMANDS
    }
    for command, row in rows.items():
        words = (f"{group} {'ok' if ok else 'refuses'}" for group, ok in row.items())
        sys.stdout.write(" | ".join([f"{command.split(' -')[0]:35}", *words]) + "\n")
    less = [
        command for command, row in rows.items() if row[original.JAVA] and not row[original.OURS]
    ]
    assert [command.split()[0] for command in less] == list(REFUSED), "\n".join(
        f"{command}\n{said[original.OURS][command][:1500]}" for command in less
    )
