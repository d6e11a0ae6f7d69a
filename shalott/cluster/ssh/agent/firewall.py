"""Dropping what comes from some addresses: one table of nftables, or one chain of iptables.

It is the receiving host that drops, so a cut link's packets vanish where they arrive, and the
sender's TCP backs off as it would from a broken network. The set of addresses is replaced as a
whole, so a command that is repeated changes nothing. Only our own table or chain is ever touched.
"""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Sequence

ADMINISTRATORS = "/usr/local/sbin:/usr/sbin:/sbin"  # often outside a user's PATH
TIMEOUT_S = 20
CHAIN_LENGTH_MAX = 28


class FirewallError(Exception):
    """The firewall refuses."""


def table_of(name: str) -> str:
    """The table's name, of a run and a node."""
    return "shalott_" + name.replace("-", "_")


def chain_of(name: str) -> str:
    return ("SHALOTT-" + name)[:CHAIN_LENGTH_MAX]


def drop(name: str, sources: Sequence[str]) -> None:
    """From now on drop what comes from these addresses, and nothing else. Raises FirewallError."""
    if shutil.which("nft"):
        run(["nft", "-f", "-"], nft_script(table_of(name), sources))
        return
    if not shutil.which("iptables"):
        raise FirewallError("neither nft nor iptables is installed")
    for program, family in (("iptables", "."), ("ip6tables", ":")):
        own = [source for source in sources if family in source]
        if own or program == "iptables":
            run([f"{program}-restore", "-w", "-n"], chain_script(chain_of(name), own))
            if fails([program, "-w", "-C", "INPUT", "-j", chain_of(name)]):
                run([program, "-w", "-I", "INPUT", "-j", chain_of(name)])


def silence(name: str, peers: Sequence[str], ports: Sequence[int]) -> None:
    """From now on let nothing leave to these addresses, nor from these ports: what the kernel says
    for processes that are killed, a machine without power does not say. Raises FirewallError.

    Takes nftables."""
    run(["nft", "-f", "-"], silence_script(_dark(name), peers, ports))


def end_silence(name: str) -> None:
    if shutil.which("nft"):
        table = _dark(name)
        run(["nft", "-f", "-"], f"table inet {table}\ndelete table inet {table}\n")


def cut_clients(
    name: str, peers: Sequence[str], requests: Sequence[int], answers: Sequence[int]
) -> None:
    """From now on drop what comes to the ports ``requests``, and what leaves from ``answers``,
    unless it is a peer's or this host's own. Raises FirewallError.

    Takes nftables."""
    run(["nft", "-f", "-"], clients_script(_clients(name), peers, requests, answers))


def client_cuts(name: str) -> tuple[list[int], list[int]]:
    """The ports at which requests and answers are dropped now, as the firewall says."""
    command = ["nft", "-j", "list", "table", "inet", _clients(name)]
    done = subprocess.run(command, capture_output=True, timeout=TIMEOUT_S, check=False)
    if done.returncode != 0:
        return [], []  # there is no such table
    found: dict[str, list[int]] = {"dport": [], "sport": []}
    for item in json.loads(done.stdout)["nftables"]:
        for part in item.get("rule", {}).get("expr", []):
            side = part.get("match", {}).get("left", {}).get("payload", {}).get("field")
            if side in found:
                right = part["match"]["right"]
                found[side] += right["set"] if isinstance(right, dict) else [right]
    return sorted(found["dport"]), sorted(found["sport"])


def clients_script(
    table: str, peers: Sequence[str], requests: Sequence[int], answers: Sequence[int]
) -> str:
    """The table as it shall be; without ports there is none."""
    script = f"table inet {table}\ndelete table inet {table}\n"
    if not (requests or answers):
        return script
    script += f"table inet {table} {{\n"
    for chain, hook, device, address, port, ports in (
        ("arriving", "input", "iif", "saddr", "dport", requests),
        ("leaving", "output", "oif", "daddr", "sport", answers),
    ):
        spared = "".join(
            f"    {family} {address} {{ {', '.join(own)} }} accept\n"
            for family, mark in (("ip", "."), ("ip6", ":"))
            if (own := [peer for peer in peers if mark in peer])
        )
        cut = f"    tcp {port} {{ {', '.join(map(str, ports))} }} counter drop\n" if ports else ""
        script += (
            f"  chain {chain} {{\n    type filter hook {hook} priority -200; policy accept;\n"
            f'    {device} "lo" accept\n{spared}{cut}  }}\n'
        )
    return script + "}\n"


def _clients(name: str) -> str:
    return f"{table_of(name)}_clients"


def _dark(name: str) -> str:
    return f"{table_of(name)}_dark"


def silence_script(table: str, peers: Sequence[str], ports: Sequence[int]) -> str:
    rules = "".join(
        f"    {family} daddr {{ {', '.join(own)} }} drop\n"
        for family, mark in (("ip", "."), ("ip6", ":"))
        if (own := [peer for peer in peers if mark in peer])
    )
    if ports:
        rules += f"    tcp sport {{ {', '.join(map(str, ports))} }} drop\n"
    return (
        f"table inet {table}\ndelete table inet {table}\ntable inet {table} {{\n"
        f"  chain leaving {{\n    type filter hook output priority -200; policy accept;\n"
        f"{rules}  }}\n}}\n"
    )


def remove(name: str) -> None:
    """Leave nothing behind, whichever of the two it was. May be repeated."""
    if shutil.which("nft"):
        for table in (table_of(name), _dark(name), _clients(name)):
            # Naming it first makes the deletion of an absent table succeed.
            script = f"table inet {table}\ndelete table inet {table}\n"
            subprocess.run(["nft", "-f", "-"], input=script.encode(), capture_output=True)
        return
    for program in ("iptables", "ip6tables"):
        if shutil.which(program):
            for words in (["-D", "INPUT", "-j"], ["-F"], ["-X"]):
                command = [program, "-w", *words, chain_of(name)]
                subprocess.run(command, capture_output=True)


def nft_script(table: str, sources: Sequence[str]) -> str:
    """The table as it shall be, in one transaction."""
    rules = "".join(
        f"    {family} saddr {{ {', '.join(own)} }} counter drop\n"
        for family, mark in (("ip", "."), ("ip6", ":"))
        if (own := [source for source in sources if mark in source])
    )
    return (
        f"table inet {table}\ndelete table inet {table}\ntable inet {table} {{\n"
        f"  chain arriving {{\n    type filter hook input priority -200; policy accept;\n"
        f"{rules}  }}\n}}\n"
    )


def chain_script(chain: str, sources: Sequence[str]) -> str:
    """What iptables-restore reads."""
    rules = "".join(f"-A {chain} -s {source} -j DROP\n" for source in sources)
    return f"*filter\n:{chain} - [0:0]\n{rules}COMMIT\n"


def run(command: Sequence[str], script: str = "") -> None:
    done = subprocess.run(
        command, input=script.encode(), capture_output=True, timeout=TIMEOUT_S, check=False
    )
    if done.returncode != 0:
        raise FirewallError(f"{command[0]}: {done.stderr.decode(errors='replace').strip()}")


def fails(command: Sequence[str]) -> bool:
    done = subprocess.run(command, capture_output=True, timeout=TIMEOUT_S, check=False)
    return done.returncode != 0
