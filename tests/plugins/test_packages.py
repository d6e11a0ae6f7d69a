"""Plug-ins are packages of their own: they know Shalott by shalott.api alone."""

from __future__ import annotations

import pytest

from tests.tidy.sources import ROOT

pytestmark = pytest.mark.unit


def test_the_plug_ins_import_nothing_else_of_shalott() -> None:
    sources = list((ROOT / "plugins").glob("*/*/*.py"))
    assert sources
    for source in sources:
        for line in source.read_text().splitlines():
            if line.startswith(("import shalott.", "from shalott.")):
                assert line.split()[1] == "shalott.api", source
