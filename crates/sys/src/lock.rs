//! Owns exclusive locks on files: flock(2).

use crate::call::failed;
use rustix::fs::FlockOperation;
use std::fs::File;
use std::io;

/// Takes the lock if nobody has it. It is held until every copy of the descriptor is closed.
pub fn try_lock(file: &File) -> io::Result<bool> {
    match rustix::fs::flock(file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(true),
        Err(rustix::io::Errno::WOULDBLOCK) => Ok(false),
        Err(errno) => Err(failed("flock")(errno)),
    }
}
