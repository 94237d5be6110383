//! Owns the answers that the gateway gives in place of a sandbox: JSON for programs, a small page for browsers.

use crate::http::Body;
use axum::response::IntoResponse;
use cofferdam_core::SandboxId;
use http::{HeaderMap, Response, StatusCode, header};
use serde_json::json;

/// Why a request did not reach a port of a sandbox. The texts are part of the contract: clients tell the first two
/// apart by `was not found` and `port is not open`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// There is no such sandbox, or it is not running.
    NotFound(SandboxId),
    /// Nothing listens on the port.
    PortClosed(SandboxId, u16),
    /// Something listens, but it does not speak HTTP.
    NoAnswer(SandboxId, u16),
    /// The sandbox could not be asked.
    Unreachable(SandboxId),
    /// The ports of the sandbox are private and the token is missing or wrong.
    Forbidden(SandboxId),
}

impl Refusal {
    fn status(&self) -> StatusCode {
        match self {
            Self::NotFound(_) | Self::PortClosed(..) | Self::NoAnswer(..) => StatusCode::BAD_GATEWAY,
            Self::Unreachable(_) => StatusCode::SERVICE_UNAVAILABLE,
            Self::Forbidden(_) => StatusCode::FORBIDDEN,
        }
    }

    fn sandbox(&self) -> &SandboxId {
        match self {
            Self::NotFound(id)
            | Self::PortClosed(id, _)
            | Self::NoAnswer(id, _)
            | Self::Unreachable(id)
            | Self::Forbidden(id) => id,
        }
    }

    fn message(&self) -> &'static str {
        match self {
            Self::NotFound(_) => "The sandbox was not found",
            Self::PortClosed(..) => "The sandbox is running but port is not open",
            Self::NoAnswer(..) => {
                "The sandbox is running but the service on this port did not answer in HTTP"
            }
            Self::Unreachable(_) => "The sandbox cannot be reached now, try again",
            Self::Forbidden(_) => "Missing or wrong traffic access token (header e2b-traffic-access-token)",
        }
    }

    fn port(&self) -> Option<u16> {
        match self {
            Self::PortClosed(_, port) | Self::NoAnswer(_, port) => Some(*port),
            Self::NotFound(_) | Self::Unreachable(_) | Self::Forbidden(_) => None,
        }
    }

    /// The answer, in the form that fits who asks.
    pub(crate) fn respond(&self, to: Audience) -> Response<Body> {
        let status = self.status();
        match to {
            Audience::Browser => (status, axum::response::Html(self.html())).into_response(),
            Audience::Program => {
                let mut body =
                    json!({"sandboxId": self.sandbox(), "message": self.message(), "code": status.as_u16()});
                if let Some(port) = self.port() {
                    body["port"] = port.into();
                }
                (status, axum::Json(body)).into_response()
            }
        }
    }

    /// Ids are lower-case letters and digits, so nothing here needs escaping.
    fn html(&self) -> String {
        let port = self.port().map(|port| format!(", port {port}")).unwrap_or_default();
        format!(
            "<!doctype html><html lang=\"en\"><head><meta charset=\"utf-8\"><title>{status}</title></head>\
             <body><h1>{message}</h1><p>Sandbox {id}{port}</p></body></html>\n",
            status = self.status(),
            message = self.message(),
            id = self.sandbox(),
        )
    }
}

/// Who asks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Audience {
    /// A person who navigates.
    Browser,
    /// Everything else.
    Program,
}

impl Audience {
    /// Told by the headers that only browsers' navigations have.
    pub(crate) fn of(headers: &HeaderMap) -> Self {
        let text = |name| headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default();
        let browser = text(header::USER_AGENT).starts_with("Mozilla/");
        if browser && text(header::ACCEPT).contains("text/html") { Self::Browser } else { Self::Program }
    }
}

/// An answer in plain text, for addresses that cannot be read.
pub(crate) fn plain(status: StatusCode, message: &str) -> Response<Body> {
    (status, format!("{message}\n")).into_response()
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::HeaderValue;

    #[tokio::test]
    async fn programs_get_the_json_that_sdks_look_for() {
        let refusal = Refusal::PortClosed("iabc".parse().unwrap(), 8080);
        let response = refusal.respond(Audience::Program);
        assert_eq!(response.status(), 502);
        let body = axum::body::to_bytes(response.into_body(), 1000).await.unwrap();
        let value: serde_json::Value = serde_json::from_slice(&body).unwrap();
        let expected = json!({"sandboxId": "iabc", "message": "The sandbox is running but port is not open", "port": 8080, "code": 502});
        assert_eq!(value, expected);
    }

    #[test]
    fn browsers_are_told_by_both_headers() {
        let mut headers = HeaderMap::new();
        headers.insert(header::USER_AGENT, HeaderValue::from_static("Mozilla/5.0 (X11)"));
        assert_eq!(Audience::of(&headers), Audience::Program);
        headers.insert(header::ACCEPT, HeaderValue::from_static("text/html,*/*"));
        assert_eq!(Audience::of(&headers), Audience::Browser);
    }
}
