//! Nodes that die and nodes that follow them.

use crate::Test;
use crate::bed::{Bed, NO_POOL, SIZES, eventually, id, left};
use crate::client::Client;
use cofferdam_proto::node::{EndReason, Request};
use std::time::Duration;

pub(crate) const TESTS: &[Test] = &[
    ("sandboxes_outlive_a_node_that_is_killed", outlive),
    ("a_node_that_stops_leaves_its_sandboxes_and_nothing_of_its_pool", stop),
    ("what_died_while_there_was_no_node_is_reported_lost", lost),
    ("nodes_killed_at_any_moment_lose_and_leave_nothing", any_moment),
];

fn outlive(bed: &mut Bed) {
    let before = {
        let client = Client::connect();
        client.create(bed.spec(1));
        client.create(bed.spec(2));
        client.list()
    };
    bed.kill_node();
    bed.start(SIZES);
    let client = Client::connect();
    assert_eq!(client.list(), before);
    for number in [1, 2] {
        assert_eq!(client.probe(&id(number), &["cat", "/etc/hostname"]).output, format!("box{number}\n"));
    }
    client.create(bed.spec(3));
    client.kill(&id(1));
    assert_eq!(client.list().len(), 2);
}

fn stop(bed: &mut Bed) {
    Client::connect().create(bed.spec(1));
    bed.stop_node();
    // Its record, subvolume and run directory, and at least one cgroup.
    assert!(left().len() >= 4);
    bed.start(NO_POOL);
    let client = Client::connect();
    client.kill(&id(1));
    assert_eq!(left().len(), 0, "{:?}", left());
}

fn lost(bed: &mut Bed) {
    Client::connect().create(bed.spec(1));
    bed.kill_node();
    let record = std::fs::read_dir("node/slots").unwrap().find_map(|entry| {
        let text = std::fs::read_to_string(entry.unwrap().path()).unwrap();
        text.contains("\"i1\"").then_some(text)
    });
    let record: serde_json::Value = serde_json::from_str(&record.unwrap()).unwrap();
    let pid = u32::try_from(record["claim"]["process"]["pid"].as_u64().unwrap()).unwrap();
    let process = cofferdam_sys::pidfd::open(pid).unwrap();
    cofferdam_sys::pidfd::kill(&process).unwrap();
    assert!(cofferdam_sys::pidfd::wait_end(&process, Duration::from_secs(10)).unwrap());
    // The first to connect hears it.
    bed.start_quietly(NO_POOL);
    let client = Client::wait();
    assert_eq!(client.ended(), (id(1), EndReason::Lost));
    assert_eq!(client.list(), []);
    eventually("cleared", || left().is_empty());
}

fn any_moment(bed: &mut Bed) {
    let mut expected = 0;
    for round in 0..12_usize {
        let client = Client::connect();
        client.create(bed.spec(round * 10));
        expected += 1;
        // Answers to these never come.
        for extra in 1..4 {
            client.send_only(Request::Create(Box::new(bed.spec(round * 10 + extra))));
        }
        std::thread::sleep(Duration::from_millis((round as u64 * 7) % 23));
        bed.kill_node();
        bed.start(SIZES);
        let client = Client::connect();
        for record in client.list() {
            client.probe(&record.id, &["uid"]);
            if !record.id.as_str().ends_with('0') {
                client.kill(&record.id);
            }
        }
        assert_eq!(client.list().len(), expected);
    }
}
