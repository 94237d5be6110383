//! Owns what each request of the server means: finds the part that does it and words the answer. Never sees a socket but
//! those it hands out.

use crate::doctor;
use crate::guest;
use crate::host::{Host, failure};
use crate::pool::Pool;
use crate::registry::Registry;
use crate::templates::{ImportError, Progress};
use cofferdam_core::{ErrorKind, SandboxId, TemplateId, TemplateInfo};
use cofferdam_proto::guest::Failure;
use cofferdam_proto::node::{Answer, Capacity, ImportTemplate, Request, Usage, VERSION};
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::Arc;

/// Sandboxes in one page; a page fits into a message.
const SANDBOXES_A_PAGE: usize = 200;
/// Templates in one page at most, and bytes of them.
const TEMPLATES_A_PAGE: usize = 100;
const TEMPLATE_PAGE_BYTES: usize = 60 * 1024;

/// See the module.
pub(crate) struct Service {
    pub(crate) host: Arc<Host>,
    pub(crate) registry: Arc<Registry>,
    pub(crate) pool: Arc<Pool>,
    pub(crate) sandboxes_max: u32,
    /// Changes when the node starts anew.
    pub(crate) incarnation: String,
    /// The directory whose space matters.
    pub(crate) data_dir: PathBuf,
}

/// An answer, and the descriptor that goes with it.
pub(crate) struct Response {
    pub(crate) answer: Answer,
    pub(crate) fd: Option<OwnedFd>,
}

impl From<Result<Answer, Failure>> for Response {
    fn from(result: Result<Answer, Failure>) -> Self {
        Self { answer: result.unwrap_or_else(Answer::Failed), fd: None }
    }
}

impl Service {
    /// Does what was asked. Runs to its end whatever happens to the connection that it came on.
    pub(crate) async fn handle(&self, request: Request, fd: Option<OwnedFd>, progress: Progress) -> Response {
        match request {
            Request::Hello { version } => self.hello(version).into(),
            Request::Create(spec) => self.registry.create(*spec).await.map(Answer::Sandbox).into(),
            Request::Kill { sandbox } => self.registry.kill(&sandbox).await.map(|()| Answer::Done).into(),
            Request::SetDeadline { sandbox, expires_at } => {
                self.registry.set_deadline(&sandbox, expires_at).await.map(Answer::Sandbox).into()
            }
            Request::Dial { sandbox } => self.dial(&sandbox).await,
            Request::Usage { sandbox } => self.usage(&sandbox).await.into(),
            Request::List { after } => {
                let sandboxes = self.registry.list(after.as_ref(), SANDBOXES_A_PAGE);
                Ok(Answer::Sandboxes { sandboxes }).into()
            }
            Request::Templates { after } => Ok(self.templates(after.as_ref())).into(),
            Request::ImportTemplate(import) => self.import(import, fd, progress).await.into(),
            Request::RemoveTemplate { template } => self.remove_template(&template).await.into(),
            Request::Doctor => Ok(Answer::Report { checks: doctor::check(&self.data_dir).await }).into(),
            Request::Capacity => Ok(self.capacity()).into(),
        }
    }

    fn hello(&self, version: u32) -> Result<Answer, Failure> {
        if version != VERSION {
            let message = format!("the node speaks version {VERSION}, the server version {version}");
            return Err(failure(ErrorKind::Unsupported, message));
        }
        Ok(Answer::Welcome { version: VERSION, incarnation: self.incarnation.clone() })
    }

    async fn dial(&self, id: &SandboxId) -> Response {
        let dialled = async {
            let live = self.registry.usable(id).await?;
            let stream = guest::dial(live.agent_socket()).await.map_err(|error| {
                tracing::warn!(sandbox = %id, error = ?error, "cannot connect to an agent");
                failure(ErrorKind::Unavailable, "the agent of the sandbox does not answer")
            })?;
            let stream = stream.into_std().map_err(|error| {
                tracing::error!(sandbox = %id, %error, "cannot hand out a connection");
                failure(ErrorKind::Internal, "the node could not hand out the connection")
            })?;
            Ok(OwnedFd::from(stream))
        };
        match dialled.await {
            Ok(fd) => Response { answer: Answer::Done, fd: Some(fd) },
            Err(failed) => Response { answer: Answer::Failed(failed), fd: None },
        }
    }

    async fn usage(&self, id: &SandboxId) -> Result<Answer, Failure> {
        let live = self.registry.usable(id).await?;
        let used = self.host.driver.usage(&live).map_err(|error| {
            tracing::error!(sandbox = %id, error = ?error, "cannot measure a sandbox");
            failure(error.kind(), "the node could not measure the sandbox")
        })?;
        Ok(Answer::Usage(Usage {
            at: self.host.clock.now(),
            cpu_us: used.cpu_us,
            memory_used: used.memory_used,
            memory_cache: used.memory_cache,
            memory_peak: used.memory_peak,
            processes: used.processes,
            disk_used: used.disk_used,
            oom_kills: used.oom_kills,
            process_refusals: used.process_refusals,
        }))
    }

    fn templates(&self, after: Option<&TemplateId>) -> Answer {
        let mut bytes = 0;
        let size = |info: &TemplateInfo| serde_json::to_vec(info).map_or(0, |bytes| bytes.len());
        let page = self.host.templates.list(after, TEMPLATES_A_PAGE).into_iter();
        let templates = page.take_while(|info| {
            let first = bytes == 0;
            bytes += size(info);
            first || bytes <= TEMPLATE_PAGE_BYTES
        });
        Answer::Templates { templates: templates.collect() }
    }

    async fn import(
        &self,
        request: ImportTemplate,
        fd: Option<OwnedFd>,
        progress: Progress,
    ) -> Result<Answer, Failure> {
        let pipe = fd.ok_or_else(|| failure(ErrorKind::InvalidArgument, "an import needs a pipe to read"))?;
        let info = self.host.templates.import(request, pipe, progress).await.map_err(import_failure)?;
        self.pool.follow_templates().await;
        Ok(Answer::Template(Box::new(info)))
    }

    async fn remove_template(&self, id: &TemplateId) -> Result<Answer, Failure> {
        self.host.templates.remove(id).await.map_err(|error| {
            tracing::error!(template = %id, %error, "cannot remove a template");
            failure(ErrorKind::Internal, "the node could not remove the template")
        })?;
        self.pool.follow_templates().await;
        Ok(Answer::Done)
    }

    fn capacity(&self) -> Answer {
        let (parked, warm) = self.pool.counts();
        let sandboxes = self.registry.count();
        Answer::Capacity(Capacity { sandboxes, sandboxes_max: self.sandboxes_max, parked, warm })
    }
}

/// The whole chain of causes, because the person who imports has to mend the archive.
fn import_failure(error: ImportError) -> Failure {
    let mut message = error.to_string();
    if error.kind() == ErrorKind::Internal {
        tracing::error!(error = ?error, "cannot import a template");
    }
    let mut cause = std::error::Error::source(&error);
    while let Some(error) = cause {
        message.push_str(": ");
        message.push_str(&error.to_string());
        cause = error.source();
    }
    failure(error.kind(), message)
}
