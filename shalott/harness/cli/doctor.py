"""``shalott doctor``: examines this machine, or hosts, and says what is missing.

The exit code is 0 when a run is possible here, if only on local processes, or on all of the hosts,
and 2 when none is; what merely narrows the choice (no engine, no Java) leaves it at 0. It imports
none of what it may find missing.

What a host has, what it lacks, and the command that mends it.

What talks to hosts is imported by the examination, for the doctor must answer where its library is
missing.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape

from shalott.cluster.ssh.inventory import SshFlags, read_hosts, title_of, user_of
from shalott.core.command_options import Prefixed
from shalott.core.errors import ShalottError
from shalott.core.plan import HostPlan
from shalott.harness.cli.doctor_machine import EXAMINATIONS, Finding, Machine, ThisMachine
from shalott.harness.cli.options import with_options

EXIT_READY = 0
EXIT_NO_RUN = 2


def add_commands(app: typer.Typer) -> None:
    app.command()(with_options(doctor))


def doctor(ssh: Annotated[SshFlags, Prefixed("ssh_")]) -> None:
    """Say what is missing on this machine, or on hosts, and the command that installs it."""
    if ssh != SshFlags():
        raise typer.Exit(run_doctor_on_hosts(Console(), read_hosts(ssh).hosts))
    raise typer.Exit(run_doctor(Console()))


def run_doctor(console: Console, machine: Machine | None = None) -> int:
    """Examine this machine, say what was found, and answer the exit code."""
    findings = [
        finding for examine in EXAMINATIONS for finding in examine(machine or ThisMachine())
    ]
    for finding in findings:
        print_finding(console, finding)
    if any(finding.state == "fatal" for finding in findings):
        console.print("\nNo run is possible here until what is marked fatal is mended.")
        return EXIT_NO_RUN
    worlds = "docker and local" if _has_docker(findings) else "local"
    console.print(f"\nReady for runs on: {worlds}. Try: shalott test --time-limit 20")
    return EXIT_READY


def run_doctor_on_hosts(console: Console, hosts: Sequence[HostPlan]) -> int:
    """Examine them all at once, say what was found, and answer the exit code."""
    with ThreadPoolExecutor(len(hosts), thread_name_prefix="ssh-doctor") as threads:
        rounds = list(threads.map(lambda host: list(examine_host(host)), hosts))
    for host, findings in zip(hosts, rounds, strict=True):
        console.print(f"[bold]{title_of(host)}[/]")
        for finding in findings:
            print_finding(console, finding)
    unfit = [
        title_of(host)
        for host, findings in zip(hosts, rounds, strict=True)
        if any(finding.state == "fatal" for finding in findings)
    ]
    if unfit:
        console.print(f"\nNo run is possible on {', '.join(unfit)} until what is fatal is mended.")
        return EXIT_NO_RUN
    console.print("\nReady for runs on: ssh. Try: shalott test --cluster ssh --time-limit 20")
    return EXIT_READY


def print_finding(console: Console, finding: Finding) -> None:
    style = {"ok": "green", "missing": "yellow", "fatal": "red"}[finding.state]
    console.print(
        f"[{style}]{finding.state:<8}[/] {escape(finding.subject)}: {escape(finding.found)}",
        soft_wrap=True,
    )
    if finding.disables:
        console.print(f"         without it: {escape(finding.disables)}", soft_wrap=True)
    if finding.fix:
        console.print(f"         mend with:  {escape(finding.fix)}", soft_wrap=True)


def _has_docker(findings: Sequence[Finding]) -> bool:
    return any(finding.subject == "Docker engine" and finding.state == "ok" for finding in findings)


FREE_BYTES_WISHED = 1_000_000_000
CLOCK_OFFSET_S = 0.5  # more than that confuses who reads the logs of two hosts


def examine_host(host: HostPlan) -> Iterator[Finding]:
    from shalott.cluster.ssh import facts as of_host
    from shalott.cluster.ssh.connection import Connection
    from shalott.cluster.ssh.upload import BROKER_PYTHON

    try:
        connection = Connection(host)
        try:
            facts: of_host.HostFacts = of_host.look(connection)
        finally:
            connection.close()
    except ShalottError as error:
        yield Finding("fatal", "SSH", str(error), "every run on it")
        return
    yield Finding("ok", "SSH", f"as {user_of(host)}; kernel {facts.kernel}, {facts.machine}")
    yield from _python(host, facts.python, of_host.AGENT_PYTHON, BROKER_PYTHON)
    yield from _root(host, facts.is_root)
    if facts.is_root:
        yield from _firewall(facts.nft, facts.iptables)
        yield from _shapes(facts.tc, facts.shapes, facts.queue)
    yield _disk_faults(of_host.why_no_disks(facts))
    yield _resource_faults(of_host.why_no_resources(facts))
    yield from _clock_faults(has_library=facts.faketime and facts.glibc, keeper=facts.timekeeper)
    yield from _room(host, facts.directory, facts.free_bytes, of_host.FREE_BYTES_NEEDED)
    yield _clock(facts.clock_offset_s)


def _python(
    host: HostPlan,
    version: tuple[int, ...],
    for_agent: tuple[int, ...],
    for_broker: tuple[int, ...],
) -> Iterator[Finding]:
    told = ".".join(map(str, version))
    newer = "name a newer one in the inventory (python)"
    if not version:
        fix = "sudo apt-get install -y python3"
        yield Finding("fatal", "Python", f"no {host.python}", "every run on it", fix)
    elif version < for_agent:
        yield Finding("fatal", "Python", f"{told} is too old", "every run on it", newer)
    elif version < for_broker:
        least = ".".join(map(str, for_broker))
        lacking = f"systems of our own, which need {least}"
        yield Finding("missing", "Python", told, lacking, newer)
    else:
        yield Finding("ok", "Python", told)


def _root(host: HostPlan, is_root: bool) -> Iterator[Finding]:
    if is_root:
        yield Finding("ok", "Root", "by sudo" if host.sudo else "logged in as root")
    elif host.sudo:
        line = f"{user_of(host)} ALL=(root) NOPASSWD: ALL"
        fix = f"echo '{line}' | sudo tee /etc/sudoers.d/shalott"
        yield Finding("fatal", "Root", "`sudo -n` is refused", "every run with --ssh-sudo", fix)
    else:
        lacking = "partitions, shaped links, names of the nodes"
        yield Finding("missing", "Root", "not root", lacking, "--ssh-sudo, or --ssh-user root")


def _firewall(nft: str, iptables: str) -> Iterator[Finding]:
    if nft:
        yield Finding("ok", "Cutting links", "nftables")
    elif iptables:
        yield Finding("ok", "Cutting links", "iptables")
    else:
        found = "neither nft nor iptables works"
        yield Finding("missing", "Cutting links", found, "partitions", _apt("nftables"))


def _shapes(tc: str, shapes: Sequence[str], queue: str) -> Iterator[Finding]:
    """What is sent is shaped by this kernel, or what is received by a process of ours."""
    lacking = "nothing, if all hosts have packet queues" if queue else "faults of packets to others"
    if not tc:
        yield Finding("missing", "tc", "not installed", lacking, _apt("iproute2"))
    for shape, module in (("delay", "sch_netem"), ("throttle", "sch_htb")) if tc else ():
        if shape in shapes:
            yield Finding("ok", f"Kernel: {shape}", "works")
        else:
            fix = f"sudo modprobe {module}"
            yield Finding("missing", f"Kernel: {shape}", "this kernel lacks it", lacking, fix)
    if queue:
        yield Finding("ok", "Packet queue", f"works, by {queue}")
    else:
        found = "neither iptables nor nft fills one"
        lacking = "nothing, if all hosts' kernels have netem and htb"
        fix = "sudo modprobe -a nfnetlink_queue xt_NFQUEUE, or " + _apt("iptables")
        yield Finding("missing", "Packet queue", found, lacking, fix)


def _disk_faults(obstacle: str | None) -> Finding:
    if obstacle is None:
        return Finding("ok", "Power and disk faults", "work")
    found, _, fix = obstacle.partition(": ")
    return Finding("missing", "Power and disk faults", found, "faults of power and disks", fix)


def _resource_faults(obstacle: str | None) -> Finding:
    if obstacle is None:
        return Finding("ok", "Resource faults", "work, by control groups of the node's own")
    found, _, fix = obstacle.partition(": ")
    return Finding("missing", "Resource faults", found, "faults of resources", fix)


def _clock_faults(*, has_library: bool, keeper: str) -> Iterator[Finding]:
    if has_library:
        yield Finding("ok", "Clock faults", "libfaketime")
    else:
        lacking = "faults of clocks, but with --ssh-set-time"
        yield Finding("missing", "Clock faults", "no libfaketime", lacking, _apt("libfaketime"))
    if keeper:
        found = f"{keeper} runs, and may set back what --ssh-set-time sets: stop it meanwhile"
        yield Finding("ok", "Clock keeper", found)


def _room(host: HostPlan, directory: str, free_bytes: int, needed_bytes: int) -> Iterator[Finding]:
    if not directory:
        found = f"{host.directory} can't be written"
        fix = "name another directory in the inventory"
        yield Finding("fatal", "Disk", found, "every run on it", fix)
        return
    found = f"{free_bytes // 1_000_000:,} MB free in {directory}"
    if free_bytes < needed_bytes:
        yield Finding("fatal", "Disk", found, "every run on it", "make room there")
    elif free_bytes < FREE_BYTES_WISHED:
        yield Finding("missing", "Disk", found, "long runs", "make room there")
    else:
        yield Finding("ok", "Disk", found)


def _clock(offset_s: float) -> Finding:
    found = f"{offset_s * 1000:+.0f} ms from this machine's"
    if abs(offset_s) <= CLOCK_OFFSET_S:
        return Finding("ok", "Clock", found)
    lacking = "comparing wall times of logs; runs are judged by the harness's own clock"
    return Finding("missing", "Clock", found, lacking, "sudo timedatectl set-ntp true")


def _apt(*packages: str) -> str:
    return f"sudo apt-get install -y {' '.join(packages)}"
