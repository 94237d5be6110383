//! Owns the making of the template `base` on this machine, out of Debian packages from the mirror that the host's own apt
//! uses. What was built once is kept in a cache that other data directories import from; the cache is never needed.

mod build;
mod cache;
mod recipe;
mod sources;

pub(crate) use build::find_program;

use crate::templates::error::ImportError;
use crate::templates::import::{Progress, Step};
use crate::templates::store::TemplateStore;
use cofferdam_core::TemplateInfo;
use cofferdam_proto::node::{ImportFormat, ImportTemplate};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Id and name of the template.
pub(crate) const NAME: &str = "base";

/// Where the making of `base` may leave things.
#[derive(Debug, Clone)]
pub(crate) struct Workshop {
    /// Finished archives, shared by all data directories of the host.
    pub(crate) cache_dir: PathBuf,
    /// Below the data directory; there only while something is built.
    pub(crate) scratch_dir: PathBuf,
}

impl Workshop {
    /// Removes what a build left, this one or one that was cut off. Its mounts went with its namespaces.
    pub(crate) async fn clear(&self) {
        let scratch = self.scratch_dir.clone();
        let cleared = tokio::task::spawn_blocking(move || std::fs::remove_dir_all(scratch)).await;
        match cleared.unwrap_or_else(|error| Err(io::Error::other(error))) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                tracing::warn!(%error, "cannot remove what a build left");
            }
            Ok(()) | Err(_) => {}
        }
    }
}

/// Makes `base` unless it is there. `progress` hears every step.
pub(crate) async fn ensure(
    store: &Arc<TemplateStore>,
    workshop: &Workshop,
    progress: Progress,
) -> Result<TemplateInfo, ImportError> {
    if let Some(info) = store.current(NAME) {
        return Ok(info);
    }
    let heard = {
        let store = Arc::clone(store);
        let progress = Arc::clone(&progress);
        let told: Progress = Arc::new(move |step: Step| {
            store.set_building(Some(in_words(&step)));
            progress(step);
        });
        told
    };
    store.set_building(Some("getting ready".into()));
    let result = make(store, workshop, &heard).await;
    workshop.clear().await;
    // A failure stays to be read by whoever asks for the template.
    store.set_building(result.as_ref().err().map(|error| format!("failed: {error}")));
    result
}

async fn make(
    store: &Arc<TemplateStore>,
    workshop: &Workshop,
    progress: &Progress,
) -> Result<TemplateInfo, ImportError> {
    let sources = sources::find().await?;
    let archive = workshop.cache_dir.join(recipe::file_name(&sources));
    if !is_sound(&archive, progress).await {
        let kept = build::run(&sources, &archive, &workshop.scratch_dir, progress).await?;
        return import(store, &kept, progress).await;
    }
    import(store, &archive, progress).await
}

async fn is_sound(archive: &Path, progress: &Progress) -> bool {
    progress(Step { step: "look for a built archive".into(), done: 0, total: None });
    let archive = archive.to_path_buf();
    tokio::task::spawn_blocking(move || cache::is_sound(&archive)).await.unwrap_or(false)
}

async fn import(
    store: &Arc<TemplateStore>,
    archive: &Path,
    progress: &Progress,
) -> Result<TemplateInfo, ImportError> {
    let source = std::fs::File::open(archive)
        .map_err(|source| ImportError::Host { doing: "open the archive of the base template", source })?;
    let request = ImportTemplate {
        template: NAME.parse().expect("the name of the base template is an id"),
        name: NAME.to_owned(),
        format: ImportFormat::Rootfs,
    };
    store.import_from(request, source, Arc::clone(progress)).await
}

fn in_words(step: &Step) -> String {
    match step.total {
        Some(total) => format!("{} ({} of {total})", step.step, step.done),
        None => step.step.clone(),
    }
}
