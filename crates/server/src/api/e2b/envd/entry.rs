//! Owns how a file system entry of the agent looks to clients. Pure.

use crate::api::e2b::wire::filesystem::{EntryInfo, FileType as WireType};
use buffa_types::google::protobuf::Timestamp;
use cofferdam_proto::guest::{Entry, FileType};
use serde_json::{Value, json};

/// The entry as the file system service shows it.
pub(crate) fn info(entry: Entry) -> EntryInfo {
    let is_symlink = entry.file_type == FileType::Symlink;
    EntryInfo {
        r#type: wire_type(&entry).into(),
        permissions: permissions(entry.file_type, entry.mode),
        size: i64::try_from(entry.size).unwrap_or(i64::MAX),
        mode: entry.mode & 0o777,
        modified_time: modified(entry.modified_us).into(),
        symlink_target: entry.target.filter(|_| is_symlink),
        metadata: entry.metadata.into_iter().collect(),
        name: entry.name,
        path: entry.path,
        owner: entry.owner,
        group: entry.group,
        is_symlink,
        ..Default::default()
    }
}

/// The entry as an upload answers it.
pub(crate) fn written(entry: &Entry) -> Value {
    let mut value = json!({"path": entry.path, "name": entry.name, "type": "file"});
    if !entry.metadata.is_empty() {
        value["metadata"] = json!(entry.metadata);
    }
    value
}

/// The type of a link is that of what it finally points to.
fn wire_type(entry: &Entry) -> WireType {
    let seen = if entry.file_type == FileType::Symlink { entry.target_type } else { Some(entry.file_type) };
    match seen {
        Some(FileType::File) => WireType::FILE_TYPE_FILE,
        Some(FileType::Directory) => WireType::FILE_TYPE_DIRECTORY,
        Some(FileType::Symlink | FileType::Other) | None => WireType::FILE_TYPE_UNSPECIFIED,
    }
}

/// Ten characters such as `-rw-r--r--`; special bits and `L` for a link stand in front, as the original writes them.
fn permissions(file_type: FileType, mode: u32) -> String {
    let kind = match file_type {
        FileType::Directory => "d",
        FileType::Symlink => "L",
        FileType::File | FileType::Other => "",
    };
    let special =
        [(0o4000, 'u'), (0o2000, 'g'), (0o1000, 't')].into_iter().filter(|(bit, _)| mode & bit != 0);
    let mut text: String = kind.chars().chain(special.map(|(_, letter)| letter)).collect();
    if text.is_empty() {
        text.push('-');
    }
    for (index, letter) in "rwxrwxrwx".chars().enumerate() {
        text.push(if mode & (0o400 >> index) != 0 { letter } else { '-' });
    }
    text
}

fn modified(micros: i64) -> Timestamp {
    let nanos = i32::try_from(micros.rem_euclid(1_000_000) * 1000).unwrap_or_default();
    Timestamp { seconds: micros.div_euclid(1_000_000), nanos, ..Default::default() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn permissions_read_like_the_original() {
        assert_eq!(permissions(FileType::File, 0o644), "-rw-r--r--");
        assert_eq!(permissions(FileType::Directory, 0o755), "drwxr-xr-x");
        assert_eq!(permissions(FileType::Symlink, 0o777), "Lrwxrwxrwx");
        assert_eq!(permissions(FileType::Directory, 0o1777), "dtrwxrwxrwx");
        assert_eq!(permissions(FileType::File, 0o4755), "urwxr-xr-x");
    }

    #[test]
    fn a_link_has_the_type_of_its_target() {
        let mut entry = Entry {
            name: "l".into(),
            path: "/l".into(),
            file_type: FileType::Symlink,
            target_type: Some(FileType::Directory),
            target: Some("/tmp".into()),
            size: 4,
            mode: 0o777,
            uid: 0,
            gid: 0,
            owner: "root".into(),
            group: "root".into(),
            modified_us: -1,
            metadata: Default::default(),
        };
        let seen = info(entry.clone());
        assert_eq!(seen.r#type, WireType::FILE_TYPE_DIRECTORY);
        assert_eq!(seen.symlink_target.as_deref(), Some("/tmp"));
        assert_eq!((seen.modified_time.seconds, seen.modified_time.nanos), (-1, 999_999_000));
        entry.target_type = None;
        assert_eq!(info(entry).r#type, WireType::FILE_TYPE_UNSPECIFIED);
    }
}
