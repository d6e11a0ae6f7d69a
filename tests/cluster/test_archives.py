"""What is unpacked of a node's archive, with tarfile's filters and without."""

from __future__ import annotations

import io
import tarfile
from pathlib import Path

import pytest

from shalott.cluster.node_files import unpack

pytestmark = pytest.mark.unit


@pytest.mark.parametrize("has_filters", [True, False])
def test_files_come_and_what_leads_elsewhere_does_not(
    has_filters: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not has_filters:
        monkeypatch.delattr(tarfile, "data_filter", raising=False)
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for name in ("data/log/a.log", "b.log", "../out.log", "/out.log"):
            entry = tarfile.TarInfo(name)
            entry.size = 2
            archive.addfile(entry, io.BytesIO(b"hi"))
        link = tarfile.TarInfo("link")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc"
        archive.addfile(link)
    buffer.seek(0)
    into = tmp_path / "into"
    with tarfile.open(fileobj=buffer) as archive:
        unpack(archive, into, without="data/")
    found = [str(path.relative_to(tmp_path)) for path in sorted(tmp_path.rglob("*.log"))]
    assert found == ["into/b.log", "into/log/a.log"]
    assert not (into / "link").exists()
