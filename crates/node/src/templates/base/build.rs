//! Owns the running of the builder: mmdebstrap in process and mount namespaces of its own, so that its end, however it
//! comes, leaves no mount and no process. Its archive is compressed as it comes out.

use crate::templates::base::sources::Sources;
use crate::templates::base::{cache, recipe};
use crate::templates::error::ImportError;
use crate::templates::import::{Progress, Step};
use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncBufReadExt, AsyncRead, BufReader};
use tokio::process::{Child, Command};
use tokio::time::timeout;

/// Longer than any mirror needs.
const BUILD_DEADLINE: Duration = Duration::from_secs(45 * 60);
/// Lines of the builder that an error shows.
const LINES_SHOWN: usize = 12;
/// Longest line of the builder that is kept.
const LINE_BYTES_MAX: usize = 1000;

/// Programs, and the packages they are in.
const TOOLS: [(&str, &str); 2] = [("mmdebstrap", "mmdebstrap"), ("unshare", "util-linux")];

/// Builds the archive. Says where it is: at `archive`, or in `scratch` when that place cannot be written.
pub(super) async fn run(
    sources: &Sources,
    archive: &Path,
    scratch: &Path,
    progress: &Progress,
) -> Result<PathBuf, ImportError> {
    check_tools()?;
    std::fs::create_dir_all(scratch)
        .map_err(|source| ImportError::Host { doing: "make the scratch directory", source })?;
    let place = cache::place(archive, scratch)
        .map_err(|source| ImportError::Host { doing: "find a place for the base archive", source })?;
    let mut child = start(sources, scratch)?;
    let built = timeout(BUILD_DEADLINE, attend(&mut child, &place, progress)).await;
    match built.unwrap_or_else(|_| Err(problem("mmdebstrap did not end within 45 minutes"))) {
        Ok(()) => Ok(place),
        Err(error) => {
            cache::forget(&place);
            Err(error)
        }
    }
}

fn problem(text: impl Into<String>) -> ImportError {
    ImportError::Build { problem: text.into() }
}

fn check_tools() -> Result<(), ImportError> {
    let missing = TOOLS.iter().find(|(program, _)| find_program(program).is_none());
    match missing {
        None => Ok(()),
        Some((program, package)) => Err(problem(format!(
            "building the template `base` needs `{program}`: apt-get install {package}, then start again; \
             or import a root file system: cofferdam template import"
        ))),
    }
}

/// Looks in the places where a system keeps its programs, and not in what an environment says.
pub(crate) fn find_program(name: &str) -> Option<PathBuf> {
    let places = ["/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin"];
    places.iter().map(|place| Path::new(place).join(name)).find(|path| path.is_file())
}

fn start(sources: &Sources, scratch: &Path) -> Result<Child, ImportError> {
    let failed = |source| ImportError::Host { doing: "start mmdebstrap", source };
    // A relative one would be another directory for the builder's children.
    let scratch = std::path::absolute(scratch).map_err(failed)?;
    Command::new("unshare")
        .args(["--mount", "--propagation=private", "--pid", "--fork", "--kill-child", "--mount-proc"])
        .arg("mmdebstrap")
        .args(recipe::arguments(sources))
        .env("TMPDIR", scratch)
        .env("LC_ALL", "C.UTF-8")
        .env("DEBIAN_FRONTEND", "noninteractive")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .map_err(failed)
}

async fn attend(child: &mut Child, place: &Path, progress: &Progress) -> Result<(), ImportError> {
    let (Some(stdout), Some(stderr)) = (child.stdout.take(), child.stderr.take()) else {
        return Err(problem("mmdebstrap has no output"));
    };
    let stdout = stdout.into_owned_fd().map_err(host)?;
    let (place, told) = (place.to_path_buf(), Arc::clone(progress));
    let storing = tokio::task::spawn_blocking(move || {
        let total = recipe::STEPS.len() as u64;
        let mut last = 0;
        cache::store(File::from(stdout), &place, &mut |bytes| {
            if bytes >> 26 != last {
                last = bytes >> 26;
                let step = format!("write archive, {} MiB", bytes >> 20);
                told(Step { step, done: total, total: Some(total) });
            }
        })
    });
    let lines = follow(stderr, progress).await;
    let status = child.wait().await.map_err(host)?;
    let stored = storing.await.map_err(|error| host(io::Error::other(error)))?;
    if !status.success() {
        return Err(problem(format!("mmdebstrap failed ({status}):\n{}", lines.join("\n"))));
    }
    stored.map_err(host)
}

fn host(source: io::Error) -> ImportError {
    ImportError::Host { doing: "build the base template", source }
}

/// Turns the builder's lines into steps, and keeps the last of them for an error.
async fn follow(stderr: impl AsyncRead + Unpin, progress: &Progress) -> Vec<String> {
    let total = Some(recipe::STEPS.len() as u64);
    let mut kept: VecDeque<String> = VecDeque::new();
    let mut lines = BufReader::new(stderr).split(b'\n');
    while let Ok(Some(line)) = lines.next_segment().await {
        let line = String::from_utf8_lossy(&line[..line.len().min(LINE_BYTES_MAX)]).trim_end().to_owned();
        let step = recipe::STEPS.iter().position(|(said, _)| line.contains(said));
        if let Some(index) = step {
            let step = recipe::STEPS[index].1.to_owned();
            progress(Step { step, done: index as u64, total });
        }
        tracing::debug!(line, "mmdebstrap");
        kept.push_back(line);
        if kept.len() > LINES_SHOWN {
            kept.pop_front();
        }
    }
    kept.into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Mutex;

    #[tokio::test]
    async fn what_the_builder_says_becomes_steps_and_its_last_words_are_kept() {
        let said: String = (0..30).map(|number| format!("noise {number}\n")).collect();
        let said = format!("I: running apt-get update...\n{said}I: creating tarball...\nE: no space\n");
        let heard = Arc::new(Mutex::new(Vec::new()));
        let hearing = Arc::clone(&heard);
        let progress: Progress = Arc::new(move |step| hearing.lock().unwrap().push(step));
        let lines = follow(said.as_bytes(), &progress).await;
        assert_eq!(lines.len(), LINES_SHOWN);
        assert_eq!(lines.last().unwrap(), "E: no space");
        let steps: Vec<_> = heard.lock().unwrap().iter().map(|step| (step.step.clone(), step.done)).collect();
        assert_eq!(steps, [("fetch package lists".to_owned(), 0), ("write archive".to_owned(), 7)]);
    }
}
