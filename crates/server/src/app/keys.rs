//! Owns keys and tenants: making, seeing and revoking them.

use super::{Actor, App, AppError, KeyView, TenantView};
use crate::store::{KeyRow, TenantRow, hash_key};
use cofferdam_audit::Event;
use cofferdam_core::secret::ApiKey;
use cofferdam_core::{KeyId, TenantId};
use cofferdam_policy::{Action, Quota, Scopes};

/// Longest name of a key or a tenant, in characters.
const NAME_CHARS_MAX: usize = 128;

impl App {
    /// Makes a key for the actor's tenant. It can do at most what the actor can. Its text is in the answer only.
    pub async fn create_key(
        &self,
        actor: &Actor,
        name: &str,
        scopes: Option<Scopes>,
    ) -> Result<(KeyView, ApiKey), AppError> {
        let permit = self.permit(actor, Action::CreateKey)?;
        check_name(name)?;
        let scopes = scopes.unwrap_or(actor.scopes);
        if !actor.scopes.includes(scopes) {
            let why = "may not exceed those of the key that asks".to_owned();
            return Err(AppError::Invalid { field: "scopes", why });
        }
        let entry = self.entry(actor, None);
        let wish = Event::KeyCreateRequested { name: name.to_owned(), scopes: scopes.names() };
        let intent = self.intent(&permit, &entry, &wish)?;
        let (row, key) = self.new_key(actor.tenant.clone(), name, scopes);
        self.0.store.insert_key(row.clone()).await?;
        self.outcome(&entry, &Event::KeyCreated { intent, key: row.id.to_string() });
        Ok((row.into(), key))
    }

    /// The keys of the actor's tenant, oldest first.
    pub async fn keys(&self, actor: &Actor) -> Result<Vec<KeyView>, AppError> {
        let _permit = self.permit(actor, Action::ReadKeys)?;
        let rows = self.0.store.keys(actor.tenant.clone()).await?;
        Ok(rows.into_iter().map(KeyView::from).collect())
    }

    /// Makes a key of the actor's tenant useless, at once.
    pub async fn revoke_key(&self, actor: &Actor, id: &KeyId) -> Result<(), AppError> {
        let permit = self.permit(actor, Action::RevokeKey)?;
        let entry = self.entry(actor, None);
        let wish = Event::KeyRevokeRequested { key: id.to_string() };
        let intent = self.intent(&permit, &entry, &wish)?;
        let hash = self.0.store.delete_key(actor.tenant.clone(), id.clone()).await?;
        let hash = hash.ok_or_else(|| AppError::KeyNotFound(id.to_string()))?;
        self.0.actors.revoke(&hash);
        self.outcome(&entry, &Event::KeyRevoked { intent, key: id.to_string() });
        Ok(())
    }

    /// Makes a tenant and its first key, which can do everything but this.
    pub async fn create_tenant(
        &self,
        actor: &Actor,
        name: &str,
        quota: Quota,
    ) -> Result<(TenantView, KeyView, ApiKey), AppError> {
        let permit = self.permit(actor, Action::ManageTenants)?;
        check_name(name)?;
        let entry = self.entry(actor, None);
        let intent = self.intent(&permit, &entry, &Event::TenantCreateRequested { name: name.to_owned() })?;
        let id = TenantId::from_entropy(rand::random());
        let (row, key) = self.new_key(id.clone(), "first key", Scopes::TENANT);
        let tenant = TenantRow { id, name: name.to_owned(), quota, created_at: self.now() };
        if !self.0.store.insert_tenant(tenant.clone(), row.clone()).await? {
            return Err(AppError::TenantTaken(name.to_owned()));
        }
        self.outcome(&entry, &Event::TenantCreated { intent, id: tenant.id.to_string() });
        Ok((tenant.into(), row.into(), key))
    }

    /// Every tenant, oldest first.
    pub async fn tenants(&self, actor: &Actor) -> Result<Vec<TenantView>, AppError> {
        let _permit = self.permit(actor, Action::ManageTenants)?;
        Ok(self.0.store.tenants().await?.into_iter().map(TenantView::from).collect())
    }

    /// Changes what a tenant may have. What it has already stays.
    pub async fn set_quota(&self, actor: &Actor, tenant: &TenantId, quota: Quota) -> Result<(), AppError> {
        let permit = self.permit(actor, Action::ManageTenants)?;
        let wish = Event::QuotaChangeRequested {
            id: tenant.to_string(),
            sandboxes_max: quota.sandboxes_max,
            cpu_millis_max: quota.cpu_millis_max,
            memory_mib_max: quota.memory_mib_max,
        };
        let entry = self.entry(actor, None);
        let intent = self.intent(&permit, &entry, &wish)?;
        if !self.0.store.set_quota(tenant.clone(), quota).await? {
            return Err(AppError::TenantNotFound(tenant.to_string()));
        }
        self.outcome(&entry, &Event::QuotaChanged { intent, id: tenant.to_string() });
        Ok(())
    }

    fn new_key(&self, tenant: TenantId, name: &str, scopes: Scopes) -> (KeyRow, ApiKey) {
        let key = ApiKey::from_entropy(rand::random());
        let row = KeyRow {
            id: KeyId::from_entropy(rand::random()),
            tenant,
            hash: hash_key(&key),
            name: name.to_owned(),
            masked: key.masked(),
            scopes,
            created_at: self.now(),
        };
        (row, key)
    }
}

fn check_name(name: &str) -> Result<(), AppError> {
    let legal = (1..=NAME_CHARS_MAX).contains(&name.chars().count()) && !name.chars().any(char::is_control);
    let why = || format!("must have 1 to {NAME_CHARS_MAX} characters and none that cannot be printed");
    if legal { Ok(()) } else { Err(AppError::Invalid { field: "name", why: why() }) }
}
