"""Every fault can be made somewhere, and no world can do more than it says."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from typing import get_args

import pytest

from shalott.cluster.capabilities import (
    CAN,
    DISK_CAPABILITIES,
    MOST,
    RESOURCES,
    WORLDS,
    Capability,
    lacking,
)
from shalott.cluster.docker.backend import DockerCluster, DockerOptions
from shalott.cluster.local.backend import LocalCluster
from shalott.cluster.packets.shaping import TRIALS
from shalott.cluster.sim.backend import SimCluster
from shalott.cluster.sim.loop.loop import SimLoop
from shalott.cluster.ssh.facts import ALWAYS, CLOCKS, CUTS
from shalott.core.plan import SimPlan
from shalott.harness.cli.explain import asked_of, lacks
from shalott.nemesis.record import FAULTS
from tests.world.cluster.backends import fresh_run_id, make
from tests.world.cluster.fake_program import fake_program


@pytest.mark.unit
def test_all_faults_of_the_simulation_can_be_made_in_containers() -> None:
    """But for those that take hold of time, or of single connections."""
    for record in FAULTS.records():
        if record.name in ("suspend", "hold-back"):
            assert lacks(record, "docker"), record.name
            continue
        assert lacks(record, "sim") or not lacks(record, "docker"), record.name


@pytest.mark.unit
def test_every_fault_can_be_made_somewhere_and_asked_of_somebody() -> None:
    for record in FAULTS.records():
        assert any(not lacks(record, world) for world in MOST), record.name
        assert asked_of(record), record.name


@pytest.mark.unit
def test_hosts_can_do_no_more_than_the_table_says() -> None:
    links = {*CUTS, *TRIALS}
    assert {*ALWAYS, *links, *CLOCKS, *DISK_CAPABILITIES, "cut-clients", *RESOURCES} == MOST["ssh"]


@pytest.mark.unit
def test_each_world_has_the_parts_of_the_table_and_each_part_its_words(tmp_path: Path) -> None:
    loop = SimLoop()
    worlds = {
        "sim": SimCluster(("n1",), loop, SimPlan(seed=1), fake_program),
        "docker": DockerCluster(("n1",), "a-run", DockerOptions(clocks=True, small_tmp=True)),
        "local": LocalCluster(("n1",), "a-run", tmp_path),
    }
    for world, cluster in worlds.items():
        parts = {field.name: getattr(cluster.parts, field.name) for field in fields(cluster.parts)}
        there = {name: part for name, part in parts.items() if part is not None}
        assert {*there} == {*WORLDS[world]}
        for name, part in there.items():
            assert part.capabilities <= WORLDS[world][name], (world, name)
    assert worlds["sim"].capabilities == MOST["sim"]
    loop.dismantle()


@pytest.mark.docker
def test_containers_can_do_no_more_than_the_table_says(tmp_path: Path) -> None:
    cluster = make("docker", fresh_run_id(), tmp_path, clocks=True)
    assert cluster.capabilities <= MOST["docker"]


@pytest.mark.unit
def test_every_capability_has_words_for_who_lacks_it() -> None:
    assert {*CAN} == {*get_args(Capability)}
    assert lacking(["clock", "loss"]) == (
        "set clocks of nodes wrong (clock) nor lose packets (loss)"
    )
