"""What a host has and lacks, found with a shell script: also where there is no Python.

``capabilities_of`` says what faults a set of hosts can make; ``refuse_unfit`` refuses a host on
which no node can run.
"""

from __future__ import annotations

import platform
import shlex
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from shalott.cluster.capabilities import DISK_CAPABILITIES, RESOURCES, Capability
from shalott.cluster.cgroups import CONTROLLERS
from shalott.cluster.disks.build import why_not_built
from shalott.cluster.faketime import LIBRARY
from shalott.cluster.packets import queue
from shalott.cluster.packets.shaping import TRIALS, qdisc_script
from shalott.cluster.ssh.agent.queueing import trial_of
from shalott.cluster.ssh.connection import Connection
from shalott.cluster.ssh.inventory import title_of, user_of
from shalott.core.errors import HarnessError, UsageError
from shalott.core.plan import HostPlan

AGENT_PYTHON = (3, 9)
FREE_BYTES_NEEDED = 100_000_000  # a short run's data
ALWAYS: tuple[Capability, ...] = (
    *("kill", "stop", "pause", "wipe", "trigger-event", "change-files"),
)
CLOCKS: tuple[Capability, ...] = ("clock",)  # of nodes that are started for it
CUTS: tuple[Capability, ...] = ("cut", "cut-one-way")
QUEUE_WAYS = ("iptables", "nft")  # how packets come into a queue
OPEN_QUEUE = f"{Path(queue.__file__).read_text()}\nPacketQueue(5178).close()\n"
TIMEKEEPERS = "chronyd|systemd-timesyn|ntpd|openntpd"  # the kernel keeps 15 letters
CLOCK_ASKED = 3  # the quickest of these answers counts

# Prints NAME=VALUE lines. ROOT runs a command as root, or fails.
SCRIPT = """
PATH=$PATH:/usr/local/sbin:/usr/sbin:/sbin; export PATH
ROOT() {{
    if [ "$(id -u)" = 0 ]; then "$@"; elif [ {sudo} = 1 ]; then sudo -n "$@"; else false; fi
}}
say() {{ printf '%s=%s\\n' "$1" "$2"; }}
say home "$HOME"
say python "$({python} -c 'import sys; print("%d.%d" % sys.version_info[:2])' 2>/dev/null)"
say machine "$(uname -m)"
say kernel "$(uname -r)"
say libc "$(getconf GNU_LIBC_VERSION 2>/dev/null)"
say root "$(ROOT id -u 2>/dev/null)"
say nft "$(ROOT nft list tables >/dev/null 2>&1 && command -v nft)"
say iptables "$(ROOT iptables -w -S INPUT >/dev/null 2>&1 && command -v iptables)"
say tc "$(command -v tc)"
say faketime "$(ls /usr/lib*/{library} /usr/lib/*/{library} 2>/dev/null | head -n 1)"
say boot_id "$(cat /proc/sys/kernel/random/boot_id)"
say timekeeper "$(cat /proc/[0-9]*/comm 2>/dev/null | grep -xE '{timekeepers}' | head -n 1)"
say fuse "$(ROOT sh -c ': </dev/fuse' 2>/dev/null && echo yes)"
for each in cpu memory pids; do
    at=$(awk -v c="$each" '$3 == "cgroup" && index("," $4 ",", "," c ",") {{ print $2 }}' \
        /proc/mounts | head -n 1)
    [ -n "$at" ] || for one in $(awk '$3 == "cgroup2" {{ print $2 }}' /proc/mounts); do
        grep -qw "$each" "$one/cgroup.controllers" 2>/dev/null && at=$one
    done
    trial="$at/shalott-trial-$$"
    [ -n "$at" ] && ROOT mkdir "$trial" 2>/dev/null && ROOT rmdir "$trial" && say "group_$each" yes
done
mkdir -p {directory}/runs 2>/dev/null
say directory "$(cd {directory} 2>/dev/null && [ -w . ] && pwd)"
say free_kb "$(df -Pk {directory} 2>/dev/null | tail -n 1 | tr -s ' ' | cut -d ' ' -f 4)"
rmdir {directory}/runs {directory} 2>/dev/null
{shapes}
"""


@dataclass(frozen=True, slots=True)
class HostFacts:
    """``python`` and ``directory`` are empty where there is none; ``directory`` is absolute.
    ``clock_offset_s``: how far the host's clock is ahead of the harness's."""

    python: tuple[int, ...]
    machine: str
    kernel: str
    glibc: bool
    is_root: bool
    nft: str
    iptables: str
    tc: str
    faketime: bool  # libfaketime is there
    boot_id: str  # of the kernel, whose clock the host has
    timekeeper: str  # what runs there to keep the clock right, or ""
    fuse: bool  # whether file systems of ours can be mounted
    directory: str
    free_bytes: int
    is_direct: bool  # clients come to it from outside, not through the host's own SSH server
    shapes: tuple[Capability, ...]  # that its kernel makes of what it sends
    queue: str  # of QUEUE_WAYS: how packets that come to it are queued for a process of ours, or ""
    groups: tuple[str, ...]  # what control groups of a node can limit there
    clock_offset_s: float


def look(connection: Connection) -> HostFacts:
    """Ask a host. Raises Unreachable; HarnessError if it has no shell that answers."""
    host = connection.host
    done = connection.run(f"sh -c {shlex.quote(script_for(host))}")
    said = dict(
        line.partition("=")[::2] for line in done.output.decode(errors="replace").splitlines()
    )
    if "machine" not in said:
        reason = (done.errors.strip().splitlines() or ["it says nothing"])[-1]
        raise HarnessError(f"{title_of(host)} has no shell that answers: {reason}")
    return HostFacts(
        python=tuple(int(part) for part in said["python"].split(".") if part.isdigit()),
        machine=said["machine"],
        kernel=said["kernel"],
        glibc=said["libc"].startswith("glibc"),
        is_root=said["root"] == "0",
        nft=said["nft"],
        iptables=said["iptables"],
        tc=said["tc"],
        faketime=bool(said["faketime"]),
        boot_id=said["boot_id"],
        timekeeper=said["timekeeper"],
        fuse=said["fuse"] == "yes",
        directory=said["directory"],
        free_bytes=1024 * int(said["free_kb"] or 0) if said["free_kb"].isdigit() else 0,
        is_direct=not host.jump,
        shapes=tuple(name for name in TRIALS if said.get(f"shape_{name}") == "yes"),
        queue=said.get("queue", ""),
        groups=tuple(each for each in CONTROLLERS if said.get(f"group_{each}") == "yes"),
        clock_offset_s=_clock_offset_s(connection),
    )


def script_for(host: HostPlan) -> str:
    trials = {name: qdisc_script({"10.0.0.1": shape}, "lo") for name, shape in TRIALS.items()}
    shapes = "\n".join(
        f'say shape_{name} "$({_works(trial)} && echo yes)"' for name, trial in trials.items()
    )
    rules = " || ".join(f"{{ {_works(trial_of(way))} && echo {way}; }}" for way in QUEUE_WAYS)
    opened = f"{host.python} -I -S -c {shlex.quote(OPEN_QUEUE)}"
    shapes += f'\nsay queue "$({_works(opened)} && {{ {rules}; }})"'
    return SCRIPT.format(
        sudo=int(host.sudo),
        python=shlex.quote(host.python),
        directory=shlex.quote(host.directory),
        library=LIBRARY.partition("$LIB/")[2],
        timekeepers=TIMEKEEPERS,
        shapes=shapes,
    )


def _works(script: str) -> str:
    """A shell command: whether root can do that in a network of its own."""
    return f"ROOT unshare -n sh -c {shlex.quote(script)} >/dev/null 2>&1"


def refuse_unfit(host: HostPlan, facts: HostFacts) -> None:
    """Raises UsageError for a host on which no node can run."""
    title = title_of(host)
    if not facts.python:
        raise UsageError(
            f"{title} has no {host.python}: install it there with"
            " `sudo apt-get install -y python3`, or name another in the inventory (python)"
        )
    if facts.python < AGENT_PYTHON:
        raise UsageError(
            f"{title} has Python {_version(facts.python)}, and the agent needs"
            f" {_version(AGENT_PYTHON)} or newer: name another in the inventory (python)"
        )
    if host.sudo and not facts.is_root:
        raise UsageError(
            f"{user_of(host)} may not become root by `sudo -n` on {title}: allow it there without a"
            " password, or leave out --ssh-sudo and all faults of links"
        )
    if not facts.directory:
        raise UsageError(
            f"{user_of(host)} can't write {host.directory} on {title}: name another directory in"
            " the inventory"
        )


def capabilities_of(facts: Sequence[HostFacts], *, set_time: bool = False) -> frozenset[Capability]:
    """What all hosts can. ``set_time``: their own clocks may be set."""
    found = dict.fromkeys(ALWAYS)
    if all((each.faketime and each.glibc) or (set_time and each.is_root) for each in facts):
        found |= dict.fromkeys(CLOCKS)
    if all(each.is_root and each.nft and each.is_direct for each in facts):
        found |= dict.fromkeys(("cut-clients",))
    if all(each.is_root and (each.nft or each.iptables) for each in facts):
        found |= dict.fromkeys(CUTS)
    if all(why_no_disks(each) is None for each in facts):
        found |= dict.fromkeys(DISK_CAPABILITIES - {"power"})
        if all(each.nft for each in facts):  # a node without power must fall silent
            found |= dict.fromkeys(("power",))
    if all(why_no_resources(each) is None for each in facts):
        found |= dict.fromkeys(RESOURCES)
    # What the sender's kernel does not do to packets, the receiver's queue does.
    links = [(a, b) for a in facts for b in facts if a is not b] or [(each, each) for each in facts]
    shapes = [name for name in TRIALS if all(name in a.shapes or b.queue for a, b in links)]
    return frozenset(found | dict.fromkeys(shapes))


def why_no_disks(facts: HostFacts) -> str | None:
    """Why a node of a host can have no disk that fails, or None."""
    if not facts.is_root:
        return "only root mounts disks there"
    if not facts.fuse:
        return "there is no /dev/fuse there: sudo modprobe fuse"
    if facts.machine != platform.machine():
        return f"it is a {facts.machine}, and what is built here runs on a {platform.machine()}"
    return why_not_built()


def why_no_resources(facts: HostFacts) -> str | None:
    """Why a node of a host can't be made short of anything, or None."""
    if not facts.is_root:
        return "only root limits nodes there"
    missing = [each for each in CONTROLLERS if each not in facts.groups]
    if missing:
        return f"no control groups for {', '.join(missing)} can be made there: mount them"
    return None


def probe_hosts(hosts: Sequence[HostPlan]) -> list[HostFacts]:
    """Ask these hosts, all at once. Raises UsageError, HarnessError."""

    def probe(host: HostPlan) -> HostFacts:
        connection = Connection(host)
        try:
            facts = look(connection)
        finally:
            connection.close()
        refuse_unfit(host, facts)
        return facts

    with ThreadPoolExecutor(len(hosts), thread_name_prefix="ssh-probe") as threads:
        return list(threads.map(probe, hosts))


def _clock_offset_s(connection: Connection) -> float:
    """Of the quickest answer, halfway between asking and hearing. 0 if the host has no date."""
    best: tuple[float, float] | None = None
    for _ in range(CLOCK_ASKED):
        asked, asked_wall = time.monotonic(), time.time()
        said = connection.run("date +%s.%N").output.decode(errors="replace").strip()
        took = time.monotonic() - asked
        try:
            offset = float(said) - (asked_wall + took / 2)
        except ValueError:
            return 0.0
        if best is None or took < best[0]:
            best = took, offset
    return best[1] if best is not None else 0.0


def _version(version: tuple[int, ...]) -> str:
    return ".".join(str(part) for part in version)
