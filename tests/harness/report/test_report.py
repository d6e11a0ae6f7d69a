"""report.html: what it says, that it fetches nothing, and that it stays small."""

from __future__ import annotations

import re
from dataclasses import replace
from html.parser import HTMLParser

import msgspec
import pyarrow as pa
import pytest

from shalott.checkers.checker import Anomaly, Result
from shalott.checkers.logs.replicated_log import KINDS as LOG_KINDS
from shalott.checkers.runs.compose import check_all
from shalott.checkers.runs.standard import standard_checkers
from shalott.core.history import EMPTY_EVENTS, HISTORY_SCHEMA, History
from shalott.core.plan import Plan, SystemPlan
from shalott.harness.report.cluster_timeline import read_timeline
from shalott.harness.report.meta import ReportMeta
from shalott.harness.report.report_page import render_report
from shalott.harness.report.verdict_words import findings, headline
from tests.checkers.histories import Story
from tests.world.harness.report_run import MS, NODES, S, example_history, example_plan

pytestmark = pytest.mark.unit

META = ReportMeta(
    command="shalott test --seed 7",
    started_wall_ns=1_700_000_000 * S,
    versions={"shalott": "0.1.0"},
    notes=("Docker answered.",),
)
VOID = {"meta", "link", "br", "path", "input", "img", "hr"}


class Page(HTMLParser):
    """Checks nesting while it collects text, tags and attributes."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.words: list[str] = []
        self.feed(text)
        self.close()
        assert not self.open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.words.append(data)

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.words).split())

    def having(self, css_class: str) -> list[dict[str, str | None]]:
        return [a for _, a in self.tags if css_class in (a.get("class") or "").split()]


@pytest.fixture(scope="module")
def history() -> History:
    return example_history(rate_hz=100)


@pytest.fixture(scope="module")
def results(history: History) -> tuple[Result, ...]:
    return check_all(standard_checkers(), history).results


@pytest.fixture(scope="module")
def html(history: History, results: tuple[Result, ...]) -> str:
    return render_report(example_plan(rate_hz=100), history, results, META)


def lost_count(results: tuple[Result, ...]) -> int:
    return int(results[0].counts["lost-count"])


def test_verdict_command_and_reasons_come_first(html: str, results: tuple[Result, ...]) -> None:
    page = Page(html)
    head = page.text[: page.text.index("Messages Timeline")]
    assert f"Invalid : {lost_count(results)} acknowledged messages were lost" in head
    assert "two nodes acknowledged writes of one queue as its master at once" in head.lower()
    assert "shalott test --seed 7" in head
    assert page.text.index("Invalid") < page.text.index("shalott test --seed 7")


def test_nothing_is_fetched(html: str) -> None:
    assert "default-src 'none'" in html
    for tag, attributes in Page(html).tags:
        assert tag not in ("img", "iframe", "object", "embed", "video", "base")
        for name in ("src", "href", "srcset", "action", "xlink:href"):
            value = attributes.get(name)
            assert value is None or value.startswith("#") or value == "data:,", (tag, value)
    assert not re.search(r"@import|url\(|https?://(?!www\.w3\.org)", html)


def test_same_input_gives_the_same_page(
    html: str, history: History, results: tuple[Result, ...]
) -> None:
    assert render_report(example_plan(rate_hz=100), history, results, META) == html


def test_counts_are_those_of_the_checker(html: str, results: tuple[Result, ...]) -> None:
    text = Page(html).text
    assert f"lost {lost_count(results)} acknowledged, and never delivered" in text
    assert f"recovered {results[0].counts['recovered-count']:,.0f} delivered although" in text


def test_an_anomaly_shows_the_operations_that_prove_it(
    html: str, history: History, results: tuple[Result, ...]
) -> None:
    lost = next(a for a in results[0].anomalies if a.kind == "lost")
    assert lost.operations
    text = Page(html).text
    for index in lost.operations:
        row = history.ops.slice(index, 1).to_pylist()[0]
        assert (
            f"{index} {row['process']} {row['node']} enqueue {row['key']} {row['value']} ok" in text
        )
    assert "Likely cause: window L3" in text
    assert "discarded" in text


def test_faults_show_their_proofs_and_a_missing_proof(html: str) -> None:
    text = Page(html).text
    assert "reach n1->n2: no" in text
    assert "not proved reach n1->n2: no, not yes" in text  # fault 3 was not proved healed
    assert "Fault 3 partition-halves n1 was not proved healed." in text


def test_every_fault_is_a_band_and_every_phase_a_mark(html: str) -> None:
    page = Page(html)
    faults = [a for a in page.having("at") if (a.get("title") or "").startswith("fault ")]
    assert [a["style"] for a in faults][:2] == ["--b:8040.0;--e:18150.0", "--b:24040.0;--e:28150.0"]
    for name in ("boot", "load", "heal", "settle", "drain"):
        assert any(a.get("title") == name for a in page.having(name))


def test_dual_masters_are_marked_where_the_checker_found_them(
    html: str, results: tuple[Result, ...]
) -> None:
    page = Page(html)
    for kind in ("dual-master-claimed", "dual-master-effective"):
        marks = [(a["style"], a["title"]) for a in page.having(kind)]
        found = [a for r in results for a in r.anomalies if a.kind == kind]
        assert found
        assert sorted(marks) == sorted(
            (
                f"--b:{a.detail['begin_ns'] / MS:.1f};--e:{a.detail['end_ns'] / MS:.1f}",
                a.summary,
            )
            for a in found
        )


def test_an_observed_role_ends_where_the_node_falls_silent() -> None:
    timeline = read_timeline(example_history(rate_hz=20, node_events=False), NODES, 500)
    assert not timeline.recorded
    spans = [
        s for s in timeline.observed if (s.node, s.group, s.role) == ("n2", "orders", "master")
    ]
    assert spans[0].begin_ns == 12 * S + 20 * MS
    assert spans[-1].end_ns == 24 * S + 20 * MS  # when it next answered, as a mirror


def test_a_killed_node_holds_no_role_until_it_says_so() -> None:
    timeline = read_timeline(example_history(rate_hz=20), NODES, 500)
    spans = [s for s in timeline.recorded if (s.node, s.group) == ("n2", "orders")]
    assert [(s.role, s.begin_ns // S, s.end_ns // S) for s in spans] == [
        ("mirror", 0, 12),
        ("master", 12, 24),
        ("mirror", 28, 65),
    ]


def test_untrusted_text_is_escaped(history: History, results: tuple[Result, ...]) -> None:
    evil = "</script><script>alert(1)</script>"
    plan = msgspec.structs.replace(example_plan(), name=evil)
    bad = Result(checker=evil, valid=False, anomalies=(Anomaly(kind=evil, summary=evil),))
    meta = msgspec.structs.replace(META, command=evil, notes=(evil,), versions={evil: evil})
    html = render_report(plan, history, [*results, bad], meta)
    assert "<script>alert" not in html
    assert sum(tag == "script" for tag, _ in Page(html).tags) == 2


@pytest.mark.explore
def test_a_long_run_is_aggregated(results: tuple[Result, ...]) -> None:
    many = example_history(rate_hz=2000)
    assert many.ops.num_rows > 100_000
    html = render_report(example_plan(), many, check_all(standard_checkers(), many).results, META)
    assert len(html.encode()) < 1_000_000
    Page(html)


def test_many_anomalies_stay_few_on_the_page(history: History) -> None:
    anomalies = tuple(
        Anomaly(kind="odd", summary=f"thing {i}", operations=(i,)) for i in range(5000)
    )
    result = Result(checker="odd", valid=False, anomalies=anomalies)
    html = render_report(example_plan(), history, [result], META)
    assert len(html.encode()) < 1_000_000
    assert "40 of 5,000 shown" in Page(html).text


def test_a_run_that_recorded_nothing_has_a_report() -> None:
    empty = History(ops=HISTORY_SCHEMA.empty_table(), events=EMPTY_EVENTS, complete=False)
    html = render_report(example_plan(), empty, check_all(standard_checkers(), empty).results, META)
    text = Page(html).text
    assert "Unknown" in text
    assert "cut short" in text


def test_a_report_without_any_result_is_unknown(history: History) -> None:
    assert (
        "Unknown : nothing was checked."
        in Page(render_report(example_plan(), history, [], META)).text
    )


def test_operations_without_completion_count_but_have_no_latency(history: History) -> None:
    ops = history.ops
    none = pa.nulls(ops.num_rows, pa.int64())
    open_ended = replace(
        history, ops=ops.set_column(ops.schema.get_field_index("complete_ns"), "complete_ns", none)
    )
    text = Page(render_report(example_plan(), open_ended, [], META)).text
    assert "What the clients were told" in text


def test_valid_headline_and_tolerated_findings() -> None:
    redelivered = Anomaly(kind="redelivered", summary="2 messages", operations=(1,))
    claimed = Anomaly(kind="dual-master-claimed", summary="n1 and n2")
    fine = [
        Result(
            checker="total-queue",
            valid=True,
            counts={"acknowledged-count": 1234, "redelivered-count": 2},
            anomalies=(redelivered,),
            detail={"broken": []},
        ),
        Result(
            checker="mastership",
            valid=True,
            counts={"dual-master-claimed-count": 1},
            anomalies=(claimed,),
        ),
    ]
    assert headline(fine) == "Valid: nothing was lost of 1,234 acknowledged messages."
    assert [(valid, sentence) for valid, _, sentence in findings(fine)] == [
        (True, "2 messages were redelivered, flagged as such."),
        (True, "two nodes called themselves master of one queue at once."),
    ]


def test_what_a_promise_forbids_is_told_as_broken() -> None:
    twice = Result(
        checker="total-queue",
        valid=False,
        counts={"duplicated-count": 3, "lost-count": 2},
        anomalies=(
            Anomaly(kind="lost", summary="2"),
            Anomaly(kind="duplicated", summary="3"),
        ),
        detail={"broken": ["duplicated"]},
    )
    assert headline([twice]).startswith("Invalid: 3 messages were delivered twice")
    strict = Result(
        checker="mastership",
        valid=False,
        counts={"dual-master-claimed-count": 2},
        anomalies=(Anomaly(kind="dual-master-claimed", summary="x"),),
    )
    assert headline([strict]).startswith("Invalid: two nodes called themselves master")


def test_unknown_is_never_told_as_loss_for_certain() -> None:
    doubtful = Result(
        checker="total-queue",
        valid="unknown",
        counts={"lost-count": 4},
        anomalies=(Anomaly(kind="lost", summary="4"),),
        notes=("q was not drained: n1 never said that it was empty.",),
        detail={"broken": []},
    )
    assert headline([doubtful]).startswith("Unknown:")
    assert "not seen again" in headline([doubtful]), "an undrained queue is no proof of loss"


@pytest.mark.explore
@pytest.mark.parametrize("rate", [5, 400])
def test_points_become_tiles_beyond_a_few_thousand(rate: int) -> None:
    html = render_report(example_plan(), example_history(rate_hz=rate), [], META)
    assert ("each operation" in html) == (rate == 5)
    assert ('class="point ok"' in html) == (rate == 5)
    assert ('class="area ok s1"' in html) == (rate == 400)


def log_plan() -> Plan:
    plan = example_plan()
    return msgspec.structs.replace(
        plan,
        name="log-controller",
        system=SystemPlan(name="controller", profile="safe", policy={"store.flush": "sync"}),
        workload=msgspec.structs.replace(plan.workload, name="log", parameters={"queues": 2}),
    )  # fmt: skip


def log_results(lost: int = 0) -> tuple[Result, ...]:
    counts = dict.fromkeys((f"{kind}-count" for kind in LOG_KINDS), 0)
    told = {"attempt-count": 100, "acknowledged-count": 90, "recovered-count": 4}
    anomaly = Anomaly(kind="lost-write", summary="message 1", detail={"count": lost})
    both = Anomaly(kind="dual-master-effective", summary="n1 and n2 at once")
    broken = ["lost-write"] if lost else []
    return (
        Result(
            checker="log",
            valid=not lost,
            counts={**counts, **told, "lost-write-count": lost},
            anomalies=(anomaly,) if lost else (),
            detail={"broken": broken},
        ),
        Result(checker="mastership", valid=not lost, anomalies=(both,) if lost else ()),
    )


def test_a_run_of_a_log_is_told_in_a_log_s_words() -> None:
    story = Story().phases(load=20, heal=22, drain=24)
    for at in range(20):
        story.row("send", at, value=at, key="shalott/0")
        story.row("poll", at + 0.5, kind="fail", error="empty", value=0, key="shalott/0")
    story.event("n1", 0.1, "role", "master", 1, group="shalott")
    story.event("n2", 0.1, "role", "slave", 1, group="shalott")
    html = render_report(log_plan(), story.history(), log_results(), META)
    page = Page(re.sub(r"<(style|script)[ >].*?</\1>", "", html, flags=re.DOTALL))
    text = page.text
    assert "What became of 100 sent messages." in text
    assert "kept 90 acknowledged and read" in text
    assert "not-kept 6 not acknowledged, and in no log at the end" in text
    assert "60% sends" in text
    assert "queues of one topic" in text
    assert "A read that found nothing new" in text
    assert text.index("send 20 0 0 0") < text.index("poll 0 0 0 20")
    for word in ("mirror", "enqueue", "dequeue", "net tick", "partition mode", "policy"):
        assert word not in text.lower(), word
    assert page.having("slave")


def test_an_anomaly_of_a_log_is_about_a_group() -> None:
    both = Anomaly(kind="diverged", summary="n2 differs", detail={"group": "shalott"})
    results = (*log_results(), Result(checker="convergence", valid=False, anomalies=(both,)))
    story = Story().phases().row("send", 1, value=1)
    text = Page(render_report(log_plan(), story.history(), results, META)).text
    assert "group shalott" in text and "queue shalott" not in text


def test_what_a_log_lost_makes_the_headline() -> None:
    results = log_results(lost=3)
    assert headline(results) == (
        "Invalid: 3 acknowledged messages were lost, and two nodes acknowledged writes as master"
        " of one group at once."
    )
    assert not any("queue" in sentence for _, _, sentence in findings(results))


@pytest.mark.parametrize(
    ("times", "told"), [(1, "a node became master once"), (3, "nodes became master 3 times")]
)
def test_a_run_without_messages_is_told_by_its_masters(times: int, told: str) -> None:
    counts: dict[str, int | float] = {"election-count": 0, "master-count": times}
    result = Result(checker="elections", valid=True, counts=counts)
    assert headline([result]) == f"Valid: {told}, and no epoch had two masters."


def test_every_anomaly_of_the_log_has_a_sentence() -> None:
    for kind in LOG_KINDS:
        for number in (1, 2):
            result = Result(
                checker="log",
                valid=False,
                counts={f"{kind}-count": number},
                anomalies=(Anomaly(kind=kind, summary="the story"),),
                detail={"broken": [kind]},
            )
            ((_, _, sentence),) = findings([result])
            assert "the story" not in sentence
            assert ("2" in sentence) == (number == 2), sentence
