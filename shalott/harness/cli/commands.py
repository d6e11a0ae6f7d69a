"""The commands, as typer reads their arguments: test, analyze, report, clean and cli_*.py's.

What is heavy is imported by the command that needs it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial
from pathlib import Path
from typing import Annotated, Any

import typer

from shalott.core.doors import load_module, loaded_modules
from shalott.core.errors import UsageError
from shalott.harness.cli.check import add_check_commands
from shalott.harness.cli.ctl import add_ctl_command
from shalott.harness.cli.interrupts import quiet_exit
from shalott.harness.cli.matrix import add_matrix_command
from shalott.harness.cli.report import report
from shalott.harness.cli.runs import add_runs_command
from shalott.harness.cli.search import add_search_commands
from shalott.harness.cli.serve import add_serve_command
from shalott.harness.cli.ssh_flags import PANEL, flags_typed, with_ssh_flags

# The class of every complaint about arguments; typer exports only its children.
_TyperUsageError: type[Exception] = typer.BadParameter.__bases__[0]


def _option(text: str, *names: str, panel: str) -> Any:
    return typer.Option(*names, help=text, rich_help_panel=panel)


_RUN, _BROKER, _FAULTS, _JUDGE = "The run", "The broker", "The faults", "The verdict"
_HOSTS = PANEL
BugOption = Annotated[
    list[str] | None, _option("A historical bug: see `shalott bugs`.", "--bug", panel=_BROKER)
]
LoadOption = Annotated[
    list[str] | None,
    typer.Option("--load", help="A module whose systems, workloads, faults are offered too."),
]
ScenarioOption = Annotated[
    str, _option("A story to bring about, and to tell: startup-race.", panel=_RUN)
]
TargetsOption = Annotated[
    str,
    _option("one, minority, majority, all, master, mirrors, controller, or n1+n2.", panel=_FAULTS),
]
TriggerOption = Annotated[
    list[str] | None,
    _option("Faults wait for it: master=n2, synchronising, syncs=3, ...", panel=_FAULTS),
]
UpgradeOption = Annotated[
    str, _option("Of rolling-upgrade: an image, or a recipe of one.", panel=_FAULTS)
]
LayoutOption = Annotated[
    str, _option("Services on nodes: together, separate, standalone.", panel=_BROKER)
]
PolicyOption = Annotated[
    list[str] | None, _option("KEY=VALUE over the profile's; KEY= drops it.", panel=_BROKER)
]
DeliveryOption = Annotated[str, _option("at-least-once, at-most-once, exactly-once.", panel=_JUDGE)]
LeaseOption = Annotated[str, _option("When a silent harness's hosts undo all.", panel=_HOSTS)]
PowerLossOption = Annotated[
    str, _option("What becomes of unsynced data: torn, drop, keep.", panel=_FAULTS)
]
TagOption = Annotated[
    list[str] | None, _option("KEY=VALUE, for the table of runs; may be repeated.", panel=_RUN)
]
StoreOption = Annotated[Path, typer.Option("--store", help="Where runs are kept.")]


def test(
    workload: Annotated[
        str, _option("What clients do; else the system's own.", "--workload", "-w", panel=_RUN)
    ] = "",
    system: Annotated[str, _option("What runs on the nodes.", panel=_BROKER)] = "mirrored",
    profile: Annotated[str, _option("upstream or safe.", panel=_BROKER)] = "upstream",
    cluster: Annotated[str, _option("auto, docker, local, ssh or sim.", panel=_RUN)] = "auto",
    nodes: Annotated[str, _option("Names n1,n2,n3, or how many.", panel=_RUN)] = "3",
    node_count: Annotated[int, _option("How many nodes; as --nodes COUNT.", panel=_RUN)] = 0,
    layout: LayoutOption = "together",
    concurrency: Annotated[
        str, _option("Clients; 2n is 2 a node.", "--concurrency", panel=_RUN)
    ] = "2n",
    rate: Annotated[float, _option("Operations a second.", "--rate", "-r", panel=_RUN)] = 200.0,
    time_limit: Annotated[str, _option("Load for so long: 60, 90s, 2m.", panel=_RUN)] = "60",
    op_timeout: Annotated[str, _option("When an answer is given up.", panel=_RUN)] = "5",
    nemesis: Annotated[str, _option("Which faults.", panel=_FAULTS)] = "partition,kill",
    nemesis_interval: Annotated[str, _option("From fault to fault.", panel=_FAULTS)] = "15",
    nemesis_duration: Annotated[str, _option("A fault's length.", panel=_FAULTS)] = "8",
    targets: TargetsOption = "one",
    trigger: TriggerOption = None,
    upgrade_to: UpgradeOption = "",
    policy: PolicyOption = None,
    bug: BugOption = None,
    delivery: DeliveryOption = "at-least-once",
    max_rto: Annotated[str, _option("Longest outage still valid: 30s.", panel=_JUDGE)] = "",
    min_acked: Annotated[int, _option("Fewer operations prove nothing.", panel=_JUDGE)] = 50,
    min_rate_share: Annotated[
        float | None, _option("A smaller share of --rate reached: unknown.", panel=_JUDGE)
    ] = None,
    scenario: ScenarioOption = "",
    seed: Annotated[int | None, _option("Decides faults and operations.", panel=_RUN)] = None,
    test_count: Annotated[int, _option("Runs; stops at one not valid.", panel=_RUN)] = 1,
    name: Annotated[str, _option("Name in the store.", panel=_RUN)] = "",
    leave_db_running: Annotated[
        bool, _option("Keep the nodes.", "--leave-db-running", panel=_RUN)
    ] = False,
    plan: Annotated[Path | None, _option("Run this stored plan.json.", panel=_RUN)] = None,
    junit: Annotated[
        Path | None, _option("One JUnit file of all runs, refusals too.", panel=_RUN)
    ] = None,
    tag: TagOption = None,
    load: LoadOption = None,
    store: StoreOption = Path("store"),
    ssh_lease: LeaseOption = "20",
    power_loss: PowerLossOption = "",
    *,
    ssh: Mapping[str, Any],
    given: Mapping[str, str | bool],
) -> None:
    """Boot a cluster, load it, break it, heal it, drain it, and judge what was lost."""
    with quiet_exit():
        from shalott.harness.run.request import Request
        from shalott.harness.run.session import run_request, run_stored_plan

    kept = _kept(test_count, store, junit, tag or ())
    if plan is not None:
        raise typer.Exit(run_stored_plan(plan, **kept))
    request = Request(
        workload=workload, system=system, profile=profile, cluster=cluster,
        nodes=str(node_count) if node_count else nodes, layout=layout, concurrency=concurrency,
        rate=rate, time_limit=time_limit, op_timeout=op_timeout, nemesis=nemesis,
        nemesis_interval=nemesis_interval, nemesis_duration=nemesis_duration, targets=targets,
        upgrade_to=upgrade_to, trigger=tuple(trigger or ()), policy=tuple(policy or ()),
        bug=tuple(bug or ()), delivery=delivery, max_rto=max_rto, min_acked=min_acked,
        min_rate_share=min_rate_share, seed=seed, name=name,
        leave_db_running=leave_db_running, ssh_lease=ssh_lease, power_loss=power_loss,
        given=given, scenario=scenario, **ssh,
    )  # fmt: skip
    raise typer.Exit(run_request(request, **kept))


def _kept(count: int, store: Path, junit: Path | None, tags: Sequence[str]) -> dict[str, Any]:
    """How many runs, and what is kept of them where. Raises UsageError."""
    from shalott.harness.run.request import read_tags

    return {"test_count": count, "store_root": store, "junit": junit, "tags": read_tags(tags)}


def analyze(
    run: Annotated[str | None, typer.Argument(help="A run's directory or name.")] = None,
    load: LoadOption = None,
    store: StoreOption = Path("store"),
) -> None:
    """Judge a stored run again: the latest, or the one that is named."""
    from shalott.harness.run.session import analyze as analyze_run

    raise typer.Exit(analyze_run(run, store))


def bugs(
    bug: Annotated[str | None, typer.Argument(help="Tell all about this one: KB-RMQ-02.")] = None,
    measure: Annotated[
        bool, typer.Option("--measure", help="Run the scenarios; write docs/known-bugs.md.")
    ] = False,
    document: Annotated[
        bool, typer.Option("--document", help="Write docs/known-bugs.md from what was measured.")
    ] = False,
    seeds: Annotated[
        str, typer.Option(help="For --measure: how many, or a range.")
    ] = "50000-50199",
    out: Annotated[Path, typer.Option(help="Where the document is.")] = Path("docs"),
    original: Annotated[
        bool, typer.Option("--original", help="Run RocketMQ's own releases; write originals.md.")
    ] = False,
    row: Annotated[str | None, typer.Option("--bug", help="Of --original: this row only.")] = None,
    repeat: Annotated[int, typer.Option(help="Of --original: runs of each side of a row.")] = 1,
    version: Annotated[str, typer.Option(help="Of --original: on this release instead.")] = "",
    every: Annotated[
        bool, typer.Option("--every", help="Of --original: make runs that can't change the answer.")
    ] = False,
    store: StoreOption = Path("store"),
) -> None:
    """List the historical bugs that `--bug` switches on, or tell all about one."""
    from rich.console import Console

    from shalott.harness.cli.bugs import document_bugs, list_bugs, measure_bugs, tell_bug

    if original:
        from shalott.harness.cli.originals import document_originals, run_originals
        from shalott.harness.originals.running import LadderRequest

        if document:
            document_originals(out, Console())
        else:
            asked = LadderRequest(repeat=repeat, version=version, every=every)
            run_originals(row or bug, asked, out, store, Console())
        return
    if measure:
        from shalott.harness.run.simulate import simulate

        measure_bugs(bug, seeds, out, simulate, Console())
    elif document:
        document_bugs(out, Console())
    elif bug is None:
        list_bugs(Console())
    else:
        tell_bug(bug, Console())


def doctor(*, ssh: Mapping[str, Any]) -> None:
    """Say what is missing on this machine, or on hosts, and the command that installs it."""
    from rich.console import Console

    from shalott.harness.cli.doctor import run_doctor

    if (flags := flags_typed(ssh)) is not None:
        from shalott.cluster.ssh.inventory import read_hosts
        from shalott.harness.cli.doctor_hosts import run_doctor_on_hosts

        raise typer.Exit(run_doctor_on_hosts(Console(), read_hosts(flags).hosts))
    raise typer.Exit(run_doctor(Console()))


def prepare(
    system: Annotated[
        list[str] | None, typer.Option("--system", help="Of this one; may be given again.")
    ] = None,
    load: LoadOption = None,
) -> None:
    """Build the images that docker runs need, ahead of them, and start nothing else."""
    from shalott.harness.run.prepare import prepare_images

    prepare_images(tuple(system or ()), typer.echo)


def clean(*, ssh: Mapping[str, Any]) -> None:
    """Remove containers, networks and processes that killed runs left behind, on hosts too."""
    from shalott.cluster.ssh.inventory import read_hosts
    from shalott.harness.run.backends import sweep_all

    flags = flags_typed(ssh)
    hosts = read_hosts(flags) if flags is not None else None
    for sentence in sweep_all(hosts) or ["Nothing was left behind."]:
        typer.echo(sentence)


def make_app(words: Sequence[str] = ()) -> typer.Typer:
    """The commands. ``words`` is the command line, of which only the command's name is looked at.

    The flags of records are looked up for `test` and `search` alone: other commands have none.
    """
    app = typer.Typer(
        help="Breaks replicated message brokers on purpose and tells you what they lost.",
        add_completion=False,
        pretty_exceptions_enable=False,
    )
    if not words or words[0] == "test":
        from shalott.harness.cli.parameter_flags import shared_flags, with_parameter_flags
        from shalott.harness.run.planning import nemesis_help

        helps = {"nemesis": nemesis_help()}
        app.command("test")(with_parameter_flags(with_ssh_flags(test), shared_flags(), helps))
    else:
        app.command("test", help=test.__doc__)(_elsewhere)
    for command in (analyze, report, bugs, with_ssh_flags(doctor), prepare, with_ssh_flags(clean)):
        app.command()(command)
    add_search_commands(app, words)
    add_runs_command(app)
    add_matrix_command(app)
    add_check_commands(app)
    add_ctl_command(app)
    add_serve_command(app)
    return app


def _elsewhere() -> None:
    """Stands for ``test`` in the list of commands where another one is asked for."""


def load_modules_named(words: Sequence[str]) -> None:
    """What ``--load`` names, before anything is read from the doors. Raises UsageError."""
    for place, word in enumerate(words):
        name = word.removeprefix("--load=") if word.startswith("--load=") else ""
        if word == "--load" and place + 1 < len(words):
            name = words[place + 1]
        if name:
            load_module(name)


@cache
def _command(name: str, modules: tuple[str, ...]) -> Any:
    """What typer makes of the commands, where ``name`` is asked for and ``modules`` are loaded.

    typer reads every annotation to make it: 50 ms, which tests of many commands pay once.
    """
    return typer.main.get_command(make_app((name,) if name else ()))


def make_command(arguments: Sequence[str]) -> Callable[[], int]:
    """One command, ready to run, with its modules loaded. Raises UsageError."""
    load_modules_named(arguments)
    command = _command("".join(arguments[:1]), loaded_modules())
    return partial(_run, command, arguments)


def _run(command: Any, arguments: Sequence[str]) -> int:
    """Its exit code. Raises UsageError, and whatever the command raises."""
    try:
        code = command.main(args=list(arguments), prog_name="shalott", standalone_mode=False)
    except _TyperUsageError as error:
        sentence = str(getattr(error, "format_message", error.__str__)()).rstrip(".")
        raise UsageError(f"{sentence}: see `shalott --help`") from error
    except typer.Abort:
        raise KeyboardInterrupt from None
    return code if isinstance(code, int) else 0
