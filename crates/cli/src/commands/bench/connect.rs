//! Owns the few bytes of the Connect protocol that the E2B measurements need: one request frame out, response frames in.

use serde_json::Value;

/// Flag of the last frame of a stream.
const END: u8 = 2;
const HEADER_BYTES: usize = 5;
/// Longest frame that is taken.
const FRAME_BYTES_MAX: usize = 4 * 1024 * 1024;

/// One message as a frame.
pub(super) fn frame(message: &Value) -> Vec<u8> {
    let payload = message.to_string();
    let length = u32::try_from(payload.len()).expect("requests of a benchmark are short");
    let mut bytes = vec![0];
    bytes.extend_from_slice(&length.to_be_bytes());
    bytes.extend_from_slice(payload.as_bytes());
    bytes
}

/// Reads the frames of a `Process/Start` stream as they come.
#[derive(Debug, Default)]
pub(super) struct Stream {
    buffer: Vec<u8>,
    exit: Option<i64>,
}

impl Stream {
    /// Takes bytes; gives the exit code once the stream has ended as it should.
    pub(super) fn feed(&mut self, bytes: &[u8]) -> Result<Option<i64>, String> {
        self.buffer.extend_from_slice(bytes);
        while let Some((flags, message)) = self.next_frame()? {
            if flags & END != 0 {
                return match (message.get("error"), self.exit) {
                    (Some(error), _) => Err(format!("the stream ended with {error}")),
                    (None, Some(code)) => Ok(Some(code)),
                    (None, None) => Err("the stream ended before the process".to_owned()),
                };
            }
            if let Some(end) = message.pointer("/event/end") {
                self.exit = Some(end.get("exitCode").and_then(Value::as_i64).unwrap_or(0));
            }
        }
        Ok(None)
    }

    fn next_frame(&mut self) -> Result<Option<(u8, Value)>, String> {
        let Some((header, rest)) = self.buffer.split_first_chunk::<HEADER_BYTES>() else { return Ok(None) };
        let [flags, a, b, c, d] = *header;
        let length = u32::from_be_bytes([a, b, c, d]) as usize;
        if length > FRAME_BYTES_MAX {
            return Err(format!("a frame of {length} bytes"));
        }
        let Some(payload) = rest.get(..length) else { return Ok(None) };
        let message =
            serde_json::from_slice(payload).map_err(|error| format!("a frame is no JSON: {error}"))?;
        self.buffer.drain(..HEADER_BYTES + length);
        Ok(Some((flags, message)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn stream() -> Vec<u8> {
        let mut bytes = frame(&json!({"event": {"start": {"pid": 1}}}));
        bytes.extend(frame(&json!({"event": {"data": {"stdout": "aGkK"}}})));
        bytes.extend(frame(&json!({"event": {"end": {"exitCode": 3, "exited": true}}})));
        bytes
    }

    #[test]
    fn a_stream_in_pieces_gives_the_exit_code_at_its_end() {
        let mut bytes = stream();
        bytes.extend([END, 0, 0, 0, 2, b'{', b'}']);
        let mut reader = Stream::default();
        let (last, rest) = bytes.split_last().unwrap();
        for byte in rest {
            assert_eq!(reader.feed(&[*byte]), Ok(None));
        }
        assert_eq!(reader.feed(&[*last]), Ok(Some(3)));
    }

    #[test]
    fn errors_and_early_ends_are_failures() {
        let mut end = frame(&json!({"error": {"code": "not_found"}}));
        end[0] = END;
        let mut bytes = stream();
        bytes.extend(&end);
        assert!(Stream::default().feed(&bytes).is_err());
        assert!(Stream::default().feed(&[END, 0, 0, 0, 2, b'{', b'}']).is_err());
        assert!(Stream::default().feed(&[0, 255, 255, 255, 255]).is_err());
        assert!(Stream::default().feed(&[0, 0, 0, 0, 1, b'x']).is_err());
    }
}
