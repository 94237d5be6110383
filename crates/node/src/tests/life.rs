//! One sandbox at a time: made, found, changed, ended.

use crate::isolation::Slot;
use crate::pool::PoolSize;
use crate::testbed::{Bed, Fault, id};
use cofferdam_core::{ErrorKind, LimitHit, LimitKind, Resources, State};
use cofferdam_proto::node::{Answer, EndReason, Request};
use std::time::Duration;
use tokio::time::Instant;

const NO_POOL: PoolSize = PoolSize { parked: 0, warm: 0 };

fn slot(number: u32) -> Slot {
    Slot::new(number).unwrap()
}

#[tokio::test(start_paused = true)]
async fn what_is_created_runs_and_what_is_killed_is_gone() {
    let bed = Bed::new(NO_POOL).await;
    let record = bed.create(bed.spec(1)).await.unwrap();
    assert_eq!((record.state, record.id), (State::Running, id(1)));
    assert_eq!(bed.left(), (1, 1));
    bed.kill(1).await.unwrap();
    assert_eq!(bed.left(), (0, 0));
    assert_eq!(bed.list().await, []);
    assert_eq!(bed.events(), []);
}

#[tokio::test(start_paused = true)]
async fn creating_twice_makes_one_sandbox_even_at_the_same_time() {
    let bed = Bed::new(NO_POOL).await;
    let (first, second) = tokio::join!(bed.create(bed.spec(1)), bed.create(bed.spec(1)));
    assert_eq!(first.unwrap(), second.unwrap());
    bed.create(bed.spec(1)).await.unwrap();
    assert_eq!(bed.driver.made(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_sandbox_that_ended_cannot_be_brought_back_by_a_late_request() {
    let bed = Bed::new(NO_POOL).await;
    bed.create(bed.spec(1)).await.unwrap();
    bed.kill(1).await.unwrap();
    assert_eq!(bed.create(bed.spec(1)).await.unwrap_err().kind, ErrorKind::Conflict);
    // The kill overtook the create.
    bed.kill(2).await.unwrap();
    assert_eq!(bed.create(bed.spec(2)).await.unwrap_err().kind, ErrorKind::Conflict);
    assert_eq!(bed.left(), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn the_agent_learns_who_it_is_and_the_record_holds_no_environment() {
    let bed = Bed::new(NO_POOL).await;
    bed.create(bed.spec(1)).await.unwrap();
    let configured = bed.guest.configured.lock().unwrap()[0].1.clone();
    assert_eq!(configured.env["SECRET"], "hush");
    assert_eq!((configured.hostname.as_str(), configured.default_user.as_str()), ("box", "root"));
    assert!(configured.files["/etc/hosts"].contains("127.0.1.1\tbox"));
    assert_eq!(configured.files["/.note"], "hi");
    let record = std::fs::read_to_string(bed.dir.path().join("slots/0.json")).unwrap();
    assert!(record.contains("\"id\":\"i1\"") && !record.contains("hush"), "{record}");
}

#[tokio::test(start_paused = true)]
async fn a_failing_step_is_undone_and_the_sandbox_may_be_asked_for_again() {
    for fault in [Fault::Park, Fault::Fill, Fault::Hostname] {
        let bed = Bed::new(NO_POOL).await;
        bed.driver.fail_next(&[fault]);
        let failure = bed.create(bed.spec(1)).await.unwrap_err();
        assert_eq!(failure.kind, ErrorKind::Internal, "{fault:?}");
        bed.eventually("undone", |bed| bed.left() == (0, 0)).await;
        bed.eventually("forgotten", |bed| bed.node().service.registry.count() == 0).await;
        assert_eq!(bed.create(bed.spec(1)).await.unwrap().state, State::Running, "{fault:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_kill_while_it_is_made_wins() {
    let bed = Bed::new(NO_POOL).await;
    bed.driver.fail_next(&[Fault::SlowFill]);
    let create = bed.create(bed.spec(1));
    let kill = async {
        tokio::time::sleep(Duration::from_millis(50)).await;
        bed.kill(1).await
    };
    let (created, killed) = tokio::join!(create, kill);
    assert_eq!(created.unwrap_err().kind, ErrorKind::Conflict);
    killed.unwrap();
    assert_eq!(bed.left(), (0, 0));
    assert_eq!(bed.create(bed.spec(1)).await.unwrap_err().kind, ErrorKind::Conflict);
}

#[tokio::test(start_paused = true)]
async fn a_kill_does_not_wait_for_an_agent_that_is_silent() {
    let bed = Bed::new(NO_POOL).await;
    bed.guest.silent.store(true, std::sync::atomic::Ordering::SeqCst);
    let create = bed.create(bed.spec(1));
    let kill = async {
        tokio::time::sleep(Duration::from_millis(50)).await;
        let start = Instant::now();
        bed.kill(1).await.unwrap();
        start.elapsed()
    };
    let (created, took) = tokio::join!(create, kill);
    assert!(created.is_err());
    assert!(took < Duration::from_secs(2), "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn a_deadline_ends_the_sandbox_without_any_server() {
    let bed = Bed::new(NO_POOL).await;
    bed.create(bed.spec(1)).await.unwrap();
    tokio::time::sleep(Duration::from_secs(299)).await;
    assert_eq!(bed.list().await.len(), 1);
    tokio::time::sleep(Duration::from_millis(1100)).await;
    assert_eq!(bed.left(), (0, 0));
    assert_eq!(bed.events(), [(id(1), EndReason::Expired)]);
}

#[tokio::test(start_paused = true)]
async fn a_clock_that_is_set_forward_is_noticed() {
    let bed = Bed::new(NO_POOL).await;
    bed.create(bed.spec(1)).await.unwrap();
    bed.clock.jump(Duration::from_secs(3600));
    tokio::time::sleep(Duration::from_secs(16)).await;
    assert_eq!(bed.left(), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn a_moved_deadline_counts_and_is_recorded() {
    let bed = Bed::new(NO_POOL).await;
    bed.create(bed.spec(1)).await.unwrap();
    let expires_at = bed.clock.after(Duration::from_secs(1000));
    let request = Request::SetDeadline { sandbox: id(1), expires_at };
    let Answer::Sandbox(record) = bed.ask(request).await.unwrap() else { panic!() };
    assert_eq!(record.expires_at, expires_at);
    tokio::time::sleep(Duration::from_secs(999)).await;
    assert_eq!(bed.list().await.len(), 1);
    let record = std::fs::read_to_string(bed.dir.path().join("slots/0.json")).unwrap();
    assert!(record.contains(&expires_at.as_micros().to_string()), "{record}");
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert_eq!(bed.left(), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn a_dead_agent_is_an_end_with_a_reason() {
    let bed = Bed::new(NO_POOL).await;
    for (number, oom_kills) in [(1, 0), (2, 3)] {
        bed.create(bed.spec(number)).await.unwrap();
        bed.driver.die(slot(0), oom_kills);
        bed.eventually("cleaned up", |bed| bed.left() == (0, 0)).await;
    }
    let hit = LimitHit { limit: LimitKind::Memory, configured: 512 << 20, observed: 7 };
    assert_eq!(bed.events(), [(id(1), EndReason::AgentDied), (id(2), EndReason::Limit { hit })]);
    assert_eq!(bed.ask(Request::Usage { sandbox: id(1) }).await.unwrap_err().kind, ErrorKind::NotFound);
}

#[tokio::test(start_paused = true)]
async fn what_cannot_be_destroyed_at_once_is_tried_until_it_is() {
    let bed = Bed::new(NO_POOL).await;
    bed.create(bed.spec(1)).await.unwrap();
    bed.driver.fail_next(&[Fault::Destroy; 5]);
    bed.kill(1).await.unwrap();
    assert_eq!(bed.left(), (0, 0));
    assert_eq!(bed.node().service.host.slots.free(), 16 + 64);
}

#[tokio::test(start_paused = true)]
async fn the_number_of_sandboxes_is_bounded_and_kills_make_room() {
    let bed = Bed::with_max(NO_POOL, 2).await;
    bed.create(bed.spec(1)).await.unwrap();
    bed.create(bed.spec(2)).await.unwrap();
    assert_eq!(bed.create(bed.spec(3)).await.unwrap_err().kind, ErrorKind::ResourceExhausted);
    bed.kill(1).await.unwrap();
    bed.create(bed.spec(3)).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn absurd_wishes_are_refused_before_anything_is_made() {
    let bed = Bed::new(NO_POOL).await;
    let good = bed.spec(1);
    let absurd = Resources { memory_mib: 1, ..Resources::default() };
    let mut specs = vec![cofferdam_core::SandboxSpec { resources: absurd, ..good.clone() }];
    for hostname in ["", "a b", "-\n", &"x".repeat(64)] {
        specs.push(cofferdam_core::SandboxSpec { hostname: hostname.into(), ..good.clone() });
    }
    for (name, value) in [("", "x"), ("A=B", "x"), ("A", "\0")] {
        let env = [(name.to_owned(), value.to_owned())].into();
        specs.push(cofferdam_core::SandboxSpec { env, ..good.clone() });
    }
    for spec in specs {
        assert_eq!(bed.create(spec.clone()).await.unwrap_err().kind, ErrorKind::InvalidArgument, "{spec:?}");
    }
    let unknown = cofferdam_core::SandboxSpec { template: "nothere".parse().unwrap(), ..good.clone() };
    assert_eq!(bed.create(unknown).await.unwrap_err().kind, ErrorKind::NotFound);
    let digest = cofferdam_core::Digest::from_sha256([1; 32]);
    let other_build = cofferdam_core::SandboxSpec { digest, ..good };
    assert_eq!(bed.create(other_build).await.unwrap_err().kind, ErrorKind::NotFound);
    assert_eq!(bed.driver.made(), 0);
}

#[tokio::test(start_paused = true)]
async fn pages_of_the_list_are_complete_and_in_order() {
    let bed = Bed::with_max(NO_POOL, 450).await;
    let creates = (0..450).map(|number| bed.create(bed.spec(number)));
    assert!(futures::future::join_all(creates).await.iter().all(Result::is_ok));
    let (mut after, mut seen) = (None, Vec::new());
    loop {
        let Answer::Sandboxes { sandboxes } = bed.ask(Request::List { after }).await.unwrap() else {
            panic!()
        };
        let Some(last) = sandboxes.last() else { break };
        assert!(serde_json::to_vec(&sandboxes).unwrap().len() < 100 * 1024);
        after = Some(last.id.clone());
        seen.extend(sandboxes.into_iter().map(|record| record.id));
    }
    assert_eq!(seen.len(), 450);
    assert!(seen.is_sorted());
}
