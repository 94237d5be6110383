//! Owns the reading of tar archives that strangers made: ustar, GNU and pax headers become [`Member`]s with clean relative
//! paths and bounded names, or an error. Never touches a file system.

use crate::templates::error::{Bound, ImportError};
use cofferdam_core::limits;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io::Read;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

/// One entry of an archive.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Member {
    /// Relative, without `.` and `..`; empty for the root itself.
    pub(crate) path: PathBuf,
    pub(crate) kind: MemberKind,
    /// Permission bits.
    pub(crate) mode: u32,
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    /// Seconds since the Unix epoch.
    pub(crate) modified: i64,
    /// Bytes of content that follow; 0 for all but files.
    pub(crate) size: u64,
    /// Only attributes that a sandbox may have.
    pub(crate) xattrs: BTreeMap<OsString, Vec<u8>>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum MemberKind {
    File,
    Directory,
    /// The text of the link, as it is.
    Symlink(OsString),
    /// The path of an earlier member, clean like [`Member::path`].
    HardLink(PathBuf),
    Fifo,
    Device,
}

/// What name and attribute headers said about the member that follows.
#[derive(Debug, Default)]
struct Extensions {
    path: Option<Vec<u8>>,
    link: Option<Vec<u8>>,
    pax: BTreeMap<Vec<u8>, Vec<u8>>,
}

/// Calls `visit` with every member in order, and its content.
pub(crate) fn read_members<R: Read>(
    source: R,
    visit: &mut dyn FnMut(Member, &mut dyn Read) -> Result<(), ImportError>,
) -> Result<(), ImportError> {
    let mut archive = tar::Archive::new(source);
    let mut extensions = Extensions::default();
    let mut count = 0;
    // Raw, because the library reads name and attribute headers of any length into memory.
    for entry in archive.entries().map_err(ImportError::Read)?.raw(true) {
        let mut entry = entry.map_err(ImportError::Read)?;
        count += 1;
        if count > limits::IMPORT_ENTRIES_MAX {
            return Err(ImportError::TooLarge(Bound::Entries));
        }
        let kind = entry.header().entry_type();
        if kind.is_gnu_longname() {
            extensions.path = Some(read_name(&mut entry)?);
        } else if kind.is_gnu_longlink() {
            extensions.link = Some(read_name(&mut entry)?);
        } else if kind.is_pax_local_extensions() {
            extensions.pax = parse_pax(&read_extension(&mut entry)?)?;
        } else if kind.is_pax_global_extensions() {
            read_extension(&mut entry)?;
        } else {
            let member = member(entry.header(), std::mem::take(&mut extensions))?;
            visit(member, &mut entry)?;
        }
    }
    Ok(())
}

fn read_extension(entry: &mut impl Read) -> Result<Vec<u8>, ImportError> {
    let mut bytes = Vec::new();
    let mut bounded = entry.take(limits::IMPORT_EXTENSION_BYTES_MAX + 1);
    bounded.read_to_end(&mut bytes).map_err(ImportError::Read)?;
    if bytes.len() as u64 > limits::IMPORT_EXTENSION_BYTES_MAX {
        return Err(ImportError::TooLarge(Bound::Extension));
    }
    Ok(bytes)
}

fn read_name(entry: &mut impl Read) -> Result<Vec<u8>, ImportError> {
    let mut name = read_extension(entry)?;
    while name.last() == Some(&0) {
        name.pop();
    }
    Ok(name)
}

/// Cuts `length key=value\n` records by their length, because values of attributes may hold line feeds.
fn parse_pax(mut bytes: &[u8]) -> Result<BTreeMap<Vec<u8>, Vec<u8>>, ImportError> {
    let mut records = BTreeMap::new();
    while !bytes.is_empty() {
        let (record, rest) = cut_record(bytes).ok_or(ImportError::MalformedPax)?;
        let (key, value) = record;
        records.insert(key.to_vec(), value.to_vec());
        bytes = rest;
    }
    Ok(records)
}

type Record<'a> = (&'a [u8], &'a [u8]);

fn cut_record(bytes: &[u8]) -> Option<(Record<'_>, &[u8])> {
    let space = bytes.iter().take(20).position(|byte| *byte == b' ')?;
    let length: usize = std::str::from_utf8(&bytes[..space]).ok()?.parse().ok()?;
    let record = bytes.get(space + 1..length)?.strip_suffix(b"\n")?;
    let equals = record.iter().position(|byte| *byte == b'=')?;
    Some(((&record[..equals], &record[equals + 1..]), &bytes[length..]))
}

fn member(header: &tar::Header, mut extensions: Extensions) -> Result<Member, ImportError> {
    let path = extensions.pax.remove(b"path".as_slice()).or(extensions.path);
    let path = path.unwrap_or_else(|| header.path_bytes().into_owned());
    let shown = String::from_utf8_lossy(&path).into_owned();
    let refuse = |problem| ImportError::Refused { path: shown.clone(), problem };
    // Archives older than the directory type mark directories by their last byte.
    let slashed = path.last() == Some(&b'/');
    let path = clean(path).map_err(refuse)?;
    let pax = &extensions.pax;
    if pax.keys().any(|key| key.starts_with(b"GNU.sparse.")) || header.entry_type().is_gnu_sparse() {
        return Err(refuse("sparse entries are not supported; make the archive without --sparse"));
    }
    let link = extensions.pax.get(b"linkpath".as_slice()).cloned().or(extensions.link);
    let link = link.or_else(|| header.link_name_bytes().map(std::borrow::Cow::into_owned));
    let kind = member_kind(header.entry_type(), link).map_err(refuse)?;
    let kind = if kind == MemberKind::File && slashed { MemberKind::Directory } else { kind };
    let size = header.entry_size().map_err(|_| refuse("its size is no number"))?;
    if number(pax, b"size").map_err(refuse)?.is_some_and(|claimed| claimed != size) {
        return Err(refuse("its two sizes differ"));
    }
    let mode = header.mode().map_err(|_| refuse("its mode is no number"))? & 0o7777;
    let uid = owner(header.uid().ok(), number(pax, b"uid").map_err(refuse)?).map_err(refuse)?;
    let gid = owner(header.gid().ok(), number(pax, b"gid").map_err(refuse)?).map_err(refuse)?;
    let modified = i64::try_from(header.mtime().unwrap_or(0)).unwrap_or(0);
    let size = if kind == MemberKind::File { size } else { 0 };
    Ok(Member { path, kind, mode, uid, gid, modified, size, xattrs: xattrs(&extensions.pax) })
}

fn number(pax: &BTreeMap<Vec<u8>, Vec<u8>>, key: &[u8]) -> Result<Option<u64>, &'static str> {
    let Some(value) = pax.get(key) else { return Ok(None) };
    let text = std::str::from_utf8(value).map_err(|_| "an attribute is no number")?;
    text.parse().map(Some).map_err(|_| "an attribute is no number")
}

fn owner(plain: Option<u64>, pax: Option<u64>) -> Result<u32, &'static str> {
    let id = pax.or(plain).ok_or("its owner is no number")?;
    let id = u32::try_from(id).ok().filter(|id| *id < limits::SANDBOX_IDS);
    id.ok_or("its owner or group is 65536 or more, which no sandbox has")
}

fn member_kind(kind: tar::EntryType, link: Option<Vec<u8>>) -> Result<MemberKind, &'static str> {
    use tar::EntryType;
    Ok(match kind {
        EntryType::Regular | EntryType::Continuous => MemberKind::File,
        EntryType::Directory => MemberKind::Directory,
        EntryType::Symlink => MemberKind::Symlink(link_text(link)?),
        EntryType::Link => MemberKind::HardLink(clean(link.ok_or("a hard link without a target")?)?),
        EntryType::Fifo => MemberKind::Fifo,
        EntryType::Char | EntryType::Block => MemberKind::Device,
        _ => return Err("an entry of an unknown type"),
    })
}

fn link_text(link: Option<Vec<u8>>) -> Result<OsString, &'static str> {
    let text = link.ok_or("a symbolic link without a target")?;
    let legal = (1..limits::IMPORT_PATH_BYTES_MAX).contains(&text.len()) && !text.contains(&0);
    if legal {
        Ok(OsString::from_vec(text))
    } else {
        Err("the target of a symbolic link is empty or too long")
    }
}

/// Makes a path relative and drops empty and `.` elements. `..` is refused: whoever writes it is wrong or hostile.
fn clean(path: Vec<u8>) -> Result<PathBuf, &'static str> {
    if path.len() > limits::IMPORT_PATH_BYTES_MAX {
        return Err("its path is too long");
    }
    if path.contains(&0) {
        return Err("its path holds a zero byte");
    }
    let mut clean = PathBuf::new();
    let elements = path.split(|byte| *byte == b'/').filter(|element| !matches!(*element, b"" | b"."));
    for (depth, element) in elements.enumerate() {
        if element == b".." {
            return Err("its path holds `..`");
        }
        if element.len() > 255 || depth >= limits::TEMPLATE_DEPTH_MAX {
            return Err("its path is too deep, or an element of it too long");
        }
        clean.push(Path::new(&OsString::from_vec(element.to_vec())));
    }
    Ok(clean)
}

/// Keeps `user.*` and file capabilities. Everything else belongs to a host: labels, access lists, and what overlayfs
/// itself believes in.
fn xattrs(pax: &BTreeMap<Vec<u8>, Vec<u8>>) -> BTreeMap<OsString, Vec<u8>> {
    let named = pax.iter().filter_map(|(key, value)| Some((key.strip_prefix(b"SCHILY.xattr.")?, value)));
    let kept = named.filter(|(name, _)| {
        let user = name.starts_with(b"user.") && !name.starts_with(b"user.overlay.");
        (user || *name == b"security.capability") && !name.contains(&0)
    });
    kept.map(|(name, value)| (OsString::from_vec(name.to_vec()), value.clone())).collect()
}
