//! Owns templates: which ones a tenant can use, under which names, and how they come and go.

use super::{Actor, App, AppError};
pub use crate::cluster::Progress;
use crate::store::TemplateRow;
use bytes::Bytes;
use cofferdam_audit::Event;
use cofferdam_core::ids::is_template_name;
use cofferdam_core::{TemplateId, TemplateInfo, TenantId};
use cofferdam_policy::Action;
use cofferdam_proto::node::{ImportFormat, ImportTemplate};
use futures::{Stream, StreamExt};
use std::io;
use std::os::fd::OwnedFd;
use std::sync::{PoisonError, RwLock};
use tokio::io::AsyncWriteExt;
use tokio::net::unix::pipe;
use tokio::sync::mpsc;

/// Tags that every template has: its newest build.
const NEWEST: [&str; 2] = ["default", "latest"];

/// A template and whose it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TemplateView {
    /// The template.
    pub info: TemplateInfo,
    /// It is the actor's own; otherwise it is everybody's.
    pub own: bool,
}

/// The rows of templates in memory: they are read at every create and change seldom.
#[derive(Default)]
pub(super) struct Catalogue {
    rows: RwLock<Vec<TemplateRow>>,
    /// Held while rows are brought in step with the node, so that a list of templates that the node gave before one was
    /// removed is not noted after.
    settling: tokio::sync::Mutex<()>,
}

/// A reference to a template, taken apart: `[namespace/]name[:tag]`.
struct Reference<'a> {
    namespace: Option<&'a str>,
    name: &'a str,
    tag: Option<&'a str>,
}

impl<'a> Reference<'a> {
    fn parse(text: &'a str) -> Self {
        let (rest, tag) = match text.rsplit_once(':') {
            Some((rest, tag)) => (rest, Some(tag)),
            None => (text, None),
        };
        match rest.split_once('/') {
            Some((namespace, name)) => Self { namespace: Some(namespace), name, tag },
            None => Self { namespace: None, name: rest, tag },
        }
    }
}

impl Catalogue {
    fn visible(&self, tenant: &TenantId) -> Vec<TemplateView> {
        let rows = self.rows.read().unwrap_or_else(PoisonError::into_inner);
        let visible = rows.iter().filter(|row| row.tenant.as_ref().is_none_or(|owner| owner == tenant));
        let view =
            |row: &TemplateRow| Some(TemplateView { info: row.info.clone()?, own: row.tenant.is_some() });
        visible.filter_map(view).collect()
    }

    /// By id or by name; the tenant's own goes before everybody's.
    fn find(&self, tenant: &TenantId, reference: &Reference<'_>) -> Option<TemplateView> {
        if reference.namespace.is_some_and(|namespace| namespace != tenant.as_str()) {
            return None;
        }
        let fits = |view: &TemplateView| match reference.namespace {
            Some(_) => view.own && view.info.name == reference.name,
            None => view.info.id.as_str() == reference.name || view.info.name == reference.name,
        };
        self.visible(tenant).into_iter().filter(fits).max_by_key(|view| view.own)
    }

    fn replace(&self, rows: Vec<TemplateRow>) {
        *self.rows.write().unwrap_or_else(PoisonError::into_inner) = rows;
    }
}

impl App {
    /// The templates that the actor can use, in order of name.
    pub async fn templates(&self, actor: &Actor) -> Result<Vec<TemplateView>, AppError> {
        let _permit = self.permit(actor, Action::ReadTemplates)?;
        Ok(self.0.catalogue.visible(&actor.tenant))
    }

    /// One template that the actor can use: id, `name`, `namespace/name`, each optionally with `:tag`.
    pub async fn template(&self, actor: &Actor, reference: &str) -> Result<TemplateView, AppError> {
        let _permit = self.permit(actor, Action::ReadTemplates)?;
        self.find_template(&actor.tenant, reference).await
    }

    pub(super) async fn resolve_template(
        &self,
        tenant: &TenantId,
        reference: &str,
    ) -> Result<TemplateInfo, AppError> {
        Ok(self.find_template(tenant, reference).await?.info)
    }

    async fn find_template(&self, tenant: &TenantId, reference: &str) -> Result<TemplateView, AppError> {
        let parsed = Reference::parse(reference);
        let mut found = self.0.catalogue.find(tenant, &parsed);
        if found.is_none() {
            // The node may have made one by itself since it was last asked.
            self.refresh_templates().await?;
            found = self.0.catalogue.find(tenant, &parsed);
        }
        let found = found.ok_or_else(|| AppError::TemplateNotFound(reference.to_owned()))?;
        match parsed.tag {
            Some(tag) if !NEWEST.contains(&tag) => {
                let template = reference.strip_suffix(tag).and_then(|r| r.strip_suffix(':'));
                let template = template.unwrap_or(reference).to_owned();
                Err(AppError::TagNotFound { tag: tag.to_owned(), template })
            }
            _ => Ok(found),
        }
    }

    /// Reads the rows of templates anew.
    pub(super) async fn reload_templates(&self) -> Result<(), AppError> {
        self.0.catalogue.replace(self.0.store.templates().await?);
        Ok(())
    }

    /// Asks the node which templates it holds, and notes them.
    pub(super) async fn refresh_templates(&self) -> Result<(), AppError> {
        let _settling = self.0.catalogue.settling.lock().await;
        // In this order, because an import that ends in between is held by the node before it is known here.
        let known = self.0.store.templates().await?;
        let held = self.0.link.templates().await?;
        let gone =
            known.iter().filter(|row| row.info.is_some() && !held.iter().any(|info| info.id == row.id));
        for row in gone {
            self.0.store.delete_template(row.id.clone(), false).await?;
        }
        self.0.store.upsert_templates(held).await?;
        self.reload_templates().await
    }

    /// Makes a template, or a new build of one of the actor's own, out of `content`.
    pub async fn import_template(
        &self,
        actor: &Actor,
        (name, format): (&str, ImportFormat),
        content: impl Stream<Item = io::Result<Bytes>> + Send + 'static,
        progress: mpsc::Sender<Progress>,
    ) -> Result<TemplateInfo, AppError> {
        let permit = self.permit(actor, Action::ImportTemplate)?;
        if !is_template_name(name) {
            let why = "must have 1 to 128 of a-z, 0-9, `-`, `_`".to_owned();
            return Err(AppError::Invalid { field: "name", why });
        }
        let entry = self.entry(actor, None);
        let wish = Event::TemplateImportRequested { name: name.to_owned() };
        let intent = self.intent(&permit, &entry, &wish)?;
        let result = self.import(actor, (name, format), content, progress).await;
        self.outcome(
            &entry,
            &match &result {
                Ok(info) => Event::TemplateImported {
                    intent,
                    template: info.id.to_string(),
                    digest: info.digest.to_string(),
                    bytes: info.size_bytes,
                },
                Err(e) => Event::TemplateImportFailed { intent, kind: e.kind(), why: e.public() },
            },
        );
        result
    }

    async fn import(
        &self,
        actor: &Actor,
        (name, format): (&str, ImportFormat),
        content: impl Stream<Item = io::Result<Bytes>> + Send + 'static,
        progress: mpsc::Sender<Progress>,
    ) -> Result<TemplateInfo, AppError> {
        let fresh = TemplateId::from_entropy(rand::random());
        let id =
            self.0.store.reserve_template(actor.tenant.clone(), name.to_owned(), fresh, self.now()).await?;
        let import = ImportTemplate { template: id.clone(), name: name.to_owned(), format };
        let (fill, read_end) = fill_pipe(content).map_err(AppError::Pipe)?;
        let imported = self.0.link.import_template(import, read_end, progress).await;
        let filled = fill.await.unwrap_or_else(|_| Err(io::ErrorKind::BrokenPipe.into()));
        let _settling = self.0.catalogue.settling.lock().await;
        let info = match (imported, filled) {
            (Ok(info), Ok(())) => info,
            // The node took a part for the whole.
            (Ok(_), Err(error)) => {
                self.0.link.remove_template(id.clone()).await?;
                self.0.store.delete_template(id, false).await?;
                self.reload_templates().await?;
                return Err(AppError::Pipe(error));
            }
            (Err(error), _) => {
                self.0.store.delete_template(id, true).await?;
                return Err(error.into());
            }
        };
        self.0.store.upsert_templates(vec![info.clone()]).await?;
        self.reload_templates().await?;
        Ok(info)
    }

    /// Forgets a template of the actor's own.
    pub async fn remove_template(&self, actor: &Actor, reference: &str) -> Result<(), AppError> {
        let permit = self.permit(actor, Action::RemoveTemplate)?;
        let found = self.find_template(&actor.tenant, reference).await?;
        let id = found.info.id;
        if !found.own {
            return Err(AppError::TemplateTaken(reference.to_owned()));
        }
        if self.0.store.is_template_in_use(id.clone()).await? {
            return Err(AppError::TemplateInUse(reference.to_owned()));
        }
        let entry = self.entry(actor, None);
        let wish = Event::TemplateRemoveRequested { template: id.to_string() };
        let intent = self.intent(&permit, &entry, &wish)?;
        let _settling = self.0.catalogue.settling.lock().await;
        self.0.link.remove_template(id.clone()).await?;
        self.0.store.delete_template(id.clone(), false).await?;
        self.reload_templates().await?;
        self.outcome(&entry, &Event::TemplateRemoved { intent, template: id.to_string() });
        Ok(())
    }
}

type Filled = tokio::task::JoinHandle<io::Result<()>>;

/// Copies `content` into a pipe; the other end is for the node. It ends early when nobody reads any more.
fn fill_pipe(
    content: impl Stream<Item = io::Result<Bytes>> + Send + 'static,
) -> io::Result<(Filled, OwnedFd)> {
    let (mut write_end, read_end) = pipe::pipe()?;
    let read_end = read_end.into_blocking_fd()?;
    let filled = tokio::spawn(async move {
        let mut content = std::pin::pin!(content);
        while let Some(bytes) = content.next().await {
            write_end.write_all(&bytes?).await?;
        }
        Ok(())
    });
    Ok((filled, read_end))
}
