//! Whole verbs against the fake server: what is printed where, and the exit code.

use crate::fake::{Captured, Fake, KEY, Script};
use cofferdam_core::ErrorKind;
use cofferdam_proto::api::ApiError;
use expect_test::{Expect, expect};
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

struct Outcome {
    code: u8,
    out: String,
    err: String,
}

/// Runs one command line, with the key of the fake server in a file.
async fn cofferdam(url: &str, line: &[&str]) -> Outcome {
    let dir = tempfile::tempdir().unwrap();
    let key = dir.path().join("key");
    fs::write(&key, KEY).unwrap();
    let key = key.to_str().unwrap();
    let start = ["cofferdam", "--url", url, "--api-key-file", key];
    let matches = crate::command().try_get_matches_from(start.iter().chain(line)).unwrap();
    let (mut console, captured) = Captured::new(b"");
    let code = crate::run(&matches, crate::command, &mut console).await;
    Outcome { code, out: captured.out(), err: captured.err() }
}

async fn fake() -> Fake {
    Fake::start(Script::prints("", "").exits(0)).await
}

#[track_caller]
fn check(outcome: &Outcome, code: u8, out: Expect) {
    out.assert_eq(&outcome.out);
    assert_eq!(outcome.code, code, "{}", outcome.err);
}

#[tokio::test]
async fn ps_lists_what_runs_over_all_pages() {
    let fake = fake().await;
    check(&cofferdam(fake.url(), &["ps", "-q"]).await, 0, expect![["iabc\n"]]);
    check(&cofferdam(fake.url(), &["ps", "-q", "-a"]).await, 0, expect![["iabc\nidef\n"]]);
    check(&cofferdam(fake.url(), &["ps", "-qa", "--filter", "state=killed"]).await, 0, expect![["idef\n"]]);
    check(&cofferdam(fake.url(), &["ps", "-q", "--filter", "run=2"]).await, 0, expect![[""]]);
    let table = cofferdam(fake.url(), &["ps"]).await.out;
    assert!(table.starts_with("ID"), "{table}");
    assert!(table.contains("iabc") && table.contains("512.0 MiB") && table.contains("run=1"), "{table}");
    let json = cofferdam(fake.url(), &["ps", "--json"]).await.out;
    assert_eq!(serde_json::from_str::<serde_json::Value>(&json).unwrap()[0]["id"], "iabc");
}

#[tokio::test]
async fn doctor_fails_when_a_check_fails_and_says_what_to_do() {
    let outcome = cofferdam(fake().await.url(), &["doctor"]).await;
    check(
        &outcome,
        1,
        expect![[r#"
                  CHECK    FOUND               TO DO
            ok    overlay  works
            FAIL  btrfs    not in this kernel  load the module btrfs
        "#]],
    );
}

#[tokio::test]
async fn logs_are_one_line_each() {
    let fake = fake().await;
    let line = expect![["2026-01-01T00:00:00Z command_finished exit=0\n"]];
    check(&cofferdam(fake.url(), &["logs", "iabc"]).await, 0, line);
    let gone = cofferdam(fake.url(), &["logs", "-f", "izzz"]).await;
    assert_eq!(gone.code, 1);
}

#[tokio::test]
async fn a_key_is_shown_on_standard_output_alone() {
    let outcome = cofferdam(fake().await.url(), &["key", "create", "--name", "n"]).await;
    check(&outcome, 0, expect![["e2b_1\n"]]);
    assert!(outcome.err.contains("not shown again"));
}

#[tokio::test]
async fn kill_reports_each_and_fails_when_one_fails() {
    let fake = fake().await;
    check(&cofferdam(fake.url(), &["kill", "iabc"]).await, 0, expect![["iabc\n"]]);
    check(&cofferdam(fake.url(), &["kill", "--all"]).await, 0, expect![["iabc\n"]]);
    let outcome = cofferdam(fake.url(), &["kill", "iabc", "izzz"]).await;
    check(&outcome, 1, expect![["iabc\n"]]);
    expect![[r#"
        error: there is no such thing here [request r1]
        error: 1 of 2 failed: kill
    "#]]
    .assert_eq(&outcome.err);
}

#[tokio::test]
async fn a_template_is_imported_from_a_directory_with_its_progress() {
    let tree = tempfile::tempdir().unwrap();
    fs::write(tree.path().join("etc"), "x").unwrap();
    let tree = tree.path().to_str().unwrap().to_owned();
    let fake = fake().await;
    let outcome = cofferdam(fake.url(), &["template", "import", &tree, "--name", "mine"]).await;
    assert_eq!((outcome.code, outcome.err.as_str()), (0, ""));
    assert!(outcome.out.starts_with("mine sha256:aaaa"), "{}", outcome.out);
    assert_eq!(cofferdam(fake.url(), &["template", "rm", "other"]).await.code, 1);
}

#[tokio::test]
async fn a_server_that_is_not_there_is_exit_code_3_and_a_hint() {
    let outcome = cofferdam("http://127.0.0.1:1", &["ps"]).await;
    assert_eq!(outcome.code, 3);
    assert!(
        outcome.err.starts_with("error: cannot reach the server at http://127.0.0.1:1: "),
        "{}",
        outcome.err
    );
    assert!(outcome.err.contains("Connection refused"), "{}", outcome.err);
    assert!(outcome.err.contains("to do: start one with `cofferdam serve"), "{}", outcome.err);
    let run = cofferdam("http://127.0.0.1:1", &["run", "true"]).await;
    assert_eq!(run.code, 125);
}

#[tokio::test]
async fn exec_tells_why_a_command_did_not_start() {
    let message = "command '/no/such' not found".to_owned();
    let error =
        ApiError { code: 400, kind: ErrorKind::InvalidArgument, message, limit: None, request_id: None };
    let fake = Fake::start(Script::fails(error)).await;
    let outcome = cofferdam(fake.url(), &["exec", "iabc", "/no/such"]).await;
    check(&outcome, 127, expect![[""]]);
    assert_eq!(outcome.err, "error: command '/no/such' not found\n");
}

fn tree(root: &Path) {
    fs::create_dir_all(root.join("sub/empty")).unwrap();
    fs::write(root.join("a b.txt"), "one").unwrap();
    fs::write(root.join("sub/run.sh"), "#!/bin/sh\n").unwrap();
    fs::set_permissions(root.join("sub/run.sh"), fs::Permissions::from_mode(0o4755)).unwrap();
    std::os::unix::fs::symlink("../a b.txt", root.join("sub/link")).unwrap();
}

#[track_caller]
fn check_tree(root: &Path, mode: u32) {
    assert_eq!(fs::read_to_string(root.join("a b.txt")).unwrap(), "one");
    assert_eq!(fs::metadata(root.join("sub/run.sh")).unwrap().permissions().mode() & 0o7777, mode);
    assert_eq!(fs::read_link(root.join("sub/link")).unwrap(), Path::new("../a b.txt"));
    assert!(root.join("sub/empty").is_dir());
}

#[tokio::test]
async fn a_directory_is_copied_in_and_out_again() {
    let fake = fake().await;
    let local = tempfile::tempdir().unwrap();
    let source = local.path().join("source");
    tree(&source);
    fs::create_dir(fake.path("/home")).unwrap();
    let outcome = cofferdam(fake.url(), &["cp", source.to_str().unwrap(), "iabc:/home"]).await;
    assert_eq!((outcome.code, outcome.err.as_str()), (0, ""));
    check_tree(&fake.path("/home/source"), 0o4755);

    let back = local.path().join("back");
    let outcome = cofferdam(fake.url(), &["cp", "iabc:/home/source", back.to_str().unwrap()]).await;
    assert_eq!((outcome.code, outcome.err.as_str()), (0, ""));
    // What comes out of a sandbox is never set-uid.
    check_tree(&back, 0o755);
}

#[tokio::test]
async fn a_file_is_copied_onto_a_name_or_into_a_directory() {
    let fake = fake().await;
    let local = tempfile::tempdir().unwrap();
    let file = local.path().join("f");
    fs::write(&file, "x").unwrap();
    fs::create_dir(fake.path("/d")).unwrap();
    for (to, expected) in [("iabc:/d", "/d/f"), ("iabc:/d/g", "/d/g")] {
        assert_eq!(cofferdam(fake.url(), &["cp", file.to_str().unwrap(), to]).await.code, 0);
        assert_eq!(fs::read(fake.path(expected)).unwrap(), b"x");
    }
    let into = local.path().to_str().unwrap();
    assert_eq!(cofferdam(fake.url(), &["cp", "iabc:/d/g", into]).await.code, 0);
    assert_eq!(fs::read(local.path().join("g")).unwrap(), b"x");
    let missing = cofferdam(fake.url(), &["cp", "iabc:/missing", into]).await;
    assert_eq!(
        (missing.code, missing.err.as_str()),
        (2, "error: `/missing` does not exist in the sandbox\n")
    );
}

#[tokio::test]
async fn a_name_that_leaves_the_destination_is_refused() {
    let fake = fake().await;
    fs::create_dir(fake.path("/d")).unwrap();
    fs::write(fake.path("/d/evil"), "x").unwrap();
    let local = tempfile::tempdir().unwrap();
    let to = local.path().join("in");
    let outcome = cofferdam(fake.url(), &["cp", "iabc:/d", to.to_str().unwrap()]).await;
    assert_eq!(outcome.code, 1);
    assert!(outcome.err.contains("leaves the destination"), "{}", outcome.err);
    assert!(!local.path().join("evil").exists());
}

#[tokio::test]
async fn a_wrong_key_is_exit_code_4() {
    let fake = fake().await;
    let dir = tempfile::tempdir().unwrap();
    let key = dir.path().join("key");
    fs::write(&key, "other").unwrap();
    let line = ["cofferdam", "--url", fake.url(), "--api-key-file", key.to_str().unwrap(), "ps"];
    let matches = crate::command().try_get_matches_from(line).unwrap();
    let (mut console, captured) = Captured::new(b"");
    assert_eq!(crate::run(&matches, crate::command, &mut console).await, 4);
    assert!(captured.err().contains("to do: check the key"));
}

#[tokio::test]
async fn benchmarks_measure_and_kill_what_they_made() {
    let fake = fake().await;
    fs::create_dir(fake.path("/tmp")).unwrap();
    let create =
        ["bench", "create", "-n", "4", "--concurrency", "1,2", "--warmup", "0", "--surface", "native"];
    let exec = ["bench", "exec", "-n", "4", "--warmup", "0", "--surface", "native"];
    let density = ["bench", "density", "-n", "3", "--step", "2", "--probes", "1"];
    let files = ["bench", "files", "-n", "1", "--size", "1M"];
    for line in [&create[..], &exec, &density, &files] {
        let outcome = cofferdam(fake.url(), &[line, &["--json"]].concat()).await;
        assert_eq!((outcome.code, outcome.err.as_str()), (0, ""), "{line:?}");
        let report: serde_json::Value = serde_json::from_str(&outcome.out).unwrap();
        assert_eq!(report["bench"], line[1]);
    }
    let seen = fake.seen();
    let count = |start: &str| seen.iter().filter(|line| line.as_str() == start).count();
    assert_eq!(count("POST /v1/sandboxes"), 8 + 1 + (3 + 4) + 1);
    assert_eq!(count("POST /v1/sandboxes"), count("DELETE /v1/sandboxes/iabc"));
}

#[tokio::test]
async fn completions_know_every_verb() {
    let script = cofferdam("http://127.0.0.1:1", &["completions", "bash"]).await.out;
    for verb in crate::COMMANDS {
        assert!(script.contains(verb.name), "{}", verb.name);
    }
}

#[test]
fn the_command_line_is_consistent() {
    crate::command().debug_assert();
}
