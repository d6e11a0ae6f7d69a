"""RabbitMQ 3.10 itself and its tools, as Debian packages them: installed, or out of the package.

A test that needs one is skipped, with the reason, where it can't be had: a node of it takes Erlang,
which comes with the installed package.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
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
    if shutil.which("erl") is None:
        pytest.skip("no Erlang: a node of RabbitMQ's can't run here")
    (home,) = sorted(unpacked(directory).glob(HOMES))[-1:]
    names = ("amqp", "distribution", "management", "metrics", "epmd")
    with held_ports(("original",), names) as held:
        ports = held["original"]
        (directory / "plugins").write_text(f"[{','.join(plugins)}].\n")
        (directory / "rabbitmq.conf").write_text(
            f"management.tcp.port = {ports['management']}\n"
            f"prometheus.tcp.port = {ports['metrics']}\n"
            "collect_statistics_interval = 500\nlog.file.level = warning\n"
        )
        (directory / "environment").touch()
        environment = {
            **{key: os.environ[key] for key in ("PATH", "LANG") if key in os.environ},
            "HOME": str(directory),
            "ERL_EPMD_PORT": str(ports["epmd"]),
            "RABBITMQ_NODENAME": "original@localhost",
            "RABBITMQ_NODE_IP_ADDRESS": HOST,
            "RABBITMQ_NODE_PORT": str(ports["amqp"]),
            "RABBITMQ_DIST_PORT": str(ports["distribution"]),
            "RABBITMQ_MNESIA_BASE": str(directory / "mnesia"),
            "RABBITMQ_LOG_BASE": str(directory / "log"),
            "RABBITMQ_CONFIG_FILE": str(directory / "rabbitmq"),
            "RABBITMQ_GENERATED_CONFIG_DIR": str(directory / "generated"),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(directory / "plugins"),
            "RABBITMQ_CONF_ENV_FILE": str(directory / "environment"),
        }
        original = Original(home, environment, ports["amqp"], ports["management"], ports["metrics"])
        with (directory / "server.out").open("w") as out:
            # Of its own, so that it ends with the node: what a node starts is a daemon.
            epmd = subprocess.Popen(["epmd"], env=environment, stdout=out, stderr=out)
            server = subprocess.Popen(
                [str(home / "sbin/rabbitmq-server")],
                env=environment,
                stdout=out,
                stderr=out,
                start_new_session=True,
            )
        try:
            original.ctl("wait", "--pid", str(server.pid), "--timeout", str(START_S))
            waited = original.ctl("await_startup", "--timeout", str(START_S))
            assert waited.returncode == 0, (directory / "server.out").read_text()
            yield original
        finally:
            original.ctl("stop")
            os.killpg(server.pid, signal.SIGKILL)
            server.wait()
            epmd.kill()
            epmd.wait()
