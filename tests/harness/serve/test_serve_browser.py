"""The pages of a store in a real browser: by keys, on a phone, in the dark, and while a run grows.

With SHALOTT_PICTURES=DIRECTORY a few states of docs/how-to/browse-a-store.md are pictured there.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import quote

import pytest
import uvicorn

from shalott.harness.serve.app import build_app
from tests.world.chromium import Chromium, Page
from tests.world.harness.served_store import GREEN, LIVE, RED, make_store, recorded
from tests.world.waiting import until

pytestmark = pytest.mark.browser

HOSTILE = "<img src=x onerror=alert(1)>"
DESKTOP, PHONE = (1180, 760), (390, 844)
PLACES = ("", "nights", "night", "cell?cell=a/kill", f"run?run={RED}", f"run/history?run={RED}",
          f"run/plan?run={RED}", f"compare?run={RED}&run={GREEN}", "findings", "live")  # fmt: skip


@pytest.fixture(scope="module")
def chromium() -> Iterator[Chromium]:
    with Chromium() as started:
        yield started


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = make_store(tmp_path_factory.mktemp("pages") / "store")
    logs = made / RED / "nodes" / "n1"
    (logs / f"{HOSTILE}.log").write_text(f"</pre><script>document.title = 'hit'</script>{HOSTILE}")
    report = made / RED / "report.html"
    report.write_text(
        report.read_text().replace("</main>", f"<script>hit()</script>{HOSTILE}</main>")
    )
    return made


@contextmanager
def serving(store: Path) -> Iterator[str]:
    """The address of a server of that store."""
    config = uvicorn.Config(
        build_app(store, "store", host="127.0.0.1"), port=0, log_level="error", lifespan="off",
        timeout_graceful_shutdown=1,
    )  # fmt: skip
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        until(lambda: server.started, "the server listens")
        port = server.servers[0].sockets[0].getsockname()[1]
        yield f"http://127.0.0.1:{port}/"
    finally:
        server.should_exit = True
        thread.join()


@pytest.fixture(scope="module")
def address(store: Path) -> Iterator[str]:
    with serving(store) as made:
        yield made


@contextmanager
def opened(chromium: Chromium, address: str, place: str = "") -> Iterator[Page]:
    """A page that has nothing to complain about, and asked nobody but its server."""
    with chromium.page() as page:
        page.resize(*DESKTOP)
        show(page, address, place)
        yield page
        assert page.errors == []
        assert [url for url in page.requests if not url.startswith((address, "data:,"))] == []


def show(page: Page, address: str, place: str) -> None:
    before = page.loaded
    page.send("Page.navigate", url=address + quote(place, safe="/?=&"))
    until(lambda: page.ask("document.readyState") == "complete" and page.loaded > before, place)
    page.settle()


def text_of(page: Page, selector: str = "main") -> str:
    return str(page.ask(f"document.querySelector({selector!r})?.innerText ?? ''"))


def path_of(page: Page) -> str:
    """Of the page that hears keys; "" while one is loaded."""
    path = "decodeURIComponent(location.pathname + location.search)"
    return str(page.ask(f"document.readyState === 'complete' ? {path} : ''"))


def press(page: Page, key: str, code: int, text: str = "") -> None:
    told = {"key": key, "windowsVirtualKeyCode": code, **({"text": text} if text else {})}
    page.send("Input.dispatchKeyEvent", type="keyDown", **told)
    page.send("Input.dispatchKeyEvent", type="keyUp", key=key, windowsVirtualKeyCode=code)
    page.settle()


def picture(page: Page, name: str, height: int = DESKTOP[1]) -> None:
    folder = os.environ.get("SHALOTT_PICTURES")
    if folder:
        page.resize(page.ask("innerWidth"), height)
        page.settle()
        page.screenshot(Path(folder, name))


def test_keys_lead_from_the_list_to_a_run_and_back(chromium: Chromium, address: str) -> None:
    with opened(chromium, address) as page:
        press(page, "Tab", 9)
        assert page.ask("document.activeElement.textContent") == "Skip to the content"
        press(page, "Enter", 13, "\r")
        assert page.ask("document.activeElement.id") == "content"
        for key in ("j", "j", "k"):
            page.key(key)
        assert page.ask("document.activeElement.textContent") == "night-3-a-kill/0"
        press(page, "Enter", 13, "\r")
        until(lambda: path_of(page) == "/run?run=night-3-a-kill/0", "the run is shown")
        page.key("n")
        until(lambda: path_of(page) == "/nights", "the nights are shown")
        page.key("r")
        until(lambda: path_of(page) == "/", "the runs are shown")
        until(lambda: page.ask("document.readyState") == "complete", "it is loaded")
        page.key("/")
        page.write("12 lost")
        press(page, "Enter", 13, "\r")
        until(lambda: "1 of 14 runs" in text_of(page), "the list is narrowed")
        assert "verdict=" not in path_of(page)
        assert "seed=" not in path_of(page)


def test_two_runs_are_chosen_and_compared(chromium: Chromium, address: str) -> None:
    with opened(chromium, address, "?text=queue-mirrored") as page:
        boxes = "[...document.querySelectorAll('input[form=compare]')]"
        page.ask(f"{boxes}.forEach(box => box.click())")
        page.ask("document.querySelector('button[form=compare]').click()")
        until(lambda: path_of(page).startswith("/compare?"), "they are compared")
        until(lambda: "Timelines" in text_of(page), "it is shown")
        assert page.ask("document.querySelectorAll('svg.drawn').length") > 10
        page.ask("document.querySelector('.timelines').focus()")
        for _ in range(45):
            press(page, "ArrowRight", 39)
        told = text_of(page, "#readout")
        assert "A: " in told
        assert "B: " in told
        picture(page, "serve-compare.png", 1000)


def test_a_hostile_log_and_report_change_nothing(chromium: Chromium, address: str) -> None:
    place = f"run/text?run={RED}&file=nodes/n1/{HOSTILE}.log"
    with opened(chromium, address, place) as page:
        assert "</pre><script>" in text_of(page, "pre.text")
        assert page.ask("document.title") != "hit"
        assert page.ask("document.querySelector('main img, main script')") is None
    with chromium.page() as page:
        show(page, address, f"run/report?run={RED}")
        refused = [each for each in page.errors if "Content Security Policy" in each]
        # The script and the handler that somebody put there are refused, and nothing else is.
        assert len(refused) == len(page.errors)
        assert any("script" in each for each in refused)
        assert page.ask("document.querySelector('.tools').hidden") is False  # ours has run
        answer = page.ask("fetch('/api/runs').then(() => 'told', () => 'refused')")
        assert answer == "refused"


def test_nothing_is_wider_than_a_phone(chromium: Chromium, address: str) -> None:
    with opened(chromium, address) as page:
        page.resize(*PHONE)
        for place in PLACES:
            show(page, address, place)
            assert page.ask("document.documentElement.scrollWidth") <= PHONE[0], place
        show(page, address, "night")
        picture(page, "serve-phone.png", PHONE[1])


def test_pages_are_read_out_in_order(chromium: Chromium, address: str) -> None:
    """Landmarks, one heading of the first level, captions, labels, and names of what is drawn."""
    with opened(chromium, address) as page:
        for place in PLACES:
            show(page, address, place)
            for what, count in (
                ("main", 1), ("h1", 1), ("header", 1), ("footer", 1),
                ("table:not(:has(caption))", 0), ("th:not([scope])", 0),
                ("svg[role=img]:not([aria-label])", 0), ("iframe:not([title])", 0),
            ):  # fmt: skip
                assert page.ask(f"document.querySelectorAll('{what}').length") == count, (
                    place,
                    what,
                )
            unnamed = page.ask(
                "[...document.querySelectorAll('input:not([type=hidden]), select')]"
                ".filter(e => !e.labels?.length && !e.ariaLabel).map(e => e.name)"
            )
            assert unnamed == [], place


def test_it_is_dark_where_that_is_wanted(chromium: Chromium, address: str) -> None:
    with opened(chromium, address) as page:
        colour = "getComputedStyle(document.body).backgroundColor"
        assert page.ask(colour) == "rgb(251, 250, 247)"
        page.dark(True)
        assert page.ask(colour) == "rgb(20, 22, 27)"


def test_a_live_run_is_followed_to_its_end(chromium: Chromium, store: Path, address: str) -> None:
    recording = store / LIVE / "history.jsonl"
    with opened(chromium, address, f"run/live?run={LIVE}") as page:
        until(lambda: text_of(page, "#ok") == "32", "what was recorded is told")
        with recording.open("ab") as file:
            file.write(recorded(40, begin=40))
        until(lambda: text_of(page, "#ok") == "64", "what came since is told")
        assert "refused" in text_of(page, "#troubles")
        assert page.ask("document.querySelectorAll('#chart .ok').length") >= 8
        picture(page, "serve-live.png", 700)
        (store / LIVE / "results.json").write_text("{}")
        until(lambda: "It is over" in text_of(page, "#state"), "its end is told")
        assert page.ask("document.querySelector('#state a').getAttribute('href')").startswith(
            "/run"
        )
