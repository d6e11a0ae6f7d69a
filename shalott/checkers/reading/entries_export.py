"""A history of any format in another one, without loss where the other can say it.

EDN can say everything. JSON has strings for keywords, arrays for sets; history.txt has no times and
no indexes; OpenChaos's files have milliseconds, and results of three kinds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Final

from shalott.checkers.engine import lib
from shalott.checkers.reading.edn import KEYED_COMMENT, EdnMap, encode
from shalott.checkers.reading.entries import EntrySource
from shalott.checkers.reading.jepsen_file import write_jepsen_file
from shalott.checkers.reading.openchaos import openchaos_lines

TEXTS: Final[dict[str, Callable[[EntrySource], Iterator[bytes]]]] = {
    "edn": lambda source: as_edn_file(source),
    "json": lambda source: _json_array(source),
    "log": lambda source: map(str.encode, log_lines(source.maps())),
    "openchaos": lambda source: map(str.encode, openchaos_lines(source.maps())),
}


def as_edn_file(source: EntrySource) -> Iterator[bytes]:
    """EDN, with the mark of keyed values if the source has it."""
    if source.is_keyed:
        yield f"{KEYED_COMMENT}\n".encode()
    yield from source.printed(lib.SHL_ENTRIES_EDN)


def _json_array(source: EntrySource) -> Iterator[bytes]:
    """One array, an object a line: what elle-cli reads."""
    between = b"[\n"
    for piece in source.printed(lib.SHL_ENTRIES_JSON):
        yield between + piece[:-1].replace(b"\n", b",\n")  # a string has no newline of its own
        between = b",\n"
    yield b"\n]\n" if between != b"[\n" else b"[]\n"


def log_lines(entries: Iterable[EdnMap]) -> Iterator[str]:
    """history.txt: process, type, f, value and error, with tabs between."""
    for entry in entries:
        fields = [encode(entry.get(name)) for name in ("process", "type", "f", "value")]
        error = entry.get("error")
        if error is not None:
            fields.append(str(error) if isinstance(error, str) else encode(error))
        yield "\t".join(field.replace("\t", " ").replace("\n", " ") for field in fields) + "\n"


def write_store(directory: Path, source: EntrySource, test: EdnMap, results: EdnMap | None) -> None:
    """A directory as Jepsen leaves one: test.jepsen, history.edn, history.txt and results.edn.
    Indexes count the entries from 0, since that is what they are to Jepsen."""
    directory.mkdir(parents=True, exist_ok=True)
    write_jepsen_file(directory / "test.jepsen", test, source.maps(), results)
    written = EntrySource.of_path(directory / "test.jepsen")
    for name, kind in (("history.edn", "edn"), ("history.txt", "log")):
        with (directory / name).open("wb") as file:
            file.writelines(TEXTS[kind](written))
    if results is not None:
        (directory / "results.edn").write_text(f"{encode(results)}\n")
