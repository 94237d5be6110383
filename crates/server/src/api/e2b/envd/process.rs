//! Owns the process service: each call becomes one operation of the agent.

use super::feed::Feed;
use super::session::{Session, keepalive};
use crate::api::e2b::wire::process as wire;
use crate::app::AppError;
use cofferdam_core::ErrorKind;
use cofferdam_proto::guest::{Exec, PtySize, Reason, Selector, SignalScope, Stdio};
use connectrpc::{
    ConnectError, ErrorCode, InboundStream, RequestContext, Response, ServiceRequest, ServiceResult,
    ServiceStream,
};
use futures::StreamExt;
use std::time::Duration;
use tokio::time::Instant;
use wire::process_input::Input;
use wire::process_selector::Selector as WireSelector;
use wire::stream_input_request::Event as InputEvent;

/// How much longer than the agent the server waits for the end of a process whose time is over.
const DEADLINE_GRACE: Duration = Duration::from_secs(2);
/// Size of a terminal when the request names none.
const PTY_SIZE_DEFAULT: PtySize = PtySize { cols: 80, rows: 24 };

/// The service. It holds nothing: everything is in the request.
pub(crate) struct ProcessService;

#[expect(refining_impl_trait, reason = "the messages themselves are what the service answers")]
impl wire::Process for ProcessService {
    async fn list(
        &self,
        ctx: RequestContext,
        _request: ServiceRequest<'_, wire::ListRequest>,
    ) -> ServiceResult<wire::ListResponse> {
        let session = Session::of(&ctx)?;
        match session.agent.processes().await {
            Ok(processes) => {
                let processes = processes.into_iter().map(info).collect();
                Response::ok(wire::ListResponse { processes, ..Default::default() })
            }
            Err(error) => Err(session.refuse(error).await),
        }
    }

    async fn connect(
        &self,
        ctx: RequestContext,
        request: ServiceRequest<'_, wire::ConnectRequest>,
    ) -> ServiceResult<ServiceStream<wire::ConnectResponse>> {
        let session = Session::of(&ctx)?;
        let process = selector(request.to_owned_message().process)?;
        let command = match session.agent.attach(process.clone()).await {
            Ok(command) => command,
            Err(error) => return Err(miss(&session, error, &process).await),
        };
        let deadline = ctx.deadline().map(Instant::from_std);
        let feed = Feed { session, command, keepalive: keepalive(&ctx), deadline };
        let events = feed.events().map(|event| {
            event.map(|event| wire::ConnectResponse { event: event.into(), ..Default::default() })
        });
        Ok(Response::stream(events))
    }

    async fn start(
        &self,
        ctx: RequestContext,
        request: ServiceRequest<'_, wire::StartRequest>,
    ) -> ServiceResult<ServiceStream<wire::StartResponse>> {
        let session = Session::of(&ctx)?;
        let exec = exec(&session, request.to_owned_message(), ctx.time_remaining())?;
        let cwd = exec.cwd.clone();
        let command = match session.agent.exec(exec).await {
            Ok(command) => command,
            Err(error) if error.reason() == Reason::UnknownCwd => {
                let cwd = cwd.unwrap_or_default();
                return Err(ConnectError::invalid_argument(format!("cwd '{cwd}' does not exist")));
            }
            Err(error) => return Err(start_error(&session, error).await),
        };
        let deadline = ctx.deadline().map(|at| Instant::from_std(at) + DEADLINE_GRACE);
        let feed = Feed { session, command, keepalive: keepalive(&ctx), deadline };
        let events = feed.events().map(|event| {
            event.map(|event| wire::StartResponse { event: event.into(), ..Default::default() })
        });
        Ok(Response::stream(events))
    }

    async fn update(
        &self,
        ctx: RequestContext,
        request: ServiceRequest<'_, wire::UpdateRequest>,
    ) -> ServiceResult<wire::UpdateResponse> {
        let session = Session::of(&ctx)?;
        let request = request.to_owned_message();
        let process = selector(request.process)?;
        if let Some(pty) = request.pty.into_option() {
            let resized = session.agent.resize(process.clone(), pty_size(&pty)?).await;
            done(&session, resized, &process).await?;
        }
        Response::ok(wire::UpdateResponse::default())
    }

    async fn stream_input(
        &self,
        ctx: RequestContext,
        mut requests: InboundStream<wire::StreamInputRequest>,
    ) -> ServiceResult<wire::StreamInputResponse> {
        let session = Session::of(&ctx)?;
        let mut process = None;
        while let Some(request) = requests.next().await {
            match request?.to_owned_message().event {
                Some(InputEvent::Start(start)) => process = Some(selector(start.process)?),
                Some(InputEvent::Data(data)) => {
                    let process = process.as_ref().ok_or_else(|| {
                        ConnectError::invalid_argument("the first message must name the process")
                    })?;
                    send(&session, process, data.input.into_option().and_then(|input| input.input)).await?;
                }
                Some(InputEvent::Keepalive(_)) => {}
                None => return Err(ConnectError::unimplemented("unknown kind of message")),
            }
        }
        Response::ok(wire::StreamInputResponse::default())
    }

    async fn send_input(
        &self,
        ctx: RequestContext,
        request: ServiceRequest<'_, wire::SendInputRequest>,
    ) -> ServiceResult<wire::SendInputResponse> {
        let session = Session::of(&ctx)?;
        let request = request.to_owned_message();
        let process = selector(request.process)?;
        send(&session, &process, request.input.into_option().and_then(|input| input.input)).await?;
        Response::ok(wire::SendInputResponse::default())
    }

    async fn send_signal(
        &self,
        ctx: RequestContext,
        request: ServiceRequest<'_, wire::SendSignalRequest>,
    ) -> ServiceResult<wire::SendSignalResponse> {
        let session = Session::of(&ctx)?;
        let request = request.to_owned_message();
        let process = selector(request.process)?;
        let signal = match request.signal.as_known() {
            Some(wire::Signal::SIGNAL_SIGTERM) => 15,
            Some(wire::Signal::SIGNAL_SIGKILL) => 9,
            Some(wire::Signal::SIGNAL_UNSPECIFIED) | None => {
                return Err(ConnectError::unimplemented(format!("invalid signal: {}", request.signal)));
            }
        };
        let sent = session.agent.signal(process.clone(), signal, SignalScope::Process).await;
        done(&session, sent, &process).await?;
        Response::ok(wire::SendSignalResponse::default())
    }

    async fn close_stdin(
        &self,
        ctx: RequestContext,
        request: ServiceRequest<'_, wire::CloseStdinRequest>,
    ) -> ServiceResult<wire::CloseStdinResponse> {
        let session = Session::of(&ctx)?;
        let process = selector(request.to_owned_message().process)?;
        match session.agent.close_stdin(process.clone()).await {
            Err(error) if error.reason() == Reason::NotPty => {
                return Err(ConnectError::unknown(
                    "a terminal has no standard input to close; send Ctrl+D (0x04)",
                ));
            }
            closed => done(&session, closed, &process).await?,
        }
        Response::ok(wire::CloseStdinResponse::default())
    }
}

fn exec(
    session: &Session,
    request: wire::StartRequest,
    time: Option<Duration>,
) -> Result<Exec, ConnectError> {
    let config = request.process.into_option().unwrap_or_default();
    if config.cmd.is_empty() {
        return Err(ConnectError::invalid_argument("process.cmd is empty"));
    }
    let stdio = match (request.pty.as_option(), request.stdin) {
        (Some(pty), _) => Stdio::Pty(pty_size(pty)?),
        (None, Some(false)) => Stdio::NoInput,
        (None, Some(true) | None) => Stdio::Pipes,
    };
    Ok(Exec {
        cmd: config.cmd,
        args: config.args,
        env: config.envs.into_iter().collect(),
        cwd: config.cwd.filter(|cwd| !cwd.is_empty()),
        user: session.user.clone(),
        stdio,
        tag: request.tag,
        timeout_ms: time.map(|time| u64::try_from(time.as_millis()).unwrap_or(u64::MAX).max(1)),
        kill_on_disconnect: false,
    })
}

/// A program that cannot be executed, or a directory that the user may not enter, is a bad request and nothing else.
async fn start_error(session: &Session, error: AppError) -> ConnectError {
    match (error.kind(), error.reason()) {
        (ErrorKind::NotFound | ErrorKind::PermissionDenied, Reason::None) => {
            ConnectError::invalid_argument(error.public())
        }
        _ => session.refuse(error).await,
    }
}

async fn send(session: &Session, process: &Selector, input: Option<Input>) -> Result<(), ConnectError> {
    let (pty, bytes) = match input {
        Some(Input::Stdin(bytes)) => (false, bytes),
        Some(Input::Pty(bytes)) => (true, bytes),
        None => return Err(ConnectError::unimplemented("input is neither stdin nor pty")),
    };
    let written = async {
        let mut writer = session.agent.input(process.clone(), pty).await?;
        writer.write(&bytes).await?;
        writer.finish().await?;
        Ok::<_, AppError>(())
    };
    done(session, written.await, process).await
}

async fn done(
    session: &Session,
    outcome: Result<(), AppError>,
    process: &Selector,
) -> Result<(), ConnectError> {
    match outcome {
        Ok(()) => Ok(()),
        Err(error) => Err(miss(session, error, process).await),
    }
}

/// The error of a call that names a process, with the text that clients know when there is none.
async fn miss(session: &Session, error: AppError, process: &Selector) -> ConnectError {
    let missing = matches!(&error, AppError::Agent(failure) if failure.kind == ErrorKind::NotFound);
    if !missing {
        return session.refuse(error).await;
    }
    let text = match process {
        Selector::Pid(pid) => format!("process with pid {pid} not found"),
        Selector::Tag(tag) => format!("process with tag {tag} not found"),
    };
    ConnectError::new(ErrorCode::NotFound, text)
}

fn selector(selector: impl Into<Option<wire::ProcessSelector>>) -> Result<Selector, ConnectError> {
    match selector.into().and_then(|selector| selector.selector) {
        Some(WireSelector::Pid(pid)) => Ok(Selector::Pid(pid)),
        Some(WireSelector::Tag(tag)) => Ok(Selector::Tag(tag)),
        None => Err(ConnectError::unimplemented("process is named neither by pid nor by tag")),
    }
}

fn pty_size(pty: &wire::PTY) -> Result<PtySize, ConnectError> {
    let Some(size) = pty.size.as_option() else { return Ok(PTY_SIZE_DEFAULT) };
    let side = |value: u32| {
        u16::try_from(value).map_err(|_| ConnectError::invalid_argument("pty size is too large"))
    };
    Ok(PtySize { cols: side(size.cols)?, rows: side(size.rows)? })
}

fn info(process: cofferdam_proto::guest::Process) -> wire::ProcessInfo {
    let config = wire::ProcessConfig {
        cmd: process.cmd,
        args: process.args,
        envs: process.env.into_iter().collect(),
        cwd: process.cwd,
        ..Default::default()
    };
    wire::ProcessInfo { config: config.into(), pid: process.pid, tag: process.tag, ..Default::default() }
}
