//! Archives that want more than to become a tree. Each is refused with a reason or stays inside; the directory beside the
//! tree is looked at after every import.

use super::Place;
use super::archives::{Tar, gzip, zstd};
use crate::templates::error::{Bound, ImportError};
use cofferdam_core::{ErrorKind, limits};
use tar::EntryType;

#[track_caller]
fn check_refused(archive: Vec<u8>, reason: &str) {
    let error = Place::new().rootfs(archive).unwrap_err();
    assert!(error.to_string().contains(reason), "{error}");
    assert!(matches!(error.kind(), ErrorKind::InvalidArgument | ErrorKind::ResourceExhausted), "{error:?}");
}

#[test]
fn a_path_that_climbs_is_refused() {
    for path in ["../outside/file", "a/../../outside/file", "/../outside/file", "..", "./..", "a/.."] {
        check_refused(Tar::new().file(path, "gotcha").done(), "`..`");
    }
}

#[test]
fn an_absolute_path_stays_inside() {
    let place = Place::new();
    place.rootfs(Tar::new().file("/etc/motd", "x").file("//usr//f", "y").done()).unwrap();
    assert_eq!((place.read("etc/motd").as_str(), place.read("usr/f").as_str()), ("x", "y"));
}

#[test]
fn a_link_out_of_the_tree_is_not_followed_out_of_it() {
    let outside = |place: &Place| place.dir.path().join("outside").display().to_string();
    let place = Place::new();
    let target = outside(&place);
    let result = place.rootfs(Tar::new().link("evil", &target).file("evil/file", "gotcha").done());
    // Inside the tree the target does not exist, so the link leads to nothing.
    assert!(result.unwrap_err().to_string().contains("link to nothing"));
    for target in ["../outside", "../../../../../../tmp", "/proc/self/root", "/proc/self/cwd/outside"] {
        let place = Place::new();
        let result = place.rootfs(Tar::new().link("evil", target).file("evil/file", "gotcha").done());
        assert!(result.is_err(), "{target}");
    }
}

#[test]
fn a_link_to_the_parent_of_the_root_is_the_root() {
    let place = Place::new();
    place.rootfs(Tar::new().link("up", "../../..").file("up/file", "inside").done()).unwrap();
    assert_eq!(place.read("file"), "inside");
}

#[test]
fn a_file_does_not_write_through_a_link_of_its_own_name() {
    let place = Place::new();
    let target = place.dir.path().join("outside/file").display().to_string();
    place.rootfs(Tar::new().link("etc/passwd", &target).file("etc/passwd", "mine").done()).unwrap();
    assert_eq!(place.read("etc/passwd"), "mine");
    assert!(!place.tree().join("etc/passwd").is_symlink());
}

#[test]
fn a_directory_over_a_link_replaces_the_link() {
    let place = Place::new();
    let target = place.dir.path().join("outside").display().to_string();
    let archive = Tar::new()
        .link("d", &target)
        .entry(EntryType::Directory, "d", b"", |header| header.set_mode(0o777))
        .file("d/new", "inside");
    place.rootfs(archive.done()).unwrap();
    assert_eq!(place.read("d/new"), "inside");
}

#[test]
fn a_hard_link_reaches_nothing_outside() {
    for target in ["../outside/file", "a/../../outside/file"] {
        check_refused(Tar::new().hard("stolen", target).done(), "`..`");
    }
    let place = Place::new();
    let target = place.dir.path().join("outside").display().to_string();
    let archive = Tar::new().link("door", &target).hard("stolen", "door/file");
    assert!(place.rootfs(archive.done()).unwrap_err().to_string().contains("hard link to nothing"));
    check_refused(Tar::new().hard("stolen", "/etc/shadow").done(), "hard link to nothing");
    check_refused(Tar::new().hard("stolen", "/").done(), "hard link to the root");
}

#[test]
fn a_hard_link_to_a_link_is_to_the_link_itself() {
    let place = Place::new();
    let target = place.dir.path().join("outside/file").display().to_string();
    let archive = Tar::new().link("l", &target).hard("h", "l").file("h", "mine");
    place.rootfs(archive.done()).unwrap();
    assert_eq!(place.read("h"), "mine");
}

#[test]
fn a_hard_link_to_a_directory_or_to_itself_is_no_harm() {
    check_refused(Tar::new().dir("d").hard("h", "d").done(), "hard link to a directory");
    let place = Place::new();
    place.rootfs(Tar::new().file("f", "x").hard("f", "f").done()).unwrap();
    assert_eq!(place.read("f"), "x");
}

#[test]
fn devices_are_left_out_below_dev_and_refused_elsewhere() {
    for kind in [EntryType::Char, EntryType::Block] {
        let place = Place::new();
        place.rootfs(Tar::new().dir("dev").device("dev/sda", kind).done()).unwrap();
        assert!(!place.exists("dev/sda"));
        check_refused(Tar::new().device("disk", kind).done(), "device");
        check_refused(Tar::new().dir("dev").link("dev2", "dev").device("dev2/sda", kind).done(), "device");
        check_refused(Tar::new().device("etc/dev/sda", kind).done(), "device");
    }
}

#[test]
fn entries_of_unknown_types_are_refused() {
    for kind in [b'V', b'M', b'D', b'Z', 0xff] {
        check_refused(Tar::new().entry(EntryType::new(kind), "x", b"", |_| ()).done(), "unknown type");
    }
}

#[test]
fn sparse_giants_are_refused_before_a_byte_is_written() {
    let giant = |header: &mut tar::Header| header.as_gnu_mut().unwrap().set_real_size(1 << 50);
    check_refused(Tar::new().entry(EntryType::GNUSparse, "giant", b"", giant).done(), "sparse");
    let pax: [(&str, &[u8]); 2] = [("GNU.sparse.major", b"1"), ("GNU.sparse.realsize", b"1125899906842624")];
    check_refused(Tar::new().pax(&pax).file("giant", "").done(), "sparse");
}

#[test]
fn a_claimed_size_beyond_the_bound_is_refused_at_once() {
    for size in [limits::IMPORT_BYTES_MAX + 1, 1 << 60, u64::MAX >> 1] {
        let archive = Tar::new().entry(EntryType::Regular, "giant", b"", |header| header.set_size(size));
        let error = Place::new().rootfs(archive.done()).unwrap_err();
        assert!(matches!(error, ImportError::TooLarge(Bound::Bytes) | ImportError::Read(_)), "{error:?}");
    }
}

#[test]
fn a_size_that_two_headers_tell_differently_is_refused() {
    check_refused(Tar::new().pax(&[("size", b"4")]).file("f", "12345678").done(), "sizes differ");
    check_refused(Tar::new().pax(&[("size", b"-1")]).file("f", "").done(), "no number");
}

#[test]
fn a_name_extension_of_any_length_costs_no_memory() {
    let name = vec![b'a'; usize::try_from(limits::IMPORT_EXTENSION_BYTES_MAX).unwrap() + 1];
    for kind in [EntryType::GNULongName, EntryType::GNULongLink, EntryType::XHeader, EntryType::XGlobalHeader]
    {
        let archive = Tar::new().entry(kind, "x", &name, |_| ()).file("f", "");
        check_refused(gzip(&archive.done()), "too large");
    }
}

#[test]
fn names_that_no_file_system_takes_are_refused() {
    let long = "x".repeat(256);
    check_refused(Tar::new().pax(&[("path", long.as_bytes())]).file("f", "").done(), "too deep, or");
    let deep = "d/".repeat(limits::TEMPLATE_DEPTH_MAX + 1);
    check_refused(Tar::new().pax(&[("path", deep.as_bytes())]).file("f", "").done(), "too deep, or");
    let endless = "d/".repeat(3000);
    check_refused(Tar::new().pax(&[("path", endless.as_bytes())]).file("f", "").done(), "too long");
    check_refused(Tar::new().pax(&[("path", b"a\0b")]).file("f", "").done(), "zero byte");
}

#[test]
fn depth_through_links_is_bounded_too() {
    let mut archive = Tar::new();
    let step = "d/".repeat(100);
    for number in 0..4 {
        let place = if number == 0 { step.clone() } else { format!("l{}/{step}", number - 1) };
        archive = archive
            .pax(&[("path", place.as_bytes())])
            .dir("x")
            .pax(&[("linkpath", place.as_bytes())])
            .link(&format!("l{number}"), "x");
    }
    let error = Place::new().rootfs(archive.done()).unwrap_err();
    assert!(matches!(error, ImportError::TooLarge(Bound::Depth)), "{error:?}");
}

#[test]
fn loops_of_links_end() {
    check_refused(Tar::new().link("a", "b").link("b", "a").file("a/f", "").done(), "loop of links");
}

#[test]
fn a_file_is_no_directory() {
    check_refused(Tar::new().file("f", "").file("f/g", "").done(), "is a file");
}

#[test]
fn malformed_attribute_headers_are_refused() {
    for body in ["", "5 a=b", "999999999 a=b\n", "x a=b\n", "6 ab\n\n", "-1 a=b\n", "0 \n"] {
        let archive = Tar::new().entry(EntryType::XHeader, "pax", body.as_bytes(), |_| ()).file("f", "");
        let result = Place::new().rootfs(archive.done());
        let fine = body.is_empty();
        assert_eq!(result.is_ok(), fine, "{body:?}");
    }
}

#[test]
fn owners_that_no_sandbox_has_are_refused() {
    for id in [65_536, 1_000_600_000, u64::from(u32::MAX), 1 << 40] {
        let uid = Tar::new().entry(EntryType::Regular, "f", b"", |header| header.set_uid(id));
        check_refused(uid.done(), "65536");
    }
    check_refused(Tar::new().pax(&[("gid", b"70000")]).file("f", "").done(), "65536");
}

#[test]
fn an_archive_that_was_cut_is_refused_wherever_it_was_cut() {
    let whole = Tar::new().file("a", &"x".repeat(700)).file("b", "y").done();
    for length in (1..whole.len() - 1024).step_by(64) {
        for bytes in [whole[..length].to_vec(), zstd(&whole[..length]), gzip(&whole[..length])] {
            assert!(Place::new().rootfs(bytes).is_err(), "{length}");
        }
    }
    assert!(matches!(Place::new().rootfs(Tar::new().file("a", "x").cut()), Err(ImportError::Truncated)));
    let packed = gzip(&whole);
    assert!(Place::new().rootfs(packed[..packed.len() / 2].to_vec()).is_err());
}

#[test]
fn what_is_no_archive_is_refused() {
    for bytes in [Vec::new(), vec![b'x'; 2000], vec![0; 10_240], b"\x1f\x8b\x08rubbish".to_vec()] {
        assert!(Place::new().rootfs(bytes).is_err());
    }
    check_refused(b"\xfd7zXZ\0......".to_vec(), "xz");
}

#[test]
fn a_bomb_of_compression_ends_at_the_bound_of_what_it_claims() {
    let claim = |header: &mut tar::Header| header.set_size(limits::IMPORT_BYTES_MAX + 1);
    let archive = Tar::new().entry(EntryType::Regular, "bomb", &vec![0; 1 << 22], claim).done();
    for packed in [gzip(&archive), zstd(&archive)] {
        check_refused(packed, "too large");
    }
}

#[test]
fn mount_points_must_be_directories() {
    for name in ["proc", "sys", "dev", "run", "tmp"] {
        check_refused(Tar::new().link(name, "etc").done(), "must be a directory");
        check_refused(Tar::new().file(name, "").done(), "must be a directory");
    }
}

#[test]
fn files_that_are_added_do_not_follow_links_of_the_template() {
    let place = Place::new();
    let target = place.dir.path().join("outside").display().to_string();
    let result = place.rootfs(Tar::new().link("etc", &target).done());
    assert!(result.unwrap_err().to_string().contains("no directory within the tree"));
    let place = Place::new();
    place.rootfs(Tar::new().link("etc/hosts", &format!("{target}/file")).done()).unwrap();
}

#[test]
fn a_hostile_list_of_users_is_only_read() {
    let place = Place::new();
    let target = place.dir.path().join("outside/file").display().to_string();
    let built = place.rootfs(Tar::new().link("etc/passwd", &target).done()).unwrap();
    assert_eq!(built.defaults.user, "root");
    let endless = Tar::new().link("etc/passwd", "passwd").done();
    assert_eq!(Place::new().rootfs(endless).unwrap().defaults.user, "root");
    let pipe = Tar::new().entry(EntryType::Fifo, "etc/passwd", b"", |_| ()).done();
    assert_eq!(Place::new().rootfs(pipe).unwrap().defaults.user, "root");
}

#[test]
fn bytes_after_the_end_mark_mean_nothing() {
    let mut bytes = Tar::new().file("a", "x").done();
    bytes.extend_from_slice(&Tar::new().file("b", "y").done());
    let place = Place::new();
    place.rootfs(bytes).unwrap();
    assert!(place.exists("a") && !place.exists("b"));
}

#[test]
fn a_damaged_header_is_refused() {
    let mut bytes = Tar::new().file("a", "x").done();
    bytes[0] ^= 1;
    assert!(Place::new().rootfs(bytes).is_err());
    let rubbish = Tar::new().file("a", "x").raw(&[b'z'; 512]).done();
    assert!(Place::new().rootfs(rubbish).is_err());
}
