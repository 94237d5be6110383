//! Owns the rows of sandboxes and of idempotency keys: what should be, what was seen, and how it ended.

use super::rows::{Columns, signed, to_json};
use super::{Store, StoreError};
use cofferdam_core::secret::Secret;
use cofferdam_core::{Resources, SandboxId, State, TemplateId, TenantId, Timestamp};
use cofferdam_policy::{InUse, Quota, QuotaExceeded, admit};
use rusqlite::{Connection, OptionalExtension, Row, named_params, params, params_from_iter};
use std::collections::BTreeMap;
use std::fmt::Write;

/// A sandbox as it is stored.
#[derive(Debug, Clone)]
pub struct SandboxRow {
    /// Its id.
    pub id: SandboxId,
    /// Its owner.
    pub tenant: TenantId,
    /// Its template.
    pub template_id: TemplateId,
    /// Short name of its template.
    pub template_name: String,
    /// Exact build of its template.
    pub template_digest: String,
    /// User when a caller names none.
    pub default_user: String,
    /// Working directory when a caller names none.
    pub default_workdir: String,
    /// It is to be gone.
    pub kill_wanted: bool,
    /// Where it is in its life, as last seen.
    pub observed: State,
    /// Limits.
    pub resources: Resources,
    /// Environment of every process.
    pub env: BTreeMap<String, String>,
    /// Free pairs.
    pub metadata: BTreeMap<String, String>,
    /// Facts of the surface that made it.
    pub options: serde_json::Value,
    /// Access token.
    pub access_token: Option<Secret>,
    /// Traffic token.
    pub traffic_token: Option<Secret>,
    /// Start of its life.
    pub started_at: Timestamp,
    /// Planned end.
    pub expires_at: Timestamp,
    /// Why it ended.
    pub end_reason: Option<String>,
    /// Its record begins after this number.
    pub journal_after: u64,
}

/// Ties a sandbox to a key of its client.
#[derive(Debug, Clone)]
pub struct IdempotencyClaim {
    /// The key.
    pub key: String,
    /// What it was used for.
    pub body_hash: [u8; 32],
    /// Until when it counts.
    pub expires_at: Timestamp,
}

/// What came of an insert.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Inserted {
    /// The row is there.
    New,
    /// The same request was answered with this sandbox before.
    Earlier(SandboxId),
}

/// Why a row was not inserted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Refused {
    /// The quota leaves no room.
    Quota(QuotaExceeded),
    /// The key was used for something else.
    Mismatch,
    /// The first request with the key still runs.
    InFlight,
}

/// Which rows to list.
#[derive(Debug, Clone)]
pub struct ListQuery {
    /// Only of this tenant.
    pub tenant: TenantId,
    /// Only in these states.
    pub states: Vec<State>,
    /// Only with all of these pairs.
    pub metadata: BTreeMap<String, String>,
    /// Only of the template with this id or name.
    pub template: Option<String>,
    /// Only started then or later.
    pub started_after: Option<Timestamp>,
    /// Oldest first.
    pub ascending: bool,
    /// Only what follows this one in the order.
    pub after: Option<(Timestamp, SandboxId)>,
    /// At most so many.
    pub limit: u32,
}

impl Store {
    /// Inserts a sandbox that is to be, if the quota leaves room and its idempotency key was not used before.
    pub async fn insert_sandbox(
        &self,
        row: SandboxRow,
        claim: Option<IdempotencyClaim>,
    ) -> Result<Result<Inserted, Refused>, StoreError> {
        self.write(move |connection| {
            if let Some(claim) = &claim
                && let Some(earlier) = claim_key(connection, &row, claim)?
            {
                return Ok(earlier);
            }
            let (in_use, quota) = use_and_quota(connection, &row.tenant)?;
            // Refusing is no error of the store, but the claim must not stay: it is written after this.
            let _admitted = match admit(in_use, &row.resources, &quota) {
                Ok(admitted) => admitted,
                Err(exceeded) => return Ok(Err(Refused::Quota(exceeded))),
            };
            insert(connection, &row)?;
            if let Some(claim) = &claim {
                insert_claim(connection, &row, claim)?;
            }
            Ok(Ok(Inserted::New))
        })
        .await
    }

    /// It runs. False when it is not being made any more.
    pub async fn sandbox_started(&self, id: SandboxId, at: Timestamp) -> Result<bool, StoreError> {
        self.write(move |connection| {
            let sql = "UPDATE sandboxes SET observed = 'running', started_us = ?2
                       WHERE id = ?1 AND observed = 'creating' AND desired = 'running'";
            let changed = connection.prepare_cached(sql)?.execute(params![id.as_str(), at.as_micros()])?;
            Ok(changed == 1)
        })
        .await
    }

    /// Moves the planned end, if it is to be; with `extend_only` never to an earlier time. Gives the row as it is then.
    pub async fn set_deadline(
        &self,
        id: SandboxId,
        expires_at: Timestamp,
        extend_only: bool,
    ) -> Result<Option<SandboxRow>, StoreError> {
        self.write(move |connection| {
            let sql = "UPDATE sandboxes SET generation = generation + 1,
                           expires_us = CASE WHEN ?3 THEN max(expires_us, ?2) ELSE ?2 END
                       WHERE id = ?1 AND ended_us IS NULL AND desired = 'running'";
            let changes = params![id.as_str(), expires_at.as_micros(), extend_only];
            let changed = connection.prepare_cached(sql)?.execute(changes)?;
            if changed == 1 { get(connection, &id) } else { Ok(None) }
        })
        .await
    }

    /// It is to be gone. False when it has ended already.
    pub async fn want_killed(&self, id: SandboxId) -> Result<bool, StoreError> {
        self.write(move |connection| {
            let sql =
                "UPDATE sandboxes SET desired = 'killed', observed = 'killing', generation = generation + 1
                       WHERE id = ?1 AND ended_us IS NULL";
            Ok(connection.prepare_cached(sql)?.execute([id.as_str()])? == 1)
        })
        .await
    }

    /// It ended, in a final state. False when that was known already. If it never ran, nobody was told that it does:
    /// its idempotency key is free again.
    pub async fn sandbox_ended(
        &self,
        id: SandboxId,
        state: State,
        reason: String,
        at: Timestamp,
    ) -> Result<bool, StoreError> {
        self.write(move |connection| {
            let sql = "DELETE FROM idempotency WHERE sandbox = ?1
                       AND EXISTS (SELECT 1 FROM sandboxes WHERE id = ?1 AND observed = 'creating')";
            connection.prepare_cached(sql)?.execute([id.as_str()])?;
            let sql = "UPDATE sandboxes SET ended_us = ?4, desired = 'killed',
                           end_reason = CASE WHEN desired = 'killed' THEN 'killed' ELSE ?3 END,
                           observed = CASE WHEN desired = 'killed' THEN 'killed' ELSE ?2 END
                       WHERE id = ?1 AND ended_us IS NULL";
            let values = params![id.as_str(), state.as_str(), reason, at.as_micros()];
            let ended = connection.prepare_cached(sql)?.execute(values)? == 1;
            Ok(ended)
        })
        .await
    }

    /// Gives an idempotency key free again, because what it was used for failed.
    pub async fn release_claim(&self, sandbox: SandboxId) -> Result<(), StoreError> {
        self.write(move |connection| {
            let sql = "DELETE FROM idempotency WHERE sandbox = ?1";
            connection.prepare_cached(sql)?.execute([sandbox.as_str()])?;
            Ok(())
        })
        .await
    }

    /// One sandbox.
    pub async fn sandbox(&self, id: SandboxId) -> Result<Option<SandboxRow>, StoreError> {
        self.read(move |connection| get(connection, &id)).await
    }

    /// Every sandbox that has not ended.
    pub async fn unended_sandboxes(&self) -> Result<Vec<SandboxRow>, StoreError> {
        self.read(|connection| {
            let mut select = connection.prepare_cached("SELECT * FROM sandboxes WHERE ended_us IS NULL")?;
            let mut rows = select.query([])?;
            let mut all = Vec::new();
            while let Some(row) = rows.next()? {
                all.push(parse(row)?);
            }
            Ok(all)
        })
        .await
    }

    /// A page of sandboxes, and the number of running ones that match but for their states.
    pub async fn list_sandboxes(&self, query: ListQuery) -> Result<(Vec<SandboxRow>, u64), StoreError> {
        self.read(move |connection| {
            let filter = Filter::of(&query);
            let (rows, running) = (filter.page(connection, &query)?, filter.running(connection)?);
            Ok((rows, running))
        })
        .await
    }

    /// Forgets sandboxes that ended before, and idempotency keys that ran out.
    pub async fn forget_before(&self, ended: Timestamp, now: Timestamp) -> Result<(), StoreError> {
        self.write(move |connection| {
            connection.execute("DELETE FROM sandboxes WHERE ended_us < ?1", [ended.as_micros()])?;
            connection.execute("DELETE FROM idempotency WHERE expires_us < ?1", [now.as_micros()])?;
            Ok(())
        })
        .await
    }

    /// True when a sandbox that has not ended uses the template.
    pub async fn is_template_in_use(&self, template: TemplateId) -> Result<bool, StoreError> {
        self.read(move |connection| {
            let sql = "SELECT EXISTS (SELECT 1 FROM sandboxes WHERE template_id = ?1 AND ended_us IS NULL)";
            Ok(connection.query_row(sql, [template.as_str()], |row| row.get(0))?)
        })
        .await
    }
}

/// `None`: the key is free. Otherwise what the earlier use of it means for this one.
fn claim_key(
    connection: &Connection,
    row: &SandboxRow,
    claim: &IdempotencyClaim,
) -> Result<Option<Result<Inserted, Refused>>, StoreError> {
    let sql = "SELECT i.body_hash, i.sandbox, i.expires_us, s.observed = 'creating'
               FROM idempotency i JOIN sandboxes s ON s.id = i.sandbox WHERE i.tenant = ?1 AND i.key = ?2";
    let found: Option<(Vec<u8>, String, i64, bool)> = connection
        .prepare_cached(sql)?
        .query_row(params![row.tenant.as_str(), claim.key], |r| {
            Ok((r.get(0)?, r.get(1)?, r.get(2)?, r.get(3)?))
        })
        .optional()?;
    let Some((hash, sandbox, expires_us, creating)) = found else { return Ok(None) };
    if expires_us < row.started_at.as_micros() {
        return Ok(None);
    }
    if hash != claim.body_hash {
        return Ok(Some(Err(Refused::Mismatch)));
    }
    if creating {
        return Ok(Some(Err(Refused::InFlight)));
    }
    let id = sandbox.parse().map_err(|_| StoreError::Row { table: "idempotency", column: "sandbox" })?;
    Ok(Some(Ok(Inserted::Earlier(id))))
}

fn insert_claim(
    connection: &Connection,
    row: &SandboxRow,
    claim: &IdempotencyClaim,
) -> Result<(), StoreError> {
    let sql = "INSERT OR REPLACE INTO idempotency (tenant, key, body_hash, sandbox, expires_us)
               VALUES (?1, ?2, ?3, ?4, ?5)";
    connection.prepare_cached(sql)?.execute(params![
        row.tenant.as_str(),
        claim.key,
        claim.body_hash,
        row.id.as_str(),
        claim.expires_at.as_micros()
    ])?;
    Ok(())
}

fn use_and_quota(connection: &Connection, tenant: &TenantId) -> Result<(InUse, Quota), StoreError> {
    let sql =
        "SELECT t.sandboxes_max, t.cpu_millis_max, t.memory_mib_max, coalesce(u.sandboxes, 0) AS sandboxes,
                   coalesce(u.cpu_millis, 0) AS cpu_millis, coalesce(u.memory_mib, 0) AS memory_mib
               FROM tenants t LEFT JOIN in_use u ON u.tenant = t.id WHERE t.id = ?1";
    let mut select = connection.prepare_cached(sql)?;
    let mut rows = select.query([tenant.as_str()])?;
    let row = rows.next()?.ok_or(StoreError::Row { table: "tenants", column: "id" })?;
    let columns = Columns { table: "tenants", row };
    let quota = Quota {
        sandboxes_max: columns.number("sandboxes_max")?,
        cpu_millis_max: columns.number("cpu_millis_max")?,
        memory_mib_max: columns.number("memory_mib_max")?,
    };
    let in_use = InUse {
        sandboxes: columns.number("sandboxes")?,
        cpu_millis: columns.number("cpu_millis")?,
        memory_mib: columns.number("memory_mib")?,
    };
    Ok((in_use, quota))
}

fn insert(connection: &Connection, row: &SandboxRow) -> Result<(), StoreError> {
    let sql = "INSERT INTO sandboxes (id, tenant, template_id, template_name, template_digest, default_user,
                   default_workdir, desired, observed, generation, cpu_millis, memory_mib, disk_mib, processes,
                   open_files, env, metadata, options, access_token, traffic_token, started_us, expires_us,
                   journal_after)
               VALUES (:id, :tenant, :template_id, :template_name, :template_digest, :default_user,
                   :default_workdir, 'running', 'creating', 1, :cpu_millis, :memory_mib, :disk_mib, :processes,
                   :open_files, :env, :metadata, :options, :access_token, :traffic_token, :started_us, :expires_us,
                   :journal_after)";
    connection.prepare_cached(sql)?.execute(named_params! {
        ":id": row.id.as_str(),
        ":tenant": row.tenant.as_str(),
        ":template_id": row.template_id.as_str(),
        ":template_name": row.template_name,
        ":template_digest": row.template_digest,
        ":default_user": row.default_user,
        ":default_workdir": row.default_workdir,
        ":cpu_millis": row.resources.cpu_millis,
        ":memory_mib": row.resources.memory_mib,
        ":disk_mib": row.resources.disk_mib,
        ":processes": row.resources.processes,
        ":open_files": row.resources.open_files,
        ":env": to_json(&row.env),
        ":metadata": to_json(&row.metadata),
        ":options": to_json(&row.options),
        ":access_token": row.access_token.as_ref().map(Secret::expose),
        ":traffic_token": row.traffic_token.as_ref().map(Secret::expose),
        ":started_us": row.started_at.as_micros(),
        ":expires_us": row.expires_at.as_micros(),
        ":journal_after": signed(row.journal_after),
    })?;
    Ok(())
}

fn get(connection: &Connection, id: &SandboxId) -> Result<Option<SandboxRow>, StoreError> {
    let mut select = connection.prepare_cached("SELECT * FROM sandboxes WHERE id = ?1")?;
    let mut rows = select.query([id.as_str()])?;
    rows.next()?.map(parse).transpose()
}

fn parse(row: &Row<'_>) -> Result<SandboxRow, StoreError> {
    let columns = Columns { table: "sandboxes", row };
    let observed: String = columns.get("observed")?;
    Ok(SandboxRow {
        id: columns.parse("id")?,
        tenant: columns.parse("tenant")?,
        template_id: columns.parse("template_id")?,
        template_name: columns.get("template_name")?,
        template_digest: columns.get("template_digest")?,
        default_user: columns.get("default_user")?,
        default_workdir: columns.get("default_workdir")?,
        kill_wanted: columns.get::<String>("desired")? == "killed",
        observed: State::parse(&observed).ok_or_else(|| columns.wrong("observed"))?,
        resources: Resources {
            cpu_millis: columns.number("cpu_millis")?,
            memory_mib: columns.number("memory_mib")?,
            disk_mib: columns.number("disk_mib")?,
            processes: columns.number("processes")?,
            open_files: columns.number("open_files")?,
        },
        env: columns.json("env")?,
        metadata: columns.json("metadata")?,
        options: columns.json("options")?,
        access_token: columns.get::<Option<String>>("access_token")?.map(Secret::new),
        traffic_token: columns.get::<Option<String>>("traffic_token")?.map(Secret::new),
        started_at: columns.time("started_us")?,
        expires_at: columns.time("expires_us")?,
        end_reason: columns.get("end_reason")?,
        journal_after: columns.number("journal_after")?,
    })
}

/// The conditions of a listing that do not depend on states and page, and their values.
struct Filter {
    sql: String,
    values: Vec<rusqlite::types::Value>,
}

impl Filter {
    fn of(query: &ListQuery) -> Self {
        let mut filter = Self { sql: "tenant = ?".to_owned(), values: vec![text(query.tenant.as_str())] };
        if let Some(template) = &query.template {
            filter.sql.push_str(" AND (template_id = ? OR template_name = ?)");
            filter.values.extend([text(template), text(template)]);
        }
        if let Some(after) = query.started_after {
            filter.sql.push_str(" AND started_us >= ?");
            filter.values.push(after.as_micros().into());
        }
        for (key, value) in &query.metadata {
            filter.sql.push_str(
                " AND EXISTS (SELECT 1 FROM json_each(metadata) m WHERE m.key = ? AND m.value = ?)",
            );
            filter.values.extend([text(key), text(value)]);
        }
        filter
    }

    fn page(&self, connection: &Connection, query: &ListQuery) -> Result<Vec<SandboxRow>, StoreError> {
        let mut sql = format!("SELECT * FROM sandboxes WHERE {}", self.sql);
        let mut values = self.values.clone();
        let marks = vec!["?"; query.states.len()].join(", ");
        write!(sql, " AND observed IN ({marks})").map_err(|_| StoreError::Stopped)?;
        values.extend(query.states.iter().map(|state| text(state.as_str())));
        let (order, sign) = if query.ascending { ("ASC", ">") } else { ("DESC", "<") };
        if let Some((at, id)) = &query.after {
            write!(sql, " AND (started_us, id) {sign} (?, ?)").map_err(|_| StoreError::Stopped)?;
            values.extend([at.as_micros().into(), text(id.as_str())]);
        }
        write!(sql, " ORDER BY started_us {order}, id {order} LIMIT ?").map_err(|_| StoreError::Stopped)?;
        values.push(i64::from(query.limit).into());
        let mut select = connection.prepare_cached(&sql)?;
        let mut rows = select.query(params_from_iter(values))?;
        let mut page = Vec::new();
        while let Some(row) = rows.next()? {
            page.push(parse(row)?);
        }
        Ok(page)
    }

    fn running(&self, connection: &Connection) -> Result<u64, StoreError> {
        let sql = format!("SELECT count(*) FROM sandboxes WHERE {} AND observed = 'running'", self.sql);
        let mut select = connection.prepare_cached(&sql)?;
        let count: i64 = select.query_row(params_from_iter(&self.values), |row| row.get(0))?;
        Ok(u64::try_from(count).unwrap_or(0))
    }
}

fn text(text: &str) -> rusqlite::types::Value {
    text.to_owned().into()
}
