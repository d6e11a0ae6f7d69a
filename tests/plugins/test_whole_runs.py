"""Plug-ins in containers: whole runs, and what their manuals admit."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from shalott.harness.testing import pytest_plugin as plugin
from tests.tidy.sources import ROOT

pytestmark = [pytest.mark.docker, pytest.mark.nightly("builds images, and minutes of runs")]

FAULTS = {"nemesis": "kill,pause,partition", "time_limit": "45s", "rate": 60, "seed": 1}
SPLIT = {
    "nemesis": "partition-halves", "nodes": "5", "nemesis_interval": "5s", "seed": 1,
    "nemesis_duration": "15s", "time_limit": "25s", "rate": 100,
}  # fmt: skip
BLIP = {"nemesis": "disconnect", "nemesis_interval": "10s", "time_limit": "20s", "seed": 1}


@pytest.mark.parametrize("version", ["4.0", "4.3"])
def test_quorum_queues_keep_what_they_acknowledged(
    shalott: plugin.Shalott,
    version: str,
) -> None:
    run = shalott.run(
        system="rabbitmq4", load="shalott_rabbitmq", cluster="docker", profile="safe",
        version=version, **FAULTS,
    )  # fmt: skip
    run.assert_valid()


def test_mnesia_stays_apart_after_a_blip(shalott: plugin.Shalott) -> None:
    run = shalott.run(
        system="rabbitmq4", load="shalott_rabbitmq", cluster="docker", profile="safe", **BLIP
    )
    assert "had not settled" in run.told()


@pytest.mark.parametrize("more", [{"mode": "sentinel"}, {"mode": "cluster", "nodes": "6"}])
@pytest.mark.parametrize("system", ["redis", "valkey"])
def test_what_all_copies_have_is_kept(
    shalott: plugin.Shalott,
    system: str,
    more: dict[str, str],
) -> None:
    run = shalott.run(
        system=system, load="shalott_redis", cluster="docker", profile="safe", **FAULTS, **more
    )
    run.assert_valid()


@pytest.mark.parametrize("copies", ["none", "one"])
def test_a_former_master_s_writes_are_lost(
    shalott: plugin.Shalott,
    copies: str,
) -> None:
    run = shalott.run(
        system="redis", load="shalott_redis", cluster="docker", copies=copies, **SPLIT
    )
    run.assert_invalid("lost")


def test_kafka_starts_again_from_disks_that_tore(shalott: plugin.Shalott) -> None:
    run = shalott.run(
        system="kafka", load="shalott_kafka.system", cluster="docker", power_loss="torn",
        nemesis="power", targets="all", nemesis_interval="16s", nemesis_duration="1s",
        time_limit="60s", rate=60, seed=32,
    )  # fmt: skip
    assert "died" not in run.broken


@pytest.mark.parametrize("module", ["shalott_kafka.system", "shalott_rabbitmq", "shalott_redis"])
def test_it_keeps_every_point(module: str, tmp_path: Path) -> None:
    words = ["try-plugin", module, "--cluster", "docker", "--store", str(tmp_path)]
    plugins = map(str, (ROOT / "plugins").glob("shalott-*"))
    done = subprocess.run(
        [sys.executable, "-m", "shalott.harness.cli.main", *words], cwd=tmp_path, check=False,
        text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=600,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), *plugins])},
    )  # fmt: skip
    assert done.returncode == 0, done.stdout
