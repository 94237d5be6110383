//! Owns the protocol between the server and the node: JSON messages on a Unix SEQPACKET socket, one message a packet,
//! file descriptors as ancillary data. The server connects; the node accepts only the uids it was told.
//!
//! Requests carry an id and are answered out of order. `Dial` is answered with one descriptor: a stream connected to
//! the agent of the sandbox. `ImportTemplate` carries one descriptor: the end of a pipe from which the node reads.

use crate::guest::Failure;
use cofferdam_core::{
    LimitHit, Resources, SandboxId, SandboxSpec, State, TemplateId, TemplateInfo, Timestamp,
};
use serde::{Deserialize, Serialize};

/// Version of this protocol.
pub const VERSION: u32 = 1;

/// From the server to the node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Call {
    /// Comes back in the answer; unique among those in flight on the connection.
    pub id: u64,
    /// The request.
    pub request: Request,
}

/// What the server asks.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "op", rename_all = "snake_case")]
pub enum Request {
    /// First on every connection. Answers `Welcome`.
    Hello {
        /// [`VERSION`] of the server.
        version: u32,
    },
    /// Makes a sandbox, or answers with the one that has this id already. Answers `Sandbox`, running.
    Create(Box<SandboxSpec>),
    /// Ends a sandbox and returns all it used. Answers `Done` when nothing is left; unknown ids are `Done` too.
    Kill {
        /// The sandbox.
        sandbox: SandboxId,
    },
    /// Moves the deadline. Answers `Sandbox`.
    SetDeadline {
        /// The sandbox.
        sandbox: SandboxId,
        /// New deadline.
        expires_at: Timestamp,
    },
    /// Opens a connection to the agent. Answers `Done` with one descriptor.
    Dial {
        /// The sandbox.
        sandbox: SandboxId,
    },
    /// Measured use. Answers `Usage`.
    Usage {
        /// The sandbox.
        sandbox: SandboxId,
    },
    /// Every sandbox the node holds, in order of id. Answers `Sandboxes`.
    List {
        /// Only ids after this one.
        after: Option<SandboxId>,
    },
    /// Every template, in order of id. Answers `Templates`.
    Templates {
        /// Only ids after this one.
        after: Option<TemplateId>,
    },
    /// Reads a root file system from the descriptor and makes a template of it. Answers `Template`; sends `Progress`.
    ImportTemplate(ImportTemplate),
    /// Forgets a template. Its bytes go when no sandbox uses them. Answers `Done`.
    RemoveTemplate {
        /// The template.
        template: TemplateId,
    },
    /// Checks what the host can do. Answers `Report`.
    Doctor,
    /// Answers `Capacity`.
    Capacity,
}

/// What an imported byte stream is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ImportFormat {
    /// A tar of a root file system, plain, gzip or zstd (told by its first bytes).
    Rootfs,
    /// A tar of an OCI layout directory.
    OciLayout,
}

/// A template to import.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ImportTemplate {
    /// Its id; an existing one gets a new build.
    pub template: TemplateId,
    /// Its short name.
    pub name: String,
    /// What the bytes are.
    pub format: ImportFormat,
}

/// From the node to the server.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Message {
    /// The answer to a call.
    Answer {
        /// Id of the call.
        id: u64,
        /// What came of it.
        answer: Box<Answer>,
    },
    /// Progress of a long call, before its answer.
    Progress {
        /// Id of the call.
        id: u64,
        /// What is being done, for people.
        step: String,
        /// Bytes or items done.
        done: u64,
        /// Of how many, when known.
        total: Option<u64>,
    },
    /// A sandbox ended without the server asking for it.
    Ended {
        /// The sandbox.
        sandbox: SandboxId,
        /// Why.
        reason: EndReason,
    },
}

/// What came of a call.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "answer", rename_all = "snake_case")]
pub enum Answer {
    /// To `Hello`.
    Welcome {
        /// [`VERSION`] of the node.
        version: u32,
        /// Changes when the node starts anew.
        incarnation: String,
    },
    /// It is done.
    Done,
    /// One sandbox.
    Sandbox(SandboxRecord),
    /// A page of sandboxes; empty at the end.
    Sandboxes {
        /// In order of id.
        sandboxes: Vec<SandboxRecord>,
    },
    /// Measured use.
    Usage(Usage),
    /// One template.
    Template(Box<TemplateInfo>),
    /// A page of templates; empty at the end.
    Templates {
        /// In order of id.
        templates: Vec<TemplateInfo>,
    },
    /// What the host can do.
    Report {
        /// One row a check.
        checks: Vec<Check>,
    },
    /// What the node can take.
    Capacity(Capacity),
    /// It failed.
    Failed(Failure),
}

/// A sandbox as the node knows it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SandboxRecord {
    /// The sandbox.
    pub id: SandboxId,
    /// Where it is in its life.
    pub state: State,
    /// Limits in force.
    pub resources: Resources,
    /// When it became running.
    pub started_at: Timestamp,
    /// When the node ends it.
    pub expires_at: Timestamp,
}

/// Why a sandbox ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "why", rename_all = "snake_case")]
pub enum EndReason {
    /// Its deadline passed.
    Expired,
    /// Its agent ended by itself or was killed from outside.
    AgentDied,
    /// A limit ended it.
    Limit {
        /// The limit.
        hit: LimitHit,
    },
    /// The host was restarted, or it could not be adopted after a restart of the node.
    Lost,
}

/// Measured use of a sandbox.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Usage {
    /// When it was measured.
    pub at: Timestamp,
    /// CPU time used since its start, in microseconds.
    pub cpu_us: u64,
    /// Memory in use without reclaimable cache, in bytes.
    pub memory_used: u64,
    /// Reclaimable cache, in bytes.
    pub memory_cache: u64,
    /// Highest memory seen, in bytes.
    pub memory_peak: u64,
    /// Processes and threads.
    pub processes: u64,
    /// Bytes written to its disk.
    pub disk_used: u64,
    /// Times a process was killed for memory.
    pub oom_kills: u64,
    /// Times a process was refused for the process limit.
    pub process_refusals: u64,
}

/// Verdict of one check.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// It works.
    Pass,
    /// It is missing; something works worse.
    Warn,
    /// It is missing; sandboxes cannot run.
    Fail,
}

/// One check of the host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Check {
    /// What was checked.
    pub name: String,
    /// The verdict.
    pub verdict: Verdict,
    /// What was seen.
    pub detail: String,
    /// What to do about it, when something can be done.
    pub remedy: Option<String>,
}

/// What the node can take.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Capacity {
    /// Sandboxes that exist.
    pub sandboxes: u32,
    /// Largest number of sandboxes.
    pub sandboxes_max: u32,
    /// Shells parked ahead of need.
    pub parked: u32,
    /// Sandboxes booted ahead of need.
    pub warm: u32,
}

#[cfg(test)]
mod tests {
    use super::*;
    use cofferdam_core::{Digest, ErrorKind, LimitKind};
    use serde::de::DeserializeOwned;
    use std::collections::BTreeMap;
    use std::fmt::Debug;

    #[track_caller]
    fn check<T: Serialize + DeserializeOwned + PartialEq + Debug>(value: &T) {
        let text = serde_json::to_string(value).unwrap();
        assert_eq!(&serde_json::from_str::<T>(&text).unwrap(), value, "{text}");
    }

    fn sandbox() -> SandboxId {
        "i1".parse().unwrap()
    }

    fn spec() -> SandboxSpec {
        SandboxSpec {
            id: sandbox(),
            tenant: "n1".parse().unwrap(),
            template: "base".parse().unwrap(),
            digest: Digest::from_sha256([1; 32]),
            resources: Resources::default(),
            env: BTreeMap::from([("A".into(), "b".into())]),
            files: BTreeMap::from([("/f".into(), "c".into())]),
            hostname: "h".into(),
            expires_at: Timestamp::from_micros(1),
        }
    }

    fn record() -> SandboxRecord {
        let at = Timestamp::from_micros(2);
        let (id, resources) = (sandbox(), Resources::default());
        SandboxRecord { id, state: State::Running, resources, started_at: at, expires_at: at }
    }

    fn template() -> TemplateInfo {
        TemplateInfo {
            id: "base".parse().unwrap(),
            name: "base".into(),
            digest: Digest::from_sha256([1; 32]),
            created_at: Timestamp::from_micros(3),
            size_bytes: 4,
            default_user: "user".into(),
            default_workdir: String::new(),
            env: BTreeMap::new(),
        }
    }

    #[test]
    fn every_call_round_trips() {
        let import = ImportTemplate {
            template: "t1".parse().unwrap(),
            name: "x".into(),
            format: ImportFormat::OciLayout,
        };
        let requests = [
            Request::Hello { version: VERSION },
            Request::Create(Box::new(spec())),
            Request::Kill { sandbox: sandbox() },
            Request::SetDeadline { sandbox: sandbox(), expires_at: Timestamp::from_micros(1) },
            Request::Dial { sandbox: sandbox() },
            Request::Usage { sandbox: sandbox() },
            Request::List { after: Some(sandbox()) },
            Request::Templates { after: None },
            Request::ImportTemplate(import),
            Request::RemoveTemplate { template: "t1".parse().unwrap() },
            Request::Doctor,
            Request::Capacity,
        ];
        for request in requests {
            check(&Call { id: 7, request });
        }
    }

    #[test]
    fn every_message_round_trips() {
        let hit = LimitHit { limit: LimitKind::Memory, configured: 1, observed: 2 };
        let failure = Failure {
            kind: ErrorKind::NotFound,
            message: "no".into(),
            reason: crate::guest::Reason::UnknownUser,
        };
        let usage = Usage {
            at: Timestamp::from_micros(1),
            cpu_us: 1,
            memory_used: 2,
            memory_cache: 3,
            memory_peak: 4,
            processes: 5,
            disk_used: 6,
            oom_kills: 7,
            process_refusals: 8,
        };
        let check_row =
            Check { name: "n".into(), verdict: Verdict::Warn, detail: "d".into(), remedy: Some("r".into()) };
        let answers = [
            Answer::Welcome { version: VERSION, incarnation: "x".into() },
            Answer::Done,
            Answer::Sandbox(record()),
            Answer::Sandboxes { sandboxes: vec![record(), record()] },
            Answer::Usage(usage),
            Answer::Template(Box::new(template())),
            Answer::Templates { templates: vec![template()] },
            Answer::Report { checks: vec![check_row] },
            Answer::Capacity(Capacity { sandboxes: 1, sandboxes_max: 2, parked: 3, warm: 4 }),
            Answer::Failed(failure),
        ];
        for answer in answers {
            check(&Message::Answer { id: 7, answer: Box::new(answer) });
        }
        check(&Message::Progress { id: 7, step: "s".into(), done: 1, total: None });
        for reason in [EndReason::Expired, EndReason::AgentDied, EndReason::Limit { hit }, EndReason::Lost] {
            check(&Message::Ended { sandbox: sandbox(), reason });
        }
    }
}
