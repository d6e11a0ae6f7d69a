"""A harness that is stopped for a while: nothing of it is charged to the broker."""

from __future__ import annotations

import signal
import time
from pathlib import Path
from typing import Any

import pytest

from tests.end_to_end.runs import Running

pytestmark = pytest.mark.local

STOPPED_S = 3  # three net ticks: relays that stop as long part every node from every other


def test_a_stopped_harness_is_no_fault_of_the_broker(tmp_path: Path) -> None:
    """Under ``upstream`` a partition loses messages and makes two masters: there is none."""
    arguments = [
        *("test", "--cluster", "local", "--profile", "upstream", "--nemesis", "none"),
        *("--time-limit", "14", "--net-tick", "1s", "--op-timeout", "2"),
        *("--max-rto", "2s", "--rate", "100", "--seed", "3"),
    ]
    with Running(arguments, tmp_path) as running:
        running.await_recorded(is_under_load, "clients were served")
        running.process.send_signal(signal.SIGSTOP)
        time.sleep(STOPPED_S)
        running.process.send_signal(signal.SIGCONT)
        done = running.wait()
    stalls = [row["extra"] for row in done.rows("stall")]
    long = [each for each in stalls if each["end_ns"] - each["begin_ns"] > 2e9]
    assert [each["kind"] for each in long] == ["stopped"], done
    told = [result for result in done.results.results if result.valid is not True]
    assert all(result.valid == "unknown" and result.checker == "stalls" for result in told), done
    assert "stood still for" in done.results.headline, done
    assert done.counts("total-queue")["lost-count"] == 0, done
    assert done.counts("mastership")["dual-master-claimed-count"] == 0, done
    assert done.counts("stalls")["stalled-ms-max"] > 2000
    assert "Stalls: the harness stood still for" in done.stdout


def is_under_load(records: list[dict[str, Any]]) -> bool:
    return sum(record.get("f") == "enqueue" for record in records) > 150
