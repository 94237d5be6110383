//! Owns what a sandbox may ask of the kernel. Calls that were reviewed are allowed unless they are in a list here, each
//! with its reason; calls that came later do not exist. The filter is the same for root and for everybody else inside,
//! and for the agent.
//!
//! What is refused with EPERM is refused to unprivileged users of an ordinary host, too, so programs cope with it. Calls
//! that programs probe for and can do without answer ENOSYS.

use cofferdam_sys::seccomp::{Action, Case, Rule, Table, Test};
use cofferdam_sys::syscalls::{
    LAST_REVIEWED, LISTMOUNT, NEW_NAMESPACE, NEW_TIME_NAMESPACE, SET_MEMPOLICY_HOME_NODE, STATMOUNT, number,
    value,
};

const EPERM: Action = Action::Errno(value::EPERM as u16);
const ENOSYS: Action = Action::Errno(value::ENOSYS as u16);
const EPROTONOSUPPORT: Action = Action::Errno(value::EPROTONOSUPPORT as u16);

/// Never, whatever the arguments.
const REFUSED: &[i64] = &[
    // Mounts: a file system made or moved inside is a way around every mask, and a parser in the kernel.
    number::MOUNT,
    number::UMOUNT2,
    number::PIVOT_ROOT,
    number::OPEN_TREE,
    number::MOVE_MOUNT,
    number::FSOPEN,
    number::FSCONFIG,
    number::FSMOUNT,
    number::FSPICK,
    number::MOUNT_SETATTR,
    // Namespaces: capabilities over a fresh one open most of the kernel.
    number::SETNS,
    // Programs and keys in the kernel.
    number::BPF,
    number::ADD_KEY,
    number::REQUEST_KEY,
    number::KEYCTL,
    number::INIT_MODULE,
    number::FINIT_MODULE,
    number::DELETE_MODULE,
    number::KEXEC_LOAD,
    // Other processes' memory and descriptors; a debugger starts what it debugs.
    number::PROCESS_VM_READV,
    number::PROCESS_VM_WRITEV,
    number::KCMP,
    number::PIDFD_GETFD,
    number::MOVE_PAGES,
    number::MIGRATE_PAGES,
    // Stops the kernel in the middle of an access: the usual help of an exploit.
    number::USERFAULTFD,
    // Watches the whole machine.
    number::PERF_EVENT_OPEN,
    number::FANOTIFY_INIT,
    number::FANOTIFY_MARK,
    number::LOOKUP_DCOOKIE,
    number::SYSLOG,
    // Files without a path to check.
    number::OPEN_BY_HANDLE_AT,
    number::NAME_TO_HANDLE_AT,
    // The machine itself.
    number::REBOOT,
    number::SWAPON,
    number::SWAPOFF,
    number::ACCT,
    number::QUOTACTL,
    number::QUOTACTL_FD,
    number::SETTIMEOFDAY,
    number::CLOCK_SETTIME,
    number::CLOCK_ADJTIME,
    number::ADJTIMEX,
    number::VHANGUP,
    number::NFSSERVCTL,
    SET_MEMPOLICY_HOME_NODE,
];

/// As above, on one architecture only.
#[cfg(target_arch = "x86_64")]
const REFUSED_HERE: &[i64] = {
    use cofferdam_sys::syscalls::x86_64 as here;
    &[
        here::IOPL,
        here::IOPERM,
        here::KEXEC_FILE_LOAD,
        here::CREATE_MODULE,
        here::GET_KERNEL_SYMS,
        here::QUERY_MODULE,
        here::USELIB,
        here::SYSFS,
        here::SYSCTL,
        // Segments of one's own: for 16-bit programs and for exploits.
        here::MODIFY_LDT,
    ]
};
#[cfg(not(target_arch = "x86_64"))]
const REFUSED_HERE: &[i64] = &[];

/// As if the kernel did not have them.
const MISSING: &[i64] = &[
    // Its flags are behind a pointer, where no filter sees them; the C library falls back to clone.
    number::CLONE3,
    // Does other calls without any filter.
    number::IO_URING_SETUP,
    number::IO_URING_ENTER,
    number::IO_URING_REGISTER,
    // Locks memory that no limit of a cgroup sees.
    number::MEMFD_SECRET,
    STATMOUNT,
    LISTMOUNT,
];

/// The agent and the spawner, as argument of calls that reach processes; and -1 (everybody) and -2 (the group of the
/// spawner).
const PROTECTED: &[u32] = &[1, 2, -1i32 as u32, -2i32 as u32];
/// Calls whose first argument is a process.
const FIRST_IS_PROCESS: &[i64] = &[
    number::KILL,
    number::TKILL,
    number::TGKILL,
    number::RT_SIGQUEUEINFO,
    number::RT_TGSIGQUEUEINFO,
    number::PIDFD_OPEN,
    number::PRLIMIT64,
    number::SCHED_SETAFFINITY,
    number::SCHED_SETATTR,
    number::SCHED_SETPARAM,
    number::SCHED_SETSCHEDULER,
];
/// Calls whose second argument is.
const SECOND_IS_PROCESS: &[i64] = &[number::SETPRIORITY, number::IOPRIO_SET];

/// Input into a terminal from a program is input into the shell that reads it; line disciplines are old code.
const TERMINAL_INJECTION: &[u32] = &[value::TIOCSTI, value::TIOCLINUX, value::TIOCSETD];
/// Sets whom a signal goes to, out of the filter's sight.
const SIGNAL_OWNER: &[u32] = &[value::FIOSETOWN, value::SIOCSPGRP];
/// What ordinary programs ask for: Linux, the same with old version numbers, without address randomisation (debuggers),
/// and the question.
const PERSONALITIES: &[u32] = &[0, 0x8, 0x2_0000, 0x2_0008, 0x4_0000, 0xffff_ffff];
const FAMILIES: &[u32] = &[value::AF_UNIX, value::AF_INET, value::AF_INET6, value::AF_NETLINK];
const INTERNET: &[u32] = &[value::AF_INET, value::AF_INET6];
/// Others are loaded into the kernel on demand, and are where its bugs are.
const INTERNET_PROTOCOLS: &[u32] =
    &[value::IPPROTO_IP, value::IPPROTO_ICMP, value::IPPROTO_TCP, value::IPPROTO_UDP, value::IPPROTO_ICMPV6];
/// Routes and sockets, as `ip` and `ss` list them. Others as if not built in, which PAM and systemd libraries expect.
const NETLINKS: &[u32] = &[value::NETLINK_ROUTE, value::NETLINK_SOCK_DIAG];

const fn when(tests: &'static [Test], action: Action) -> Case {
    Case { tests, action }
}

/// Calls that depend on an argument.
const CASES: &[(i64, Case)] = &[
    (number::CLONE, when(&[Test::AnyBit(0, NEW_NAMESPACE)], EPERM)),
    (number::UNSHARE, when(&[Test::AnyBit(0, NEW_NAMESPACE | NEW_TIME_NAMESPACE)], EPERM)),
    (number::PTRACE, when(&[Test::Is(0, &[value::PTRACE_ATTACH, value::PTRACE_SEIZE])], EPERM)),
    (number::PERSONALITY, when(&[Test::Not(0, PERSONALITIES)], EPERM)),
    (number::IOCTL, when(&[Test::Is(1, TERMINAL_INJECTION)], EPERM)),
    (number::IOCTL, when(&[Test::Is(1, SIGNAL_OWNER)], EPERM)),
    (number::FCNTL, when(&[Test::Is(1, &[value::F_SETOWN_EX])], EPERM)),
    (number::FCNTL, when(&[Test::Is(1, &[value::F_SETOWN]), Test::Is(2, PROTECTED)], EPERM)),
    (number::SOCKETPAIR, when(&[Test::Not(0, &[value::AF_UNIX])], EPERM)),
    (number::SOCKET, when(&[Test::Not(0, FAMILIES)], EPERM)),
    (number::SOCKET, when(&[Test::Is(0, INTERNET), Test::Not(2, INTERNET_PROTOCOLS)], EPROTONOSUPPORT)),
    (number::SOCKET, when(&[Test::Is(0, &[value::AF_NETLINK]), Test::Not(2, NETLINKS)], EPROTONOSUPPORT)),
];

/// The table for everything in a sandbox.
pub(super) fn sandbox() -> Table {
    let mut table = Table::new(LAST_REVIEWED, ENOSYS);
    for call in REFUSED.iter().chain(REFUSED_HERE) {
        table.set(*call, Rule::always(EPERM));
    }
    for call in MISSING {
        table.set(*call, Rule::always(ENOSYS));
    }
    for (call, case) in CASES {
        table.add_case(*call, *case);
    }
    for call in FIRST_IS_PROCESS {
        table.add_case(*call, when(&[Test::Is(0, PROTECTED)], EPERM));
    }
    for call in SECOND_IS_PROCESS {
        table.add_case(*call, when(&[Test::Is(1, PROTECTED)], EPERM));
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_filter_stays_small() {
        let length = sandbox().compile().len();
        assert!(length < 400, "{length} instructions");
    }

    #[test]
    fn no_call_is_in_two_lists() {
        let mut seen = std::collections::BTreeSet::new();
        for call in REFUSED.iter().chain(REFUSED_HERE).chain(MISSING) {
            assert!(seen.insert(call), "{call}");
        }
        for (call, _) in CASES {
            assert!(!seen.contains(call), "{call}");
        }
    }
}
