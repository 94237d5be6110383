//! Owns the outline of the data directory: who may enter which part, the lock that keeps a second server out, and the
//! first key.
//!
//! ```text
//! DATA/            0711  root   lock, initialized, first-key (0600, only until the first start is complete)
//! DATA/api/        0700  api    store.db, audit/
//! DATA/node/       0700  root   slots/, templates/, data.btrfs, data/ (mounted), audit/
//! DATA/run/        0750  root:api   node.sock, *.pid, s/<slot>/ (0700)
//! ```

use crate::config::Config;
use anyhow::{Context, Result, bail};
use cofferdam_core::secret::ApiKey;
use sha2::{Digest as _, Sha256};
use std::fs::{self, File, OpenOptions, Permissions};
use std::io::Write as _;
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _, chown};
use std::path::{Path, PathBuf};

/// The prepared and locked data directory. Dropping it releases the lock.
pub(crate) struct DataDir {
    path: PathBuf,
    _lock: File,
}

impl DataDir {
    /// Makes what is missing, takes the lock and makes the directory the working directory of this process.
    pub(crate) fn enter(config: &Config) -> Result<Self> {
        let path = config.data_dir.clone();
        fs::create_dir_all(&path).with_context(|| format!("make the data directory `{}`", path.display()))?;
        let path = path.canonicalize().context("resolve the data directory")?;
        let lock = lock(&path)?;
        std::env::set_current_dir(&path).with_context(|| format!("enter `{}`", path.display()))?;
        let (uid, gid) = (config.api.uid, config.api.gid);
        directory(Path::new("."), 0o711, (0, 0))?;
        directory(Path::new("api"), 0o700, (uid, gid))?;
        directory(Path::new("api/audit"), 0o700, (uid, gid))?;
        directory(Path::new("node"), 0o700, (0, 0))?;
        directory(Path::new("run"), 0o750, (0, gid))?;
        Ok(Self { path, _lock: lock })
    }

    /// A short name that is the same for the same directory on the same host.
    pub(crate) fn instance(&self) -> String {
        instance(&self.path)
    }

    /// The first key, until [`Self::mark_initialized`]: the same one however often the first start is interrupted.
    pub(crate) fn first_key(&self) -> Result<Option<ApiKey>> {
        if Path::new("initialized").exists() {
            return Ok(None);
        }
        let path = Path::new(FIRST_KEY);
        if let Ok(text) = fs::read_to_string(path)
            && let Some(key) = ApiKey::parse(text.trim())
        {
            return Ok(Some(key));
        }
        let key = ApiKey::from_entropy(rand::random());
        write_key(path, &key)?;
        Ok(Some(key))
    }

    /// The first start is complete and the key in the hands of the operator: its text is kept no longer.
    pub(crate) fn mark_initialized(&self) -> Result<()> {
        File::create("initialized").context("mark the data directory as initialized")?;
        fs::remove_file(FIRST_KEY).context("forget the text of the first key")
    }
}

/// Holds the text of the first key until it was given away.
const FIRST_KEY: &str = "first-key";

/// Name of what belongs to the (canonical) data directory in kernel-wide name spaces.
pub(crate) fn instance(path: &Path) -> String {
    let digest = Sha256::digest(path.as_os_str().as_encoded_bytes());
    hex::encode(&digest[..4])
}

fn lock(path: &Path) -> Result<File> {
    let file = OpenOptions::new().create(true).append(true).mode(0o600).open(path.join("lock"));
    let file = file.with_context(|| format!("open the lock of `{}`", path.display()))?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(fs::TryLockError::WouldBlock) => {
            bail!("another server already runs on the data directory `{}`", path.display())
        }
        Err(fs::TryLockError::Error(error)) => Err(error).context("lock the data directory"),
    }
}

fn directory(path: &Path, mode: u32, (uid, gid): (u32, u32)) -> Result<()> {
    fs::create_dir_all(path).with_context(|| format!("make `{}`", path.display()))?;
    chown(path, Some(uid), Some(gid)).with_context(|| format!("give `{}` to uid {uid}", path.display()))?;
    fs::set_permissions(path, Permissions::from_mode(mode))
        .with_context(|| format!("protect `{}`", path.display()))
}

/// Writes the text of a key where the operator wants it, readable by the owner alone.
pub(crate) fn write_key(path: &Path, key: &ApiKey) -> Result<()> {
    let attempt = || -> std::io::Result<()> {
        let temporary = path.with_extension("tmp");
        let mut file =
            OpenOptions::new().create(true).write(true).truncate(true).mode(0o600).open(&temporary)?;
        file.set_permissions(Permissions::from_mode(0o600))?;
        writeln!(file, "{}", key.expose())?;
        fs::rename(&temporary, path)
    };
    attempt().with_context(|| format!("write the API key to `{}`", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_server_is_kept_out() {
        let dir = tempfile::tempdir().unwrap();
        let held = lock(dir.path()).unwrap();
        let refused = lock(dir.path()).unwrap_err().to_string();
        assert!(refused.contains("another server"), "{refused}");
        drop(held);
        lock(dir.path()).unwrap();
    }

    #[test]
    fn the_key_file_is_for_its_owner_only() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("key");
        let key = ApiKey::from_entropy([3; 20]);
        write_key(&path, &key).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(fs::read_to_string(&path).unwrap().trim(), key.expose());
    }
}
