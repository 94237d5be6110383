//! Owns the first start: a database without keys gets the first tenant and its key.

use super::keys::{insert_key, insert_tenant};
use super::{KeyRow, Store, StoreError, TenantRow};
use cofferdam_core::secret::ApiKey;
use cofferdam_core::{KeyId, TenantId, Timestamp};
use cofferdam_policy::{Quota, Scopes};

/// What this role learns of the first key. Whoever made it shows its text; this role never has it.
#[derive(Debug, Clone)]
pub struct InitialKey {
    /// SHA-256 of its text.
    pub hash: [u8; 32],
    /// First characters of its text.
    pub masked: String,
}

impl From<&ApiKey> for InitialKey {
    fn from(key: &ApiKey) -> Self {
        Self { hash: super::hash_key(key), masked: key.masked() }
    }
}

/// Name of the first tenant.
const FIRST_TENANT: &str = "default";

impl Store {
    /// Makes the first tenant and gives it the key, unless there are keys already. Gives the id of the key it made.
    pub async fn bootstrap(
        &self,
        key: InitialKey,
        quota: Quota,
        now: Timestamp,
        entropy: [[u8; 20]; 2],
    ) -> Result<Option<KeyRow>, StoreError> {
        self.write(move |connection| {
            let any: bool =
                connection.query_row("SELECT EXISTS (SELECT 1 FROM keys)", [], |row| row.get(0))?;
            if any {
                return Ok(None);
            }
            let id = TenantId::from_entropy(entropy[0]);
            let tenant = TenantRow { id, name: FIRST_TENANT.to_owned(), quota, created_at: now };
            insert_tenant(connection, &tenant)?;
            let sql = "SELECT id FROM tenants WHERE name = ?1";
            let id: String = connection.query_row(sql, [FIRST_TENANT], |row| row.get(0))?;
            let key = KeyRow {
                id: KeyId::from_entropy(entropy[1]),
                tenant: id.parse().map_err(|_| StoreError::Row { table: "tenants", column: "id" })?,
                hash: key.hash,
                name: "first key".to_owned(),
                masked: key.masked,
                scopes: Scopes::ALL,
                created_at: now,
            };
            insert_key(connection, &key)?;
            Ok(Some(key))
        })
        .await
    }
}
