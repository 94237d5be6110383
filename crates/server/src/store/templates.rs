//! Owns the rows of templates: which names exist, whose they are, which build is current. The node has the bytes.

use super::rows::{Columns, signed, to_json};
use super::{Store, StoreError};
use cofferdam_core::{TemplateId, TemplateInfo, TenantId, Timestamp};
use rusqlite::{Connection, Row, params};

/// A template as it is stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TemplateRow {
    /// Its owner; `None` is everybody's.
    pub tenant: Option<TenantId>,
    /// What the node holds; `None` while its first import runs.
    pub info: Option<TemplateInfo>,
    /// Its id.
    pub id: TemplateId,
    /// Its short name.
    pub name: String,
}

impl Store {
    /// Every template.
    pub async fn templates(&self) -> Result<Vec<TemplateRow>, StoreError> {
        self.read(|connection| {
            let mut select = connection.prepare_cached("SELECT * FROM templates ORDER BY name, id")?;
            let mut rows = select.query([])?;
            let mut all = Vec::new();
            while let Some(row) = rows.next()? {
                all.push(parse(row)?);
            }
            Ok(all)
        })
        .await
    }

    /// Takes a name for a tenant before the import begins, and gives the id that it has from now on.
    pub async fn reserve_template(
        &self,
        tenant: TenantId,
        name: String,
        id: TemplateId,
        now: Timestamp,
    ) -> Result<TemplateId, StoreError> {
        self.write(move |connection| {
            let sql = "INSERT OR IGNORE INTO templates
                           (id, tenant, name, created_us, size_bytes, default_user, default_workdir, env)
                       VALUES (?1, ?2, ?3, ?4, 0, '', '', '{}')";
            let values = params![id.as_str(), tenant.as_str(), name, now.as_micros()];
            connection.prepare_cached(sql)?.execute(values)?;
            let sql = "SELECT id FROM templates WHERE tenant = ?1 AND name = ?2";
            let id: String = connection.query_row(sql, [tenant.as_str(), &name], |row| row.get(0))?;
            id.parse().map_err(|_| StoreError::Row { table: "templates", column: "id" })
        })
        .await
    }

    /// Notes what the node holds. A template without a row belongs to everybody.
    pub async fn upsert_templates(&self, infos: Vec<TemplateInfo>) -> Result<(), StoreError> {
        self.write(move |connection| infos.iter().try_for_each(|info| upsert(connection, info))).await
    }

    /// Forgets a template; with `only_unfinished` only if no import of it was ever completed.
    pub async fn delete_template(&self, id: TemplateId, only_unfinished: bool) -> Result<(), StoreError> {
        self.write(move |connection| {
            let sql = "DELETE FROM templates WHERE id = ?1 AND (digest IS NULL OR NOT ?2)";
            connection.prepare_cached(sql)?.execute(params![id.as_str(), only_unfinished])?;
            Ok(())
        })
        .await
    }
}

fn upsert(connection: &Connection, info: &TemplateInfo) -> Result<(), StoreError> {
    let update = "UPDATE templates SET digest = ?3, created_us = ?4, size_bytes = ?5, default_user = ?6,
                      default_workdir = ?7, env = ?8
                  WHERE id = ?1 AND ?2 IS NOT NULL";
    let insert = "INSERT OR IGNORE INTO templates
                      (id, name, digest, created_us, size_bytes, default_user, default_workdir, env)
                  VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)";
    for sql in [update, insert] {
        let changed = connection.prepare_cached(sql)?.execute(params![
            info.id.as_str(),
            info.name,
            info.digest.as_str(),
            info.created_at.as_micros(),
            signed(info.size_bytes),
            info.default_user,
            info.default_workdir,
            to_json(&info.env)
        ])?;
        if changed == 1 {
            break;
        }
    }
    Ok(())
}

fn parse(row: &Row<'_>) -> Result<TemplateRow, StoreError> {
    let columns = Columns { table: "templates", row };
    let tenant: Option<String> = columns.get("tenant")?;
    let digest: Option<String> = columns.get("digest")?;
    let (id, name): (TemplateId, String) = (columns.parse("id")?, columns.get("name")?);
    let info = match digest {
        None => None,
        Some(digest) => Some(TemplateInfo {
            id: id.clone(),
            name: name.clone(),
            digest: digest.parse().map_err(|_| columns.wrong("digest"))?,
            created_at: columns.time("created_us")?,
            size_bytes: columns.number("size_bytes")?,
            default_user: columns.get("default_user")?,
            default_workdir: columns.get("default_workdir")?,
            env: columns.json("env")?,
        }),
    };
    let tenant = tenant.map(|t| t.parse()).transpose().map_err(|_| columns.wrong("tenant"))?;
    Ok(TemplateRow { tenant, info, id, name })
}
