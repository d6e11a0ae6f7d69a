"""Where a search writes: a directory and object storage alike, and nothing that is half done."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from moto.server import ThreadedMotoServer

from shalott.core.errors import StoreError, UsageError
from shalott.harness.cli.main import run_command
from shalott.harness.cli.search import closing_lines
from shalott.harness.mutants.outcomes import Outcome, Outcomes
from shalott.harness.run.store import PLAN
from shalott.harness.scenarios.swarm import USUAL, Subject, draw_plan, plain_subject
from shalott.harness.search import run_search as at_work_module
from shalott.harness.search.campaign import LOG, finding
from shalott.harness.search.corpus import Entry, read_corpus, write_corpus
from shalott.harness.search.door import SimulatedRuns
from shalott.harness.search.place import Bucket, Directory, beneath, open_place
from shalott.harness.search.real_search import plan_real
from shalott.harness.search.run_search import Tally, run_search
from shalott.harness.search.search import Search, SearchRequest, parse_seeds
from shalott.harness.search.summary import Summary
from tests.world.harness.inline_pool import Backwards
from tests.world.harness.toy_simulation import simulate_toy

pytestmark = pytest.mark.explore  # a server of moto's takes seconds to load

CAMPAIGN = "search/toy"
SUBJECT = Subject(profile="upstream", name="toy", swarm=USUAL.but(fault_share=0.6))


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    """What follows a bucket's URL."""
    with pytest.MonkeyPatch.context() as environment:
        for name, value in (
            ("AWS_ACCESS_KEY_ID", "key"),
            ("AWS_SECRET_ACCESS_KEY", "secret"),
            ("AWS_EC2_METADATA_DISABLED", "true"),
        ):
            environment.setenv(name, value)
        moto = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
        moto.start()
        try:
            host, port = moto.get_host_and_port()
            yield f"?endpoint_override={host}:{port}&scheme=http&region=us-east-1"
        finally:
            moto.stop()


@pytest.fixture
def bucket(server: str, request: pytest.FixtureRequest) -> str:
    """A URL of its own."""
    url = f"s3://shalott/{abs(hash(request.node.name))}{server}"
    made = open_place(f"{url}&allow_bucket_creation=true")
    assert isinstance(made, Bucket)
    made.files.create_dir("shalott")
    return url


@pytest.fixture(params=["directory", "bucket"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    is_directory = request.param == "directory"
    return str(tmp_path) if is_directory else str(request.getfixturevalue("bucket"))


class Quiet:
    def __init__(self, stops_after: int = 1000) -> None:
        self.stops_after = stops_after
        self.said: list[str] = []

    def show(self, tally: Tally) -> None:
        if tally.run_now >= self.stops_after:
            raise Killed

    def say(self, line: str) -> None:
        self.said.append(line)


class Killed(Exception):
    pass


def search(store: str, seeds: str, watch: Quiet | None = None, *, fresh: bool = False) -> Summary:
    planned = Search(subject=SUBJECT, seeds=parse_seeds(seeds), seeds_text=seeds)
    request = SearchRequest(jobs=1, store=store, fresh=fresh)
    runs = SimulatedRuns(simulate_toy)
    summary, place = run_search(planned, request, runs, watch or Quiet(), command="shalott search")
    assert list(closing_lines(summary, place))
    return summary


@pytest.fixture
def inline(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(at_work_module, "WorkerPool", Backwards)


def test_objects_and_logs(store: str) -> None:
    place = open_place(store)
    assert place.read("a/b") is None and place.names() == [] and place.lines("log") == b""
    place.write("a/b", b"one")
    place.write("a/b", b"two")
    place.within("a").write("c", b"three")
    assert place.names() == ["a/b", "a/c"] and place.names("a") == ["a/b", "a/c"]
    assert place.read("a/b") == b"two" and place.within("a").names() == ["b", "c"]
    with place.filled("run") as directory:
        Directory(directory).write(PLAN, b"plan")
        Directory(directory).write("nodes/n1", b"log")
    place.move("a", "z")
    with place.fetched("run") as directory:
        assert (directory / "nodes/n1").read_bytes() == b"log"
    assert place.names() == ["run/nodes/n1", f"run/{PLAN}", "z/b", "z/c"]
    place.remove("z/b")
    place.remove("z/b")
    assert place.read("z/b") is None
    for number in range(12):
        place.append("log", b"%d\n" % number)
    assert place.lines("log") == b"".join(b"%d\n" % number for number in range(12))


@pytest.mark.usefixtures("inline")
def test_a_campaign_goes_on_where_it_was_stopped(store: str, tmp_path: Path) -> None:
    whole = search(str(tmp_path / "whole"), "9")
    with pytest.raises(Killed):
        search(store, "9", Quiet(stops_after=4))
    watch = Quiet()
    assert search(store, "9", watch).classes == whole.classes
    assert watch.said[0] == "4 seeds were run before; going on."
    place = open_place(store).within(CAMPAIGN)
    (kept, *_) = whole.classes["lost"].kept
    with place.fetched(kept) as directory:
        there = sorted(path.name for path in directory.iterdir())
    here = tmp_path / "whole" / CAMPAIGN / kept
    assert there == sorted(path.name for path in here.iterdir())
    search(store, "2", fresh=True)
    assert open_place(store).within(f"{CAMPAIGN}.1").read(f"{kept}/{PLAN}")
    assert len(place.lines(LOG).splitlines()) < len(whole.classes) + 9


@pytest.mark.usefixtures("inline")
def test_what_is_half_written_is_no_result(bucket: str) -> None:
    whole = search(bucket, "9")
    place = open_place(bucket).within(CAMPAIGN)
    assert isinstance(place, Bucket)
    seed = whole.classes["lost"].seeds[0]
    (line,) = (name for name in place.names(LOG) if b'"seed":%d,"v' % seed in told(place, name))
    place.write(line, told(place, line)[:-1])  # one byte is missing
    place.write(f"{finding(seed)}/{PLAN}", b"")  # and the plan, which is written last
    watch = Quiet()
    assert search(bucket, "9", watch).classes == whole.classes
    assert watch.said[0] == "8 seeds were run before; going on."
    assert place.read(f"{finding(seed)}/{PLAN}")


def told(place: Bucket, name: str) -> bytes:
    return place.read(name) or b""


def test_a_finding_that_is_cut_short_has_no_plan(
    bucket: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = open_place(bucket)
    write, left = Bucket.write, iter(range(2))

    def write_two(self: Bucket, name: str, data: bytes) -> None:
        if next(left, None) is None:
            raise Killed
        write(self, name, data)

    monkeypatch.setattr(Bucket, "write", write_two)
    with pytest.raises(Killed), place.filled("run") as directory:
        for name in (PLAN, "results.json", "report.html"):
            Directory(directory).write(name, b"text")
    assert place.names() == ["run/report.html", "run/results.json"]


def test_a_corpus_and_mutants_are_kept_there(store: str) -> None:
    plans = [draw_plan(plain_subject("dledger", "safe"), seed) for seed in (1, 2)]
    corpus = open_place(store).within("corpus")
    assert write_corpus(corpus, [Entry(plan, frozenset(), 1.0) for plan in plans], []) == 2
    assert write_corpus(corpus, [Entry(plans[0], frozenset(), 1.0)], plans) == 1
    assert read_corpus(corpus, system="dledger", profile="safe") == plans[:1]
    outcome = Outcome(
        name="a", system="dledger", operator="o", breaks="b", code="c", seeds="1", budget_s=1.0,
        workloads=(),
    )  # fmt: skip
    Outcomes(store).add(outcome)
    assert Outcomes(store).by_name == {"a": outcome}
    assert open_place(beneath(store, "_mutants")).names()


def test_a_bucket_that_is_not_there_is_one_sentence(server: str) -> None:
    place = open_place(f"s3://nowhere/runs{server}")
    with pytest.raises(StoreError, match=r"^cannot write s3://nowhere/runs/a: "):
        place.write("a", b"1")


@pytest.mark.parametrize(
    ("url", "sentence"),
    [
        ("ftp://host/x", "give a directory, or object storage"),
        ("s3:/bucket", "give a directory, or object storage"),
        ("s3://key:secret@bucket/x", "^keys are not part of a URL"),
        ("s3://bucket/x?what=1", "can't be opened"),
    ],
)
def test_other_urls_are_refused(url: str, sentence: str) -> None:
    with pytest.raises(UsageError, match=sentence):
        open_place(url)


def test_what_needs_a_directory_refuses_a_url(capsys: pytest.CaptureFixture[str]) -> None:
    for words in (["analyze"], ["ctl", "ha-status"]):
        assert run_command([*words, "--store", "s3://bucket/x"]) == 254
        assert "give a directory; search and mutants alone take a URL" in capsys.readouterr().err
    with pytest.raises(UsageError, match="runs on real nodes need a directory"):
        plan_real(SearchRequest(cluster="local", store="s3://bucket/x"))
