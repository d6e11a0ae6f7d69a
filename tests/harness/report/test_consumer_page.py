"""The section on consumers as it stands on the page: bounded, escaped, reachable, drawn."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from shalott.checkers.checker import Anomaly, Result
from shalott.core.history import History
from shalott.harness.report.consumer_section import (
    BLOCKS_MAX,
    ROWS_MAX,
    TENURES_MAX,
    consumer_section,
)
from shalott.harness.report.report_page import render_report
from tests.checkers.histories import Story
from tests.harness.report.consumer_histories import END_S, consume_run, group_run, large_run
from tests.harness.report.test_report import META, Page
from tests.world.chromium import Chromium
from tests.world.harness.report_run import S, example_history, example_plan


def render(history: History, *results: Result) -> str:
    return render_report(example_plan(), history, results, META)


@pytest.fixture(scope="module")
def consume() -> str:
    return render(consume_run())


@pytest.fixture(scope="module")
def group() -> str:
    return render(group_run())


@pytest.mark.unit
def test_a_run_without_consumers_has_no_section() -> None:
    html = render(example_history(rate_hz=20))
    assert 'href="#consumers"' not in html
    assert "consumers-data" not in html


@pytest.mark.unit
def test_the_section_is_reached_and_names_everything(consume: str, group: str) -> None:
    for html, words in (
        (consume, ("q1", "q2", "lag, messages", "nacked or rejected, and requeued")),
        (group, ("g1", "g2", "orders/3", "sent back for a retry", "reconsumed")),
    ):
        page = Page(html)
        assert any(tag == "a" and a.get("href") == "#consumers" for tag, a in page.tags)
        section = page.text[page.text.rindex(" Consumers ") :]
        for word in words:
            assert word in section, word
    assert "a connection was blocked" in consume
    assert "q1 was deleted at 30 s" in consume
    assert "the operator set the offsets at 40 s" in group
    assert re.search(r"rebalance: \d+ queues given up", group)


@pytest.mark.unit
def test_every_picture_has_words_for_who_cannot_see_it(consume: str, group: str) -> None:
    for html in (consume, group):
        for tag, attributes in Page(html).tags:
            if tag == "svg":
                assert attributes.get("aria-label") or attributes.get("aria-hidden") == "true"
            if "tenures" in (attributes.get("class") or "").split():
                label = attributes.get("aria-label") or ""
                assert attributes.get("role") == "img"
                assert re.search(r"\d+ (consumers|members) in \d+ tenures", label), label


@pytest.mark.unit
def test_a_bar_says_who_had_what_and_how_it_ended() -> None:
    told = Story().phases()
    extra = {
        "consumer": "<b>c1</b>", "channel": "h", "prefetch": 10, "active_ns": S,
        "ended": "lost", "error": "reset by peer",
    }  # fmt: skip
    told.row("consumer", 1, took=8, extra=extra)
    page = Page(render(told.history()))
    (bar,) = [a for a in page.having("held") if "--b" in (a.get("style") or "")]
    assert bar["title"] == "<b>c1</b> of q: 1 s to 9 s, lost (reset by peer); prefetch 10"
    assert (bar["style"] or "").startswith("--b:1000.0;--e:9000.0")
    assert "end-lost" in (bar["class"] or "")


@pytest.mark.unit
def test_what_a_checker_found_to_last_is_marked_at_its_queue() -> None:
    detail = {"queue": "q2", "begin_ns": 10 * S, "end_ns": 12 * S}
    found = Anomaly(kind="dual-active", summary="two were active at once", detail=detail)
    html = render(consume_run(), Result(checker="any", valid=False, anomalies=(found,)))
    (mark,) = Page(html).having("finding")
    assert mark["style"] == "--b:10000.0;--e:12000.0"
    assert mark["title"] == "two were active at once"
    assert html.index("<b>q1</b>") < html.index("<b>q2</b>") < html.index('class="at finding')


@pytest.mark.unit
def test_rows_and_bars_are_bounded_and_what_is_left_out_is_told() -> None:
    names = [f"queue-{number}" for number in range(BLOCKS_MAX + 3)]
    section = consumer_section(consume_run(2, names, 12, 200), [], END_S * S)
    assert section is not None
    assert len(section.blocks) == BLOCKS_MAX and len(section.blocks_left_out) == 3
    crowd = consumer_section(consume_run(2, ["q"], 600, 200), [], END_S * S)
    assert crowd is not None and crowd.holder_count > TENURES_MAX
    (block,) = crowd.blocks
    drawn = len(block.bars)
    assert drawn <= TENURES_MAX
    assert f"{crowd.holder_count - drawn:,} not drawn" in block.note
    assert len({bar.top for bar in block.bars}) <= ROWS_MAX


@pytest.mark.explore
def test_a_page_of_many_consumers_and_deliveries_stays_small() -> None:
    html = render(large_run(200_000))
    assert len(html.encode()) < 1_000_000
    assert "120 consumers of 6 queues were given 200,000 messages, 0 of them again." in html


@pytest.mark.browser
@pytest.mark.parametrize("run", [consume_run, group_run])
def test_a_browser_draws_consumers_and_moves_all_stages_at_once(
    run: Callable[[], History], tmp_path: Path
) -> None:
    path = tmp_path / "report.html"
    path.write_text(render(run()), encoding="utf-8")
    with Chromium() as chromium, chromium.page() as page:
        page.open(path)
        assert page.errors == []
        assert page.requests == [path.resolve().as_uri()]
        stages = "[...document.querySelectorAll('.stage')]"
        assert page.ask(f"{stages}.length") == 2
        # Bars and fillings lie in the picture, and are seen.
        assert page.ask(
            "[...document.querySelectorAll('.tenures')].every(t => t.clientHeight > 20 &&"
            " t.querySelectorAll('.held').length > 3 && t.querySelector('path.held'))"
        )
        # The keys in the one stage move the cursor in both, and each says its own words.
        page.ask(f"{stages}[1].focus()")
        for key in ("Home", "ArrowRight", "ArrowRight", "+"):
            page.ask(f"{stages}[1].dispatchEvent(new KeyboardEvent('keydown', {{key: '{key}'}}))")
        told = page.ask("[...document.querySelectorAll('.readout')].map(r => r.innerText)")
        assert "deliveries" in told[1] and "lag" in told[1]
        assert "deliveries" not in told[0]
        live = "[...document.querySelectorAll('.readout')].map(r => r.getAttribute('aria-live'))"
        assert page.ask(live) == ["off", "polite"]
        widths = page.ask(f"{stages}.map(s => s.style.getPropertyValue('--w'))")
        assert widths == [str(END_S * 500)] * 2
        boxes = page.ask(
            "[...new Set([...document.querySelectorAll('svg.plot')]"
            ".map(p => p.getAttribute('viewBox')))].length"
        )
        assert boxes == 1
        for width in (1280, 420):
            page.resize(width, 900)
            page.settle()
            assert page.ask("document.documentElement.scrollWidth") <= width
        assert page.errors == []
