//! A program that tests run inside a sandbox: it attempts what a sandbox must not do, and what it must be able to do, and
//! prints one line for each. No crate: tests compile it by itself, static, so that it runs in an empty root.

use std::ffi::{CString, c_long};
use std::fs::{self, OpenOptions};
use std::io::{self, Read, Write};
use std::os::fd::AsRawFd;

unsafe extern "C" {
    fn syscall(number: c_long, ...) -> c_long;
}

type Arguments = [usize; 6];

/// SAFETY: every caller passes numbers, null, or addresses of values that outlive the call and that the call only reads;
/// a call that succeeds against expectation ends the test, not the host.
fn call(number: c_long, a: Arguments) -> io::Result<usize> {
    let result = unsafe { syscall(number, a[0], a[1], a[2], a[3], a[4], a[5]) };
    usize::try_from(result).map_err(|_| io::Error::last_os_error())
}

fn report<T>(name: &str, result: io::Result<T>) {
    let text = match result {
        Ok(_) => "ok".to_owned(),
        Err(error) => match error.raw_os_error() {
            Some(1) => "EPERM".to_owned(),
            Some(2) => "ENOENT".to_owned(),
            Some(3) => "ESRCH".to_owned(),
            Some(11) => "EAGAIN".to_owned(),
            Some(12) => "ENOMEM".to_owned(),
            Some(13) => "EACCES".to_owned(),
            Some(22) => "EINVAL".to_owned(),
            Some(28) => "ENOSPC".to_owned(),
            Some(30) => "EROFS".to_owned(),
            Some(38) => "ENOSYS".to_owned(),
            Some(93) => "EPROTONOSUPPORT".to_owned(),
            Some(122) => "EDQUOT".to_owned(),
            other => format!("{other:?} {error}"),
        },
    };
    println!("{name}: {text}");
}

const NEWUSER: usize = 0x1000_0000;
const NEWNS: usize = 0x2_0000;
const AT_FDCWD: usize = -100isize as usize;

/// Calls that a filter must stop, with arguments that would otherwise mean something.
fn calls() -> Vec<(&'static str, c_long, Arguments)> {
    let path = CString::new("/tmp").unwrap().into_raw() as usize;
    let kind = CString::new("tmpfs").unwrap().into_raw() as usize;
    let empty = CString::new("").unwrap().into_raw() as usize;
    vec![
        ("mount", 165, [kind, path, kind, 0, 0, 0]),
        ("umount2", 166, [path, 2, 0, 0, 0, 0]),
        ("pivot_root", 155, [path, path, 0, 0, 0, 0]),
        ("fsopen", 430, [kind, 0, 0, 0, 0, 0]),
        ("open_tree", 428, [AT_FDCWD, path, 1, 0, 0, 0]),
        ("move_mount", 429, [AT_FDCWD, path, AT_FDCWD, path, 0, 0]),
        ("mount_setattr", 442, [AT_FDCWD, path, 0, empty, 32, 0]),
        ("unshare user", 272, [NEWUSER, 0, 0, 0, 0, 0]),
        ("unshare mount", 272, [NEWNS, 0, 0, 0, 0, 0]),
        ("unshare time", 272, [0x80, 0, 0, 0, 0, 0]),
        ("clone user", 56, [NEWUSER | 17, 0, 0, 0, 0, 0]),
        ("clone3", 435, [0, 0, 0, 0, 0, 0]),
        ("bpf", 321, [0, empty, 0, 0, 0, 0]),
        ("keyctl", 250, [0, 0, 0, 0, 0, 0]),
        ("add_key", 248, [kind, kind, empty, 0, 0, 0]),
        ("request_key", 249, [kind, kind, 0, 0, 0, 0]),
        ("io_uring_setup", 425, [8, empty, 0, 0, 0, 0]),
        ("io_uring_enter", 426, [0, 0, 0, 0, 0, 0]),
        ("kexec_load", 246, [0, 0, 0, 0, 0, 0]),
        ("kexec_file_load", 320, [0, 0, 0, 0, 0, 0]),
        ("init_module", 175, [empty, 0, empty, 0, 0, 0]),
        ("finit_module", 313, [0, empty, 0, 0, 0, 0]),
        ("delete_module", 176, [kind, 0, 0, 0, 0, 0]),
        ("ptrace attach", 101, [16, 1, 0, 0, 0, 0]),
        ("ptrace seize", 101, [0x4206, 2, 0, 0, 0, 0]),
        ("process_vm_readv", 310, [1, 0, 0, 0, 0, 0]),
        ("process_vm_writev", 311, [1, 0, 0, 0, 0, 0]),
        ("kcmp", 312, [1, 2, 0, 0, 0, 0]),
        ("pidfd_getfd", 438, [0, 0, 0, 0, 0, 0]),
        ("userfaultfd", 323, [1, 0, 0, 0, 0, 0]),
        ("perf_event_open", 298, [empty, 0, 0, 0, 0, 0]),
        ("fanotify_init", 300, [0, 0, 0, 0, 0, 0]),
        ("open_by_handle_at", 304, [AT_FDCWD, empty, 0, 0, 0, 0]),
        ("name_to_handle_at", 303, [AT_FDCWD, path, empty, 0, 0, 0]),
        ("swapon", 167, [path, 0, 0, 0, 0, 0]),
        ("reboot", 169, [0xfee1_dead, 672_274_793, 0, 0, 0, 0]),
        ("settimeofday", 164, [0, 0, 0, 0, 0, 0]),
        ("clock_settime", 227, [0, empty, 0, 0, 0, 0]),
        ("adjtimex", 159, [0, 0, 0, 0, 0, 0]),
        ("acct", 163, [path, 0, 0, 0, 0, 0]),
        ("quotactl", 179, [0, 0, 0, 0, 0, 0]),
        ("syslog", 103, [3, 0, 0, 0, 0, 0]),
        ("iopl", 172, [3, 0, 0, 0, 0, 0]),
        ("ioperm", 173, [0, 1, 1, 0, 0, 0]),
        ("vhangup", 153, [0, 0, 0, 0, 0, 0]),
        ("modify_ldt", 154, [0, 0, 0, 0, 0, 0]),
        ("memfd_secret", 447, [0, 0, 0, 0, 0, 0]),
        ("personality odd", 135, [0x0100_0000, 0, 0, 0, 0, 0]),
        ("ioctl TIOCSTI", 16, [0, 0x5412, empty, 0, 0, 0]),
        ("socket AF_PACKET", 41, [17, 3, 0, 0, 0, 0]),
        ("socket AF_VSOCK", 41, [40, 1, 0, 0, 0, 0]),
        ("socket AF_ALG", 41, [38, 5, 0, 0, 0, 0]),
        ("socket netlink audit", 41, [16, 3, 9, 0, 0, 0]),
        ("socket raw", 41, [2, 3, 1, 0, 0, 0]),
        ("socket sctp", 41, [2, 1, 132, 0, 0, 0]),
        ("kill agent", 62, [1, 9, 0, 0, 0, 0]),
        ("kill spawner", 62, [2, 9, 0, 0, 0, 0]),
        ("kill everybody", 62, [-1isize as usize, 9, 0, 0, 0, 0]),
        ("kill group of spawner", 62, [-2isize as usize, 9, 0, 0, 0, 0]),
        ("tgkill spawner", 234, [2, 2, 9, 0, 0, 0]),
        ("pidfd_open agent", 434, [1, 0, 0, 0, 0, 0]),
        ("prlimit64 agent", 302, [1, 7, empty, 0, 0, 0]),
        ("setpriority agent", 141, [0, 1, 19, 0, 0, 0]),
        ("sched_setaffinity spawner", 203, [2, 8, empty, 0, 0, 0]),
        ("signal owner spawner", 72, [0, 8, 2, 0, 0, 0]),
        ("setns", 308, [0, 0, 0, 0, 0, 0]),
        ("statmount", 457, [0, 0, 0, 0, 0, 0]),
        ("call from the future", 470, [0, 0, 0, 0, 0, 0]),
        ("x32 getpid", 0x4000_0000 + 39, [0, 0, 0, 0, 0, 0]),
    ]
}

fn write(path: &str, bytes: &[u8]) -> io::Result<()> {
    OpenOptions::new().write(true).open(path)?.write_all(bytes)
}

fn read(path: &str) -> io::Result<usize> {
    let mut bytes = [0; 64];
    OpenOptions::new().read(true).open(path)?.read(&mut bytes)
}

/// What the kernel shows of the host, and the processes that guard the sandbox.
fn files() {
    report("write /proc/sys/kernel/hostname", write("/proc/sys/kernel/hostname", b"x"));
    report("write /proc/sys/vm/overcommit_memory", write("/proc/sys/vm/overcommit_memory", b"1"));
    report("write /proc/sysrq-trigger", write("/proc/sysrq-trigger", b"h"));
    report("write /sys/power/state", write("/sys/power/state", b"mem"));
    report("make a directory in /sys", fs::create_dir("/sys/x"));
    report("read /proc/1/environ", read("/proc/1/environ"));
    report("read /proc/1/mem", read("/proc/1/mem"));
    report("list /proc/1/fd", fs::read_dir("/proc/1/fd"));
    report("list /proc/1/root", fs::read_dir("/proc/1/root"));
    report("read /proc/2/mem", read("/proc/2/mem"));
    report("execute the agent's program", fs::File::open("/proc/1/exe"));
    report("lower the spawner's chance to live", write("/proc/2/oom_score_adj", b"1000"));
    for path in ["/proc/kcore", "/proc/keys", "/proc/timer_list", "/proc/kallsyms"] {
        println!("{path}: {:?} bytes", read(path).unwrap_or(0));
    }
    for path in ["/sys/firmware", "/sys/fs", "/sys/kernel"] {
        println!("{path}: {} entries", fs::read_dir(path).map_or(0, Iterator::count));
    }
    let path = CString::new("/tmp/device").unwrap();
    let device = |mode: usize| call(133, [path.as_ptr() as usize, mode | 0o666, 0x801, 0, 0, 0]);
    report("make a character device", device(0o020_000));
    report("make a block device", device(0o060_000));
    report("sethostname", call(170, [path.as_ptr() as usize, 1, 0, 0, 0, 0]));
}

/// What ordinary programs do.
fn allowed() {
    let name = |text: &str| CString::new(text).unwrap().into_raw() as usize;
    report("unshare files", call(272, [0x400, 0, 0, 0, 0, 0]));
    report("socket unix", call(41, [1, 1, 0, 0, 0, 0]));
    report("socket tcp", call(41, [2, 1, 6, 0, 0, 0]));
    report("socket udp v6", call(41, [10, 2, 17, 0, 0, 0]));
    report("socket ping", call(41, [2, 2, 1, 0, 0, 0]));
    report("socket netlink route", call(41, [16, 3, 0, 0, 0, 0]));
    report("personality query", call(135, [0xffff_ffff, 0, 0, 0, 0, 0]));
    report("make a fifo", call(133, [name("/tmp/fifo"), 0o010_600, 0, 0, 0, 0]));
    report("listen on port 80", std::net::TcpListener::bind("127.0.0.1:80"));
    report("listen on ::1", std::net::TcpListener::bind("[::1]:81"));
    report("shared memory", fs::write("/dev/shm/x", "x"));
    report("message queue", call(240, [name("queue"), 0o100 | 2, 0o600, 0, 0, 0]));
    report("terminal", OpenOptions::new().read(true).write(true).open("/dev/ptmx"));
    report("write /dev/null", write("/dev/null", b"x"));
    report("read /dev/urandom", read("/dev/urandom"));
    report("make directories", fs::create_dir_all("/tmp/a/b").and_then(|()| fs::create_dir("/tmp/c")));
    report("move between directories", fs::write("/tmp/a/b/f", "x").and_then(|()| fs::rename("/tmp/a/b/f", "/tmp/c/f")));
    report("link between directories", fs::hard_link("/tmp/c/f", "/tmp/a/f"));
    report("kill -0 itself", call(62, [std::process::id() as usize, 0, 0, 0, 0, 0]));
    match call(57, [0; 6]) {
        Ok(0) => {
            // As the child of a debugger would.
            report("trace me", call(101, [0; 6]));
            std::process::exit(0)
        }
        forked => report("fork", forked),
    }
    call(61, [-1isize as usize, 0, 0, 0, 0, 0]).ok();
    report("start a process", std::process::Command::new("/probe").arg("nothing").status());
}

/// What root does on top.
fn root() {
    report("chown", std::os::unix::fs::chown("/tmp", Some(7), Some(7)));
    report("chmod set-id", {
        use std::os::unix::fs::PermissionsExt;
        fs::copy("/probe", "/tmp/setid").and_then(|_| fs::set_permissions("/tmp/setid", PermissionsExt::from_mode(0o4755)))
    });
    report("setresuid", call(117, [1000, 1000, 1000, 0, 0, 0]));
    let set_id = std::process::Command::new("/tmp/setid").arg("uid").output();
    println!("uid of a set-id program: {}", set_id.map_or_else(|e| e.to_string(), |o| String::from_utf8_lossy(&o.stdout).into()));
}

/// Takes memory until it is killed.
fn eat_memory() {
    let mut hoard = Vec::new();
    loop {
        hoard.push(vec![1u8; 1 << 20]);
    }
}

/// Starts processes that stay until it is refused.
fn breed() {
    for count in 0..100_000 {
        match call(57, [0; 6]) {
            Ok(0) => loop {
                call(34, [0; 6]).ok();
            },
            Ok(_) => {}
            Err(error) => {
                report("fork", Err::<(), _>(error));
                println!("after more than 8: {}", count > 8);
                io::stdin().read_to_end(&mut Vec::new()).ok();
                return;
            }
        }
    }
}

/// Writes to a file until there is no room, then tidies up.
fn fill_disk() {
    let mut file = fs::File::create("/tmp/big").unwrap();
    let block = vec![7u8; 1 << 20];
    let mut written = 0;
    let error = loop {
        match file.write_all(&block).and_then(|()| file.sync_data()) {
            Ok(()) => written += 1,
            Err(error) => break error,
        }
    };
    report("write", Err::<(), _>(error));
    println!("megabytes: {written}");
    report("remove", fs::remove_file("/tmp/big"));
}

fn descriptors() {
    let mut open: Vec<String> = fs::read_dir("/proc/self/fd")
        .unwrap()
        .filter_map(|entry| fs::read_link(entry.unwrap().path()).ok())
        .map(|path| path.display().to_string())
        .filter(|path| !path.starts_with("pipe:") && !path.starts_with("/proc/") && path != "/dev/null")
        .collect();
    open.sort();
    println!("descriptors: {open:?}");
    println!("terminal: {}", fs::File::open("/dev/tty").is_ok());
    let status = fs::read_to_string("/proc/self/status").unwrap();
    for line in status.lines().filter(|line| line.starts_with("Cap") || line.starts_with("Seccomp:")) {
        println!("{line}");
    }
    println!("{}", fs::read_to_string("/proc/self/cgroup").unwrap().lines().all(|line| line.ends_with(":/") || line.contains("systemd") || line.contains("cofferdam")));
}

fn main() {
    let command = std::env::args().nth(1).unwrap_or_default();
    // Some of it would hurt a host.
    assert!(fs::exists("/probe").unwrap(), "runs in a sandbox only");
    match command.as_str() {
        "calls" => calls().into_iter().for_each(|(name, number, a)| report(name, call(number, a))),
        "files" => files(),
        "allowed" => allowed(),
        "root" => root(),
        "memory" => eat_memory(),
        "breed" => breed(),
        "disk" => fill_disk(),
        "self" => descriptors(),
        "uid" => print!("{}", call(107, [0; 6]).unwrap()),
        "mounts" => print!("{}", fs::read_to_string("/proc/self/mountinfo").unwrap()),
        "cat" => print!("{}", fs::read_to_string(std::env::args().nth(2).unwrap()).unwrap_or_else(|e| e.to_string())),
        "write" => report("write", fs::write(std::env::args().nth(2).unwrap(), "x")),
        "processes" => {
            let pids = fs::read_dir("/proc").unwrap().filter(|e| e.as_ref().unwrap().file_name().to_string_lossy().parse::<u32>().is_ok());
            println!("{}", pids.count());
        }
        "wait" => {
            println!("waiting");
            io::stdin().read_to_end(&mut Vec::new()).ok();
        }
        "space" => {
            // statfs: blocks are at 16, their size at 8.
            let mut stat = [0u64; 15];
            let path = CString::new(std::env::args().nth(2).unwrap()).unwrap();
            call(137, [path.as_ptr() as usize, stat.as_mut_ptr() as usize, 0, 0, 0, 0]).unwrap();
            println!("{}", stat[1] * stat[2]);
        }
        _ => {
            let _fd = io::stdin().as_raw_fd();
        }
    }
}
