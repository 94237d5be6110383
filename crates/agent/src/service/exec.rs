//! Owns `Exec`: from what a client asks for to a process that runs with a listener.

use super::processes::follow;
use crate::agent::{Agent, Defaults, reserve};
use crate::connection::Connection;
use crate::failure::{at_path, because, doing, failure, invalid, text};
use crate::link::{Child, read_report};
use crate::order::{Order, Program};
use crate::paths;
use crate::process::{Input, Process};
use crate::pump::{self, Source};
use crate::table::Ticket;
use crate::users::{self, Account};
use cofferdam_core::ErrorKind;
use cofferdam_proto::frame::Channel;
use cofferdam_proto::guest::{Exec, Failure, PtySize, Reason, Reply, Stdio};
use cofferdam_sys::pipe::Wake;
use cofferdam_sys::spawn::{Report, Step};
use cofferdam_sys::{file, pipe, pty};
use std::collections::BTreeMap;
use std::ffi::CString;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::{Arc, MutexGuard};
use std::time::{Duration, Instant};

const DEFAULT_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
/// Longest tag, in bytes.
const TAG_BYTES_MAX: usize = 1024;
/// Longest time limit, so that adding it to the clock cannot overflow (a year).
const TIMEOUT_MS_MAX: u64 = 366 * 24 * 3600 * 1000;
const SIGKILL: u8 = 9;

/// Runs until the process or the caller ends.
pub(super) fn run(
    agent: &Arc<Agent>,
    connection: &Arc<Connection>,
    exec: Exec,
    large: Option<MutexGuard<'_, ()>>,
) -> Result<(), Failure> {
    let timeout =
        exec.timeout_ms.filter(|span| *span > 0).map(|span| Duration::from_millis(span.min(TIMEOUT_MS_MAX)));
    let deadline = timeout.map(|span| Instant::now() + span);
    let (kill_on_disconnect, process, pump, sources) = {
        let ticket = agent.table.ticket()?;
        // Before there is a process, so that there is never a process without it.
        let pump = reserve().map_err(|error| doing("start a thread", &error))?;
        if deadline.is_some() {
            agent.deadlines.prepare(agent).map_err(|error| doing("start a thread", &error))?;
        }
        let (process, sources) = start(agent, &exec, ticket)?;
        (exec.kill_on_disconnect, process, pump, sources)
    };
    drop((exec, large));
    if let Some(at) = deadline {
        agent.deadlines.set(&process, at);
    }
    let told = connection.reply(&Reply::Started { pid: process.pid() });
    if told.is_ok() {
        process.listen(connection);
    }
    let (pumping, pumped) = (Arc::clone(agent), Arc::clone(&process));
    pump.work(move || pump::run(&pumping, &pumped, sources));
    if told.is_ok() {
        follow(&process, connection);
    }
    if kill_on_disconnect {
        process.kill_tree(false);
    }
    Ok(())
}

fn start(agent: &Agent, exec: &Exec, ticket: Ticket<'_>) -> Result<(Arc<Process>, Vec<Source>), Failure> {
    if exec.tag.as_ref().is_some_and(|tag| tag.len() > TAG_BYTES_MAX) {
        return Err(invalid("the tag is too long"));
    }
    let defaults = agent.defaults();
    let account = users::find(&exec.user, &defaults.user)?;
    let directory = working_directory(exec, &account, &defaults)?;
    let order = Order::Program(program(exec, &account, &directory, &defaults, ticket.mark())?);
    let streams = Streams::open(exec.stdio, account.uid).map_err(|error| no_streams(exec.stdio, &error))?;
    let wake = Wake::new().map_err(|error| doing("connect the streams", &error))?;

    let descriptors: Vec<_> = streams.theirs.iter().map(AsFd::as_fd).collect();
    let child = agent.link.carry_out(&order, &descriptors)?;
    drop(streams.theirs);

    let process = Process::new(agent.table.remember(exec, child.pid), &ticket, streams.input, wake);
    let process = ticket.enter(process);
    if let Some(failed) = obstacle(&child, exec, &directory) {
        // It exits by itself; this is for one that was stopped on the way.
        process.send(SIGKILL).ok();
        agent.table.forget(&process);
        return Err(failed);
    }
    Ok((process, streams.sources))
}

/// `None` when the child has become the program.
fn obstacle(child: &Child, exec: &Exec, directory: &Path) -> Option<Failure> {
    if !child.is_decided() {
        return Some(failure(ErrorKind::Unavailable, "the process did not get as far as its program"));
    }
    match read_report(&child.report) {
        Ok(Some(Report::Failed(step, error))) => Some(explain(step, &error, exec, directory)),
        _ => None,
    }
}

fn explain(step: Step, error: &io::Error, exec: &Exec, directory: &Path) -> Failure {
    let (cwd, why) = (directory.display(), text(error));
    match step {
        Step::Execute if error.kind() == io::ErrorKind::NotFound => {
            invalid(format!("command '{}' not found", exec.cmd))
        }
        Step::Execute => match error.kind() {
            io::ErrorKind::OutOfMemory | io::ErrorKind::WouldBlock => doing("execute the command", error),
            _ => invalid(format!("command '{}' cannot be executed: {why}", exec.cmd)),
        },
        Step::Directory if error.kind() == io::ErrorKind::NotFound => no_directory(directory),
        Step::Directory => invalid(format!("cwd '{cwd}' cannot be entered: {why}")),
        Step::Session | Step::Terminal | Step::Streams | Step::Limits | Step::Credentials | Step::Clone => {
            doing(&format!("start a process ({step:?})"), error)
        }
    }
}

fn no_directory(directory: &Path) -> Failure {
    let message = format!("cwd '{}' does not exist", directory.display());
    because(ErrorKind::InvalidArgument, Reason::UnknownCwd, message)
}

/// A default that is not there falls back to the home and then to the root; what the client named must be there.
fn working_directory(exec: &Exec, account: &Account, defaults: &Defaults) -> Result<PathBuf, Failure> {
    if let Some(cwd) = exec.cwd.as_deref().filter(|cwd| !cwd.is_empty()) {
        let directory = paths::resolve(cwd, &account.home, &defaults.workdir)?;
        return match std::fs::metadata(&directory) {
            Ok(metadata) if metadata.is_dir() => Ok(directory),
            Ok(_) => Err(invalid(format!("cwd '{}' is not a directory", directory.display()))),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Err(no_directory(&directory)),
            Err(error) => Err(at_path("look at cwd", directory.display(), &error)),
        };
    }
    let candidates = [paths::resolve("", &account.home, &defaults.workdir)?, PathBuf::from(&account.home)];
    Ok(candidates.into_iter().find(|path| path.is_dir()).unwrap_or_else(|| PathBuf::from("/")))
}

fn program(
    exec: &Exec,
    account: &Account,
    directory: &Path,
    defaults: &Defaults,
    mark: u64,
) -> Result<Program, Failure> {
    let environment = environment(exec, account, defaults)?;
    let search = environment.get("PATH").map_or(DEFAULT_PATH, String::as_str);
    let texts = |texts: &mut dyn Iterator<Item = String>| -> Result<Vec<CString>, Failure> {
        let no_null = |_| invalid("arguments and environment must not contain null bytes");
        texts.map(|text| CString::new(text).map_err(no_null)).collect()
    };
    Ok(Program {
        candidates: texts(&mut candidates(&exec.cmd, search)?.into_iter())?,
        arguments: texts(&mut [&exec.cmd].into_iter().chain(&exec.args).cloned())?,
        directory: texts(&mut [directory.to_string_lossy().into_owned()].into_iter())?.remove(0),
        uid: account.uid,
        gid: account.gid,
        groups: users::groups(account),
        terminal: matches!(exec.stdio, Stdio::Pty(_)),
        open_files: defaults.open_files,
        mark,
        environment: texts(&mut environment.iter().map(|(name, value)| format!("{name}={value}")))?,
    })
}

/// Later wins: the agent's PATH, the user's own, the sandbox's, the request's.
fn environment<'a>(
    exec: &'a Exec,
    account: &'a Account,
    defaults: &'a Defaults,
) -> Result<BTreeMap<&'a str, String>, Failure> {
    let own = [
        ("PATH", DEFAULT_PATH),
        ("HOME", &account.home),
        ("USER", &account.name),
        ("LOGNAME", &account.name),
    ];
    let given = defaults.env.iter().chain(&exec.env).map(|(name, value)| (name.as_str(), value.as_str()));
    let mut environment = BTreeMap::new();
    for (name, value) in own.into_iter().chain(given) {
        if name.is_empty() || name.contains(['=', '\0']) {
            return Err(invalid(format!("'{}' cannot be the name of a variable", name.escape_default())));
        }
        environment.insert(name, value.to_owned());
    }
    Ok(environment)
}

fn candidates(cmd: &str, search: &str) -> Result<Vec<String>, Failure> {
    match cmd {
        "" => Err(invalid("the command is empty")),
        _ if cmd.contains('/') => Ok(vec![cmd.to_owned()]),
        _ => {
            let directories =
                search.split(':').map(|directory| if directory.is_empty() { "." } else { directory });
            Ok(directories.map(|directory| format!("{directory}/{cmd}")).collect())
        }
    }
}

fn no_streams(stdio: Stdio, error: &io::Error) -> Failure {
    match stdio {
        Stdio::Pty(_) if error.kind() == io::ErrorKind::NotFound => {
            failure(ErrorKind::Unsupported, "there are no terminals in this sandbox: devpts is missing")
        }
        Stdio::Pty(_) | Stdio::Pipes | Stdio::NoInput => doing("connect the streams", error),
    }
}

/// The standard streams of a process: our ends and its ends.
struct Streams {
    input: Input,
    sources: Vec<Source>,
    theirs: Vec<OwnedFd>,
}

impl Streams {
    fn open(stdio: Stdio, uid: u32) -> io::Result<Self> {
        match stdio {
            Stdio::Pipes => {
                let (theirs, ours) = pipe::pipe()?;
                pipe::set_nonblocking(ours.as_fd())?;
                Self::with_output(theirs, Input::Pipe(Arc::new(ours)))
            }
            Stdio::NoInput => Self::with_output(no_input()?, Input::Closed),
            Stdio::Pty(size) => Self::terminal(size, uid),
        }
    }

    fn with_output(stdin: OwnedFd, input: Input) -> io::Result<Self> {
        let ((stdout, stdout_end), (stderr, stderr_end)) = (pipe::pipe()?, pipe::pipe()?);
        let sources = vec![Source::new(Channel::Stdout, stdout)?, Source::new(Channel::Stderr, stderr)?];
        Ok(Self { input, sources, theirs: vec![stdin, stdout_end, stderr_end] })
    }

    fn terminal(size: PtySize, uid: u32) -> io::Result<Self> {
        let (ours, theirs) = pty::open(size.cols, size.rows)?;
        // Programs that open their terminal again by name need it to be theirs.
        std::os::unix::fs::fchown(&theirs, Some(uid), None)?;
        let source = Source::new(Channel::Pty, ours.try_clone()?)?;
        Ok(Self { input: Input::Terminal(Arc::new(ours)), sources: vec![source], theirs: vec![theirs] })
    }
}

/// /dev/null, or what behaves like it for a reader where there is none.
fn no_input() -> io::Result<OwnedFd> {
    match file::open_to_read(Path::new("/dev/null")) {
        Ok(null) => {
            pipe::set_blocking(null.as_fd())?;
            Ok(null.into())
        }
        Err(_) => pipe::pipe().map(|(read, _)| read),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cofferdam_proto::guest::User;

    fn exec() -> Exec {
        Exec {
            cmd: "sh".into(),
            args: vec![],
            env: BTreeMap::new(),
            cwd: None,
            user: User::Default,
            stdio: Stdio::Pipes,
            tag: None,
            timeout_ms: None,
            kill_on_disconnect: false,
        }
    }

    fn account() -> Account {
        Account { name: "user".into(), uid: 1000, gid: 1000, home: "/nowhere".into() }
    }

    #[test]
    fn a_name_is_looked_up_and_a_path_is_not() {
        assert_eq!(candidates("ls", "/bin::/x").unwrap(), ["/bin/ls", "./ls", "/x/ls"]);
        assert_eq!(candidates("./ls", "/bin").unwrap(), ["./ls"]);
        assert!(candidates("", "/bin").is_err());
    }

    #[test]
    fn later_layers_of_the_environment_win() {
        let mut exec = exec();
        exec.env = [("HOME".to_owned(), "/request".to_owned())].into();
        let sandbox = [("HOME".to_owned(), "/sandbox".to_owned()), ("USER".to_owned(), "boss".to_owned())];
        let defaults = Defaults { env: sandbox.into(), ..Defaults::default() };
        let account = account();
        let environment = environment(&exec, &account, &defaults).unwrap();
        let value = |name: &str| environment[name].as_str();
        let values = [value("HOME"), value("USER"), value("LOGNAME"), value("PATH")];
        assert_eq!(values, ["/request", "boss", "user", DEFAULT_PATH]);
    }

    #[test]
    fn names_and_texts_that_cannot_be_are_refused() {
        for name in ["", "A=B", "A\0"] {
            let mut exec = exec();
            exec.env = [(name.to_owned(), String::new())].into();
            assert!(environment(&exec, &account(), &Defaults::default()).is_err(), "{name:?}");
        }
        let mut exec = exec();
        exec.args = vec!["a\0b".into()];
        assert!(program(&exec, &account(), Path::new("/"), &Defaults::default(), 1).is_err());
    }

    #[test]
    fn a_default_directory_that_is_missing_falls_back_and_a_named_one_is_an_error() {
        let mut exec = exec();
        assert_eq!(working_directory(&exec, &account(), &Defaults::default()).unwrap(), PathBuf::from("/"));
        exec.cwd = Some("/nowhere/at/all".into());
        let refused = working_directory(&exec, &account(), &Defaults::default()).unwrap_err();
        assert_eq!(
            (refused.reason, refused.message.as_str()),
            (Reason::UnknownCwd, "cwd '/nowhere/at/all' does not exist")
        );
    }
}
