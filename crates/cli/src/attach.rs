//! Owns the live connection between the streams of this process and those of a command in a sandbox: output in order,
//! input, terminal sizes, signals, and what the end means as an exit code.
//!
//! ```text
//!  stdin thread ──▶ inputs ──▶ sender task ──▶ WebSocket ──▶ command
//!  signals, sizes ──▶ controls ──┘
//!  stdout, stderr ◀── writer thread ◀── outputs ◀── WebSocket ◀── command
//! ```
//!
//! The two directions never wait for each other, so a command that reads and writes much cannot deadlock.

use crate::client::Client;
use crate::client::exec::{Channel, Event, Input, Receiver, Sender};
use crate::console::Console;
use crate::error::Error;
use crate::terminal::{self, Interrupts, RawMode};
use bytes::Bytes;
use cofferdam_core::{ErrorKind, SandboxId};
use cofferdam_proto::api::{ApiError, ExecExit, ExecMessage, ExecRequest};
use std::io::{self, Read};
use tokio::sync::{mpsc, oneshot};

/// Bytes of input in one message.
const INPUT_CHUNK_BYTES: usize = 32 * 1024;
/// Messages that wait in either direction.
const QUEUE: usize = 16;

/// How the attachment ended.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Ended {
    /// The command ended.
    Exited(ExecExit),
    /// The command could not be started.
    NotStarted(ApiError),
    /// The command was started and its end is not known, for example because its sandbox ended.
    Lost(ApiError),
    /// The user insisted: a second signal came before the command ended.
    Interrupted(u8),
    /// Nobody reads our standard output or error any more.
    OutputClosed,
}

/// What is attached to what.
pub(crate) struct Attachment<'a> {
    pub(crate) client: &'a Client,
    pub(crate) sandbox: &'a SandboxId,
    pub(crate) request: &'a ExecRequest,
    /// Forward standard input.
    pub(crate) input: bool,
}

impl Attachment<'_> {
    /// Runs the command to its end, or to the second signal.
    pub(crate) async fn run(
        self,
        console: &mut Console,
        interrupts: &mut Interrupts,
    ) -> Result<Ended, Error> {
        let terminal = self.request.pty.is_some();
        let raw_mode = if terminal && self.input { Some(RawMode::enter()?) } else { None };
        let (sender, receiver) = self.client.exec_stream(self.sandbox, self.request).await?;
        let (controls, inputs) = start_input(sender, self.input.then_some(console.input.take()).flatten());
        let (outputs, written) = start_output(console);

        let carried = carry(receiver, outputs);
        let ended = watch(carried, Watch { terminal, controls, interrupts }).await;
        drop(inputs);
        let written = tokio::select! {
            written = written => written.unwrap_or(Ok(())),
            number = interrupts.next() => return Ok(Ended::Interrupted(number)),
        };
        drop(raw_mode);
        match (ended, written) {
            (Ok(ended @ (Ended::Interrupted(_) | Ended::NotStarted(_) | Ended::Lost(_))), _) => Ok(ended),
            (Ok(_), Err(_)) => Ok(Ended::OutputClosed),
            (ended, _) => ended,
        }
    }
}

struct Watch<'a> {
    terminal: bool,
    controls: mpsc::UnboundedSender<ExecMessage>,
    interrupts: &'a mut Interrupts,
}

/// Passes signals and sizes on until the command ends. The first signal goes to the command; the second ends the wait.
async fn watch(
    carried: impl Future<Output = Result<Ended, Error>>,
    watch: Watch<'_>,
) -> Result<Ended, Error> {
    let mut sizes = if watch.terminal { Some(terminal::size_changes()?) } else { None };
    let mut asked = false;
    tokio::pin!(carried);
    loop {
        tokio::select! {
            ended = &mut carried => return ended,
            number = watch.interrupts.next() => {
                let gone = watch.controls.send(ExecMessage::Signal { signal: number }).is_err();
                if asked || gone {
                    return Ok(Ended::Interrupted(number));
                }
                asked = true;
            }
            () = changed(&mut sizes) => {
                // A connection that is gone is noticed by `carried`.
                watch.controls.send(ExecMessage::Resize(terminal::size())).unwrap_or_default();
            }
        }
    }
}

async fn changed(sizes: &mut Option<tokio::signal::unix::Signal>) {
    let change = match sizes {
        Some(sizes) => sizes.recv().await,
        None => None,
    };
    if change.is_none() {
        std::future::pending::<()>().await;
    }
}

/// Hands output on until the command ends.
async fn carry(mut receiver: Receiver, outputs: mpsc::Sender<(Channel, Bytes)>) -> Result<Ended, Error> {
    let mut started = false;
    loop {
        match receiver.next().await? {
            Event::Started => started = true,
            Event::Output(channel, bytes) => {
                if outputs.send((channel, bytes)).await.is_err() {
                    return Ok(Ended::OutputClosed);
                }
            }
            Event::Exited(exit) => return Ok(Ended::Exited(exit)),
            Event::Failed(error) if started => return Ok(Ended::Lost(error)),
            Event::Failed(error) => return Ok(Ended::NotStarted(error)),
        }
    }
}

/// Starts whatever feeds the command. Without a source its standard input is closed at once.
fn start_input(
    sender: Sender,
    source: Option<Box<dyn Read + Send>>,
) -> (mpsc::UnboundedSender<ExecMessage>, tokio::task::JoinHandle<()>) {
    let (controls, control_queue) = mpsc::unbounded_channel();
    let (inputs, input_queue) = mpsc::channel(QUEUE);
    match source {
        // The thread may stay in `read` until the process ends; nothing waits for it.
        Some(source) => drop(std::thread::spawn(move || read_input(source, &inputs))),
        None => inputs.try_send(Bytes::new()).unwrap_or_default(),
    }
    (controls, tokio::spawn(send_input(sender, control_queue, input_queue)))
}

fn read_input(mut source: Box<dyn Read + Send>, inputs: &mpsc::Sender<Bytes>) {
    let mut buffer = vec![0; INPUT_CHUNK_BYTES];
    loop {
        let count = match source.read(&mut buffer) {
            Ok(count) => count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(_) => 0,
        };
        let sent = inputs.blocking_send(Bytes::copy_from_slice(&buffer[..count]));
        if count == 0 || sent.is_err() {
            return;
        }
    }
}

async fn send_input(
    mut sender: Sender,
    mut controls: mpsc::UnboundedReceiver<ExecMessage>,
    mut inputs: mpsc::Receiver<Bytes>,
) {
    loop {
        let input = tokio::select! {
            biased;
            control = controls.recv() => match control {
                Some(message) => Input::Control(message),
                None => return,
            },
            Some(bytes) = inputs.recv() => Input::Bytes(bytes),
        };
        // The receiving half reports a broken connection.
        if sender.send(input).await.is_err() {
            return;
        }
    }
}

type Written = oneshot::Receiver<io::Result<()>>;

/// Starts the thread that writes output, so that a reader that is slow does not keep signals from being seen.
fn start_output(console: &Console) -> (mpsc::Sender<(Channel, Bytes)>, Written) {
    let (outputs, mut queue) = mpsc::channel::<(Channel, Bytes)>(QUEUE);
    let (done, written) = oneshot::channel();
    let (out, err) = (console.out.clone(), console.err.clone());
    std::thread::spawn(move || {
        let mut result = Ok(());
        while let Some((channel, bytes)) = queue.blocking_recv() {
            let output = match channel {
                Channel::Out => &out,
                Channel::Err => &err,
            };
            result = output.write(&bytes);
            if result.is_err() {
                break;
            }
        }
        done.send(result).unwrap_or_default();
    });
    (outputs, written)
}

/// The exit code that the end of a command becomes, and the error to show with it.
pub(crate) fn exit_code(ended: Ended) -> (u8, Option<Error>) {
    match ended {
        Ended::Exited(exit) if exit.timed_out => (124, None),
        Ended::Exited(ExecExit { signal: Some(signal), .. }) => (128_u8.saturating_add(signal), None),
        Ended::Exited(exit) => {
            let code = exit.code.unwrap_or(125) & 0xff;
            (u8::try_from(code).unwrap_or(125), None)
        }
        Ended::Lost(error) => (125, Some(Error::Api(Box::new(error)))),
        Ended::NotStarted(error) => {
            let code = match error.kind {
                _ if is_unknown_command(&error) => 127,
                ErrorKind::InvalidArgument | ErrorKind::PermissionDenied => 126,
                ErrorKind::NotFound
                | ErrorKind::DeadlineExceeded
                | ErrorKind::Unauthenticated
                | ErrorKind::AlreadyExists
                | ErrorKind::Conflict
                | ErrorKind::ResourceExhausted
                | ErrorKind::Unavailable
                | ErrorKind::Unsupported
                | ErrorKind::Internal => 125,
            };
            (code, Some(Error::Api(Box::new(error))))
        }
        Ended::Interrupted(number) => (128_u8.saturating_add(number), None),
        Ended::OutputClosed => (141, None),
    }
}

/// The kind of the error is that of every command that cannot be run; only the text tells that there is none. The text
/// is that of the agent, and an end-to-end test holds it to this.
fn is_unknown_command(error: &ApiError) -> bool {
    error.kind == ErrorKind::InvalidArgument
        && error.message.starts_with("command '")
        && error.message.trim_end_matches('.').ends_with("' not found")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn exit(code: Option<i32>, signal: Option<u8>, timed_out: bool) -> Ended {
        Ended::Exited(ExecExit { code, signal, timed_out, duration_ms: 1 })
    }

    #[test]
    fn ends_become_the_exit_codes_that_shells_use() {
        for (ended, expected) in [
            (exit(Some(0), None, false), 0),
            (exit(Some(7), None, false), 7),
            (exit(Some(256 + 3), None, false), 3),
            (exit(Some(-1), None, false), 255),
            (exit(None, Some(9), false), 137),
            (exit(None, Some(9), true), 124),
            (exit(None, None, false), 125),
            (Ended::Interrupted(2), 130),
            (Ended::OutputClosed, 141),
        ] {
            let text = format!("{ended:?}");
            assert_eq!(exit_code(ended).0, expected, "{text}");
        }
    }

    #[test]
    fn a_program_that_is_missing_is_127_and_one_that_cannot_run_126() {
        for (kind, message, expected) in [
            (ErrorKind::InvalidArgument, "command 'x' not found", 127),
            (ErrorKind::InvalidArgument, "command 'x' cannot be executed: permission denied", 126),
            (ErrorKind::NotFound, "sandbox iabc does not exist", 125),
            (ErrorKind::Unavailable, "sandbox iabc ended", 125),
        ] {
            let error = ApiError { code: 400, kind, message: message.into(), limit: None, request_id: None };
            assert_eq!(exit_code(Ended::NotStarted(error.clone())).0, expected);
            assert_eq!(exit_code(Ended::Lost(error)).0, 125);
        }
    }
}
