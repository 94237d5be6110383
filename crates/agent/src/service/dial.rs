//! Owns `Dial`: the bytes of one TCP connection to the sandbox's loopback, both ways, in one thread.

use crate::connection::Connection;
use crate::failure::{because, doing};
use cofferdam_core::ErrorKind;
use cofferdam_proto::guest::{Failure, Reason, Reply};
use cofferdam_sys::pipe;
use cofferdam_sys::poll::{self, PollFd, PollFlags};
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, Shutdown, SocketAddr, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

/// Loopback answers at once, unless a queue is full.
const CONNECT_MAX: Duration = Duration::from_secs(5);
/// Bytes on the way in one direction.
const BUFFER_BYTES: usize = 32 * 1024;

/// Runs until both directions are at their end.
pub(super) fn run(connection: &Connection, port: u16) -> Result<(), Failure> {
    let service = connect(port)?;
    let caller = connection.stream();
    let prepared = service.set_nonblocking(true).and_then(|()| service.set_nodelay(true));
    prepared.map_err(|error| doing("connect to the port", &error))?;
    connection.try_reply(&Reply::Ok);
    if caller.set_nonblocking(true).is_ok() {
        let mut inward = Direction::new(caller.as_fd(), service.as_fd());
        let mut outward = Direction::new(service.as_fd(), caller.as_fd());
        let ends = Ends {
            // The other side may have closed everything already.
            inward: &|| drop(service.shutdown(Shutdown::Write)),
            outward: &|| drop(caller.shutdown(Shutdown::Write)),
        };
        carry(&mut inward, &mut outward, &ends);
    }
    connection.close();
    Ok(())
}

fn connect(port: u16) -> Result<TcpStream, Failure> {
    let connect = |address: SocketAddr| TcpStream::connect_timeout(&address, CONNECT_MAX);
    connect((Ipv4Addr::LOCALHOST, port).into())
        .or_else(|_| connect((Ipv6Addr::LOCALHOST, port).into()))
        .map_err(|error| match error.kind() {
            io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock => {
                because(ErrorKind::Unavailable, Reason::None, format!("port {port} does not answer"))
            }
            _ => {
                because(ErrorKind::Unavailable, Reason::PortClosed, format!("nothing listens on port {port}"))
            }
        })
}

/// What to do when a direction is at its end.
struct Ends<'a> {
    inward: &'a dyn Fn(),
    outward: &'a dyn Fn(),
}

fn carry(inward: &mut Direction<'_>, outward: &mut Direction<'_>, ends: &Ends<'_>) {
    let (caller, service) = (inward.from, outward.from);
    while !(inward.over && outward.over) {
        let wanted = [
            inward.wants_to_read() | outward.wants_to_write(),
            outward.wants_to_read() | inward.wants_to_write(),
        ];
        let mut fds =
            [PollFd::from_borrowed_fd(caller, wanted[0]), PollFd::from_borrowed_fd(service, wanted[1])];
        // A side that is gone is always ready: leave it out while there is nothing to do with it, unless its leaving
        // is what we wait for.
        let waits_for_caller = !wanted[0].is_empty() || inward.over;
        let waits_for_service = !wanted[1].is_empty();
        let watched = match (waits_for_caller, waits_for_service) {
            (true, true) => &mut fds[..],
            (true, false) => &mut fds[..1],
            (false, _) => &mut fds[1..],
        };
        if poll::wait(watched, None).is_err() {
            return;
        }
        let is_gone = fds[0].revents().intersects(PollFlags::HUP | PollFlags::ERR);
        if is_gone && inward.over {
            return;
        }
        inward.step(ends.inward);
        outward.step(ends.outward);
    }
}

/// One direction: what was read and not written yet.
struct Direction<'a> {
    from: BorrowedFd<'a>,
    to: BorrowedFd<'a>,
    buffer: Vec<u8>,
    written: usize,
    over: bool,
}

impl<'a> Direction<'a> {
    fn new(from: BorrowedFd<'a>, to: BorrowedFd<'a>) -> Self {
        Self { from, to, buffer: Vec::new(), written: 0, over: false }
    }

    fn wants_to_read(&self) -> PollFlags {
        if self.over || !self.buffer.is_empty() { PollFlags::empty() } else { PollFlags::IN }
    }

    fn wants_to_write(&self) -> PollFlags {
        if self.buffer.is_empty() { PollFlags::empty() } else { PollFlags::OUT }
    }

    /// Does what can be done without waiting.
    fn step(&mut self, end: &dyn Fn()) {
        while !self.over {
            let moved = if self.buffer.is_empty() { self.fill() } else { self.flush() };
            match moved {
                Ok(true) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                // The end of the stream; or one side broke, and then the rest has nowhere to go.
                Ok(false) | Err(_) => {
                    self.over = true;
                    self.buffer = Vec::new();
                    end();
                }
            }
        }
    }

    fn fill(&mut self) -> io::Result<bool> {
        self.buffer.reserve_exact(BUFFER_BYTES);
        let taken = pipe::read_spare(self.from, &mut self.buffer);
        if self.buffer.is_empty() {
            // A connection at rest holds no memory.
            self.buffer = Vec::new();
        }
        Ok(taken? > 0)
    }

    fn flush(&mut self) -> io::Result<bool> {
        self.written += pipe::write(self.to, &self.buffer[self.written..])?;
        if self.written == self.buffer.len() {
            self.buffer.clear();
            self.written = 0;
        }
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::net::TcpListener;
    use std::os::unix::net::UnixStream;

    fn dial(port: u16) -> (UnixStream, std::thread::JoinHandle<Result<(), Failure>>) {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let serve = move || run(&Connection::new(theirs).unwrap(), port);
        (ours, std::thread::spawn(serve))
    }

    #[test]
    fn bytes_go_both_ways_and_ends_are_passed_on() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let (mut caller, served) = dial(listener.local_addr().unwrap().port());
        let (mut service, _) = listener.accept().unwrap();
        let payload = vec![7; 1_000_000];
        let sent = payload.clone();
        let echo = std::thread::spawn(move || {
            let mut seen = Vec::new();
            service.read_to_end(&mut seen).unwrap();
            service.write_all(&seen).unwrap();
        });
        let mut head = [0; 5];
        caller.read_exact(&mut head).unwrap();
        let mut reply = vec![0; usize::from(head[3])];
        caller.read_exact(&mut reply).unwrap();
        caller.write_all(&sent).unwrap();
        caller.shutdown(Shutdown::Write).unwrap();
        let mut seen = Vec::new();
        caller.read_to_end(&mut seen).unwrap();
        assert_eq!(seen, payload);
        echo.join().unwrap();
        served.join().unwrap().unwrap();
    }

    #[test]
    fn a_caller_that_leaves_ends_the_connection() {
        let listener = TcpListener::bind("[::1]:0").unwrap();
        let (caller, served) = dial(listener.local_addr().unwrap().port());
        let (mut service, _) = listener.accept().unwrap();
        drop(caller);
        assert_eq!(service.read(&mut [0; 9]).unwrap(), 0);
        served.join().unwrap().unwrap();
    }

    #[test]
    fn a_port_without_a_listener_is_told_so() {
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let (_caller, served) = dial(port);
        assert_eq!(served.join().unwrap().unwrap_err().reason, Reason::PortClosed);
    }
}
