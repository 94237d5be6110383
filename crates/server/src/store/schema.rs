//! Owns the tables and how older ones become newer ones. A step is never changed once it was released; new ones follow.

use super::StoreError;
use rusqlite::{Connection, TransactionBehavior};

const STEPS: [&str; 2] = [
    "
CREATE TABLE tenants (
    id TEXT PRIMARY KEY,
    name TEXT NOT NULL UNIQUE,
    sandboxes_max INTEGER NOT NULL,
    cpu_millis_max INTEGER NOT NULL,
    memory_mib_max INTEGER NOT NULL,
    created_us INTEGER NOT NULL
) STRICT;

CREATE TABLE keys (
    id TEXT PRIMARY KEY,
    tenant TEXT NOT NULL REFERENCES tenants(id),
    hash BLOB NOT NULL UNIQUE,
    name TEXT NOT NULL,
    masked TEXT NOT NULL,
    scopes TEXT NOT NULL,
    created_us INTEGER NOT NULL
) STRICT;

CREATE TABLE sandboxes (
    id TEXT PRIMARY KEY,
    tenant TEXT NOT NULL REFERENCES tenants(id),
    template_id TEXT NOT NULL,
    template_name TEXT NOT NULL,
    template_digest TEXT NOT NULL,
    default_user TEXT NOT NULL,
    default_workdir TEXT NOT NULL,
    desired TEXT NOT NULL,
    observed TEXT NOT NULL,
    generation INTEGER NOT NULL,
    cpu_millis INTEGER NOT NULL,
    memory_mib INTEGER NOT NULL,
    disk_mib INTEGER NOT NULL,
    processes INTEGER NOT NULL,
    open_files INTEGER NOT NULL,
    env TEXT NOT NULL,
    metadata TEXT NOT NULL,
    options TEXT NOT NULL,
    access_token TEXT,
    traffic_token TEXT,
    started_us INTEGER NOT NULL,
    expires_us INTEGER NOT NULL,
    ended_us INTEGER,
    end_reason TEXT,
    journal_after INTEGER NOT NULL
) STRICT;
CREATE INDEX sandboxes_by_start ON sandboxes (tenant, observed, started_us, id);
CREATE INDEX sandboxes_in_use ON sandboxes (tenant, cpu_millis, memory_mib) WHERE ended_us IS NULL;
CREATE INDEX sandboxes_by_end ON sandboxes (ended_us) WHERE ended_us IS NOT NULL;

CREATE TABLE idempotency (
    tenant TEXT NOT NULL,
    key TEXT NOT NULL,
    body_hash BLOB NOT NULL,
    sandbox TEXT NOT NULL,
    expires_us INTEGER NOT NULL,
    PRIMARY KEY (tenant, key)
) STRICT, WITHOUT ROWID;
CREATE INDEX idempotency_by_sandbox ON idempotency (sandbox);

CREATE TABLE templates (
    id TEXT PRIMARY KEY,
    tenant TEXT REFERENCES tenants(id),
    name TEXT NOT NULL,
    digest TEXT,
    created_us INTEGER NOT NULL,
    size_bytes INTEGER NOT NULL,
    default_user TEXT NOT NULL,
    default_workdir TEXT NOT NULL,
    env TEXT NOT NULL
) STRICT;
CREATE UNIQUE INDEX templates_by_name ON templates (coalesce(tenant, ''), name);
",
    // What tenants have at the moment, kept by triggers: a create must cost the same whatever number of sandboxes there is.
    "
CREATE TABLE in_use (
    tenant TEXT PRIMARY KEY,
    sandboxes INTEGER NOT NULL,
    cpu_millis INTEGER NOT NULL,
    memory_mib INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
INSERT INTO in_use SELECT tenant, count(*), sum(cpu_millis), sum(memory_mib)
    FROM sandboxes WHERE ended_us IS NULL GROUP BY tenant;
CREATE TRIGGER sandbox_begins AFTER INSERT ON sandboxes WHEN NEW.ended_us IS NULL BEGIN
    INSERT INTO in_use VALUES (NEW.tenant, 1, NEW.cpu_millis, NEW.memory_mib)
    ON CONFLICT (tenant) DO UPDATE SET sandboxes = sandboxes + 1,
        cpu_millis = cpu_millis + NEW.cpu_millis, memory_mib = memory_mib + NEW.memory_mib;
END;
CREATE TRIGGER sandbox_ends AFTER UPDATE OF ended_us ON sandboxes
    WHEN OLD.ended_us IS NULL AND NEW.ended_us IS NOT NULL BEGIN
    UPDATE in_use SET sandboxes = sandboxes - 1, cpu_millis = cpu_millis - OLD.cpu_millis,
        memory_mib = memory_mib - OLD.memory_mib WHERE tenant = OLD.tenant;
END;
CREATE TRIGGER sandbox_is_forgotten AFTER DELETE ON sandboxes WHEN OLD.ended_us IS NULL BEGIN
    UPDATE in_use SET sandboxes = sandboxes - 1, cpu_millis = cpu_millis - OLD.cpu_millis,
        memory_mib = memory_mib - OLD.memory_mib WHERE tenant = OLD.tenant;
END;
DROP INDEX sandboxes_in_use;
CREATE INDEX sandboxes_unended ON sandboxes (id) WHERE ended_us IS NULL;
",
];

/// Brings the tables to the newest step.
pub(super) fn migrate(connection: &mut Connection) -> Result<(), StoreError> {
    let known = STEPS.len();
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let found: i64 = transaction.query_row("PRAGMA user_version", [], |row| row.get(0))?;
    let done = usize::try_from(found).ok().filter(|done| *done <= known);
    let Some(done) = done else {
        return Err(StoreError::Version { found, known: i64::try_from(known).unwrap_or(i64::MAX) });
    };
    for step in &STEPS[done..] {
        transaction.execute_batch(step)?;
    }
    transaction.pragma_update(None, "user_version", i64::try_from(known).unwrap_or(i64::MAX))?;
    Ok(transaction.commit()?)
}
