//! Owns questions about the host and about measured use.

use super::{Actor, App, AppError};
use cofferdam_core::SandboxId;
use cofferdam_policy::Action;
use cofferdam_proto::node::{Capacity, Check, Usage, Verdict};

impl App {
    /// What the host can do.
    pub async fn doctor(&self, actor: &Actor) -> Result<Vec<Check>, AppError> {
        let _permit = self.permit(actor, Action::ReadHost)?;
        let mut checks = vec![Check {
            name: "record".to_owned(),
            verdict: if self.0.journal.sync().is_ok() { Verdict::Pass } else { Verdict::Fail },
            detail: format!("{} events in `{}`", self.0.journal.last_seq(), self.0.journal.dir().display()),
            remedy: None,
        }];
        match self.0.link.doctor().await {
            Ok(report) => checks.extend(report),
            Err(error) => checks.push(Check {
                name: "node".to_owned(),
                verdict: Verdict::Fail,
                detail: error.to_string(),
                remedy: Some("look at the log of the node role".to_owned()),
            }),
        }
        Ok(checks)
    }

    /// What the node can take.
    pub async fn capacity(&self, actor: &Actor) -> Result<Capacity, AppError> {
        let _permit = self.permit(actor, Action::ReadHost)?;
        Ok(self.0.link.capacity().await?)
    }

    /// True when the node can be reached now.
    pub fn is_ready(&self) -> bool {
        self.0.link.is_connected()
    }

    /// What a running sandbox of the actor's tenant uses.
    pub async fn usage(&self, actor: &Actor, id: &SandboxId) -> Result<Usage, AppError> {
        let _permit = self.permit(actor, Action::ReadSandboxes)?;
        let sandbox = self.unended(actor, id)?;
        Ok(self.0.link.usage(sandbox.id.clone()).await?)
    }
}
