//! Owns the JSON objects of the control plane. An optional field that is absent is left out, never null, unless clients
//! expect null.

use super::envd;
use super::meter::cpu_count;
use crate::app::SandboxView;
use cofferdam_core::State;
use serde::Serialize;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

/// Legacy field that clients demand and ignore.
const CLIENT_ID: &str = "cofferdam";

/// What create, connect and resume answer.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Sandbox {
    #[serde(rename = "templateID")]
    template_id: String,
    #[serde(rename = "sandboxID")]
    sandbox_id: String,
    #[serde(rename = "clientID")]
    client_id: &'static str,
    envd_version: &'static str,
    alias: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    envd_access_token: Option<String>,
    traffic_access_token: Option<String>,
    domain: Option<String>,
}

impl Sandbox {
    /// The answer for this sandbox, reached under `domain`.
    pub(crate) fn new(view: &SandboxView, domain: Option<&str>) -> Self {
        Self {
            template_id: view.template.id.to_string(),
            sandbox_id: view.id.to_string(),
            client_id: CLIENT_ID,
            envd_version: envd::VERSION,
            alias: view.template.name.clone(),
            envd_access_token: view.access_token.as_ref().map(|token| token.expose().to_owned()),
            traffic_access_token: view.traffic_token.as_ref().map(|token| token.expose().to_owned()),
            domain: domain.map(str::to_owned),
        }
    }
}

/// A sandbox in a list.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Listed {
    #[serde(rename = "templateID")]
    template_id: String,
    alias: String,
    #[serde(rename = "sandboxID")]
    sandbox_id: String,
    #[serde(rename = "clientID")]
    client_id: &'static str,
    started_at: String,
    end_at: String,
    cpu_count: u32,
    #[serde(rename = "memoryMB")]
    memory_mb: u32,
    #[serde(rename = "diskSizeMB")]
    disk_size_mb: u32,
    metadata: BTreeMap<String, String>,
    state: &'static str,
    envd_version: &'static str,
    volume_mounts: [(); 0],
}

impl Listed {
    /// The row of this sandbox; `None` when it is neither running nor paused.
    pub(crate) fn new(view: &SandboxView) -> Option<Self> {
        Some(Self {
            template_id: view.template.id.to_string(),
            alias: view.template.name.clone(),
            sandbox_id: view.id.to_string(),
            client_id: CLIENT_ID,
            started_at: view.started_at.to_string(),
            end_at: view.expires_at.to_string(),
            cpu_count: cpu_count(view.resources.cpu_millis),
            memory_mb: view.resources.memory_mib,
            disk_size_mb: view.resources.disk_mib,
            metadata: view.metadata.clone(),
            state: state(view.state)?,
            envd_version: envd::VERSION,
            volume_mounts: [],
        })
    }
}

/// Everything about a sandbox.
pub(crate) fn detail(view: &SandboxView, domain: Option<&str>) -> Option<Value> {
    let mut value = serde_json::to_value(Listed::new(view)?).ok()?;
    value["domain"] = json!(domain);
    value["lifecycle"] = json!({"autoResume": false, "onTimeout": "kill"});
    if let Some(token) = &view.access_token {
        value["envdAccessToken"] = json!(token.expose());
    }
    let stored = view.options.as_object().into_iter().flat_map(Map::iter);
    for (name, option) in
        stored.filter(|(name, _)| matches!(name.as_str(), "allowInternetAccess" | "network"))
    {
        value[name] = option.clone();
    }
    Some(value)
}

/// The two states that clients know; transitions count as where they lead, and nothing else is visible.
pub(crate) fn state(state: State) -> Option<&'static str> {
    match state {
        State::Running | State::Resuming => Some("running"),
        State::Paused | State::Pausing => Some("paused"),
        State::Creating | State::Killing | State::Killed | State::Failed => None,
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::app::TemplateRef;
    use cofferdam_core::secret::Secret;
    use cofferdam_core::{Resources, Timestamp};

    pub(crate) fn view() -> SandboxView {
        SandboxView {
            id: "iabc".parse().unwrap(),
            tenant: "n1".parse().unwrap(),
            state: State::Running,
            reason: None,
            template: TemplateRef {
                id: "tbase".parse().unwrap(),
                name: "base".into(),
                digest: "sha256:0".into(),
                default_user: "user".into(),
                default_workdir: String::new(),
            },
            resources: Resources::default(),
            metadata: [("k".to_owned(), "v".to_owned())].into(),
            started_at: Timestamp::from_micros(1_767_323_045_678_901),
            expires_at: Timestamp::from_micros(1_767_323_345_678_901),
            access_token: Some(Secret::new("tok".into())),
            traffic_token: None,
            options: json!({"allowInternetAccess": false, "secret": 1}),
        }
    }

    #[test]
    fn create_answers_what_clients_demand() {
        let value = serde_json::to_value(Sandbox::new(&view(), Some("x.test:8443"))).unwrap();
        let expected = json!({
            "templateID": "tbase", "sandboxID": "iabc", "clientID": "cofferdam", "envdVersion": "0.6.13", "alias": "base",
            "envdAccessToken": "tok", "trafficAccessToken": null, "domain": "x.test:8443",
        });
        assert_eq!(value, expected);
    }

    #[test]
    fn info_is_exact_to_the_microsecond() {
        let value = detail(&view(), None).unwrap();
        let expected = json!({
            "templateID": "tbase", "alias": "base", "sandboxID": "iabc", "clientID": "cofferdam",
            "startedAt": "2026-01-02T03:04:05.678901Z", "endAt": "2026-01-02T03:09:05.678901Z",
            "cpuCount": 2, "memoryMB": 512, "diskSizeMB": 1024, "metadata": {"k": "v"}, "state": "running",
            "envdVersion": "0.6.13", "volumeMounts": [], "domain": null, "envdAccessToken": "tok",
            "lifecycle": {"autoResume": false, "onTimeout": "kill"}, "allowInternetAccess": false,
        });
        assert_eq!(value, expected);
    }

    #[test]
    fn what_has_ended_is_not_shown() {
        assert!(detail(&SandboxView { state: State::Killed, ..view() }, None).is_none());
    }
}
