"""Hosts with systemd and sshd, as containers: each runs a Redis that is a unit of its own.

Debian's packages, built here: no registry is needed. The unit keeps nothing on disk, which is the
misconfiguration that a run must find. Needs an engine whose containers may mount control groups.
"""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

from tests.world.cluster.compose_project import build, docker

DOCKERFILE = """ARG BASE
FROM ${BASE}
RUN printf '#!/bin/sh\\nexit 101\\n' >/usr/sbin/policy-rc.d && chmod +x /usr/sbin/policy-rc.d \\
 && apt-get update && apt-get install -y --no-install-recommends systemd systemd-sysv dbus \\
    openssh-server redis-server python3 nftables iptables iproute2 procps runit \\
 && rm -rf /var/lib/apt/lists/* /usr/sbin/policy-rc.d && systemctl disable redis-server
COPY redis.service /etc/systemd/system/redis.service
"""
UNIT = """[Service]
ExecStart=/usr/bin/redis-server /etc/redis-here.conf
Restart=always
[Install]
WantedBy=multi-user.target
"""
CONFIGURATION = """bind 0.0.0.0
protected-mode no
save ""
appendonly no
dir /var/lib/redis-here
logfile /var/log/redis-here.log
{replica}
"""
START = "redis-server /etc/redis-here.conf --daemonize yes"
COMMANDS = f"""start = "{START}"
stop = "redis-cli shutdown nosave"
pids = "pidof redis-server"
"""
UP_WITHIN_S = 30.0


class SystemdHosts:
    """``count`` hosts at fixed addresses; the first is the master, the others are its replicas.

    ``by_commands``: Redis is no unit, but what commands start, which no supervisor watches.
    """

    def __init__(self, directory: Path, count: int, *, by_commands: bool) -> None:
        self.directory = directory
        self.names = tuple(f"n{number + 1}" for number in range(count))
        self.key = directory / "id_ed25519"
        self.known_hosts = directory / "known_hosts"
        self._by_commands = by_commands
        self._tag = f"shalott-test-{os.getpid()}"
        self._net = f"10.198.{os.getpid() % 250}"

    def container(self, name: str) -> str:
        return f"{self._tag}-{name}"

    def address(self, name: str) -> str:
        return f"{self._net}.{11 + self.names.index(name)}"

    def make(self) -> None:
        self.directory.mkdir(parents=True, exist_ok=True)
        image = build(self.directory / "systemd", {"Dockerfile": DOCKERFILE, "redis.service": UNIT})
        words = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "", "-f", str(self.key)]
        subprocess.run(words, check=True)
        docker("network", "create", "--subnet", f"{self._net}.0/24", self._tag)
        for name in self.names:
            self._start(name, image)
        self.known_hosts.write_text("".join(map(self._host_key, self.names)))

    def _start(self, name: str, image: str) -> None:
        groups = "/sys/fs/cgroup/systemd"
        docker(
            *("run", "-d", "--name", self.container(name), "--hostname", name),
            *("--network", self._tag, "--ip", self.address(name)),
            *("--cap-add", "SYS_ADMIN", "--cap-add", "NET_ADMIN"),
            *("--security-opt", "seccomp=unconfined", "--security-opt", "apparmor=unconfined"),
            *(
                "--tmpfs",
                "/run",
                "--tmpfs",
                "/run/lock",
                "--tmpfs",
                "/tmp",
                "-e",
                "container=docker",
            ),
            *("-v", f"{groups}:{groups}:rw", "--tmpfs", "/var/lib/redis-here:size=32m"),
            *(image, "/lib/systemd/systemd"),
        )
        master = "" if name == self.names[0] else f"replicaof {self.address(self.names[0])} 6379"
        text = CONFIGURATION.format(replica=master)
        self.run(name, "cat >/etc/redis-here.conf", text)
        self.run(name, "mkdir -p ~/.ssh && cat >~/.ssh/authorized_keys", self._public())
        deadline = time.monotonic() + UP_WITHIN_S
        while self.run(name, "systemctl is-system-running").strip() not in ("running", "degraded"):
            assert time.monotonic() < deadline, docker("logs", self.container(name))
            time.sleep(0.1)
        self.run(name, f"systemctl enable --now ssh {'' if self._by_commands else 'redis'}")
        if self._by_commands:
            self.run(name, START)
        self._await_port(name)

    def _public(self) -> str:
        return self.key.with_suffix(".pub").read_text()

    def _host_key(self, name: str) -> str:
        kind, key = self.run(name, "cat /etc/ssh/ssh_host_ed25519_key.pub").split()[:2]
        return f"{self.address(name)} {kind} {key}\n"

    def _await_port(self, name: str) -> None:
        deadline = time.monotonic() + UP_WITHIN_S
        for port in (22, 6379):
            while True:
                try:
                    socket.create_connection((self.address(name), port), 1).close()
                    break
                except OSError:
                    if time.monotonic() > deadline:
                        raise
                    time.sleep(0.05)

    def run(self, name: str, script: str, text: str = "") -> str:
        """A shell script on a host; whatever becomes of it."""
        words = ["docker", "exec", "-i", self.container(name), "sh", "-c", script]
        done = subprocess.run(words, input=text, capture_output=True, text=True, check=False)
        return done.stdout

    def inventory(self, **more: str) -> str:
        """As TOML; ``more``: lines at its head."""
        head = "".join(f"{name} = {value}\n" for name, value in more.items())
        usual = f'[ssh]\nuser = "root"\nkey = "{self.key}"\nknown_hosts = "{self.known_hosts}"\n'
        what = COMMANDS if self._by_commands else 'unit = "redis.service"\n'
        nodes = "".join(
            f'[nodes.{name}]\nssh = {{ address = "{self.address(name)}" }}\n'
            f"{what}"
            'data = "/var/lib/redis-here"\nlogs = ["/var/log/redis-here.log"]\n'
            for name in self.names
        )
        return f"{head}{usual}{nodes}"

    def leftovers(self) -> list[str]:
        """What there is of any run, looked at by other means than the product's."""
        found = []
        for name in self.names:
            for what, script in (
                ("table", "nft list ruleset | grep -i shalott"),
                ("rule", "iptables-save | grep SHALOTT"),
                ("queue", "tc qdisc show | grep htb"),
                ("state", "ls -d /run/shalott 2>/dev/null"),
                ("files", "ls -d ~/.shalott ~/.cache 2>/dev/null"),
                ("filler", "ls -a /var/lib/redis-here | grep shalott"),
                ("process", "ps -eo stat,args | grep -E '(agent-|^T)' | grep -v grep"),
                ("redis", "pidof redis-server >/dev/null || echo down"),
            ):
                found += [f"{name}: {what} {line}" for line in self.run(name, script).splitlines()]
        return found

    def remove(self) -> None:
        for name in self.names:
            subprocess.run(["docker", "rm", "-f", self.container(name)], capture_output=True)
        subprocess.run(["docker", "network", "rm", self._tag], capture_output=True)


@contextlib.contextmanager
def systemd_hosts(
    directory: Path, count: int, *, by_commands: bool = False
) -> Iterator[SystemdHosts]:
    """Hosts while it lasts."""
    hosts = SystemdHosts(directory, count, by_commands=by_commands)
    try:
        hosts.make()
        yield hosts
    finally:
        hosts.remove()
