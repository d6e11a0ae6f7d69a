"""The doctor's findings and exit code on machines that lack one thing each."""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import replace

import pytest
from rich.console import Console

from shalott.harness.cli.doctor import run_doctor
from shalott.harness.cli.doctor_machine import EngineFacts, ThisMachine
from tests.world.harness.doctor_machine import FakeMachine, without

pytestmark = pytest.mark.unit


def examine(machine: FakeMachine | ThisMachine) -> tuple[int, str]:
    output = io.StringIO()
    code = run_doctor(Console(file=output, width=80, color_system=None), machine)
    return code, output.getvalue()


def test_a_machine_that_has_everything_is_ready() -> None:
    code, output = examine(FakeMachine())
    assert code == 0
    assert "missing" not in output
    assert "fatal" not in output
    assert "Ready for runs on: docker and local" in output


NO_ENGINE = EngineFacts(
    problem="no Docker engine on this machine: install one with `sudo apt-get ...`"
)
NO_IMAGE = EngineFacts(version="27.1")


@pytest.mark.parametrize(
    ("machine", "sentences"),
    [
        (
            FakeMachine(facts=NO_ENGINE),
            [
                "missing  Docker engine: no Docker engine on this machine",
                "--cluster docker",
                "on: local.",
            ],
        ),
        (
            FakeMachine(facts=NO_IMAGE, programs=without("mmdebstrap")),
            ["missing  Base image", "sudo apt-get install -y mmdebstrap"],
        ),
        (FakeMachine(facts=NO_IMAGE), ["ok       Base image: not there yet"]),
        (
            FakeMachine(facts=replace(NO_IMAGE, leftovers=("3 containers of dead runs",))),
            ["missing  Left behind: 3 containers of dead runs", "shalott clean"],
        ),
        (
            FakeMachine(programs=without("nft")),
            ["missing  nft", "sudo apt-get install -y nftables"],
        ),
        (FakeMachine(is_root=False), ["missing  Root: not root"]),
        (
            FakeMachine(shapes=frozenset({"throttle"})),
            ["missing  Kernel: delay", "sudo modprobe sch_netem", "ok       Kernel: throttle"],
        ),
        (
            FakeMachine(shapes=frozenset(), programs=without("tc")),
            ["missing  Kernel: throttle: no tc", "sudo apt-get install -y iproute2"],
        ),
        (FakeMachine(shapes=frozenset(), is_root=False), ["missing  Kernel: delay: not tried"]),
        (
            FakeMachine(disks="there is no /dev/fuse: sudo modprobe fuse"),
            ["missing  Power and disk faults: there is no /dev/fuse\n", "sudo modprobe fuse"],
        ),
        (
            FakeMachine(disks="only root mounts disks for containers"),
            ["missing  Power and disk faults: only root", "faults of power and disks on docker"],
        ),
        (FakeMachine(is_first=False), ["missing  Real-time class", "the harness stands still"]),
        (
            FakeMachine(programs=without("mvn")),
            ["missing  Maven", "--system rocketmq", "sudo apt-get install -y maven"],
        ),
        (
            FakeMachine(programs=without("java")),
            ["missing  Java", "shalott report", "sudo apt-get install -y default-jre-headless"],
        ),
        (
            FakeMachine(programs=without("mvn")),
            ["missing  Java clients: not installed: mvn", "--client java", "maven"],
        ),
        (FakeMachine(missing={"spark": ("pyspark",)}), ["missing  pyspark", "[spark]'"]),
        (FakeMachine(free=1_000_000_000), ["missing  Disk: only 1,000 MB free"]),
    ],
)
def test_what_narrows_the_choice_is_named_with_its_remedy(
    machine: FakeMachine, sentences: Sequence[str]
) -> None:
    code, output = examine(machine)
    assert code == 0
    for sentence in sentences:
        assert sentence in output
    assert "Ready for runs on" in output


@pytest.mark.parametrize(
    ("machine", "sentence"),
    [
        (FakeMachine(python=(3, 10)), "fatal    Python: 3.10 is too old"),
        (
            FakeMachine(missing={"": ("pamqp", "h11")}),
            "fatal    Python packages: not installed: pamqp, h11",
        ),
        (FakeMachine(free=None), "fatal    Disk: this directory can't be written"),
        (FakeMachine(free=1_000_000), "fatal    Disk: only 1 MB free"),
    ],
)
def test_what_leaves_no_run_possible_exits_2(machine: FakeMachine, sentence: str) -> None:
    code, output = examine(machine)
    assert code == 2
    assert sentence in output
    assert "No run is possible" in output


def test_every_finding_that_is_not_ok_says_what_it_disables() -> None:
    bare = FakeMachine(
        python=(3, 9),
        is_root=False,
        programs=(),
        missing={"": ("rich",), "spark": ("pyspark",)},
        facts=NO_ENGINE,
        shapes=frozenset(),
        disks="only root mounts disks for containers",
        free=None,
    )
    _, output = examine(bare)
    complaints = [line for line in output.splitlines() if line.startswith(("missing", "fatal"))]
    assert len(complaints) == output.count("without it:") == 12


def test_the_machine_that_runs_the_tests_can_be_examined() -> None:
    _, output = examine(ThisMachine())
    assert "ok       Python packages: all installed" in output


def test_an_absent_distribution_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "importlib.metadata.requires",
        lambda name: [
            "No_Such.Thing>=1",
            "rich>=13",
            'pyspark<5; extra == "spark"',
            'absent; extra == "spark"',
        ],
    )
    machine = ThisMachine()
    assert machine.missing_distributions() == ["no-such-thing"]
    assert machine.missing_distributions("spark")[-1] == "absent"
