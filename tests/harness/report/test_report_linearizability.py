"""The report draws what is not linearizable, among the object's other operations."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from shalott.checkers.checker import Anomaly, Result
from shalott.checkers.history.client_history import concurrent_history
from shalott.checkers.history.columns import client_operations
from shalott.checkers.linearizability.checking import check
from shalott.checkers.linearizability.explain import explain_verdict
from shalott.checkers.linearizability.explanation import Explanation, to_detail
from shalott.core.history import History
from shalott.harness.report.meta import ReportMeta
from shalott.harness.report.report_page import render_report
from shalott.harness.report.results import read_results, render_results
from shalott.harness.report.shown_anomalies import OTHERS_MAX, object_timelines
from tests.harness.report.test_report import Page
from tests.world.chromium import Chromium
from tests.world.harness.report_run import S, example_history, example_plan

META = ReportMeta(command="shalott test --seed 7", started_wall_ns=1_700_000_000 * S)


def explained(history: History, queue: str) -> Explanation:
    ops = client_operations(history)
    rows = ops.f.among(("enqueue", "dequeue")) & ops.key.equal(queue)
    seen = concurrent_history(ops, rows)
    verdict = check(seen, "fifo-queue")
    assert verdict.valid is False
    explanation, _ = explain_verdict(seen, verdict, "fifo-queue")
    return explanation


def judged(*explanations: Explanation) -> Result:
    return Result(
        checker="linearizability",
        valid=False,
        anomalies=tuple(
            Anomaly(kind="not-linearizable", summary=each.reason) for each in explanations
        ),
        detail=to_detail(explanations),
    )


def drawn(html: str) -> list[dict[str, Any]]:
    found = re.findall(r'class="lin-data">(.*?)</script>', html, re.DOTALL)
    return [json.loads(each) for each in found]


@pytest.fixture(scope="module")
def history() -> History:
    return example_history(rate_hz=100)


@pytest.fixture(scope="module")
def orders(history: History) -> Explanation:
    return explained(history, "orders")


@pytest.mark.explore
def test_an_object_has_a_section_with_its_reason_and_timeline(
    history: History, orders: Explanation
) -> None:
    html = render_report(example_plan(rate_hz=100), history, [judged(orders)], META)
    page = Page(html)
    assert "Not linearizable" in page.text
    assert orders.reason in page.text
    (data,) = drawn(html)
    assert len(data["call"]) > 1_000 > len(data["mine"]) > 0
    assert data["call_ns"] is not None
    assert any(tag == "a" and a.get("href") == "#objects" for tag, a in page.tags)


@pytest.mark.explore
def test_a_report_without_explanations_has_no_such_section(history: History) -> None:
    html = render_report(example_plan(rate_hz=100), history, [], META)
    assert "Not linearizable" not in html
    assert "lin-data" not in html


@pytest.mark.explore
def test_only_the_first_is_drawn_among_many(history: History, orders: Explanation) -> None:
    first, second = object_timelines([judged(orders, orders)], history)
    assert len(drawn(first.html)[0]["call"]) > OTHERS_MAX
    assert len(drawn(second.html)[0]["call"]) <= OTHERS_MAX + len(orders.operations)


@pytest.mark.explore
def test_operations_that_the_history_has_not_are_drawn_alone(
    history: History, orders: Explanation
) -> None:
    elsewhere = Explanation(**{**_fields(orders), "key": "payments"})
    (timeline,) = object_timelines([judged(elsewhere)], history)
    assert len(drawn(timeline.html)[0]["call"]) == len(orders.operations)


def _fields(explanation: Explanation) -> dict[str, Any]:
    return {name: getattr(explanation, name) for name in explanation.__struct_fields__}


@pytest.mark.explore
def test_stored_results_are_drawn_again(
    history: History, orders: Explanation, tmp_path: Path
) -> None:
    path = tmp_path / "results.json"
    path.write_bytes(render_results(example_plan(rate_hz=100), [judged(orders)], META))
    stored = read_results(path).results
    assert object_timelines(stored, history) == object_timelines([judged(orders)], history)


@pytest.mark.browser
def test_a_browser_draws_the_timelines_of_a_report(tmp_path: Path) -> None:
    history = example_history(rate_hz=500)
    orders = explained(history, "orders")
    result = judged(orders, orders)
    path = tmp_path / "report.html"
    path.write_text(render_report(example_plan(), history, [result], META), encoding="utf-8")
    with Chromium() as chromium, chromium.page() as page:
        page.open(path)
        assert page.errors == []
        assert page.requests == [path.resolve().as_uri()]
        views = page.ask("[...document.querySelectorAll('.lin')].map(l => l.timeline.view())")
        assert [view["stuck"] >= 0 for view in views] == [True, True]
        assert views[0]["operations"] > 8_000
        page.ask("document.querySelector('#objects').scrollIntoView({behavior: 'instant'})")
        page.settle()
        spot = page.ask(
            "(() => { const t = document.querySelector('.lin').timeline;"
            "return t.spot(t.view().stuck) })()"
        )
        page.move(spot["x"], spot["y"])
        assert "dequeue" in page.ask("document.querySelector('.lin-tip').innerText")
        assert page.ask("document.documentElement.scrollWidth") <= 1280
