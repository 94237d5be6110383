//! Owns the numbers of system calls and the constants of their arguments that filters speak about: syscalls(2). Values
//! only, so that other crates can write filters without the C library's names.

use libc as c;

macro_rules! numbers {
    ($($name:ident = $call:ident,)*) => {
        /// System call numbers of this architecture.
        #[allow(missing_docs)]
        pub mod number {
            $(pub const $name: i64 = libc::$call;)*
        }
    };
}

numbers! {
    ACCT = SYS_acct, ADD_KEY = SYS_add_key, ADJTIMEX = SYS_adjtimex, BPF = SYS_bpf,
    CLOCK_ADJTIME = SYS_clock_adjtime, CLOCK_SETTIME = SYS_clock_settime, CLONE = SYS_clone, CLONE3 = SYS_clone3,
    DELETE_MODULE = SYS_delete_module, FANOTIFY_INIT = SYS_fanotify_init, FANOTIFY_MARK = SYS_fanotify_mark,
    FCNTL = SYS_fcntl, FINIT_MODULE = SYS_finit_module, FSCONFIG = SYS_fsconfig, FSMOUNT = SYS_fsmount,
    FSOPEN = SYS_fsopen, FSPICK = SYS_fspick, INIT_MODULE = SYS_init_module, IOCTL = SYS_ioctl,
    IOPRIO_SET = SYS_ioprio_set, IO_URING_ENTER = SYS_io_uring_enter, IO_URING_REGISTER = SYS_io_uring_register,
    IO_URING_SETUP = SYS_io_uring_setup, KCMP = SYS_kcmp, KEXEC_LOAD = SYS_kexec_load, KEYCTL = SYS_keyctl,
    KILL = SYS_kill, LOOKUP_DCOOKIE = SYS_lookup_dcookie, MEMFD_SECRET = SYS_memfd_secret,
    MIGRATE_PAGES = SYS_migrate_pages, MOUNT = SYS_mount, MOUNT_SETATTR = SYS_mount_setattr,
    MOVE_MOUNT = SYS_move_mount, MOVE_PAGES = SYS_move_pages, NAME_TO_HANDLE_AT = SYS_name_to_handle_at,
    NFSSERVCTL = SYS_nfsservctl, OPEN_BY_HANDLE_AT = SYS_open_by_handle_at, OPEN_TREE = SYS_open_tree,
    PERF_EVENT_OPEN = SYS_perf_event_open, PERSONALITY = SYS_personality, PIDFD_GETFD = SYS_pidfd_getfd,
    PIDFD_OPEN = SYS_pidfd_open, PIVOT_ROOT = SYS_pivot_root, PRLIMIT64 = SYS_prlimit64,
    PROCESS_VM_READV = SYS_process_vm_readv, PROCESS_VM_WRITEV = SYS_process_vm_writev, PTRACE = SYS_ptrace,
    QUOTACTL = SYS_quotactl, QUOTACTL_FD = SYS_quotactl_fd, REBOOT = SYS_reboot, REQUEST_KEY = SYS_request_key,
    RT_SIGQUEUEINFO = SYS_rt_sigqueueinfo, RT_TGSIGQUEUEINFO = SYS_rt_tgsigqueueinfo,
    SCHED_SETAFFINITY = SYS_sched_setaffinity, SCHED_SETATTR = SYS_sched_setattr,
    SCHED_SETPARAM = SYS_sched_setparam, SCHED_SETSCHEDULER = SYS_sched_setscheduler, SETNS = SYS_setns,
    SETPRIORITY = SYS_setpriority, SETTIMEOFDAY = SYS_settimeofday, SOCKET = SYS_socket,
    SOCKETPAIR = SYS_socketpair, SWAPOFF = SYS_swapoff, SWAPON = SYS_swapon, SYSLOG = SYS_syslog,
    TGKILL = SYS_tgkill, TKILL = SYS_tkill, UMOUNT2 = SYS_umount2, UNSHARE = SYS_unshare,
    USERFAULTFD = SYS_userfaultfd, VHANGUP = SYS_vhangup,
}

/// Calls that only this architecture has.
#[cfg(target_arch = "x86_64")]
#[allow(missing_docs)]
pub mod x86_64 {
    pub const CREATE_MODULE: i64 = 174;
    pub const GET_KERNEL_SYMS: i64 = 177;
    pub const IOPERM: i64 = libc::SYS_ioperm;
    pub const IOPL: i64 = libc::SYS_iopl;
    pub const KEXEC_FILE_LOAD: i64 = libc::SYS_kexec_file_load;
    pub const MODIFY_LDT: i64 = libc::SYS_modify_ldt;
    pub const QUERY_MODULE: i64 = 178;
    pub const SYSFS: i64 = libc::SYS_sysfs;
    pub const SYSCTL: i64 = libc::SYS__sysctl;
    pub const USELIB: i64 = libc::SYS_uselib;
}

/// The last number that was reviewed: `removexattrat`.
pub const LAST_REVIEWED: i64 = 466;
/// Numbers that the C library has no name for yet.
pub const STATMOUNT: i64 = 457;
/// See [`STATMOUNT`].
pub const LISTMOUNT: i64 = 458;
/// See [`STATMOUNT`].
pub const SET_MEMPOLICY_HOME_NODE: i64 = 450;

/// Every flag of clone and unshare that makes a namespace, but that for time, which has another bit in clone.
pub const NEW_NAMESPACE: u32 = (c::CLONE_NEWNS
    | c::CLONE_NEWCGROUP
    | c::CLONE_NEWUTS
    | c::CLONE_NEWIPC
    | c::CLONE_NEWUSER
    | c::CLONE_NEWPID
    | c::CLONE_NEWNET) as u32;
/// The flag of unshare for a time namespace. In clone, this bit belongs to the exit signal.
pub const NEW_TIME_NAMESPACE: u32 = 0x80;

macro_rules! values {
    ($($name:ident = $value:expr,)*) => {
        /// Values of arguments.
        #[allow(missing_docs)]
        pub mod value {
            use libc as c;
            $(pub const $name: u32 = $value as u32;)*
        }
    };
}

values! {
    AF_UNIX = c::AF_UNIX, AF_INET = c::AF_INET, AF_INET6 = c::AF_INET6, AF_NETLINK = c::AF_NETLINK,
    SOCK_RAW = c::SOCK_RAW, IPPROTO_IP = c::IPPROTO_IP, IPPROTO_ICMP = c::IPPROTO_ICMP, IPPROTO_TCP = c::IPPROTO_TCP,
    IPPROTO_UDP = c::IPPROTO_UDP, IPPROTO_ICMPV6 = c::IPPROTO_ICMPV6, NETLINK_ROUTE = c::NETLINK_ROUTE,
    NETLINK_SOCK_DIAG = c::NETLINK_SOCK_DIAG, PTRACE_ATTACH = c::PTRACE_ATTACH, PTRACE_SEIZE = c::PTRACE_SEIZE,
    TIOCSTI = c::TIOCSTI, TIOCLINUX = c::TIOCLINUX, TIOCSETD = 0x5423, FIOSETOWN = 0x8901, SIOCSPGRP = 0x8902,
    F_SETOWN = c::F_SETOWN, F_SETOWN_EX = 15, EPERM = c::EPERM, ENOSYS = c::ENOSYS,
    EPROTONOSUPPORT = c::EPROTONOSUPPORT,
}
