//! Owns how the chores run other programs: into a log, under a deadline, or captured. Never through a shell.

use anyhow::{Context, Result, bail};
use std::fs::File;
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The file that holds everything the programs of one stage said.
#[derive(Debug)]
pub(crate) struct Log {
    path: PathBuf,
    file: File,
}

/// A program to run, and how long it may take.
#[derive(Debug)]
pub(crate) struct Job {
    command: Command,
    seconds: u32,
}

impl Job {
    /// A program that is killed after `seconds`, with everything in its process group.
    pub(crate) fn new(program: impl AsRef<std::ffi::OsStr>, seconds: u32) -> Self {
        let mut command = Command::new("timeout");
        command.args(["--kill-after=20", &seconds.to_string()]).arg(program);
        Self { command, seconds }
    }

    /// Adds arguments.
    pub(crate) fn args<I: AsRef<std::ffi::OsStr>>(mut self, args: impl IntoIterator<Item = I>) -> Self {
        self.command.args(args);
        self
    }

    /// Sets an environment variable.
    pub(crate) fn env(mut self, name: &str, value: impl AsRef<std::ffi::OsStr>) -> Self {
        self.command.env(name, value);
        self
    }

    /// Sets the working directory.
    pub(crate) fn dir(mut self, dir: &Path) -> Self {
        self.command.current_dir(dir);
        self
    }
}

impl Log {
    /// An empty log at `path`.
    pub(crate) fn create(path: &Path) -> Result<Self> {
        if let Some(dir) = path.parent() {
            std::fs::create_dir_all(dir).with_context(|| format!("make {}", dir.display()))?;
        }
        std::fs::write(path, "").with_context(|| format!("empty {}", path.display()))?;
        let file = File::options().read(true).append(true).open(path);
        let file = file.with_context(|| format!("open {}", path.display()))?;
        Ok(Self { path: path.to_owned(), file })
    }

    /// Where it is.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Another handle, for a program that writes into it.
    pub(crate) fn handle(&self) -> Result<File> {
        self.file.try_clone().with_context(|| format!("share {}", self.path.display()))
    }

    /// Writes a line of our own.
    pub(crate) fn note(&mut self, text: &str) -> Result<()> {
        writeln!(self.file, "{text}").with_context(|| format!("write {}", self.path.display()))
    }

    /// Runs a job to its end with its output in this log; true when it succeeded.
    pub(crate) fn run(&mut self, mut job: Job) -> Result<bool> {
        self.note(&format!("$ {:?}", job.command))?;
        let status = job
            .command
            .stdin(Stdio::null())
            .stdout(self.handle()?)
            .stderr(self.handle()?)
            .status()
            .with_context(|| format!("start {:?}", job.command))?;
        match status.code() {
            Some(0) => return Ok(true),
            Some(124 | 137) => self.note(&format!("gave up after {} seconds", job.seconds))?,
            _ => self.note(&format!("ended with {status}"))?,
        }
        Ok(false)
    }

    /// Runs a job that has to succeed.
    pub(crate) fn must(&mut self, job: Job) -> Result<()> {
        let what = format!("{:?}", job.command);
        if self.run(job)? { Ok(()) } else { bail!("failed: {what}") }
    }

    /// Everything in it.
    pub(crate) fn text(&mut self) -> Result<String> {
        let mut bytes = Vec::new();
        self.file.seek(SeekFrom::Start(0)).context("rewind the log")?;
        self.file.read_to_end(&mut bytes).with_context(|| format!("read {}", self.path.display()))?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }

    /// Its last lines.
    pub(crate) fn tail(&mut self, lines: usize) -> Result<String> {
        let text = self.text()?;
        let all: Vec<&str> = text.lines().collect();
        Ok(all[all.len().saturating_sub(lines)..].join("\n"))
    }
}

/// Standard output of a program that has to succeed.
pub(crate) fn capture(dir: &Path, program: &str, args: &[&str]) -> Result<String> {
    let output = Command::new(program).args(args).current_dir(dir).stdin(Stdio::null()).output();
    let output = output.with_context(|| format!("start {program}"))?;
    if !output.status.success() {
        bail!("{program} {}: {}", args.join(" "), String::from_utf8_lossy(&output.stderr).trim());
    }
    String::from_utf8(output.stdout).with_context(|| format!("output of {program}"))
}

/// True when a program exists and ends well.
pub(crate) fn succeeds(program: &str, args: &[&str]) -> bool {
    let status = Command::new(program)
        .args(args)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    status.is_ok_and(|status| status.success())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_that_takes_too_long_is_ended_and_said_so() {
        let dir = std::env::temp_dir().join(format!("xtask-run-{}", std::process::id()));
        let mut log = Log::create(&dir.join("a.log")).unwrap();
        assert!(!log.run(Job::new("sleep", 1).args(["60"])).unwrap());
        assert!(log.tail(1).unwrap().contains("gave up after 1 seconds"));
        assert!(log.run(Job::new("true", 60)).unwrap());
        std::fs::remove_dir_all(dir).unwrap();
    }

    #[test]
    fn the_tail_is_the_end_of_the_log() {
        let dir = std::env::temp_dir().join(format!("xtask-tail-{}", std::process::id()));
        let mut log = Log::create(&dir.join("a.log")).unwrap();
        log.must(Job::new("seq", 60).args(["100"])).unwrap();
        assert_eq!(log.tail(2).unwrap(), "99\n100");
        assert!(log.must(Job::new("false", 60)).is_err());
        std::fs::remove_dir_all(dir).unwrap();
    }
}
