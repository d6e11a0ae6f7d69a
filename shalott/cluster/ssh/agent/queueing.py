"""Rules that give what comes from some addresses to the kernel's packet queue, which the packet
engine serves (packets.py): one chain of iptables or one table of nftables.

They stand before the host's own filter, which sees the packets afterwards. While no engine serves
the queue everything passes. Only our own chain or table is ever touched.
"""

from __future__ import annotations

import shutil
import subprocess
import zlib
from collections.abc import Sequence

from shalott.cluster.packets.numbered import UNSHAPED_TOS
from shalott.cluster.packets.queue import INJECTED_MARK
from shalott.cluster.ssh.agent.firewall import CHAIN_LENGTH_MAX, fails, run, table_of

FIRST_NUMBER, NUMBERS = 5000, 60000


def number_of(name: str) -> int:
    """The queue's, of a run and a node: other programs of the host have queues, too."""
    return FIRST_NUMBER + zlib.crc32(name.encode()) % NUMBERS


def queue(name: str, way: str, sources: Sequence[str]) -> None:
    """From now on queue what comes from these addresses, and nothing else. ``way``: "iptables" or
    "nft". Raises FirewallError."""
    if not sources:
        remove(name)
    elif way == "nft":
        run(["nft", "-f", "-"], nft_script(_table(name), number_of(name), sources))
    else:
        run(
            ["iptables-restore", "-w", "-n"],
            chain_script(_chain(name), number_of(name), sources),
        )
        jump = ["iptables", "-w", "-t", "mangle"]
        if fails([*jump, "-C", "INPUT", "-j", _chain(name)]):
            run([*jump, "-I", "INPUT", "-j", _chain(name)])


def remove(name: str) -> None:
    """Leave nothing behind, whichever of the two it was. May be repeated."""
    if shutil.which("nft"):
        script = f"table inet {_table(name)}\ndelete table inet {_table(name)}\n"
        subprocess.run(["nft", "-f", "-"], input=script.encode(), capture_output=True)
    if shutil.which("iptables"):
        for words in (["-D", "INPUT", "-j"], ["-F"], ["-X"]):
            command = ["iptables", "-w", "-t", "mangle", *words, _chain(name)]
            subprocess.run(command, capture_output=True)


def chain_script(chain: str, number: int, sources: Sequence[str]) -> str:
    """What iptables-restore reads. Probes of cuts are spared, and what the engine put in itself."""
    rules = "".join(
        f"-A {chain} -s {source} -j NFQUEUE --queue-num {number} --queue-bypass\n"
        for source in sorted(sources)
    )
    return (
        f"*mangle\n:{chain} - [0:0]\n"
        f"-A {chain} -m mark --mark {INJECTED_MARK:#x} -j RETURN\n"
        f"-A {chain} -m tos --tos {UNSHAPED_TOS:#x} -j RETURN\n"
        f"{rules}COMMIT\n"
    )


def nft_script(table: str, number: int, sources: Sequence[str]) -> str:
    """The same table of nftables, in one transaction."""
    return (
        f"table inet {table}\ndelete table inet {table}\ntable inet {table} {{\n"
        f"  chain queued {{\n    type filter hook input priority -150; policy accept;\n"
        f"    meta mark {INJECTED_MARK:#x} return\n"
        f"    ip dscp {UNSHAPED_TOS >> 2} return\n"
        f"    ip saddr {{ {', '.join(sorted(sources))} }} queue num {number} bypass\n"
        "  }\n}\n"
    )


def trial_of(way: str) -> str:
    """A shell script that succeeds where such a rule can be made. For a network of its own."""
    if way == "nft":
        return f"nft -f - <<'END'\n{nft_script('trial', FIRST_NUMBER, ['10.0.0.1'])}END\n"
    script = chain_script("trial", FIRST_NUMBER, ["10.0.0.1"])
    return f"iptables-restore -w -n <<'END'\n{script}END\n"


def _table(name: str) -> str:
    return f"{table_of(name)}_packets"


def _chain(name: str) -> str:
    return ("SHALOTTP-" + name)[:CHAIN_LENGTH_MAX]
