"""What can be said of the agent without a host: it needs Python 3.9 and nothing else, its archive
is the same for the same sources, and its firewalls touch only what is their own."""

from __future__ import annotations

import ast
import subprocess
import sys
import zipfile
from io import BytesIO
from pathlib import Path

import pytest

from shalott.cluster.ssh.agent import firewall
from shalott.cluster.ssh.connection import Connection
from shalott.cluster.ssh.upload import AGENT, PACKAGE, SHARED, agent_archive, agent_sources

pytestmark = pytest.mark.unit

SOURCES = sorted([*AGENT.glob("*.py"), *(PACKAGE / name for name in SHARED)])
UPLOADED = agent_sources()
YOUNGER = ("asyncio.timeout", "asyncio.TaskGroup", "os.unshare", "slots=True", "kw_only=True")


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: path.name)
def test_the_agent_needs_python_3_9_and_its_library_alone(path: Path) -> None:
    text = path.read_text()
    tree = ast.parse(text, feature_version=(3, 9))
    assert not [word for word in YOUNGER if word in text]
    for node in ast.walk(tree):
        names = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = [node.module or ""]
        for name in names:
            path_in_archive = name.replace(".", "/")
            own = f"{path_in_archive}.py" in UPLOADED or name == "shalott.cluster.ssh.agent"
            assert own or name.partition(".")[0] in sys.stdlib_module_names, name


def test_the_archive_runs_by_itself_and_is_the_same_each_time(tmp_path: Path) -> None:
    archive = agent_archive()
    assert archive == agent_archive()
    path = tmp_path / "agent.pyz"
    path.write_bytes(archive)
    command = [sys.executable, "-I", "-S", str(path), "list", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    with zipfile.ZipFile(BytesIO(archive)) as opened:
        assert "shalott/cluster/ssh/agent/agent_server.py" in opened.namelist()


def test_a_table_of_nftables_is_replaced_as_a_whole() -> None:
    assert firewall.nft_script(firewall.table_of("ab12-n1"), ["10.0.0.2", "fd00::2"]) == (
        "table inet shalott_ab12_n1\n"
        "delete table inet shalott_ab12_n1\n"
        "table inet shalott_ab12_n1 {\n"
        "  chain arriving {\n"
        "    type filter hook input priority -200; policy accept;\n"
        "    ip saddr { 10.0.0.2 } counter drop\n"
        "    ip6 saddr { fd00::2 } counter drop\n"
        "  }\n}\n"
    )
    assert "drop" not in firewall.nft_script("shalott_x", [])


def test_a_node_without_power_is_silenced_toward_its_peers_and_clients() -> None:
    assert firewall.silence_script("dark", ["10.0.0.2", "fd00::2"], [5672, 25672]) == (
        "table inet dark\n"
        "delete table inet dark\n"
        "table inet dark {\n"
        "  chain leaving {\n"
        "    type filter hook output priority -200; policy accept;\n"
        "    ip daddr { 10.0.0.2 } drop\n"
        "    ip6 daddr { fd00::2 } drop\n"
        "    tcp sport { 5672, 25672 } drop\n"
        "  }\n}\n"
    )
    assert "daddr" not in firewall.silence_script("dark", [], [5672])


def test_a_chain_of_iptables_is_replaced_as_a_whole() -> None:
    assert firewall.chain_script("SHALOTT-x", ["10.0.0.2"]) == (
        "*filter\n:SHALOTT-x - [0:0]\n-A SHALOTT-x -s 10.0.0.2 -j DROP\nCOMMIT\n"
    )
    assert len(firewall.chain_of("0123456789ab-a-node-with-a-long-name")) == 28


def test_a_connection_whose_way_is_broken_is_closed_without_a_word() -> None:
    """Or what recovers it would end, and who asks the agent would wait for ever."""
    closed: list[str] = []

    class Way:
        def close(self) -> None:
            closed.append("way")

    class Behind:
        def close(self) -> None:
            raise EOFError

    connection = object.__new__(Connection)
    connection._client, connection._jump = Behind(), Way()  # type: ignore[assignment]
    connection.close()
    assert closed == ["way"]
