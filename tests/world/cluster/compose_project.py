"""A compose project of stock images: three Redis nodes, started by plain compose and by no harness.

The image is Debian's package, built here: no registry is needed. ``aof``: whether the nodes write
down what they acknowledge, on volumes; the misconfiguration that a run must find is that they do
not: their data lies in memory.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import pytest

from shalott.cluster.docker.engine import Engine
from shalott.cluster.docker.images import ensure_image
from shalott.cluster.local.sweep import state_directory

REDIS = """ARG BASE
FROM ${BASE}
RUN apt-get update && apt-get install -y --no-install-recommends redis-server \\
 && rm -rf /var/lib/apt/lists/*
ENTRYPOINT ["redis-server", "--bind", "0.0.0.0", "--protected-mode", "no", "--dir", "/data"]
"""
SERVICE = """  {name}:
    image: {image}
    command: --save "" --appendonly {aof} --appendfsync always {replica}
    {storage}
    networks:
      default: {{ ipv4_address: {address} }}
"""
TMPFS = 'tmpfs: [ "/data:size=64m" ]'
NETWORK = """networks:
  default:
    ipam:
      config: [ {{ subnet: {net}.0/24 }} ]
"""


def build(directory: Path, files: Mapping[str, str]) -> str:
    """The tag of an image that these files make."""
    directory.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (directory / name).write_text(text)

    async def ensure() -> str:
        engine = Engine()
        try:
            return await ensure_image(engine, str(directory))
        finally:
            engine.close()

    return asyncio.run(ensure())


def docker(*words: str) -> str:
    done = subprocess.run(["docker", *words], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def lacks(pid: str) -> list[str]:
    """What the kernel lets a process's container take no more of than is usual here."""
    found, groups = [], Path(f"/proc/{pid}/cgroup").read_text()
    for line in groups.splitlines():
        _, names, path = line.split(":", 2)
        for place in Path("/sys/fs/cgroup").glob(f"{names or '.'}{path}"):
            for file, usual in (
                ("cpu.cfs_quota_us", "-1"),
                ("cpu.max", "max 100000"),
                ("pids.max", "max"),
                ("memory.max", "max"),
                ("memory.limit_in_bytes", "9223372036854771712"),
            ):
                at = place / file
                if at.is_file() and (now := at.read_text().strip()) != usual:
                    found.append(f"{file} {now}")
    state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    return [*found, *(["it stands still"] if state == "T" else [])]


def compose_command() -> Sequence[str]:
    """Compose as a plug-in, or as Debian has it. Skips the test where there is neither."""
    plugin = subprocess.run(["docker", "compose", "version"], capture_output=True, check=False)
    if plugin.returncode == 0:
        return ("docker", "compose")
    if shutil.which("docker-compose") is None:
        pytest.skip("no compose: apt-get install -y docker-compose")
    return ("docker-compose",)


class ComposeProject:
    """Three nodes: ``redis1`` is the master of the others."""

    names = ("redis1", "redis2", "redis3")

    def __init__(self, directory: Path, *, aof: bool) -> None:
        self.directory = directory
        self.project = f"shalott-test-{os.getpid()}"
        self._aof = aof
        self._net = f"10.199.{os.getpid() % 250}"
        self._command = compose_command()

    def address(self, name: str) -> str:
        return f"{self._net}.{11 + self.names.index(name)}"

    def make(self) -> None:
        image = build(self.directory / "redis", {"Dockerfile": REDIS})
        master = f"--replicaof {self.address('redis1')} 6379"
        services = "".join(
            SERVICE.format(
                name=name,
                image=image,
                aof="yes" if self._aof else "no",
                replica="" if name == "redis1" else master,
                address=self.address(name),
                storage=f'volumes: [ "{name}:/data" ]' if self._aof else TMPFS,
            )
            for name in self.names
        )
        volumes = "".join(f"  {name}: {{}}\n" for name in self.names) if self._aof else ""
        text = f'version: "3"\nservices:\n{services}{NETWORK.format(net=self._net)}'
        text += f"volumes:\n{volumes}" if volumes else ""
        (self.directory / "docker-compose.yml").write_text(text)
        self.compose("up", "-d")

    def compose(self, *words: str) -> None:
        command = [*self._command, "-p", self.project, *words]
        done = subprocess.run(command, cwd=self.directory, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr

    def container(self, name: str) -> str:
        labels = {"project": self.project, "service": name}
        filters = [
            w for k, v in labels.items() for w in ("-f", f"label=com.docker.compose.{k}={v}")
        ]
        return docker("ps", "-aq", "--no-trunc", *filters).strip()

    def inspect(self, name: str, what: str) -> str:
        return docker("inspect", "-f", f"{{{{{what}}}}}", self.container(name)).strip()

    def inventory(self, **more: str) -> str:
        """As TOML."""
        head = "".join(f"{name} = {value}\n" for name, value in more.items())
        return f'project = "{self.project}"\n{head}'

    def leftovers(self, run: str = "") -> list[str]:
        """What there is of a run, looked at by other means than the product's."""
        found = []
        for name in self.names:
            if self.inspect(name, ".State.Status") != "running":
                found.append(f"{name} is {self.inspect(name, '.State.Status')}")
                continue
            pid = self.inspect(name, ".State.Pid")
            for script in ("nft list ruleset | grep -i shalott", "tc qdisc show | grep htb"):
                done = subprocess.run(
                    ["nsenter", "-t", pid, "-n", "sh", "-c", script], capture_output=True, text=True
                )
                found += [f"{name}: {line}" for line in done.stdout.splitlines()]
            found += [f"{name}: {path}" for path in Path(f"/proc/{pid}/root/data").glob(".shal*")]
            found += [f"{name}: {what}" for what in lacks(pid)]
        if run:
            tables = subprocess.run(["nft", "list", "tables"], capture_output=True, text=True)
            found += [line for line in tables.stdout.splitlines() if run in line]
            for path in Path("/proc").glob("[0-9]*/cmdline"):
                with contextlib.suppress(OSError):
                    text = path.read_bytes().replace(b"\0", b" ").decode()
                    found += [text] if "shalott.cluster" in text and run in text else []
            found += map(str, state_directory().glob(f"{run}*"))
        return found

    def remove(self) -> None:
        subprocess.run(
            [*self._command, "-p", self.project, "down", "-v", "-t", "1"],
            cwd=self.directory,
            capture_output=True,
            check=False,
        )


@contextlib.contextmanager
def compose_project(directory: Path, *, aof: bool = False) -> Iterator[ComposeProject]:
    """A project while it lasts."""
    project = ComposeProject(directory, aof=aof)
    try:
        project.make()
        yield project
    finally:
        project.remove()
