//! Owns what all sandboxes of this node share, and the steps of which making a sandbox consists. Both the actors and the
//! pool make sandboxes out of these steps; none of them decides anything.

use crate::clock::Clock;
use crate::events::Events;
use crate::guest::{Guest, GuestError};
use crate::isolation::{Driver, DriverError, Fill, Live, Parked};
use crate::records::{Claim, Record, RecordError, Records};
use crate::slots::Slots;
use crate::templates::{Lease, TemplateStore};
use crate::undo::{Undo, UndoStack};
use cofferdam_core::{ErrorKind, Resources, SandboxSpec, TemplateInfo, Timestamp};
use cofferdam_proto::guest::{Configure, Failure, Reason};
use std::collections::BTreeMap;
use std::future::Future;
use std::sync::Arc;
use tokio::sync::{Semaphore, watch};
use tokio::task::AbortHandle;
use tokio_util::sync::CancellationToken;

/// The parts that sandboxes stand on.
pub(crate) struct Host {
    pub(crate) driver: Arc<dyn Driver>,
    pub(crate) guest: Arc<dyn Guest>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) records: Records,
    pub(crate) slots: Slots,
    pub(crate) templates: Arc<TemplateStore>,
    pub(crate) events: Events,
    /// Sandboxes made at the same time; more wait, because more would only make all of them slower.
    pub(crate) making: Semaphore,
    /// Creates that clients wait for; the pool stands back while there are any.
    pub(crate) busy: watch::Sender<usize>,
    /// Ends every task of the node at its next wait, when the node itself ends.
    pub(crate) stopping: CancellationToken,
}

/// A sandbox could not be made.
#[derive(Debug, thiserror::Error)]
pub(crate) enum MakeError {
    #[error("every slot of the node is in use")]
    NoSlot,
    #[error("isolate the sandbox")]
    Driver(#[from] DriverError),
    #[error("reach its agent")]
    Guest(#[from] GuestError),
    #[error("record the sandbox")]
    Record(#[from] RecordError),
    #[error("it was killed while it was made")]
    Killed,
}

impl MakeError {
    pub(crate) fn kind(&self) -> ErrorKind {
        match self {
            Self::NoSlot => ErrorKind::ResourceExhausted,
            Self::Driver(error) => error.kind(),
            Self::Guest(GuestError::Deadline) => ErrorKind::DeadlineExceeded,
            Self::Guest(_) | Self::Record(_) => ErrorKind::Internal,
            Self::Killed => ErrorKind::Conflict,
        }
    }

    /// What the caller may know; the log has the rest.
    pub(crate) fn public(&self) -> Failure {
        let detail = match self {
            Self::NoSlot | Self::Killed => self.to_string(),
            Self::Driver(_) => {
                "the host refused a step of its isolation; the log of the node has the cause".into()
            }
            Self::Guest(_) => "its agent did not come up; the log of the node has the cause".into(),
            Self::Record(_) => "the node could not write its record; is the disk of the host full?".into(),
        };
        failure(self.kind(), format!("cannot make the sandbox: {detail}"))
    }
}

/// A failure whose kind says it all.
pub(crate) fn failure(kind: ErrorKind, message: impl Into<String>) -> Failure {
    Failure { kind, message: message.into(), reason: Reason::None }
}

/// While it lives, the pool stands back.
pub(crate) struct Busy<'a>(&'a watch::Sender<usize>);

impl Drop for Busy<'_> {
    fn drop(&mut self) {
        self.0.send_modify(|count| *count -= 1);
    }
}

impl Host {
    /// Starts a task that lives no longer than the node.
    pub(crate) fn spawn(&self, work: impl Future<Output = ()> + Send + 'static) -> AbortHandle {
        let stopping = self.stopping.clone();
        let task = async move { stopping.run_until_cancelled(work).await.unwrap_or_default() };
        tokio::spawn(task).abort_handle()
    }

    /// Ends every task. Sandboxes and their trees stay.
    pub(crate) fn stop(&self) {
        self.templates.close();
        self.stopping.cancel();
    }

    pub(crate) fn busy(&self) -> Busy<'_> {
        self.busy.send_modify(|count| *count += 1);
        Busy(&self.busy)
    }

    /// Makes all that needs no template. Whatever fails, `undo` knows what is to be taken back.
    pub(crate) async fn park(&self, undo: &mut UndoStack) -> Result<Parked, MakeError> {
        let slot = self.slots.take().ok_or(MakeError::NoSlot)?;
        undo.push(Undo::FreeSlot(slot));
        undo.push(Undo::RemoveRecord(slot));
        self.records.write(Record { slot, claim: None }).await?;
        undo.push(Undo::Destroy(slot));
        Ok(self.driver.park(slot).await?)
    }

    /// Gives a parked shell its root file system.
    pub(crate) async fn fill(
        &self,
        parked: Parked,
        lease: &Lease,
        resources: Resources,
    ) -> Result<Live, MakeError> {
        let fill = Fill { template_root: lease.root().to_path_buf(), resources };
        Ok(self.driver.fill(parked, fill).await?)
    }

    /// Tells a sandbox who it is, and records that it was handed out: from then on a restart of the node keeps it.
    pub(crate) async fn hand_out(
        &self,
        live: &Live,
        spec: &SandboxSpec,
        template: &TemplateInfo,
        kill: &CancellationToken,
    ) -> Result<Timestamp, MakeError> {
        self.driver.set_hostname(live, &spec.hostname)?;
        let configured = self.guest.configure(live, configuration(spec, template));
        // A kill need not wait for an agent that does not answer.
        kill.run_until_cancelled(configured).await.ok_or(MakeError::Killed)??;
        let started_at = self.clock.now();
        self.records.write(claim_record(live, spec, started_at)).await?;
        Ok(started_at)
    }
}

/// The record of a sandbox that runs. Environment and files are left out: nothing needs them again, and they may hold
/// secrets.
pub(crate) fn claim_record(live: &Live, spec: &SandboxSpec, started_at: Timestamp) -> Record {
    let spec = SandboxSpec { env: BTreeMap::new(), files: BTreeMap::new(), ..spec.clone() };
    let claim = Claim { spec, process: live.identity().clone(), started_at };
    Record { slot: live.slot(), claim: Some(claim) }
}

fn configuration(spec: &SandboxSpec, template: &TemplateInfo) -> Configure {
    let mut env = template.env.clone();
    env.extend(spec.env.clone());
    let name = &spec.hostname;
    let hosts =
        format!("127.0.0.1\tlocalhost\n127.0.1.1\t{name}\n::1\tlocalhost ip6-localhost ip6-loopback\n");
    let named = [("/etc/hosts".to_owned(), hosts), ("/etc/hostname".to_owned(), format!("{name}\n"))];
    let mut files = BTreeMap::from(named);
    files.extend(spec.files.clone());
    Configure {
        hostname: name.clone(),
        env,
        default_user: template.default_user.clone(),
        default_workdir: template.default_workdir.clone(),
        open_files: spec.resources.open_files,
        files,
    }
}
