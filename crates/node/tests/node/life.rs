//! One node: made, used, ended.

use crate::Test;
use crate::bed::{Bed, eventually, id, in_seconds};
use crate::client::{Client, Ran};
use cofferdam_core::{ErrorKind, SandboxSpec, State};
use cofferdam_proto::node::{Answer, EndReason, Request};
use std::fs;
use std::path::Path;
use std::time::Instant;

pub(crate) const TESTS: &[Test] = &[
    ("a_sandbox_is_made_used_and_gone", made_used_gone),
    ("thirty_at_once_are_thirty_sandboxes", thirty_at_once),
    ("a_deadline_ends_a_sandbox_while_nobody_is_connected", deadline),
    ("an_agent_that_is_killed_ends_its_sandbox_and_is_reported", agent_killed),
    ("a_template_outlives_its_removal_until_its_last_sandbox_ends", template_outlives),
    ("usage_is_measured_and_limits_are_those_asked_for", usage),
    ("an_imported_tree_cannot_be_written_to_even_by_root", sealed),
    ("a_second_node_on_the_same_directory_refuses", second_node),
    ("the_doctor_finds_the_host_able", doctor),
];

fn uid() -> Ran {
    Ran { output: "1000".into(), code: Some(0) }
}

fn made_used_gone(bed: &mut Bed) {
    let client = Client::connect();
    let record = client.create(bed.spec(1));
    assert_eq!(record.state, State::Running);
    assert_eq!(client.create(bed.spec(1)), record);
    assert_eq!(client.probe(&id(1), &["uid"]), uid());
    assert_eq!(client.probe(&id(1), &["cat", "/etc/hostname"]).output, "box1\n");
    assert_eq!(client.probe(&id(1), &["cat", "/proc/sys/kernel/hostname"]).output, "box1\n");
    assert!(client.probe(&id(1), &["cat", "/etc/hosts"]).output.contains("box1"));
    let start = Instant::now();
    client.kill(&id(1));
    println!("  kill took {:?}", start.elapsed());
    assert_eq!(client.list(), []);
    let answer = client.ask(Request::Dial { sandbox: id(1) });
    assert!(matches!(answer, Answer::Failed(failure) if failure.kind == ErrorKind::NotFound));
}

fn thirty_at_once(bed: &mut Bed) {
    let start = Instant::now();
    std::thread::scope(|scope| {
        for number in 0..30 {
            let spec = bed.spec(number);
            scope.spawn(move || {
                let client = Client::wait();
                client.create(spec);
                let name = client.probe(&id(number), &["cat", "/etc/hostname"]).output;
                assert_eq!(name, format!("box{number}\n"));
            });
        }
    });
    println!("  30 creates with a command each took {:?}", start.elapsed());
    assert_eq!(Client::connect().list().len(), 30);
}

fn deadline(bed: &mut Bed) {
    let client = Client::connect();
    client.create(SandboxSpec { expires_at: in_seconds(1), ..bed.spec(1) });
    drop(client);
    let watching = || Client::connect().list().is_empty();
    eventually("it is gone", watching);
    // Whoever is connected when it ends hears it; here that was one of those who looked, or nobody yet.
    assert_eq!(Client::connect().list(), []);
}

fn agent_killed(bed: &mut Bed) {
    let client = Client::connect();
    client.create(bed.spec(1));
    let records = fs::read_dir("node/slots").unwrap().map(|entry| fs::read_to_string(entry.unwrap().path()));
    let record = records.map(Result::unwrap).find(|text| text.contains("\"i1\"")).unwrap();
    let record: serde_json::Value = serde_json::from_str(&record).unwrap();
    let pid = record["claim"]["process"]["pid"].as_u64().unwrap();
    cofferdam_sys::pidfd::kill(cofferdam_sys::pidfd::open(u32::try_from(pid).unwrap()).unwrap()).unwrap();
    assert_eq!(client.ended(), (id(1), EndReason::AgentDied));
    eventually("it is gone", || client.list().is_empty());
}

fn template_outlives(bed: &mut Bed) {
    let client = Client::connect();
    // The same tree under another name, so that the bed keeps its own.
    let other = bed.import("other");
    assert_eq!(other.digest, bed.spec(1).digest);
    client.create(SandboxSpec { template: other.id.clone(), ..bed.spec(1) });
    assert_eq!(client.ask(Request::RemoveTemplate { template: other.id.clone() }), Answer::Done);
    assert_eq!(client.probe(&id(1), &["uid"]), uid());
    let again = client.ask(Request::Create(Box::new(SandboxSpec { template: other.id, ..bed.spec(2) })));
    assert!(matches!(again, Answer::Failed(failure) if failure.kind == ErrorKind::NotFound));
}

fn usage(bed: &mut Bed) {
    let client = Client::connect();
    client.create(bed.spec(1));
    let Answer::Usage(usage) = client.ask(Request::Usage { sandbox: id(1) }) else { panic!() };
    assert!(usage.memory_used > 0 && usage.oom_kills == 0, "{usage:?}");
    let answer = client.probe(&id(1), &["disk"]).output;
    assert!(answer.contains("EDQUOT") || answer.contains("ENOSPC"), "{answer}");
    assert_eq!(client.probe(&id(1), &["uid"]), uid());
}

fn sealed(bed: &mut Bed) {
    let tree = Path::new("node/data/templates").join(bed.spec(1).digest.hex());
    assert!(tree.join("probe").exists());
    assert!(fs::write(tree.join("new"), "").is_err());
    assert!(fs::remove_file(tree.join("probe")).is_err());
}

fn second_node(bed: &mut Bed) {
    let client = Client::connect();
    client.create(bed.spec(1));
    assert_eq!(bed.second_node(), Some(3));
    assert_eq!(client.probe(&id(1), &["uid"]), uid());
    Client::connect();
}

fn doctor(_bed: &mut Bed) {
    let Answer::Report { checks } = Client::connect().ask(Request::Doctor) else { panic!() };
    for check in &checks {
        println!("  {:?} {}: {}", check.verdict, check.name, check.detail);
        assert!(check.remedy.is_some() || check.verdict == cofferdam_proto::node::Verdict::Pass, "{check:?}");
    }
    assert!(checks.len() >= 6);
}
