//! The record as a whole: what was appended is read, continued after crashes, and every change to it is found.

use crate::{
    AppendError, Entry, Event, Fault, Journal, Query, Settings, bounded_argv, read, unfinished, verify,
};
use cofferdam_core::{SandboxId, TenantId, Timestamp};
use proptest::prelude::*;
use std::io::Write;
use std::path::{Path, PathBuf};

const NOW: i64 = 1_767_323_045_678_901;

fn open(dir: &Path, segment_bytes: u64) -> Journal {
    Journal::open(dir, Settings { segment_bytes }, Timestamp::from_micros(NOW)).unwrap()
}

fn entry(sandbox: &str) -> Entry {
    Entry {
        by: "key:k1".into(),
        tenant: Some("n1".parse().unwrap()),
        sandbox: Some(sandbox.parse().unwrap()),
        request: None,
    }
}

fn append(journal: &Journal, sandbox: &str, port: u16) -> u64 {
    let at = Timestamp::from_micros(NOW);
    journal.append(at, &entry(sandbox), &Event::PortDialled { port }).unwrap()
}

fn query(sandbox: &str, after: u64, limit: usize) -> Query {
    let tenant: TenantId = "n1".parse().unwrap();
    let sandbox: SandboxId = sandbox.parse().unwrap();
    Query { tenant, sandbox, after, limit }
}

fn segments(dir: &Path) -> Vec<PathBuf> {
    let mut paths: Vec<_> = std::fs::read_dir(dir).unwrap().map(|e| e.unwrap().path()).collect();
    paths.sort();
    paths
}

#[test]
fn a_line_has_one_fixed_form() {
    let dir = tempfile::tempdir().unwrap();
    append(&open(dir.path(), 1000), "i1", 80);
    let text = std::fs::read_to_string(&segments(dir.path())[0]).unwrap();
    let expected = format!(
        "{{\"seq\":1,\"prev\":\"{}\",\"at\":\"2026-01-02T03:04:05.678901Z\",\"by\":\"key:k1\",\"tenant\":\"n1\",\
         \"sandbox\":\"i1\",\"event\":\"port_dialled\",\"fields\":{{\"port\":80}}}}\n",
        "0".repeat(64)
    );
    assert_eq!(text, expected);
}

#[test]
fn the_record_goes_on_over_restarts_and_segments() {
    let dir = tempfile::tempdir().unwrap();
    for _ in 0..5 {
        let journal = open(dir.path(), 600);
        for port in 0..4 {
            append(&journal, "i1", port);
        }
        journal.sync().unwrap();
    }
    let verified = verify(dir.path()).unwrap();
    assert_eq!((verified.records, verified.torn_bytes), (20, 0));
    assert!(verified.segments > 3, "{verified:?}");
}

#[test]
fn a_line_torn_by_a_crash_is_cut_off_and_that_is_recorded() {
    let dir = tempfile::tempdir().unwrap();
    append(&open(dir.path(), 10_000), "i1", 80);
    let path = segments(dir.path()).remove(0);
    let mut file = std::fs::OpenOptions::new().append(true).open(&path).unwrap();
    file.write_all(b"{\"seq\":2,\"prev\":\"00").unwrap();
    assert_eq!(verify(dir.path()).unwrap().torn_bytes, 19);
    let journal = open(dir.path(), 10_000);
    assert_eq!(append(&journal, "i1", 81), 3);
    assert_eq!(verify(dir.path()).unwrap().records, 3);
    assert!(std::fs::read_to_string(path).unwrap().contains("\"dropped_bytes\":19"));
}

#[test]
fn an_empty_newest_segment_continues_the_one_before() {
    let dir = tempfile::tempdir().unwrap();
    append(&open(dir.path(), 1000), "i1", 80);
    std::fs::write(dir.path().join(format!("{:020}.jsonl", 2)), b"").unwrap();
    assert_eq!(append(&open(dir.path(), 1000), "i1", 81), 2);
    assert_eq!(verify(dir.path()).unwrap().records, 2);
}

#[test]
fn a_foreign_last_line_is_not_continued() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join(format!("{:020}.jsonl", 1)), b"hello\n").unwrap();
    let opened = Journal::open(dir.path(), Settings::default(), Timestamp::from_micros(NOW));
    assert!(opened.unwrap_err().to_string().contains("is no record"));
}

#[test]
fn reading_keeps_sandboxes_apart_and_goes_on_at_the_cursor() {
    let dir = tempfile::tempdir().unwrap();
    let journal = open(dir.path(), 600);
    for port in 0..30 {
        append(&journal, if port % 3 == 0 { "i1" } else { "i2" }, port);
    }
    let first = read(dir.path(), &query("i1", 0, 4)).unwrap();
    assert_eq!(first.iter().map(|row| row.seq).collect::<Vec<_>>(), [1, 4, 7, 10]);
    let rest = read(dir.path(), &query("i1", 10, 100)).unwrap();
    assert_eq!(rest.iter().map(|row| row.seq).collect::<Vec<_>>(), [13, 16, 19, 22, 25, 28]);
    assert_eq!(rest[0].fields["port"], 12);
    let other = Query { tenant: "n2".parse().unwrap(), ..query("i1", 0, 100) };
    assert_eq!(read(dir.path(), &other).unwrap(), []);
}

#[test]
fn a_directory_that_takes_no_new_segment_refuses_the_event_and_keeps_the_chain() {
    let dir = tempfile::tempdir().unwrap();
    let journal = open(dir.path(), 1);
    append(&journal, "i1", 80);
    let blocker = dir.path().join(format!("{:020}.jsonl", 2));
    std::fs::write(&blocker, b"").unwrap();
    let at = Timestamp::from_micros(NOW);
    let refused = journal.append(at, &entry("i1"), &Event::PortDialled { port: 81 });
    assert!(matches!(refused, Err(AppendError::Write(_))));
    std::fs::remove_file(blocker).unwrap();
    assert_eq!(append(&journal, "i1", 82), 2);
    assert_eq!(verify(dir.path()).unwrap().records, 2);
}

#[test]
fn wishes_without_an_outcome_are_found() {
    let dir = tempfile::tempdir().unwrap();
    let journal = open(dir.path(), 400);
    let at = Timestamp::from_micros(NOW);
    let wish = || Event::KeyRevokeRequested { key: "k".into() };
    let first = journal.append(at, &entry("i1"), &wish()).unwrap();
    let second = journal.append(at, &entry("i2"), &wish()).unwrap();
    append(&journal, "i1", 80);
    journal.append(at, &entry("i1"), &Event::SandboxKillRequested {}).unwrap();
    journal.append(at, &entry("i1"), &Event::KeyRevoked { intent: first, key: "k".into() }).unwrap();
    let found = |after, until| {
        let found = unfinished(dir.path(), after, until).unwrap();
        found.into_iter().map(|open| (open.intent, open.sandbox.unwrap().to_string())).collect::<Vec<_>>()
    };
    assert_eq!(found(0, 100), [(second, "i2".to_owned())]);
    assert_eq!(found(0, 4), [(first, "i1".to_owned()), (second, "i2".to_owned())]);
    assert_eq!(found(second, 100), []);
}

#[test]
fn long_arguments_are_cut_and_vouched_for_by_a_digest() {
    let long = "é".repeat(5000);
    let (argv, digest) = bounded_argv(["echo", long.as_str()].into_iter());
    assert_eq!((argv[0].as_str(), argv[1].len()), ("echo", 4096));
    assert_eq!(digest.unwrap().len(), 64);
    assert_eq!(bounded_argv(["echo"].into_iter()), (vec!["echo".to_owned()], None));
}

#[test]
fn a_removed_segment_is_found() {
    let dir = tempfile::tempdir().unwrap();
    let journal = open(dir.path(), 1);
    for port in 0..3 {
        append(&journal, "i1", port);
    }
    std::fs::remove_file(&segments(dir.path())[1]).unwrap();
    let broken = verify(dir.path()).unwrap_err();
    assert!(matches!(broken.fault, Fault::Sequence { expected: 2, found: 3 }), "{broken}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn any_change_of_a_byte_but_in_the_newest_line_is_found(at in 0.0_f64..1.0, with in 0_u8..=255) {
        let dir = tempfile::tempdir().unwrap();
        let journal = open(dir.path(), 100_000);
        for port in 0..6 {
            append(&journal, "i1", port);
        }
        let path = segments(dir.path()).remove(0);
        let mut bytes = std::fs::read(&path).unwrap();
        let newest = bytes[..bytes.len() - 1].iter().rposition(|b| *b == b'\n').unwrap();
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, clippy::cast_precision_loss)]
        let position = (at * newest as f64) as usize;
        prop_assume!(bytes[position] != with);
        bytes[position] = with;
        std::fs::write(&path, bytes).unwrap();
        prop_assert!(verify(dir.path()).is_err());
    }

    #[test]
    fn a_crash_at_any_byte_loses_at_most_the_line_being_written(cut in 0.0_f64..1.0) {
        let dir = tempfile::tempdir().unwrap();
        let journal = open(dir.path(), 100_000);
        for port in 0..6 {
            append(&journal, "i1", port);
        }
        let path = segments(dir.path()).remove(0);
        let bytes = std::fs::read(&path).unwrap();
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, clippy::cast_precision_loss)]
        let length = (cut * bytes.len() as f64) as usize;
        std::fs::write(&path, &bytes[..length]).unwrap();
        let whole = bytes[..length].iter().filter(|b| **b == b'\n').count() as u64;
        append(&open(dir.path(), 100_000), "i1", 99);
        let records = verify(dir.path()).unwrap().records;
        prop_assert!(records == whole + 1 || records == whole + 2);
    }
}
