"""Linux hosts to reach over SSH, made of network namespaces: each has an address, an sshd, a home
and a /run of its own, on a bridge in a namespace that stands for the switch.

The bridge is not in the machine's own namespace: there other firewalls may look at what it passes.
Needs root, iproute2, iptables, nftables and openssh-server.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from shalott.core.plan import HostPlan, SshPlan

REQUIRED = "SHALOTT_REQUIRE_SSH"
PROGRAMS = ("ip", "iptables", "nft", "sshd", "ssh-keygen", "ssh-keyscan")
UP_WITHIN_S = 10.0
_MADE = itertools.count()
GROUPS = ("cpu", "cpuacct", "memory", "pids")  # of version 1
SSHD = """
Port 22
ListenAddress 0.0.0.0
HostKey {keys}/{name}
AuthorizedKeysFile /run/authorized
StrictModes no
UsePAM no
UseDNS no
PermitRootLogin prohibit-password
PasswordAuthentication no
MaxStartups 100
PidFile {keys}/{name}.pid
Subsystem sftp internal-sftp
"""


def why_no_hosts() -> str | None:
    """Why no such hosts can be made here, or None."""
    if os.geteuid() != 0:
        return "not root: network namespaces can't be made"
    path = os.environ.get("PATH", "") + ":/usr/sbin:/sbin"
    missing = [name for name in PROGRAMS if shutil.which(name, path=path) is None]
    if missing:
        packages = "iproute2 iptables nftables openssh-server"
        return f"no {', '.join(missing)}: apt-get install -y {packages}"
    return None


def require_hosts() -> None:
    """Skip the test where there can't be any; fail it where they are required."""
    reason = why_no_hosts()
    if reason is not None and os.environ.get(REQUIRED) == "1":
        pytest.fail(f"SSH hosts are required here, but: {reason}")
    if reason is not None:
        pytest.skip(reason)


def require_faketime() -> None:
    """The same for tests of clocks, which the hosts have this machine's libfaketime for."""
    if list(Path("/usr/lib").glob("*/faketime/libfaketime.so.1")):
        return
    reason = "no libfaketime: apt-get install -y faketime"
    if os.environ.get(REQUIRED) == "1":
        pytest.fail(f"clocks of hosts are required here, but: {reason}")
    pytest.skip(reason)


class Hosts:
    """``count`` hosts called a, b, c, ..., at addresses of a private network."""

    def __init__(self, directory: Path, count: int) -> None:
        self.directory = directory
        self.names = tuple("abcdefgh"[:count])
        self.key = directory / "id_ed25519"
        self.known_hosts = directory / "known_hosts"
        # All hosts share the kernel's groups, also those of runs that were ended before.
        self._earlier = {str(path) for path in Path("/sys/fs/cgroup").glob("*/shalott-*")}
        # Of this process's own, and of several that it has at once.
        number, other = os.getpid() % 200, next(_MADE)
        self._tag = f"sh{os.getpid() % 100000}{'abcdefghijklmnopqrstuvwxyz'[other % 26]}"
        self._net = f"10.{number}.{((os.getpid() // 200) + other) % 250}"

    def namespace(self, name: str) -> str:
        return f"{self._tag}-{name}"

    def address(self, name: str) -> str:
        return f"{self._net}.{11 + self.names.index(name)}"

    def plan(self, lease_s: float = 20.0) -> SshPlan:
        return SshPlan(hosts=tuple(self.host(name) for name in self.names), lease_s=lease_s)

    def host(self, name: str) -> HostPlan:
        return HostPlan(
            address=self.address(name),
            user="root",
            key=str(self.key),
            known_hosts=str(self.known_hosts),
            python="/usr/bin/python3",
        )

    def flags(self) -> list[str]:
        """The same for the command line."""
        return [
            *("--ssh-hosts", ",".join(self.address(name) for name in self.names)),
            *("--ssh-user", "root", "--ssh-key", str(self.key)),
            *("--ssh-known-hosts", str(self.known_hosts)),
        ]

    def make(self) -> None:
        self.directory.mkdir(parents=True, exist_ok=True)
        self._make_keys()
        switch, here = self.namespace("sw"), f"{self._tag}h"
        _ip(f"netns add {switch}")
        _ip(f"-n {switch} link add br0 type bridge")
        _ip(f"-n {switch} link set br0 up")
        _ip(f"link add {here} type veth peer name host netns {switch}")
        _ip(f"-n {switch} link set dev host master br0 up")
        _ip(f"addr add {self._net}.1/24 dev {here}")
        _ip(f"link set {here} up")
        for name in self.names:
            namespace = self.namespace(name)
            _ip(f"netns add {namespace}")
            _ip(f"-n {namespace} link set lo up")
            _ip(f"link add eth0 netns {namespace} type veth peer name {name} netns {switch}")
            _ip(f"-n {switch} link set dev {name} master br0 up")
            _ip(f"-n {namespace} addr add {self.address(name)}/24 dev eth0")
            _ip(f"-n {namespace} link set eth0 up")
            self.start_sshd(name)

    def _make_keys(self) -> None:
        lines = []
        for name in ("id_ed25519", *self.names):
            path = self.directory / name
            command = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "", "-f", str(path)]
            subprocess.run(command, check=True)
        for name in self.names:
            kind, key = (self.directory / f"{name}.pub").read_text().split()[:2]
            lines.append(f"{self.address(name)} {kind} {key}\n")
        self.known_hosts.write_text("".join(lines))
        shutil.copy(self.directory / "id_ed25519.pub", self.directory / "authorized")

    def start_sshd(self, name: str, before: str = "true") -> None:
        """A mount namespace of its own with a fresh /run and home, and sshd in it; ``before`` is
        a shell command that is run there first."""
        configuration = self.directory / f"{name}.conf"
        configuration.write_text(SSHD.format(keys=self.directory, name=name))
        home = self.directory / f"{name}.home"
        home.mkdir(exist_ok=True)
        script = (
            f"{_mount_groups()}mount -t tmpfs tmpfs /run && mkdir -p /run/sshd"
            f" && install -m 644 {self.directory / 'authorized'} /run/authorized"
            f" && mount --bind {home} ~ && {before} && exec /usr/sbin/sshd -f {configuration}"
        )
        command = ["ip", "netns", "exec", self.namespace(name), "sh", "-c", script]
        self._pid_file(name).unlink(missing_ok=True)
        subprocess.run(command, check=True, cwd="/")
        self._await_sshd(name)

    def _pid_file(self, name: str) -> Path:
        return self.directory / f"{name}.pid"

    def _listener(self, name: str) -> int:
        return int(self._pid_file(name).read_text())

    def _await_sshd(self, name: str) -> None:
        """Until it listens, and has written its process's number: it does so after it listens."""
        deadline = time.monotonic() + UP_WITHIN_S
        while True:
            try:
                socket.create_connection((self.address(name), 22), 1).close()
                self._listener(name)
                return
            except (OSError, ValueError):
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.02)

    def processes(self, name: str) -> list[int]:
        """All that runs on a host."""
        done = subprocess.run(
            ["ip", "netns", "pids", self.namespace(name)], capture_output=True, text=True
        )
        return [int(pid) for pid in done.stdout.split()]

    def sessions(self, name: str) -> list[int]:
        """The processes of sshd that serve connections."""
        listener = self._listener(name)
        found = []
        for pid in self.processes(name):
            with contextlib.suppress(OSError):
                command = Path(f"/proc/{pid}/cmdline").read_bytes()
                if command.startswith(b"sshd:") and pid != listener:
                    found.append(pid)
        return found

    def end(self, pids: Sequence[int]) -> None:
        """All at once: none of them runs on and sees another's end."""
        for number in (signal.SIGSTOP, signal.SIGKILL):
            for pid in pids:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, number)

    def _end_all(self, name: str) -> None:
        while pids := self.processes(name):
            self.end(pids)

    def reboot(self, name: str, before: str = "true") -> None:
        """End everything at once, and start sshd with an empty /run; files on disk stay."""
        self._end_all(name)
        _ip(f"netns exec {self.namespace(name)} nft flush ruleset")
        for flag in ("-F", "-X"):
            _ip(f"netns exec {self.namespace(name)} iptables -w -t mangle {flag}")
        self.start_sshd(name, before)

    def run(self, name: str, script: str) -> str:
        """A shell script in a host's network and files."""
        pid = self._listener(name)
        prefix = ["ip", "netns", "exec", self.namespace(name)]
        if Path(f"/proc/{pid}").exists():
            prefix = ["nsenter", "-t", str(pid), "-n", "-m", "--"]
        done = subprocess.run([*prefix, "sh", "-c", script], capture_output=True, text=True)
        return done.stdout

    def leftovers(self, names: Sequence[str] = ()) -> list[str]:
        """What there is of any run: firewall tables, state, directories, processes."""
        found = []
        for name in names or self.names:
            for what, script in (
                ("table", "nft list tables | grep shalott"),
                ("packets", "iptables -t mangle -S | grep SHALOTT"),
                ("state", "ls -d /run/shalott/* 2>/dev/null"),
                ("mount", "grep 'cache/shalott.* fuse.shalott' /proc/self/mounts"),
                ("tmp", "grep 'run/shalott.* tmpfs' /proc/self/mounts"),
                ("group", self._groups_of(name)),
                ("files", "ls -d ~/.cache/shalott/runs/* 2>/dev/null"),
            ):
                lines = self.run(name, script).splitlines()
                found += [f"{name}: {what} {line}" for line in lines if line not in self._earlier]
            for pid in self.processes(name):
                with contextlib.suppress(OSError):
                    command = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ")
                    if b"shalott" in command:
                        found.append(f"{name}: process {pid} {command.decode()}")
        return found

    def _groups_of(self, name: str) -> str:
        return f"find /sys/fs/cgroup -name 'shalott-*-n{self.names.index(name) + 1}'"

    def remove(self) -> None:
        for name in self.names:
            self._end_all(name)
            subprocess.run(["ip", "netns", "del", self.namespace(name)], capture_output=True)
        # The kernel frees a namespace's devices later: these first, so that their names are free.
        subprocess.run(["ip", "link", "del", f"{self._tag}h"], capture_output=True)
        subprocess.run(["ip", "netns", "del", self.namespace("sw")], capture_output=True)


@contextlib.contextmanager
def ssh_hosts(directory: Path, count: int) -> Iterator[Hosts]:
    """Hosts while it lasts. Skips the test where there can't be any."""
    require_hosts()
    hosts = Hosts(directory, count)
    try:
        hosts.make()
        yield hosts
    finally:
        hosts.remove()


def _mount_groups() -> str:
    """A shell script that mounts the machine's control groups, which `ip netns exec` hides under a
    fresh /sys. All hosts see the same ones."""
    script = ""
    for line in Path("/proc/mounts").read_text().splitlines():
        _, place, kind, options = line.split()[:4]
        if kind not in ("cgroup", "cgroup2") or not place.startswith("/sys/fs/cgroup"):
            continue
        if not script:
            script = "mount -t tmpfs tmpfs /sys/fs/cgroup && "
        own = [each for each in options.split(",") if each in GROUPS]
        if own or kind == "cgroup2":
            told = f"-o {','.join(own)}" if own else ""
            script += f"mkdir -p {place} && mount -t {kind} {told} {kind} {place} && "
    return script


def _ip(words: str) -> None:
    subprocess.run(["ip", *words.split()], check=True)
