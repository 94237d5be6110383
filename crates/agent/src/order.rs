//! Owns what PID 1 says to the spawner: orders, as little-endian numbers and texts with their lengths. Both ends are the
//! same binary; decoding is strict all the same. The spawner says its pid once; what comes of an order is said in the
//! report pipe that is sent with it, by the new process itself.

use std::collections::BTreeMap;
use std::ffi::CString;

/// Longest order, in bytes: a call can be a megabyte, and its environment joins that of the sandbox.
pub(crate) const ORDER_BYTES_MAX: usize = 4 * 1024 * 1024;

/// What the spawner is told to start.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Order {
    /// A user process. Descriptors: the report pipe, then the terminal or the three standard streams.
    Program(Program),
    /// A copy of the spawner that does work with files in the `work` cgroup. Descriptors: the report pipe, then the
    /// caller's connection.
    Job(Job),
}

/// A user process.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Program {
    pub(crate) candidates: Vec<CString>,
    pub(crate) arguments: Vec<CString>,
    pub(crate) environment: Vec<CString>,
    pub(crate) directory: CString,
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    pub(crate) groups: Vec<u32>,
    pub(crate) terminal: bool,
    pub(crate) open_files: Option<u64>,
    pub(crate) mark: u64,
}

/// What a job does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub(crate) enum Kind {
    /// Takes content from the connection into the one path.
    Write = 1,
    /// Concatenates all paths but the last into the last.
    Compose = 2,
    /// Copies the first path to the second, which is on another file system, then removes the first.
    MoveAcross = 3,
}

/// Work that moves content, so that its memory counts in the `work` cgroup.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Job {
    pub(crate) kind: Kind,
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    pub(crate) mode: u32,
    pub(crate) paths: Vec<String>,
    pub(crate) metadata: BTreeMap<String, String>,
}

/// The whole message, its length first.
pub(crate) fn encode(order: &Order) -> Vec<u8> {
    let mut out = Writer(vec![0; 4]);
    match order {
        Order::Program(program) => {
            out.number(0);
            out.list(program.candidates.iter().map(|text| text.as_bytes()));
            out.list(program.arguments.iter().map(|text| text.as_bytes()));
            out.list(program.environment.iter().map(|text| text.as_bytes()));
            out.text(program.directory.as_bytes());
            out.number(program.uid);
            out.number(program.gid);
            out.number(u32::from(program.terminal));
            out.wide(program.open_files.unwrap_or(0));
            out.wide(program.mark);
            program.groups.iter().for_each(|group| out.number(*group));
        }
        Order::Job(job) => {
            out.number(job.kind as u32);
            out.number(job.uid);
            out.number(job.gid);
            out.number(job.mode);
            out.list(job.paths.iter().map(|text| text.as_bytes()));
            for (name, value) in &job.metadata {
                out.text(name.as_bytes());
                out.text(value.as_bytes());
            }
        }
    }
    let length = u32::try_from(out.0.len() - 4).unwrap_or(u32::MAX);
    out.0[..4].copy_from_slice(&length.to_le_bytes());
    out.0
}

/// Reads a message without its length.
pub(crate) fn decode(bytes: &[u8]) -> Option<Order> {
    let mut input = Reader(bytes);
    let kind = match input.number()? {
        0 => return input.program().map(Order::Program),
        1 => Kind::Write,
        2 => Kind::Compose,
        3 => Kind::MoveAcross,
        _ => return None,
    };
    let (uid, gid, mode) = (input.number()?, input.number()?, input.number()?);
    let paths = input.list()?.into_iter().map(String::from_utf8).collect::<Result<_, _>>().ok()?;
    let mut metadata = BTreeMap::new();
    while !input.0.is_empty() {
        let (name, value) = (input.text()?.to_vec(), input.text()?.to_vec());
        metadata.insert(String::from_utf8(name).ok()?, String::from_utf8(value).ok()?);
    }
    Some(Order::Job(Job { kind, uid, gid, mode, paths, metadata }))
}

struct Writer(Vec<u8>);

impl Writer {
    fn number(&mut self, value: u32) {
        self.0.extend_from_slice(&value.to_le_bytes());
    }

    fn wide(&mut self, value: u64) {
        self.0.extend_from_slice(&value.to_le_bytes());
    }

    fn text(&mut self, text: &[u8]) {
        self.number(u32::try_from(text.len()).unwrap_or(u32::MAX));
        self.0.extend_from_slice(text);
    }

    fn list<'a>(&mut self, texts: impl ExactSizeIterator<Item = &'a [u8]>) {
        self.number(u32::try_from(texts.len()).unwrap_or(u32::MAX));
        texts.for_each(|text| self.text(text));
    }
}

struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (head, rest) = self.0.split_first_chunk::<N>()?;
        self.0 = rest;
        Some(*head)
    }

    fn number(&mut self) -> Option<u32> {
        self.take().map(u32::from_le_bytes)
    }

    fn wide(&mut self) -> Option<u64> {
        self.take().map(u64::from_le_bytes)
    }

    fn text(&mut self) -> Option<&'a [u8]> {
        let length = usize::try_from(self.number()?).ok()?;
        let (text, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(text)
    }

    fn list(&mut self) -> Option<Vec<Vec<u8>>> {
        let count = self.number()?;
        (0..count).map(|_| self.text().map(<[u8]>::to_vec)).collect()
    }

    fn texts(&mut self) -> Option<Vec<CString>> {
        self.list()?.into_iter().map(CString::new).collect::<Result<_, _>>().ok()
    }

    fn program(&mut self) -> Option<Program> {
        let (candidates, arguments, environment) = (self.texts()?, self.texts()?, self.texts()?);
        let directory = CString::new(self.text()?).ok()?;
        let (uid, gid, terminal) = (self.number()?, self.number()?, self.number()? != 0);
        let open_files = Some(self.wide()?).filter(|limit| *limit > 0);
        let mark = self.wide()?;
        let mut groups = Vec::new();
        while !self.0.is_empty() {
            groups.push(self.number()?);
        }
        Some(Program {
            candidates,
            arguments,
            environment,
            directory,
            uid,
            gid,
            groups,
            terminal,
            open_files,
            mark,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn program(texts: Vec<CString>, numbers: Vec<u32>) -> Order {
        Order::Program(Program {
            candidates: texts.clone(),
            arguments: texts.clone(),
            environment: texts,
            directory: c"/".to_owned(),
            uid: 1000,
            gid: 7,
            groups: numbers,
            terminal: true,
            open_files: Some(1024),
            mark: u64::MAX / 2,
        })
    }

    #[test]
    fn jobs_round_trip() {
        let job = Job {
            kind: Kind::Compose,
            uid: 1,
            gid: 2,
            mode: 0o644,
            paths: vec!["/a".into(), "/b".into()],
            metadata: [("k".to_owned(), "v".to_owned())].into(),
        };
        let order = Order::Job(job);
        assert_eq!(decode(&encode(&order)[4..]), Some(order));
    }

    proptest! {
        #[test]
        fn programs_round_trip(texts in prop::collection::vec("[^\0]{0,20}", 0..8),
                               numbers in prop::collection::vec(any::<u32>(), 0..8)) {
            let texts = texts.into_iter().map(|text| CString::new(text).unwrap()).collect();
            let order = program(texts, numbers);
            prop_assert_eq!(decode(&encode(&order)[4..]), Some(order));
        }

        #[test]
        fn arbitrary_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            decode(&bytes);
        }
    }
}
