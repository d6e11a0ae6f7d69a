"""What this machine has, what is missing, what that disables and what installs it.

Each examination looks at one thing and yields findings; ``Machine`` is all that they look at, so a
test can put together any machine. Backends are imported by the examination that asks them, for the
doctor must answer where their libraries are missing.
"""

from __future__ import annotations

import importlib.metadata
import os
import re
import shutil
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol

from shalott.cluster.owner import liveness, parse_owner
from shalott.cluster.precedence import may_go_first
from shalott.core.errors import ShalottError

FREE_BYTES_NEEDED = 200_000_000  # a short run's history and logs
FREE_BYTES_WISHED = 2_000_000_000  # two images and a night of runs
PYTHON_OLDEST = (3, 11)
SHAPING = ("delay", "throttle")

State = Literal["ok", "missing", "fatal"]


@dataclass(frozen=True, slots=True)
class Finding:
    """``missing`` disables something, ``fatal`` every run. ``fix`` is the command that mends it."""

    state: State
    subject: str
    found: str
    disables: str = ""
    fix: str = ""


@dataclass(frozen=True, slots=True)
class EngineFacts:
    """What the Docker engine says; ``problem``, if none answers: why, and what to do about it."""

    problem: str = ""
    version: str = ""
    has_base_image: bool = False
    leftovers: tuple[str, ...] = ()


class Machine(Protocol):
    @property
    def python(self) -> tuple[int, int]: ...

    @property
    def is_root(self) -> bool: ...

    def missing_distributions(self, extra: str = "") -> Sequence[str]:
        """What the project requires (for an extra: what that requires) and isn't installed."""
        ...

    def program(self, name: str) -> str | None:
        """Where a program lies, administrators' directories included."""
        ...

    def engine(self) -> EngineFacts: ...

    def shaping(self) -> frozenset[str]:
        """Which of delay and throttle the kernel can make for containers."""
        ...

    def disk_obstacle(self) -> str | None:
        """Why containers can have no disks that fail or lose their power; None if they can."""
        ...

    def may_go_first(self) -> bool:
        """Whether the harness may run before the nodes on this machine (cluster/precedence.py)."""
        ...

    def free_bytes(self) -> int | None:
        """Room for runs in the current directory; None if it can't be written."""
        ...


# --- examinations ---


def examine_python(machine: Machine) -> Iterator[Finding]:
    version = ".".join(str(part) for part in machine.python)
    if machine.python < PYTHON_OLDEST:
        fix = _apt("python3.11", "python3.11-venv")
        yield Finding("fatal", "Python", f"{version} is too old", "every run", fix)
    else:
        yield Finding("ok", "Python", version)
    missing = machine.missing_distributions()
    if missing:
        found = f"not installed: {', '.join(missing)}"
        yield Finding("fatal", "Python packages", found, "every run", _pip())
    else:
        yield Finding("ok", "Python packages", "all installed")


def examine_disk(machine: Machine) -> Iterator[Finding]:
    free = machine.free_bytes()
    if free is None:
        found = "this directory can't be written, and runs are stored in it"
        yield Finding("fatal", "Disk", found, "every run", "cd  # to a directory of yours")
    elif free < FREE_BYTES_NEEDED:
        found = f"only {_megabytes(free)} free: a recording would be cut short"
        yield Finding("fatal", "Disk", found, "every run", "df -h .  # and make room")
    elif free < FREE_BYTES_WISHED:
        found = f"only {_megabytes(free)} free"
        yield Finding(
            "missing", "Disk", found, "building images, long runs", "df -h .  # and make room"
        )
    else:
        yield Finding("ok", "Disk", f"{_megabytes(free)} free")


def examine_docker(machine: Machine) -> Iterator[Finding]:
    facts = machine.engine()
    if facts.problem:
        yield Finding(
            "missing", "Docker engine", facts.problem, "--cluster docker, --system rabbitmq"
        )
        return
    yield Finding("ok", "Docker engine", facts.version)
    if facts.has_base_image:
        yield Finding("ok", "Base image", "there")
    elif machine.program("mmdebstrap"):
        yield Finding("ok", "Base image", "not there yet: the first run pulls it or makes it")
    else:
        yield Finding(
            "missing",
            "Base image",
            "not there yet, and no mmdebstrap to make it with",
            "the first docker run, where no registry can be reached",
            _apt("mmdebstrap"),
        )
    for leftover in facts.leftovers:
        yield Finding(
            "missing", "Left behind", leftover, "nothing; the next run sweeps it", "shalott clean"
        )


def examine_network(machine: Machine) -> Iterator[Finding]:
    """How links between containers can be cut and shaped; between local nodes the relays do it."""
    slower = "cutting links at once for all nodes; it is done inside each container instead"
    if machine.is_root and machine.program("nft"):
        yield Finding("ok", "Cutting links", "at once for all nodes, with nftables on the host")
    elif machine.is_root:
        yield Finding("missing", "nft", "not installed", slower, _apt("nftables"))
    else:
        yield Finding("missing", "Root", "not root", slower)
    shapes = machine.shaping()
    for shape in SHAPING:
        if shape in shapes:
            yield Finding("ok", f"Kernel: {shape}", "works for containers")
        elif not machine.is_root:
            yield Finding(
                "missing", f"Kernel: {shape}", "not tried: needs root", f"{shape} on docker"
            )
        elif not machine.program("tc"):
            yield Finding(
                "missing", f"Kernel: {shape}", "no tc", f"{shape} on docker", _apt("iproute2")
            )
        else:
            fix = "sudo modprobe sch_netem" if shape == "delay" else "sudo modprobe sch_htb"
            yield Finding(
                "missing", f"Kernel: {shape}", "this kernel lacks it", f"{shape} on docker", fix
            )


def examine_faulty_disks(machine: Machine) -> Iterator[Finding]:
    obstacle = machine.disk_obstacle()
    if obstacle is None:
        yield Finding("ok", "Power and disk faults", "work for containers")
        return
    found, _, fix = obstacle.partition(": ")
    lacking = "faults of power and disks on docker"
    yield Finding("missing", "Power and disk faults", found, lacking, fix)


def examine_precedence(machine: Machine) -> Iterator[Finding]:
    if machine.may_go_first():
        yield Finding("ok", "Real-time class", "the harness runs before the nodes")
        return
    lacking = "runs whose nodes want every CPU: the harness stands still, and they are unknown"
    found = "the harness may not run before the nodes: it is not root, and has no CAP_SYS_NICE"
    yield Finding("missing", "Real-time class", found, lacking)


def examine_maven(machine: Machine) -> Iterator[Finding]:
    """It fetches the jars of the original RocketMQ."""
    maven, lacking = machine.program("mvn"), "--system rocketmq"
    if maven is None:
        yield Finding("missing", "Maven", "not installed", lacking, _apt("maven"))
    else:
        yield Finding("ok", "Maven", maven)


# What of `shalott report` needs Spark: spark_analysis/engine_choice.py.
SPARK_ALONE = "--engine spark and sql, --master, --follow and stores elsewhere (s3a://)"


def examine_reports(machine: Machine) -> Iterator[Finding]:
    """Worker processes make any report of a store of this machine; Spark is for the rest."""
    yield Finding("ok", "Reports", "made by worker processes, without Spark or Java")
    lacking = f"of shalott report {SPARK_ALONE}"
    java = machine.program("java")
    if java is None:
        fix = _apt("default-jre-headless")
        yield Finding("missing", "Java", "not installed; Spark needs 17 or later", lacking, fix)
    else:
        yield Finding("ok", "Java", f"{java}; Spark needs 17 or later")
    if machine.missing_distributions("spark"):
        yield Finding("missing", "pyspark", "not installed", lacking, _pip("spark"))
    else:
        yield Finding("ok", "pyspark", "installed")


def examine_java_client(machine: Machine) -> Iterator[Finding]:
    missing = [name for name in ("java", "javac", "mvn") if machine.program(name) is None]
    if missing:
        found, fix = f"not installed: {', '.join(missing)}", _apt("default-jdk-headless", "maven")
        yield Finding("missing", "Java clients", found, "--client java, --client mixed", fix)
    else:
        yield Finding("ok", "Java clients", "can be built, and are by the first run with some")


EXAMINATIONS: Sequence[Callable[[Machine], Iterator[Finding]]] = (
    examine_python,
    examine_disk,
    examine_docker,
    examine_network,
    examine_faulty_disks,
    examine_precedence,
    examine_maven,
    examine_reports,
    examine_java_client,
)


def _apt(*packages: str) -> str:
    return f"sudo apt-get install -y {' '.join(packages)}"


def _pip(extra: str = "") -> str:
    root = Path(__file__).parents[3]
    checkout = (root / "pyproject.toml").exists()
    what = f"{root if checkout else 'shalott'}{f'[{extra}]' if extra else ''}"
    return f"{sys.executable} -m pip install {'-e ' if checkout else ''}'{what}'"


def _megabytes(count: int) -> str:
    return f"{count // 1_000_000:,} MB"


# --- this machine ---


class ThisMachine:
    def __init__(self) -> None:
        self.python = sys.version_info[:2]
        self.is_root = os.geteuid() == 0

    def missing_distributions(self, extra: str = "") -> Sequence[str]:
        installed = {
            _normal(found.metadata["Name"]) for found in importlib.metadata.distributions()
        }
        return [name for name in _required("shalott", extra) if name not in installed]

    def program(self, name: str) -> str | None:
        if name == "java" and (home := os.environ.get("JAVA_HOME")):
            return shutil.which(str(Path(home, "bin", "java")))
        return shutil.which(name, path=os.environ.get("PATH", os.defpath) + ":/usr/sbin:/sbin")

    def engine(self) -> EngineFacts:
        from shalott.cluster.docker.engine import CONNECT_TIMEOUT_S, connect
        from shalott.cluster.docker.images import BASE_TAG
        from shalott.cluster.docker.names import LABEL_OWNER

        try:
            api = connect(CONNECT_TIMEOUT_S)
        except ShalottError as error:
            return EngineFacts(problem=str(error))
        try:
            containers = api.containers(all=True, filters={"label": LABEL_OWNER})
            owners = [parse_owner(container["Labels"][LABEL_OWNER]) for container in containers]
            dead = sum(owner is not None and liveness(owner) == "dead" for owner in owners)
            return EngineFacts(
                version=str(api.version()["Version"]),
                has_base_image=bool(api.images(name=BASE_TAG)),
                leftovers=(f"{dead} containers of runs whose harness is gone",) if dead else (),
            )
        finally:
            api.close()

    def shaping(self) -> frozenset[str]:
        from shalott.cluster.docker.packets import queue_capabilities, shaping_capabilities

        return shaping_capabilities() | queue_capabilities()

    def disk_obstacle(self) -> str | None:
        from shalott.cluster.docker.disks import disk_obstacle

        return disk_obstacle()

    def may_go_first(self) -> bool:
        return may_go_first()

    def free_bytes(self) -> int | None:
        if not os.access(".", os.W_OK):
            return None
        return shutil.disk_usage(".").free


def _required(distribution: str, extra: str) -> Iterator[str]:
    """Names of what a distribution requires: always, or for one extra only."""
    for requirement in importlib.metadata.requires(distribution) or ():
        name, _, marker = requirement.partition(";")
        found = re.search(r"extra == ['\"]([\w-]+)['\"]", marker)
        if (found[1] if found else "") == extra:
            yield _normal(re.split(r"[\s<>=!~\[(]", name.strip())[0])


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()
