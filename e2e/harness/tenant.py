"""Owns further tenants: made where the server keeps them, for the length of a test."""

import contextlib
import hashlib
import secrets
import sqlite3
import time

from . import place

SCOPES = "sandboxes:read sandboxes:write exec files templates:read templates:write keys logs:read host:read"


@contextlib.contextmanager
def tenant(sandboxes=100, cpu_millis=1_000_000, memory_mib=1_000_000, scopes=SCOPES):
    """A key of a tenant of its own, with quotas."""
    key = "e2b_" + secrets.token_hex(20)
    name = "n" + secrets.token_hex(10)
    now = int(time.time() * 1e6)
    with _database() as database:
        database.execute(
            "INSERT INTO tenants VALUES (?, ?, ?, ?, ?, ?)", (name, name, sandboxes, cpu_millis, memory_mib, now)
        )
        database.execute(
            "INSERT INTO keys (id, tenant, hash, name, masked, scopes, created_us) VALUES (?, ?, ?, ?, ?, ?, ?)",
            ("k" + name[1:], name, hashlib.sha256(key.encode()).digest(), "test", key[:8], scopes, now),
        )
    yield key


@contextlib.contextmanager
def _database():
    connection = sqlite3.connect(place.DATA_DIR / "api" / "store.db", timeout=30)
    try:
        with connection:
            yield connection
    finally:
        connection.close()
