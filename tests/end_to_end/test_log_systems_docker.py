"""RocketMQ's systems in containers, under faults that each must bear when it is set up safely."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.end_to_end.leftovers import docker_leftovers
from tests.end_to_end.runs import Done, shalott

pytestmark = pytest.mark.docker


def run(system: str, cwd: Path, *arguments: str) -> Done:
    done = shalott(
        ["test", "--cluster", "docker", "--system", system, "--profile", "safe", "--rate", "50",
         "--seed", "7", *arguments],
        cwd,
    )  # fmt: skip
    assert docker_leftovers(done) == []
    assert done.exit_code == 0, done
    counts = done.counts("log")
    assert counts["acknowledged-count"] > 100
    assert counts["lost-write-count"] == counts["shared-offset-count"] == 0
    return done


def masters(done: Done) -> list[str]:
    """Who became master, one after the other, over and over."""
    rows = done.history.events.to_pylist()
    return [row["node"] for row in rows if row["kind"] == "role" and row["role"] == "master"]


def test_a_killed_master_is_replaced_out_of_the_sync_state_set(tmp_path: Path) -> None:
    done = run(
        "controller", tmp_path, "--nemesis", "kill", "--targets", "master", "--time-limit", "24",
        "--nemesis-interval", "14", "--nemesis-duration", "9",
    )  # fmt: skip
    # Where the leading controller dies with the master, the others take five seconds and more.
    assert len(dict.fromkeys(masters(done))) > 1
    assert done.counts("i2-master-from-set")["elected-outside-set-count"] == 0


@pytest.mark.nightly("five nodes take a minute and a half")
def test_a_ring_of_majorities_neither_loses_nor_repeats_an_offset(tmp_path: Path) -> None:
    done = run(
        "dledger", tmp_path, "--nodes", "5", "--nemesis", "partition-majorities-ring",
        "--time-limit", "22", "--nemesis-interval", "20", "--nemesis-duration", "10",
    )  # fmt: skip
    made = [row["extra"] for row in done.rows("partition-majorities-ring")]
    assert made and all(each["proved_effective"] and each["proved_healed"] for each in made)


@pytest.mark.nightly("most of a minute in containers")
def test_a_synchronous_master_that_lost_its_slaves_acknowledges_nothing_it_may_lose(
    tmp_path: Path,
) -> None:
    run(
        "master-slave", tmp_path, "--nemesis", "partition-isolate-master", "--time-limit", "20",
        "--nemesis-interval", "8", "--nemesis-duration", "4",
    )  # fmt: skip
