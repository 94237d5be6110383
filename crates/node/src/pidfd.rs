//! Owns the waiting for the end of a process through its pidfd: it becomes readable when the process has ended.

use std::future::Future;
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// Completes when the process has ended. A descriptor that cannot be watched counts as ended: what cannot be watched
/// must not be handed out.
pub(crate) fn ended(process: BorrowedFd<'_>) -> impl Future<Output = ()> + Send + use<> + 'static {
    let watched = watch(process);
    async move {
        let readable = match &watched {
            Ok(fd) => fd.readable().await.map(drop),
            Err(error) => Err(io::Error::new(error.kind(), error.to_string())),
        };
        if let Err(error) = readable {
            tracing::error!(%error, "cannot watch the first process of a sandbox");
        }
    }
}

fn watch(process: BorrowedFd<'_>) -> io::Result<AsyncFd<OwnedFd>> {
    #[expect(
        deprecated,
        reason = "unsound only for types that give away another descriptor than they own; OwnedFd owns it"
    )]
    AsyncFd::with_interest(process.try_clone_to_owned()?, Interest::READABLE)
}
