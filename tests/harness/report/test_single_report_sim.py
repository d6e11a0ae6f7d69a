"""Reports of simulated runs in which something was lost, or not linearizable: what each says."""

from __future__ import annotations

import dataclasses
import re
from functools import cache
from typing import Any

import msgspec
import pytest

from shalott.checkers.checker import Result
from shalott.harness.report.losses import loss_accounts, loss_lanes
from shalott.harness.report.meta import ReportMeta
from shalott.harness.report.report_page import availability_line, cause_lines, render_report
from shalott.harness.run.planning import Request, make_plan
from shalott.harness.run.simulate import SimOutcome, simulate
from tests.harness.report.test_report import Page

pytestmark = pytest.mark.sim

NIGHTLY = pytest.mark.nightly("two more runs")
ISOLATED = {"nemesis": "partition-isolate-master", "nemesis_interval": "6", "nemesis_duration": "3"}


@cache
def run(system: str, seed: int, flags: tuple[tuple[str, str], ...]) -> SimOutcome:
    known = {field.name for field in dataclasses.fields(Request)}
    own = {name: value for name, value in flags if name in known}
    given: dict[str, str | bool] = {
        name.replace("_", "-"): value for name, value in flags if name not in known
    }
    request = Request(cluster="sim", system=system, given=given, rate=40.0, time_limit="15", **own)
    outcome = simulate(make_plan(request, backend="sim", seed=seed))
    assert outcome.error is None
    return outcome


def ran(system: str, seed: int, **flags: str) -> SimOutcome:
    return run(system, seed, tuple(flags.items()))


def page_of(outcome: SimOutcome, **meta: Any) -> str:
    told = ReportMeta(command="shalott test --seed 2", started_wall_ns=0, **meta)
    return render_report(outcome.plan, outcome.history, outcome.results, told)


def words_of(html: str) -> str:
    return Page(re.sub(r"<(style|script)[ >].*?</\1>", "", html, flags=re.DOTALL)).text


def result_of(outcome: SimOutcome, checker: str) -> Result:
    return next(result for result in outcome.results if result.checker == checker)


@pytest.fixture(scope="module")
def isolated() -> SimOutcome:
    return ran("controller", 2, **ISOLATED)


def test_a_log_s_loss_is_told_by_who_acknowledged_alone(isolated: SimOutcome) -> None:
    loss = result_of(isolated, "log").detail["loss"]
    lost = result_of(isolated, "log").counts["lost-write-count"]
    assert lost and loss["by-cause"] == {"alone": lost}
    (master,) = {node for story in loss["stories"] for node in story["acknowledged-by"]}
    # Every node's clients sent what it lost: the client's node is not who acknowledged it.
    assert {node for node, row in loss["by-node"].items() if row["lost"]} > {master}
    assert {n for n, row in loss["by-acknowledger"].items() if row["lost"]} == {master}
    says = [step["says"] for step in loss["stories"][0]["steps"]]
    for word in (
        f"{master} was cut off", f"{master} acknowledged as master", "elected",
        "became master in epoch 2", f"{master} was deposed", f"{master} cut its log",
    ):  # fmt: skip
        assert any(word in each for each in says), (word, says)
    times = [step["at_ns"] for step in loss["stories"][0]["steps"]]
    assert times == sorted(times)


def test_the_steps_point_at_the_events_that_show_them(isolated: SimOutcome) -> None:
    events = isolated.history.events.to_pylist()
    for step in result_of(isolated, "log").detail["loss"]["stories"][0]["steps"]:
        if "event" in step:
            assert events[step["event"]]["node"] == step["node"], step


def test_the_anomaly_names_who_acknowledged(isolated: SimOutcome) -> None:
    anomaly = next(a for a in result_of(isolated, "log").anomalies if a.kind == "lost-write")
    (master,) = anomaly.detail["acknowledged-by"]
    assert f"acknowledged by {master}" in anomaly.summary


def test_the_head_says_why_and_what_closes_it(isolated: SimOutcome) -> None:
    (line,) = cause_lines(isolated.plan, isolated.results)
    assert line.window == "alone" and line.share.startswith("all 183 lost messages")
    assert line.remedy == (
        "Closed by ha.all_ack_in_sync_state_set=true, ha.min_in_sync_replicas=2, which this run"
        " did not set."
    )
    safe = {"ha.all_ack_in_sync_state_set": True, "ha.min_in_sync_replicas": 2}
    system = msgspec.structs.replace(isolated.plan.system, policy=safe)
    (closed,) = cause_lines(msgspec.structs.replace(isolated.plan, system=system), isolated.results)
    assert "which should have closed it" in closed.remedy
    text = words_of(page_of(isolated))
    assert text.index("Why:") < text.index("longest without an acknowledgement")
    assert text.index("longest without an acknowledgement") < text.index("Timeline")


def test_the_timeline_begins_at_the_load(isolated: SimOutcome) -> None:
    html = page_of(isolated)
    load = next(
        row["invoke_ns"] / 1e6
        for row in isolated.history.ops.to_pylist()
        if row["f"] == "phase" and '"load"' in row["extra"]
    )
    assert f'data-begin="{load:.1f}"' in html
    assert load > 8000, "the boot was a third of this run"
    assert re.search(r'class="stub"[^>]*>boot 8\.\d+ s<', html)
    assert set(re.findall(r'viewBox="([\d.]+) 0', html)) - {"0"} == {f"{load:.1f}"}
    ticks = [float(at) for at in re.findall(r'<span style="--b:(\d+)">', html)]
    assert ticks and min(ticks) >= load


def test_lost_has_a_lane_and_a_story(isolated: SimOutcome) -> None:
    lanes = loss_lanes(isolated.results)
    assert [lane.name for lane in lanes] == ["log/1", "log/2", "log/0"]
    assert sum(lane.lost for lane in lanes) == 183
    assert all("acknowledged by n2" in bar.title for lane in lanes for bar in lane.bars)
    assert loss_accounts(isolated.results)[0].title == "69 messages of log/1, acknowledged by n2"
    html = page_of(isolated)
    assert html.count('class="panel losses"') == len(lanes)
    assert "N2 was deposed" not in words_of(html) and "n2 was deposed" in words_of(html)


@pytest.mark.parametrize(
    ("system", "seed", "flags", "cause"),
    [
        ("dledger", 1, {"nemesis": "power-all"}, "unflushed"),
        pytest.param("master-slave", 2, {"nemesis": "power", "targets": "master"}, "unflushed",
                     marks=NIGHTLY),
        pytest.param("mirrored", 2, {"nemesis": "partition-isolate-master"}, "L3", marks=NIGHTLY),
    ],
)  # fmt: skip
def test_each_cause_is_told(system: str, seed: int, flags: dict[str, str], cause: str) -> None:
    outcome = ran(system, seed, nemesis_interval="6", nemesis_duration="3", **flags)
    lines = cause_lines(outcome.plan, outcome.results)
    assert [line.window for line in lines] == [cause]
    html = page_of(outcome)
    assert "Why:" in words_of(html)
    assert loss_lanes(outcome.results)


def test_a_lock_s_run_begins_with_what_was_not_linearizable() -> None:
    outcome = ran("mirrored", 2, workload="lock", **ISOLATED)
    html = page_of(outcome, directory="store/lock", files=("plan.json", "nodes/n1/output.log"))
    text = words_of(html)
    assert outcome.valid is False
    assert text.index("Not linearizable: shalott.1") < text.index("longest without")
    assert html.index('<h2 id="objects"') < html.index('<h2 id="messages"')
    assert html.index('<h2 id="objects"') < html.index('<h2 id="timeline"')
    assert "Operations What the clients were told." in text
    assert "shalott shrink store/lock/plan.json" in text
    assert 'href="./nodes/n1/output.log"' in html and 'href="./plan.json"' in html


def test_a_valid_run_tells_its_availability_too() -> None:
    outcome = ran("mirrored", 1, profile="safe", nemesis="kill", net_tick="1s")
    assert outcome.valid is True
    served = availability_line(outcome.results)
    assert served is not None and not served.is_bad
    names = [name for name, _, _ in served.figures]
    assert names[:2] == ["acknowledged", "longest without an acknowledgement"]
    html = page_of(outcome, directory="store/x")
    assert words_of(html).index(names[1]) < words_of(html).index("Timeline")
    assert "Why:" not in words_of(html) and "shalott shrink" not in html
