"""What an original's files hold, by the program that reads them in its node."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import pytest

from shalott.broker.rocket.commitlog.codec import MAGIC_BLANK
from shalott.cluster.images.rocketmq.log_digest import BLANK, MAGIC, UNIT, answer
from shalott.cluster.systems.rocketmq_original.files import words_of

pytestmark = pytest.mark.unit

FILE_BYTES = 256


HEAD_BYTES = 28


def message(body: bytes, place: int = 0, queue: int = 0) -> bytes:
    """As much of one as is looked at; of three bytes it is 31 bytes long."""
    size = HEAD_BYTES + len(body)
    return struct.pack(">IIIiIq", size, MAGIC, 0, queue, 0, place) + body


def file(content: bytes) -> bytes:
    """As they are made: in full length, ahead."""
    return content.ljust(FILE_BYTES, b"\0")


def store(directory: Path, *files: bytes, units: tuple[tuple[int, int], ...] = ()) -> Path:
    log = directory / "commitlog"
    log.mkdir(parents=True)
    for place, content in enumerate(files):
        (log / f"{place * FILE_BYTES:020d}").write_bytes(file(content))
    queue = directory / "consumequeue" / "log" / "0"
    queue.mkdir(parents=True)
    content = b"".join(UNIT.pack(offset, size, 0) for offset, size in units)
    (queue / f"{0:020d}").write_bytes(content.ljust(10 * UNIT.size, b"\0"))
    return directory


def looked(directory: Path, *words: str) -> dict[str, Any]:
    found = answer(directory, *words)
    assert isinstance(found, dict)
    return found


def test_a_log_ends_where_its_last_message_does(tmp_path: Path) -> None:
    found = looked(store(tmp_path, message(b"one") + message(b"three")), "log")
    assert (found["min_offset"], found["max_offset"], found["next"]) == (0, 64, 64)


def test_what_a_broker_cut_away_is_no_part_of_its_log(tmp_path: Path) -> None:
    """Its bytes stay in the file, whole messages among them, and its queue's units as well."""
    whole = message(b"one") + message(b"two", 1) + message(b"cut", 2)
    cut = store(tmp_path / "cut", whole, units=((0, 31), (31, 31), (62, 31)))
    never = store(tmp_path / "never", whole[:62], units=((0, 31), (31, 31)))
    assert looked(cut, "--end=62", "log") == looked(never, "--end=62", "log")
    assert looked(cut, "--end=62", "queues") == looked(never, "queues")
    assert looked(cut, "queues")["count"] == 3
    assert words_of("/api/shalott/log-digest?from=0&block=9", 62)[0] == "--end=62"


@pytest.mark.parametrize("other", [message(b"new", 0, queue=1), message(b"new", 5)])
def test_a_unit_that_stayed_when_its_message_was_cut_away_is_none(
    tmp_path: Path, other: bytes
) -> None:
    """Where the message was that it points to there is another one by now."""
    log = message(b"one") + other
    stayed = store(tmp_path / "stayed", log, units=((0, 31), (31, 31)))
    never = store(tmp_path / "never", log, units=((0, 31),))
    assert looked(stayed, "queues") == looked(never, "queues")


def test_a_log_goes_on_in_the_next_file_behind_a_filler(tmp_path: Path) -> None:
    first = message(b"x" * 200)
    filler = struct.pack(">II", FILE_BYTES - len(first), BLANK)
    found = looked(store(tmp_path, first + filler, message(b"y" * 100)), "log")
    assert found["max_offset"] == FILE_BYTES + HEAD_BYTES + 100
    assert BLANK == MAGIC_BLANK & 0xFFFFFFFF, "our own brokers write the same filler"


def test_equal_bytes_have_equal_digests_and_others_have_not(tmp_path: Path) -> None:
    one = looked(store(tmp_path / "a", message(b"one")), "log", "0", "31")
    same = looked(store(tmp_path / "b", message(b"one") + message(b"more")), "log", "0", "31")
    other = looked(store(tmp_path / "c", message(b"two")), "log", "0", "31")
    assert one["digests"] == same["digests"] != other["digests"]


def test_smaller_blocks_find_the_first_byte(tmp_path: Path) -> None:
    one = looked(store(tmp_path / "a", message(b"abcd")), "log", "28", "32", "1")
    other = looked(store(tmp_path / "b", message(b"abXd")), "log", "28", "32", "1")
    differ = [left != right for left, right in zip(one["digests"], other["digests"], strict=True)]
    assert differ == [False, False, True, False]


def test_queues_count_what_is_in_the_log(tmp_path: Path) -> None:
    log = message(b"one") + message(b"two", 1)
    found = looked(store(tmp_path / "a", log, units=((0, 31), (31, 31), (62, 31))), "queues")
    assert found["count"] == 2  # the third is of what is not there
    fewer = looked(store(tmp_path / "b", log, units=((0, 31),)), "queues")
    assert fewer["count"] == 1 and fewer["digest"] != found["digest"]
    later = looked(store(tmp_path / "c", log, units=((0, 31), (31, 31))), "queues", "31")
    assert later["count"] == 1


def test_entries_of_dledger_frame_the_messages(tmp_path: Path) -> None:
    data = tmp_path / "dledger-n0" / "data"
    data.mkdir(parents=True)
    body = message(b"one")
    entry = struct.pack(">II", 1, 48 + len(body)) + b"\0" * 40 + body
    (data / f"{0:020d}").write_bytes(file(entry + entry))
    assert looked(tmp_path, "log")["max_offset"] == 2 * (48 + len(body))


def test_the_program_is_asked_in_the_words_of_our_management_api() -> None:
    assert words_of("/api/shalott/log-digest?from=5&block=16&to=90") == ("log", "5", "90", "16")
    assert words_of("/api/shalott/log-digest?from=0&block=65536&to=0") == ("log", "0", "0", "65536")
    assert words_of("/api/shalott/queue-digest?from=7") == ("queues", "7")
