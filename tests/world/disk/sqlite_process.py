"""A program that commits rows to SQLite until it is killed, and writes each number when its commit
has returned: ``python sqlite_process.py DATABASE SYNCHRONOUS FIRST``."""

from __future__ import annotations

import os
import sqlite3
import sys


def main() -> None:
    path, synchronous, first = sys.argv[1], sys.argv[2], int(sys.argv[3])
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("PRAGMA journal_mode=WAL")
    connection.execute(f"PRAGMA synchronous={synchronous}")
    connection.execute("PRAGMA wal_autocheckpoint=20")
    connection.execute("CREATE TABLE IF NOT EXISTS rows (number INTEGER PRIMARY KEY, text TEXT)")
    number = first
    while True:
        connection.execute("INSERT INTO rows VALUES (?, ?)", (number, "x" * (number * 37 % 2000)))
        os.write(1, b"%d\n" % number)
        number += 1


if __name__ == "__main__":
    main()
