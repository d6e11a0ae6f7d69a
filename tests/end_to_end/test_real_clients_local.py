"""aio-pika, pika and RocketMQ's C++ client under faults: their recovery stands in the history.

What they lose or double is theirs, so no run must be valid; but what our brokers promise must hold,
and no row may say more than was seen.
"""

from __future__ import annotations

import importlib.util
import platform
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

from tests.end_to_end.leftovers import leftovers
from tests.end_to_end.runs import Done, shalott

pytestmark = pytest.mark.local

LIBRARIES = {"aio-pika": "aio_pika", "pika": "pika"}


def needs(module: str) -> None:
    if importlib.util.find_spec(module) is None:
        pytest.skip(f"the library {module} is not installed: pip install shalott[clients]")


def consumed_through(client: str, tmp_path: Path) -> Done:
    done = shalott(
        ["test", "--workload", "consume", "--client", client, "--cluster", "local",
         "--profile", "safe", "--time-limit", "16", "--rate", "40", "--seed", "3",
         "--nemesis", "kill", "--nemesis-interval", "5", "--nemesis-duration", "4",
         "--kinds", "plain,plain,single-active", "--cancels", "0", "--closes", "0",
         "--hang-ups", "0", "--deletes", "0"],  # who loses a consumer gets it back
        tmp_path,
    )  # fmt: skip
    assert leftovers(done) == []
    assert done.exit_code != 1, done
    return done


def by(rows: list[dict[str, Any]], name: str) -> dict[str, list[dict[str, Any]]]:
    found = defaultdict(list)
    for row in rows:
        found[row["extra"][name]].append(row)
    return found


BY_DAY = ("aio-pika", pytest.param("pika", marks=pytest.mark.nightly("aio-pika is tried by day")))


@pytest.mark.parametrize("client", BY_DAY)
def test_a_library_brings_its_consumers_back_and_the_rows_say_so(
    client: str, tmp_path: Path
) -> None:
    needs(LIBRARIES[client])
    done = consumed_through(client, tmp_path)
    consumers = done.rows("consumer")
    lost = [row for row in consumers if row["extra"]["ended"] == "lost"]
    assert lost, done  # the node of some was killed
    # Nobody asked for the consumers that came back.
    asked = [row for row in done.rows("subscribe") if row["type"] == "ok"]
    made = [row for row in consumers if row["extra"]["active_ns"] is not None]
    assert len(made) > len(asked), done
    # Names are of one row each, and what was delivered came to a consumer of its channel.
    assert all(len(rows) == 1 for rows in by(consumers, "consumer").values())
    channel = {row["extra"]["consumer"]: row["extra"]["channel"] for row in consumers}
    deliveries = done.rows("deliver")
    assert all(channel[row["extra"]["consumer"]] == row["extra"]["channel"] for row in deliveries)
    for rows in by(deliveries, "channel").values():
        tags = [row["extra"]["tag"] for row in rows]
        assert tags == list(range(1, len(tags) + 1))
    # Nothing is said to be settled whose channel was gone before the answer.
    ends = {row["extra"]["channel"]: row["complete_ns"] for row in done.rows("channel")}
    settled = [row for row in done.rows("ack") if row["type"] == "ok"]
    assert len(settled) > 100
    assert all(row["complete_ns"] <= ends[row["extra"]["channel"]] for row in settled)


@pytest.mark.parametrize("client", LIBRARIES)
def test_a_library_has_no_place_in_a_simulation(client: str, tmp_path: Path) -> None:
    arguments = ["test", "--workload", "consume", "--client", client, "--cluster", "sim"]
    done = shalott(arguments, tmp_path)
    assert done.exit_code == 254
    (sentence,) = done.complaints
    assert f"--client {client} runs on real clusters only" in sentence


@pytest.mark.nightly("the C++ client's own times make it two minutes and a half")
def test_the_cpp_clients_members_and_what_they_do_by_themselves(tmp_path: Path) -> None:
    if sys.platform != "linux" or platform.machine() != "x86_64":
        pytest.skip("the C++ client has a library for x86-64 Linux only")
    needs("rocketmq")
    done = shalott(
        ["test", "--workload", "group", "--client", "cpp", "--system", "master-slave",
         "--cluster", "local", "--profile", "safe", "--nemesis", "none", "--time-limit", "15",
         "--rate", "15", "--seed", "1", "--groups", "concurrent", "--topics", "1", "--queues", "2",
         "--poison", "0", "--later", "0.02", "--reset", "0"],
        tmp_path,
    )  # fmt: skip
    assert leftovers(done) == []
    assert done.exit_code in (0, 1, 2), done
    for f in ("member", "assignment", "deliver", "commit"):
        assert [row for row in done.rows(f) if row["type"] == "ok"], (f, done)
    sends = {row["value"]: row for row in done.rows("send") if row["type"] == "ok"}
    delivered = [row for row in done.rows("deliver") if row["value"] in sends]
    first = [row for row in delivered if not row["key"].startswith("%RETRY%")]
    assert first
    for row in first:  # where it was sent is where it came from
        send = sends[row["value"]]
        assert row["key"] == send["key"], (row, send)
        assert send["offset"] is None or row["offset"] == send["offset"], (row, send)
