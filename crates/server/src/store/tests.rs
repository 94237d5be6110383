//! The store as the use cases see it.

use super::*;
use cofferdam_core::{Resources, SandboxId, State, TenantId, Timestamp};
use cofferdam_policy::{Quota, QuotaKind};
use proptest::prelude::*;

const NOW: Timestamp = Timestamp::MAX;

async fn store(dir: &std::path::Path, quota: Quota) -> (Store, TenantId) {
    let store = Store::open(&dir.join("store.db")).unwrap();
    let key = InitialKey { hash: [9; 32], masked: "e2b_0000…".to_owned() };
    store.bootstrap(key, quota, NOW, [[1; 20], [2; 20]]).await.unwrap();
    let tenant = store.key_by_hash([9; 32]).await.unwrap().unwrap().tenant;
    (store, tenant)
}

fn row(tenant: &TenantId, id: &str) -> SandboxRow {
    SandboxRow {
        id: id.parse().unwrap(),
        tenant: tenant.clone(),
        template_id: "t1".parse().unwrap(),
        template_name: "base".to_owned(),
        template_digest: "d".to_owned(),
        default_user: "user".to_owned(),
        default_workdir: String::new(),
        kill_wanted: false,
        observed: State::Creating,
        resources: Resources::default(),
        env: [("A".to_owned(), "ü\0\"".to_owned())].into(),
        metadata: [("k".to_owned(), "v".to_owned())].into(),
        options: serde_json::json!({ "x": [1, null] }),
        access_token: Some(cofferdam_core::secret::Secret::new("token".to_owned())),
        traffic_token: None,
        started_at: Timestamp::from_micros(1_000_001),
        expires_at: Timestamp::from_micros(2_000_002),
        end_reason: None,
        journal_after: 7,
    }
}

fn id(text: &str) -> SandboxId {
    text.parse().unwrap()
}

#[tokio::test]
async fn a_row_comes_back_as_it_was_after_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    let (first, tenant) = store(dir.path(), Quota::default()).await;
    let row = row(&tenant, "i1");
    assert_eq!(first.insert_sandbox(row.clone(), None).await.unwrap(), Ok(Inserted::New));
    drop(first);
    let (second, again) = store(dir.path(), Quota::default()).await;
    assert_eq!(again, tenant);
    let back = second.sandbox(id("i1")).await.unwrap().unwrap();
    assert_eq!(format!("{back:?}"), format!("{row:?}"));
    assert_eq!(back.access_token.unwrap().expose(), "token");
}

#[tokio::test]
async fn a_second_first_start_makes_no_second_key() {
    let dir = tempfile::tempdir().unwrap();
    let (store, tenant) = store(dir.path(), Quota::default()).await;
    let other = InitialKey { hash: [8; 32], masked: String::new() };
    let made = store.bootstrap(other, Quota::default(), NOW, [[3; 20], [4; 20]]).await.unwrap();
    assert!(made.is_none());
    assert_eq!(store.keys(tenant).await.unwrap().len(), 1);
    assert_eq!(store.tenants().await.unwrap().len(), 1);
}

#[tokio::test]
async fn a_database_of_a_newer_version_is_left_alone() {
    let dir = tempfile::tempdir().unwrap();
    drop(store(dir.path(), Quota::default()).await);
    let path = dir.path().join("store.db");
    Connection::open(&path).unwrap().pragma_update(None, "user_version", 99).unwrap();
    assert!(matches!(Store::open(&path), Err(StoreError::Version { found: 99, .. })));
}

#[tokio::test]
async fn a_write_that_fails_takes_no_other_of_its_group_along() {
    let dir = tempfile::tempdir().unwrap();
    let (store, tenant) = store(dir.path(), Quota::default()).await;
    let unknown: TenantId = "nobody".parse().unwrap();
    let inserts = (0..30).map(|number| {
        let tenant = if number % 3 == 0 { &unknown } else { &tenant };
        store.insert_sandbox(row(tenant, &format!("i{number}")), None)
    });
    let results = futures::future::join_all(inserts).await;
    assert_eq!(results.iter().filter(|result| result.is_ok()).count(), 20);
    assert_eq!(store.unended_sandboxes().await.unwrap().len(), 20);
}

#[tokio::test]
async fn each_number_of_a_quota_counts_and_what_ended_does_not() {
    let quota = Quota { sandboxes_max: 10, cpu_millis_max: 5000, memory_mib_max: 100_000 };
    let dir = tempfile::tempdir().unwrap();
    let (store, tenant) = store(dir.path(), quota).await;
    for name in ["i1", "i2"] {
        assert_eq!(store.insert_sandbox(row(&tenant, name), None).await.unwrap(), Ok(Inserted::New));
    }
    let refused = store.insert_sandbox(row(&tenant, "i3"), None).await.unwrap();
    assert!(matches!(refused, Err(Refused::Quota(exceeded)) if exceeded.kind == QuotaKind::CpuMillis));
    assert!(store.sandbox_ended(id("i1"), State::Failed, "lost".to_owned(), NOW).await.unwrap());
    assert!(!store.sandbox_ended(id("i1"), State::Killed, "killed".to_owned(), NOW).await.unwrap());
    assert_eq!(store.insert_sandbox(row(&tenant, "i3"), None).await.unwrap(), Ok(Inserted::New));
    assert!(store.set_quota(tenant.clone(), Quota { sandboxes_max: 2, ..Quota::default() }).await.unwrap());
    let refused = store.insert_sandbox(row(&tenant, "i4"), None).await.unwrap();
    assert!(matches!(refused, Err(Refused::Quota(exceeded)) if exceeded.kind == QuotaKind::Sandboxes));
}

#[tokio::test]
async fn what_is_to_be_killed_does_not_start_and_ends_as_killed() {
    let dir = tempfile::tempdir().unwrap();
    let (store, tenant) = store(dir.path(), Quota::default()).await;
    store.insert_sandbox(row(&tenant, "i1"), None).await.unwrap().unwrap();
    assert!(store.want_killed(id("i1")).await.unwrap());
    assert!(!store.sandbox_started(id("i1"), NOW).await.unwrap());
    assert!(store.set_deadline(id("i1"), NOW, false).await.unwrap().is_none());
    assert!(store.sandbox_ended(id("i1"), State::Failed, "lost".to_owned(), NOW).await.unwrap());
    let row = store.sandbox(id("i1")).await.unwrap().unwrap();
    assert_eq!((row.observed, row.end_reason.as_deref()), (State::Killed, Some("killed")));
    assert!(!store.want_killed(id("i1")).await.unwrap());
}

#[tokio::test]
async fn ended_sandboxes_are_forgotten_after_a_while_and_others_are_not() {
    let dir = tempfile::tempdir().unwrap();
    let (store, tenant) = store(dir.path(), Quota::default()).await;
    for (name, ended) in [("i1", 10), ("i2", 20)] {
        store.insert_sandbox(row(&tenant, name), None).await.unwrap().unwrap();
        let at = Timestamp::from_micros(ended);
        store.sandbox_ended(id(name), State::Killed, "killed".to_owned(), at).await.unwrap();
    }
    store.insert_sandbox(row(&tenant, "i3"), None).await.unwrap().unwrap();
    store.forget_before(Timestamp::from_micros(15), NOW).await.unwrap();
    assert!(store.sandbox(id("i1")).await.unwrap().is_none());
    assert!(store.sandbox(id("i2")).await.unwrap().is_some());
    assert!(store.sandbox(id("i3")).await.unwrap().is_some());
    store.checkpoint().await.unwrap();
}

/// A create that was cut off by the end of a role, and asked for again with its key.
#[tokio::test]
async fn a_key_answers_with_a_sandbox_that_ran_and_never_with_one_that_did_not() {
    let dir = tempfile::tempdir().unwrap();
    let (store, tenant) = store(dir.path(), Quota::default()).await;
    let claim = || Some(IdempotencyClaim { key: "k".to_owned(), body_hash: [1; 32], expires_at: NOW });
    let insert = |text: &str| store.insert_sandbox(row(&tenant, text), claim());
    assert_eq!(insert("i1").await.unwrap(), Ok(Inserted::New));
    assert_eq!(insert("i2").await.unwrap(), Err(Refused::InFlight));
    assert!(store.sandbox_ended(id("i1"), State::Failed, "lost".to_owned(), NOW).await.unwrap());
    assert_eq!(insert("i3").await.unwrap(), Ok(Inserted::New));
    assert!(store.sandbox_started(id("i3"), NOW).await.unwrap());
    assert!(store.sandbox_ended(id("i3"), State::Killed, "killed".to_owned(), NOW).await.unwrap());
    assert_eq!(insert("i4").await.unwrap(), Ok(Inserted::Earlier(id("i3"))));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn what_is_in_use_is_the_sum_of_what_has_not_ended(steps in prop::collection::vec((0_u8..12, 0_u8..3), 0..40)) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let dir = tempfile::tempdir().unwrap();
            let (store, tenant) = store(dir.path(), Quota::default()).await;
            for (name, what) in steps {
                let name = format!("i{name}");
                match what {
                    // An insert of an id that exists fails, and must count for nothing.
                    0 => drop(store.insert_sandbox(row(&tenant, &name), None).await),
                    1 => drop(store.sandbox_ended(id(&name), State::Killed, "killed".to_owned(), NOW).await.unwrap()),
                    _ => store.forget_before(NOW, NOW).await.unwrap(),
                }
            }
            let same = store.read(|connection| {
                let sql = "SELECT (SELECT count(*) || ' ' || coalesce(sum(memory_mib), 0) FROM sandboxes
                               WHERE ended_us IS NULL)
                               = coalesce((SELECT sandboxes || ' ' || memory_mib FROM in_use), '0 0')";
                Ok(connection.query_row(sql, [], |row| row.get::<_, bool>(0))?)
            });
            assert!(same.await.unwrap());
        });
    }
}
