//! Owns the rows of tenants and of keys. The text of a key is never here, only its hash.

use super::rows::{Columns, signed};
use super::{Store, StoreError};
use cofferdam_core::secret::ApiKey;
use cofferdam_core::{KeyId, TenantId, Timestamp};
use cofferdam_policy::{Quota, Scopes};
use rusqlite::{Connection, Row, params};
use sha2::{Digest, Sha256};

/// A key as it is stored.
#[derive(Debug, Clone)]
pub struct KeyRow {
    /// Its id.
    pub id: KeyId,
    /// Whose objects it opens.
    pub tenant: TenantId,
    /// SHA-256 of its text.
    pub hash: [u8; 32],
    /// For people.
    pub name: String,
    /// First characters of its text.
    pub masked: String,
    /// What it may do.
    pub scopes: Scopes,
    /// When it was made.
    pub created_at: Timestamp,
}

/// A tenant as it is stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TenantRow {
    /// Its id.
    pub id: TenantId,
    /// For people; unique.
    pub name: String,
    /// What it may have.
    pub quota: Quota,
    /// When it was made.
    pub created_at: Timestamp,
}

/// What is stored of a key instead of its text. The text has 160 random bits, so a plain hash cannot be turned back.
pub fn hash_key(key: &ApiKey) -> [u8; 32] {
    Sha256::digest(key.expose().as_bytes()).into()
}

impl Store {
    /// The key with this hash.
    pub async fn key_by_hash(&self, hash: [u8; 32]) -> Result<Option<KeyRow>, StoreError> {
        self.read(move |connection| {
            let mut select = connection.prepare_cached("SELECT * FROM keys WHERE hash = ?1")?;
            let mut rows = select.query([hash])?;
            rows.next()?.map(parse_key).transpose()
        })
        .await
    }

    /// Adds a key.
    pub async fn insert_key(&self, key: KeyRow) -> Result<(), StoreError> {
        self.write(move |connection| insert_key(connection, &key)).await
    }

    /// The keys of a tenant, oldest first.
    pub async fn keys(&self, tenant: TenantId) -> Result<Vec<KeyRow>, StoreError> {
        self.read(move |connection| {
            let sql = "SELECT * FROM keys WHERE tenant = ?1 ORDER BY created_us, id";
            let mut select = connection.prepare_cached(sql)?;
            let mut rows = select.query([tenant.as_str()])?;
            let mut all = Vec::new();
            while let Some(row) = rows.next()? {
                all.push(parse_key(row)?);
            }
            Ok(all)
        })
        .await
    }

    /// Takes a key of a tenant away and gives its hash; `None` when there is none.
    pub async fn delete_key(&self, tenant: TenantId, id: KeyId) -> Result<Option<[u8; 32]>, StoreError> {
        self.write(move |connection| {
            let sql = "DELETE FROM keys WHERE id = ?1 AND tenant = ?2 RETURNING hash";
            let mut delete = connection.prepare_cached(sql)?;
            let mut rows = delete.query([id.as_str(), tenant.as_str()])?;
            let hash = rows.next()?.map(|row| row.get(0)).transpose()?;
            drop(rows);
            Ok(hash)
        })
        .await
    }

    /// Adds a tenant and its first key. False when the name is taken.
    pub async fn insert_tenant(&self, tenant: TenantRow, key: KeyRow) -> Result<bool, StoreError> {
        self.write(move |connection| {
            if !insert_tenant(connection, &tenant)? {
                return Ok(false);
            }
            insert_key(connection, &key)?;
            Ok(true)
        })
        .await
    }

    /// Every tenant, oldest first.
    pub async fn tenants(&self) -> Result<Vec<TenantRow>, StoreError> {
        self.read(|connection| {
            let mut select = connection.prepare_cached("SELECT * FROM tenants ORDER BY created_us, id")?;
            let mut rows = select.query([])?;
            let mut all = Vec::new();
            while let Some(row) = rows.next()? {
                all.push(parse_tenant(row)?);
            }
            Ok(all)
        })
        .await
    }

    /// Changes what a tenant may have. False when there is no such tenant.
    pub async fn set_quota(&self, tenant: TenantId, quota: Quota) -> Result<bool, StoreError> {
        self.write(move |connection| {
            let sql = "UPDATE tenants SET sandboxes_max = ?2, cpu_millis_max = ?3, memory_mib_max = ?4 WHERE id = ?1";
            let changed = connection.prepare_cached(sql)?.execute(params![
                tenant.as_str(),
                signed(quota.sandboxes_max),
                signed(quota.cpu_millis_max),
                signed(quota.memory_mib_max)
            ])?;
            Ok(changed == 1)
        })
        .await
    }
}

pub(super) fn insert_tenant(connection: &Connection, tenant: &TenantRow) -> Result<bool, StoreError> {
    let sql = "INSERT OR IGNORE INTO tenants
                   (id, name, sandboxes_max, cpu_millis_max, memory_mib_max, created_us)
               VALUES (?1, ?2, ?3, ?4, ?5, ?6)";
    let inserted = connection.prepare_cached(sql)?.execute(params![
        tenant.id.as_str(),
        tenant.name,
        signed(tenant.quota.sandboxes_max),
        signed(tenant.quota.cpu_millis_max),
        signed(tenant.quota.memory_mib_max),
        tenant.created_at.as_micros()
    ])?;
    Ok(inserted == 1)
}

pub(super) fn insert_key(connection: &Connection, key: &KeyRow) -> Result<(), StoreError> {
    let sql = "INSERT INTO keys (id, tenant, hash, name, masked, scopes, created_us)
               VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)";
    connection.prepare_cached(sql)?.execute(params![
        key.id.as_str(),
        key.tenant.as_str(),
        key.hash,
        key.name,
        key.masked,
        key.scopes.names().join(" "),
        key.created_at.as_micros()
    ])?;
    Ok(())
}

fn parse_key(row: &Row<'_>) -> Result<KeyRow, StoreError> {
    let columns = Columns { table: "keys", row };
    let scopes: String = columns.get("scopes")?;
    Ok(KeyRow {
        id: columns.parse("id")?,
        tenant: columns.parse("tenant")?,
        hash: columns.get("hash")?,
        name: columns.get("name")?,
        masked: columns.get("masked")?,
        scopes: Scopes::parse(scopes.split_whitespace()).map_err(|_| columns.wrong("scopes"))?,
        created_at: columns.time("created_us")?,
    })
}

fn parse_tenant(row: &Row<'_>) -> Result<TenantRow, StoreError> {
    let columns = Columns { table: "tenants", row };
    Ok(TenantRow {
        id: columns.parse("id")?,
        name: columns.get("name")?,
        quota: Quota {
            sandboxes_max: columns.number("sandboxes_max")?,
            cpu_millis_max: columns.number("cpu_millis_max")?,
            memory_mib_max: columns.number("memory_mib_max")?,
        },
        created_at: columns.time("created_us")?,
    })
}
