//! Owns the making of archives, sound and unsound ones: headers are written as they are told.

use std::path::Path;
use tar::{EntryType, Header};

/// An archive being written.
#[derive(Debug, Default)]
pub(super) struct Tar(Vec<u8>);

impl Tar {
    pub(super) fn new() -> Self {
        Self::default()
    }

    /// Any header; the name is put in without a look at it.
    pub(super) fn entry(
        mut self,
        kind: EntryType,
        name: &str,
        content: &[u8],
        change: impl FnOnce(&mut Header),
    ) -> Self {
        let mut header = Header::new_gnu();
        header.as_old_mut().name[..name.len()].copy_from_slice(name.as_bytes());
        header.set_entry_type(kind);
        header.set_size(content.len() as u64);
        header.set_mode(if kind == EntryType::Directory { 0o755 } else { 0o644 });
        header.set_uid(0);
        header.set_gid(0);
        header.set_mtime(1_600_000_000);
        change(&mut header);
        header.set_cksum();
        self.0.extend_from_slice(header.as_bytes());
        self.0.extend_from_slice(content);
        self.0.resize(self.0.len().next_multiple_of(512), 0);
        self
    }

    pub(super) fn file(self, name: &str, content: &str) -> Self {
        self.entry(EntryType::Regular, name, content.as_bytes(), |_| ())
    }

    pub(super) fn mode(self, name: &str, content: &str, mode: u32) -> Self {
        self.entry(EntryType::Regular, name, content.as_bytes(), |header| header.set_mode(mode))
    }

    pub(super) fn dir(self, name: &str) -> Self {
        self.entry(EntryType::Directory, name, b"", |_| ())
    }

    pub(super) fn link(self, name: &str, target: &str) -> Self {
        self.entry(EntryType::Symlink, name, b"", |header| point(header, target))
    }

    pub(super) fn hard(self, name: &str, target: &str) -> Self {
        self.entry(EntryType::Link, name, b"", |header| point(header, target))
    }

    pub(super) fn device(self, name: &str, kind: EntryType) -> Self {
        self.entry(kind, name, b"", |header| {
            header.set_device_major(1).unwrap();
            header.set_device_minor(3).unwrap();
        })
    }

    /// Attributes of the entry that follows.
    pub(super) fn pax(self, records: &[(&str, &[u8])]) -> Self {
        let mut body = Vec::new();
        for (key, value) in records {
            let rest = key.len() + value.len() + 3;
            let mut length = rest + 1;
            while length.to_string().len() + rest != length {
                length = length.to_string().len() + rest;
            }
            body.extend_from_slice(format!("{length} {key}=").as_bytes());
            body.extend_from_slice(value);
            body.push(b'\n');
        }
        self.entry(EntryType::XHeader, "pax", &body, |_| ())
    }

    pub(super) fn raw(mut self, bytes: &[u8]) -> Self {
        self.0.extend_from_slice(bytes);
        self
    }

    /// With the end mark.
    pub(super) fn done(mut self) -> Vec<u8> {
        self.0.resize(self.0.len() + 1024, 0);
        self.0
    }

    /// Without it, as after a lost connection.
    pub(super) fn cut(self) -> Vec<u8> {
        self.0
    }
}

fn point(header: &mut Header, target: &str) {
    header.as_old_mut().linkname[..target.len()].copy_from_slice(target.as_bytes());
}

pub(super) fn gzip(bytes: &[u8]) -> Vec<u8> {
    use std::io::Write;
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

pub(super) fn zstd(bytes: &[u8]) -> Vec<u8> {
    zstd::encode_all(bytes, 1).unwrap()
}

/// The mode of an entry itself.
pub(super) fn mode_of(path: &Path) -> u32 {
    use std::os::unix::fs::MetadataExt;
    path.symlink_metadata().unwrap().mode() & 0o7777
}
