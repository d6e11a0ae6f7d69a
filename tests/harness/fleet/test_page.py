"""index.html: self-contained, escaped, of a bounded size, and read out in order."""

from __future__ import annotations

import io
import re
import time
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote

import msgspec
import pyarrow.parquet as pq
import pytest
from rich.console import Console

from shalott.core.errors import UsageError
from shalott.harness.fleet.index_page import Leads, Source, duration, percent, plain, render_page
from shalott.harness.fleet.page_builder import page_writer
from shalott.harness.store import runs_table as table_module
from shalott.harness.store.runs_table import refresh, rows_below
from shalott.spark_analysis.findings import Wanted
from shalott.spark_analysis.report import run_report
from tests.spark_analysis.conftest import broken_history, store_run
from tests.world.harness.fleet_page import (
    S,
    fault,
    gap,
    line,
    made,
    overlap,
    page_data,
    tables,
)

pytestmark = pytest.mark.unit

SCRIPT = "<script>alert(1)</script>"
BREAKING = "\"'><img src=x onerror=alert(1)>"
HIDDEN = "a\u202eb\x1b[31m\x00\u200b\u2028c\ud800"
SOURCE = Source("local", 0)
NO_LEADS = Leads(None, Path())
VOID = ("meta", "link", "path", "rect", "br", "wbr")


class Markup(HTMLParser):
    """Every element with its attributes; complains of what is not closed in order."""

    def __init__(self, page: bytes) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.words: list[str] = []
        self.feed(page.decode())
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert len({name for name, _ in attrs}) == len(attrs)
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.words.append(data)

    def count(self, tag: str) -> int:
        return sum(name == tag for name, _ in self.elements)

    def of(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.elements if name == tag]


def hostile_page(text: str) -> bytes:
    """Whatever can be somebody else's text is this one."""
    lost = [{"checker": text, "kind": text, "count": 1, "broken": True}]
    said = {
        "system": text, "profile": text, "workload": text, "cluster": text, "nemesis": [text],
        "headline": text, "night": text, "cell": f"{text}/{text}", "commit": text,
        "valid": "false", "anomalies": lost,
    }  # fmt: skip
    rows = [
        made(text, **said), made(f"{text}2", unavailable_ms_max=1.0, **said),
        made(f"s/{text}", kind="campaign", campaign=text, system=text, profile=text,
             anomalies=lost, seeds_judged=1),
        made(f"s/{text}/findings/{text}", kind="finding"),
    ]  # fmt: skip
    lines = [
        line(text, system=text, profile=text, partition_mode=text, workload=text, attempts=9,
             acknowledged=9, lost=1, lost_provably=1, differs={text: (1, 2)}),
    ]  # fmt: skip
    found = tables(
        unavailability=[gap(text, S, text), fault(text, text, 0, S, S)],
        dual_masters=[overlap(text, "effective", 0, S)],
    )
    data = page_data(rows, lines, found)
    told = msgspec.structs.replace(data, store=text, notes=msgspec.structs.replace(
        data.notes, rows=(text,)))  # fmt: skip
    return render_page(told, NO_LEADS, Source(text, 1))


def as_arrow(text: str) -> str:
    """What a table can hold of it."""
    return text.encode("utf-8", "ignore").decode()


@pytest.mark.parametrize("text", [SCRIPT, BREAKING, "{{ 7 * 7 }}{% raw %}", "]]>--><!--"])
def test_no_text_of_somebody_else_becomes_markup(text: str) -> None:
    markup, calm = Markup(hostile_page(text)), Markup(hostile_page("calm"))
    for tag in ("script", "img", "iframe", "object", "form"):
        assert markup.count(tag) == 0
    assert [name for name, _ in markup.elements if name != "wbr"] == [
        name for name, _ in calm.elements if name != "wbr"
    ]
    assert not [a for _, own in markup.elements for a in own if a.startswith("on")]
    assert "".join(markup.words).count(text) >= 20
    assert "49" not in "".join(markup.words)


def test_what_can_not_be_seen_is_shown() -> None:
    page = hostile_page(as_arrow(HIDDEN)).decode()
    assert "a\\u202eb\\u001b[31m\\u0000\\u200b\\u2028c" in page
    assert not re.search("[\u202a-\u202e\u2066-\u2069\u200b\x00\x1b]", page)
    assert plain("\ud800") == "\\ud800"
    assert plain("Grüße, 測試 ☂ – …") == "Grüße, 測試 ☂ – …"


def test_nothing_is_loaded_or_run() -> None:
    page = hostile_page("calm")
    markup = Markup(page)
    told = [a.get("content") or "" for a in markup.of("meta")]
    assert any(each.startswith("default-src 'none'") for each in told)
    assert {a["href"] for a in markup.of("link")} == {"data:,"}
    assert not re.search(rb"""url\(|@import|(?:src|href)=["']?(?:https?:)?//""", page)
    assert markup.count("script") == 0


def test_tables_and_pictures_are_read_out() -> None:
    rows = [made(f"{day}", day, valid="false" if day % 2 else "true") for day in range(4)]
    found = tables(unavailability=[gap("1", S), fault("1", "kill", 0, S, S)],
                   dual_masters=[overlap("1", "claimed", 0, S)])  # fmt: skip
    page = render_page(
        page_data(rows, [line("1", attempts=1, acknowledged=1)], found), NO_LEADS, SOURCE
    )
    markup = Markup(page)
    assert markup.count("table") == markup.count("caption") > 6
    assert all(a.get("scope") in ("col", "row") for a in markup.of("th"))
    pictures = markup.of("svg")
    assert all(a.get("aria-label") or a.get("aria-hidden") == "true" for a in pictures)
    assert (markup.count("h1"), markup.count("main"), markup.count("nav")) == (1, 1, 1)
    names = [a["id"] for _, a in markup.elements if "id" in a]
    assert len(names) == len(set(names))
    leads = [(a["href"] or "")[1:] for a in markup.of("a")]
    assert set(leads) <= set(names)
    regions = [a for a in markup.of("div") if a.get("role") == "region"]
    assert all(a.get("tabindex") == "0" and a.get("aria-label") for a in regions)


def test_no_run_and_one_run_are_shown() -> None:
    none = "".join(Markup(render_page(page_data([]), NO_LEADS, SOURCE)).words)
    assert "No runs" in none
    assert "No search has left anything here." in none
    one = "".join(Markup(render_page(page_data([made("a/1")]), NO_LEADS, SOURCE)).words)
    assert "1 run, none invalid" in one
    assert "0 % (0 of 1) were invalid, 95 % interval 0 % to 79 %" in one


def test_ten_thousand_runs_make_a_page_of_a_bounded_size() -> None:
    rows = [
        made(f"r/{n:05d}", n % 400, workload=f"w{n % 97}", nemesis=[f"f{n % 89}"], seed=n,
             valid=("true", "false", "unknown")[n % 3], headline="x" * 900,
             unavailable_ms_max=float(n), acknowledged=n, lost=n % 7)
        for n in range(10_000)
    ]  # fmt: skip
    began = time.process_time()
    page = render_page(page_data(rows), NO_LEADS, SOURCE)
    assert time.process_time() - began < 20  # 3 s where nothing else runs
    assert len(page) < 400_000
    text = "".join(Markup(page).words)
    assert "more cells: shalott report store --rows 1000000" in text
    assert "3,333 of 10,000 runs invalid" in text


@pytest.mark.parametrize(
    ("part", "told"),
    [(0, "0 %"), (1, "100 %"), (0.5, "50 %"), (1 / 3, "33 %"), (0.0213, "2.1 %"),
     (0.00012345, "0.012 %"), (1e-9, "under 0.000001 %"), (0.999, "99.9 %"), (0.99996, "99.996 %"),
     (0.95, "95 %"), (0.1, "10 %"), (0.0999, "10 %"), (1 - 1e-9, "over 99.999999 %")],
)  # fmt: skip
def test_shares_are_told_with_digits_that_say_something(part: float, told: str) -> None:
    assert percent(part) == told


def test_times_are_told_in_their_unit() -> None:
    assert [duration(ns) for ns in (None, 0, 27_400_000, S, 12_345_000_000, 130 * S)] == [
        "never", "0 ms", "27 ms", "1.00 s", "12.35 s", "130 s"
    ]  # fmt: skip


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Runs with reports, in places that a link can't name as they are."""
    store = tmp_path_factory.mktemp("a store+of %20 runs")
    for number, name in enumerate((f"r/{BREAKING.replace('/', '')}", "r/100% #1?", "r/none")):
        run = store_run(store, name, broken_history(number))
        if not name.endswith("none"):
            (run / "report.html").write_text("told")
    return store


@pytest.mark.parametrize("out", ["_report", "../elsewhere/deep"])
def test_links_lead_to_the_runs_reports_from_wherever_the_page_is(store: Path, out: str) -> None:
    place = store / out
    run_report(store, place, Console(file=io.StringIO()), Wanted(engine="local"),
               page_writer())  # fmt: skip
    markup = Markup((place / "index.html").read_bytes())
    leads = {a["href"] or "" for a in markup.of("a")} - {
        a["href"] for a in markup.of("a") if (a["href"] or "").startswith("#")
    }
    assert len(leads) == 2
    for lead in leads:
        assert not re.search(r"[^A-Za-z0-9%/._~-]", lead)
        assert (place / unquote(lead)).read_text() == "told"


@pytest.mark.parametrize("run", ["../../secret", "/etc", "a/../../b", "nul\0", "x" * 5000, ""])
def test_no_link_leads_out_of_the_store(tmp_path: Path, run: str) -> None:
    (tmp_path / "secret").mkdir()
    (tmp_path / "secret" / "report.html").touch()
    base = tmp_path / "a" / "store"
    base.mkdir(parents=True)
    assert Leads(base, base / "_report").to(run) == ""


def test_a_report_on_an_empty_store_is_written(tmp_path: Path) -> None:
    run_report(tmp_path, None, Console(file=io.StringIO()), Wanted(engine="local"),
               page_writer())  # fmt: skip
    text = "".join(Markup((tmp_path / "_report" / "index.html").read_bytes()).words)
    assert f"There is no finished run in {tmp_path}." in text


def test_a_list_of_no_rows_is_refused() -> None:
    with pytest.raises(UsageError, match="--rows"):
        page_writer(0)


def test_a_part_of_a_store_is_read_and_nothing_is_written_into_it(store: Path) -> None:
    refresh(store)
    part = store / "r"
    found = rows_below(part).table
    assert sorted(found["run"].to_pylist()) == sorted(
        name.removeprefix("r/") for name in refresh(store).table["run"].to_pylist()
    )
    (one,) = rows_below(part / "none").table["run"].to_pylist()
    assert one == "none"
    assert not list(part.glob("*.parquet"))
    assert not list(part.glob(".runs*"))


def test_a_run_that_the_table_lacks_is_read_for_a_part_of_a_store(tmp_path: Path) -> None:
    store_run(tmp_path, "r/1", broken_history(1))
    refresh(tmp_path)
    before = (tmp_path / "runs.parquet").read_bytes()
    store_run(tmp_path, "r/2", broken_history(2))
    assert rows_below(tmp_path / "r").table["run"].to_pylist() == ["1", "2"]
    assert (tmp_path / "runs.parquet").read_bytes() == before
    assert rows_below(tmp_path).table["run"].to_pylist() == ["r/1", "r/2"]
    assert len(pq.read_table(tmp_path / "runs.parquet")) == 2


def test_a_store_that_can_not_be_written_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store_run(tmp_path, "r/1", broken_history(1))

    def refused(*_: object) -> None:
        raise table_module.StoreError("cannot write the table")

    monkeypatch.setattr(table_module, "_write", refused)
    found = rows_below(tmp_path)
    assert found.table["run"].to_pylist() == ["r/1"]
    assert found.notes == ("cannot write the table; what it lacks was read anew.",)
