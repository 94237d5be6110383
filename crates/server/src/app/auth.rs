//! Owns who comes with which key: the hash of the key, looked up in memory and then in the store.

use super::{Actor, App, AppError};
use cofferdam_core::secret::ApiKey;
use std::collections::HashMap;
use std::sync::{PoisonError, RwLock};

/// Actors by the hash of their key. Only keys that exist are in it, so their number bounds it.
#[derive(Default)]
pub(super) struct Cache(RwLock<Known>);

#[derive(Default)]
struct Known {
    actors: HashMap<[u8; 32], Actor>,
    /// Number of revocations: what was looked up before one may be outdated.
    revocations: u64,
}

impl Cache {
    fn get(&self, hash: &[u8; 32]) -> Result<Actor, u64> {
        let known = self.0.read().unwrap_or_else(PoisonError::into_inner);
        known.actors.get(hash).cloned().ok_or(known.revocations)
    }

    fn insert(&self, hash: [u8; 32], actor: Actor, revocations: u64) {
        let mut known = self.0.write().unwrap_or_else(PoisonError::into_inner);
        if known.revocations == revocations {
            known.actors.insert(hash, actor);
        }
    }

    pub(super) fn revoke(&self, hash: &[u8; 32]) {
        let mut known = self.0.write().unwrap_or_else(PoisonError::into_inner);
        known.actors.remove(hash);
        known.revocations += 1;
    }
}

impl App {
    /// Who comes with this key.
    pub async fn authenticate(&self, api_key: &str) -> Result<Actor, AppError> {
        let key = ApiKey::parse(api_key).ok_or(AppError::Unauthenticated)?;
        let hash = crate::store::hash_key(&key);
        let revocations = match self.0.actors.get(&hash) {
            Ok(actor) => return Ok(actor),
            Err(revocations) => revocations,
        };
        let row = self.0.store.key_by_hash(hash).await?.ok_or(AppError::Unauthenticated)?;
        let actor = Actor { tenant: row.tenant, key: row.id, scopes: row.scopes };
        self.0.actors.insert(hash, actor.clone(), revocations);
        Ok(actor)
    }
}
