//! Owns the three standard streams, so that verbs never name the process's own and tests can look at what was written.

use crate::error::{self, Error};
use std::io::{self, IsTerminal as _, Read, Write};
use std::sync::{Arc, Mutex, PoisonError};

/// An output that threads share.
#[derive(Clone)]
pub(crate) struct Output(Arc<Mutex<Box<dyn Write + Send>>>);

impl Output {
    fn new(writer: impl Write + Send + 'static) -> Self {
        Self(Arc::new(Mutex::new(Box::new(writer))))
    }

    /// Writes everything and flushes.
    pub(crate) fn write(&self, bytes: &[u8]) -> io::Result<()> {
        let mut writer = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        writer.write_all(bytes)?;
        writer.flush()
    }
}

/// Standard input, output and error of a verb.
pub struct Console {
    pub(crate) input: Option<Box<dyn Read + Send>>,
    pub(crate) out: Output,
    pub(crate) err: Output,
    /// Progress may be drawn on the real standard error.
    pub(crate) draws: bool,
}

impl Console {
    /// The streams of this process.
    pub fn process() -> Self {
        Self {
            input: Some(Box::new(io::stdin())),
            out: Output::new(io::stdout()),
            err: Output::new(io::stderr()),
            draws: io::stderr().is_terminal(),
        }
    }

    /// Streams of the caller's choice; nothing is drawn.
    pub fn new(
        input: impl Read + Send + 'static,
        out: impl Write + Send + 'static,
        err: impl Write + Send + 'static,
    ) -> Self {
        Self { input: Some(Box::new(input)), out: Output::new(out), err: Output::new(err), draws: false }
    }

    /// One line for whoever reads the result.
    pub(crate) fn say(&self, line: &str) -> Result<(), Error> {
        self.out.write(format!("{line}\n").as_bytes()).map_err(Error::local("write to standard output"))
    }

    /// One line for whoever watches. A closed standard error is no reason to stop.
    pub(crate) fn note(&self, line: &str) {
        self.err.write(format!("{line}\n").as_bytes()).unwrap_or_default();
    }

    /// Tells what failed, why, and what to do.
    pub(crate) fn error(&self, error: &Error) {
        self.note(&describe(error));
    }
}

/// The text of an error: the chain in one line, then what to do.
fn describe(error: &Error) -> String {
    let mut text = format!("error: {}", error::chain(error));
    if let Error::Api(api) = error {
        if let Some(hit) = &api.limit {
            text.push_str(&format!(" ({hit})"));
        }
        if let Some(id) = &api.request_id {
            text.push_str(&format!(" [request {id}]"));
        }
    }
    if let Some(remedy) = error.remedy() {
        text.push_str(&format!("\n  to do: {remedy}"));
    }
    text
}
