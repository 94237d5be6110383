//! What a sound archive becomes.

use super::Place;
use super::archives::{Tar, gzip, mode_of, zstd};
use std::os::unix::fs::MetadataExt;
use tar::EntryType;

fn small() -> Tar {
    Tar::new()
        .dir("./")
        .dir("etc/")
        .file("etc/motd", "hello\n")
        .link("bin", "usr/bin")
        .file("usr/bin/sh", "#!")
}

#[test]
fn plain_gzip_and_zstd_are_told_apart_and_become_the_same_tree() {
    let plain = small().done();
    let digests = [plain.clone(), gzip(&plain), zstd(&plain)].map(|bytes| {
        let place = Place::new();
        let built = place.rootfs(bytes).unwrap();
        assert_eq!(place.read("etc/motd"), "hello\n");
        built.described.digest
    });
    assert_eq!(digests[0], digests[1]);
    assert_eq!(digests[0], digests[2]);
}

#[test]
fn what_a_sandbox_needs_is_added_and_what_is_there_is_left_alone() {
    let place = Place::new();
    place.rootfs(Tar::new().file("etc/hosts", "mine").link("etc/resolv.conf", "../run/x").done()).unwrap();
    for (name, mode) in [("proc", 0o555), ("sys", 0o555), ("dev", 0o755), ("run", 0o755), ("tmp", 0o1777)] {
        assert!(place.tree().join(name).is_dir());
        assert_eq!(mode_of(&place.tree().join(name)), mode, "{name}");
    }
    assert_eq!(place.read("etc/hosts"), "mine");
    assert_eq!(place.read("etc/hostname"), "sandbox\n");
    assert_eq!(std::fs::read_link(place.tree().join("etc/resolv.conf")).unwrap().to_str(), Some("../run/x"));
}

#[test]
fn modes_owners_times_and_links_are_kept() {
    let place = Place::new();
    let archive = Tar::new()
        .mode("usr/bin/sudo", "x", 0o4755)
        .entry(EntryType::Regular, "home/user/f", b"y", |header| {
            header.set_uid(1000);
            header.set_gid(1001);
        })
        .hard("usr/bin/sudoedit", "usr/bin/sudo")
        .link("home/user/l", "/etc/../etc/passwd")
        .entry(EntryType::Fifo, "var/pipe", b"", |header| header.set_mode(0o620));
    place.rootfs(archive.done()).unwrap();
    let stat = |path: &str| place.tree().join(path).symlink_metadata().unwrap();
    assert_eq!(stat("usr/bin/sudo").mode() & 0o7777, 0o4755);
    assert_eq!((stat("home/user/f").uid(), stat("home/user/f").gid()), (1000, 1001));
    assert_eq!(stat("home/user/f").mtime(), 1_600_000_000);
    assert_eq!(stat("usr/bin/sudo").ino(), stat("usr/bin/sudoedit").ino());
    assert_eq!(stat("var/pipe").mode() & 0o7777, 0o620);
    let target = std::fs::read_link(place.tree().join("home/user/l")).unwrap();
    assert_eq!(target.to_str(), Some("/etc/../etc/passwd"));
}

#[test]
fn directories_keep_their_times_although_they_are_filled_later() {
    let place = Place::new();
    place.rootfs(Tar::new().dir("opt").file("opt/a", "1").file("opt/b", "2").done()).unwrap();
    assert_eq!(place.tree().join("opt").metadata().unwrap().mtime(), 1_600_000_000);
}

#[test]
fn attributes_of_users_and_capabilities_are_kept_and_those_of_hosts_are_not() {
    let capability = [1, 0, 0, 2, 0, 0x20, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 10];
    let place = Place::new();
    let archive = Tar::new()
        .pax(&[
            ("SCHILY.xattr.user.note", b"line\nbreak"),
            ("SCHILY.xattr.security.capability", &capability),
            ("SCHILY.xattr.security.selinux", b"label"),
            ("SCHILY.xattr.trusted.overlay.opaque", b"y"),
            ("SCHILY.xattr.user.overlay.redirect", b"/etc"),
        ])
        .file("usr/bin/ping", "x");
    place.rootfs(archive.done()).unwrap();
    let file = std::fs::File::open(place.tree().join("usr/bin/ping")).unwrap();
    let names: Vec<String> = cofferdam_sys::openat::xattrs(&file)
        .unwrap()
        .into_iter()
        .map(|(name, _)| name.into_string().unwrap())
        .filter(|name| name != "security.selinux")
        .collect();
    assert_eq!(names, ["security.capability", "user.note"]);
}

#[test]
fn later_entries_replace_earlier_ones() {
    let place = Place::new();
    let archive = Tar::new()
        .file("a", "1")
        .file("a", "2")
        .dir("b")
        .file("b/c", "3")
        .file("b", "4")
        .file("d", "5")
        .dir("d")
        .file("d/e", "6")
        .link("f", "d")
        .file("f", "7");
    place.rootfs(archive.done()).unwrap();
    assert_eq!((place.read("a").as_str(), place.read("b").as_str()), ("2", "4"));
    assert_eq!((place.read("d/e").as_str(), place.read("f").as_str()), ("6", "7"));
}

#[test]
fn a_path_through_a_link_lands_where_it_would_inside() {
    let place = Place::new();
    let archive = Tar::new().dir("usr/lib").link("lib", "/usr/lib").file("lib/libc.so", "x");
    place.rootfs(archive.done()).unwrap();
    assert_eq!(place.read("usr/lib/libc.so"), "x");
    assert!(place.tree().join("lib").is_symlink());
}

#[test]
fn names_longer_than_a_header_come_from_extensions() {
    let long = format!("opt/{}/{}", "x".repeat(120), "y".repeat(120));
    let place = Place::new();
    let archive = Tar::new()
        .entry(EntryType::GNULongName, "././@LongLink", format!("{long}\0").as_bytes(), |_| ())
        .file("short", "gnu")
        .pax(&[("path", format!("{long}2").as_bytes()), ("linkpath", long.as_bytes())])
        .hard("short", "short");
    place.rootfs(archive.done()).unwrap();
    assert_eq!(place.read(&long), "gnu");
    assert_eq!(place.read(&format!("{long}2")), "gnu");
}

#[test]
fn the_digest_tells_every_difference_that_matters_and_no_other() {
    let digest = |archive: Tar| Place::new().rootfs(archive.done()).unwrap().described.digest;
    let base = digest(small());
    let later = |header: &mut tar::Header| header.set_mtime(1_700_000_000);
    assert_eq!(digest(small().entry(EntryType::Regular, "etc/motd", b"hello\n", later)), base);
    let order = Tar::new().file("usr/bin/sh", "#!").link("bin", "usr/bin").file("etc/motd", "hello\n");
    assert_eq!(digest(order), base);
    let different = [
        small().file("etc/motd", "hellO\n"),
        small().mode("etc/motd", "hello\n", 0o600),
        small().file("etc/motd2", ""),
        small().link("bin", "usr/bin/"),
        small().hard("etc/motd2", "etc/motd"),
        small().file("etc/motd2", "hello\n"),
        small().entry(EntryType::Regular, "etc/motd", b"hello\n", |header| header.set_uid(1)),
        small().pax(&[("SCHILY.xattr.user.a", b"b")]).file("etc/motd", "hello\n"),
        small().entry(EntryType::Fifo, "etc/motd", b"", |_| ()),
    ];
    let mut digests: Vec<_> = different.into_iter().map(digest).chain([base]).collect();
    digests.sort_unstable();
    digests.dedup();
    assert_eq!(digests.len(), 10);
}

#[test]
fn the_usual_user_is_the_default_when_the_template_has_it() {
    let user = |passwd: &str| {
        let built = Place::new().rootfs(Tar::new().file("etc/passwd", passwd).done()).unwrap();
        built.defaults.user
    };
    assert_eq!(user("root:x:0:0::/root:/bin/sh\nuser:x:1000:1000::/home/user:/bin/bash\n"), "user");
    assert_eq!(user("root:x:0:0::/root:/bin/sh\nusers:x:1:1::/:\n"), "root");
}
