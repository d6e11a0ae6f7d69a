"""RabbitMQ 3.10 itself and its tools, as Debian packages them: installed, or out of the package.

A test that needs one is skipped, with the reason, where it can't be had: a node of it takes Erlang,
which comes with the installed package.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import pytest

from shalott.cluster.local.backend import HOST
from tests.world.processes.child import held_ports

PACKAGE = "rabbitmq-server"
ADMIN = Path("usr/bin/rabbitmqadmin")
HOMES = "usr/lib/rabbitmq/lib/rabbitmq_server-3.10.*"
START_S = 90


def unpacked(directory: Path) -> Path:
    """The root in which the package's files lie: this machine's, or a directory's."""
    if list(Path("/").glob(HOMES)):
        return Path("/")
    if not list(directory.glob(HOMES)):
        apt, dpkg = shutil.which("apt-get"), shutil.which("dpkg-deb")
        if apt is None or dpkg is None:
            pytest.skip(f"no {PACKAGE} 3.10, and no apt-get to download it")
        got = subprocess.run(
            [apt, "download", PACKAGE], cwd=directory, capture_output=True, text=True, check=False
        )
        packages = list(directory.glob(f"{PACKAGE}_3.10*.deb"))
        if not packages:
            pytest.skip(f"{PACKAGE} 3.10 can't be downloaded: {got.stderr.strip()[-200:]}")
        subprocess.run([dpkg, "-x", str(packages[0]), str(directory)], check=True)
    return directory


def rabbitmqadmin(directory: Path) -> Path:
    """The program: $RABBITMQADMIN, or the package's."""
    named = os.environ.get("RABBITMQADMIN")
    return Path(named) if named else unpacked(directory) / ADMIN


@dataclass(frozen=True, slots=True)
class Original:
    """A running node of RabbitMQ's."""

    home: Path
    environment: dict[str, str]
    amqp_port: int
    management_port: int
    metrics_port: int

    @property
    def name(self) -> str:
        return self.environment["RABBITMQ_NODENAME"]

    def pid(self) -> int:
        """Of its process: the Erlang virtual machine."""
        return int(self.ctl("eval", "os:getpid().").stdout.strip().strip('"'))

    def ctl(self, *words: str) -> subprocess.CompletedProcess[str]:
        """rabbitmqctl, typed at it."""
        return subprocess.run(
            [str(self.home / "sbin/rabbitmqctl"), *words],
            stdin=subprocess.DEVNULL,
            env=self.environment,
            capture_output=True,
            text=True,
            check=False,
        )


@contextmanager
def running_original(
    directory: Path, *, plugins: Sequence[str] = ("rabbitmq_management", "rabbitmq_prometheus")
) -> Iterator[Original]:
    """One node, with ports and an epmd of its own."""
    with running_originals(directory, 1, plugins=plugins) as (original,):
        yield original


@contextmanager
def running_originals(
    directory: Path,
    count: int,
    *,
    plugins: Sequence[str] = ("rabbitmq_management", "rabbitmq_prometheus"),
) -> Iterator[list[Original]]:
    """Nodes of one cluster, with ports and an epmd of their own."""
    if shutil.which("erl") is None:
        pytest.skip("no Erlang: a node of RabbitMQ's can't run here")
    directory.mkdir(parents=True, exist_ok=True)
    names = ["original", *(f"original{number}" for number in range(2, count + 1))]
    kinds = ("amqp", "distribution", "management", "metrics", "epmd")
    with held_ports(names, kinds) as held, ExitStack() as stack:
        home = _home(directory)
        epmd_port = held[names[0]]["epmd"]
        (directory / "plugins").write_text(f"[{','.join(plugins)}].\n")
        (directory / "environment").touch()
        with (directory / "epmd.out").open("w") as out:
            # Of its own, so that it ends with the nodes: what a node starts is a daemon.
            environment = {**_inherited(), "ERL_EPMD_PORT": str(epmd_port)}
            epmd = subprocess.Popen(["epmd"], env=environment, stdout=out, stderr=out)
        stack.callback(epmd.wait)
        stack.callback(epmd.kill)
        made: list[Original] = []
        for name in names:
            original = _original(home, directory, name, held[name], epmd_port)
            stack.enter_context(_runs(original, directory / f"{name}.out"))
            if made:
                for words in (("stop_app",), ("join_cluster", made[0].name), ("start_app",)):
                    done = original.ctl(*words)
                    assert done.returncode == 0, done.stdout + done.stderr
            made.append(original)
        yield made


def _home(directory: Path) -> Path:
    return sorted(unpacked(directory).glob(HOMES))[-1]


def _inherited() -> dict[str, str]:
    return {key: os.environ[key] for key in ("PATH", "LANG") if key in os.environ}


def _original(
    home: Path, directory: Path, name: str, ports: Mapping[str, int], epmd_port: int
) -> Original:
    """Not started. All share the directory, and so a cookie."""
    (directory / f"{name}.conf").write_text(
        f"management.tcp.port = {ports['management']}\n"
        f"prometheus.tcp.port = {ports['metrics']}\n"
        "collect_statistics_interval = 500\nlog.file.level = warning\n"
    )
    environment = {
        **_inherited(),
        "HOME": str(directory),
        "ERL_EPMD_PORT": str(epmd_port),
        "RABBITMQ_NODENAME": f"{name}@localhost",
        "RABBITMQ_NODE_IP_ADDRESS": HOST,
        "RABBITMQ_NODE_PORT": str(ports["amqp"]),
        "RABBITMQ_DIST_PORT": str(ports["distribution"]),
        "RABBITMQ_MNESIA_BASE": str(directory / "mnesia"),
        "RABBITMQ_LOG_BASE": str(directory / "log"),
        "RABBITMQ_CONFIG_FILE": str(directory / name),
        "RABBITMQ_GENERATED_CONFIG_DIR": str(directory / "generated" / name),
        "RABBITMQ_ENABLED_PLUGINS_FILE": str(directory / "plugins"),
        "RABBITMQ_CONF_ENV_FILE": str(directory / "environment"),
    }
    return Original(home, environment, ports["amqp"], ports["management"], ports["metrics"])


@contextmanager
def _runs(original: Original, log: Path) -> Iterator[None]:
    with log.open("w") as out:
        server = subprocess.Popen(
            [str(original.home / "sbin/rabbitmq-server")],
            env=original.environment,
            stdout=out,
            stderr=out,
            start_new_session=True,
        )
    try:
        original.ctl("wait", "--pid", str(server.pid), "--timeout", str(START_S))
        waited = original.ctl("await_startup", "--timeout", str(START_S))
        assert waited.returncode == 0, log.read_text()
        yield
    finally:
        original.ctl("stop")
        with suppress(ProcessLookupError):
            os.killpg(server.pid, signal.SIGKILL)
        server.wait()
