//! What is made ahead of need.

use crate::isolation::Slot;
use crate::pool::PoolSize;
use crate::testbed::{Bed, Fault, import};
use cofferdam_core::{Resources, SandboxSpec};
use cofferdam_proto::node::{Answer, Request};

const SIZE: PoolSize = PoolSize { parked: 2, warm: 3 };

async fn full(size: PoolSize) -> Bed {
    let bed = Bed::new(size).await;
    bed.eventually("full", |bed| bed.node().service.pool.counts() == (size.parked, size.warm)).await;
    bed
}

#[tokio::test(start_paused = true)]
async fn it_fills_to_its_size_and_never_overshoots() {
    let bed = full(SIZE).await;
    assert_eq!(bed.left(), (5, 5));
    assert_eq!(bed.driver.most_slots(), 5);
    tokio::time::sleep(std::time::Duration::from_secs(60)).await;
    assert_eq!(bed.driver.made(), 5);
    let Answer::Capacity(capacity) = bed.ask(Request::Capacity).await.unwrap() else { panic!() };
    assert_eq!((capacity.parked, capacity.warm, capacity.sandboxes), (2, 3, 0));
}

#[tokio::test(start_paused = true)]
async fn a_create_takes_a_warm_sandbox_then_a_shell_then_makes_one() {
    let bed = full(SIZE).await;
    // The pool stands back while somebody waits, so the order shows.
    let _busy = bed.node().service.host.busy();
    for number in 0..6 {
        bed.create(bed.spec(number)).await.unwrap();
        let expected = [(2, 2), (2, 1), (2, 0), (1, 0), (0, 0), (0, 0)][number];
        assert_eq!(bed.node().service.pool.counts(), expected, "{number}");
    }
    assert_eq!(bed.driver.made(), 6);
}

#[tokio::test(start_paused = true)]
async fn it_fills_up_again_after_the_rush() {
    let bed = full(SIZE).await;
    let creates = (0..10).map(|number| bed.create(bed.spec(number)));
    assert!(futures::future::join_all(creates).await.iter().all(Result::is_ok));
    bed.eventually("full again", |bed| bed.node().service.pool.counts() == (2, 3)).await;
    assert_eq!(bed.left(), (15, 15));
}

#[tokio::test(start_paused = true)]
async fn a_warm_sandbox_gets_the_limits_that_were_asked_for() {
    let bed = full(SIZE).await;
    let resources = Resources { memory_mib: 333, ..Resources::default() };
    let _busy = bed.node().service.host.busy();
    bed.create(SandboxSpec { resources, ..bed.spec(1) }).await.unwrap();
    let slot = bed.guest.configured.lock().unwrap()[0].0;
    assert_eq!(bed.driver.resources(slot), Some(resources));
    assert_eq!(bed.driver.made(), 5);
}

#[tokio::test(start_paused = true)]
async fn an_item_that_died_while_it_waited_is_thrown_away_and_replaced() {
    let bed = full(SIZE).await;
    for number in 0..5 {
        bed.driver.die(Slot::new(number).unwrap(), 0);
    }
    bed.eventually("replaced", |bed| bed.driver.made() == 10).await;
    bed.eventually("full", |bed| bed.node().service.pool.counts() == (2, 3) && bed.left() == (5, 5)).await;
    bed.create(bed.spec(1)).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn an_unusable_item_costs_another_try_and_no_error() {
    let bed = full(SIZE).await;
    bed.driver.fail_next(&[Fault::Hostname, Fault::Fill]);
    bed.create(bed.spec(1)).await.unwrap();
    bed.eventually("full", |bed| bed.node().service.pool.counts() == (2, 3) && bed.left() == (6, 6)).await;
}

#[tokio::test(start_paused = true)]
async fn a_new_build_of_the_template_replaces_what_is_warm_and_the_old_tree_goes() {
    let mut bed = full(SIZE).await;
    let old = bed.template.digest.clone();
    bed.template = import(&bed.node().service.host.templates, "base", "second").await;
    bed.node().service.pool.follow_templates().await;
    bed.eventually("full of the new build", |bed| bed.node().service.pool.counts() == (2, 3)).await;
    bed.eventually("the old tree is gone", |bed| !bed.dir.path().join("trees").join(old.hex()).exists())
        .await;
    let _busy = bed.node().service.host.busy();
    bed.create(bed.spec(1)).await.unwrap();
    assert_eq!(bed.driver.made(), 8);
}

#[tokio::test(start_paused = true)]
async fn a_removed_template_stays_on_disk_until_its_last_sandbox_ends() {
    let bed = full(SIZE).await;
    bed.create(bed.spec(1)).await.unwrap();
    let tree = bed.dir.path().join("trees").join(bed.template.digest.hex());
    bed.ask(Request::RemoveTemplate { template: bed.template.id.clone() }).await.unwrap();
    assert!(tree.exists());
    assert_eq!(bed.create(bed.spec(2)).await.unwrap_err().kind, cofferdam_core::ErrorKind::NotFound);
    bed.kill(1).await.unwrap();
    bed.eventually("the tree is gone", |_| !tree.exists()).await;
    bed.eventually("only shells wait", |bed| bed.left() == (2, 2)).await;
}

#[tokio::test(start_paused = true)]
async fn a_failing_host_is_tried_again_with_pauses_and_leaks_nothing() {
    let bed = Bed::new(PoolSize { parked: 1, warm: 1 }).await;
    bed.driver.fail_next(&[Fault::Park; 6]);
    bed.eventually("full", |bed| bed.node().service.pool.counts() == (1, 1)).await;
    assert_eq!(bed.left(), (2, 2));
}

#[tokio::test(start_paused = true)]
async fn a_node_that_stops_returns_its_pool_and_leaves_its_sandboxes() {
    let mut bed = full(SIZE).await;
    bed.create(bed.spec(1)).await.unwrap();
    let node = bed.node.take().unwrap();
    node.stop(&bed.dir.path().join("none.sock")).await;
    assert_eq!(bed.left(), (1, 1));
}
