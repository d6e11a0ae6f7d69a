"""RocketMQ's Java clients on our brokers: they find what is broken, and what they do by themselves
stands in the history as theirs."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from shalott.clients.java.build import java_client, obstacle
from tests.end_to_end.leftovers import leftovers
from tests.end_to_end.runs import Running, shalott
from tests.world.mutants import Edit, run_mutant

pytestmark = pytest.mark.local

NIGHTLY = pytest.mark.nightly("Java clients under faults take minutes")
JAVA = ("--client", "java", "--cluster", "local")
ALONE = ("--system", "master-slave", "--nodes", "1", "--nemesis", "none", "--concurrency", "4")

# One message in sixteen is acknowledged and not stored.
ACKNOWLEDGES_WITHOUT_STORING = Edit(
    "shalott/broker/rocket/processor/send.py",
    "    result = await put(broker, messages)\n"
    '    handle = "" if header.batch else recall_handle(broker.config.broker_name, messages[0])\n'
    "    return send_answer(result, queue_id, _transaction_id(header), handle)\n",
    "    told = _refusal.__dict__\n"
    "    if 'last' not in told or request.body[7] % 16 != 5:\n"
    "        result = await put(broker, messages)\n"
    "        told['last'] = send_answer(result, queue_id, _transaction_id(header))\n"
    "    return told['last']\n",
)


@pytest.fixture(autouse=True, scope="module")
def _client() -> None:
    if obstacle():
        pytest.skip(f"{obstacle()}: scripts/setup java-client")
    java_client()


def test_a_broker_that_loses_messages_is_found_by_java_clients_alone(tmp_path: Path) -> None:
    words = ["test", "--workload", "log", *JAVA, *ALONE, "--time-limit", "10", "--rate", "60"]
    done = run_mutant([ACKNOWLEDGES_WITHOUT_STORING], [*words, "--min-acked", "1"], tmp_path)
    assert leftovers(done) == []
    assert done.exit_code == 1, done
    (log,) = [each for each in done.results.results if each.checker == "log"]
    kinds = {anomaly.kind for anomaly in log.anomalies}
    # Whoever sent it was told another message's offset, and nobody found it there.
    assert {"lost-write", "shared-offset"} <= kinds, log
    sends = [row for row in done.rows("send") if row["type"] == "ok"]
    assert sends and all("library_ms" in row["extra"] for row in sends)
    assert [row for row in done.rows("poll") if row["type"] == "ok"]
    (jvm,) = done.rows("jvm")
    assert jvm["extra"]["ended"] == "closed"


def jvms_of(pid: int) -> list[int]:
    """Processes of Java clients that a harness started."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            words = (process / "cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if f"-Dshalott.owner={pid}".encode() in words:
            found.append(int(process.name))
    return found


def is_sending(records: list[dict[str, Any]]) -> bool:
    return sum(record["type"] == "ok" for record in records) > 60


@NIGHTLY
def test_a_jvm_that_is_killed_is_missed_and_replaced(tmp_path: Path) -> None:
    words = ["test", "--workload", "log", *JAVA, *ALONE, "--time-limit", "15", "--rate", "60"]
    with Running([*words, "--min-acked", "1"], tmp_path) as running:
        running.await_recorded(is_sending, "messages were sent")
        (jvm,) = jvms_of(running.pid)
        os.kill(jvm, signal.SIGKILL)
        done = running.wait()
    assert leftovers(done) == []
    assert done.exit_code == 0, done
    first, second = done.rows("jvm")
    assert "ended (-9)" in first["extra"]["ended"]
    assert second["extra"]["ended"] == "closed"
    later = [row for row in done.rows("send") if row["invoke_ns"] > first["complete_ns"]]
    assert [row for row in later if row["type"] == "ok"], done


@NIGHTLY
def test_no_jvm_outlives_a_harness_that_is_killed(tmp_path: Path) -> None:
    words = ["test", "--workload", "log", *JAVA, *ALONE, "--time-limit", "60", "--rate", "60"]
    with Running(words, tmp_path) as running:
        running.await_recorded(is_sending, "messages were sent")
        assert jvms_of(running.pid)
        running.end(signal.SIGKILL)
        deadline = time.monotonic() + 10
        while jvms_of(running.pid) and time.monotonic() < deadline:
            time.sleep(0.05)
        assert jvms_of(running.pid) == []
    assert shalott(["clean"], tmp_path).exit_code == 0


@NIGHTLY
@pytest.mark.parametrize("client", ["java", "mixed"])
def test_groups_of_java_members_come_to_their_end(client: str, tmp_path: Path) -> None:
    done = shalott(
        ["test", "--workload", "group", "--client", client, "--cluster", "local",
         "--system", "controller", "--profile", "safe", "--nemesis", "kill", "--time-limit", "30",
         "--rate", "20", "--nemesis-interval", "12", "--nemesis-duration", "6", "--seed", "3"],
        tmp_path,
    )  # fmt: skip
    assert leftovers(done) == []
    assert done.exit_code in (0, 2), done
    for f in ("member", "assignment", "deliver", "commit", "lock", "send-back"):
        assert [row for row in done.rows(f) if row["type"] == "ok"], (f, done)
    sends = {row["value"]: row for row in done.rows("send") if row["type"] == "ok"}
    again = [row for row in sends.values() if row["extra"].get("attempts", 1) > 1]
    # Where the library put a message is where it came from, unless it was stored before as well.
    for row in done.rows("deliver"):
        send = sends.get(row["value"])
        if send is None or send in again or row["key"].startswith("%RETRY%"):
            continue
        assert row["key"] == send["key"], (row, send)
        assert send["offset"] is None or row["offset"] == send["offset"], (row, send)
