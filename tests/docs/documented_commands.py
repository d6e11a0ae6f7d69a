"""Every command that a code block of README, CONTRIBUTING, docs or examples types, and its test.

A command is run as it stands, in the world that it names: README and tutorials by day where that is
seconds of simulation, all else at night. What needs another machine, or never ends, or is the test
run itself, is in ELSEWHERE with the test that does the same. docs/evidence/commands.md is the list.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from tests.docs.pages import BESIDE, DOCS, code_lines
from tests.tidy.sources import ROOT

DOCUMENT = DOCS / "evidence" / "commands.md"
ANALYSES = DOCS / "evidence" / "analyses"  # of findings
PROGRAMS = (
    "shalott",
    "scripts/",
    ".venv/",
    "python",
    "pip",
    "mkdocs",
    "docker",
    "pytest",
    "podman",
    "spark-submit",
)
INSTALLED = "scripts/release"
SHOWN = "tests/end_to_end/test_shown_output.py::test_a_document_shows_what_is_printed"
CTL = "tests/harness/cli/test_cli_ctl.py"
UP = "tests/end_to_end/test_up.py"
SPARK = "tests/spark_analysis/test_clusters.py"
EXISTING = "tests/cluster/existing/test_whole_runs.py::test_that_nothing_is_written_down_is_found"
SSH = "tests/cluster/ssh/test_runs.py::test_upstream_loses_what_one_side_of_a_partition_took"
SERVE = "tests/harness/cli/test_cli_serve.py"
REAL_SEARCH = (
    "tests/end_to_end/test_search_docker.py::test_plans_share_machines_and_the_same_command_goes_on"
)
ETCD = "tests/examples/test_examples.py"

# How commands begin -> the test that does what they say; the first that fits.
ELSEWHERE: Mapping[str, str] = {
    "scripts/demo --system": "tests/plugins/test_demo.py::test_one_command_sets_up_and_runs",
    "scripts/demo": "scripts/test-on",
    "scripts/test -e docker -- -k": (
        "tests/tidy/test_tiers.py::test_who_asks_for_a_test_gets_it_or_is_told_why_not"
    ),
    "scripts/test": ".ci/run",
    ".venv/bin/python -m pytest": ".ci/run",
    "scripts/setup java-client": ".ci/run",
    "python3 -m venv": INSTALLED,
    ".venv/bin/pip install": INSTALLED,
    "pip install": INSTALLED,
    "mkdocs build": "tests/docs/test_site_browser.py",
    ".venv/bin/shalott doctor": (
        "tests/harness/cli/test_doctor.py::test_the_machine_that_runs_the_tests_can_be_examined"
    ),
    "shalott doctor --ssh-hosts": (
        "tests/cluster/ssh/test_refusals.py::test_the_doctor_says_what_each_host_lacks"
    ),
    "shalott test --system mirrored --cluster ssh": SSH,
    "shalott test --system mirrored --cluster existing": EXISTING,
    "shalott clean --ssh-hosts": (
        "tests/cluster/test_sweep.py::test_what_a_killed_harness_leaves_is_swept"
    ),
    "shalott serve": f"{SERVE}::test_it_prints_its_address_answers_there_and_ends_on_an_interrupt",
    "shalott report store --master": (
        f"{SPARK}::test_a_report_on_a_cluster_says_what_it_says_here"
    ),
    "shalott report s3a": (f"{SPARK}::test_a_store_in_another_file_system_is_read_through_hadoop"),
    "shalott report store --follow": f"{SPARK}::test_a_store_is_followed",
    "shalott node mirrored": (
        f"{UP}::test_a_node_serves_clients_and_keeps_its_data_where_it_was_told"
    ),
    "shalott up controller": f"{UP}::test_a_node_of_a_log_tells_its_name_server_and_answers_ctl",
    "shalott up mirrored": (
        f"{UP}::test_a_cluster_of_containers_serves_clients_until_it_is_cleaned"
    ),
    "shalott report store --engine spark": (
        "tests/spark_analysis/test_report.py::test_every_run_is_a_line_and_the_last_says_it_all"
    ),
    "spark-submit": f"{SPARK}::test_spark_submit_reports",
    "shalott ctl elect-master": (
        f"{CTL}::test_an_election_is_asked_of_one_after_the_other_until_one_takes_it"
    ),
    "shalott ctl list_queues": (
        "tests/broker/rabbit/ctl/test_verbs.py::test_shalott_ctl_says_the_same"
    ),
    "shalott ctl cluster_status": (
        "tests/broker/rabbit/ctl/test_verbs.py::test_the_cluster_tells_of_itself"
    ),
    "docker exec NODE rabbitmqctl": (
        "tests/broker/rabbit/ctl/test_verbs.py::test_the_documents_lines"
    ),
    "shalott ctl": f"{CTL}::test_a_question_goes_to_every_node_and_is_told_as_tables",
    "shalott matrix nightly.toml": "tests/docs/test_nightly.py::test_our_own_night_has_cells",
    "shalott matrix plugins/nightly.toml": (
        "tests/plugins/test_packages.py::test_their_night_has_sixty_runs_of_each_under_safe"
    ),
    "shalott matrix --merge": (
        "tests/harness/matrix/test_matrix_night.py"
        "::test_200_cells_with_three_regressions_and_a_flaky_one_in_two_shards"
    ),
    "shalott bugs --original": (
        "tests/harness/originals/test_running.py::test_each_side_is_run_so_often_and_kept"
    ),
    "shalott test --workload consume --client CLIENT": (
        "tests/end_to_end/test_real_clients_local.py"
        "::test_a_library_brings_its_consumers_back_and_the_rows_say_so"
    ),
    "shalott test --workload group --client cpp": (
        "tests/end_to_end/test_real_clients_local.py"
        "::test_the_cpp_clients_members_and_what_they_do_by_themselves"
    ),
    "shalott test --workload group --client mixed": (
        "tests/end_to_end/test_java_clients_local.py::test_groups_of_java_members_come_to_their_end"
    ),
    "shalott test --workload log --client java": (
        "tests/end_to_end/test_java_clients_local.py"
        "::test_a_broker_that_loses_messages_is_found_by_java_clients_alone"
    ),
    "shalott test --compose": (
        "tests/end_to_end/test_compose_docker.py::test_the_guide_word_by_word"
    ),
    "shalott test --system etcd-debian": (
        f"{ETCD}::test_etcd_is_linearizable_with_quorum_reads_and_not_with_serializable_ones"
    ),
    "shalott test --system toy-register --profile safe": (
        f"{ETCD}::test_a_search_finds_nothing_where_reads_are_confirmed"
    ),
    "shalott test --system toy-register": (
        f"{ETCD}::test_a_search_in_worker_processes_finds_stale_reads_which_are_replayed_and_shrunk"
    ),
    "shalott search --system toy-register": (
        f"{ETCD}::test_a_search_in_worker_processes_finds_stale_reads_which_are_replayed_and_shrunk"
    ),
    "shalott new system": (
        "tests/harness/conformance/test_try_plugin.py"
        "::test_what_new_writes_keeps_every_point_that_one_boot_shows"
    ),
    "shalott try-plugin": (
        "tests/harness/conformance/test_try_plugin.py"
        "::test_what_new_writes_keeps_every_point_that_one_boot_shows"
    ),
    "shalott search --system mirrored --nemesis crash-loop": (
        f"{ETCD}::test_the_fault_is_injected_and_proved_in_processes"
    ),
    "shalott check etcd_000.log": (
        "tests/checkers/linearizability/test_linearizable_golden.py"
        "::test_the_verdict_is_the_published_one"
    ),
    "shalott search --cluster docker": REAL_SEARCH,
    "shalott shrink store/search": REAL_SEARCH,
    "shalott replay store/search": REAL_SEARCH,
    "shalott check tickets.edn": (
        "tests/harness/cli/test_cli_check_models.py::test_a_good_and_a_bad_history"
    ),
    "shalott analyze latest --load": (
        "tests/checkers/runs/test_extra_checkers.py::test_a_loaded_checker_judges_the_plans_that_it_fits"
    ),
}
# Longer than a submission waits.
LONG = (
    "shalott matrix night.toml",
    "shalott report night-store",
    "shalott runs night",
    "shalott search --profile safe --seeds 1000",
    "shalott search --profile upstream --seeds 50",
    "shalott search --system",
    "shalott search --workload",
    "shalott shrink",
    "shalott replay store/latest/minimal.json",
)
# What must have been done before the commands of a page.
RUN = "shalott test --cluster sim --time-limit 12 --seed 1"
BEFORE: Mapping[str, tuple[str, ...]] = {
    "docs/how-to/check-a-history.md": (RUN,),
    "docs/how-to/report-on-many-runs.md": (RUN,),
}


@dataclass(frozen=True, slots=True)
class Documented:
    """``page``: below the project. ``test``: what runs it, where test_commands.py does not."""

    page: str
    command: str
    test: str = ""

    @property
    def words(self) -> list[str]:
        return shlex.split(self.command, comments=True)

    @property
    def world(self) -> str:
        """The tier: of the world that it names; a run that names none takes the best there is."""
        if found := re.search(r"--cluster (\w+)", self.command):
            return found[1]
        boots = self.command.startswith(("shalott test --", "shalott prepare", "shalott bugs --or"))
        return "docker" if boots and "--help" not in self.command else "sim"

    @property
    def is_nightly(self) -> bool:
        by_day = self.page == "README.md" or self.page.startswith("docs/getting-started/")
        return self.world != "sim" or not by_day or self.command.startswith(LONG)


def documented() -> list[Documented]:
    """In the order of the pages; a command that a page types twice is in it once."""
    found: dict[tuple[str, str], Documented] = {}
    for page in _pages():
        name = page.relative_to(ROOT).as_posix()
        for language, command in code_lines(page):
            if command.startswith(PROGRAMS):
                test = SHOWN if language == "console" else _elsewhere(command)
                found.setdefault((name, command), Documented(name, command, test))
    return list(found.values())


def _pages() -> list[Path]:
    docs = sorted(page for page in DOCS.rglob("*.md") if ANALYSES not in page.parents)
    return [*(ROOT / name for name in BESIDE if name != "CHANGELOG.md"), *docs]


def _elsewhere(command: str) -> str:
    return next((test for begin, test in ELSEWHERE.items() if command.startswith(begin)), "")


def document() -> Iterator[str]:
    """The lines of docs/evidence/commands.md."""
    yield "<!-- Generated by `python -m tests.docs.documented_commands`: do not edit. -->"
    yield ""
    yield "# Documented commands"
    yield ""
    yield "For developers: every command of a code block in README, CONTRIBUTING, docs, examples,"
    yield "and the test that runs it; without a test's name it is tests/docs/test_commands.py, in"
    yield "the tier that is named. Lines of console blocks are compared with what is printed."
    page = ""
    for each in documented():
        if each.page != page:
            page = each.page
            yield ""
            yield f"## {page}"
            yield ""
        night = ", nightly" if each.is_nightly else ""
        yield f"- `{each.command}`: {each.test or each.world + night}"


if __name__ == "__main__":
    DOCUMENT.write_text("\n".join(document()) + "\n")
