//! Owns pseudo terminals: pty(7), ioctl_tty(2).

use rustix::pty::OpenptFlags;
use rustix::termios::Winsize;
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};

/// A new terminal: our side and the side of the process. Needs devpts at /dev/pts.
pub fn open(cols: u16, rows: u16) -> io::Result<(OwnedFd, OwnedFd)> {
    let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
    let ours = rustix::pty::openpt(flags)?;
    rustix::pty::unlockpt(&ours)?;
    let theirs = rustix::pty::ioctl_tiocgptpeer(&ours, flags)?;
    resize(std::os::fd::AsFd::as_fd(&ours), cols, rows)?;
    Ok((ours, theirs))
}

/// Sets the size; the foreground processes get SIGWINCH when it changed.
pub fn resize(terminal: BorrowedFd<'_>, cols: u16, rows: u16) -> io::Result<()> {
    let size = Winsize { ws_row: rows, ws_col: cols, ws_xpixel: 0, ws_ypixel: 0 };
    Ok(rustix::termios::tcsetwinsize(terminal, size)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsFd;

    #[test]
    fn the_process_side_sees_the_size() {
        let (ours, theirs) = open(120, 40).unwrap();
        resize(ours.as_fd(), 80, 24).unwrap();
        let size = rustix::termios::tcgetwinsize(&theirs).unwrap();
        assert_eq!((size.ws_col, size.ws_row), (80, 24));
    }
}
