"""``shalott doctor``: examines this machine, or hosts, and says what is missing.

The exit code is 0 when a run is possible here, if only on local processes, or on all of the hosts,
and 2 when none is; what merely narrows the choice (no engine, no Java) leaves it at 0. It imports
none of what it may find missing.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape

from shalott.cluster.ssh.inventory import SshFlags, read_hosts, title_of
from shalott.core.command_options import Prefixed
from shalott.core.plan import HostPlan
from shalott.harness.cli.doctor_hosts import examine_host
from shalott.harness.cli.doctor_machine import EXAMINATIONS, Finding, Machine, ThisMachine
from shalott.harness.cli.options import with_options

EXIT_READY = 0
EXIT_NO_RUN = 2


def add_commands(app: typer.Typer) -> None:
    """Register it."""
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
