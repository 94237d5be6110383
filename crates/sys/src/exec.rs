//! Owns what happens between a copy of a process and its new program: close_range(2), dup2(2), execveat(2), setsid(2),
//! prctl(2), getrlimit(2), sigaction(2).

use crate::call::{failed, last_failed};
use rustix::process::{Resource, Rlimit};
use std::ffi::CStr;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};

/// Closes every descriptor from 3 on that is not in `keep`.
pub fn close_all_but(keep: &[RawFd]) -> io::Result<()> {
    let mut keep: Vec<u32> = keep.iter().filter_map(|fd| u32::try_from(*fd).ok()).collect();
    keep.sort_unstable();
    let mut first = 3;
    for fd in keep.into_iter().filter(|fd| *fd >= 3) {
        if fd > first {
            close_range(first, fd - 1)?;
        }
        first = fd + 1;
    }
    close_range(first, u32::MAX)
}

fn close_range(first: u32, last: u32) -> io::Result<()> {
    // SAFETY: closes descriptors only. The callers are fresh copies of a process whose owners of those descriptors never
    // run again (the copy ends in an exec or an exit), or a process at its start that closes what nobody in it opened.
    let result = unsafe { libc::syscall(libc::SYS_close_range, first, last, 0u32) };
    if result == 0 { Ok(()) } else { Err(last_failed("close_range")) }
}

/// First number out of the way of those that a new program is given.
const ABOVE: RawFd = 100;

fn out_of_the_way(fd: impl AsFd) -> io::Result<OwnedFd> {
    rustix::io::fcntl_dupfd_cloexec(fd, ABOVE).map_err(failed("fcntl(F_DUPFD_CLOEXEC)"))
}

/// Moves descriptors to the numbers 3, 4 … in the order given, inheritable; what is close-on-exec goes away. `ABOVE` keeps
/// any from overwriting another that is still to be moved.
fn place(descriptors: Vec<OwnedFd>) -> io::Result<()> {
    let moved = descriptors.into_iter().map(out_of_the_way).collect::<io::Result<Vec<_>>>()?;
    for (index, fd) in moved.iter().enumerate() {
        let target = 3 + i32::try_from(index).map_err(|_| io::ErrorKind::InvalidInput)?;
        // SAFETY: takes two numbers. What `target` named before belonged to this fresh copy of a process, which executes
        // another program next and uses none of it again.
        let result = unsafe { libc::dup2(fd.as_raw_fd(), target) };
        if result < 0 {
            return Err(last_failed("dup2"));
        }
    }
    Ok(())
}

/// Replaces this program by the one in `program`, with `descriptors` from 3 on and nothing in its environment but
/// `environment`. Returns only when that failed, and then `control` is the one descriptor that can still be used.
pub fn execute(
    program: impl AsFd,
    arguments: &[&CStr],
    environment: &[&CStr],
    descriptors: Vec<OwnedFd>,
    control: &mut OwnedFd,
) -> io::Error {
    let mut argv: Vec<*const libc::c_char> = arguments.iter().map(|text| text.as_ptr()).collect();
    argv.push(std::ptr::null());
    let environment: Vec<_> =
        environment.iter().map(|text| text.as_ptr()).chain([std::ptr::null()]).collect();
    let prepared = out_of_the_way(program).and_then(|program| {
        *control = out_of_the_way(&*control)?;
        place(descriptors)?;
        Ok(program)
    });
    let program = match prepared {
        Ok(program) => program,
        Err(error) => return error,
    };
    // SAFETY: both arrays end in a null pointer, their strings end in zero bytes, and all outlive the call.
    unsafe {
        libc::syscall(
            libc::SYS_execveat,
            program.as_raw_fd(),
            c"".as_ptr(),
            argv.as_ptr(),
            environment.as_ptr(),
            libc::AT_EMPTY_PATH,
        )
    };
    last_failed("execveat")
}

/// Makes the standard streams of this process copies of one descriptor.
pub fn use_as_standard_streams(fd: impl AsFd) -> io::Result<()> {
    let fd = fd.as_fd().as_raw_fd();
    for stream in 0..3 {
        // SAFETY: takes two numbers; the standard streams have no owner in Rust that would close them.
        let result = unsafe { libc::dup2(fd, stream) };
        if result < 0 {
            return Err(last_failed("dup2"));
        }
    }
    Ok(())
}

/// Leaves the keys of whoever started this process behind: keyctl(2). A kernel without keys has none to leave.
pub fn leave_session_keyring() -> io::Result<()> {
    let anonymous: *const libc::c_char = std::ptr::null();
    // SAFETY: the request takes a name or null, and keeps neither.
    let result = unsafe { libc::syscall(libc::SYS_keyctl, libc::KEYCTL_JOIN_SESSION_KEYRING, anonymous) };
    if result >= 0 {
        return Ok(());
    }
    let error = last_failed("keyctl(KEYCTL_JOIN_SESSION_KEYRING)");
    if crate::errno_of(&error) == Some(libc::ENOSYS) { Ok(()) } else { Err(error) }
}

/// Names the program of this process, to execute it again. Needs no right to read it.
pub fn own_program() -> io::Result<OwnedFd> {
    use rustix::fs::{CWD, Mode, OFlags};
    rustix::fs::openat(CWD, c"/proc/self/exe", OFlags::PATH | OFlags::CLOEXEC, Mode::empty())
        .map_err(failed("openat"))
}

/// Ends this process at once, without running anything of the program it is a copy of.
pub fn exit_now(code: i32) -> ! {
    // SAFETY: takes a number and does not return; exit handlers of the copied program do not run.
    unsafe { libc::_exit(code) }
}

/// Starts a session without a controlling terminal.
pub fn new_session() -> io::Result<()> {
    rustix::process::setsid().map(|_| ()).map_err(failed("setsid"))
}

/// Lets nobody without rights over the host look into this process.
pub fn forbid_inspection() -> io::Result<()> {
    use rustix::process::{DumpableBehavior, set_dumpable_behavior};
    set_dumpable_behavior(DumpableBehavior::NotDumpable).map_err(failed("prctl(PR_SET_DUMPABLE)"))
}

/// Names this process in `ps`.
pub fn set_name(name: &CStr) -> io::Result<()> {
    rustix::thread::set_name(name).map_err(failed("prctl(PR_SET_NAME)"))
}

/// Ended children are forgotten at once; nobody waits for them.
pub fn ignore_children() -> io::Result<()> {
    set_disposition(libc::SIGCHLD, libc::SIG_IGN)
}

/// The opposite, as a new program expects it; and a write to a closed pipe ends a process again.
pub fn default_signals() -> io::Result<()> {
    set_disposition(libc::SIGCHLD, libc::SIG_DFL)?;
    set_disposition(libc::SIGPIPE, libc::SIG_DFL)
}

fn set_disposition(signal: libc::c_int, disposition: libc::sighandler_t) -> io::Result<()> {
    // SAFETY: sets one of the two dispositions that run no code.
    let result = unsafe { libc::signal(signal, disposition) };
    if result == libc::SIG_ERR { Err(last_failed("signal")) } else { Ok(()) }
}

/// Sets the mask of permission bits that new files do not get to none.
pub fn clear_umask() {
    rustix::process::umask(rustix::fs::Mode::empty());
}

/// Sets it to what programs expect.
pub fn usual_umask() {
    rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o022));
}

/// The most open files that a process started here can be given.
pub fn open_files_max() -> u64 {
    rustix::process::getrlimit(Resource::Nofile).maximum.unwrap_or(1 << 20)
}

/// Raises open files to the most there is and forbids core dumps and real-time scheduling.
pub fn set_limits() -> io::Result<()> {
    let files = Some(open_files_max());
    let rows = [
        (Resource::Nofile, files),
        (Resource::Core, Some(0)),
        (Resource::Rtprio, Some(0)),
        (Resource::Nice, Some(0)),
    ];
    for (resource, value) in rows {
        let limit = Rlimit { current: value, maximum: value };
        rustix::process::setrlimit(resource, limit).map_err(failed("setrlimit"))?;
    }
    Ok(())
}
