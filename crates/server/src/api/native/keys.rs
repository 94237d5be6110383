//! Owns the endpoints about keys and tenants.

use super::answer::{Answer, Problem};
use super::ask::{Body, Named, Who};
use crate::app::{App, KeyView, TenantView};
use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use cofferdam_core::secret::ApiKey;
use cofferdam_policy::{Quota, Scopes};
use cofferdam_proto::api::{
    CreateKey, CreateTenant, Key, KeyList, NewKey, NewTenant, Tenant, TenantList, TenantQuota,
};

pub(super) async fn create(
    State(app): State<App>,
    Who(actor): Who,
    Body { value, .. }: Body<CreateKey>,
) -> Answer<(StatusCode, Json<NewKey>)> {
    let scopes = value.scopes.map(|names| Scopes::parse(names.iter().map(String::as_str))).transpose();
    let scopes = scopes.map_err(|unknown| Problem::bad_request(format!("`scopes`: {unknown}")))?;
    let (view, key) = app.create_key(&actor, &value.name, scopes).await?;
    Ok((StatusCode::CREATED, Json(new_key(view, &key))))
}

pub(super) async fn list(State(app): State<App>, Who(actor): Who) -> Answer<Json<KeyList>> {
    let keys = app.keys(&actor).await?.into_iter().map(shape).collect();
    Ok(Json(KeyList { keys }))
}

pub(super) async fn revoke(State(app): State<App>, Who(actor): Who, Named(id): Named) -> Answer<StatusCode> {
    let id = id.parse().map_err(|_| Problem::bad_request("invalid key id"))?;
    app.revoke_key(&actor, &id).await?;
    Ok(StatusCode::NO_CONTENT)
}

pub(super) async fn create_tenant(
    State(app): State<App>,
    Who(actor): Who,
    Body { value, .. }: Body<CreateTenant>,
) -> Answer<(StatusCode, Json<NewTenant>)> {
    let quota = value.quota.map(quota).unwrap_or_default();
    let (tenant, view, key) = app.create_tenant(&actor, &value.name, quota).await?;
    let made = NewTenant { tenant: shape_tenant(tenant), key: new_key(view, &key) };
    Ok((StatusCode::CREATED, Json(made)))
}

pub(super) async fn tenants(State(app): State<App>, Who(actor): Who) -> Answer<Json<TenantList>> {
    let tenants = app.tenants(&actor).await?.into_iter().map(shape_tenant).collect();
    Ok(Json(TenantList { tenants }))
}

pub(super) async fn set_quota(
    State(app): State<App>,
    Who(actor): Who,
    Named(id): Named,
    Body { value, .. }: Body<TenantQuota>,
) -> Answer<StatusCode> {
    let id = id.parse().map_err(|_| Problem::bad_request("invalid tenant id"))?;
    app.set_quota(&actor, &id, quota(value)).await?;
    Ok(StatusCode::NO_CONTENT)
}

fn quota(asked: TenantQuota) -> Quota {
    Quota {
        sandboxes_max: asked.sandboxes_max,
        cpu_millis_max: asked.cpu_millis_max,
        memory_mib_max: asked.memory_mib_max,
    }
}

fn new_key(view: KeyView, key: &ApiKey) -> NewKey {
    NewKey { key: shape(view), secret: key.expose().to_owned() }
}

fn shape(view: KeyView) -> Key {
    Key {
        id: view.id.to_string(),
        name: view.name,
        masked: view.masked,
        scopes: view.scopes.names(),
        created_at: view.created_at.to_string(),
    }
}

fn shape_tenant(row: TenantView) -> Tenant {
    Tenant {
        id: row.id.to_string(),
        name: row.name,
        quota: TenantQuota {
            sandboxes_max: row.quota.sandboxes_max,
            cpu_millis_max: row.quota.cpu_millis_max,
            memory_mib_max: row.quota.memory_mib_max,
        },
        created_at: row.created_at.to_string(),
    }
}
