//! Owns the local terminal: its size, raw mode and its end, and the signals that a person or a supervisor sends.

use crate::error::Error;
use cofferdam_proto::api::TerminalSize;
use rustix::termios::{self, OptionalActions, Termios};
use std::io::{self, IsTerminal as _};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::mpsc;

/// Signal number of an interrupt from the keyboard.
pub(crate) const SIGINT: u8 = 2;
const SIGHUP: u8 = 1;
const SIGTERM: u8 = 15;

/// True when standard input is a terminal.
pub(crate) fn input_is_terminal() -> bool {
    io::stdin().is_terminal()
}

/// The size of the terminal, or a usual one where there is none.
pub(crate) fn size() -> TerminalSize {
    let found = [termios::tcgetwinsize(io::stdout()), termios::tcgetwinsize(io::stdin())];
    let found = found.into_iter().flatten().find(|size| size.ws_col > 0 && size.ws_row > 0);
    found.map_or(TerminalSize { cols: 80, rows: 24 }, |size| TerminalSize {
        cols: size.ws_col,
        rows: size.ws_row,
    })
}

/// Reports changes of the terminal's size.
pub(crate) fn size_changes() -> Result<Signal, Error> {
    signal(SignalKind::window_change()).map_err(Error::local("watch the size of the terminal"))
}

/// Raw mode while it lives: every key goes to the sandbox.
pub(crate) struct RawMode(Termios);

impl RawMode {
    pub(crate) fn enter() -> Result<Self, Error> {
        let what = "switch the terminal to raw mode";
        let before = termios::tcgetattr(io::stdin()).map_err(|e| Error::local(what)(e.into()))?;
        let mut raw = before.clone();
        raw.make_raw();
        termios::tcsetattr(io::stdin(), OptionalActions::Now, &raw)
            .map_err(|e| Error::local(what)(e.into()))?;
        Ok(Self(before))
    }
}

impl Drop for RawMode {
    fn drop(&mut self) {
        // A terminal that went away needs no repair.
        termios::tcsetattr(io::stdin(), OptionalActions::Now, &self.0).unwrap_or_default();
    }
}

/// The signals that ask this process to end, in the order of their arrival.
pub(crate) struct Interrupts(mpsc::UnboundedReceiver<u8>);

impl Interrupts {
    /// From now on these signals no longer end the process by themselves.
    pub(crate) fn watch() -> Result<Self, Error> {
        let (sender, receiver) = mpsc::unbounded_channel();
        let kinds = [
            (SIGINT, SignalKind::interrupt()),
            (SIGTERM, SignalKind::terminate()),
            (SIGHUP, SignalKind::hangup()),
        ];
        for (number, kind) in kinds {
            let mut arrivals = signal(kind).map_err(Error::local("watch signals"))?;
            let sender = sender.clone();
            tokio::spawn(
                async move { while arrivals.recv().await.is_some() && sender.send(number).is_ok() {} },
            );
        }
        Ok(Self(receiver))
    }

    /// The next signal.
    pub(crate) async fn next(&mut self) -> u8 {
        match self.0.recv().await {
            Some(number) => number,
            None => std::future::pending().await,
        }
    }

    /// A signal that came already.
    pub(crate) fn pending(&mut self) -> Option<u8> {
        self.0.try_recv().ok()
    }
}

#[cfg(test)]
impl Interrupts {
    /// Signals that a test sends.
    pub(crate) fn fake() -> (mpsc::UnboundedSender<u8>, Self) {
        let (sender, receiver) = mpsc::unbounded_channel();
        (sender, Self(receiver))
    }
}
