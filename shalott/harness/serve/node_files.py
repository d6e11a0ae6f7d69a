"""What the nodes wrote, as text: a window of a file at a time, and a search over all of a run.

Node logs are other people's text. Bytes that are no UTF-8 are shown as such, colours of terminals
are taken out, other control characters are made visible, and a line is cut after so many
characters. A search has a number of bytes and a time that it takes at most. A pattern is RE2's,
which never goes back in the text; counted repetitions are refused, for they make one pattern as
large as thousands, and RE2 slow in proportion.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from typing import BinaryIO

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from shalott.harness.run.store import RESULTS
from shalott.harness.serve.log_time import place_of_time
from shalott.harness.serve.request import (
    Query,
    Refused,
    RunPath,
    StoredFile,
    StoreFiles,
    link,
    seconds_as_ns,
    shown,
)

WINDOW_BYTES = 128 << 10
CONTEXT_BYTES = 2 << 10  # before the second that is asked for
LINE_MAX = 2000
BLOCK_BYTES = 1 << 20
SEARCH_BYTES_MAX = 256 << 20
SEARCH_S_MAX = 5.0
HITS_MAX = 200
HITS_A_FILE_MAX = 50
PATTERN_MAX = 200
_TERMINAL = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]{0,200}(?:\x07|\x1b\\)|[@-Z\\-_])")
# Control characters, and those that turn the direction of the text around them.
_COUNTED = re.compile(r"\{\s*,?\s*\d")
_UNSEEN = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]")
TEXT_ENDS = (
    *(".txt", ".log", ".json", ".jsonl", ".xml", ".conf", ".config", ".toml", ".yaml", ".yml"),
    *(".properties", ".incomplete", ".out", ".err", ".html", ".md", ".csv"),
)


class ListedFile(msgspec.Struct, frozen=True, kw_only=True):
    """``href``: where its text is shown; ``raw``: the file itself."""

    name: str
    bytes: int
    is_text: bool
    href: str
    raw: str


class Line(msgspec.Struct, frozen=True, kw_only=True):
    """``at``: the byte at which it begins."""

    at: int
    text: str
    cut: bool = False


class TextWindow(msgspec.Struct, frozen=True, kw_only=True):
    """Lines of a file from a byte on, or around a second of the run. ``next``: where the following
    window begins, None at the end; ``before``: where the preceding one does, None at the
    beginning."""

    run: str
    file: str
    href: str
    raw: str
    bytes: int
    at: int
    before: int | None
    next: int | None
    last: int  # where the last window begins
    lines: tuple[Line, ...]
    at_s: str = ""  # the second that was asked for
    marked: int | None = None  # the byte at which the first line of it begins


class Hit(msgspec.Struct, frozen=True, kw_only=True):
    file: str
    href: str  # the window that begins with it
    line: Line


class SearchResult(msgspec.Struct, frozen=True, kw_only=True):
    """``whole``: everything was looked through; else ``why`` not."""

    run: str
    text: str
    pattern: bool
    hits: tuple[Hit, ...]
    files: int
    searched_bytes: int
    whole: bool
    why: str


def listed(run: RunPath, file: StoredFile) -> ListedFile:
    name = file.name.rpartition("/")[2]
    return ListedFile(
        name=shown(file.name),
        bytes=file.bytes,
        is_text=name.endswith(TEXT_ENDS) or "." not in name,
        href=link("/run/text", run=run.name, file=file.name),
        raw=link("/run/raw", run=run.name, file=file.name),
    )


def text_window(places: StoreFiles, query: Query) -> TextWindow:
    """Raises Refused."""
    run = places.run(query.file_name("run"))
    name = query.file_name("file")
    at = query.number("at", 0)
    at_s = query.text("at_s")
    with places.opened(run, name) as file:
        size = file.seek(0, 2)
        marked = _place_of(places, run, file, at_s) if at_s else None
        at = min(at, size) if marked is None else _line_before(file, marked)
        file.seek(at)
        data = file.read(WINDOW_BYTES)
        if at + len(data) < size:  # end with a whole line, unless there is none
            data = data[: data.rfind(b"\n") + 1] or data
        before = _window_before(file, at) if at else None
        last = _window_before(file, size) if size else 0
    after = at + len(data)
    return TextWindow(
        run=run.name,
        file=shown(name),
        href=link("/run/text", run=run.name, file=name),
        raw=link("/run/raw", run=run.name, file=name),
        bytes=size,
        at=at,
        before=before,
        next=after if after < size else None,
        last=last,
        lines=tuple(_lines(data, at)),
        at_s=at_s,
        marked=marked,
    )


def _place_of(places: StoreFiles, run: RunPath, file: BinaryIO, at_s: str) -> int | None:
    """Where that second begins; None if the file's lines do not say. Raises Refused."""
    start_wall_ns = 0
    try:
        with places.opened(run, RESULTS) as results:
            began = msgspec.json.decode(results.read(), type=_Began)
        start_wall_ns = began.virtual_started_ns or began.started_wall_ns
    except (Refused, msgspec.MsgspecError, UnicodeError):
        pass  # seconds since the run's start are found nevertheless
    return place_of_time(file, seconds_as_ns("at_s", at_s), start_wall_ns)


class _Began(msgspec.Struct):
    started_wall_ns: int = 0
    virtual_started_ns: int | None = None


def _line_before(file: BinaryIO, at: int) -> int:
    """Where the line begins that is some way before a place."""
    begin = max(0, at - CONTEXT_BYTES)
    file.seek(begin)
    data = file.read(at - begin)
    return begin + (data.find(b"\n") + 1 if begin else 0)


def _window_before(file: BinaryIO, at: int) -> int:
    """Where a window begins that ends at or before ``at``, at the beginning of a line."""
    begin = max(0, at - WINDOW_BYTES)
    if begin == 0:
        return 0
    file.seek(begin)
    data = file.read(at - begin)
    cut = data.find(b"\n", 0, len(data) - 1)
    return begin + cut + 1 if cut >= 0 else begin


def _lines(data: bytes, at: int) -> Iterator[Line]:
    for line in data.splitlines(keepends=True) if b"\n" not in data else _by_newline(data):
        yield _line(line, at)
        at += len(line)


def _by_newline(data: bytes) -> Iterator[bytes]:
    begin = 0
    while begin < len(data):
        end = data.find(b"\n", begin) + 1 or len(data)
        yield data[begin:end]
        begin = end


def _line(line: bytes, at: int) -> Line:
    kept = line[: 4 * LINE_MAX].rstrip(b"\r\n")
    text = cleaned(kept.decode("utf-8", "replace"))
    return Line(at=at, text=text[:LINE_MAX], cut=len(text) > LINE_MAX or len(line) > 4 * LINE_MAX)


def cleaned(text: str) -> str:
    """Without the terminal's colours, and with control characters that are seen."""
    return _UNSEEN.sub(_seen, _TERMINAL.sub("", text))


def _seen(found: re.Match[str]) -> str:
    code = ord(found.group())
    return chr(0x2400 + code) if code < 0x20 else f"\\u{code:04x}"


def search_files(
    places: StoreFiles, query: Query, clock_s: Callable[[], float] = time.monotonic
) -> SearchResult:
    """Every line of the run's text files that has the text, or fits the pattern. Raises Refused."""
    run = places.run(query.file_name("run"))
    text, pattern = query.text("text"), query.flag("pattern")
    if not text or len(text) > PATTERN_MAX:
        raise Refused(400, f"Give a text of 1 to {PATTERN_MAX} characters to look for.")
    _try_pattern(text, pattern)
    files, more = places.files(run)
    found = _Search(text, pattern, clock_s() + SEARCH_S_MAX, clock_s)
    if more:
        found.why = "There are more files than are listed."
    for file in files:
        if not listed(run, file).is_text:
            continue
        if found.is_over():
            break
        found.files += 1
        try:
            with places.opened(run, file.name) as opened:
                for line in found.lines(opened):
                    found.hits.append(_hit(run, file, line))
        except Refused:  # it is gone since it was listed
            continue
    return SearchResult(
        run=run.name,
        text=text,
        pattern=pattern,
        hits=tuple(found.hits),
        files=found.files,
        searched_bytes=found.bytes,
        whole=not found.why,
        why=found.why,
    )


class _Search:
    """One search, and how far it got. ``why``: why it did not look through everything."""

    def __init__(
        self, text: str, pattern: bool, until_s: float, clock_s: Callable[[], float]
    ) -> None:
        self.text, self.pattern = text, pattern
        self.hits: list[Hit] = []
        self.files = 0
        self.bytes = 0
        self.why = ""
        self._until_s, self._clock_s = until_s, clock_s

    def is_over(self) -> bool:
        """Whether a limit is reached; then ``why`` says which."""
        if len(self.hits) >= HITS_MAX:
            self.why = f"It stopped after {HITS_MAX} hits."
        elif self.bytes >= SEARCH_BYTES_MAX:
            self.why = f"It stopped after {self.bytes:,} bytes."
        elif self._clock_s() > self._until_s:
            self.why = f"It stopped after {SEARCH_S_MAX:g} s and {self.bytes:,} bytes."
        else:
            return False
        return True

    def lines(self, file: BinaryIO) -> Iterator[Line]:
        """Those of one file."""
        own = 0
        for block, at in _blocks(file, SEARCH_BYTES_MAX - self.bytes):
            if self.is_over():
                return
            self.bytes += len(block)
            for line in _matching(block, at, self.text, self.pattern):
                yield line
                own += 1
                if own == HITS_A_FILE_MAX:
                    self.why = f"Of a file {HITS_A_FILE_MAX} hits are shown."
                    return
                if self.is_over():
                    return


def _hit(run: RunPath, file: StoredFile, line: Line) -> Hit:
    href = link("/run/text", run=run.name, file=file.name, at=line.at)
    return Hit(file=shown(file.name), href=href, line=line)


def _try_pattern(text: str, pattern: bool) -> None:
    if pattern and _COUNTED.search(text):
        raise Refused(400, "Repetitions may not be counted here: use * or +, or a plain text.")
    try:
        _fits(pa.array([b""], type=pa.binary()), text, pattern)
    except pa.ArrowInvalid as error:
        why = str(error).partition("\n")[0][:200]
        raise Refused(400, f"That is no pattern: {why}") from error


def _fits(lines: pa.Array, text: str, pattern: bool) -> pa.Array:
    if pattern:
        return pc.match_substring_regex(lines, text, ignore_case=True)
    return pc.match_substring(lines, text, ignore_case=True)


def _blocks(file: BinaryIO, most: int) -> Iterator[tuple[bytes, int]]:
    """Whole lines, a block at a time, with the byte at which each block begins."""
    rest, at = b"", 0
    while most > 0 and (data := file.read(min(BLOCK_BYTES, most))):
        most -= len(data)
        block = rest + data
        end = block.rfind(b"\n") + 1
        if end == 0 and len(block) >= 4 * BLOCK_BYTES:
            end = len(block)  # a huge line is looked through in parts
        if end:
            yield block[:end], at
            at += end
        rest = block[end:]
    if rest:
        yield rest, at


def _matching(block: bytes, at: int, text: str, pattern: bool) -> Iterator[Line]:
    lines = list(_by_newline(block))
    fits = _fits(pa.array([line.rstrip(b"\r\n") for line in lines], pa.binary()), text, pattern)
    if not pc.any(fits).as_py():
        return
    for line, wanted in zip(lines, fits.to_pylist(), strict=True):
        if wanted:
            yield _line(line, at)
        at += len(line)
