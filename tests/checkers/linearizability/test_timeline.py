"""The timeline as HTML: self-contained, the window as text, and the lanes of its bars."""

from __future__ import annotations

import json
import re
from pathlib import Path

import msgspec
import numpy as np
import pytest

from shalott.checkers.history.concurrent import NEVER, ConcurrentHistory, Row, from_rows
from shalott.checkers.linearizability.explain import explain
from shalott.checkers.linearizability.explanation import Explanation
from shalott.checkers.linearizability.timeline import (
    OPERATIONS_MAX,
    lanes_of,
    nearest,
    timeline_html,
    timeline_page,
    write_timeline,
)
from shalott.checkers.models import make_model
from tests.checkers.linearizability.timelines import made_up, register_history

pytestmark = pytest.mark.unit

STALE = (
    Row(0, "write", 1, None, 0, 1),
    Row(1, "write", 2, None, 2, 3),
    Row(2, "write", "</script><b>", None, 4, None),
    Row(7, "read", None, 1, 6, 7),
)


def content(html: str) -> dict[str, object]:
    found = re.search(r'<script type="application/json" class="lin-data">(.*?)</script>', html)
    assert found is not None
    data: dict[str, object] = json.loads(found.group(1))
    return data


@pytest.fixture
def history() -> ConcurrentHistory:
    return from_rows(STALE)


@pytest.fixture
def stale(history: ConcurrentHistory) -> Explanation:
    return explain(history, make_model("register"))


def test_nothing_is_fetched(stale: Explanation, history: ConcurrentHistory, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    write_timeline(page, stale, history)
    text = page.read_text()
    assert "default-src 'none'" in text
    assert not re.search(r'\b(src|href)="(?!#|data:,)', text)
    assert not re.search(r"@import|url\(|https?://", text)


def test_the_window_is_there_as_text(stale: Explanation, history: ConcurrentHistory) -> None:
    html = timeline_html(stale, history)
    assert "read → 1 of process 7 returned when the register could only hold" in html
    row = next(part for part in html.split("<tr") if part.startswith(' class="stuck"'))
    assert "<td>read → 1</td>" in row
    assert "<td>stuck</td>" in row


def test_values_do_not_break_out_of_the_page(
    stale: Explanation, history: ConcurrentHistory
) -> None:
    html = timeline_html(stale, history)
    assert html.count("</script>") == 2  # of the script and of the data
    assert 'write "</script><b>"' in content(html)["texts"]  # type: ignore[operator]


def test_it_is_drawn_from_the_explanation_alone(stale: Explanation) -> None:
    data = content(timeline_html(stale))
    assert len(data["call"]) == len(stale.operations)  # type: ignore[arg-type]
    assert data["mine"] == list(range(len(stale.operations)))


def test_the_window_is_found_again_among_all_operations() -> None:
    history = register_history(2_000, 8)
    reads = np.flatnonzero((history.f.codes == 1) & (history.ret != NEVER))
    explanation = made_up(history, int(reads[700]))
    data = content(timeline_html(explanation, history))
    calls, mine = data["call"], data["mine"]
    assert [calls[at] for at in mine] == [  # type: ignore[index,attr-defined]
        shown.call for shown in explanation.operations
    ]
    texts, text = data["texts"], data["text"]
    assert [texts[text[at]] for at in mine] == [  # type: ignore[index,attr-defined]
        shown.text for shown in explanation.operations
    ]


def test_of_a_huge_history_the_part_about_the_window_is_drawn() -> None:
    history = register_history(OPERATIONS_MAX * 2, 20)
    reads = np.flatnonzero((history.f.codes == 1) & (history.ret != NEVER))
    explanation = made_up(history, int(reads[-100]))
    near = nearest(history, explanation)
    assert len(near) <= OPERATIONS_MAX + len(explanation.operations)
    assert set(near.call.tolist()) >= {shown.call for shown in explanation.operations}


def test_a_page_for_several_objects_has_one_script(stale: Explanation) -> None:
    page = timeline_page([(stale, None), (stale, None)])
    assert page.count("lin-data") == 3  # two, and the script that reads them
    assert page.count('"use strict"') == 1


def test_a_page_for_several_files_names_each(stale: Explanation) -> None:
    first, second = (
        msgspec.structs.replace(stale, source=f"{name}.edn", key=key)
        for name, key in (("one", "a"), ("two", "b"))
    )
    page = timeline_page([(first, None), (second, None)])
    assert "<title>not linearizable: one.edn, two.edn</title>" in page
    assert "one.edn, two.edn</p>" in page
    assert "<h2>one.edn · a</h2>" in page and "<h2>two.edn · b</h2>" in page
    alike = msgspec.structs.replace(second, source="one.edn")
    assert "<h2>b</h2>" in timeline_page([(first, None), (alike, None)])


def test_bars_are_labelled(stale: Explanation) -> None:
    """The tools above the drawing, and the line at which the invalid prefix ends."""
    page = timeline_page([(stale, None)])
    assert 'role="toolbar" aria-label="find, time axis, zoom"' in page
    assert 'role="toolbar" aria-label="partial linearizations"' in page
    assert page.count("the invalid prefix ends") == 2  # in the legend, and drawn beside the line


def test_a_client_keeps_its_lane_when_a_crash_gives_it_another_process() -> None:
    process = np.array([0, 1, 2, 1, 3, 2, 5, 4])
    crashed = np.array([1, 0, 0, 1, 0, 1, 0, 0], dtype=bool)  # 0, then 1 and 2
    lanes, names = lanes_of(process, crashed)
    assert lanes.tolist() == [0, 1, 2, 1, 0, 2, 2, 1]
    assert names == ["0, 3", "1, 4", "2, 5"]


def test_processes_without_that_rule_have_lanes_of_their_own() -> None:
    lanes, names = lanes_of(np.array([0, 7, 0, 9, 7]), np.zeros(5, dtype=bool))
    assert lanes.tolist() == [0, 1, 0, 2, 1]
    assert names == ["0", "7", "9"]


def test_the_palette_is_that_of_the_report() -> None:
    root = Path(__file__).parents[3]
    ours = (root / "shalott/checkers/linearizability/templates/timeline_page.css").read_text()
    report = (root / "shalott/harness/report/templates/report.css").read_text()

    def colours(text: str) -> list[str]:
        return re.findall(r"--[\w-]+: #[0-9a-f]{6}\b", text)

    assert len(colours(ours)) > 15
    assert set(colours(ours)) <= set(colours(report))
