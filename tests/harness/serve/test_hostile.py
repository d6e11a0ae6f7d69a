"""What pages must not do, whatever stands in a store or in a question: nothing outside the store is
told, no text of somebody else becomes markup, nothing takes long, and everything is answered.
"""

from __future__ import annotations

import io
import os
import re
import shutil
import time
import zipfile
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from shalott.harness.serve import guard as report_policy
from shalott.harness.serve.node_files import search_files
from shalott.harness.serve.request import Refused, StoreFiles, read_query
from tests.harness.serve.conftest import Asking
from tests.world.harness.served_store import GREEN, RED, make_store, row, write_table

pytestmark = pytest.mark.unit

SECRET = "what stands outside the store"
SCRIPT = "<script>alert(1)</script>"
IMAGE = "<img src=x onerror=alert(1)>"
LONG_S = 8.0  # nothing that is asked here may take so long, on a busy machine too


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store in which a broker, or whoever could write there, has left all it can."""
    top = tmp_path_factory.mktemp("hostile")
    store = make_store(top / "store")
    outside = top / "outside"
    shutil.copytree(store / GREEN, outside)
    (outside / "secret.txt").write_text(SECRET)
    (outside / "log.txt").write_text(SECRET)
    run = store / RED
    node = run / "nodes" / "n1"
    (run / "out.txt").symlink_to(outside / "secret.txt")
    (run / "outdir").symlink_to(outside, target_is_directory=True)
    (run / "loop").symlink_to("loop")
    (run / "other.txt").symlink_to(store / GREEN / "log.txt")
    (store / "linked-run").symlink_to(outside, target_is_directory=True)
    os.mkfifo(node / "pipe.log")
    (node / f"{IMAGE}.log").write_text("an ordinary line\n")
    (node / '"><b>.log').write_text("another\n")
    (node / os.fsdecode(b"bytes-\xff\xfe.log")).write_text("a line of no name\n")
    (node / "back\\..\\slash:.log").write_text("x\n")
    (node / "hostile.log").write_bytes(
        b"\x1b[31mred\x1b[0m " + SCRIPT.encode() + b"\nbytes \xff\xfe\x00 end\n"
        b"\xe2\x80\xaeturned\n</pre>" + IMAGE.encode() + b"\n"
    )
    (node / "huge.log").write_bytes(b"begin " + b"x" * 3_000_000 + b"needle\nafter\n")
    (node / "bomb.log").write_bytes((b"a" * 20_000 + b"!\n") * 50)
    return store


@pytest.fixture(scope="module")
def asking(hostile: Path) -> Asking:
    return Asking(hostile)


# -- names -----------------------------------------------------------------------------------------

FILES = {
    "parent": "../../../outside/secret.txt",
    "parent of a part": "nodes/../../../../outside/secret.txt",
    "parent that stays inside": "nodes/../log.txt",
    "itself": "./log.txt",
    "empty part": "nodes//n1/broker.log",
    "slash at the end": "log.txt/",
    "encoded twice": "%2e%2e/%2e%2e/%2e%2e/outside/secret.txt",
    "encoded slash": "..%2f..%2f..%2foutside%2fsecret.txt",
    "backslashes": "..\\..\\..\\outside\\secret.txt",
    "NUL": "log.txt\0.html",
    "link out": "out.txt",
    "directory that is a link out": "outdir/secret.txt",
    "loop of links": "loop",
    "link into another run": "other.txt",
    "pipe": "nodes/n1/pipe.log",
    "directory": "nodes/n1",
    "longer than any name": "a" * 5000,
    "deeper than any name": "/".join("a" * 200),
    "half a character": os.fsdecode(b"\xff"),
    "no name": "",
}


@pytest.mark.parametrize("file", FILES.values(), ids=FILES.keys())
@pytest.mark.parametrize("path", ["/run/raw", "/run/text", "/api/run/text"])
def test_a_name_that_is_no_file_of_the_run_leads_nowhere(
    asking: Asking, path: str, file: str
) -> None:
    answer = asking.get(path, encoded(run=RED, file=file))
    assert answer.status_code == 404
    assert SECRET not in answer.text


def test_an_absolute_name_leads_nowhere(hostile: Path, asking: Asking) -> None:
    file = hostile.parent / "outside" / "secret.txt"
    for run, name in ((RED, str(file)), (str(file.parent), "secret.txt")):
        answer = asking.get("/run/raw", encoded(run=run, file=name))
        assert answer.status_code == 404
        assert SECRET not in answer.text


RUNS = {
    "parent": "../outside",
    "parent after a run": f"{RED}/../../../outside",
    "link out": "linked-run",
    "the store": ".",
    "nothing": "",
    "NUL": f"{RED}\0",
    "a directory that is none": "queue-mirrored",
    "markup": IMAGE,
    "lines": "a\r\nSet-Cookie: b=c",
}


@pytest.mark.parametrize("run", RUNS.values(), ids=RUNS.keys())
@pytest.mark.parametrize(
    "path", ["/run", "/run/zip", "/run/report", "/run/history", "/api/run/follow", "/run/search"]
)
def test_a_name_that_is_no_run_leads_nowhere(asking: Asking, path: str, run: str) -> None:
    answer = asking.get(path, encoded(run=run, file="log.txt", text="outside"))
    assert answer.status_code == 404
    assert SECRET not in answer.text
    assert IMAGE not in answer.text
    assert "set-cookie" not in answer.headers


@pytest.mark.parametrize(
    "path",
    ["/assets/../app.py", "/assets/%2e%2e/app.py", "/assets/..%2fapp.py", "/assets/serve.css/x",
     "//outside/secret.txt", "/%2e%2e/outside/secret.txt", "/assets/%00", "/assets/serve.css%00"],
)  # fmt: skip
def test_a_path_leads_to_no_file_but_ours(asking: Asking, path: str) -> None:
    assert asked_raw(asking, path).status_code == 404


def test_links_are_neither_listed_nor_packed_nor_searched(asking: Asking) -> None:
    names = [each["name"] for each in asking.told("/run", run=RED)["files"]]
    assert not {"out.txt", "loop", "other.txt", "nodes/n1/pipe.log"} & {*names}
    assert not [name for name in names if name.startswith("outdir")]
    with zipfile.ZipFile(io.BytesIO(asking.get("/run/zip", {"run": RED}).content)) as archive:
        packed = [archive.read(name) for name in archive.namelist()]
    assert not [data for data in packed if SECRET.encode() in data]
    assert asking.told("/run/search", run=RED, text=SECRET)["hits"] == []


def test_a_link_that_is_put_in_place_of_a_file_is_not_followed(
    hostile: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the look and the opening: the look says that all is well, and it no longer is."""
    places = StoreFiles(hostile)
    run = places.run(RED)
    monkeypatch.setattr(places, "_resolved", lambda base, name: run.path / name)
    for name in ("out.txt", "outdir/secret.txt"):
        with pytest.raises(Refused), places.opened(run, name) as file:
            pytest.fail(f"it opened: {file.read()!r}")


def test_names_in_a_zip_can_only_be_unpacked_below_it(asking: Asking) -> None:
    with zipfile.ZipFile(io.BytesIO(asking.get("/run/zip", {"run": RED}).content)) as archive:
        names = archive.namelist()
    top = RED.replace("/", "-") + "/"
    assert all(
        name.startswith(top) and re.fullmatch(r"[\w./%+=@,()\[\]~#! -]+", name) for name in names
    )
    assert f"{top}nodes/n1/back%5C..%5Cslash%3A.log" in names
    assert f"{top}nodes/n1/bytes-%FF%FE.log" in names


# -- text ------------------------------------------------------------------------------------------


class Markup(HTMLParser):
    """Keeps the elements that only a hostile text would bring: ours have no handlers."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        names = [name for name, _ in attrs]
        own = tag == "img" or (tag in ("script", "b") and not attrs)
        if own or any(name.startswith("on") for name in names):
            self.found.append(self.get_starttag_text() or tag)


def markup_of(text: str) -> list[str]:
    parser = Markup()
    parser.feed(text)
    return parser.found


def test_names_of_files_are_text(asking: Asking) -> None:
    page = asking.page("/run", run=RED)
    assert "&lt;img src=x onerror=alert(1)&gt;.log" in page
    assert markup_of(page) == []
    found = asking.told("/run", run=RED)["files"]
    odd = next(each for each in found if "bytes-" in each["name"])
    assert asking.get("/api" + odd["href"]).json()["lines"][0]["text"] == "a line of no name"
    marked = next(each for each in found if IMAGE in each["name"])
    shown = asking.get(marked["href"]).text
    assert markup_of(shown) == []
    assert "an ordinary line" in shown


def test_a_log_is_text_whatever_it_holds(asking: Asking) -> None:
    page = asking.page("/run/text", run=RED, file="nodes/n1/hostile.log")
    assert markup_of(page) == []
    assert "red &lt;script&gt;alert(1)&lt;/script&gt;" in page  # the colour is gone
    assert "bytes \ufffd\ufffd\u2400 end" in page
    assert "\\u202eturned" in page
    assert "\x1b" not in page
    found = asking.page("/run/search", run=RED, text=SCRIPT)
    assert markup_of(found) == []
    assert "1 lines in" in found


def test_a_raw_file_is_text_and_runs_nothing(asking: Asking) -> None:
    for file in ("nodes/n1/hostile.log", "report.html"):
        answer = asking.get("/run/raw", {"run": RED, "file": file})
        assert answer.headers["content-type"] == "text/plain; charset=utf-8"
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["content-security-policy"].startswith("sandbox; default-src 'none'")


def test_a_huge_line_is_cut_and_found(asking: Asking) -> None:
    (hit,) = asking.told("/run/search", run=RED, text="needle")["hits"]
    assert hit["line"]["cut"]
    assert len(hit["line"]["text"]) == 2000
    window = asking.told("/run/text", run=RED, file="nodes/n1/huge.log")
    assert len(str(window)) < 100_000
    assert window["next"] == 128 << 10


def test_words_of_the_table_are_text(tmp_path: Path) -> None:
    said = row(
        f"a/{IMAGE}", name=IMAGE, headline=SCRIPT, cell=f"{IMAGE}'\"", night=f"{IMAGE}&x=y",
        system=IMAGE, nemesis=[IMAGE], commit=IMAGE, valid=SCRIPT,
        anomalies=[{"checker": IMAGE, "kind": IMAGE, "count": 1, "broken": True}],
    )  # fmt: skip
    write_table(tmp_path, [said])
    asking = Asking(tmp_path)
    for path, parameters in (
        ("/", {}),
        ("/", {"text": IMAGE, "anomaly": IMAGE, "system": '"><b>', "night": '"><b>'}),
        ("/nights", {}),
        ("/night", {}),
        ("/cell", {"cell": said["cell"]}),
        ("/run", {"run": said["run"]}),
    ):
        assert markup_of(asking.page(path, **parameters)) == [], path
    assert asking.told("/runs", cell=said["cell"])["rows"][0]["verdict"] == "no verdict"


def test_a_report_runs_no_script_but_ours(hostile: Path, asking: Asking) -> None:
    policy = asking.get("/run/report", {"run": RED}).headers["content-security-policy"]
    assert policy.startswith("sandbox allow-scripts; default-src 'none'; script-src 'sha256-")
    assert "allow-same-origin" not in policy
    (scripts,) = re.findall(r"script-src ([^;]+);", policy)
    assert re.fullmatch(r"('sha256-[A-Za-z0-9+/]+=*' ?)+", scripts)
    html = (hostile / RED / "report.html").read_text()
    own = re.findall(r"<script>(.*?)</script>", html, re.DOTALL)
    assert own
    assert not {*own} - {*report_policy.known_scripts()}
    assert all(f"'sha256-{report_policy._digest(text)}'" in scripts for text in own)


# -- files that are not what they are called -------------------------------------------------------


def replaced(path: Path, data: bytes) -> Callable[[], None]:
    before = path.read_bytes()
    path.write_bytes(data)
    return lambda: path.write_bytes(before) and None


PLANS = {
    "another version": b'{"version": 99, "name": "<b>x</b>", "faults": [{"id": "<b>"}]}',
    "too deep": b'{"a":' * 5000 + b"1" + b"}" * 5000,
    "torn": b'{"version": 2, "name": "que',
    "no object": b"[1, 2, 3]",
    "no text": b"\xff\xfe\x00\x01",
    "other kinds": b'{"version": [], "faults": {"a": 1}, "cluster": 7, "workload": null}',
    "nothing": b"",
}


@pytest.mark.parametrize("data", PLANS.values(), ids=PLANS.keys())
@pytest.mark.parametrize("name", ["plan.json", "results.json"])
def test_a_plan_or_verdict_that_is_none_is_shown_nevertheless(
    hostile: Path, asking: Asking, name: str, data: bytes
) -> None:
    undo = replaced(hostile / RED / name, data)
    try:
        for path in ("/run", "/run/plan", "/run/history"):
            answer = asking.get(path, {"run": RED})
            assert answer.status_code == 200
            assert markup_of(answer.text) == []
        compared = asking.get("/compare", {"run": [RED, GREEN]})
        assert compared.status_code == 200
        assert markup_of(compared.text) == []
    finally:
        undo()


@pytest.mark.parametrize(
    "data",
    [b"", b"PAR1", b"PAR1" + b"\0" * 100 + b"PAR1", b"PAR1" + b"\xff\xff\xff\x7fPAR1", b"text"],
    ids=["empty", "begun", "zeros", "a length beyond the file", "no parquet"],
)
def test_a_torn_history_is_told(hostile: Path, asking: Asking, data: bytes) -> None:
    undo = replaced(hostile / RED / "history.parquet", data)
    try:
        answer = asking.get("/api/run/history", {"run": RED})
        assert answer.status_code == 422
        assert "can't be read" in answer.json()["error"]
        assert asking.get("/run", {"run": RED}).status_code == 200
        assert "can&#39;t be read" in asking.page("/compare", run=[RED, GREEN])
    finally:
        undo()


def test_a_history_with_other_columns_is_told(hostile: Path, asking: Asking) -> None:
    for table in (pa.table({"x": [1]}), pa.table({"index": ["a"], "f": [1]})):
        sink = io.BytesIO()
        pq.write_table(table, sink)
        undo = replaced(hostile / RED / "history.parquet", sink.getvalue())
        try:
            assert asking.get("/api/run/history", {"run": RED}).status_code == 422
        finally:
            undo()


def test_a_torn_table_leaves_what_was_read_before(tmp_path: Path) -> None:
    write_table(tmp_path, [row("a/1"), row("a/2")])
    asking = Asking(tmp_path)
    assert asking.told("/runs")["total"] == 2
    whole = (tmp_path / "runs.parquet").read_bytes()
    for data in (whole[: len(whole) // 2], b"", b"PAR1" * 50):
        (tmp_path / "runs.parquet").write_bytes(data)
        told = asking.told("/runs")
        assert told["total"] == 2
        assert "can't be read now" in told["notes"][0]
    (tmp_path / "runs.parquet").write_bytes(whole)
    assert asking.told("/runs")["notes"] == []


# -- questions -------------------------------------------------------------------------------------

REFUSED = {
    "page": {"page": "-1"},
    "page of many digits": {"page": "9" * 400},
    "rows": {"rows": "100000"},
    "seed": {"seed": "1e9"},
    "seed beyond 64 bits": {"seed": "9223372036854775808"},
    "digits of another script": {"seed": "\u0663"},
    "verdict": {"verdict": "red"},
    "order": {"order": "valid; drop"},
    "text": {"text": "x" * 501},
}


@pytest.mark.parametrize("parameters", REFUSED.values(), ids=REFUSED.keys())
def test_a_question_out_of_bounds_is_refused(asking: Asking, parameters: dict[str, str]) -> None:
    answer = asking.get("/api/runs", parameters)
    assert answer.status_code == 400
    assert len(answer.json()["error"]) < 200


HISTORY_REFUSED = {
    "at": {"at": "99999999999999999999"},
    "time": {"from_s": "nan"},
    "time that has no end": {"to_s": "inf"},
    "negative time": {"from_s": "-1"},
    "value": {"value": "0x10"},
    "outcome": {"type": "ok' or 1=1"},
}


@pytest.mark.parametrize("parameters", HISTORY_REFUSED.values(), ids=HISTORY_REFUSED.keys())
def test_a_filter_out_of_bounds_is_refused(asking: Asking, parameters: dict[str, str]) -> None:
    assert asking.get("/api/run/history", {"run": RED, **parameters}).status_code == 400


def test_giant_offsets_are_the_end(asking: Asking) -> None:
    most = 2**63 - 1
    assert asking.told("/run/history", run=RED, at=most)["rows"] == []
    window = asking.told("/run/text", run=RED, file="log.txt", at=most)
    assert (window["lines"], window["next"]) == ([], None)
    found = asking.told("/runs", page=most)
    assert found["page"] == found["pages"]


BOMBS = {
    "nested": ("(a+)+$", 200),
    "alternatives": ("(a|aa)+$", 200),
    "many classes": ("(a|b)*a" + "(a|b)" * 30 + "$", 200),
    "counted": ("a{1000}" * 20, 400),
    "counted behind a backslash": ("\\\\{1000}", 400),
    "open-ended": ("(x{,900}){,900}", 400),
    "no pattern": ("(", 400),
    "look behind": ("(?<=a)b", 400),
}


@pytest.mark.parametrize(("pattern", "status"), BOMBS.values(), ids=BOMBS.keys())
def test_no_pattern_takes_long(asking: Asking, pattern: str, status: int) -> None:
    begun = time.monotonic()
    answer = asking.get("/api/run/search", {"run": RED, "text": pattern, "pattern": "1"})
    assert answer.status_code == status
    assert time.monotonic() - begun < LONG_S


def test_a_pattern_is_no_pattern_in_the_list_of_runs(asking: Asking) -> None:
    assert asking.told("/runs", text="(.*)*")["matching"] == 0


def test_a_search_ends_at_its_time(hostile: Path) -> None:
    ticks = iter(range(0, 1000, 2))
    found = search_files(
        StoreFiles(hostile), read_query(f"run={RED}&text=queue"), clock_s=lambda: next(ticks)
    )
    assert not found.whole
    assert "It stopped after 5 s" in found.why


def test_more_parameters_than_any_form_has_are_refused(asking: Asking) -> None:
    assert asked_raw(asking, "/api/runs?" + "&".join("a=b" for _ in range(300))).status_code == 400
    assert asked_raw(asking, "/api/runs?text=" + "a" * 9000).status_code == 414


def test_bytes_that_are_no_text_are_answered(asking: Asking) -> None:
    for query in ("text=%ff%fe", "system=%c0%ae", "cell=%ed%a0%80", "night=%00", "commit=%ff"):
        assert asked_raw(asking, f"/api/runs?{query}").status_code == 200
        assert asked_raw(asking, f"/?{query}").status_code == 200


# -- headers ---------------------------------------------------------------------------------------

HOSTS = {
    "another site": "evil.example",
    "another site with our port": "evil.example:8017",
    "a site that begins like us": "127.0.0.1.evil.example",
    "a site that ends like us": "evil-localhost",
    "a user": "localhost@evil.example",
    "two colons": "localhost:80:evil",
    "a path": "localhost/evil",
    "nothing": "",
    "another machine": "10.0.0.7:8017",
    "half an address": "[::1",
    "behind the brackets": "[::1]evil",
}


@pytest.mark.parametrize("host", HOSTS.values(), ids=HOSTS.keys())
def test_a_host_that_is_not_us_is_not_answered(asking: Asking, host: str) -> None:
    answer = asking.get("/api/runs", headers={"Host": host})
    assert answer.status_code == 421
    assert RED not in answer.text


@pytest.mark.parametrize(
    "host", ["localhost", "LOCALHOST:1", "127.0.0.1:8017", "[::1]:9", "127.9.9.9"]
)
def test_our_own_names_are_answered(asking: Asking, host: str) -> None:
    assert asking.get("/api/runs", headers={"Host": host}).status_code == 200


def test_who_listens_to_others_is_called_by_numbers_and_names(hostile: Path) -> None:
    asking = Asking(hostile, host="0.0.0.0")
    for host, status in (("10.0.0.7:80", 200), ("localhost", 200), ("evil.example", 421)):
        assert asking.get("/api/runs", headers={"Host": host}).status_code == status


def test_two_hosts_are_none(asking: Asking) -> None:
    answer = asking.get("/api/runs", headers=[("Host", "localhost"), ("Host", "evil.example")])
    assert answer.status_code == 421


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "FOO"])
def test_nothing_can_be_changed(asking: Asking, method: str) -> None:
    for path in ("/", "/run", "/run/raw", "/api/runs", "/assets/serve.css"):
        assert asking.get(path, method=method).status_code == 405


def test_every_answer_says_how_it_must_be_taken(asking: Asking) -> None:
    for path, parameters in (
        ("/", {}), ("/nope", {}), ("/api/runs", {}), ("/assets/serve.js", {}),
        ("/run", {"run": RED}), ("/run/raw", {"run": RED, "file": "log.txt"}),
        ("/run/zip", {"run": RED}), ("/run/report", {"run": RED}), ("/run", {"run": "x"}),
    ):  # fmt: skip
        headers = asking.get(path, parameters).headers
        assert headers["x-content-type-options"] == "nosniff", path
        assert headers["referrer-policy"] == "no-referrer"
        assert headers["cross-origin-resource-policy"] == "same-origin"
        policy = headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert ("'unsafe-inline'" in policy) == (path == "/run/report")
        assert "server" not in headers
    page = asking.get("/").headers["content-security-policy"]
    assert "frame-ancestors 'none'" in page
    assert "script-src 'self';" in page


def test_a_name_puts_nothing_into_a_header(tmp_path: Path) -> None:
    run = tmp_path / 'a"; filename=x' / "b\r\nSet-Cookie: c=d"
    run.mkdir(parents=True)
    (run / "plan.json").write_text("{}")
    name = run.relative_to(tmp_path).as_posix()
    answer = Asking(tmp_path).get("/run/zip", {"run": name})
    assert answer.status_code == 200
    told = answer.headers["content-disposition"]
    assert re.fullmatch(r'attachment; filename="[A-Za-z0-9._-]+\.zip"', told)
    assert "set-cookie" not in answer.headers


def encoded(**parameters: str) -> Any:
    """Also of names that hold bytes which are no UTF-8."""
    from urllib.parse import urlencode

    return urlencode(parameters, errors="surrogateescape")


def asked_raw(asking: Asking, target: str) -> httpx.Response:
    """The request as it stands: no client tidies its path or its query."""
    import asyncio

    path, _, query = target.partition("?")
    sent: list[Any] = []

    async def ask() -> None:
        from urllib.parse import unquote

        scope = {
            "type": "http", "method": "GET", "path": unquote(path), "raw_path": path.encode(),
            "query_string": query.encode(), "headers": [(b"host", b"localhost")], "root_path": "",
            "scheme": "http", "http_version": "1.1", "server": ("127.0.0.1", 8017),
            "client": ("127.0.0.1", 5), "asgi": {"version": "3.0"},
        }  # fmt: skip

        async def receive() -> Any:
            return {"type": "http.request", "body": b"", "more_body": False}

        async def send(message: Any) -> None:
            sent.append(message)

        await asking.app(scope, receive, send)

    asyncio.run(ask())
    return httpx.Response(sent[0]["status"], headers=sent[0]["headers"])


def test_what_is_told_is_json_that_can_be_read(asking: Asking) -> None:
    for path in ("/api/run", "/api/run/plan", "/api/run/history"):
        assert msgspec.json.decode(asking.get(path, {"run": RED}).content)
