//! Owns the data volume: a btrfs file system in a sparse image below the node's directory, with one subvolume per slot
//! whose size the kernel bounds. Makes it when missing, finds it again when it is attached already.
//!
//! Sandboxes keep the file system alive when every process of ours is gone, so the loop device that the image is attached
//! to is looked for before another is taken: two devices of one image would destroy it.

use crate::isolation::Slot;
use cofferdam_sys::mount::FileSystem;
use cofferdam_sys::{btrfs, directory, helper, loopback, mount};
use std::ffi::OsStr;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

const UPPERS: &str = "uppers";
/// Directories of a subvolume: what the sandbox wrote, and where overlayfs prepares it.
const UPPER: &str = "u";
const WORK: &str = "w";

/// Where the volume is and how large it may become.
#[derive(Debug, Clone)]
pub struct VolumeConfig {
    /// The image, for example `node/data.btrfs`.
    pub image: PathBuf,
    /// Where it is mounted, for example `node/data`.
    pub mount_point: PathBuf,
    /// Size of the file system. The image is sparse: it takes what is used.
    pub size_bytes: u64,
}

/// Why there is no data volume.
#[derive(Debug, thiserror::Error)]
pub enum VolumeError {
    /// The image could not be made or opened.
    #[error("open the image `{path}`")]
    Image {
        /// The image.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// `mkfs.btrfs` is missing or failed.
    #[error("make a btrfs file system in `{path}`")]
    Format {
        /// The image.
        path: PathBuf,
        /// Why, with what the program wrote.
        #[source]
        source: io::Error,
    },
    /// No loop device.
    #[error("attach `{path}` to a loop device")]
    Attach {
        /// The image.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// The kernel did not mount it.
    #[error("mount `{path}`")]
    Mount {
        /// The mount point.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// Disk limits would not hold.
    #[error("enable simple quotas on `{path}`")]
    Quota {
        /// The mount point.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// The directories in it could not be made.
    #[error("prepare the directories of `{path}`")]
    Directories {
        /// The mount point.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
}

/// The mounted volume. Everything blocks, but not for long.
#[derive(Debug)]
pub struct Volume {
    uppers: File,
    file_system_id: String,
    mount_point: PathBuf,
}

/// The two directories of a slot that an overlay needs, in one mount.
#[derive(Debug, Clone, Copy)]
pub(crate) struct UpperNames {
    pub(crate) upper: &'static str,
    pub(crate) work: &'static str,
}

pub(crate) const UPPER_NAMES: UpperNames = UpperNames { upper: UPPER, work: WORK };

impl Volume {
    /// Mounts the volume, unless it is; makes what is missing.
    pub fn open(config: &VolumeConfig) -> Result<Self, VolumeError> {
        let path = config.mount_point.clone();
        let directories = |source| VolumeError::Directories { path: path.clone(), source };
        DirBuilder::new().recursive(true).mode(0o700).create(&path).map_err(directories)?;
        if !is_mounted(&path).map_err(directories)? {
            let image = open_image(config)?;
            mount_image(config, &image)?;
        }
        let root = File::open(&path).map_err(directories)?;
        btrfs::enable_simple_quota(&root)
            .map_err(|source| VolumeError::Quota { path: path.clone(), source })?;
        let uppers = path.join(UPPERS);
        DirBuilder::new().recursive(true).mode(0o700).create(&uppers).map_err(directories)?;
        let uppers = File::open(uppers).map_err(directories)?;
        let file_system_id = btrfs::file_system_id(&root).map_err(directories)?;
        Ok(Self { uppers, file_system_id, mount_point: path })
    }

    /// Where it is mounted.
    pub fn mount_point(&self) -> &Path {
        &self.mount_point
    }

    /// Makes the subvolume of a slot. Its size is not bounded yet.
    pub(crate) fn create(&self, slot: Slot) -> io::Result<()> {
        btrfs::create_subvolume(&self.uppers, &slot.name())?;
        let subvolume = self.subvolume(slot)?;
        directory::make(&subvolume, UPPER, 0o755)?;
        directory::make(&subvolume, WORK, 0o700)
    }

    /// Opens the subvolume of a slot.
    pub(crate) fn subvolume(&self, slot: Slot) -> io::Result<File> {
        directory::open(&self.uppers, &slot.name())
    }

    /// Bounds what is written to it.
    pub(crate) fn limit(&self, slot: Slot, bytes: u64) -> io::Result<()> {
        btrfs::limit_subvolume(self.subvolume(slot)?, bytes)
    }

    /// Bytes written to it, a few seconds late.
    pub(crate) fn usage(&self, slot: Slot) -> io::Result<u64> {
        let id = btrfs::subvolume_id(self.subvolume(slot)?)?;
        btrfs::subvolume_usage(&self.file_system_id, id)
    }

    /// Destroys it with all that is in it; a missing one is fine.
    pub(crate) fn destroy(&self, slot: Slot) -> io::Result<()> {
        match btrfs::destroy_subvolume(&self.uppers, &slot.name()) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            other => other,
        }
    }

    /// Slots that have a subvolume.
    pub(crate) fn slots(&self) -> io::Result<Vec<Slot>> {
        let mut slots = Vec::new();
        for entry in fs::read_dir(self.mount_point.join(UPPERS))? {
            let name = entry?.file_name();
            let number = name.to_str().and_then(|name| name.strip_prefix('s')).and_then(|n| n.parse().ok());
            slots.extend(number.and_then(|number| Slot::new(number).ok()));
        }
        slots.sort_unstable();
        Ok(slots)
    }
}

impl AsFd for Volume {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.uppers.as_fd()
    }
}

/// A mount point lies on another file system than its parent.
fn is_mounted(path: &Path) -> io::Result<bool> {
    use std::os::unix::fs::MetadataExt;
    let parent = path.join("..");
    Ok(fs::metadata(path)?.dev() != fs::metadata(parent)?.dev() && btrfs::is_btrfs(File::open(path)?)?)
}

fn open_image(config: &VolumeConfig) -> Result<File, VolumeError> {
    let path = config.image.clone();
    match OpenOptions::new().read(true).write(true).open(&path) {
        Ok(image) => return Ok(image),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(source) => return Err(VolumeError::Image { path, source }),
    }
    // Formatted under another name, so that a half-made one is never taken for the volume.
    let unfinished = path.with_extension("new");
    let image = create_sparse(&unfinished, config.size_bytes)
        .map_err(|source| VolumeError::Image { path: unfinished.clone(), source })?;
    format(&unfinished).map_err(|source| VolumeError::Format { path: unfinished.clone(), source })?;
    fs::rename(&unfinished, &path).map_err(|source| VolumeError::Image { path, source })?;
    Ok(image)
}

fn create_sparse(path: &Path, size_bytes: u64) -> io::Result<File> {
    use std::os::unix::fs::OpenOptionsExt;
    let file =
        OpenOptions::new().read(true).write(true).create(true).truncate(true).mode(0o600).open(path)?;
    file.set_len(size_bytes)?;
    Ok(file)
}

fn format(path: &Path) -> io::Result<()> {
    let arguments = ["--quiet", "--label", "cofferdam", "--metadata", "single", "--data", "single", "--"];
    let mut arguments: Vec<&OsStr> = arguments.iter().map(OsStr::new).collect();
    arguments.push(path.as_os_str());
    let output = helper::run("mkfs.btrfs", &arguments)?;
    if output.status.success() {
        return Ok(());
    }
    let text = String::from_utf8_lossy(&output.stderr).trim().replace('\n', "; ");
    Err(io::Error::other(format!("mkfs.btrfs ended with {}: {text}", output.status)))
}

fn mount_image(config: &VolumeConfig, image: &File) -> Result<(), VolumeError> {
    let path = &config.mount_point;
    let attach = |source| VolumeError::Attach { path: config.image.clone(), source };
    let device = match loopback::find(image).map_err(attach)? {
        Some(device) => device,
        None => loopback::attach(image).map_err(attach)?,
    };
    let mounted = || {
        let system = FileSystem::open("btrfs")?;
        system.set("source", &device.path.to_string_lossy())?;
        // Space of destroyed sandboxes goes back to the host, and usage is at most this old.
        system.set("discard", "async")?;
        system.set("commit", "10")?;
        mount::attach_at(system.mount(mount::NO_ACCESS_TIMES)?, path)
    };
    mounted().map_err(|source| VolumeError::Mount { path: path.clone(), source })
}
