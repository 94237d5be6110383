//! Owns the decision where a request belongs: to the control plane, or to a port of a sandbox. Pure: names and headers
//! in, a target out.

use cofferdam_core::SandboxId;

/// Header that names the sandbox.
pub(crate) const SANDBOX_HEADER: &str = "e2b-sandbox-id";
/// Header that names the port of the sandbox.
pub(crate) const PORT_HEADER: &str = "e2b-sandbox-port";

/// Where a request belongs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Target {
    /// To the control plane.
    Control,
    /// To a port of a sandbox.
    Sandbox {
        /// The sandbox.
        id: SandboxId,
        /// The port.
        port: u16,
    },
}

/// A request that names a sandbox in a way that cannot be read. The text is for the client.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum TargetError {
    /// Only one of the two headers is there.
    #[error("missing header: {0}")]
    MissingHeader(&'static str),
    /// A header is no text, or its port is no number.
    #[error("invalid header: {0}")]
    InvalidHeader(&'static str),
    /// The host name has no port and id in front.
    #[error("Invalid host")]
    Host,
    /// The port in the host name is no number.
    #[error("Invalid sandbox port")]
    Port,
    /// The id is not one that can exist.
    #[error("Invalid sandbox ID")]
    Id,
}

/// What a request says about where it belongs.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Address<'a> {
    /// Host, with or without a port.
    pub(crate) host: &'a str,
    /// Name under which sandboxes are reached, with or without a port, when there is one.
    pub(crate) domain: Option<&'a str>,
    /// Value of [`SANDBOX_HEADER`].
    pub(crate) sandbox: Option<&'a str>,
    /// Value of [`PORT_HEADER`].
    pub(crate) port: Option<&'a str>,
}

impl Address<'_> {
    /// Decides. A host name that begins with a port number and an id wins; then the headers, on any host; a host of
    /// the form `sandbox.*` is never the control plane.
    pub(crate) fn target(&self) -> Result<Target, TargetError> {
        let host = without_port(self.host);
        if let Some(label) = sandbox_label(host, self.domain.map(without_port)) {
            return by_label(label);
        }
        match (self.sandbox, self.port) {
            (Some(id), Some(port)) => by_headers(id, port),
            (Some(_), None) => Err(TargetError::MissingHeader("E2b-Sandbox-Port")),
            (None, Some(_)) => Err(TargetError::MissingHeader("E2b-Sandbox-Id")),
            (None, None) if starts_with_ignore_case(host, "sandbox.") => Err(TargetError::Host),
            (None, None) => Ok(Target::Control),
        }
    }
}

/// Cuts an id as clients may write it, `{id}` or `{id}-{anything}`, to the id.
pub(crate) fn sandbox_id(text: &str) -> Result<SandboxId, TargetError> {
    let id = text.split('-').next().unwrap_or_default();
    id.parse().map_err(|_| TargetError::Id)
}

fn by_headers(id: &str, port: &str) -> Result<Target, TargetError> {
    let port = port.trim().parse().map_err(|_| TargetError::InvalidHeader("E2b-Sandbox-Port"))?;
    Ok(Target::Sandbox { id: sandbox_id(id.trim())?, port })
}

fn by_label(label: &str) -> Result<Target, TargetError> {
    let (port, rest) = label.split_once('-').ok_or(TargetError::Host)?;
    let port = port.parse().map_err(|_| TargetError::Port)?;
    Ok(Target::Sandbox { id: sandbox_id(&rest.to_ascii_lowercase())?, port })
}

/// The left-most label of a host name, when it is meant to name a sandbox: it has a hyphen, and either begins with a
/// number or stands directly before our own domain.
fn sandbox_label<'a>(host: &'a str, domain: Option<&str>) -> Option<&'a str> {
    let (label, rest) = host.split_once('.')?;
    let (port, _) = label.split_once('-')?;
    let numeric = !port.is_empty() && port.bytes().all(|b| b.is_ascii_digit());
    (numeric || domain.is_some_and(|domain| rest.eq_ignore_ascii_case(domain))).then_some(label)
}

fn without_port(host: &str) -> &str {
    if host.starts_with('[') {
        return host;
    }
    host.split(':').next().unwrap_or_default()
}

fn starts_with_ignore_case(text: &str, prefix: &str) -> bool {
    text.get(..prefix.len()).is_some_and(|start| start.eq_ignore_ascii_case(prefix))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[track_caller]
    fn check(host: &str, headers: (Option<&str>, Option<&str>), expected: Result<Target, TargetError>) {
        let address = Address { host, domain: Some("own.test:8443"), sandbox: headers.0, port: headers.1 };
        assert_eq!(address.target(), expected, "{host} {headers:?}");
    }

    fn sandbox(id: &str, port: u16) -> Result<Target, TargetError> {
        Ok(Target::Sandbox { id: id.parse().unwrap(), port })
    }

    #[test]
    fn a_host_name_with_port_and_id_names_a_sandbox() {
        check("49983-iabc.e2b.localhost:8443", (None, None), sandbox("iabc", 49983));
        check("8080-iabc-clientid.x.test", (None, None), sandbox("iabc", 8080));
        check("8080-IABC.x.test", (None, None), sandbox("iabc", 8080));
        check("8080-iabc.x.test", (Some("iother"), Some("1")), sandbox("iabc", 8080));
    }

    #[test]
    fn headers_name_a_sandbox_on_any_other_host() {
        check("127.0.0.1:3000", (Some("iabc"), Some("80")), sandbox("iabc", 80));
        check("[::1]:3000", (Some("iabc-client"), Some("80")), sandbox("iabc", 80));
        check("sandbox.x.test", (Some("iabc"), Some("80")), sandbox("iabc", 80));
        check("e2b.internal", (Some("iabc"), Some("80")), sandbox("iabc", 80));
    }

    #[test]
    fn half_an_address_is_an_error_that_names_the_other_half() {
        check("localhost", (Some("iabc"), None), Err(TargetError::MissingHeader("E2b-Sandbox-Port")));
        check("localhost", (None, Some("80")), Err(TargetError::MissingHeader("E2b-Sandbox-Id")));
        check("localhost", (Some("iabc"), Some("x")), Err(TargetError::InvalidHeader("E2b-Sandbox-Port")));
        check("localhost", (Some("iabc"), Some("-1")), Err(TargetError::InvalidHeader("E2b-Sandbox-Port")));
        check("sandbox.x.test", (None, None), Err(TargetError::Host));
    }

    #[test]
    fn what_cannot_exist_is_refused() {
        check("99999-iabc.x.test", (None, None), Err(TargetError::Port));
        check("80-.x.test", (None, None), Err(TargetError::Id));
        check("80-no_id.x.test", (None, None), Err(TargetError::Id));
        check("x-iabc.own.test", (None, None), Err(TargetError::Port));
        check("localhost", (Some("../etc"), Some("80")), Err(TargetError::Id));
    }

    #[test]
    fn everything_else_is_the_control_plane() {
        for host in ["localhost:3000", "127.0.0.1", "api.x.test", "my-proxy.x.test", "x.test", "[::1]", ""] {
            check(host, (None, None), Ok(Target::Control));
        }
    }

    proptest! {
        #[test]
        fn any_text_has_an_answer(host in ".{0,80}", id in prop::option::of(".{0,40}"), port in prop::option::of(".{0,8}")) {
            let address =
                Address { host: &host, domain: Some("own.test"), sandbox: id.as_deref(), port: port.as_deref() };
            if let Ok(Target::Sandbox { id, .. }) = address.target() {
                prop_assert!(id.as_str().bytes().all(|b| b.is_ascii_alphanumeric()));
            }
        }
    }
}
