//! Owns the framing of the agent protocol: a four-byte big-endian length, one channel byte, the payload.
//! The decoder takes bytes as they come and never holds more than one frame beyond what it was fed.

use cofferdam_core::limits::{GUEST_CONTROL_BYTES_MAX, GUEST_DATA_BYTES_MAX};

/// Bytes before the payload.
pub const HEADER_BYTES: usize = 5;

/// What a payload is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Channel {
    /// A JSON message: `guest::Request`, `guest::Input` or `guest::Reply`.
    Control = 0,
    /// Bytes for the standard input (or the terminal) of a process; an empty payload closes it.
    Stdin = 1,
    /// Bytes of the standard output of a process.
    Stdout = 2,
    /// Bytes of the standard error of a process.
    Stderr = 3,
    /// Bytes of the terminal of a process.
    Pty = 4,
    /// Content of a file, in either direction; an empty payload ends it.
    File = 5,
}

impl Channel {
    fn parse(byte: u8) -> Option<Self> {
        Some(match byte {
            0 => Self::Control,
            1 => Self::Stdin,
            2 => Self::Stdout,
            3 => Self::Stderr,
            4 => Self::Pty,
            5 => Self::File,
            _ => return None,
        })
    }

    /// Longest legal payload.
    pub fn payload_max(self) -> usize {
        match self {
            Self::Control => GUEST_CONTROL_BYTES_MAX,
            Self::Stdin | Self::Stdout | Self::Stderr | Self::Pty | Self::File => GUEST_DATA_BYTES_MAX,
        }
    }
}

/// One frame.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Frame {
    /// What the payload is.
    pub channel: Channel,
    /// The payload.
    pub payload: Vec<u8>,
}

/// A frame that cannot be: the connection it came from is to be closed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    /// The channel byte has no meaning.
    #[error("unknown channel {0}")]
    Channel(u8),
    /// The announced length exceeds the bound of the channel.
    #[error("frame of {length} bytes on {channel:?}, at most {max} are legal")]
    Length {
        /// The channel.
        channel: Channel,
        /// The announced length.
        length: usize,
        /// The bound.
        max: usize,
    },
}

/// The header of a frame; `length` must be within the bound of the channel.
pub fn header(channel: Channel, length: usize) -> Result<[u8; HEADER_BYTES], FrameError> {
    let max = channel.payload_max();
    if length > max {
        return Err(FrameError::Length { channel, length, max });
    }
    let [a, b, c, d] = u32::try_from(length).unwrap_or(u32::MAX).to_be_bytes();
    Ok([a, b, c, d, channel as u8])
}

/// Header and payload in one buffer.
pub fn encode(channel: Channel, payload: &[u8]) -> Result<Vec<u8>, FrameError> {
    let header = header(channel, payload.len())?;
    let mut bytes = Vec::with_capacity(HEADER_BYTES + payload.len());
    bytes.extend_from_slice(&header);
    bytes.extend_from_slice(payload);
    Ok(bytes)
}

/// Reads the channel and length out of a header.
pub fn parse_header(bytes: [u8; HEADER_BYTES]) -> Result<(Channel, usize), FrameError> {
    let channel = Channel::parse(bytes[4]).ok_or(FrameError::Channel(bytes[4]))?;
    let length = u32::from_be_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]) as usize;
    let max = channel.payload_max();
    if length > max { Err(FrameError::Length { channel, length, max }) } else { Ok((channel, length)) }
}

/// Cuts a byte stream into frames.
#[derive(Debug, Default)]
pub struct Decoder {
    buffer: Vec<u8>,
    start: usize,
}

impl Decoder {
    /// Takes bytes as they arrived.
    pub fn feed(&mut self, bytes: &[u8]) {
        if self.start > 0 && (self.start == self.buffer.len() || self.start > GUEST_DATA_BYTES_MAX) {
            self.buffer.drain(..self.start);
            self.start = 0;
        }
        self.buffer.extend_from_slice(bytes);
    }

    /// The next whole frame, if there is one. An error is final.
    pub fn next_frame(&mut self) -> Result<Option<Frame>, FrameError> {
        let pending = &self.buffer[self.start..];
        let Some(head) = pending.first_chunk::<HEADER_BYTES>() else { return Ok(None) };
        let (channel, length) = parse_header(*head)?;
        let Some(payload) = pending.get(HEADER_BYTES..HEADER_BYTES + length) else { return Ok(None) };
        let frame = Frame { channel, payload: payload.to_vec() };
        self.start += HEADER_BYTES + length;
        Ok(Some(frame))
    }

    /// True when bytes of an unfinished frame are held.
    pub fn is_mid_frame(&self) -> bool {
        self.start < self.buffer.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_length_beyond_the_bound_is_refused_before_its_bytes_arrive() {
        let mut decoder = Decoder::default();
        decoder.feed(&[0xff, 0xff, 0xff, 0xff, 0]);
        assert!(matches!(decoder.next_frame(), Err(FrameError::Length { .. })));
        assert!(header(Channel::Stdout, GUEST_DATA_BYTES_MAX + 1).is_err());
    }

    #[test]
    fn an_unknown_channel_is_refused() {
        let mut decoder = Decoder::default();
        decoder.feed(&[0, 0, 0, 0, 99]);
        assert_eq!(decoder.next_frame(), Err(FrameError::Channel(99)));
    }

    proptest! {
        #[test]
        fn frames_survive_any_cutting(payloads in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..300), 0..8),
                                      cut in 1usize..50) {
            let mut wire = Vec::new();
            for payload in &payloads {
                wire.extend(encode(Channel::Stdout, payload).unwrap());
            }
            let mut decoder = Decoder::default();
            let mut seen = Vec::new();
            for piece in wire.chunks(cut) {
                decoder.feed(piece);
                while let Some(frame) = decoder.next_frame().unwrap() {
                    seen.push(frame.payload);
                }
            }
            prop_assert_eq!(seen, payloads);
            prop_assert!(!decoder.is_mid_frame());
        }

        #[test]
        fn arbitrary_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let mut decoder = Decoder::default();
            decoder.feed(&bytes);
            while let Ok(Some(_)) = decoder.next_frame() {}
        }
    }
}
