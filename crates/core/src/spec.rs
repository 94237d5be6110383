//! Owns what a sandbox is asked to be: resources, template, environment, life span. Validation of numbers happens here.

use crate::ids::{Digest, SandboxId, TemplateId, TenantId};
use crate::limits;
use crate::time::Timestamp;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// What one sandbox may use. Every number is a hard limit that the kernel enforces.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Resources {
    /// CPU share, in thousandths of a CPU.
    pub cpu_millis: u32,
    /// Memory, in MiB.
    pub memory_mib: u32,
    /// Writable disk, in MiB.
    pub disk_mib: u32,
    /// Processes and threads.
    pub processes: u32,
    /// Open files per process.
    pub open_files: u32,
}

impl Default for Resources {
    fn default() -> Self {
        Self { cpu_millis: 2000, memory_mib: 512, disk_mib: 1024, processes: 1024, open_files: 16_384 }
    }
}

/// A resource number outside its bounds.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{field} must be between {min} and {max}, got {got}")]
pub struct InvalidResources {
    /// Name of the field.
    pub field: &'static str,
    /// Smallest legal value.
    pub min: u32,
    /// Largest legal value.
    pub max: u32,
    /// What was asked for.
    pub got: u32,
}

impl Resources {
    /// Checks every number against its bounds.
    pub fn validate(&self) -> Result<(), InvalidResources> {
        let rows = [
            ("cpu_millis", self.cpu_millis, limits::CPU_MILLIS),
            ("memory_mib", self.memory_mib, limits::MEMORY_MIB),
            ("disk_mib", self.disk_mib, limits::DISK_MIB),
            ("processes", self.processes, limits::PROCESSES),
            ("open_files", self.open_files, limits::OPEN_FILES),
        ];
        for (field, got, range) in rows {
            if !range.contains(&got) {
                return Err(InvalidResources { field, min: *range.start(), max: *range.end(), got });
            }
        }
        Ok(())
    }
}

/// Everything the node needs to make a sandbox. It holds no policy and no secret but the caller's own environment.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SandboxSpec {
    /// Chosen by the server, so that asking twice makes one sandbox.
    pub id: SandboxId,
    /// The owner.
    pub tenant: TenantId,
    /// The template, by id.
    pub template: TemplateId,
    /// The exact build of the template.
    pub digest: Digest,
    /// Hard limits.
    pub resources: Resources,
    /// Environment of every process in the sandbox.
    pub env: BTreeMap<String, String>,
    /// Small files that the agent writes before the sandbox is handed out, absolute path to content.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub files: BTreeMap<String, String>,
    /// Name shown by `hostname` inside.
    pub hostname: String,
    /// When the node ends the sandbox by itself.
    pub expires_at: Timestamp,
}

/// A template as the node holds it. Immutable; a new build has a new digest.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TemplateInfo {
    /// Its id, stable over builds.
    pub id: TemplateId,
    /// The short name, for example `base`.
    pub name: String,
    /// Digest of the root file system of this build.
    pub digest: Digest,
    /// When this build was made.
    pub created_at: Timestamp,
    /// Bytes of the root file system.
    pub size_bytes: u64,
    /// User that commands run as when the caller names none.
    pub default_user: String,
    /// Working directory of commands when the caller names none; the home of the user if empty.
    pub default_workdir: String,
    /// Environment that the template gives to every process.
    pub env: BTreeMap<String, String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn defaults_are_legal_and_absurd_numbers_are_not() {
        assert_eq!(Resources::default().validate(), Ok(()));
        let absurd = Resources { memory_mib: u32::MAX, ..Resources::default() };
        assert_eq!(absurd.validate().unwrap_err().field, "memory_mib");
        let nothing = Resources { processes: 0, ..Resources::default() };
        assert_eq!(nothing.validate().unwrap_err().field, "processes");
    }
}
