//! Owns the steps from a byte stream to a finished tree: unpack, complete, describe. Blocking; the store runs it on a
//! thread of its own and cleans up after it.

use crate::templates::archive;
use crate::templates::error::ImportError;
use crate::templates::manifest::{self, Described};
use crate::templates::oci::{self, Defaults};
use crate::templates::skeleton;
use crate::templates::stream::Plain;
use crate::templates::unpack::{Unpacker, Whiteouts};
use cofferdam_proto::node::ImportFormat;
use std::io::{self, Read};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Bytes after the end of an archive that are read over, so that its writer can finish.
const TRAILER_BYTES_MAX: u64 = 1024 * 1024;
/// Reports of one step come no closer than this.
const REPORT_EVERY: Duration = Duration::from_millis(250);
/// The user whom clients expect, when the template has it.
const USUAL_USER: &str = "user";

/// What is being done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Step {
    pub(crate) step: String,
    pub(crate) done: u64,
    pub(crate) total: Option<u64>,
}

/// Hears what is being done.
pub(crate) type Progress = Arc<dyn Fn(Step) + Send + Sync>;

/// A tree that is complete and will not change any more.
#[derive(Debug)]
pub(crate) struct Built {
    pub(crate) described: Described,
    pub(crate) defaults: Defaults,
}

/// Lets through the first report of a step and then some.
struct Reporter<'a> {
    progress: &'a Progress,
    last: Option<(&'static str, Instant)>,
}

impl Reporter<'_> {
    fn report(&mut self, step: &'static str, done: u64, total: Option<u64>) {
        let now = Instant::now();
        let soon = self.last.is_some_and(|(last, at)| last == step && now.duration_since(at) < REPORT_EVERY);
        if !soon {
            self.last = Some((step, now));
            (self.progress)(Step { step: step.to_owned(), done, total });
        }
    }
}

/// Fills the empty directory `tree` from `source`. `scratch` is an empty directory for what is not kept.
pub(crate) fn build(
    source: impl Read,
    format: ImportFormat,
    tree: &Path,
    scratch: &Path,
    progress: &Progress,
) -> Result<Built, ImportError> {
    let mut reporter = Reporter { progress, last: None };
    let mut report = |step, done, total| reporter.report(step, done, total);
    let mut defaults = match format {
        ImportFormat::Rootfs => {
            unpack_rootfs(Plain::new(source)?, tree, &mut report)?;
            Defaults::default()
        }
        ImportFormat::OciLayout => oci::unpack(Plain::new(source)?, scratch, tree, &mut report)?,
    };
    skeleton::complete(tree)?;
    if defaults.user.is_empty() {
        let usual = skeleton::has_user(tree, USUAL_USER);
        defaults.user = if usual { USUAL_USER } else { "root" }.to_owned();
    }
    let described = manifest::describe(tree, &mut |entries| report("compute digest", entries, None))?;
    report("done", described.entries, Some(described.entries));
    Ok(Built { described, defaults })
}

fn unpack_rootfs(
    mut plain: Plain<'_>,
    tree: &Path,
    report: &mut dyn FnMut(&'static str, u64, Option<u64>),
) -> Result<(), ImportError> {
    let mut unpacker = Unpacker::new(tree, Whiteouts::Ignored)?;
    let mut bytes = 0;
    archive::read_members(&mut plain, &mut |member, content| {
        bytes += member.size;
        report("unpack", bytes, None);
        unpacker.place(member, content)
    })?;
    plain.check_end()?;
    if unpacker.entries() == 0 {
        return Err(ImportError::Empty);
    }
    unpacker.finish()?;
    // What follows the end mark is padding, or nothing that matters.
    match io::copy(&mut plain.take(TRAILER_BYTES_MAX), &mut io::sink()) {
        Ok(_) => {}
        Err(error) => tracing::debug!(%error, "bytes after the end of an archive"),
    }
    Ok(())
}
