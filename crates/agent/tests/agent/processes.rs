//! Processes that go on: listening, leaving, coming back, signals.

use crate::support::{Message, Sandbox, eventually, exec, pid, sh};
use cofferdam_core::ErrorKind;
use cofferdam_proto::frame::Channel;
use cofferdam_proto::guest::{Input, Reply, Request, Selector, SignalScope};

fn listed(sandbox: &Sandbox) -> Vec<u32> {
    match sandbox.ask(Request::List) {
        Reply::Processes { processes } => processes.iter().map(|process| process.pid).collect(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_process_outlives_its_caller_and_can_be_joined() {
    let Some(sandbox) = Sandbox::start() else { return };
    let mut request = exec("sh", &["-c", "read line; echo got $line; read line; exit 7"]);
    request.tag = Some("mine".into());
    request.env = [("A".to_owned(), "b".to_owned())].into();
    let mut caller = sandbox.open(Request::Exec(request.clone()));
    let started = caller.started();
    drop(caller);
    let Reply::Processes { processes } = sandbox.ask(Request::List) else { panic!() };
    let process = &processes[0];
    assert_eq!((process.pid, &process.args, &process.env), (started, &request.args, &request.env));
    assert_eq!((process.tag.as_deref(), process.pty), (Some("mine"), false));

    let mut first = sandbox.open(Request::Attach { process: Selector::Tag("mine".into()) });
    let mut second = sandbox.open(Request::Attach { process: pid(started) });
    assert_eq!((first.started(), second.started()), (started, started));
    first.send(Channel::Stdin, b"one\n");
    assert_eq!(first.until("got one"), "got one\n");
    assert_eq!(second.until("got one"), "got one\n");
    second.send(Channel::Stdin, b"");
    assert_eq!(first.rest().exit.code, Some(7));
    assert_eq!(second.rest().exit.code, Some(7));

    // Its end is still known.
    let late = sandbox.open(Request::Attach { process: pid(started) }).outcome();
    assert_eq!(late.exit.code, Some(7));
    assert_eq!(listed(&sandbox), [0_u32; 0]);
}

#[test]
fn a_process_that_nobody_listens_to_is_not_held_up() {
    let Some(sandbox) = Sandbox::start() else { return };
    let marker = sandbox.text("marker");
    let mut caller =
        sandbox.open(Request::Exec(sh(&format!("sleep 0.2; head -c 3000000 /dev/zero; touch {marker}"))));
    caller.started();
    drop(caller);
    eventually(|| sandbox.path("marker").exists());
}

#[test]
fn output_held_open_by_a_child_keeps_the_command_running_until_a_signal() {
    let Some(sandbox) = Sandbox::start() else { return };
    let mut caller = sandbox.open(Request::Exec(sh("sleep 1000 & echo started")));
    let started = caller.started();
    caller.until("started");
    eventually(|| sandbox.sh(&format!("kill -0 {started} 2>/dev/null || echo gone")).text() == "gone");
    assert_eq!(listed(&sandbox), [started]);
    sandbox.ok(Request::Signal { process: pid(started), signal: 15, scope: SignalScope::Process });
    assert_eq!(caller.rest().exit.code, Some(0));
    assert_eq!(listed(&sandbox), [0_u32; 0]);
}

#[test]
fn a_signal_reaches_the_process_alone_or_the_tree() {
    let Some(sandbox) = Sandbox::start() else { return };
    let mut alone = sandbox.open(Request::Exec(sh("sleep 2001 & sleep 2002; echo no")));
    alone.started();
    let children = |number: u32| {
        let script = format!("ps axo args | grep -c '^sleep {number}$'; exit 0");
        sandbox.sh(&script).succeeded()
    };
    eventually(|| children(2001) == "1" && children(2002) == "1");
    alone.control(&Input::Signal { signal: 9, scope: SignalScope::Process });
    assert_eq!(alone.rest().exit.signal, Some(9));
    assert_eq!((children(2001), children(2002)), ("1".to_owned(), "1".to_owned()));

    let mut tree = sandbox.open(Request::Exec(sh("setsid sleep 2003 & sleep 2004; echo no")));
    let started = tree.started();
    eventually(|| children(2003) == "1" && children(2004) == "1");
    sandbox.ok(Request::Signal { process: pid(started), signal: 9, scope: SignalScope::Tree });
    assert_eq!(tree.rest().exit.signal, Some(9));
    assert_eq!((children(2003), children(2004)), ("0".to_owned(), "0".to_owned()));
}

#[test]
fn a_killed_process_is_reaped_and_its_end_is_told_once() {
    let Some(sandbox) = Sandbox::start() else { return };
    let mut caller = sandbox.open(Request::Exec(exec("sleep", &["1000"])));
    let started = caller.started();
    sandbox.ok(Request::Signal { process: pid(started), signal: 9, scope: SignalScope::Process });
    assert_eq!(caller.rest().exit.signal, Some(9));
    let script = format!("kill -0 {started} 2>/dev/null || echo gone");
    assert_eq!(sandbox.sh(&script).succeeded(), "gone");
}

#[test]
fn what_is_not_there_is_not_found() {
    let Some(sandbox) = Sandbox::start() else { return };
    let signal = |process| Request::Signal { process, signal: 9, scope: SignalScope::Process };
    let failure = sandbox.failure(signal(pid(7777)));
    assert_eq!(
        (failure.kind, failure.message.as_str()),
        (ErrorKind::NotFound, "process with pid 7777 not found")
    );
    let failure = sandbox.failure(signal(Selector::Tag("x".into())));
    assert_eq!(failure.message, "process with tag x not found");
    // PID 1 and the spawner are nobody's.
    for number in [0, 1, 2] {
        assert_eq!(sandbox.failure(signal(pid(number))).kind, ErrorKind::NotFound);
    }
    assert_eq!(sandbox.failure(Request::Attach { process: pid(1) }).kind, ErrorKind::NotFound);
}

#[test]
fn leaving_ends_the_tree_when_that_was_asked_for() {
    let Some(sandbox) = Sandbox::start() else { return };
    let mut request = sh("setsid sleep 3001 & sleep 3002");
    request.kill_on_disconnect = true;
    let mut caller = sandbox.open(Request::Exec(request));
    caller.started();
    let count = || sandbox.sh("ps axo args | grep -c '^sleep 300'; exit 0").succeeded();
    eventually(|| count() == "2");
    // Half a goodbye is none.
    caller.stream().shutdown(std::net::Shutdown::Write).unwrap();
    assert_eq!(count(), "2");
    drop(caller);
    eventually(|| count() == "0");
    assert_eq!(listed(&sandbox), [0_u32; 0]);
}

#[test]
fn a_listener_that_takes_nothing_does_not_stop_the_others_from_working() {
    let Some(sandbox) = Sandbox::start() else { return };
    let mut lazy = sandbox.open(Request::Exec(exec("yes", &[])));
    let started = lazy.started();
    assert!(matches!(lazy.next(), Message::Data(Channel::Stdout, _)));
    // Its pump is stuck by now; signals and other processes are not.
    assert_eq!(sandbox.sh("echo fine").succeeded(), "fine");
    sandbox.ok(Request::Signal { process: pid(started), signal: 9, scope: SignalScope::Process });
    assert_eq!(lazy.rest().exit.signal, Some(9));
}
