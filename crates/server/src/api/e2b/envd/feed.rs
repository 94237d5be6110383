//! Owns the event stream of a process: start, data, keepalives in silence, exactly one end, and the deadline.

use super::session::Session;
use crate::api::e2b::wire::process::ProcessEvent;
use crate::api::e2b::wire::process::process_event::data_event::Output as Data;
use crate::api::e2b::wire::process::process_event::{DataEvent, EndEvent, Event, KeepAlive, StartEvent};
use crate::app::Command;
use crate::guest::Output;
use bytes::Bytes;
use cofferdam_core::limits::{OUTPUT_CHUNK_BYTES_MAX, PTY_CHUNK_BYTES_MAX};
use cofferdam_proto::guest::Exit;
use connectrpc::ConnectError;
use futures::Stream;
use std::time::Duration;
use tokio::time::Instant;

/// What a stream is made of.
pub(crate) struct Feed {
    /// The request it answers.
    pub(crate) session: Session,
    /// The process.
    pub(crate) command: Command,
    /// Longest silence.
    pub(crate) keepalive: Duration,
    /// When to give up.
    pub(crate) deadline: Option<Instant>,
}

enum Stage {
    Start,
    Live { rest: Option<Output> },
    Over,
}

type Item = Result<ProcessEvent, ConnectError>;

impl Feed {
    /// The events, in order.
    pub(crate) fn events(self) -> impl Stream<Item = Item> + Send + 'static {
        futures::stream::unfold((self, Stage::Start), |(mut feed, stage)| async move {
            let (item, stage) = feed.step(stage).await?;
            Some((item, (feed, stage)))
        })
    }

    async fn step(&mut self, stage: Stage) -> Option<(Item, Stage)> {
        let output = match stage {
            Stage::Over => return None,
            Stage::Start => {
                let start = StartEvent { pid: self.command.pid(), ..StartEvent::default() };
                return Some((Ok(event(Event::from(start))), Stage::Live { rest: None }));
            }
            Stage::Live { rest: Some(output) } => output,
            Stage::Live { rest: None } => match self.wait().await {
                Ok(Some(output)) => output,
                Ok(None) => {
                    return Some((Ok(event(Event::from(KeepAlive::default()))), Stage::Live { rest: None }));
                }
                Err(error) => return Some((Err(error), Stage::Over)),
            },
        };
        Some(deliver(output))
    }

    /// The next output; `None` after the longest silence.
    async fn wait(&mut self) -> Result<Option<Output>, ConnectError> {
        let deadline = self.deadline;
        let output = tokio::select! {
            biased;
            output = self.command.next() => output,
            () = until(deadline) => return Err(deadline_exceeded()),
            () = tokio::time::sleep(self.keepalive) => return Ok(None),
        };
        match output {
            Ok(Some(output)) => Ok(Some(output)),
            Ok(None) => Err(ConnectError::internal("the process ended without a result")),
            Err(error) => Err(self.session.refuse(error).await),
        }
    }
}

async fn until(deadline: Option<Instant>) {
    match deadline {
        Some(at) => tokio::time::sleep_until(at).await,
        None => std::future::pending().await,
    }
}

pub(super) fn deadline_exceeded() -> ConnectError {
    ConnectError::deadline_exceeded("context deadline exceeded")
}

fn deliver(output: Output) -> (Item, Stage) {
    let (data, rest) = match output {
        Output::Exited(exit) if exit.timed_out => return (Err(deadline_exceeded()), Stage::Over),
        Output::Exited(exit) => return (Ok(event(Event::from(end(&exit)))), Stage::Over),
        Output::Stdout(bytes) => {
            let (now, rest) = cut(bytes, OUTPUT_CHUNK_BYTES_MAX);
            (Data::Stdout(now), rest.map(Output::Stdout))
        }
        Output::Stderr(bytes) => {
            let (now, rest) = cut(bytes, OUTPUT_CHUNK_BYTES_MAX);
            (Data::Stderr(now), rest.map(Output::Stderr))
        }
        Output::Pty(bytes) => {
            let (now, rest) = cut(bytes, PTY_CHUNK_BYTES_MAX);
            (Data::Pty(now), rest.map(Output::Pty))
        }
    };
    let data = DataEvent { output: Some(data), ..DataEvent::default() };
    (Ok(event(Event::from(data))), Stage::Live { rest })
}

fn cut(mut bytes: Bytes, max: usize) -> (Vec<u8>, Option<Bytes>) {
    let rest = (bytes.len() > max).then(|| bytes.split_off(max));
    (bytes.into(), rest)
}

fn event(event: Event) -> ProcessEvent {
    ProcessEvent { event: Some(event), ..ProcessEvent::default() }
}

/// The end of a process in the words that clients know.
fn end(exit: &Exit) -> EndEvent {
    let (exit_code, status) = match (exit.code, exit.signal) {
        (_, Some(signal)) => (-1, format!("signal: {}", signal_name(signal))),
        (Some(code), None) => (code, format!("exit status {code}")),
        (None, None) => (-1, "unknown".to_owned()),
    };
    let exited = exit.signal.is_none() && exit.code.is_some();
    let error = (exit_code != 0).then(|| status.clone());
    EndEvent { exit_code, exited, status, error, ..EndEvent::default() }
}

fn signal_name(signal: u8) -> String {
    let name = match signal {
        1 => "hangup",
        2 => "interrupt",
        3 => "quit",
        4 => "illegal instruction",
        5 => "trace/breakpoint trap",
        6 => "aborted",
        7 => "bus error",
        8 => "floating point exception",
        9 => "killed",
        10 => "user defined signal 1",
        11 => "segmentation fault",
        12 => "user defined signal 2",
        13 => "broken pipe",
        14 => "alarm clock",
        15 => "terminated",
        other => return format!("signal {other}"),
    };
    name.to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn exit(code: Option<i32>, signal: Option<u8>) -> Exit {
        Exit {
            code,
            signal,
            timed_out: false,
            duration_ms: 0,
            cpu_user_ms: 0,
            cpu_system_ms: 0,
            max_rss_kib: 0,
        }
    }

    #[track_caller]
    fn check(exit: &Exit, expected: (i32, bool, &str, Option<&str>)) {
        let end = end(exit);
        assert_eq!((end.exit_code, end.exited, end.status.as_str(), end.error.as_deref()), expected);
    }

    #[test]
    fn an_end_says_how() {
        check(&exit(Some(0), None), (0, true, "exit status 0", None));
        check(&exit(Some(3), None), (3, true, "exit status 3", Some("exit status 3")));
        check(&exit(None, Some(9)), (-1, false, "signal: killed", Some("signal: killed")));
    }

    #[test]
    fn a_large_output_is_cut_without_loss() {
        let bytes = Bytes::from(vec![7; OUTPUT_CHUNK_BYTES_MAX * 2 + 1]);
        let (mut total, mut rest) = (0, Some(Output::Stdout(bytes)));
        while let Some(output) = rest.take() {
            let (item, stage) = deliver(output);
            let Some(Event::Data(data)) = item.unwrap().event else { panic!("no data") };
            let Some(Data::Stdout(bytes)) = data.output else { panic!("no stdout") };
            assert!(bytes.len() <= OUTPUT_CHUNK_BYTES_MAX);
            total += bytes.len();
            if let Stage::Live { rest: more } = stage {
                rest = more;
            }
        }
        assert_eq!(total, OUTPUT_CHUNK_BYTES_MAX * 2 + 1);
    }

    #[test]
    fn a_timeout_ends_with_deadline_exceeded() {
        let late = Exit { timed_out: true, ..exit(None, Some(9)) };
        let (item, _) = deliver(Output::Exited(late));
        assert_eq!(item.unwrap_err().code, connectrpc::ErrorCode::DeadlineExceeded);
    }
}
