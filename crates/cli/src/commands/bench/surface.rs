//! Owns the two ways in which sandboxes are measured: the native API and the calls that the E2B SDK makes.

use super::connect;
use crate::client::{Client, full, json_body, parse};
use crate::error::Error;
use clap::ValueEnum;
use cofferdam_core::SandboxId;
use cofferdam_core::secret::Secret;
use cofferdam_proto::api::{CreateSandbox, ExecRequest};
use http::{HeaderValue, Method, Request, header};
use http_body_util::BodyExt as _;
use serde::Deserialize;
use serde_json::json;

/// Port of the daemon that E2B clients believe to talk to.
const ENVD_PORT: &str = "49983";

/// An API.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum Surface {
    /// `/v1`, command `/bin/true`
    Native,
    /// The calls of the E2B SDK, command `/bin/bash -l -c true`
    E2b,
}

impl Surface {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Native => "cofferdam native",
            Self::E2b => "cofferdam e2b",
        }
    }
}

/// What to create.
#[derive(Debug, Clone)]
pub(super) struct Wanted {
    pub(super) template: String,
    pub(super) timeout_seconds: u64,
}

/// A sandbox that was made to be measured.
pub(super) struct Subject {
    pub(super) id: SandboxId,
    token: Option<Secret>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Created {
    #[serde(rename = "sandboxID")]
    sandbox_id: SandboxId,
    envd_access_token: Option<Secret>,
}

/// Makes a sandbox.
pub(super) async fn create(client: &Client, surface: Surface, wanted: &Wanted) -> Result<Subject, Error> {
    match surface {
        Surface::Native => {
            let request = CreateSandbox {
                template: Some(wanted.template.clone()),
                timeout_seconds: Some(wanted.timeout_seconds),
                ..CreateSandbox::default()
            };
            client.create(&request).await.map(|sandbox| Subject { id: sandbox.id, token: None })
        }
        Surface::E2b => {
            let request =
                json!({ "templateID": wanted.template, "timeout": wanted.timeout_seconds, "secure": true });
            let answer = client.call(Method::POST, "/sandboxes", json_body(&request)).await?;
            let created: Created = parse("POST /sandboxes", &answer)?;
            Ok(Subject { id: created.sandbox_id, token: created.envd_access_token })
        }
    }
}

/// Runs the command of the surface.
pub(super) async fn command(client: &Client, surface: Surface, subject: &Subject) -> Result<(), String> {
    match surface {
        Surface::Native => {
            let request = ExecRequest { argv: vec!["/bin/true".into()], ..ExecRequest::default() };
            let result = client.exec(&subject.id, &request).await.map_err(in_full)?;
            succeeded(result.exit.code.map(i64::from))
        }
        Surface::E2b => start(client, subject).await,
    }
}

async fn start(client: &Client, subject: &Subject) -> Result<(), String> {
    let request = start_request(client, subject).map_err(in_full)?;
    let response = client.send("process.Process/Start", request).await.map_err(in_full)?;
    let mut body = response.into_body();
    let mut stream = connect::Stream::default();
    let mut code = None;
    // Read to the very end, so that the connection can be used again.
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| error.to_string())?;
        if let Some(bytes) = frame.data_ref() {
            code = stream.feed(bytes)?.or(code);
        }
    }
    succeeded(code)
}

fn start_request(client: &Client, subject: &Subject) -> Result<Request<crate::client::Body>, Error> {
    let message = json!({ "process": { "cmd": "/bin/bash", "args": ["-l", "-c", "true"] }, "stdin": false });
    let body = full(connect::frame(&message).into());
    let mut request = client.request(Method::POST, "/process.Process/Start", body)?;
    let value = |text: &str| {
        HeaderValue::from_str(text)
            .map_err(|error| Error::Usage(format!("a token is no header value: {error}")))
    };
    let headers = request.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/connect+json"));
    headers.insert("connect-protocol-version", HeaderValue::from_static("1"));
    headers.insert("keepalive-ping-interval", HeaderValue::from_static("50"));
    headers.insert("e2b-sandbox-id", value(subject.id.as_str())?);
    headers.insert("e2b-sandbox-port", HeaderValue::from_static(ENVD_PORT));
    if let Some(token) = &subject.token {
        headers.insert("x-access-token", value(token.expose())?);
    }
    Ok(request)
}

fn succeeded(code: Option<i64>) -> Result<(), String> {
    match code {
        Some(0) => Ok(()),
        Some(code) => Err(format!("the command ended with {code}")),
        None => Err("the command did not end by itself".to_owned()),
    }
}

/// An error and its causes in one line.
pub(super) fn in_full(error: Error) -> String {
    crate::error::chain(&error)
}
