//! Owns the plainest HTTP server there can be, on threads of its own: it drops what is sent and sends what is asked for.
//! What it reaches is what the loopback of this machine and our client allow.

use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};

const CHUNK_BYTES: usize = 256 * 1024;

pub(super) struct Loopback(SocketAddr);

impl Loopback {
    /// Answers every GET with so many bytes. Its threads end with the process.
    pub(super) fn start(bytes: u64) -> io::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let address = listener.local_addr()?;
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                // A client that goes away is none of our business.
                std::thread::spawn(move || serve(&stream, bytes).unwrap_or_default());
            }
        });
        Ok(Self(address))
    }

    pub(super) fn url(&self) -> String {
        format!("http://{}", self.0)
    }
}

fn serve(stream: &TcpStream, bytes: u64) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let mut reader = BufReader::with_capacity(CHUNK_BYTES, stream);
    let mut writer = stream;
    let chunk = vec![7; CHUNK_BYTES];
    while let Some((get, length)) = head(&mut reader)? {
        io::copy(&mut (&mut reader).take(length), &mut io::sink())?;
        let answer = if get { bytes } else { 0 };
        write!(writer, "HTTP/1.1 200 OK\r\ncontent-length: {answer}\r\n\r\n")?;
        let mut left = usize::try_from(answer).unwrap_or(usize::MAX);
        while left > 0 {
            let count = left.min(chunk.len());
            writer.write_all(&chunk[..count])?;
            left -= count;
        }
    }
    Ok(())
}

/// Reads the head of a request: whether it is a GET, and the length of its body.
fn head(reader: &mut BufReader<&TcpStream>) -> io::Result<Option<(bool, u64)>> {
    let mut line = String::new();
    if reader.read_line(&mut line)? == 0 {
        return Ok(None);
    }
    let get = line.starts_with("GET ");
    let mut length = 0;
    loop {
        line.clear();
        reader.read_line(&mut line)?;
        let Some((name, value)) = line.split_once(':') else { return Ok(Some((get, length))) };
        if name.eq_ignore_ascii_case("content-length") {
            length = value.trim().parse().map_err(io::Error::other)?;
        }
    }
}
