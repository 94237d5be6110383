//! Owns what an API key may do: scopes, the action each one opens, and the permit that proves it.

use std::fmt;
use std::str::FromStr;

/// One permission of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum Scope {
    /// See sandboxes and their use.
    SandboxesRead,
    /// Make, prolong and end sandboxes.
    SandboxesWrite,
    /// Run commands in sandboxes, and reach their ports.
    Exec,
    /// Read and write files in sandboxes.
    Files,
    /// See templates.
    TemplatesRead,
    /// Import and remove templates.
    TemplatesWrite,
    /// Make, see and revoke keys.
    Keys,
    /// Read the record.
    LogsRead,
    /// See what the host can do.
    HostRead,
    /// Make tenants and set their quotas.
    Tenants,
}

impl Scope {
    /// Every scope, in the order in which they are shown.
    pub const ALL: [Self; 10] = [
        Self::SandboxesRead,
        Self::SandboxesWrite,
        Self::Exec,
        Self::Files,
        Self::TemplatesRead,
        Self::TemplatesWrite,
        Self::Keys,
        Self::LogsRead,
        Self::HostRead,
        Self::Tenants,
    ];

    /// The name as it is stored and shown.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::SandboxesRead => "sandboxes:read",
            Self::SandboxesWrite => "sandboxes:write",
            Self::Exec => "exec",
            Self::Files => "files",
            Self::TemplatesRead => "templates:read",
            Self::TemplatesWrite => "templates:write",
            Self::Keys => "keys",
            Self::LogsRead => "logs:read",
            Self::HostRead => "host:read",
            Self::Tenants => "tenants",
        }
    }
}

/// A text that names no scope.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("unknown scope `{0}`")]
pub struct UnknownScope(pub String);

impl FromStr for Scope {
    type Err = UnknownScope;

    fn from_str(text: &str) -> Result<Self, UnknownScope> {
        let found = Self::ALL.into_iter().find(|scope| scope.as_str() == text);
        found.ok_or_else(|| UnknownScope(text.to_owned()))
    }
}

/// A set of scopes.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
pub struct Scopes(u16);

impl Scopes {
    /// Nothing.
    pub const NONE: Self = Self(0);
    /// Everything there is in this version.
    pub const ALL: Self = Self((1 << Scope::ALL.len()) - 1);
    /// Everything that concerns one tenant only.
    pub const TENANT: Self = Self(Self::ALL.0 & !(1 << Scope::Tenants as u16));
    /// What the access token of one sandbox opens, in that sandbox.
    pub const SANDBOX_TOKEN: Self = Self((1 << Scope::Exec as u16) | (1 << Scope::Files as u16));

    /// This set and `scope`.
    #[must_use]
    pub fn with(self, scope: Scope) -> Self {
        Self(self.0 | (1 << scope as u16))
    }

    /// True when `scope` is in the set.
    pub fn contains(self, scope: Scope) -> bool {
        self.0 & (1 << scope as u16) != 0
    }

    /// True when all of `other` is in the set.
    pub fn includes(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// The scopes of the set.
    pub fn iter(self) -> impl Iterator<Item = Scope> {
        Scope::ALL.into_iter().filter(move |scope| self.contains(*scope))
    }

    /// Their names.
    pub fn names(self) -> Vec<String> {
        self.iter().map(|scope| scope.as_str().to_owned()).collect()
    }

    /// The set of these names; a name that is not known is an error, never left out.
    pub fn parse<'a>(names: impl IntoIterator<Item = &'a str>) -> Result<Self, UnknownScope> {
        names.into_iter().try_fold(Self::NONE, |set, name| Ok(set.with(name.parse()?)))
    }
}

impl FromIterator<Scope> for Scopes {
    fn from_iter<T: IntoIterator<Item = Scope>>(scopes: T) -> Self {
        scopes.into_iter().fold(Self::NONE, Self::with)
    }
}

impl fmt::Debug for Scopes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.iter().map(Scope::as_str)).finish()
    }
}

/// What somebody wants to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Action {
    /// Make a sandbox.
    CreateSandbox,
    /// See sandboxes.
    ReadSandboxes,
    /// Move the deadline of a sandbox.
    ChangeDeadline,
    /// End a sandbox.
    KillSandbox,
    /// Run commands, attach to them, signal them.
    Exec,
    /// Reach a port inside.
    DialPort,
    /// Read files and directories.
    ReadFiles,
    /// Write, move and remove files.
    WriteFiles,
    /// See templates.
    ReadTemplates,
    /// Import a template.
    ImportTemplate,
    /// Remove a template.
    RemoveTemplate,
    /// Make a key.
    CreateKey,
    /// See keys.
    ReadKeys,
    /// Revoke a key.
    RevokeKey,
    /// Read the record of a sandbox.
    ReadLogs,
    /// See what the host can do.
    ReadHost,
    /// Make tenants, see them, set their quotas.
    ManageTenants,
}

impl Action {
    /// Every action, for tests and tables.
    pub const ALL: [Self; 17] = [
        Self::CreateSandbox,
        Self::ReadSandboxes,
        Self::ChangeDeadline,
        Self::KillSandbox,
        Self::Exec,
        Self::DialPort,
        Self::ReadFiles,
        Self::WriteFiles,
        Self::ReadTemplates,
        Self::ImportTemplate,
        Self::RemoveTemplate,
        Self::CreateKey,
        Self::ReadKeys,
        Self::RevokeKey,
        Self::ReadLogs,
        Self::ReadHost,
        Self::ManageTenants,
    ];

    /// The name as it is recorded.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::CreateSandbox => "create_sandbox",
            Self::ReadSandboxes => "read_sandboxes",
            Self::ChangeDeadline => "change_deadline",
            Self::KillSandbox => "kill_sandbox",
            Self::Exec => "exec",
            Self::DialPort => "dial_port",
            Self::ReadFiles => "read_files",
            Self::WriteFiles => "write_files",
            Self::ReadTemplates => "read_templates",
            Self::ImportTemplate => "import_template",
            Self::RemoveTemplate => "remove_template",
            Self::CreateKey => "create_key",
            Self::ReadKeys => "read_keys",
            Self::RevokeKey => "revoke_key",
            Self::ReadLogs => "read_logs",
            Self::ReadHost => "read_host",
            Self::ManageTenants => "manage_tenants",
        }
    }

    /// The scope that opens it.
    pub fn scope(self) -> Scope {
        match self {
            Self::ReadSandboxes => Scope::SandboxesRead,
            Self::CreateSandbox | Self::ChangeDeadline | Self::KillSandbox => Scope::SandboxesWrite,
            Self::Exec | Self::DialPort => Scope::Exec,
            Self::ReadFiles | Self::WriteFiles => Scope::Files,
            Self::ReadTemplates => Scope::TemplatesRead,
            Self::ImportTemplate | Self::RemoveTemplate => Scope::TemplatesWrite,
            Self::CreateKey | Self::ReadKeys | Self::RevokeKey => Scope::Keys,
            Self::ReadLogs => Scope::LogsRead,
            Self::ReadHost => Scope::HostRead,
            Self::ManageTenants => Scope::Tenants,
        }
    }
}

/// Proof that [`authorize`] said yes to one action.
#[derive(Debug, PartialEq, Eq)]
#[must_use]
pub struct Permit {
    action: Action,
}

impl Permit {
    /// What is permitted.
    pub fn action(&self) -> Action {
        self.action
    }
}

/// The scope for an action is missing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("this needs the scope `{}`, which the key does not have", .scope.as_str())]
pub struct Denied {
    /// What was wanted.
    pub action: Action,
    /// What is missing.
    pub scope: Scope,
}

/// Decides whether a holder of `scopes` may do `action`.
pub fn authorize(scopes: Scopes, action: Action) -> Result<Permit, Denied> {
    let scope = action.scope();
    if scopes.contains(scope) { Ok(Permit { action }) } else { Err(Denied { action, scope }) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn any_scopes() -> impl Strategy<Value = Scopes> {
        prop::collection::vec(0..Scope::ALL.len(), 0..12)
            .prop_map(|picks| picks.into_iter().map(|i| Scope::ALL[i]).collect())
    }

    #[test]
    fn nothing_granted_nothing_allowed() {
        for action in Action::ALL {
            assert_eq!(authorize(Scopes::NONE, action).unwrap_err().action, action);
        }
    }

    #[test]
    fn everything_granted_everything_allowed() {
        for action in Action::ALL {
            assert_eq!(authorize(Scopes::ALL, action).unwrap().action(), action);
        }
    }

    #[test]
    fn a_sandbox_token_opens_nothing_outside_its_sandbox() {
        let allowed = |action: &Action| authorize(Scopes::SANDBOX_TOKEN, *action).is_ok();
        let open: Vec<_> = Action::ALL.into_iter().filter(allowed).collect();
        assert_eq!(open, [Action::Exec, Action::DialPort, Action::ReadFiles, Action::WriteFiles]);
    }

    #[test]
    fn a_tenant_has_everything_but_other_tenants() {
        let denied = |action: &Action| authorize(Scopes::TENANT, *action).is_err();
        assert_eq!(Action::ALL.into_iter().filter(denied).collect::<Vec<_>>(), [Action::ManageTenants]);
    }

    #[test]
    fn names_round_trip_and_unknown_ones_are_refused() {
        let names = Scopes::ALL.names();
        assert_eq!(Scopes::parse(names.iter().map(String::as_str)), Ok(Scopes::ALL));
        assert_eq!(Scopes::parse(["exec", "root"]), Err(UnknownScope("root".into())));
    }

    proptest! {
        #[test]
        fn granting_more_never_denies_more(less in any_scopes(), more in any_scopes()) {
            let union: Scopes = less.iter().chain(more.iter()).collect();
            prop_assert!(union.includes(less));
            for action in Action::ALL {
                if authorize(less, action).is_ok() {
                    prop_assert!(authorize(union, action).is_ok());
                }
            }
        }

        #[test]
        fn only_the_scope_of_the_action_decides(scopes in any_scopes()) {
            for action in Action::ALL {
                prop_assert_eq!(authorize(scopes, action).is_ok(), scopes.contains(action.scope()));
            }
        }
    }
}
