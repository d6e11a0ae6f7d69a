"""Whose doing it is where a library makes up the groups: what it decides itself is its own."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.checkers.groups.telling import Told, judged
from tests.checkers.groups.test_planted_groups import lost, skipped

pytestmark = pytest.mark.unit


def blamed(told: Told, client: str) -> dict[str, str | None]:
    """By kind of anomaly: who is blamed."""
    told.rules = replace(told.rules, client=client)
    anomalies = [each for result in judged(told).values() for each in result.anomalies]
    return {each.kind: each.detail.get("by") for each in anomalies}


def test_what_it_skips_is_the_librarys() -> None:
    assert blamed(skipped(), "cpp")["skipped"] == "client"


def test_what_our_own_client_finds_is_nobodys_but_the_brokers() -> None:
    assert set(blamed(skipped(), "own").values()) == {None}


def test_what_the_log_lost_is_the_brokers_whoever_consumes() -> None:
    assert blamed(lost(), "cpp")["lost"] is None
