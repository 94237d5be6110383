//! Owns the reading of an OCI image layout that arrives as a tar: blobs are collected into a scratch directory, every one
//! that is used is checked against its digest, and exactly one image for this machine is chosen.

use crate::templates::archive::{self, MemberKind};
use crate::templates::error::{Bound, ImportError};
use crate::templates::stream::Plain;
use crate::templates::unpack::{Unpacker, Whiteouts};
use cofferdam_core::{Digest, limits};
use cofferdam_sys::openat::Tree;
use serde::{Deserialize, de::DeserializeOwned};
use sha2::{Digest as _, Sha256};
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs::File;
use std::io::{Read, Seek};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Indexes within indexes that are followed.
const INDEX_DEPTH_MAX: usize = 4;

/// What an image says about the processes that run in it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Defaults {
    /// Empty when the image does not say.
    pub(crate) user: String,
    /// Empty when the image does not say.
    pub(crate) workdir: String,
    pub(crate) env: BTreeMap<String, String>,
}

#[derive(Debug, Deserialize)]
struct Index {
    #[serde(default)]
    manifests: Vec<Descriptor>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Descriptor {
    #[serde(default)]
    media_type: String,
    digest: Digest,
    platform: Option<Platform>,
}

#[derive(Debug, Clone, Deserialize)]
struct Platform {
    architecture: String,
    os: String,
}

#[derive(Debug, Deserialize)]
struct Manifest {
    config: Descriptor,
    layers: Vec<Descriptor>,
}

#[derive(Debug, Default, Deserialize)]
struct Image {
    architecture: Option<String>,
    os: Option<String>,
    config: Option<Config>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Config {
    user: Option<String>,
    working_dir: Option<String>,
    env: Option<Vec<String>>,
}

/// The blobs of a layout, by the hex of their digests.
#[derive(Debug)]
struct Blobs {
    tree: Tree,
}

/// Unpacks the image of a layout into `tree`. `scratch` is an empty directory for its blobs.
pub(crate) fn unpack(
    layout: Plain<'_>,
    scratch: &Path,
    tree: &Path,
    progress: &mut dyn FnMut(&'static str, u64, Option<u64>),
) -> Result<Defaults, ImportError> {
    collect(layout, scratch, progress)?;
    let blobs = Blobs { tree: Tree::open(scratch).map_err(host)? };
    let manifest: Manifest = blobs.document(&blobs.choose()?.digest)?;
    if manifest.layers.len() > limits::IMPORT_LAYERS_MAX {
        return Err(ImportError::TooLarge(Bound::Layers));
    }
    let image: Image = blobs.document(&manifest.config.digest)?;
    check_platform(&image)?;
    let total = manifest.layers.len() as u64;
    let mut unpacker = Unpacker::new(tree, Whiteouts::Applied)?;
    for (done, layer) in manifest.layers.iter().enumerate() {
        progress("unpack layers", done as u64, Some(total));
        let mut plain = Plain::new(blobs.open(&layer.digest)?)?;
        archive::read_members(&mut plain, &mut |member, content| unpacker.place(member, content))?;
        plain.check_end()?;
        unpacker.next_layer();
    }
    unpacker.finish()?;
    progress("unpack layers", total, Some(total));
    defaults(image.config.unwrap_or_default())
}

fn host(source: std::io::Error) -> ImportError {
    ImportError::Host { doing: "open the scratch directory of an import", source }
}

fn refuse(problem: impl Into<String>) -> ImportError {
    ImportError::Layout { problem: problem.into() }
}

/// Keeps the index and everything that is named like a blob; the rest of the archive is read over.
fn collect(
    mut layout: Plain<'_>,
    scratch: &Path,
    progress: &mut dyn FnMut(&'static str, u64, Option<u64>),
) -> Result<(), ImportError> {
    let mut unpacker = Unpacker::new(scratch, Whiteouts::Ignored)?;
    let mut bytes = 0;
    archive::read_members(&mut layout, &mut |mut member, content| {
        let Some(name) = blob_name(&member.path).filter(|_| member.kind == MemberKind::File) else {
            return Ok(());
        };
        bytes += member.size;
        member.path = name;
        (member.mode, member.uid, member.gid) = (0o600, 0, 0);
        member.xattrs.clear();
        unpacker.place(member, content)?;
        progress("receive blobs", bytes, None);
        Ok(())
    })?;
    layout.check_end()
}

fn blob_name(path: &Path) -> Option<PathBuf> {
    if path == Path::new("index.json") {
        return Some(path.to_path_buf());
    }
    let hex = path.strip_prefix("blobs/sha256").ok()?;
    let text = hex.to_str()?;
    format!("sha256:{text}").parse::<Digest>().ok().map(|_| hex.to_path_buf())
}

impl Blobs {
    fn choose(&self) -> Result<Descriptor, ImportError> {
        let index = self.tree.open_file(OsStr::from_bytes(b"index.json"));
        let index = index.map_err(|_| refuse("it has no index.json; is it an OCI layout directory?"))?;
        let index: Index = parse(index)?;
        self.choose_from(index, 0)
    }

    fn choose_from(&self, index: Index, depth: usize) -> Result<Descriptor, ImportError> {
        if depth == INDEX_DEPTH_MAX {
            return Err(refuse("its indexes are nested too deeply"));
        }
        let fitting: Vec<Descriptor> =
            index.manifests.into_iter().filter(|found| found.platform.as_ref().is_none_or(fits)).collect();
        match <[Descriptor; 1]>::try_from(fitting) {
            Ok([one]) if is_index(&one.media_type) => {
                let below = self.document(&one.digest)?;
                self.choose_from(below, depth + 1)
            }
            Ok([one]) => Ok(one),
            Err(found) if found.is_empty() => {
                Err(refuse(format!("it has no image for linux/{}", architecture())))
            }
            Err(found) => Err(refuse(format!("it holds {} images; export exactly one", found.len()))),
        }
    }

    fn document<T: DeserializeOwned>(&self, digest: &Digest) -> Result<T, ImportError> {
        parse(self.open(digest)?)
    }

    /// Opens a blob after its bytes were checked.
    fn open(&self, digest: &Digest) -> Result<File, ImportError> {
        let missing = |_| refuse(format!("blob {digest} is missing"));
        let mut file = self.tree.open_file(OsStr::new(digest.hex())).map_err(missing)?;
        let mut hash = Sha256::new();
        std::io::copy(&mut file, &mut hash).map_err(host)?;
        if Digest::from_sha256(hash.finalize().into()) != *digest {
            return Err(refuse(format!("blob {digest} has other bytes than its name says")));
        }
        file.rewind().map_err(host)?;
        Ok(file)
    }
}

fn parse<T: DeserializeOwned>(file: File) -> Result<T, ImportError> {
    let mut bytes = Vec::new();
    file.take(limits::IMPORT_DOCUMENT_BYTES_MAX + 1).read_to_end(&mut bytes).map_err(host)?;
    if bytes.len() as u64 > limits::IMPORT_DOCUMENT_BYTES_MAX {
        return Err(ImportError::TooLarge(Bound::Document));
    }
    serde_json::from_slice(&bytes).map_err(|error| refuse(format!("a document of it is malformed: {error}")))
}

fn is_index(media_type: &str) -> bool {
    media_type == "application/vnd.oci.image.index.v1+json"
        || media_type == "application/vnd.docker.distribution.manifest.list.v2+json"
}

/// The name that images have for the architecture of this machine.
fn architecture() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}

fn fits(platform: &Platform) -> bool {
    platform.os == "linux" && platform.architecture == architecture()
}

fn check_platform(image: &Image) -> Result<(), ImportError> {
    let os = image.os.as_deref().unwrap_or("linux");
    let arch = image.architecture.as_deref().filter(|arch| !arch.is_empty()).unwrap_or(architecture());
    if os == "linux" && arch == architecture() {
        return Ok(());
    }
    Err(refuse(format!("its image is for {os}/{arch}, this machine is linux/{}", architecture())))
}

fn defaults(config: Config) -> Result<Defaults, ImportError> {
    let user = config.user.unwrap_or_default();
    let user = user.split(':').next().unwrap_or_default().to_owned();
    let workdir = config.working_dir.unwrap_or_default();
    let legal = |text: &str| text.len() <= limits::IMPORT_PATH_BYTES_MAX && !text.contains('\0');
    if !legal(&user) || !legal(&workdir) || user.contains(['/', '\n']) {
        return Err(refuse("its user or working directory is malformed"));
    }
    let workdir = if workdir.starts_with('/') { workdir } else { String::new() };
    Ok(Defaults { user, workdir, env: environment(config.env.unwrap_or_default())? })
}

fn environment(pairs: Vec<String>) -> Result<BTreeMap<String, String>, ImportError> {
    let bytes: usize = pairs.iter().map(String::len).sum();
    if pairs.len() > limits::ENV_COUNT_MAX || bytes > limits::ENV_BYTES_MAX {
        return Err(refuse("its environment is too large"));
    }
    let cut = pairs.iter().map(|pair| match pair.split_once('=') {
        Some((name, value)) if !name.is_empty() && !pair.contains('\0') => {
            Ok((name.to_owned(), value.to_owned()))
        }
        _ => Err(refuse("a variable of its environment is malformed")),
    });
    cut.collect()
}
