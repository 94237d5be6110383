//! Owns running a command to its end in one request.

use super::answer::{Answer, Problem};
use super::ask::{Body, Id, Who};
use crate::app::{App, AppError, Command};
use crate::guest::{GuestError, Output, SessionInput};
use axum::Json;
use axum::extract::State;
use cofferdam_proto::api::{ExecExit, ExecRequest, ExecResult};
use cofferdam_proto::guest::{Exec, Exit, Stdio, User};
use std::convert::Infallible;

/// Output of one stream that is kept, in bytes.
const OUTPUT_BYTES_MAX: usize = 1024 * 1024;

pub(super) async fn run(
    State(app): State<App>,
    Who(actor): Who,
    Id(id): Id,
    Body { value, .. }: Body<ExecRequest>,
) -> Answer<Json<ExecResult>> {
    if value.pty.is_some() {
        return Err(Problem::bad_request("`pty` needs `/exec/stream`"));
    }
    let (stdin, stdio) = match &value.stdin {
        Some(text) => (text.clone(), Stdio::Pipes),
        None => (String::new(), Stdio::NoInput),
    };
    let exec = to_exec(value, stdio)?;
    let agent = app.agent(&actor, &id).await?;
    let mut command = agent.exec(exec).await?;
    if stdio == Stdio::NoInput {
        return Ok(Json(collect(&mut command).await?));
    }
    let input = command.input();
    tokio::select! {
        result = collect(&mut command) => Ok(Json(result?)),
        never = feed(&input, stdin.as_bytes()) => match never {},
    }
}

/// The command of a request.
pub(super) fn to_exec(request: ExecRequest, stdio: Stdio) -> Answer<Exec> {
    let mut argv = request.argv.into_iter();
    let Some(cmd) = argv.next().filter(|cmd| !cmd.is_empty()) else {
        return Err(Problem::bad_request("`argv` names no program"));
    };
    Ok(Exec {
        cmd,
        args: argv.collect(),
        env: request.env,
        cwd: request.cwd,
        user: request.user.map_or(User::Default, User::Named),
        stdio,
        tag: None,
        timeout_ms: request.timeout_ms,
        kill_on_disconnect: true,
    })
}

/// Gives the command its input, and then waits for ever: the end of the command is what counts.
async fn feed(input: &SessionInput, stdin: &[u8]) -> Infallible {
    let fed = async {
        input.write(stdin).await?;
        input.close().await
    };
    if let Err(error) = fed.await {
        tracing::debug!(%error, "a command ended before it had read its input");
    }
    std::future::pending().await
}

async fn collect(command: &mut Command) -> Answer<ExecResult> {
    let (mut stdout, mut stderr) = (Kept::default(), Kept::default());
    loop {
        match command.next().await? {
            Some(Output::Stdout(bytes) | Output::Pty(bytes)) => stdout.push(&bytes),
            Some(Output::Stderr(bytes)) => stderr.push(&bytes),
            Some(Output::Exited(exit)) => {
                return Ok(ExecResult {
                    pid: command.pid(),
                    exit: to_exit(&exit),
                    truncated: stdout.truncated || stderr.truncated,
                    stdout: stdout.into_text(),
                    stderr: stderr.into_text(),
                });
            }
            None => return Err(AppError::from(GuestError::Closed).into()),
        }
    }
}

/// How a command ended, as this surface says it.
pub(super) fn to_exit(exit: &Exit) -> ExecExit {
    ExecExit {
        code: exit.code,
        signal: exit.signal,
        timed_out: exit.timed_out,
        duration_ms: exit.duration_ms,
    }
}

/// The first bytes of a stream.
#[derive(Default)]
struct Kept {
    bytes: Vec<u8>,
    truncated: bool,
}

impl Kept {
    fn push(&mut self, bytes: &[u8]) {
        let room = OUTPUT_BYTES_MAX - self.bytes.len();
        self.truncated |= bytes.len() > room;
        self.bytes.extend_from_slice(&bytes[..bytes.len().min(room)]);
    }

    fn into_text(self) -> String {
        match String::from_utf8(self.bytes) {
            Ok(text) => text,
            Err(error) => String::from_utf8_lossy(error.as_bytes()).into_owned(),
        }
    }
}
