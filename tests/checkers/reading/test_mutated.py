"""Damaged files: whatever the damage, a history or one clear sentence, never a crash.

The files that the fuzzer began with and those that it found (tests/fuzz) are damaged at random and
read, whole and in pieces. scripts/fuzz does the same without end, under sanitizers.
"""

from __future__ import annotations

import random
import re
import subprocess
from pathlib import Path

import pytest

from shalott.checkers.history.concurrent import ConcurrentHistory
from shalott.checkers.reading import read_history
from shalott.checkers.reading.text_history import read_text
from shalott.core.errors import UnreadableHistory
from tests.checkers.reading.written import is_whole, seen

pytestmark = pytest.mark.explore

FUZZ = Path(__file__).parents[2] / "fuzz"
FILES = sorted(path for kind in ("seeds", "found") for path in (FUZZ / kind).iterdir())
DIALECTS = ("jepsen", "shalott", "porcupine-etcd", "violin")  # as the first byte of a file says
MUTATIONS = 2_400
SENTENCE = re.compile(r", line \d+(, column \d+)?: [^\n]+")
PIECES = (b"{", b"}", b"[", b"]", b'"', b"\\", b"#_", b"##", b"\n", b"\x00", b"\xff", b";", b":ok",
          b":invoke", b"nil", b"99999999999999999999", b"#{", b",")  # fmt: skip


def damaged(content: bytes, rng: random.Random) -> bytes:
    """A few bytes changed, taken away, put in, doubled, or the end cut off."""
    data = bytearray(content)
    for _ in range(rng.randint(1, 4)):
        at = rng.randrange(len(data) + 1)
        match rng.randrange(5):
            case 0 if at < len(data):
                data[at] = rng.randrange(256)
            case 1:
                del data[at : at + rng.randint(1, 12)]
            case 2:
                data[at:at] = rng.choice(PIECES)
            case 3:
                other = rng.randrange(len(data) + 1)
                data[at:at] = data[other : other + rng.randint(1, 80)]
            case _:
                del data[at:]
    return bytes(data)


def read(path: Path, dialect: str, keyed: bool, piece: int) -> ConcurrentHistory | str:
    try:
        return read_text(path, dialect, keyed, piece)
    except UnreadableHistory as error:
        return str(error)


@pytest.mark.parametrize("part", range(4))
def test_a_damaged_file_is_a_history_or_a_sentence(tmp_path: Path, part: int) -> None:
    rng = random.Random(part)
    path = tmp_path / "history"
    histories = sentences = 0
    for _ in range(MUTATIONS // 4):
        content = rng.choice(FILES).read_bytes()
        dialect, keyed = DIALECTS[content[0] & 3], bool(content[0] & 4)
        path.write_bytes(damaged(content[2:], rng))
        keyed = keyed and dialect == "jepsen"
        whole = read(path, dialect, keyed, 1 << 20)
        pieces = read(path, dialect, keyed, rng.randint(1, 200))
        if isinstance(whole, str) or isinstance(pieces, str):
            assert whole == pieces
            assert re.match(
                rf"{re.escape(str(path))}, line \d+(, column \d+)?: [^\n]+$", str(whole)
            )
            sentences += 1
        else:
            assert is_whole(whole)
            assert seen(whole) == seen(pieces)
            assert whole.notes == pieces.notes
            histories += 1
    assert histories > 50 and sentences > 300


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_what_the_fuzzer_began_with_and_found(tmp_path: Path, path: Path) -> None:
    content = path.read_bytes()
    (tmp_path / "history").write_bytes(content[2:])
    how = DIALECTS[content[0] & 3], bool(content[0] & 4)
    whole = read(tmp_path / "history", *how, 1 << 20)
    pieces = read(tmp_path / "history", *how, content[1] * 2 + 8)  # as fuzz_read.c cuts it
    if isinstance(whole, ConcurrentHistory) and isinstance(pieces, ConcurrentHistory):
        assert seen(whole) == seen(pieces)
        assert whole.notes == pieces.notes
    else:
        assert whole == pieces
        assert path.parent.name == "found"


def test_random_bytes(tmp_path: Path) -> None:
    rng = random.Random(11)
    path = tmp_path / "history"
    for size in range(1, 120):
        path.write_bytes(rng.randbytes(size))
        with pytest.raises(UnreadableHistory):
            read_history(path)


def test_the_fuzzer_is_of_these_readers() -> None:
    """It is run by hand (scripts/fuzz), and would not be missed if it no longer compiled."""
    compiled = subprocess.run(
        ["gcc", "-std=gnu11", "-fsyntax-only", "-Wall", "-Wextra", "-Werror", FUZZ / "fuzz_read.c"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert compiled.returncode == 0, compiled.stderr
