"""SHA256SUMS: what a run's files were when they were written, so that damage is seen.

A bit that flips in a stored file may make it another file of the same kind: another history with
another verdict. A run's data files are therefore summed up in one file beside them, as ``sha256sum
-c`` reads it. A file that is not listed, as in runs of before, is read as it is.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from shalott.core.errors import StoreError

SUMS = "SHA256SUMS"
_LINE = re.compile(r"([0-9a-f]{64})  (\S+)")
BLOCK_BYTES = 1 << 20


def sums_text(directory: Path, names: Sequence[str]) -> str:
    """The file's text when these of its files were written anew, as far as they are there; the
    sums of others stay. Raises OSError."""
    try:
        lines = dict(_listed(directory))
    except StoreError:
        lines = {}  # it was damaged
    lines |= {name: _sum(directory / name) for name in names if (directory / name).is_file()}
    return "".join(f"{told}  {name}\n" for name, told in sorted(lines.items()))


def check_sum(path: Path) -> None:
    """Raises StoreError if a file is not what was written, with one sentence."""
    listed = _listed(path.parent)
    if path.name not in listed or not path.exists():
        return
    if not path.is_file():  # the end of a pipe may never come
        raise StoreError(f"cannot read {path}: it is no file")
    try:
        found = _sum(path)
    except OSError as error:
        raise StoreError(f"cannot read {path}: {error.strerror}") from error
    if found != listed[path.name]:
        raise StoreError(
            f"{path} is damaged, or was changed: it is not the file of which {SUMS} beside it has"
            " the sum"
        )


def _listed(directory: Path) -> Mapping[str, str]:
    """Sums by name; a line that is damaged lists nothing. Raises StoreError."""
    path = directory / SUMS
    if not path.is_file():
        return {}
    try:
        text = path.read_bytes().decode("utf-8", "replace")
    except OSError as error:
        raise StoreError(f"cannot read {path}: {error.strerror}") from error
    found: dict[str, str] = {}
    for line in text.splitlines():
        told = _LINE.fullmatch(line)
        if told is None:
            raise StoreError(f"{path} is damaged: a line of it is no sum of a file")
        found[told[2]] = told[1]
    return found


def _sum(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(BLOCK_BYTES):
            digest.update(block)
    return digest.hexdigest()
