//! Owns starting processes out of a small process: clone(2), execve(2), credentials(7), execveat(2). Between clone and
//! exec nothing is allocated and nothing but system calls is made. Never decides whom to run as or where.
//!
//! [`spawn_sibling`] shares its memory with the child until that has executed (like vfork(2), on a stack of its own): no
//! page tables are copied, which is most of the cost of starting a small program.

use crate::wait::Pid;
use std::ffi::{CStr, CString, c_char, c_int, c_long, c_void};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::ptr;

/// Bytes of one report.
pub const REPORT_BYTES: usize = 5;

/// Stack of a child between clone and exec.
const CHILD_STACK_BYTES: usize = 32 * 1024;

/// What the child was doing when it failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Step {
    /// Becoming the leader of a session.
    Session = 1,
    /// Taking the terminal as the controlling one.
    Terminal,
    /// Placing the standard streams.
    Streams,
    /// Setting resource limits.
    Limits,
    /// Taking the user's groups and ids.
    Credentials,
    /// Entering the working directory.
    Directory,
    /// Executing the program.
    Execute,
    /// Becoming a process at all; the one that starts it reports this.
    Clone,
}

impl Step {
    fn parse(byte: u8) -> Option<Self> {
        Some(match byte {
            1 => Self::Session,
            2 => Self::Terminal,
            3 => Self::Streams,
            4 => Self::Limits,
            5 => Self::Credentials,
            6 => Self::Directory,
            7 => Self::Execute,
            8 => Self::Clone,
            _ => return None,
        })
    }
}

/// What comes out of a report pipe: first that the child exists, then nothing (it has executed) or a failure. The child
/// itself reports, so it is known even when the process that started it is gone.
#[derive(Debug)]
pub enum Report {
    /// The child exists.
    Started(Pid),
    /// It will not become what it should, and exits.
    Failed(Step, io::Error),
    /// A copy did its work. The end of the pipe without this means that it was killed.
    Done,
}

const STARTED: u8 = 0;
const DONE: u8 = 255;

impl Report {
    /// Reads one report; `None` when these bytes are none.
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let [step, number @ ..] = *bytes.first_chunk::<REPORT_BYTES>()?;
        match step {
            STARTED => return Some(Self::Started(Pid::from_le_bytes(number))),
            DONE => return Some(Self::Done),
            _ => {}
        }
        let error = io::Error::from_raw_os_error(i32::from_le_bytes(number));
        Some(Self::Failed(Step::parse(step)?, error))
    }

    fn encode(step: u8, [a, b, c, d]: [u8; 4]) -> [u8; REPORT_BYTES] {
        [step, a, b, c, d]
    }
}

/// Reports that no child could be made.
pub fn report_no_clone(report: BorrowedFd<'_>, error: &io::Error) {
    let number = error.raw_os_error().unwrap_or(libc::EIO);
    send_report(report.as_raw_fd(), Step::Clone as u8, number.to_le_bytes());
}

/// Allocates nothing. Whoever does not listen any more needs no report.
fn send_report(report: RawFd, step: u8, number: [u8; 4]) {
    let bytes = Report::encode(step, number);
    // SAFETY: five readable bytes.
    unsafe { libc::write(report, bytes.as_ptr().cast(), bytes.len()) };
}

fn report_start(report: RawFd) {
    // SAFETY: a system call without arguments.
    let own = unsafe { libc::getpid() };
    send_report(report, STARTED, own.to_le_bytes());
}

/// What a child becomes.
#[derive(Debug)]
pub struct Image<'a> {
    /// Paths tried in order, like execvp(3) does.
    pub programs: &'a [CString],
    /// Its arguments, the name first.
    pub arguments: &'a [CString],
    /// Its environment.
    pub environment: &'a [CString],
    /// Its working directory, entered as the user.
    pub directory: &'a CStr,
    /// Its user.
    pub uid: u32,
    /// Its group.
    pub gid: u32,
    /// Its supplementary groups.
    pub groups: &'a [u32],
    /// Standard input, output and error; numbers above 2.
    pub streams: [BorrowedFd<'a>; 3],
    /// Standard input is a terminal that becomes the controlling one.
    pub terminal: bool,
    /// Soft and hard limit of open files; the own hard limit caps it.
    pub open_files: Option<u64>,
    /// Hard limit of RLIMIT_RTTIME, which every descendant inherits.
    pub mark: Option<u64>,
    /// Close-on-exec pipe for reports.
    pub report: BorrowedFd<'a>,
}

struct Prepared<'a> {
    image: &'a Image<'a>,
    programs: Vec<*const c_char>,
    arguments: Vec<*const c_char>,
    environment: Vec<*const c_char>,
    open_files: Option<libc::rlimit64>,
    mark: Option<libc::rlimit64>,
}

fn pointers(texts: &[CString]) -> Vec<*const c_char> {
    texts.iter().map(|text| text.as_ptr()).chain([ptr::null()]).collect()
}

/// Starts `image` as a child of our parent.
///
/// Signal handlers of ours are gone once it executes, and signals that we ignore stay ignored. This waits until the child
/// has executed or failed; somebody who may signal the child could stop it on the way, so the caller's own partner should
/// have a deadline.
pub fn spawn_sibling(image: &Image<'_>) -> io::Result<()> {
    let hard = crate::itself::open_files_max();
    let limit = |value| libc::rlimit64 { rlim_cur: value, rlim_max: value };
    let prepared = Prepared {
        image,
        programs: pointers(image.programs),
        arguments: pointers(image.arguments),
        environment: pointers(image.environment),
        open_files: image.open_files.map(|value| limit(value.min(hard))),
        mark: image.mark.map(limit),
    };
    let mut stack = Vec::<u8>::with_capacity(CHILD_STACK_BYTES);
    // SAFETY: one past the end of the allocation, rounded down to what the ABI wants.
    let top = unsafe { stack.as_mut_ptr().add(CHILD_STACK_BYTES) };
    let top = top.map_addr(|address| address & !15);
    let flags = libc::CLONE_PARENT | libc::CLONE_VM | libc::CLONE_VFORK | libc::SIGCHLD;
    let argument = ptr::from_ref(&prepared).cast_mut().cast();
    // SAFETY: the child runs `enter` on `stack`, and because of CLONE_VFORK this thread goes on only when the child has
    // executed or exited, so `stack` and `prepared` outlive its use of them. It writes to nothing else of ours.
    let pid = unsafe { libc::clone(enter, top.cast(), flags, argument) };
    if pid > 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

extern "C" fn enter(prepared: *mut c_void) -> c_int {
    // SAFETY: `spawn_sibling` passes a valid reference and waits while we use it.
    let prepared: &Prepared<'_> = unsafe { &*prepared.cast_const().cast() };
    prepared.become_it()
}

/// Runs `work` in a copy of this process that is a child of our parent; its result is the exit status. The copy reports
/// its start and its end to `report`. Of our descriptors above 2 it has only this and `keep`, so `work` must not use others
/// that it captured.
///
/// Refused with `Unsupported` unless this process has only one thread: a copy would hold locks of the others for ever.
pub fn copy_sibling(
    report: BorrowedFd<'_>,
    keep: OwnedFd,
    work: impl FnOnce(OwnedFd) -> u8,
) -> io::Result<()> {
    if !crate::itself::has_one_thread() {
        return Err(io::ErrorKind::Unsupported.into());
    }
    if clone(libc::CLONE_PARENT)?.is_some() {
        return Ok(());
    }
    report_start(report.as_raw_fd());
    let (Ok(kept), Ok(report)) = (lift(keep.as_fd(), 5), lift(report, 5)) else { exit(126) };
    if dup2(kept.as_raw_fd(), 3).is_err() || dup2(report.as_raw_fd(), 4).is_err() {
        exit(126);
    }
    std::mem::forget((keep, kept, report));
    // SAFETY: nothing that owns one of these descriptors is used or dropped in the copy, which ends by `exit`.
    unsafe { libc::syscall(libc::SYS_close_range, 5, c_int::MAX, 0) };
    // SAFETY: 3 is open, and whatever owned it before is not used or dropped in the copy.
    let kept = unsafe { OwnedFd::from_raw_fd(3) };
    let status = work(kept);
    send_report(4, DONE, [0; 4]);
    exit(c_int::from(status))
}

/// A duplicate with a number of at least `above`.
fn lift(fd: BorrowedFd<'_>, above: RawFd) -> io::Result<OwnedFd> {
    Ok(rustix::io::fcntl_dupfd_cloexec(fd, above)?)
}

/// Starts `binary` (an open file) with `arguments`, the name first, [`crate::itself::SMALL`] as its environment, our standard
/// streams and `descriptors` as its fds 3, 4, …; everything else is closed for it. It becomes our child; we may have many threads.
pub fn start_binary(
    binary: BorrowedFd<'_>,
    arguments: &[&CStr],
    descriptors: &[BorrowedFd<'_>],
) -> io::Result<Pid> {
    let above = 3 + RawFd::try_from(descriptors.len()).map_err(|_| io::ErrorKind::InvalidInput)?;
    let binary = lift(binary, above)?;
    let lifted = descriptors.iter().map(|fd| lift(*fd, above)).collect::<io::Result<Vec<OwnedFd>>>()?;
    let sources: Vec<RawFd> = lifted.iter().map(AsRawFd::as_raw_fd).collect();
    let arguments: Vec<_> = arguments.iter().map(|text| text.as_ptr()).chain([ptr::null()]).collect();
    let environment = [crate::itself::SMALL.as_ptr(), ptr::null()];
    match clone(0)? {
        Some(pid) => return Ok(pid),
        None => {
            for (target, &source) in (3..).zip(&sources) {
                if dup2(source, target).is_err() {
                    exit(126);
                }
            }
            unblock_signals();
            // SAFETY: both arrays end with a null pointer and their texts outlive the call; the path is empty, so
            // that the open file itself is executed.
            unsafe {
                libc::syscall(
                    libc::SYS_execveat,
                    binary.as_raw_fd(),
                    c"".as_ptr(),
                    arguments.as_ptr(),
                    environment.as_ptr(),
                    libc::AT_EMPTY_PATH,
                );
            }
        }
    }
    exit(127)
}

/// `Some(pid)` in the caller, `None` in the copy.
fn clone(flags: c_int) -> io::Result<Option<Pid>> {
    // SAFETY: without CLONE_VM the child gets a copy of our memory and goes on on a copy of this stack; a null stack
    // and null pointers for the thread ids and TLS are what fork(2) passes.
    let pid = unsafe { libc::syscall(libc::SYS_clone, c_long::from(flags | libc::SIGCHLD), 0, 0, 0, 0) };
    match u32::try_from(pid) {
        Err(_) => Err(io::Error::last_os_error()),
        Ok(0) => Ok(None),
        Ok(pid) => Ok(Some(pid)),
    }
}

fn exit(status: c_int) -> ! {
    // SAFETY: ends the process at once, runs no destructors and no exit handlers.
    unsafe { libc::_exit(status) }
}

fn checked(result: c_long) -> Result<(), c_int> {
    if result >= 0 { Ok(()) } else { Err(errno()) }
}

/// Allocates nothing: an `io::Error` of a number is just that number.
fn errno() -> c_int {
    io::Error::last_os_error().raw_os_error().unwrap_or(0)
}

fn dup2(source: RawFd, target: RawFd) -> Result<(), c_int> {
    // SAFETY: a system call on numbers; in the child nothing owns the target.
    checked(c_long::from(unsafe { libc::dup2(source, target) }))
}

fn unblock_signals() {
    let none = 0_u64;
    // SAFETY: the kernel reads eight bytes, which `none` has.
    unsafe { libc::syscall(libc::SYS_rt_sigprocmask, libc::SIG_SETMASK, &raw const none, 0, 8) };
}

fn set_limit(resource: libc::__rlimit_resource_t, limit: &libc::rlimit64) -> Result<(), c_int> {
    let own: libc::pid_t = 0;
    // SAFETY: the kernel reads one rlimit64 from a valid reference; no old value is asked for.
    checked(unsafe {
        libc::syscall(libc::SYS_prlimit64, own, resource, ptr::from_ref(limit), ptr::null::<libc::rlimit64>())
    })
}

impl Prepared<'_> {
    /// Never returns: executes, or reports and exits. Runs in the child, so it must not allocate.
    fn become_it(&self) -> ! {
        report_start(self.image.report.as_raw_fd());
        let (step, error) = self.steps().unwrap_or_else(|failed| failed);
        send_report(self.image.report.as_raw_fd(), step as u8, error.to_le_bytes());
        exit(127)
    }

    fn steps(&self) -> Result<(Step, c_int), (Step, c_int)> {
        let at = |step| move |error| (step, error);
        // SAFETY: a system call without arguments.
        checked(c_long::from(unsafe { libc::setsid() })).map_err(at(Step::Session))?;
        self.place_streams()?;
        unblock_signals();
        lower_own_priority();
        self.set_limits().map_err(at(Step::Limits))?;
        // SAFETY: a system call on a number.
        unsafe { libc::umask(0o022) };
        self.take_credentials().map_err(at(Step::Credentials))?;
        // SAFETY: the path is a C string that outlives the call.
        let entered = unsafe { libc::chdir(self.image.directory.as_ptr()) };
        checked(c_long::from(entered)).map_err(at(Step::Directory))?;
        Ok((Step::Execute, self.execute()))
    }

    fn place_streams(&self) -> Result<(), (Step, c_int)> {
        for (target, source) in (0..).zip(self.image.streams) {
            dup2(source.as_raw_fd(), target).map_err(|error| (Step::Streams, error))?;
        }
        if self.image.terminal {
            // SAFETY: TIOCSCTTY takes a number.
            let taken = unsafe { libc::ioctl(0, libc::TIOCSCTTY, 0) };
            checked(c_long::from(taken)).map_err(|error| (Step::Terminal, error))?;
        }
        // Everything is close-on-exec already; this holds even if something was forgotten. Old kernels lack the call.
        // SAFETY: marks descriptors, closes none.
        unsafe { libc::syscall(libc::SYS_close_range, 3, c_int::MAX, libc::CLOSE_RANGE_CLOEXEC) };
        Ok(())
    }

    fn set_limits(&self) -> Result<(), c_int> {
        if let Some(limit) = &self.open_files {
            set_limit(libc::RLIMIT_NOFILE, limit)?;
        }
        if let Some(limit) = &self.mark {
            // A host that limits it already cannot be marked; the tree is then found by its other signs.
            set_limit(libc::RLIMIT_RTTIME, limit).ok();
        }
        Ok(())
    }

    /// By system call: the C library's wrappers would try to change other threads, which a copy does not have.
    fn take_credentials(&self) -> Result<(), c_int> {
        let (uid, gid, groups) = (self.image.uid, self.image.gid, self.image.groups);
        // SAFETY: the kernel reads `len` numbers from a valid slice.
        checked(unsafe { libc::syscall(libc::SYS_setgroups, groups.len(), groups.as_ptr()) })?;
        // SAFETY: a system call on numbers.
        checked(unsafe { libc::syscall(libc::SYS_setresgid, gid, gid, gid) })?;
        // SAFETY: a system call on numbers.
        checked(unsafe { libc::syscall(libc::SYS_setresuid, uid, uid, uid) })
    }

    /// Tries every program; comes back only with the reason why none was executed.
    fn execute(&self) -> c_int {
        let mut denied = false;
        let mut last = libc::ENOENT;
        for &program in self.programs.iter().take_while(|program| !program.is_null()) {
            // SAFETY: all three are C strings or null-terminated arrays of C strings owned by `self.image`.
            unsafe { libc::execve(program, self.arguments.as_ptr(), self.environment.as_ptr()) };
            last = errno();
            match last {
                libc::EACCES => denied = true,
                libc::ENOENT | libc::ENOTDIR | libc::ELOOP | libc::ENAMETOOLONG => {}
                _ => return last,
            }
        }
        if denied { libc::EACCES } else { last }
    }
}

/// User processes die before the agent when memory is short, and run at normal priority. Best effort: a root file
/// system without /proc has no such file, and raising the nice value always works.
fn lower_own_priority() {
    // SAFETY: the path is a C string.
    let file = unsafe { libc::open(c"/proc/self/oom_score_adj".as_ptr(), libc::O_WRONLY | libc::O_CLOEXEC) };
    if file >= 0 {
        // SAFETY: three readable bytes.
        unsafe { libc::write(file, c"100".as_ptr().cast(), 3) };
        // SAFETY: we opened it and nothing else uses it.
        unsafe { libc::close(file) };
    }
    // SAFETY: a system call on numbers.
    unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, 0) };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reports_are_read_and_rubbish_is_not() {
        let parse = Report::parse;
        assert!(matches!(parse(&[0, 1, 1, 0, 0]), Some(Report::Started(257))));
        let failed = parse(&[6, 2, 0, 0, 0]);
        assert!(
            matches!(failed, Some(Report::Failed(Step::Directory, error)) if error.raw_os_error() == Some(2))
        );
        assert!(parse(&[6, 2]).is_none() && parse(&[99, 0, 0, 0, 0]).is_none());
    }

    #[test]
    fn a_process_with_threads_is_not_copied() {
        let null = std::fs::File::open("/dev/null").unwrap();
        let refused = copy_sibling(null.try_clone().unwrap().as_fd(), null.into(), |_| 0).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::Unsupported);
    }

    #[test]
    fn a_binary_starts_with_the_descriptors_it_is_given() {
        let binary = std::fs::File::open("/bin/sh").unwrap();
        let (read, write) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC).unwrap();
        let script = [c"sh", c"-c", c"echo hello >&4; test ! -e /proc/self/fd/5"];
        let pid = start_binary(binary.as_fd(), &script, &[write.as_fd(), write.as_fd()]).unwrap();
        drop(write);
        let text = std::io::read_to_string(std::fs::File::from(read)).unwrap();
        assert_eq!(text, "hello\n");
        assert_eq!(crate::wait::reap(pid).unwrap().unwrap().outcome, crate::wait::Outcome::Code(0));
    }
}
