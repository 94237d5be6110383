//! What hostile processes inside and broken callers outside cannot do.

use crate::support::{Sandbox, at, eventually, exec, sh};
use cofferdam_core::ErrorKind;
use cofferdam_proto::frame::Channel;
use cofferdam_proto::guest::{Reply, Request, User};
use std::io::Read;
use std::time::Duration;

#[test]
fn killing_everything_as_root_leaves_a_sandbox_that_works() {
    let Some(sandbox) = Sandbox::start() else { return };
    for _ in 0..5 {
        let mut caller = sandbox.open(Request::Exec(sh("kill -9 -1; echo alive")));
        caller.started();
        assert_eq!(caller.rest().text(), "alive");
        assert_eq!(sandbox.sh("echo again").succeeded(), "again");
    }
    sandbox.ok(Request::Ping);
}

#[test]
fn every_other_signal_to_everything_is_survived_by_the_spawner() {
    let Some(sandbox) = Sandbox::start() else { return };
    let spawner = "ps axo pid,args | grep -- ' --spawner' | grep -v grep | awk '{print $1}'";
    let before = sandbox.sh(spawner).succeeded();
    let script =
        "for s in 1 2 3 10 12 13 14 15 16 20 21 22 23 24 25 26 27 28 29 30 34 64; do kill -$s 1 2; done";
    sandbox.sh(script).succeeded();
    assert_eq!(sandbox.sh(spawner).succeeded(), before);
    assert!(!before.is_empty());
}

#[test]
fn the_agent_cannot_be_looked_into() {
    let Some(sandbox) = Sandbox::start() else { return };
    let mut request = sh(
        "cat /proc/1/environ /proc/2/environ /proc/1/maps /proc/2/maps 2>&1 | grep -c 'Permission denied'",
    );
    request.user = User::Named("nobody".into());
    assert_eq!(sandbox.run(request).text(), "4");
    for path in ["/proc/1/environ", "/proc/self/mem", "/proc/2/maps"] {
        let request = Request::Read { path: at(path), offset: 0, length: None };
        assert_eq!(sandbox.failure(request).kind, ErrorKind::PermissionDenied, "{path}");
    }
    let request = Request::Write { path: at("/proc/self/mem"), metadata: Default::default(), mode: 0o644 };
    assert_eq!(sandbox.failure(request).kind, ErrorKind::PermissionDenied);
}

#[test]
fn orphans_are_reaped() {
    let Some(sandbox) = Sandbox::start() else { return };
    sandbox.sh("for i in 1 2 3 4 5; do (setsid sh -c 'sleep 0.1' &) ; done").succeeded();
    eventually(|| sandbox.sh("ps axo stat | grep -c Z; exit 0").succeeded() == "0");
    eventually(|| sandbox.sh("ps axo comm | grep -c '^sleep'; exit 0").succeeded() == "0");
}

#[test]
fn rubbish_ends_its_own_connection_only() {
    let Some(sandbox) = Sandbox::start() else { return };
    let rubbish: [&[u8]; 6] = [
        b"GET / HTTP/1.1\r\n\r\n",
        &[0xff; 64],
        &[0, 0, 0, 0, 1],
        &[0, 0, 0, 0, 9],
        &[0, 16, 0, 1, 0],
        &[0, 0, 0, 3, 0, b'{', b'}'],
    ];
    for bytes in rubbish {
        let mut caller = sandbox.connect();
        caller.raw(bytes);
        caller.stream().shutdown(std::net::Shutdown::Write).unwrap();
        let mut rest = Vec::new();
        // Closed, or reset because the agent did not read everything.
        caller.stream().read_to_end(&mut rest).ok();
        assert!(rest.is_empty(), "{rest:?}");
    }
    let mut caller = sandbox.connect();
    caller.send(Channel::Control, b"{\"version\":1,\"op\":\"dance\"}");
    assert!(matches!(caller.reply(), Reply::Error(failure) if failure.kind == ErrorKind::InvalidArgument));
    sandbox.ok(Request::Ping);
}

#[test]
fn connections_beyond_the_bound_are_refused_and_come_back() {
    let Some(sandbox) = Sandbox::start() else { return };
    let silent: Vec<_> =
        (0..cofferdam_core::limits::GUEST_CONNECTIONS_MAX).map(|_| sandbox.connect()).collect();
    let refused = sandbox.connect().reply();
    assert!(matches!(refused, Reply::Error(failure) if failure.kind == ErrorKind::ResourceExhausted));
    drop(silent);
    eventually(|| sandbox.open(Request::Ping).reply() == Reply::Ok);
}

#[test]
fn large_calls_are_taken_and_too_large_ones_are_not() {
    let Some(sandbox) = Sandbox::start() else { return };
    let mut request = exec("sh", &["-c", "echo ${#BIG}"]);
    request.env = [("BIG".to_owned(), "x".repeat(120_000))].into();
    std::thread::scope(|scope| {
        let run = || assert_eq!(sandbox.run(request.clone()).succeeded(), "120000");
        let all: Vec<_> = (0..8).map(|_| scope.spawn(run)).collect();
        all.into_iter().for_each(|one| one.join().unwrap());
    });
    let mut caller = sandbox.connect();
    caller.raw(&[0, 0x20, 0, 0, 0]);
    caller.stream().set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    assert_eq!(caller.try_next(), None);
}
