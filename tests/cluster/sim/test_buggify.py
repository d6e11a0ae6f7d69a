"""Two levels of probability, keyed draws, a record, and an off switch that disturbs nobody else."""

from __future__ import annotations

import pytest

from shalott.broker.base.env import Env, never
from shalott.cluster.sim.buggify import Buggify, fired_in_run

pytestmark = pytest.mark.unit

SITES = ("journal.small_batch", "mesh.slow_redial", "promotion.slow")
ASKED = 200


def answers(buggify: Buggify, site: str, count: int = ASKED) -> list[bool]:
    return [buggify(site) for _ in range(count)]


def test_about_a_quarter_of_all_runs_have_a_site_active_and_it_fires_about_a_quarter() -> None:
    runs = [sum(answers(Buggify(seed, "n1"), "site")) for seed in range(400)]
    active = [fired for fired in runs if fired]
    assert 70 <= len(active) <= 130
    assert 0.2 < sum(active) / (len(active) * ASKED) < 0.3
    assert min(active) > 20, "a site is active or it is not"


def test_a_site_is_active_on_all_nodes_of_a_run_or_on_none_but_fires_apart() -> None:
    for seed in range(40):
        first, second = (answers(Buggify(seed, node), "site") for node in ("n1", "n2"))
        assert any(first) == any(second)
        assert not any(first) or first != second


def test_the_same_seed_gives_the_same_answers_whatever_other_sites_do() -> None:
    for seed in range(20):
        alone = {site: answers(Buggify(seed, "n1"), site) for site in SITES}
        together = Buggify(seed, "n1", disabled=SITES[:1])
        mixed: dict[str, list[bool]] = {site: [] for site in SITES}
        for _ in range(ASKED):
            for site in SITES:
                mixed[site].append(together(site))
        assert not any(mixed[SITES[0]])
        assert mixed[SITES[1]] == alone[SITES[1]]
        assert mixed[SITES[2]] == alone[SITES[2]]


def test_an_enabled_site_is_active_in_every_run_unless_it_is_disabled() -> None:
    for seed in range(40):
        drawn, none = Buggify(seed, "n1", enabled=SITES[:1]), SITES[:1]
        assert any(answers(drawn, SITES[0]))
        assert answers(drawn, SITES[1]) == answers(Buggify(seed, "n1"), SITES[1])
        assert not any(answers(Buggify(seed, "n1", enabled=none, disabled=none), SITES[0]))
        quiet = Buggify(seed, "n1", enabled=none, activation=0.0)
        assert any(answers(quiet, SITES[0]))
        assert not any(answers(quiet, SITES[1]))


def test_what_fired_is_recorded_a_site_and_a_run() -> None:
    nodes = [Buggify(3, node, activation=1.0) for node in ("n1", "n2")]
    expected: dict[str, int] = {}
    for buggify in nodes:
        for site in SITES:
            count = sum(answers(buggify, site))
            assert buggify.fired[site] == count
            assert buggify.asked[site] == ASKED
            expected[site] = expected.get(site, 0) + count
    assert fired_in_run(nodes) == expected


def test_inactive_sites_are_recorded_as_asked_only() -> None:
    buggify = Buggify(1, "n1", activation=0.0)
    assert not any(answers(buggify, "site"))
    assert buggify.fired == {}
    assert buggify.asked == {"site": ASKED}


def test_an_env_asks_what_it_was_given_and_else_never_misbehaves() -> None:
    def env(**given: object) -> Env:
        return Env("n1", 1, None, None, None, None, **given)  # type: ignore[arg-type]

    assert env().buggify is never
    assert not env().buggify("site")
    assert env(buggify=lambda site: site == "site").buggify("site")
    assert not env().has_bug("KB-1")
    assert env(bugs=("KB-1",)).has_bug("KB-1")
