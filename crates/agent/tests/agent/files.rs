//! Files: what is written, read, listed, moved, removed and watched.

use crate::support::{Caller, Message, Sandbox, at, eventually, sh};
use cofferdam_core::ErrorKind;
use cofferdam_proto::frame::Channel;
use cofferdam_proto::guest::{Change, Entry, FileType, Path as GuestPath, Reason, Reply, Request, User};
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};

type Metadata = BTreeMap<String, String>;

fn write(sandbox: &Sandbox, path: GuestPath, metadata: Metadata, chunks: &[&[u8]]) -> Entry {
    let mut caller = sandbox.open(Request::Write { path, metadata, mode: 0o644 });
    assert_eq!(caller.reply(), Reply::Ok);
    for chunk in chunks {
        caller.send(Channel::File, chunk);
    }
    caller.send(Channel::File, b"");
    match caller.reply() {
        Reply::Entry { entry } => entry,
        other => panic!("{other:?}"),
    }
}

fn content(caller: &mut Caller) -> Vec<u8> {
    let mut all = Vec::new();
    loop {
        match caller.next() {
            Message::Data(Channel::File, bytes) if bytes.is_empty() => return all,
            Message::Data(Channel::File, bytes) => all.extend(bytes),
            other => panic!("{other:?}"),
        }
    }
}

fn read(sandbox: &Sandbox, path: &str, offset: u64, length: Option<u64>) -> (u64, Vec<u8>) {
    let mut caller = sandbox.open(Request::Read { path: at(sandbox.path(path)), offset, length });
    match caller.reply() {
        Reply::File { length, .. } => (length, content(&mut caller)),
        other => panic!("{other:?}"),
    }
}

fn metadata(pairs: &[(&str, &str)]) -> Metadata {
    pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}

#[test]
fn a_new_file_and_its_parents_belong_to_the_user() {
    let Some(sandbox) = Sandbox::start() else { return };
    let path = GuestPath { path: sandbox.text("a/b/file"), user: User::Named("nobody".into()) };
    let entry = write(&sandbox, path, metadata(&[("one", "1")]), &[b"hello ", b"world"]);
    assert_eq!((entry.size, entry.mode, entry.owner.as_str()), (11, 0o644, "nobody"));
    assert_eq!(entry.metadata, metadata(&[("one", "1")]));
    assert_eq!((entry.name.as_str(), entry.file_type), ("file", FileType::File));
    for parent in ["a", "a/b"] {
        let found = fs::metadata(sandbox.path(parent)).unwrap();
        assert_eq!((found.uid(), found.mode() & 0o7777), (65534, 0o755));
    }
    assert_eq!(fs::read_to_string(sandbox.path("a/b/file")).unwrap(), "hello world");
}

#[test]
fn an_existing_file_keeps_its_mode_and_gets_owner_and_metadata_anew() {
    let Some(sandbox) = Sandbox::start() else { return };
    write(&sandbox, at(sandbox.path("f")), metadata(&[("one", "1"), ("two", "2")]), &[b"a long content"]);
    fs::set_permissions(sandbox.path("f"), fs::Permissions::from_mode(0o751)).unwrap();
    let path = GuestPath { path: sandbox.text("f"), user: User::Named("nobody".into()) };
    let entry = write(&sandbox, path, metadata(&[("three", "3")]), &[b"short"]);
    assert_eq!((entry.size, entry.mode, entry.uid), (5, 0o751, 65534));
    assert_eq!(entry.metadata, metadata(&[("three", "3")]));
    let moved = Request::Move { source: at(sandbox.path("f")), destination: sandbox.text("new/g") };
    assert_eq!(sandbox.entry(moved).metadata, metadata(&[("three", "3")]));
    let cleared = write(&sandbox, at(sandbox.path("new/g")), Metadata::new(), &[]);
    assert_eq!((cleared.size, cleared.metadata), (0, Metadata::new()));
}

#[test]
fn large_content_goes_both_ways_unharmed() {
    let Some(sandbox) = Sandbox::start() else { return };
    let chunks: Vec<Vec<u8>> = (0..80_u8).map(|number| vec![number; 50_000]).collect();
    let slices: Vec<&[u8]> = chunks.iter().map(Vec::as_slice).collect();
    let entry = write(&sandbox, at(sandbox.path("big")), Metadata::new(), &slices);
    assert_eq!(entry.size, 4_000_000);
    let all = chunks.concat();
    assert_eq!(read(&sandbox, "big", 0, None), (4_000_000, all.clone()));
    assert_eq!(read(&sandbox, "big", 3_999_990, Some(100)), (10, all[3_999_990..].to_vec()));
    assert_eq!(read(&sandbox, "big", 10, Some(70_000)), (70_000, all[10..70_010].to_vec()));
    assert_eq!(read(&sandbox, "big", 9_999_999, None), (0, vec![]));
}

#[test]
fn only_regular_files_are_read_and_written() {
    let Some(sandbox) = Sandbox::start() else { return };
    sandbox.sh(&format!("mkfifo {}; mkdir {}", sandbox.text("fifo"), sandbox.text("dir"))).succeeded();
    let read = |name: &str| {
        let failure =
            sandbox.failure(Request::Read { path: at(sandbox.path(name)), offset: 0, length: None });
        (failure.kind, failure.reason)
    };
    let write = |name: &str| {
        let path = at(sandbox.path(name));
        let failure = sandbox.failure(Request::Write { path, metadata: Metadata::new(), mode: 0o644 });
        (failure.kind, failure.reason)
    };
    let invalid = |reason| (ErrorKind::InvalidArgument, reason);
    assert_eq!((read("dir"), write("dir")), (invalid(Reason::IsDirectory), invalid(Reason::IsDirectory)));
    assert_eq!((read("fifo"), write("fifo")), (invalid(Reason::None), invalid(Reason::None)));
    assert_eq!(read("nothing"), (ErrorKind::NotFound, Reason::None));
    let message = sandbox.failure(Request::Stat { path: at(sandbox.path("nothing")) }).message;
    assert_eq!(message, format!("path '{}' does not exist", sandbox.text("nothing")));
}

#[test]
fn a_broken_off_upload_leaves_nothing_new() {
    let Some(sandbox) = Sandbox::start() else { return };
    let request = Request::Write { path: at(sandbox.path("half")), metadata: Metadata::new(), mode: 0o644 };
    let mut caller = sandbox.open(request);
    assert_eq!(caller.reply(), Reply::Ok);
    caller.send(Channel::File, &[1; 60_000]);
    eventually(|| sandbox.path("half").exists());
    drop(caller);
    eventually(|| !sandbox.path("half").exists());
}

#[test]
fn a_full_disk_is_told_and_gives_its_space_back() {
    let Some(sandbox) = Sandbox::start() else { return };
    let (disk, limit) = (sandbox.text("disk"), 256 * 1024);
    sandbox.sh(&format!("mkdir {disk}; mount -t tmpfs -o size={limit} none {disk}")).succeeded();
    let path = at(sandbox.path("disk/file"));
    let mut caller = sandbox.open(Request::Write { path, metadata: Metadata::new(), mode: 0o644 });
    assert_eq!(caller.reply(), Reply::Ok);
    let failure = std::thread::scope(|scope| {
        let mut writer = caller.stream().try_clone().unwrap();
        scope.spawn(move || {
            let frame = cofferdam_proto::frame::encode(Channel::File, &[7; 60_000]).unwrap();
            // Until the agent hangs up.
            while std::io::Write::write_all(&mut writer, &frame).is_ok() {}
        });
        caller.reply()
    });
    assert!(
        matches!(failure, Reply::Error(f) if f.reason == Reason::NoSpace && f.kind == ErrorKind::ResourceExhausted)
    );
    assert_eq!(sandbox.sh(&format!("ls -A {disk}")).succeeded(), "");
    sandbox.sh(&format!("umount {disk}")).succeeded();
}

#[test]
fn directories_are_made_once_and_moved_across_file_systems() {
    let Some(sandbox) = Sandbox::start() else { return };
    let made = sandbox.entry(Request::MakeDir { path: at(sandbox.path("d/e")) });
    assert_eq!((made.file_type, made.mode), (FileType::Directory, 0o755));
    let again = sandbox.failure(Request::MakeDir { path: at(sandbox.path("d/e")) });
    assert_eq!(again.kind, ErrorKind::AlreadyExists);
    fs::write(sandbox.path("d/e/f"), "1").unwrap();
    let onto = sandbox.failure(Request::MakeDir { path: at(sandbox.path("d/e/f")) });
    assert_eq!(onto.kind, ErrorKind::InvalidArgument);

    let disk = sandbox.text("disk");
    sandbox.sh(&format!("mkdir {disk}; mount -t tmpfs none {disk}")).succeeded();
    let moved =
        sandbox.entry(Request::Move { source: at(sandbox.path("d")), destination: format!("{disk}/x/d") });
    assert_eq!(moved.path, format!("{disk}/x/d"));
    assert_eq!(
        sandbox
            .sh(&format!("cat {disk}/x/d/e/f; ls -A {disk}/x; test ! -e {}", sandbox.text("d")))
            .succeeded(),
        "1d"
    );
    let missing =
        sandbox.failure(Request::Move { source: at(sandbox.path("d")), destination: "/tmp/never".into() });
    assert_eq!(missing.kind, ErrorKind::NotFound);
    sandbox.sh(&format!("umount {disk}")).succeeded();
}

#[test]
fn a_listing_is_in_order_and_ends_with_an_empty_part() {
    let Some(sandbox) = Sandbox::start() else { return };
    sandbox
        .sh(&format!(
            "mkdir -p {0}/list/many {0}/list/b; cd {0}/list/many; seq 4000 | xargs touch; ln -s . ../c",
            sandbox.text(".")
        ))
        .succeeded();
    let list = |path: &str, depth| {
        let mut caller = sandbox.open(Request::ListDir { path: at(sandbox.path(path)), depth });
        let (mut all, mut parts) = (Vec::new(), 0);
        loop {
            match caller.reply() {
                Reply::Entries { entries } if entries.is_empty() => break,
                Reply::Entries { entries } => {
                    parts += 1;
                    all.extend(entries);
                }
                other => panic!("{other:?}"),
            }
        }
        (parts, all.into_iter().map(|entry| entry.path).collect::<Vec<_>>())
    };
    let (_, top) = list("list", 0);
    assert_eq!(top, ["b", "c", "many"].map(|name| sandbox.text(&format!("list/{name}"))));
    let (parts, deep) = list("list", 2);
    assert!(parts > 1);
    assert_eq!(deep.len(), 4003);
    assert!(deep.is_sorted());
    // The root may be a link; its entries are below the path that was asked for.
    assert_eq!(list("list/c", 1).1.len(), 3);
    let refused = sandbox.failure(Request::ListDir { path: at(sandbox.path("list/many/1")), depth: 1 });
    assert_eq!((refused.kind, refused.reason), (ErrorKind::InvalidArgument, Reason::NotDirectory));
    sandbox.sh(&format!("ln -s loop {}", sandbox.text("loop"))).succeeded();
    let refused = sandbox.failure(Request::ListDir { path: at(sandbox.path("loop")), depth: 1 });
    assert_eq!((refused.kind, refused.reason), (ErrorKind::Conflict, Reason::LinkLoop));
}

#[test]
fn removal_is_complete_and_removing_nothing_is_fine() {
    let Some(sandbox) = Sandbox::start() else { return };
    fs::create_dir_all(sandbox.path("r/a/b")).unwrap();
    fs::write(sandbox.path("r/a/b/c"), "1").unwrap();
    sandbox.ok(Request::Remove { path: at(sandbox.path("r")) });
    sandbox.ok(Request::Remove { path: at(sandbox.path("r")) });
    sandbox.ok(Request::Remove { path: at(sandbox.path("agent.sock/x")) });
    assert!(!sandbox.path("r").exists());
    assert_eq!(sandbox.failure(Request::Remove { path: at("/") }).kind, ErrorKind::InvalidArgument);
}

#[test]
fn sources_become_one_file_and_go() {
    let Some(sandbox) = Sandbox::start() else { return };
    fs::write(sandbox.path("1"), "one ").unwrap();
    fs::write(sandbox.path("2"), "two").unwrap();
    let (sources, target) = ([sandbox.text("1"), sandbox.text("2")], sandbox.path("out/all"));
    let compose =
        |sources: &[String]| Request::Compose { sources: sources.to_vec(), destination: at(target.clone()) };
    let entry = sandbox.entry(compose(&sources));
    assert_eq!((entry.size, entry.mode), (7, 0o644));
    assert_eq!(fs::read_to_string(&target).unwrap(), "one two");
    assert!(!sandbox.path("1").exists() && !sandbox.path("2").exists());
    assert_eq!(sandbox.failure(compose(&sources)).kind, ErrorKind::NotFound);
    let itself = [target.to_str().unwrap().to_owned()];
    assert_eq!(sandbox.failure(compose(&itself)).kind, ErrorKind::InvalidArgument);
    assert_eq!(fs::read_dir(target.parent().unwrap()).unwrap().count(), 1);
}

#[test]
fn a_watch_tells_three_events_for_an_upload() {
    let Some(sandbox) = Sandbox::start() else { return };
    let mut watch = sandbox.open(Request::Watch { path: at(sandbox.path("")), recursive: true });
    assert_eq!(watch.reply(), Reply::Ok);
    write(&sandbox, at(sandbox.path("file")), Metadata::new(), &[b"content"]);
    let event = |name: &str, change| Reply::Event { name: name.into(), change };
    for change in [Change::Create, Change::Chmod, Change::Write] {
        assert_eq!(watch.reply(), event("file", change));
    }
    sandbox.ok(Request::Remove { path: at(sandbox.path("file")) });
    assert_eq!(watch.reply(), event("file", Change::Remove));
    sandbox.run(sh(&format!("mkdir {0}/new; echo 1 > {0}/new/x", sandbox.text(".")))).succeeded();
    assert_eq!(watch.reply(), event("new", Change::Create));
    assert_eq!(watch.reply(), event("new/x", Change::Create));
    assert_eq!(watch.reply(), event("new/x", Change::Write));
    let refused = sandbox.failure(Request::Watch { path: at(sandbox.path("none")), recursive: false });
    assert_eq!(refused.kind, ErrorKind::NotFound);
}

#[test]
fn uploads_work_when_no_process_can_be_started() {
    let Some(sandbox) = Sandbox::start() else { return };
    // Somebody who stops the spawner for good is root inside; killing it in a loop is the simplest way to try.
    let mut killer = sandbox.open(Request::Exec(sh("while :; do kill -9 -1; done")));
    killer.started();
    for number in 0..20 {
        let path = at(sandbox.path(&format!("f{number}")));
        let mut caller = sandbox.open(Request::Write { path, metadata: Metadata::new(), mode: 0o644 });
        // A job in the work cgroup may be killed as well; then the connection just ends.
        if let Some(Message::Reply(Reply::Ok)) = caller.try_next() {
            caller.stream().set_write_timeout(None).unwrap();
        }
    }
    sandbox.ok(Request::Ping);
    sandbox.entry(Request::Stat { path: at("/") });
}

#[test]
fn a_job_that_is_killed_is_told() {
    let Some(sandbox) = Sandbox::start() else { return };
    let request = Request::Write { path: at(sandbox.path("x")), metadata: Metadata::new(), mode: 0o644 };
    let mut caller = sandbox.open(request);
    assert_eq!(caller.reply(), Reply::Ok);
    sandbox.sh("kill -9 -1; true").succeeded();
    assert!(matches!(caller.reply(), Reply::Error(failure) if failure.kind == ErrorKind::ResourceExhausted));
}

#[test]
fn disk_and_processes_are_counted() {
    let Some(sandbox) = Sandbox::start() else { return };
    let Reply::Stats(stats) = sandbox.ask(Request::Stats) else { panic!() };
    assert!(stats.disk_total > 0 && stats.disk_used <= stats.disk_total);
    assert!(stats.processes >= 2 && stats.agent_rss_kib > 0);
}

#[test]
fn kernel_files_are_read_although_they_have_no_size() {
    let Some(sandbox) = Sandbox::start() else { return };
    let mut caller = sandbox.open(Request::Read { path: at("/proc/meminfo"), offset: 0, length: Some(8) });
    assert!(matches!(caller.reply(), Reply::File { length: 8, .. }));
    assert_eq!(content(&mut caller), b"MemTotal");
}
