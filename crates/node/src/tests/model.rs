//! Whatever clients, agents, the clock and crashes do in whatever order: the node's list agrees with a simple model, and
//! at the end nothing is left.

use crate::isolation::Slot;
use crate::pool::PoolSize;
use crate::testbed::{Bed, Fault, id};
use cofferdam_core::{SandboxId, SandboxSpec, State};
use cofferdam_proto::node::Request;
use proptest::prelude::*;
use std::collections::BTreeSet;
use std::time::Duration;

const NUMBERS: usize = 6;

#[derive(Debug, Clone)]
enum Act {
    Create { number: usize, seconds: u64 },
    Kill(usize),
    CreateAndKill(usize),
    SetDeadline { number: usize, seconds: u64 },
    Pass { seconds: u64 },
    Die(u32),
    Fail(u8),
    Restart,
    Use(usize),
}

fn act() -> impl Strategy<Value = Act> {
    let number = 0..NUMBERS;
    prop_oneof![
        4 => (number.clone(), 1..600_u64).prop_map(|(number, seconds)| Act::Create { number, seconds }),
        2 => number.clone().prop_map(Act::Kill),
        1 => number.clone().prop_map(Act::CreateAndKill),
        1 => (number.clone(), 0..600_u64).prop_map(|(number, seconds)| Act::SetDeadline { number, seconds }),
        2 => (1..400_u64).prop_map(|seconds| Act::Pass { seconds }),
        1 => (0..12_u32).prop_map(Act::Die),
        1 => (0..4_u8).prop_map(Act::Fail),
        1 => Just(Act::Restart),
        1 => number.prop_map(Act::Use),
    ]
}

fn fault(number: u8) -> Fault {
    [Fault::Park, Fault::Fill, Fault::Hostname, Fault::Destroy][usize::from(number)]
}

async fn perform(bed: &mut Bed, act: &Act) {
    match *act {
        Act::Create { number, seconds } => {
            let expires_at = bed.clock.after(Duration::from_secs(seconds));
            let made = bed.create(SandboxSpec { expires_at, ..bed.spec(number) }).await;
            assert!(made.is_err() || made.is_ok_and(|record| record.state == State::Running));
        }
        Act::Kill(number) => bed.kill(number).await.unwrap(),
        Act::CreateAndKill(number) => {
            let (_either, killed) = tokio::join!(bed.create(bed.spec(number)), bed.kill(number));
            killed.unwrap();
        }
        Act::SetDeadline { number, seconds } => {
            let expires_at = bed.clock.after(Duration::from_secs(seconds));
            let _either = bed.ask(Request::SetDeadline { sandbox: id(number), expires_at }).await;
        }
        Act::Pass { seconds } => tokio::time::sleep(Duration::from_secs(seconds)).await,
        Act::Die(number) => bed.driver.die(Slot::new(number).unwrap(), 0),
        Act::Fail(number) => bed.driver.fail_next(&[fault(number)]),
        Act::Restart => {
            bed.crash().await;
            bed.start();
        }
        Act::Use(number) => {
            let _either = bed.ask(Request::Usage { sandbox: id(number) }).await;
        }
    }
}

/// What must hold between any two acts once the node has come to rest.
async fn agree(bed: &Bed, ever_killed: &BTreeSet<SandboxId>) {
    bed.eventually("at rest nothing is on its way", |bed| {
        bed.node().service.registry.list(None, NUMBERS).iter().all(|record| record.state == State::Running)
    })
    .await;
    let list = bed.list().await;
    let now = bed.clock.after(Duration::ZERO);
    for record in &list {
        assert!(record.expires_at >= now, "{record:?}");
        assert!(!ever_killed.contains(&record.id), "{} was brought back", record.id);
    }
    let (parked, warm) = bed.node().service.pool.counts();
    assert!(parked <= bed.sizes.pool.parked && warm <= bed.sizes.pool.warm);
    bed.eventually("every slot is accounted for", |bed| {
        let (parked, warm) = bed.node().service.pool.counts();
        let known = bed.node().service.registry.count() + parked + warm;
        bed.left() == (known as usize, known as usize)
    })
    .await;
}

async fn play(acts: Vec<Act>) {
    let mut bed = Bed::new(PoolSize { parked: 1, warm: 2 }).await;
    let mut killed = BTreeSet::new();
    for act in &acts {
        perform(&mut bed, act).await;
        match act {
            Act::Kill(number) | Act::CreateAndKill(number) => {
                killed.insert(id(*number));
            }
            // What ended is remembered by one node process only; the server remembers longer.
            Act::Restart => killed.clear(),
            _ => {}
        }
        agree(&bed, &killed).await;
    }
    for number in 0..NUMBERS {
        bed.kill(number).await.unwrap();
    }
    let node = bed.node.take().unwrap();
    node.stop(&bed.dir.path().join("none.sock")).await;
    assert_eq!(bed.left(), (0, 0));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, max_shrink_iters: 200, ..ProptestConfig::default() })]
    #[test]
    fn the_node_agrees_with_the_model_and_leaks_nothing(acts in prop::collection::vec(act(), 1..25)) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build();
        runtime.unwrap().block_on(play(acts));
    }
}
