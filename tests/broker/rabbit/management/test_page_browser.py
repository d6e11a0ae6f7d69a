"""The management page in a real browser, on small clusters of processes: what is seen of a healthy
cluster, of mirrors that are behind, of messages on their way round a ring, and of a partition.

With SHALOTT_PICTURES=DIRECTORY the pictures of docs/reference/management.md are made
(scripts/pictures).
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from shalott.broker.base.http_client import Asked
from tests.broker.rabbit.amqp.pika_flows import PERSISTENT, connected
from tests.world.chromium import Chromium, Page
from tests.world.processes.rabbit import NodeProcess, nodes
from tests.world.waiting import until

pytestmark = pytest.mark.browser

NAMES = ("n1", "n2", "n3")
HOSTILE = "<img src=x onerror=alert(1)>"
UNNOTICED_MS = 60_000  # a node that is stopped is not missed
NOTICED_MS = 3_000
DESKTOP, PHONE = (1000, 640), (390, 844)
TAB, ENTER = 9, 13
BAD = "rgb(194, 26, 26)"  # --bad, by day


@pytest.fixture(scope="module")
def chromium() -> Iterator[Chromium]:
    with Chromium() as started:
        yield started


@contextmanager
def running(directory: Path, net_tick_ms: int) -> Iterator[dict[str, NodeProcess]]:
    with nodes(directory, NAMES) as made:
        for node in made:
            node.config = msgspec.structs.replace(node.config, net_tick_ms=net_tick_ms)
            node.start()
        for node in made:
            node.await_running(NAMES)
        cluster = {node.name: node for node in made}
        policy = {"ha-mode": "all", "ha-sync-mode": "automatic"}
        ask(cluster["n1"], "PUT", "/api/policies/%2F/ha", {"pattern": "^", "definition": policy})
        yield cluster


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, NodeProcess]]:
    with running(tmp_path_factory.mktemp("page"), UNNOTICED_MS) as made:
        declare(made["n1"], HOSTILE)
        declare(made["n1"], "orders", *[b"order"] * 12)
        yield made


def ask(node: NodeProcess, method: str, path: str, body: Any = None) -> Any:
    content = b"" if body is None else msgspec.json.encode(body)
    asked = Asked("127.0.0.1", node.management_port, timeout_s=30)
    answer = asyncio.run(asked.request(method, path, content))
    assert answer.status < 300, answer
    return msgspec.json.decode(answer.body) if answer.body else None


def declare(node: NodeProcess, name: str, *bodies: bytes) -> None:
    with connected(node.address) as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        channel.queue_declare(name, durable=True)
        for body in bodies:
            channel.basic_publish("", name, body, PERSISTENT)


def send(node: NodeProcess, name: str, *bodies: bytes) -> None:
    """Without confirms: they would not come."""
    with connected(node.address) as connection:
        channel = connection.channel()
        for body in bodies:
            channel.basic_publish("", name, body, PERSISTENT)


@contextmanager
def opened(chromium: Chromium, node: NodeProcess) -> Iterator[Page]:
    """The page of that node, logged in, asking every second. What it loads is the node's, and it
    has nothing to complain about."""
    origin = f"http://127.0.0.1:{node.management_port}/"
    with chromium.page() as page:
        page.resize(*DESKTOP)
        page.send("Page.navigate", url=origin)
        sees(page, "Log in")
        for name in ("name", "password"):
            page.ask(f"document.querySelector('[name={name}]').focus()")
            page.write("guest")
        press(page, ENTER, "\r")
        sees(page, "Nodes")
        page.ask(
            "(e => { e.value = '1000'; e.dispatchEvent(new Event('change')) })"
            "(document.getElementById('every'))"
        )
        yield page
        assert page.errors == []
        assert [url for url in page.requests if not url.startswith((origin, "data:,"))] == []


def press(page: Page, code: int, text: str = "") -> None:
    key = {TAB: "Tab", ENTER: "Enter"}[code]
    told = {"key": key, "windowsVirtualKeyCode": code, **({"text": text} if text else {})}
    page.send("Input.dispatchKeyEvent", type="keyDown", **told)
    page.send("Input.dispatchKeyEvent", type="keyUp", key=key, windowsVirtualKeyCode=code)
    page.settle()


def text_of(page: Page, selector: str = "main") -> str:
    return str(page.ask(f"document.querySelector({selector!r})?.innerText ?? ''"))


def sees(page: Page, *words: str) -> None:
    until(lambda: all(word in text_of(page) for word in words), f"the page says {words}")


def show(page: Page, place: str) -> None:
    page.ask(f"location.hash = {place!r}")


def row_of(page: Page, word: str) -> str:
    """The first row with a cell that begins with that word and ends there; "" if there is none."""
    rows: Sequence[str] = page.ask(
        "[...document.querySelectorAll('main tbody tr')].map(each => each.innerText)"
    )
    cells = ((each, [cell.split("\n")[0].strip() for cell in each.split("\t")]) for each in rows)
    return next((each for each, found in cells if word in found), "")


def picture(page: Page, name: str, height: int = DESKTOP[1]) -> None:
    folder = os.environ.get("SHALOTT_PICTURES")
    if folder:
        width = page.ask("innerWidth")
        page.resize(width, height)
        page.settle()
        page.screenshot(Path(folder, name))


def test_a_healthy_cluster(chromium: Chromium, cluster: dict[str, NodeProcess]) -> None:
    with opened(chromium, cluster["n1"]) as page:
        for name in NAMES:
            assert "running" in row_of(page, name)
            assert "n1, n2, n3" in row_of(page, name)
        assert "not whole" not in text_of(page)
        assert page.ask("document.title") == "Overview · n1 · Shalott"
        page.dark(True)
        assert page.ask("getComputedStyle(document.body).backgroundColor") == "rgb(20, 24, 28)"
        picture(page, "management-overview.png", 560)
        page.dark(False)
        show(page, "#/users")
        sees(page, "guest", "administrator")


def test_a_wrong_password_is_told(chromium: Chromium, cluster: dict[str, NodeProcess]) -> None:
    with chromium.page() as page:
        page.send("Page.navigate", url=f"http://127.0.0.1:{cluster['n1'].management_port}/")
        sees(page, "Log in")
        page.ask("document.querySelector('[name=name]').value = 'guest'")
        page.ask("document.querySelector('form button').click()")
        sees(page, "Login failed")


def test_names_are_text_and_mirrors_are_counted(
    chromium: Chromium, cluster: dict[str, NodeProcess]
) -> None:
    with opened(chromium, cluster["n1"]) as page:
        show(page, "#/queues")
        sees(page, "orders", HOSTILE)
        until(lambda: "+2" in row_of(page, "orders"), "both mirrors are synchronised")
        assert row_of(page, "orders").split()[:3] == ["orders", "/", "n1"]
        assert "12" in row_of(page, "orders")
        assert page.ask("document.querySelector('main img')") is None
        # The policy's hint names the mirrors, and the keyboard gets to it.
        page.ask("document.querySelector('main .tip.tag').focus()")
        hint = text_of(page, "main .tip.tag [role=tooltip]")
        assert "Mirrors: n2, n3" in hint.replace("n3, n2", "n2, n3")
        page.key("/")
        page.write("ORD")
        until(lambda: HOSTILE not in text_of(page), "what does not match is hidden")
        assert "orders" in text_of(page)
        name = "%3Cimg%20src%3Dx%20onerror%3Dalert(1)%3E"
        for place in ("queue", "ring"):
            show(page, f"#/{place}/%2F/{name}")
            until(lambda: HOSTILE in text_of(page, "h1"), f"its {place} is shown")
            assert page.ask("document.querySelector('main img')") is None


def test_clients_are_listed_with_what_they_do(
    chromium: Chromium, cluster: dict[str, NodeProcess]
) -> None:
    tag = "<b>tag</b>"
    with opened(chromium, cluster["n1"]) as page, connected(cluster["n2"].address) as connection:
        channel = connection.channel()
        channel.queue_declare("taken", auto_delete=True)
        channel.basic_qos(prefetch_count=7)
        channel.basic_consume("taken", lambda *delivery: None, consumer_tag=tag)
        for place, words in (
            ("consumers", ("taken", tag, "n2", "7")),
            ("channels", ("n2", "guest")),
            ("connections", ("n2", "guest", "AMQP 0-9-1")),
            ("queue/%2F/taken", ("(default exchange)", tag)),
        ):
            show(page, f"#/{place}")
            sees(page, *words)
            assert page.ask(
                "[...document.querySelectorAll('main b')].every(b => b.textContent != 'tag')"
            )


def test_keys_reach_everything(chromium: Chromium, cluster: dict[str, NodeProcess]) -> None:
    with opened(chromium, cluster["n1"]) as page:
        page.send("Page.reload")  # so that nothing has had the focus
        sees(page, "Nodes")
        press(page, TAB)
        assert page.ask("document.activeElement.textContent") == "Skip to the content"
        press(page, ENTER, "\r")
        assert page.ask("document.activeElement.id") == "content"
        for key, heading in (("q", "Queues"), ("c", "Each node's view"), ("p", "Policies")):
            page.key(key)
            until(lambda wanted=heading: wanted in text_of(page, "h1"), heading)  # type: ignore[misc]
        focusable = page.ask(
            "[...document.querySelectorAll('a[href], button, input, select, .tip')]"
            ".every(each => each.tabIndex >= 0)"
        )
        assert focusable


def test_a_policy_is_added_and_deleted(chromium: Chromium, cluster: dict[str, NodeProcess]) -> None:
    with opened(chromium, cluster["n1"]) as page:
        show(page, "#/policies")
        sees(page, "ha-sync-mode")
        page.ask("document.querySelector('main [name=name]').focus()")
        page.write("mine")
        press(page, ENTER, "\r")
        until(lambda: "mine" in row_of(page, "mine"), "it is listed")
        listed = ask(cluster["n2"], "GET", "/api/policies/%2F/mine")
        assert listed["definition"] == {"ha-mode": "all", "ha-sync-mode": "automatic"}
        page.ask("document.querySelector('[aria-label=\"Delete policy mine\"]').click()")
        until(lambda: not row_of(page, "mine"), "it is gone")


def test_mirrors_that_are_behind_are_red_until_they_are_synchronised(
    chromium: Chromium, cluster: dict[str, NodeProcess]
) -> None:
    none = {"pattern": "^late$", "priority": 1, "definition": {"max-length": 1000}}
    ask(cluster["n1"], "PUT", "/api/policies/%2F/late", none)
    declare(cluster["n1"], "late", *[b"late"] * 5)
    by_hand = {"ha-mode": "all", "ha-sync-mode": "manual"}
    ask(cluster["n1"], "PUT", "/api/policies/%2F/late", {**none, "definition": by_hand})
    with opened(chromium, cluster["n1"]) as page:
        show(page, "#/queues")
        until(lambda: "+2" in row_of(page, "late"), "its mirrors are there")
        colour = page.ask(
            "getComputedStyle([...document.querySelectorAll('main .tip.bad')]"
            ".find(each => each.textContent.startsWith('+2'))).color"
        )
        assert colour == BAD
        show(page, "#/queue/%2F/late")
        sees(page, "2 unsynchronised: ", "(default exchange)", "Nobody consumes.")
        picture(page, "management-queue.png", 760)
        page.ask("document.querySelector('[data-do=sync]').focus()")
        press(page, ENTER, "\r")
        until(lambda: "unsynchronised" not in text_of(page), "they are synchronised")
        assert text_of(page).count("yes") >= 3


def test_nothing_is_wider_than_a_phone(chromium: Chromium, cluster: dict[str, NodeProcess]) -> None:
    places = ("overview", "cluster", "queues", "policies", "exchanges", "channels", "users")
    with opened(chromium, cluster["n1"]) as page:
        page.resize(*PHONE)
        for place in (*places, "queue/%2F/orders", "ring/%2F/orders"):
            show(page, f"#/{place}")
            sees(page, {"cluster": "Who sees whom"}.get(place, ""))
            until(lambda: page.ask("document.querySelector('main h1') !== null"), place)
            assert page.ask("document.documentElement.scrollWidth") <= PHONE[0], place


def test_messages_on_their_way_round(chromium: Chromium, cluster: dict[str, NodeProcess]) -> None:
    """A node that is stopped keeps what its left neighbour sends it from getting on."""
    path = "/api/shalott/queues/%2F/orders/ring"
    (ring,) = ask(cluster["n1"], "GET", path)["rings"]
    last = ring["members"][-1].partition("<")[2].partition(".")[0]
    process = cluster[last].process
    assert process is not None
    with opened(chromium, cluster["n1"]) as page:
        show(page, "#/ring/%2F/orders")
        sees(page, "Nothing: every broadcast has come home")
        assert page.ask("document.querySelectorAll('svg .member').length") == 3
        process.send_signal(signal.SIGSTOP)
        try:
            send(cluster["n1"], "orders", b"test", b"test")
            flights = "document.querySelectorAll('svg .flight').length"
            until(lambda: page.ask(flights) >= 2, "both are drawn on their way")
            sees(page, 'Published "test"', "pub, the first", "no answer in 2000 ms")
            assert page.ask("document.querySelectorAll('svg .member.away').length") == 1
            picture(page, "management-ring.png", 1010)
        finally:
            process.send_signal(signal.SIGCONT)
        sees(page, "Nothing: every broadcast has come home")
        assert page.ask(flights) == 0


def test_a_partition_is_understood_from_the_page(chromium: Chromium, tmp_path: Path) -> None:
    with running(tmp_path, NOTICED_MS) as cluster, opened(chromium, cluster["n1"]) as page:
        declare(cluster["n1"], "orders", *[b"order"] * 3)
        show(page, "#/queues")
        until(lambda: "+2" in row_of(page, "orders"), "both mirrors are synchronised")
        process = cluster["n3"].process
        assert process is not None
        process.send_signal(signal.SIGSTOP)
        try:
            for name in ("n1", "n2"):  # n3 would leave the succession to who still has it
                cluster[name].await_claims(lambda seen: seen["running_nodes"] == ["n1", "n2"])
            show(page, "#/overview")
            sees(page, "The cluster is not whole.", "n3 is unreachable from here")
            assert "unreachable from here" in row_of(page, "n3")
            send(cluster["n1"], "orders", b"order", b"order")
        finally:
            process.send_signal(signal.SIGCONT)
        show(page, "#/cluster")
        sees(page, "2 masters, 2 messages apart")
        apart = {
            "n1": ["n1", "itself", "runs with it", "ran apart"],
            "n2": ["n2", "runs with it", "itself", "ran apart"],
            "n3": ["n3", "ran apart", "ran apart", "itself"],
        }
        for name, cells in apart.items():
            until(lambda n=name, c=cells: row_of(page, n).split("\t") == c, name)  # type: ignore[misc]
        held = ["master 5 messages", "mirror 5 messages", "master 3 messages"]

        def is_held() -> bool:
            cells = row_of(page, "orders").split("\t")[1:4]
            return [cell.partition(",")[0] for cell in cells] == held

        until(is_held, "each node's own messages are told")
        page.resize(*PHONE)
        page.dark(True)
        assert page.ask("document.documentElement.scrollWidth") <= PHONE[0]
        picture(page, "management-partition-phone.png", 1250)
        page.resize(*DESKTOP)
        page.dark(False)
        picture(page, "management-partition.png", 560)
        show(page, "#/ring/%2F/orders")
        sees(page, "The queue has 2 rings: the nodes run apart.")
        assert page.ask("document.querySelectorAll('main svg').length") == 2
