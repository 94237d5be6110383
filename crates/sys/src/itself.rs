//! Owns what a process does to itself at its start: prctl(2), getrlimit(2), umask(2), signal(7), mallopt(3),
//! close_range(2), sethostname(2).

use rustix::fs::Mode;
use rustix::process::{DumpableBehavior, Resource, Rlimit};
use std::ffi::c_int;
use std::io;

/// Hides memory and descriptors of this process from others with the same user.
pub fn become_undumpable() -> io::Result<()> {
    Ok(rustix::process::set_dumpable_behavior(DumpableBehavior::NotDumpable)?)
}

/// Hard limit of open files of this process.
pub fn open_files_max() -> u64 {
    rustix::process::getrlimit(Resource::Nofile).maximum.unwrap_or(u64::MAX)
}

/// Raises the soft limit of open files to the hard one.
pub fn raise_open_files() -> io::Result<()> {
    let limit = rustix::process::getrlimit(Resource::Nofile);
    Ok(rustix::process::setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit })?)
}

/// Modes given to open(2) and mkdir(2) count as they are.
pub fn clear_umask() {
    rustix::process::umask(Mode::empty());
}

/// Marks every descriptor from `first` on close-on-exec.
pub fn close_on_exec_from(first: u32) -> io::Result<()> {
    // SAFETY: marks descriptors, closes none.
    let done = unsafe { libc::syscall(libc::SYS_close_range, first, c_int::MAX, libc::CLOSE_RANGE_CLOEXEC) };
    if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// One arena for all threads, large blocks straight from and back to the kernel: small at rest.
pub fn keep_heap_small() {
    let settings = [
        (libc::M_ARENA_MAX, 1),
        (libc::M_MMAP_THRESHOLD, 128 * 1024),
        (libc::M_TRIM_THRESHOLD, 128 * 1024),
        (libc::M_TOP_PAD, 16 * 1024),
    ];
    for (name, value) in settings {
        // SAFETY: sets a number in the allocator.
        unsafe { libc::mallopt(name, value) };
    }
}

/// What to start a small program with, in its environment: the C library then keeps neither stacks of ended threads nor
/// free pieces of heap per thread, which together can be more than all the rest. It can be said only at the start.
pub const SMALL: &std::ffi::CStr =
    c"GLIBC_TUNABLES=glibc.malloc.tcache_count=0:glibc.pthread.stack_cache_size=131072";

/// Gives what the heap does not need now back to the kernel.
pub fn trim_heap() {
    // SAFETY: the allocator takes its own locks.
    unsafe { libc::malloc_trim(0) };
}

/// Gives a signal that means a fault its default effect back: the handler that Rust installs for stack overflows
/// believes what any sender claims about the address.
pub fn default_fault_handlers() {
    for signal in [libc::SIGSEGV, libc::SIGBUS] {
        // SAFETY: the default action runs no code of ours.
        unsafe { libc::signal(signal, libc::SIG_DFL) };
    }
}

extern "C" fn nothing(_signal: c_int) {}

/// Survives every signal that can be survived, without ignoring any: a handler, unlike "ignore", is gone after exec.
pub fn survive_signals() {
    let own = [libc::SIGKILL, libc::SIGSTOP, libc::SIGCHLD, libc::SIGABRT];
    let faults = [libc::SIGSEGV, libc::SIGBUS, libc::SIGILL, libc::SIGFPE, libc::SIGTRAP, libc::SIGSYS];
    for signal in (1..=64).filter(|signal| !own.contains(signal) && !faults.contains(signal)) {
        let handler: extern "C" fn(c_int) = nothing;
        // SAFETY: all zeros are a valid sigaction (no flags, empty mask).
        let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
        action.sa_sigaction = handler as libc::sighandler_t;
        action.sa_flags = libc::SA_RESTART;
        // SAFETY: the handler does nothing, so it is safe at any moment.
        unsafe { libc::sigaction(signal, &raw const action, std::ptr::null_mut()) };
    }
    default_reserved_signals();
}

/// The C library refuses to touch the two signals that it keeps for itself. Whoever started us may have ignored them, and
/// programs that we start would inherit that.
fn default_reserved_signals() {
    for signal in [32, 33] {
        // What the kernel calls a sigaction: handler, flags, restorer, mask; all zeros mean the default.
        let action = [0_u64; 4];
        let old = std::ptr::null_mut::<u64>();
        // SAFETY: the kernel reads one action from a valid reference; the default action runs no code of ours.
        unsafe { libc::syscall(libc::SYS_rt_sigaction, signal, action.as_ptr(), old, 8) };
    }
}

/// Orphans among our descendants become our children, as they do for PID 1 anyway.
pub fn adopt_orphans() -> io::Result<()> {
    let own = rustix::process::getpid();
    Ok(rustix::process::set_child_subreaper(Some(own))?)
}

/// True while this process never started a second thread.
pub fn has_one_thread() -> bool {
    unsafe extern "C" {
        safe static __libc_single_threaded: libc::c_char;
    }
    __libc_single_threaded != 0
}

/// Sets the name of the UTS namespace.
pub fn set_hostname(name: &str) -> io::Result<()> {
    Ok(rustix::system::sethostname(name.as_bytes())?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_test_process_has_more_than_one_thread() {
        assert!(!has_one_thread());
    }
}
