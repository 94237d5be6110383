//! Owns the endpoints about templates that are there already.

use super::envd;
use super::error::Error;
use super::meter::cpu_count;
use super::query::Segment;
use crate::app::{Actor, App, AppError, TemplateView};
use axum::extract::State;
use axum::{Extension, Json};
use cofferdam_core::Resources;
use cofferdam_core::ids::is_template_name;
use http::StatusCode;
use serde_json::{Value, json};

/// `GET /templates`: those that the caller can use.
pub(crate) async fn list(
    State(app): State<App>,
    Extension(actor): Extension<Actor>,
) -> Result<Json<Vec<Value>>, Error> {
    let templates = app.templates(&actor).await?;
    Ok(Json(templates.iter().map(|template| shape(template, &app.default_resources())).collect()))
}

/// `GET /templates/aliases/{alias}`.
pub(crate) async fn alias(
    State(app): State<App>,
    Extension(actor): Extension<Actor>,
    Segment(alias): Segment,
) -> Result<Json<Value>, Error> {
    let name = alias.rsplit('/').next().unwrap_or_default();
    if !is_template_name(&name.to_ascii_lowercase()) {
        return Err(Error::bad_request(format!("invalid template alias '{alias}'")));
    }
    let found = app.template(&actor, &alias).await?;
    Ok(Json(json!({"templateID": found.info.id, "public": !found.own})))
}

/// `DELETE /templates/{id}`.
pub(crate) async fn remove(
    State(app): State<App>,
    Extension(actor): Extension<Actor>,
    Segment(reference): Segment,
) -> Result<StatusCode, Error> {
    match app.remove_template(&actor, &reference).await {
        Ok(()) => Ok(StatusCode::NO_CONTENT),
        Err(error @ AppError::TemplateInUse(_)) => Err(Error::bad_request(error.public())),
        Err(AppError::TemplateTaken(_)) => {
            Err(Error::new(StatusCode::FORBIDDEN, format!("template '{reference}' is not yours")))
        }
        Err(error) => Err(error.into()),
    }
}

/// Counts and people that are not kept are 0 and null: clients demand the fields.
fn shape(template: &TemplateView, resources: &Resources) -> Value {
    let info = &template.info;
    json!({
        "templateID": info.id,
        "buildID": build_id(info.digest.hex()),
        "cpuCount": cpu_count(resources.cpu_millis),
        "memoryMB": resources.memory_mib,
        "diskSizeMB": resources.disk_mib,
        "public": !template.own,
        "aliases": [info.name],
        "names": [info.name],
        "createdAt": info.created_at.to_string(),
        "updatedAt": info.created_at.to_string(),
        "createdBy": null,
        "lastSpawnedAt": null,
        "spawnCount": 0,
        "buildCount": 1,
        "envdVersion": envd::VERSION,
        "buildStatus": "ready",
    })
}

/// Clients expect a UUID; the digest of the build gives one that stays.
fn build_id(hex: &str) -> String {
    let mut parts = Vec::new();
    let mut rest = hex;
    for length in [8, 4, 4, 4, 12] {
        let (part, after) = rest.split_at_checked(length).unwrap_or((rest, ""));
        parts.push(part);
        rest = after;
    }
    parts.join("-")
}

#[cfg(test)]
mod tests {
    use super::*;
    use cofferdam_core::{Digest, TemplateInfo, Timestamp};

    #[test]
    fn a_listed_template_has_every_field_that_clients_demand() {
        let info = TemplateInfo {
            id: "tbase".parse().unwrap(),
            name: "base".into(),
            digest: Digest::from_sha256([0xab; 32]),
            created_at: Timestamp::from_micros(0),
            size_bytes: 1,
            default_user: "user".into(),
            default_workdir: String::new(),
            env: Default::default(),
        };
        let value = shape(&TemplateView { info, own: false }, &Resources::default());
        assert_eq!(value["buildID"], "abababab-abab-abab-abab-abababababab");
        assert_eq!((&value["public"], &value["aliases"][0]), (&json!(true), &json!("base")));
        assert_eq!(value.as_object().unwrap().len(), 16);
    }
}
