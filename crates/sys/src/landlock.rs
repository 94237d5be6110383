//! Owns restrictions that a process puts on itself by landlock(7).

use crate::call::last_failed;
use std::io;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};

const MAKE_CHARACTER_DEVICE: u64 = 1 << 6;
const MAKE_BLOCK_DEVICE: u64 = 1 << 11;
const REFER: u64 = 1 << 13;
const SCOPE_SIGNAL: u64 = 1 << 1;
const RULE_PATH_BENEATH: libc::c_int = 1;
const QUERY_VERSION: u32 = 1;

#[repr(C)]
struct RulesetAttr {
    handled_fs: u64,
    handled_net: u64,
    scoped: u64,
}

#[repr(C, packed)]
struct PathBeneathAttr {
    allowed: u64,
    parent: libc::c_int,
}

/// The version of Landlock that the kernel has; `None` without one.
pub fn version() -> Option<u32> {
    let none: *const RulesetAttr = std::ptr::null();
    // SAFETY: with QUERY_VERSION the kernel reads nothing through the pointer.
    let result = unsafe { libc::syscall(libc::SYS_landlock_create_ruleset, none, 0usize, QUERY_VERSION) };
    u32::try_from(result).ok().filter(|version| *version > 0)
}

fn create(attr: &RulesetAttr, size: usize) -> io::Result<OwnedFd> {
    // SAFETY: `attr` is the structure the kernel expects, at least `size` bytes long, and outlives the call.
    let result =
        unsafe { libc::syscall(libc::SYS_landlock_create_ruleset, std::ptr::from_ref(attr), size, 0u32) };
    let fd = i32::try_from(result).ok().filter(|fd| *fd >= 0);
    let fd = fd.ok_or_else(|| last_failed("landlock_create_ruleset"))?;
    // SAFETY: the kernel has just made this descriptor and nobody else knows of it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Forbids this thread and all it starts, for good: to change mounts, to make device files, to trace what is outside and
/// (with `scope_signals`) to send signals there. Files below `root` can still be moved between directories, which any
/// restriction of the file system would forbid otherwise; `root` is the mount they are in, since the kernel does not look
/// for rules below a mount that covers its parent's root. Needs CAP_SYS_ADMIN in its user namespace or no_new_privs.
pub fn restrict(version: u32, root: impl AsFd, scope_signals: bool) -> io::Result<()> {
    let devices = MAKE_CHARACTER_DEVICE | MAKE_BLOCK_DEVICE;
    let refer = if version >= 2 { REFER } else { 0 };
    let scoped = if version >= 6 && scope_signals { SCOPE_SIGNAL } else { 0 };
    let size = match version {
        0..=3 => 8,
        4..=5 => 16,
        6.. => size_of::<RulesetAttr>(),
    };
    let ruleset = create(&RulesetAttr { handled_fs: devices | refer, handled_net: 0, scoped }, size)?;
    if refer != 0 {
        let rule = PathBeneathAttr { allowed: refer, parent: root.as_fd().as_raw_fd() };
        let (ruleset, kind) = (ruleset.as_raw_fd(), RULE_PATH_BENEATH);
        // SAFETY: `rule` is the packed structure that this kind of rule has; it and its descriptor outlive the call.
        let result =
            unsafe { libc::syscall(libc::SYS_landlock_add_rule, ruleset, kind, &raw const rule, 0u32) };
        if result != 0 {
            return Err(last_failed("landlock_add_rule"));
        }
    }
    // SAFETY: takes a descriptor and flags; touches no memory of this process.
    let result = unsafe { libc::syscall(libc::SYS_landlock_restrict_self, ruleset.as_raw_fd(), 0u32) };
    if result == 0 { Ok(()) } else { Err(last_failed("landlock_restrict_self")) }
}
