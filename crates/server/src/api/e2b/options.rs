//! Owns what a create request may ask for. What needs something that this version has not is refused with the name of
//! the option, and accepted where it changes nothing: a sandbox has no network, so denying it is always granted.

use super::error::Error;
use crate::app::{CreateSandbox, Idempotency, Identity};
use cofferdam_core::{SandboxId, TemplateId};
use serde::Deserialize;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

/// Where the original's event service is; nothing answers there, as in a sandbox without one.
const EVENTS_ADDRESS: &str = "http://192.0.2.1";

/// Body of `POST /sandboxes` and `POST /v2/sandboxes`.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct NewSandbox {
    #[serde(rename = "templateID")]
    template_id: Option<String>,
    timeout: Option<i64>,
    auto_pause: Option<bool>,
    auto_pause_memory: Option<bool>,
    auto_resume: Option<AutoResume>,
    secure: Option<bool>,
    #[serde(rename = "allow_internet_access")]
    allow_internet_access: Option<bool>,
    network: Option<Network>,
    metadata: Option<BTreeMap<String, String>>,
    env_vars: Option<BTreeMap<String, String>>,
    mcp: Option<Value>,
    iam: Option<Iam>,
    volume_mounts: Option<Vec<Value>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct AutoResume {
    enabled: bool,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Iam {
    tokens: Option<Map<String, Value>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Network {
    allow_public_traffic: Option<bool>,
    allow_out: Option<Vec<String>>,
    deny_out: Option<Vec<String>>,
    rules: Option<Map<String, Value>>,
    egress_proxy: Option<Value>,
    mask_request_host: Option<String>,
    dns_servers: Option<Vec<String>>,
    https_ports: Option<Vec<u32>>,
}

/// What the two versions of the endpoint differ in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Version {
    /// Secured on request, 15 seconds.
    V1,
    /// Always secured, 300 seconds.
    V2,
}

impl NewSandbox {
    /// The request in our own words.
    pub(crate) fn into_request(
        self,
        version: Version,
        idempotency: Option<Idempotency>,
    ) -> Result<CreateSandbox, Error> {
        let template = self.template_id.clone().filter(|template| !template.is_empty());
        let template = template.ok_or_else(|| Error::bad_request("templateID is required"))?;
        let timeout_seconds = life_span(self.timeout, version)?;
        self.refuse_pausing()?;
        let network = self.network.as_ref();
        network.map_or(Ok(()), Network::refuse)?;
        refuse(
            self.volume_mounts.as_ref().is_some_and(|mounts| !mounts.is_empty()),
            "volumeMounts",
            "volumes are",
        )?;
        let identities = self.iam.as_ref().and_then(|iam| iam.tokens.as_ref());
        refuse(identities.is_some_and(|tokens| !tokens.is_empty()), "iam", "workload identities are")?;
        let secure = version == Version::V2 || self.secure.unwrap_or(false);
        let private_ingress = network.is_some_and(|network| network.allow_public_traffic == Some(false));
        if private_ingress && !secure {
            return Err(Error::bad_request("network.allowPublicTraffic: false needs secure: true"));
        }
        let options = self.kept();
        Ok(CreateSandbox {
            template: Some(template),
            timeout_seconds: Some(timeout_seconds),
            env: self.env_vars.unwrap_or_default(),
            identity: Some(identity),
            metadata: self.metadata.unwrap_or_default(),
            secure,
            private_ingress,
            options,
            idempotency,
            ..CreateSandbox::default()
        })
    }

    fn refuse_pausing(&self) -> Result<(), Error> {
        let pause = self.auto_pause == Some(true);
        if self.auto_pause_memory == Some(false) && !pause {
            return Err(Error::bad_request("autoPauseMemory: false needs autoPause: true"));
        }
        refuse(pause, "autoPause", "pausing a sandbox is")?;
        refuse(
            self.auto_resume.as_ref().is_some_and(|auto| auto.enabled),
            "autoResume",
            "pausing a sandbox is",
        )
    }

    /// What info answers as it came.
    fn kept(&self) -> Value {
        let mut kept = Map::new();
        if let Some(allowed) = self.allow_internet_access {
            kept.insert("allowInternetAccess".into(), allowed.into());
        }
        if let Some(network) = &self.network {
            kept.insert("network".into(), network.kept());
        }
        if let Some(mcp) = self.mcp.as_ref().filter(|mcp| !mcp.is_null()) {
            kept.insert("mcp".into(), mcp.clone());
        }
        Value::Object(kept)
    }
}

impl Network {
    fn refuse(&self) -> Result<(), Error> {
        let what = "a network for sandboxes is";
        let some = |list: &Option<Vec<String>>| list.as_ref().is_some_and(|list| !list.is_empty());
        refuse(some(&self.allow_out), "network.allowOut", what)?;
        refuse(self.rules.as_ref().is_some_and(|rules| !rules.is_empty()), "network.rules", what)?;
        refuse(
            self.egress_proxy.as_ref().is_some_and(|proxy| !proxy.is_null()),
            "network.egressProxy",
            what,
        )?;
        refuse(some(&self.dns_servers), "network.dnsServers", what)?;
        refuse(self.https_ports.as_ref().is_some_and(|ports| !ports.is_empty()), "network.httpsPorts", what)?;
        let masked = self.mask_request_host.as_ref().is_some_and(|host| !host.is_empty());
        refuse(masked, "network.maskRequestHost", "rewriting the Host header is")
    }

    fn kept(&self) -> Value {
        let mut kept = json!({"allowPublicTraffic": self.allow_public_traffic.unwrap_or(true)});
        if let Some(denied) = &self.deny_out {
            kept["denyOut"] = json!(denied);
        }
        kept
    }
}

/// What E2B's programs look for inside.
fn identity(sandbox: &SandboxId, template: &TemplateId) -> Identity {
    let facts = [
        ("E2B_SANDBOX", "true".to_owned()),
        ("E2B_SANDBOX_ID", sandbox.to_string()),
        ("E2B_TEMPLATE_ID", template.to_string()),
    ];
    let files = facts.iter().map(|(name, value)| (format!("/run/e2b/.{name}"), value.clone())).collect();
    let mut env: BTreeMap<_, _> = facts.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
    env.insert("E2B_EVENTS_ADDRESS".to_owned(), EVENTS_ADDRESS.to_owned());
    Identity { env, files }
}

fn refuse(asked: bool, option: &str, what: &str) -> Result<(), Error> {
    if asked { Err(Error::not_implemented(&format!("option {option}: {what}"))) } else { Ok(()) }
}

fn life_span(timeout: Option<i64>, version: Version) -> Result<u64, Error> {
    let default = if version == Version::V1 { 15 } else { 300 };
    let seconds = u64::try_from(timeout.unwrap_or(default)).ok().filter(|seconds| *seconds > 0);
    seconds.ok_or_else(|| Error::bad_request("Timeout must be greater than 0"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn request(body: &str, version: Version) -> Result<CreateSandbox, Error> {
        serde_json::from_str::<NewSandbox>(body).unwrap().into_request(version, None)
    }

    #[track_caller]
    fn refused(body: &str, status: u16, text: &str) {
        let error = request(body, Version::V1).unwrap_err();
        assert_eq!(error.status().as_u16(), status, "{body}");
        assert!(error.message().contains(text), "{body}: {}", error.message());
    }

    #[test]
    fn defaults_differ_between_the_versions() {
        let v1 = request(r#"{"templateID": "base"}"#, Version::V1).unwrap();
        assert_eq!((v1.secure, v1.timeout_seconds), (false, Some(15)));
        let v2 = request(r#"{"templateID": "base", "unknown": 1}"#, Version::V2).unwrap();
        assert_eq!((v2.secure, v2.timeout_seconds), (true, Some(300)));
    }

    #[test]
    fn options_at_their_defaults_are_accepted() {
        let body = r#"{"templateID": "base", "autoPause": false, "autoPauseMemory": true, "autoResume": {"enabled": false},
            "allow_internet_access": true, "network": {"denyOut": ["0.0.0.0/0"], "egressProxy": null}, "volumeMounts": [],
            "iam": {"tokens": {}}, "mcp": null, "metadata": {"a": "b"}, "envVars": {"A": "b"}}"#;
        let request = request(body, Version::V1).unwrap();
        assert_eq!(request.options["allowInternetAccess"], true);
        assert_eq!(request.env["A"], "b");
    }

    #[test]
    fn what_is_missing_is_refused_by_name() {
        refused(r#"{"templateID": "base", "autoPause": true}"#, 501, "autoPause");
        refused(r#"{"templateID": "base", "autoResume": {"enabled": true}}"#, 501, "autoResume");
        refused(
            r#"{"templateID": "base", "volumeMounts": [{"name": "a", "path": "/a"}]}"#,
            501,
            "volumeMounts",
        );
        refused(r#"{"templateID": "base", "iam": {"tokens": {"a": {}}}}"#, 501, "iam");
        refused(r#"{"templateID": "base", "network": {"allowOut": ["1.1.1.1"]}}"#, 501, "network.allowOut");
    }

    #[test]
    fn what_cannot_be_is_refused() {
        refused("{}", 400, "templateID");
        refused(r#"{"templateID": "base", "timeout": 0}"#, 400, "Timeout must be greater than 0");
        refused(r#"{"templateID": "base", "timeout": -5}"#, 400, "Timeout must be greater than 0");
        refused(r#"{"templateID": "base", "autoPauseMemory": false}"#, 400, "autoPauseMemory");
        refused(
            r#"{"templateID": "base", "network": {"allowPublicTraffic": false}}"#,
            400,
            "allowPublicTraffic",
        );
        assert!(serde_json::from_str::<NewSandbox>(r#"{"timeout": 1e300}"#).is_err());
    }

    proptest! {
        #[test]
        fn any_body_has_an_answer(text in ".{0,200}", timeout in any::<i64>()) {
            drop(serde_json::from_str::<NewSandbox>(&text));
            drop(request(&format!(r#"{{"templateID": "base", "timeout": {timeout}}}"#), Version::V2));
        }
    }
}
