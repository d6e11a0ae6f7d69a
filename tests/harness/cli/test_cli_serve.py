"""`shalott serve` as a process: it prints where it is, answers there, and ends on Ctrl-C."""

from __future__ import annotations

import importlib.util
import re
import signal
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from shalott.harness.cli.main import run_command
from tests.world.harness.served_store import RED, make_store

pytestmark = pytest.mark.explore

ENTRY = "from shalott.harness.cli.main import main; main()"
END_S = 60


@contextmanager
def served(store: Path) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """The process and its address."""
    words = [sys.executable, "-c", ENTRY, "serve", str(store), "--port", "0"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as made:
        try:
            assert made.stdout is not None
            said = made.stdout.readline()
            found = re.search(r"http://127\.0\.0\.1:\d+/", said)
            assert found, said
            yield made, found.group()
        finally:
            made.kill()


def test_it_prints_its_address_answers_there_and_ends_on_an_interrupt(tmp_path: Path) -> None:
    with served(make_store(tmp_path / "store")) as (process, address):
        with urllib.request.urlopen(f"{address}api/run?run={RED}", timeout=END_S) as answer:
            assert b'"verdict":"invalid"' in answer.read()
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=END_S)
        assert (process.returncode, err) == (0, "")


def test_it_ends_though_a_page_follows_a_run(tmp_path: Path) -> None:
    store = make_store(tmp_path / "store")
    live = "queue-mirrored/20261122T010000.000Z"
    with served(store) as (process, address):
        with urllib.request.urlopen(f"{address}api/run/follow?run={live}", timeout=END_S) as parts:
            assert parts.readline() == b"event: part\n"
            process.send_signal(signal.SIGINT)
            process.communicate(timeout=END_S)
        assert process.returncode == 0


def test_without_its_packages_a_sentence_says_how_to_install_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    find = importlib.util.find_spec
    monkeypatch.setattr(
        "shalott.harness.cli.serve.find_spec",
        lambda name: None if name == "starlette" else find(name),
    )
    assert run_command(["serve", str(tmp_path)]) == 254
    assert "needs starlette: pip install 'shalott[serve]'" in capsys.readouterr().err


def test_what_can_not_be_served_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_command(["serve", str(tmp_path / "none")]) == 254
    assert run_command(["serve", str(tmp_path), "--port", "70000"]) == 254
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert run_command(["serve", str(tmp_path), "--port", str(port)]) == 254
    said = capsys.readouterr().err
    assert "there is no store" in said
    assert "choose another --port" in said
