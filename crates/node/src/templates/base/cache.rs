//! Owns the keeping of finished archives: written beside their place and moved there whole, each with a file that says
//! what its bytes must hash to. An archive that does not match is built anew.

use cofferdam_core::Digest;
use sha2::{Digest as _, Sha256};
use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

/// Bytes of what a file of a digest can hold.
const DIGEST_BYTES_MAX: u64 = 128;

fn beside(archive: &Path, suffix: &str) -> PathBuf {
    let mut name = OsString::from(archive.as_os_str());
    name.push(suffix);
    PathBuf::from(name)
}

/// True when the archive is there and is what was written once.
pub(super) fn is_sound(archive: &Path) -> bool {
    let check = || -> io::Result<bool> {
        let mut expected = String::new();
        File::open(beside(archive, ".sha256"))?.take(DIGEST_BYTES_MAX).read_to_string(&mut expected)?;
        let mut hash = Sha256::new();
        io::copy(&mut File::open(archive)?, &mut hash)?;
        Ok(Digest::from_sha256(hash.finalize().into()).as_str() == expected.trim())
    };
    match check() {
        Ok(sound) => {
            if !sound {
                tracing::warn!(archive = %archive.display(), "a kept archive is damaged; it is built anew");
            }
            sound
        }
        Err(error) => {
            tracing::debug!(archive = %archive.display(), %error, "no kept archive");
            false
        }
    }
}

/// A place for the new archive: the cache, or `fallback` when that cannot be written.
pub(super) fn place(archive: &Path, fallback: &Path) -> io::Result<PathBuf> {
    let name = archive.file_name().ok_or_else(|| io::Error::other("the archive has no name"))?;
    let parent = archive.parent().unwrap_or(Path::new("."));
    let probe = beside(archive, ".probe");
    let writable = std::fs::create_dir_all(parent).and_then(|()| File::create(&probe)).is_ok();
    if writable && std::fs::remove_file(&probe).is_ok() {
        return Ok(archive.to_path_buf());
    }
    tracing::warn!(directory = %parent.display(), "cannot write to the cache; the archive is not kept");
    Ok(fallback.join(name))
}

/// Compresses `source` to the place of `archive`. Nothing is there until all of it is.
pub(super) fn store(mut source: impl Read, archive: &Path, heard: &mut dyn FnMut(u64)) -> io::Result<()> {
    let temporary = beside(archive, &format!(".tmp-{}", std::process::id()));
    let mut write = || -> io::Result<()> {
        let hashing = Hashing { file: File::create(&temporary)?, hash: Sha256::new() };
        let mut encoder = zstd::stream::write::Encoder::new(hashing, 3)?;
        let mut buffer = vec![0; 256 * 1024];
        let mut bytes = 0;
        loop {
            let got = source.read(&mut buffer)?;
            if got == 0 {
                break;
            }
            encoder.write_all(&buffer[..got])?;
            bytes += got as u64;
            heard(bytes);
        }
        let Hashing { file, hash } = encoder.finish()?;
        file.sync_all()?;
        let digest = Digest::from_sha256(hash.finalize().into());
        // The digest first: an archive without one is not used.
        std::fs::write(beside(archive, ".sha256"), format!("{digest}\n"))?;
        std::fs::rename(&temporary, archive)
    };
    let written = write();
    if written.is_err()
        && let Err(error) = std::fs::remove_file(&temporary)
    {
        tracing::debug!(%error, "no half-written archive to remove");
    }
    written
}

/// Forgets an archive that came of a build that failed.
pub(super) fn forget(archive: &Path) {
    for path in [beside(archive, ".sha256"), archive.to_path_buf()] {
        if let Err(error) = std::fs::remove_file(&path) {
            tracing::debug!(path = %path.display(), %error, "nothing to forget");
        }
    }
}

struct Hashing {
    file: File,
    hash: Sha256,
}

impl Write for Hashing {
    fn write(&mut self, buffer: &[u8]) -> io::Result<usize> {
        let written = self.file.write(buffer)?;
        self.hash.update(&buffer[..written]);
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_stored_is_sound_until_a_byte_changes() {
        let dir = tempfile::tempdir().unwrap();
        let archive = dir.path().join("base.tar.zst");
        assert!(!is_sound(&archive));
        store(&b"content"[..], &archive, &mut |_| ()).unwrap();
        assert!(is_sound(&archive));
        let mut bytes = std::fs::read(&archive).unwrap();
        bytes[5] ^= 1;
        std::fs::write(&archive, bytes).unwrap();
        assert!(!is_sound(&archive));
        forget(&archive);
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
    }

    #[test]
    fn a_source_that_fails_leaves_nothing() {
        struct Broken;
        impl Read for Broken {
            fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
                Err(io::Error::other("broken"))
            }
        }
        let dir = tempfile::tempdir().unwrap();
        assert!(store(Broken, &dir.path().join("a"), &mut |_| ()).is_err());
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
    }
}
