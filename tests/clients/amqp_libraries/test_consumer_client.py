"""What an enqueue through a library came to, and which libraries are refused before boot."""

from __future__ import annotations

import importlib.util
from typing import Any

import pytest

from shalott.clients.amqp_libraries.library_client import check_client, fate_of_enqueue
from shalott.clients.amqp_libraries.wire_rows import Published
from shalott.clients.cpp.process import require_library
from shalott.core.client import refuse_in_simulation
from shalott.core.errors import Definite, Indefinite, UsageError

pytestmark = pytest.mark.unit

BROKEN = ConnectionError("the stream was lost")


def test_ok_takes_the_librarys_word_and_a_confirm() -> None:
    assert fate_of_enqueue(Published(sent=1, acked=1), None, {}).type == "ok"


def test_how_often_it_was_sent_is_told() -> None:
    done = fate_of_enqueue(Published(sent=2, acked=1), None, {"to": ["q"]})
    assert done.extra == {"to": ["q"], "sent": 2}


@pytest.mark.parametrize(
    ("seen", "error", "words"),
    [
        (Published(), BROKEN, "nothing was sent"),
        (Published(sent=1, acked=1, returned=["312 NO_ROUTE"]), None, "returned: 312 NO_ROUTE"),
        (Published(sent=1, acked=1, returned=["312 NO_ROUTE"]), BROKEN, "returned"),
    ],
)
def test_certain_failures(seen: Published, error: Exception | None, words: str) -> None:
    with pytest.raises(Definite, match=words):
        fate_of_enqueue(seen, error, {})


@pytest.mark.parametrize(
    ("seen", "error", "words"),
    [
        (Published(sent=1), BROKEN, "the stream was lost"),
        (Published(sent=1, nacked=1), BROKEN, "the stream was lost"),
        (Published(sent=1, acked=1), BROKEN, "though it was confirmed"),
        (Published(sent=2, returned=["312 NO_ROUTE"]), BROKEN, "sent 2 times"),
        (Published(sent=1), None, "no confirm came"),
        (Published(), None, "nothing was sent"),
        (Published(), Indefinite("pika: no answer in 5 s"), "no answer"),
    ],
)
def test_nobody_knows(seen: Published, error: Exception | None, words: str) -> None:
    """Also where a library says confirmed and nothing was seen, and where it may send later."""
    with pytest.raises(Indefinite, match=words):
        fate_of_enqueue(seen, error, {})


@pytest.mark.parametrize("name", ["aio-pika", "pika"])
def test_simulations_have_no_libraries(name: Any) -> None:
    with pytest.raises(UsageError, match=f"--client {name} runs on real clusters only"):
        check_client(name, "sim")
    check_client("own", "sim")


@pytest.mark.parametrize("name", ["cpp", "java", "mixed"])
def test_rocketmqs_clients_are_refused_in_a_simulation_too(name: Any) -> None:
    with pytest.raises(UsageError, match=f"--client {name} runs on real clusters only"):
        refuse_in_simulation(name, "sim")
    refuse_in_simulation("own", "sim")


@pytest.mark.parametrize("name", ["aio-pika", "pika"])
def test_library_that_is_not_installed_is_one_sentence(
    name: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda module: None)
    with pytest.raises(UsageError) as refused:
        check_client(name, "local")
    wanted = f"--client {name} needs the package {name}: pip install shalott[clients]"
    assert str(refused.value) == wanted


def test_cpp_library_that_is_not_installed_is_one_sentence(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda module: None)
    with pytest.raises(UsageError, match="^--client cpp needs "):
        require_library()
