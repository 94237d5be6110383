//! What a node finds that another one left.

use crate::isolation::Slot;
use crate::pool::PoolSize;
use crate::testbed::{Bed, Fault, id};
use cofferdam_core::State;
use cofferdam_proto::node::{EndReason, Request};
use std::time::Duration;

const SIZE: PoolSize = PoolSize { parked: 1, warm: 1 };

#[tokio::test(start_paused = true)]
async fn sandboxes_outlive_the_node_and_the_pool_does_not() {
    let mut bed = Bed::new(SIZE).await;
    bed.eventually("full", |bed| bed.node().service.pool.counts() == (1, 1)).await;
    let before = bed.create(bed.spec(1)).await.unwrap();
    bed.eventually("full", |bed| bed.node().service.pool.counts() == (1, 1)).await;
    bed.crash().await;
    bed.start();
    assert_eq!(bed.list().await, [before]);
    bed.eventually("a fresh pool", |bed| bed.node().service.pool.counts() == (1, 1)).await;
    bed.eventually("the old pool is gone", |bed| bed.left() == (3, 3)).await;
    bed.kill(1).await.unwrap();
    bed.eventually("only the pool is left", |bed| bed.left() == (2, 2)).await;
}

#[tokio::test(start_paused = true)]
async fn an_adopted_sandbox_keeps_its_deadline_and_its_tree() {
    let mut bed = Bed::new(PoolSize { parked: 0, warm: 0 }).await;
    bed.create(bed.spec(1)).await.unwrap();
    bed.ask(Request::RemoveTemplate { template: bed.template.id.clone() }).await.unwrap();
    bed.crash().await;
    bed.start();
    let tree = bed.dir.path().join("trees").join(bed.template.digest.hex());
    assert!(tree.exists());
    tokio::time::sleep(Duration::from_secs(301)).await;
    assert_eq!(bed.left(), (0, 0));
    assert_eq!(bed.events(), [(id(1), EndReason::Expired)]);
    bed.eventually("the tree is gone", |_| !tree.exists()).await;
}

#[tokio::test(start_paused = true)]
async fn what_died_meanwhile_is_cleared_and_reported_lost() {
    let mut bed = Bed::new(PoolSize { parked: 0, warm: 0 }).await;
    bed.create(bed.spec(1)).await.unwrap();
    bed.create(bed.spec(2)).await.unwrap();
    bed.crash().await;
    bed.driver.die(Slot::new(0).unwrap(), 0);
    bed.start();
    assert_eq!(bed.events(), [(id(1), EndReason::Lost)]);
    assert_eq!(bed.list().await.iter().map(|record| record.id.clone()).collect::<Vec<_>>(), [id(2)]);
    bed.eventually("cleared", |bed| bed.left() == (1, 1)).await;
}

#[tokio::test(start_paused = true)]
async fn what_was_half_made_when_the_node_died_is_cleared() {
    let mut bed = Bed::new(PoolSize { parked: 0, warm: 0 }).await;
    bed.driver.fail_next(&[Fault::SlowFill]);
    {
        let create = bed.create(bed.spec(1));
        assert!(tokio::time::timeout(Duration::from_millis(100), create).await.is_err());
    }
    assert_eq!(bed.left(), (1, 1));
    bed.crash().await;
    bed.start();
    bed.eventually("cleared", |bed| bed.left() == (0, 0)).await;
    assert_eq!(bed.list().await, []);
    // The server asks again, as it does when an answer never came.
    assert_eq!(bed.create(bed.spec(1)).await.unwrap().state, State::Running);
}

#[tokio::test(start_paused = true)]
async fn a_record_that_cannot_be_read_costs_only_its_own_slot() {
    let mut bed = Bed::new(PoolSize { parked: 0, warm: 0 }).await;
    bed.create(bed.spec(1)).await.unwrap();
    bed.create(bed.spec(2)).await.unwrap();
    bed.crash().await;
    std::fs::write(bed.dir.path().join("slots/0.json"), "{\"slot\":").unwrap();
    bed.start();
    bed.eventually("cleared", |bed| bed.left() == (1, 1)).await;
    assert_eq!(bed.list().await.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_sandbox_without_a_record_is_cleared() {
    let mut bed = Bed::new(PoolSize { parked: 0, warm: 0 }).await;
    bed.create(bed.spec(1)).await.unwrap();
    bed.crash().await;
    std::fs::remove_file(bed.dir.path().join("slots/0.json")).unwrap();
    bed.start();
    bed.create(bed.spec(2)).await.unwrap();
    bed.eventually("cleared", |bed| bed.left() == (1, 1)).await;
}

#[tokio::test(start_paused = true)]
async fn a_slot_that_is_still_being_cleared_is_not_given_out() {
    let mut bed = Bed::new(PoolSize { parked: 0, warm: 0 }).await;
    bed.create(bed.spec(1)).await.unwrap();
    bed.crash().await;
    bed.driver.die(Slot::new(0).unwrap(), 0);
    bed.driver.fail_next(&[Fault::Destroy; 3]);
    bed.start();
    // The driver of the test refuses a slot that is not empty.
    bed.create(bed.spec(2)).await.unwrap();
    assert_eq!(bed.list().await[0].id, id(2));
    bed.eventually("cleared", |bed| bed.left() == (1, 1)).await;
}
