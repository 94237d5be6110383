//! Owns making processes and namespaces: clone(2), unshare(2), setns(2), user_namespaces(7).

use crate::call::{failed, last_failed};
use rustix::thread::{LinkNameSpaceType, UnshareFlags};
use std::fs;
use std::io;
use std::marker::PhantomData;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

/// Proof that this process has one thread, so that a copy of it finds no lock held by a thread that does not exist in it.
#[derive(Debug)]
pub struct SingleThreaded(PhantomData<*const ()>);

impl SingleThreaded {
    /// Counts the threads. Whoever holds the proof must not start any.
    pub fn check() -> io::Result<Self> {
        let threads = fs::read_dir("/proc/self/task")?.count();
        if threads == 1 {
            Ok(Self(PhantomData))
        } else {
            Err(io::Error::new(io::ErrorKind::Unsupported, format!("process has {threads} threads, not one")))
        }
    }
}

/// Namespaces that a new process gets for itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Namespaces(u64);

impl Namespaces {
    /// None: those of the parent.
    pub const NONE: Self = Self(0);
    /// User, pid, mount, network, IPC and UTS. The cgroup namespace is made later, from inside its cgroup.
    pub const SANDBOX: Self = Self(
        (libc::CLONE_NEWUSER
            | libc::CLONE_NEWPID
            | libc::CLONE_NEWNS
            | libc::CLONE_NEWNET
            | libc::CLONE_NEWIPC
            | libc::CLONE_NEWUTS) as u64,
    );
}

/// Which side of a clone this is.
#[derive(Debug)]
pub enum Cloned {
    /// The new process.
    Child,
    /// The one that asked.
    Parent {
        /// The new process, as seen here.
        pid: u32,
        /// The same, safe from reuse of the pid; close-on-exec.
        pidfd: OwnedFd,
    },
}

/// Copies this process. Its exit is told by SIGCHLD.
pub fn clone(_proof: &SingleThreaded, namespaces: Namespaces) -> io::Result<Cloned> {
    copy(namespaces)
}

/// In a process with threads, the child may make system calls only, until it ends.
fn copy(namespaces: Namespaces) -> io::Result<Cloned> {
    let mut pidfd: libc::c_int = -1;
    let args = libc::clone_args {
        flags: namespaces.0 | libc::CLONE_PIDFD as u64,
        pidfd: (&raw mut pidfd) as u64,
        child_tid: 0,
        parent_tid: 0,
        exit_signal: libc::SIGCHLD as u64,
        stack: 0,
        stack_size: 0,
        tls: 0,
        set_tid: 0,
        set_tid_size: 0,
        cgroup: 0,
    };
    // SAFETY: `args` is the structure the kernel expects, of the size given, and `pidfd` outlives the call. Without
    // CLONE_VM the child gets a copy of memory and stack, so it continues here like after fork; the callers have one
    // thread, or let the child make system calls only, so that it waits for no lock of a thread that it does not have.
    let result = unsafe { libc::syscall(libc::SYS_clone3, &raw const args, size_of::<libc::clone_args>()) };
    match result {
        -1 => Err(last_failed("clone3")),
        0 => Ok(Cloned::Child),
        pid => {
            // SAFETY: the kernel stored a new descriptor there, which nobody else knows of.
            let pidfd = unsafe { OwnedFd::from_raw_fd(pidfd) };
            Ok(Cloned::Parent { pid: u32::try_from(pid).unwrap_or(u32::MAX), pidfd })
        }
    }
}

/// A process that does nothing but hold its namespaces. Dropping it ends it.
#[derive(Debug)]
pub struct IdleProcess {
    pid: u32,
    pidfd: OwnedFd,
}

impl IdleProcess {
    /// Its pid.
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// Waits for its end and forgets it; true when it ended by itself, and well.
    fn reap(&self) -> io::Result<bool> {
        use rustix::process::{WaitId, WaitIdOptions, waitid};
        let status =
            waitid(WaitId::PidFd(self.pidfd.as_fd()), WaitIdOptions::EXITED).map_err(failed("waitid"))?;
        Ok(status.is_some_and(|status| status.exit_status() == Some(0)))
    }
}

impl Drop for IdleProcess {
    fn drop(&mut self) {
        // A failure of either leaves a process without rights; there is nothing else to try.
        if crate::pidfd::kill(&self.pidfd).is_ok() {
            self.reap().ok();
        }
    }
}

/// Starts a process that waits in namespaces of its own, to try them.
pub fn start_idle(namespaces: Namespaces) -> io::Result<IdleProcess> {
    match copy(namespaces)? {
        Cloned::Parent { pid, pidfd } => Ok(IdleProcess { pid, pidfd }),
        Cloned::Child => loop {
            // SAFETY: takes nothing and returns after a signal only, which nobody sends but to end this process.
            unsafe { libc::pause() };
        },
    }
}

/// Loads a filter in a process of its own that ends at once, to try it.
pub fn try_filter(filter: &crate::seccomp::Program) -> io::Result<()> {
    match copy(Namespaces::NONE)? {
        Cloned::Parent { pid, pidfd } => match (IdleProcess { pid, pidfd }).reap()? {
            true => Ok(()),
            false => Err(io::Error::new(io::ErrorKind::Unsupported, "the kernel refused a filter")),
        },
        Cloned::Child => crate::exec::exit_now(i32::from(filter.load().is_err())),
    }
}

/// Makes the cgroup this process is in the root of what it sees of cgroups.
pub fn unshare_cgroup_namespace() -> io::Result<()> {
    // SAFETY: without CLONE_FILES no descriptor changes its meaning.
    unsafe { rustix::thread::unshare_unsafe(UnshareFlags::NEWCGROUP) }.map_err(failed("unshare"))
}

/// Gives this process, or this thread of it, mounts of its own, in which nothing spreads from or to others.
pub fn unshare_mounts() -> io::Result<()> {
    // SAFETY: without CLONE_FILES no descriptor changes its meaning.
    unsafe { rustix::thread::unshare_unsafe(UnshareFlags::NEWNS) }.map_err(failed("unshare"))?;
    use rustix::mount::MountPropagationFlags;
    rustix::mount::mount_change("/", MountPropagationFlags::PRIVATE | MountPropagationFlags::REC)
        .map_err(failed("mount"))
}

fn enter_uts_namespace(namespace: BorrowedFd<'_>) -> io::Result<()> {
    rustix::thread::move_into_link_name_space(namespace, Some(LinkNameSpaceType::HostNameAndNISDomainName))
        .map_err(failed("setns"))
}

/// Sets the host name of another UTS namespace. This thread is in it for that one call, and then back in `home`, its own.
pub fn set_hostname_of(namespace: BorrowedFd<'_>, home: BorrowedFd<'_>, name: &str) -> io::Result<()> {
    enter_uts_namespace(namespace)?;
    let result = set_hostname(name);
    if enter_uts_namespace(home).is_err() {
        // A thread that stays in the namespace of a sandbox must run nothing more.
        std::process::abort();
    }
    result
}

/// Sets the host name of the UTS namespace of this thread.
pub fn set_hostname(name: &str) -> io::Result<()> {
    rustix::system::sethostname(name.as_bytes()).map_err(failed("sethostname"))
}

/// Maps ids 0 to `count` - 1 of the user namespace of a process to those from `first` on outside.
pub fn map_ids(pid: u32, first: u32, count: u32) -> io::Result<()> {
    let map = format!("0 {first} {count}\n");
    fs::write(format!("/proc/{pid}/gid_map"), &map)?;
    fs::write(format!("/proc/{pid}/uid_map"), &map)
}

/// Opens a namespace of a process: `user`, `uts` and so on.
pub fn open_namespace(pid: u32, kind: &str) -> io::Result<OwnedFd> {
    Ok(fs::File::open(format!("/proc/{pid}/ns/{kind}"))?.into())
}

/// Brings up the loopback interface of the network namespace of this process.
pub fn loopback_up() -> io::Result<()> {
    use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};
    let socket = socket_with(AddressFamily::INET, SocketType::DGRAM, SocketFlags::CLOEXEC, None)
        .map_err(failed("socket"))?;
    let mut request = libc::ifreq {
        ifr_name: [0; libc::IFNAMSIZ],
        ifr_ifru: libc::__c_anonymous_ifr_ifru { ifru_flags: (libc::IFF_UP | libc::IFF_RUNNING) as i16 },
    };
    request.ifr_name[0] = b'l' as libc::c_char;
    request.ifr_name[1] = b'o' as libc::c_char;
    // SAFETY: `request` is the structure that SIOCSIFFLAGS reads, its name ends in zeros, and it outlives the call.
    let result = unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCSIFFLAGS, &raw const request) };
    if result == 0 { Ok(()) } else { Err(last_failed("ioctl(SIOCSIFFLAGS)")) }
}
