//! Owns every cap of the system in one place: sizes of what is parsed, numbers of what is held, spans of waits.

/// Longest control message of the agent protocol, in bytes.
pub const GUEST_CONTROL_BYTES_MAX: usize = 1024 * 1024;
/// Longest data chunk of the agent protocol, in bytes.
pub const GUEST_DATA_BYTES_MAX: usize = 64 * 1024;
/// Largest chunk of process output in one message to a client, in bytes.
pub const OUTPUT_CHUNK_BYTES_MAX: usize = 32 * 1024;
/// Largest chunk of terminal output in one message to a client, in bytes.
pub const PTY_CHUNK_BYTES_MAX: usize = 16 * 1024;
/// Longest message between server and node, in bytes.
pub const NODE_MESSAGE_BYTES_MAX: usize = 128 * 1024;
/// Longest JSON body of a control-plane request, in bytes.
pub const API_BODY_BYTES_MAX: usize = 1024 * 1024;
/// Connections to one agent at a time; more are refused with `resource_exhausted`.
pub const GUEST_CONNECTIONS_MAX: usize = 512;
/// Processes that clients started in one sandbox and that still run.
pub const GUEST_PROCESSES_MAX: usize = 1024;
/// Entries in one directory listing answer.
pub const LISTING_ENTRIES_MAX: usize = 100_000;
/// How long the result of an exited process can still be fetched, in milliseconds.
pub const EXIT_RETENTION_MS: u64 = 30_000;

/// Environment variables in one request.
pub const ENV_COUNT_MAX: usize = 1024;
/// Bytes of names and values of the environment in one request.
pub const ENV_BYTES_MAX: usize = 256 * 1024;
/// Metadata pairs of a sandbox.
pub const METADATA_COUNT_MAX: usize = 64;
/// Bytes of keys and values of the metadata of a sandbox.
pub const METADATA_BYTES_MAX: usize = 16 * 1024;

/// Longest life span that a request may ask for, in seconds (30 days).
pub const TIMEOUT_SECONDS_MAX: u64 = 30 * 24 * 3600;
/// Life span when the request names none, in seconds.
pub const TIMEOUT_SECONDS_DEFAULT: u64 = 300;

/// Smallest and largest memory of a sandbox, in MiB.
pub const MEMORY_MIB: std::ops::RangeInclusive<u32> = 32..=1024 * 1024;
/// Smallest and largest CPU share of a sandbox, in thousandths of a CPU.
pub const CPU_MILLIS: std::ops::RangeInclusive<u32> = 50..=256_000;
/// Smallest and largest writable disk of a sandbox, in MiB.
pub const DISK_MIB: std::ops::RangeInclusive<u32> = 16..=4 * 1024 * 1024;
/// Smallest and largest number of processes of a sandbox.
pub const PROCESSES: std::ops::RangeInclusive<u32> = 8..=32_768;
/// Smallest and largest number of open files per process.
pub const OPEN_FILES: std::ops::RangeInclusive<u32> = 64..=1_048_576;

/// How long the server waits for the first answer of an agent, in milliseconds.
pub const GUEST_REPLY_MS_MAX: u64 = 30_000;
/// How long the server waits for the answer of the node to a short call, in milliseconds.
pub const NODE_REPLY_MS_MAX: u64 = 30_000;
/// How long the server tries to reach a node again for a call that must not get lost, in milliseconds.
pub const NODE_RETRY_MS_MAX: u64 = 20_000;
/// Calls to the node that may be unanswered at one time.
pub const NODE_CALLS_MAX: usize = 4096;

/// Bytes that an imported archive may hold after decompression (64 GiB).
pub const IMPORT_BYTES_MAX: u64 = 64 * 1024 * 1024 * 1024;
/// Entries that an imported archive may hold.
pub const IMPORT_ENTRIES_MAX: u64 = 4_000_000;
/// Bytes of one name extension or attribute block in an imported archive.
pub const IMPORT_EXTENSION_BYTES_MAX: u64 = 1024 * 1024;
/// Bytes of one JSON document of an imported image.
pub const IMPORT_DOCUMENT_BYTES_MAX: u64 = 4 * 1024 * 1024;
/// Layers of an imported image.
pub const IMPORT_LAYERS_MAX: usize = 500;
/// Longest path in an imported archive, in bytes.
pub const IMPORT_PATH_BYTES_MAX: usize = 4096;
/// Deepest directory of a template.
pub const TEMPLATE_DEPTH_MAX: usize = 256;
/// Users and groups of a sandbox have numbers below this.
pub const SANDBOX_IDS: u32 = 65_536;
