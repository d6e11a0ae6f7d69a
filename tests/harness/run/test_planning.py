"""Plans from flags: profiles, defaults, and the command that repeats a run."""

from __future__ import annotations

import dataclasses
import random
import shlex
from pathlib import Path

import msgspec
import pytest

from shalott.core.errors import UsageError
from shalott.core.plan import Plan, dump_plan, load_plan
from shalott.harness.cli.main import run_command
from shalott.harness.run import planning
from shalott.harness.run.plan_checks import check_plan
from shalott.harness.run.planning import make_plan, repeat_command
from shalott.harness.run.request import Request

pytestmark = pytest.mark.unit


def plan_of(**flags: object) -> Plan:
    return make_plan(msgspec.convert(flags, Request), backend="local", seed=7)


def test_the_defaults_are_rabbitmqs() -> None:
    plan = plan_of()
    assert plan.system.policy == {"ha-mode": "all"}
    assert plan.system.parameters["partition_mode"] == "ignore"
    assert plan.cluster.nodes == ("n1", "n2", "n3")
    assert plan.workload.concurrency == 6 and plan.workload.parameters["queues"] == 3
    kinds = {action.kind for action in plan.faults}
    assert "kill" in kinds and any(kind.startswith("partition") for kind in kinds)


def test_the_safe_profile_and_overrides() -> None:
    plan = plan_of(profile="safe", policy=("ha-params=2", "ha-sync-mode=", "ha-mode=exactly"))
    assert plan.system.parameters["partition_mode"] == "pause_minority"
    assert plan.system.policy == {
        "ha-mode": "exactly",
        "ha-params": 2,
        "ha-promote-on-failure": "when-synced",
        "ha-promote-on-shutdown": "when-synced",
    }
    other = plan_of(profile="safe", given={"partition-mode": "autoheal"})
    assert other.system.parameters["partition_mode"] == "autoheal"


def test_what_a_power_loss_takes_is_in_the_plan_only_if_it_was_told() -> None:
    assert "power_loss" not in dump_cluster(plan_of())
    assert dump_cluster(plan_of(power_loss="drop"))["power_loss"] == "drop"
    with pytest.raises(UsageError, match="unknown power-loss half: choose one of keep, drop, torn"):
        plan_of(power_loss="half")


def dump_cluster(plan: Plan) -> dict[str, object]:
    return dict(msgspec.to_builtins(plan.cluster))


def test_the_seed_decides_the_plan() -> None:
    request = Request()
    assert make_plan(request, backend="b", seed=1) == make_plan(request, backend="b", seed=1)
    first, other = (make_plan(request, backend="b", seed=seed).faults for seed in (1, 2))
    assert first != other


@pytest.mark.parametrize(
    ("text", "ms"), [("60", 60_000), ("1.5s", 1500), ("500ms", 500), ("2m", 120_000)]
)
def test_durations(text: str, ms: int) -> None:
    assert planning.parse_duration_ms("--x", text) == ms


@pytest.mark.parametrize("text", ["", "-1", "0", "1w", "s"])
def test_no_durations(text: str) -> None:
    with pytest.raises(UsageError, match="--x"):
        planning.parse_duration_ms("--x", text)


def test_nemeses_none_and_all() -> None:
    assert plan_of(nemesis="none").faults == ()
    assert planning.parse_nemeses("all") == ("partition", "kill", "stop", "pause", "restart-all")
    assert planning.parse_nemeses("kill, pause") == ("kill", "pause")


def test_the_repeat_command_plans_the_same_run() -> None:
    request = Request(
        profile="safe", nodes="a,b,c,d", rate=12.5, policy=("ha-params=2", "x=y z"),
        nemesis="kill", leave_db_running=True, max_rto="30s",
    )  # fmt: skip
    command = repeat_command(request, 42)
    assert command == (
        "shalott test --profile safe --nodes a,b,c,d --rate 12.5 --nemesis kill"
        " --policy ha-params=2 --policy 'x=y z' --max-rto 30s --leave-db-running --seed 42"
    )
    assert shlex.split(command)[-1] == "42"


def test_careless_clients_are_in_the_plan_and_in_the_repeat_command() -> None:
    careless = Request(
        given={"ack-mode": "auto", "durable": False, "persistent": False, "confirms": False}
    )
    for request, expected in (
        (careless, ("auto", False, False, False)),
        (Request(), ("manual", True, True, True)),
    ):
        made = planning.make_plan(request, backend="local", seed=1).workload.parameters
        assert tuple(made[n] for n in ("ack_mode", "durable", "persistent", "confirms")) == expected
    assert repeat_command(careless, 1) == (
        "shalott test --ack-mode auto --no-durable --no-persistent --no-confirms --seed 1"
    )
    with pytest.raises(UsageError, match="unknown --ack-mode never: choose one of manual, auto"):
        plan_of(given={"ack-mode": "never"})


def test_what_only_some_workloads_have_is_in_the_plan_and_in_the_repeat_command() -> None:
    cases: dict[str, tuple[dict[str, str | bool], dict[str, object], str]] = {
        "lock": ({"hold": "1.5s"}, {"hold_ms": 1500}, "--hold 1.5s"),
        "fifo": (
            {"consumers": "single", "order": "exactly-once"},
            {"consumers": "single", "order": "exactly-once"},
            "--consumers single --order exactly-once",
        ),
        "metadata": (
            {"reads": "local", "objects": "queue,policy"},
            {"reads": "local", "objects": ["queue", "policy"]},
            "--reads local --objects queue,policy",
        ),
    }
    for workload, (given, stored, words) in cases.items():
        request = Request(workload=workload, given=given)
        made = make_plan(request, backend="local", seed=1).workload.parameters
        assert stored.items() <= made.items()
        assert repeat_command(request, 1) == f"shalott test --workload {workload} {words} --seed 1"


def test_a_flag_that_the_workload_does_not_have_is_refused() -> None:
    with pytest.raises(UsageError, match="^--hold is a parameter of lock, not of the"):
        plan_of(given={"hold": "1s"})
    with pytest.raises(UsageError, match="^--nonsense is a parameter of nothing that is here"):
        plan_of(given={"nonsense": "1s"})


def test_a_record_without_a_parameter_has_no_say_in_it() -> None:
    plan = plan_of(workload="metadata", given={"reads": "local"}, system="rabbitmq")
    assert plan.workload.parameters["reads"] == "local"


def test_a_stored_plan_is_the_same_plan(tmp_path: object) -> None:
    from pathlib import Path

    assert isinstance(tmp_path, Path)
    plan = plan_of(nemesis="all", time_limit="120")
    path = tmp_path / "plan.json"
    path.write_bytes(dump_plan(plan))
    assert load_plan(path) == plan
    check_plan(plan)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"time_limit_ms": 0}, "time limit"),
        ({"observe_interval_ms": 0}, "observe interval"),
        ({"version": 2}, ""),
    ],
)
def test_a_plan_edited_by_hand_is_checked(change: dict[str, object], sentence: str) -> None:
    plan = msgspec.structs.replace(plan_of(), **change)
    if sentence:
        with pytest.raises(UsageError, match=sentence):
            check_plan(plan)


def test_a_fault_on_a_stranger_is_refused() -> None:
    plan = plan_of(nemesis="kill")
    faults = tuple(msgspec.structs.replace(action, nodes=("n9",)) for action in plan.faults)
    with pytest.raises(UsageError, match="fault 1 names n9, which is no node"):
        check_plan(msgspec.structs.replace(plan, faults=faults))


def drawn_request(draw: random.Random) -> Request:
    """Some request that makes a plan, with words that shells and parsers may trip over."""
    given: dict[str, str | bool] = {}
    if draw.random() < 0.5:
        given |= {"ack-mode": draw.choice(("auto", "manual")), "durable": draw.random() < 0.5}
    if draw.random() < 0.5:
        given["net-tick"] = draw.choice(("1s", "1500ms", "4"))
    policies = ("ha-params=2", "x=y z", "text='quoted' \"twice\"", "ha-sync-mode=", "n=-1.5")
    request = Request(
        profile=draw.choice(("upstream", "safe")),
        cluster=draw.choice(("sim", "local", "docker")),
        nodes=draw.choice(("3", "5", "a,b,c")),
        concurrency=draw.choice(("2n", "7")),
        rate=draw.choice((200.0, 12.5, 123.456789012, 1e6, 1 / 3)),
        time_limit=draw.choice(("60", "90s", "2m", "61500ms")),
        op_timeout=draw.choice(("5", "0.25s")),
        nemesis=draw.choice(("none", "kill", "partition,kill", "all")),
        nemesis_interval=draw.choice(("15", "7s")),
        nemesis_duration=draw.choice(("8", "2.5")),
        targets=draw.choice(("one", "master", "all")),
        policy=tuple(draw.sample(policies, draw.randrange(3))),
        delivery=draw.choice(("at-least-once", "exactly-once")),
        max_rto=draw.choice(("", "30s")),
        min_acked=draw.choice((50, 1)),
        name=draw.choice(("", "my-run.1")),
        leave_db_running=draw.random() < 0.3,
        given=given,
    )
    if request.nemesis == "none":
        return request
    waits = ((), ("shrinks",), (f"master={request.nodes[:1]},within=20s", "kill:syncs=3"))
    number = 3 if request.nodes == "a,b,c" else 2
    return dataclasses.replace(request, trigger=draw.choice(waits[:number]))


def test_the_printed_command_is_read_again_as_the_same_plan(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The command line itself reads it: whatever is left out or rounded makes another plan."""
    read: list[tuple[Request, Path]] = []

    def remember(request: Request, *, store_root: Path, **kept: object) -> int:
        read.append((request, store_root))
        return 0

    monkeypatch.setattr("shalott.harness.cli.test.run_request", remember)
    monkeypatch.setattr("shalott.harness.run.request._check_engine", lambda request: None)
    for number in range(60):
        draw = random.Random(number)
        request, seed = drawn_request(draw), draw.randrange(2**32)
        store = Path(draw.choice(("store", "/else where/runs")))
        words = shlex.split(repeat_command(request, seed, store))
        assert words[:2] == ["shalott", "test"] and run_command(words[1:]) == 0, words
        again, kept_in = read.pop()
        assert again.seed is not None and kept_in == store
        plans = [make_plan(each, backend=request.cluster, seed=seed) for each in (request, again)]
        assert plans[0] == plans[1], words


def test_the_repeat_command_of_auto_names_the_cluster_that_was_chosen() -> None:
    chosen = dataclasses.replace(Request(), cluster="local")
    assert repeat_command(chosen, 1) == "shalott test --cluster local --seed 1"
