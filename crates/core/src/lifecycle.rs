//! Owns the life of a sandbox as a pure table: which request is legal in which state, and where it leads.
//!
//! ```text
//!  creating ──▶ running ◀──▶ pausing ─▶ paused ─▶ resuming ─▶ running
//!      │           │            │          │          │
//!      └───────────┴────────────┴────┬─────┴──────────┘
//!                                    ▼
//!                     killing ─▶ killed          failed (carries a reason)
//! ```
//!
//! Killing is legal in every state. The actor of a sandbox only performs what this table decides.

use serde::{Deserialize, Serialize};

/// Where a sandbox is in its life.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// The node is making it.
    Creating,
    /// Commands can run.
    Running,
    /// On the way to `Paused`.
    Pausing,
    /// Frozen; uses no CPU.
    Paused,
    /// On the way back to `Running`.
    Resuming,
    /// Being torn down.
    Killing,
    /// Gone; everything it used is returned.
    Killed,
    /// Ended by itself or by an error; everything it used is returned or being returned.
    Failed,
}

impl State {
    /// Every state, for tests and tables.
    pub const ALL: [Self; 8] = [
        Self::Creating,
        Self::Running,
        Self::Pausing,
        Self::Paused,
        Self::Resuming,
        Self::Killing,
        Self::Killed,
        Self::Failed,
    ];

    /// True when nothing will ever happen again.
    pub fn is_final(self) -> bool {
        matches!(self, Self::Killed | Self::Failed)
    }

    /// The name as it is stored and shown.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Creating => "creating",
            Self::Running => "running",
            Self::Pausing => "pausing",
            Self::Paused => "paused",
            Self::Resuming => "resuming",
            Self::Killing => "killing",
            Self::Killed => "killed",
            Self::Failed => "failed",
        }
    }

    /// The state of that name.
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|state| state.as_str() == text)
    }
}

/// What is asked of a sandbox, or what happened to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Request {
    /// The node finished making it.
    Created,
    /// Use it: run a command, move a file, open a port.
    Use,
    /// Change its deadline.
    SetDeadline,
    /// Freeze it.
    Pause,
    /// The freeze is complete.
    PauseDone,
    /// Thaw it.
    Resume,
    /// The thaw is complete.
    ResumeDone,
    /// End it, by a client, a deadline or an operator.
    Kill,
    /// The teardown is complete.
    KillDone,
    /// Its first process ended without being asked, or a step failed beyond repair.
    Died,
}

impl Request {
    /// Every request, for tests and tables.
    pub const ALL: [Self; 10] = [
        Self::Created,
        Self::Use,
        Self::SetDeadline,
        Self::Pause,
        Self::PauseDone,
        Self::Resume,
        Self::ResumeDone,
        Self::Kill,
        Self::KillDone,
        Self::Died,
    ];
}

/// What the table says about a request in a state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Decision {
    /// Go to this state.
    Go(State),
    /// Legal, and nothing changes.
    Stay,
    /// It is on its way there already: wait for the end of the transition, then ask again.
    Wait,
    /// Not legal now; the caller gets a conflict.
    Refuse,
    /// There is nothing left to act on; the caller gets "not found".
    Gone,
}

/// The table. Total: every pair has an answer.
pub fn decide(state: State, request: Request) -> Decision {
    use Decision::{Go, Refuse, Stay, Wait};
    match (state, request) {
        (State::Killed | State::Failed, request) => decide_ended(request),
        (State::Killing, Request::KillDone) => Go(State::Killed),
        (State::Killing, Request::Kill) => Wait,
        (State::Killing, Request::Died) => Stay,
        (State::Killing, _) => Decision::Gone,
        (_, Request::Kill) => Go(State::Killing),
        (_, Request::Died) => Go(State::Failed),
        (State::Creating, Request::Created) => Go(State::Running),
        (State::Creating | State::Pausing | State::Resuming, Request::Use | Request::SetDeadline) => Wait,
        (State::Running, Request::Use | Request::SetDeadline | Request::Resume) => Stay,
        (State::Running, Request::Pause) => Go(State::Pausing),
        (State::Pausing, Request::PauseDone) => Go(State::Paused),
        (State::Creating | State::Pausing | State::Resuming, Request::Pause | Request::Resume) => Wait,
        (State::Paused, Request::Resume) => Go(State::Resuming),
        (State::Paused, Request::SetDeadline) => Stay,
        (State::Paused, Request::Use | Request::Pause) => Refuse,
        (State::Resuming, Request::ResumeDone) => Go(State::Running),
        (
            State::Creating | State::Running | State::Pausing | State::Paused | State::Resuming,
            Request::Created | Request::PauseDone | Request::ResumeDone | Request::KillDone,
        ) => Refuse,
    }
}

fn decide_ended(request: Request) -> Decision {
    match request {
        Request::KillDone | Request::Died => Decision::Stay,
        Request::Created
        | Request::Use
        | Request::SetDeadline
        | Request::Pause
        | Request::PauseDone
        | Request::Resume
        | Request::ResumeDone
        | Request::Kill => Decision::Gone,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn stop_is_legal_in_every_state() {
        for state in State::ALL {
            assert_ne!(decide(state, Request::Kill), Decision::Refuse, "{state:?}");
        }
    }

    #[test]
    fn names_round_trip() {
        for state in State::ALL {
            assert_eq!(State::parse(state.as_str()), Some(state));
        }
    }

    proptest! {
        #[test]
        fn after_a_kill_nothing_but_the_end_follows(requests in prop::collection::vec(0..Request::ALL.len(), 0..50)) {
            let mut state = State::Creating;
            let mut killed = false;
            for request in requests.into_iter().map(|i| Request::ALL[i]) {
                if let Decision::Go(next) = decide(state, request) {
                    prop_assert!(!state.is_final());
                    state = next;
                }
                killed |= request == Request::Kill;
                prop_assert!(!killed || matches!(state, State::Killing) || state.is_final());
            }
        }

        #[test]
        fn from_anywhere_a_kill_and_its_end_reach_a_final_state(start in 0..State::ALL.len()) {
            let mut state = State::ALL[start];
            for request in [Request::Kill, Request::KillDone] {
                if let Decision::Go(next) = decide(state, request) {
                    state = next;
                }
            }
            prop_assert!(state.is_final());
        }
    }
}
