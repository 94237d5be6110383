//! Starting processes: what they get, what they give, how they end.

use crate::support::{Sandbox, exec, pid, sh};
use cofferdam_core::ErrorKind;
use cofferdam_proto::frame::Channel;
use cofferdam_proto::guest::{Configure, Input, PtySize, Reason, Request, SignalScope, Stdio, User};
use std::os::unix::fs::PermissionsExt;

#[test]
fn streams_are_apart_and_complete_before_the_end() {
    let Some(sandbox) = Sandbox::start() else { return };
    let outcome = sandbox.sh("echo out; echo err >&2; exit 3");
    assert_eq!((outcome.text().as_str(), outcome.stderr.as_slice()), ("out", &b"err\n"[..]));
    assert_eq!((outcome.exit.code, outcome.exit.signal, outcome.exit.timed_out), (Some(3), None, false));
    assert!(outcome.exit.max_rss_kib > 0);
}

#[test]
fn bytes_that_are_no_text_arrive_as_they_are() {
    let Some(sandbox) = Sandbox::start() else { return };
    let outcome = sandbox.sh("head -c 8191 /dev/zero; printf '\\342'; head -c 5000000 /dev/zero");
    assert_eq!(outcome.stdout.len(), 5_008_192);
    assert_eq!(outcome.stdout[8191], 0xE2);
    assert_eq!(outcome.stdout.iter().filter(|byte| **byte != 0).count(), 1);
}

#[test]
fn a_signal_is_told_as_one() {
    let Some(sandbox) = Sandbox::start() else { return };
    let exit = sandbox.sh("kill -SEGV $$").exit;
    assert_eq!((exit.code, exit.signal), (None, Some(11)));
}

#[test]
fn a_process_starts_clean() {
    let Some(sandbox) = Sandbox::start() else { return };
    let script = "umask; cat /proc/self/oom_score_adj; cat /proc/self/status | grep -E 'Sig(Blk|Ign|Cgt)'; ls /proc/self/fd | wc -l";
    let text = sandbox.sh(script).succeeded();
    let lines: Vec<_> = text.lines().map(|line| line.split_whitespace().last().unwrap()).collect();
    // `ls` has its three streams and the directory.
    assert_eq!(lines, ["0022", "100", "0000000000000000", "0000000000000000", "0000000000000000", "4"]);
}

#[test]
fn a_user_gets_his_ids_and_environment_in_layers() {
    let Some(sandbox) = Sandbox::start() else { return };
    sandbox.ok(Request::Configure(Configure {
        hostname: "agent-test".into(),
        env: [("FROM".to_owned(), "sandbox".to_owned()), ("KEPT".to_owned(), "yes".to_owned())].into(),
        default_user: "nobody".into(),
        default_workdir: "/tmp".into(),
        open_files: 321,
        files: [(sandbox.text("etc/file"), "content".to_owned())].into(),
    }));
    let mut request =
        sh("id -u; id -G; echo $FROM $KEPT $USER $LOGNAME; pwd; ulimit -n; ulimit -Hn; touch x 2>&1; exit 0");
    request.user = User::Default;
    request.cwd = None;
    request.env = [("FROM".to_owned(), "request".to_owned())].into();
    let text = sandbox.run(request).succeeded();
    let expected = ["65534", "65534", "request yes nobody nobody", "/tmp", "321", "321"];
    assert_eq!(text.lines().take(6).collect::<Vec<_>>(), expected);
    assert_eq!(std::fs::read_to_string(sandbox.path("etc/file")).unwrap(), "content");
    std::fs::remove_file("/tmp/x").ok();

    let mut numbered = sh("id -u; id -g; echo $HOME");
    numbered.user = User::Named("4242".into());
    assert_eq!(sandbox.run(numbered).succeeded(), "4242\n0\n/");
}

#[test]
fn what_cannot_be_started_says_why() {
    let Some(sandbox) = Sandbox::start() else { return };
    let refused = |change: &dyn Fn(&mut cofferdam_proto::guest::Exec)| {
        let mut request = exec("/bin/true", &[]);
        change(&mut request);
        let failure = sandbox.failure(Request::Exec(request));
        (failure.kind, failure.reason, failure.message)
    };
    std::fs::create_dir(sandbox.path("locked")).unwrap();
    std::fs::set_permissions(sandbox.path("locked"), PermissionsExt::from_mode(0o700)).unwrap();
    std::fs::write(sandbox.path("plain"), "x").unwrap();
    let (locked, plain) = (sandbox.text("locked"), sandbox.text("plain"));

    let (kind, reason, message) = refused(&|exec| exec.user = User::Named("ghost".into()));
    assert_eq!((kind, reason), (ErrorKind::InvalidArgument, Reason::UnknownUser));
    assert_eq!(message, "invalid username: 'ghost'");
    let (_, reason, message) = refused(&|exec| exec.cwd = Some("/no/where".into()));
    assert_eq!((reason, message.as_str()), (Reason::UnknownCwd, "cwd '/no/where' does not exist"));
    let (kind, _, message) = refused(&|exec| {
        exec.cwd = Some(locked.clone());
        exec.user = User::Named("nobody".into());
    });
    assert_eq!(kind, ErrorKind::InvalidArgument);
    assert!(message.ends_with("cannot be entered: permission denied"), "{message}");
    for cmd in ["no-such-command", "/no/such/command", &plain, &locked, ""] {
        let (kind, _, message) = refused(&|exec| exec.cmd = cmd.to_owned());
        assert_eq!(kind, ErrorKind::InvalidArgument, "{cmd}: {message}");
    }
    let (kind, _, _) = refused(&|exec| exec.args = vec!["x".repeat(200_000)]);
    assert_eq!(kind, ErrorKind::InvalidArgument);
    assert_eq!(sandbox.ask(Request::List), cofferdam_proto::guest::Reply::Processes { processes: vec![] });
}

#[test]
fn input_is_read_and_its_end_is_seen() {
    let Some(sandbox) = Sandbox::start() else { return };
    let mut caller = sandbox.open(Request::Exec(exec("cat", &[])));
    let started = caller.started();
    caller.send(Channel::Stdin, b"at once");
    assert_eq!(caller.until("at once"), "at once");
    let large = vec![b'x'; 64 * 1024];
    let mut writer = sandbox.open(Request::Input { process: pid(started), pty: false });
    let mut seen = 0;
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for _ in 0..10 {
                writer.send(Channel::Stdin, &large);
            }
            writer.send(Channel::Stdin, b"");
            assert_eq!(writer.reply(), cofferdam_proto::guest::Reply::Ok);
            sandbox.ok(Request::CloseStdin { process: pid(started) });
            // Closing twice is fine, and so is closing what has ended meanwhile, as long as it is known.
        });
        let outcome = caller.rest();
        seen += outcome.stdout.len();
        assert_eq!(outcome.exit.code, Some(0));
    });
    assert_eq!(seen, 10 * large.len());
}

#[test]
fn without_input_there_is_only_its_end() {
    let Some(sandbox) = Sandbox::start() else { return };
    let mut request = sh("cat; sleep 100");
    request.stdio = Stdio::NoInput;
    let mut caller = sandbox.open(Request::Exec(request));
    let started = caller.started();
    let mut writer = sandbox.open(Request::Input { process: pid(started), pty: false });
    writer.send(Channel::Stdin, b"x");
    match writer.reply() {
        cofferdam_proto::guest::Reply::Error(failure) => assert_eq!(failure.reason, Reason::StdinClosed),
        other => panic!("{other:?}"),
    }
    sandbox.ok(Request::CloseStdin { process: pid(started) });
    sandbox.ok(Request::Signal { process: pid(started), signal: 9, scope: SignalScope::Tree });
    assert_eq!(caller.rest().exit.signal, Some(9));
}

#[test]
fn a_terminal_has_a_size_and_takes_a_new_one() {
    let Some(sandbox) = Sandbox::start() else { return };
    let mut request = sh("tty; stty size; read line; stty size; test -t 0 && exit 5");
    request.stdio = Stdio::Pty(PtySize { cols: 100, rows: 30 });
    request.user = User::Named("nobody".into());
    let mut caller = sandbox.open(Request::Exec(request));
    let started = caller.started();
    let text = caller.until("30 100");
    assert!(text.starts_with("/dev/pts/"), "{text}");

    let mismatch = sandbox.open(Request::Input { process: pid(started), pty: false }).reply();
    assert!(matches!(mismatch, cofferdam_proto::guest::Reply::Error(f) if f.reason == Reason::NotPty));
    let refused = sandbox.failure(Request::CloseStdin { process: pid(started) });
    assert_eq!(refused.reason, Reason::NotPty);

    sandbox.ok(Request::Resize { process: pid(started), size: PtySize { cols: 80, rows: 20 } });
    caller.control(&Input::Resize { size: PtySize { cols: 81, rows: 21 } });
    caller.send(Channel::Stdin, b"go\n");
    let outcome = caller.rest();
    let text = String::from_utf8_lossy(&outcome.pty).into_owned();
    assert!(text.contains("21 81"), "{text}");
    assert_eq!(outcome.exit.code, Some(5));
    assert!(outcome.stdout.is_empty() && outcome.stderr.is_empty());
}

#[test]
fn a_time_limit_ends_everything_and_keeps_what_was_said() {
    let Some(sandbox) = Sandbox::start() else { return };
    let mut request = sh("echo before; (setsid env -i /bin/sh -c 'sleep 1000 & sleep 1000' &); sleep 1000");
    request.timeout_ms = Some(700);
    let outcome = sandbox.run(request);
    assert_eq!(outcome.text(), "before");
    assert_eq!((outcome.exit.signal, outcome.exit.timed_out), (Some(9), true));
    let left = sandbox.sh("ps axo comm | grep -c '^sleep$'; exit 0").succeeded();
    assert_eq!(left, "0");
}

#[test]
fn a_hundred_at_once_all_end() {
    let Some(sandbox) = Sandbox::start() else { return };
    std::thread::scope(|scope| {
        let run = |number: u32| {
            let sandbox = &sandbox;
            move || assert_eq!(sandbox.sh(&format!("echo {number}")).succeeded(), number.to_string())
        };
        let all: Vec<_> = (0..100).map(|number| scope.spawn(run(number))).collect();
        all.into_iter().for_each(|one| one.join().unwrap());
    });
}
