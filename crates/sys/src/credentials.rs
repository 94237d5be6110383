//! Owns who a process is: credentials(7), capabilities(7).

use crate::call::failed;
use rustix::fs::{Gid, Uid};
use rustix::thread::{CapabilitiesSecureBits, CapabilitySet};
use std::io;

/// Makes changes of uid leave capabilities alone, in this thread and its children of the same user namespace.
pub fn keep_capabilities_on_uid_change() -> io::Result<()> {
    rustix::thread::set_capabilities_secure_bits(CapabilitiesSecureBits::NO_SETUID_FIXUP)
        .map_err(failed("prctl(PR_SET_SECUREBITS)"))
}

/// Gives up every supplementary group.
pub fn clear_groups() -> io::Result<()> {
    rustix::thread::set_thread_groups(&[]).map_err(failed("setgroups"))
}

/// Sets real, effective and saved uid and gid of this thread.
pub fn become_id(id: u32) -> io::Result<()> {
    let (uid, gid) = (Uid::from_raw(id), Gid::from_raw(id));
    rustix::thread::set_thread_res_gid(gid, gid, gid).map_err(failed("setresgid"))?;
    rustix::thread::set_thread_res_uid(uid, uid, uid).map_err(failed("setresuid"))
}

/// The effective uid of this thread.
pub fn effective_uid() -> u32 {
    rustix::process::geteuid().as_raw()
}

/// What a sandbox may hold at most: Docker's default set without MKNOD, NET_RAW and AUDIT_WRITE, each of which reaches
/// kernel code that no sandbox needs.
pub const SANDBOX: CapabilitySet = CapabilitySet::CHOWN
    .union(CapabilitySet::DAC_OVERRIDE)
    .union(CapabilitySet::FSETID)
    .union(CapabilitySet::FOWNER)
    .union(CapabilitySet::SETGID)
    .union(CapabilitySet::SETUID)
    .union(CapabilitySet::SETFCAP)
    .union(CapabilitySet::SETPCAP)
    .union(CapabilitySet::NET_BIND_SERVICE)
    .union(CapabilitySet::SYS_CHROOT)
    .union(CapabilitySet::KILL);

/// What the launcher needs: to act as the uid of a slot and to be the mounter of overlays. Not SYS_RESOURCE, with which
/// the kernel lets quotas of a disk pass.
pub const LAUNCHER: CapabilitySet =
    SANDBOX.union(CapabilitySet::SYS_ADMIN).union(CapabilitySet::SYS_PTRACE).union(CapabilitySet::MKNOD);

/// A set of capabilities.
pub type Capabilities = CapabilitySet;

/// Takes every capability outside `keep` from the bounding set of this thread: what is executed from now on gets none of
/// them, set-user-id root or not. The thread itself keeps what it has.
pub fn bound_capabilities(keep: Capabilities) -> io::Result<()> {
    for number in 0..64u32 {
        let capability = CapabilitySet::from_bits_retain(1 << number);
        if keep.contains(capability) {
            continue;
        }
        match rustix::thread::remove_capability_from_bounding_set(capability) {
            Ok(()) => {}
            // The first number that the kernel does not know; there are none after it.
            Err(rustix::io::Errno::INVAL) if number > 30 => break,
            Err(errno) => return Err(failed("prctl(PR_CAPBSET_DROP)")(errno)),
        }
    }
    rustix::thread::clear_ambient_capability_set().map_err(failed("prctl(PR_CAP_AMBIENT)"))
}

/// Gives up every capability outside `keep`.
pub fn keep_capabilities(keep: Capabilities) -> io::Result<()> {
    let sets = rustix::thread::CapabilitySets {
        effective: keep,
        permitted: keep,
        inheritable: CapabilitySet::empty(),
    };
    rustix::thread::set_capabilities(None, sets).map_err(failed("capset"))
}

/// What making sandboxes takes, with the names of capabilities(7).
const NODE: [(&str, CapabilitySet); 11] = [
    ("CAP_CHOWN", CapabilitySet::CHOWN),
    ("CAP_DAC_OVERRIDE", CapabilitySet::DAC_OVERRIDE),
    ("CAP_FOWNER", CapabilitySet::FOWNER),
    ("CAP_KILL", CapabilitySet::KILL),
    ("CAP_SETGID", CapabilitySet::SETGID),
    ("CAP_SETUID", CapabilitySet::SETUID),
    ("CAP_SETFCAP", CapabilitySet::SETFCAP),
    ("CAP_SETPCAP", CapabilitySet::SETPCAP),
    ("CAP_SYS_PTRACE", CapabilitySet::SYS_PTRACE),
    ("CAP_SYS_ADMIN", CapabilitySet::SYS_ADMIN),
    ("CAP_MKNOD", CapabilitySet::MKNOD),
];

/// Names of capabilities that making sandboxes takes and that this thread lacks.
pub fn missing_for_node() -> io::Result<Vec<&'static str>> {
    let have = effective_capabilities()?;
    Ok(NODE.iter().filter(|(_, wanted)| !have.contains(*wanted)).map(|(name, _)| *name).collect())
}

/// The capabilities in force in this thread.
pub fn effective_capabilities() -> io::Result<Capabilities> {
    Ok(rustix::thread::capabilities(None).map_err(failed("capget"))?.effective)
}
