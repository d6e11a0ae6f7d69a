"""What a loss of power takes from real programs, in containers whose disks keep a page cache of
their own (docs/explanation/disks.md): what was confirmed as persistent stays, what was transient
goes."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.end_to_end.leftovers import docker_leftovers
from tests.end_to_end.runs import Done, shalott

pytestmark = pytest.mark.docker

NIGHTLY = pytest.mark.nightly("each takes a minute")
# The queue is deep, so that something is there to be lost. The fault begins when RabbitMQ, too, has
# something to lose.
RUN = (
    *("test", "--cluster", "docker", "--nemesis", "power-all", "--nemesis-interval", "7"),
    *("--nemesis-duration", "2", "--time-limit", "11", "--queues", "1", "--depth", "50"),
    *("--rate", "40", "--seed", "4"),
)
MIRRORED = ("--system", "mirrored")
# Of several RabbitMQ nodes whose power goes at once, each may wait for another to start first.
RABBITMQ = ("--system", "rabbitmq", "--nodes", "1")


def run(cwd: Path, *words: str) -> Done:
    done = shalott([*RUN, *words], cwd)
    assert docker_leftovers(done) == []
    (fault,) = done.rows("power-all")
    assert fault["extra"]["proved_effective"] and fault["extra"]["proved_healed"], done
    return done


def anomalies(done: Done) -> list[str]:
    return [each.kind for result in done.results.results for each in result.anomalies]


@pytest.mark.parametrize(
    "system",
    [
        pytest.param((*MIRRORED, "--profile", "upstream"), id="mirrored-upstream"),
        pytest.param((*MIRRORED, "--profile", "safe"), id="mirrored-safe", marks=NIGHTLY),
        pytest.param(RABBITMQ, id="rabbitmq", marks=NIGHTLY),
    ],
)
def test_transient_messages_are_lost(system: tuple[str, ...], tmp_path: Path) -> None:
    done = run(tmp_path, *system, "--no-persistent")
    assert done.exit_code == 1, done
    assert "lost" in anomalies(done), done


@NIGHTLY
@pytest.mark.parametrize(
    "system",
    [
        pytest.param((*MIRRORED, "--profile", "upstream"), id="mirrored-upstream"),
        pytest.param((*MIRRORED, "--profile", "safe"), id="mirrored-safe"),
        pytest.param(RABBITMQ, id="rabbitmq"),
    ],
)
def test_persistent_messages_are_kept(system: tuple[str, ...], tmp_path: Path) -> None:
    done = run(tmp_path, *system)
    assert done.exit_code == 0, done
    assert "nothing was lost of" in done.results.headline, done
