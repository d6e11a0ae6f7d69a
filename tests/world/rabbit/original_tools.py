"""RabbitMQ's own tools, as Debian packages them: installed, or out of the package.

A test that needs one is skipped, with the reason, where there is neither it nor apt-get.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

PACKAGE = "rabbitmq-server"
VERSION = "3.10.8"
ADMIN = "usr/bin/rabbitmqadmin"


def rabbitmqadmin(directory: Path) -> Path:
    """The program: $RABBITMQADMIN, an installed one, or the package's, downloaded and unpacked."""
    named = os.environ.get("RABBITMQADMIN") or shutil.which("rabbitmqadmin")
    if named:
        return Path(named)
    apt, dpkg = shutil.which("apt-get"), shutil.which("dpkg-deb")
    if apt is None or dpkg is None:
        pytest.skip("no rabbitmqadmin, and no apt-get to download it: set RABBITMQADMIN")
    got = subprocess.run(
        [apt, "download", PACKAGE], cwd=directory, capture_output=True, text=True, check=False
    )
    packages = list(directory.glob(f"{PACKAGE}_*.deb"))
    if not packages:
        pytest.skip(f"rabbitmqadmin can't be downloaded: {got.stderr.strip()[-200:]}")
    subprocess.run([dpkg, "-x", str(packages[0]), str(directory)], check=True)
    return directory / ADMIN
