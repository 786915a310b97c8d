//! Memory and processor model.
//!
//! May touch: `proc` of the tree; `sysinfo` and CPUID (live). Must never: ask this machine about a captured one.

use serde::{Deserialize, Serialize};

use crate::finding::{Finding, Missing};
use crate::hypervisor::{self, Cpuid};
use crate::roots::Roots;

/// Facts of a captured machine that no file has.
pub(crate) const META: &str = "capture/meta.json";

/// What that file says. Every key may be missing: other tools write it too.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Meta {
    pub(crate) architecture: Option<String>,
    pub(crate) kernel: Option<String>,
    /// Version of this crate.
    pub(crate) probe: Option<String>,
    /// What CPUID said there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) cpuid: Option<Cpuid>,
}

/// Where memory, processor model and CPUID come from.
pub trait System {
    /// Usable memory in bytes.
    ///
    /// # Errors
    /// Why it is not known.
    fn memory_bytes(&self) -> Finding<u64>;
    /// Processor model; `cpuinfo` is the text of `proc/cpuinfo`, which takes the kernel long and is read once.
    ///
    /// # Errors
    /// Why it is not known.
    fn cpu_model(&self, cpuinfo: Finding<&str>) -> Finding<String>;
    /// CPUID, if there is such a thing.
    fn cpuid(&self) -> Option<Cpuid>;
}

/// The running machine.
#[derive(Debug)]
pub(crate) struct LiveSystem(pub(crate) Roots);

/// A captured tree.
#[derive(Debug)]
pub(crate) struct CapturedSystem(pub(crate) Roots);

// === impl LiveSystem ===

impl System for LiveSystem {
    fn memory_bytes(&self) -> Finding<u64> {
        total_memory(&self.0)
    }

    fn cpu_model(&self, cpuinfo: Finding<&str>) -> Finding<String> {
        if let Some(model) = cpuinfo.ok().and_then(model_name) {
            return Ok(model);
        }
        // ARM tells numbers, and sysinfo has the names for them. It reads counters of every processor on its way, so it is asked last.
        let mut system = sysinfo::System::new().map_err(|_| Missing::IoError)?;
        system.refresh_cpu_list(sysinfo::CpuRefreshKind::nothing());
        let brand = system.cpus().first().map(|c| c.brand().trim().to_owned());
        brand.filter(|b| !b.is_empty()).ok_or(Missing::Absent)
    }

    fn cpuid(&self) -> Option<Cpuid> {
        hypervisor::cpuid()
    }
}

// === impl CapturedSystem ===

impl System for CapturedSystem {
    fn memory_bytes(&self) -> Finding<u64> {
        total_memory(&self.0).map_err(not_captured)
    }

    fn cpu_model(&self, cpuinfo: Finding<&str>) -> Finding<String> {
        model_name(cpuinfo.map_err(not_captured)?).ok_or(Missing::Absent)
    }

    fn cpuid(&self) -> Option<Cpuid> {
        let meta = self.0.read(META).ok()?;
        serde_json::from_slice::<Meta>(&meta).ok()?.cpuid
    }
}

fn total_memory(roots: &Roots) -> Finding<u64> {
    mem_total(&roots.read("proc/meminfo")?)
}

/// `MemTotal` of meminfo (proc(5)), in bytes.
pub(crate) fn mem_total(meminfo: &[u8]) -> Finding<u64> {
    let text = std::str::from_utf8(meminfo).map_err(|_| Missing::Invalid)?;
    let line = text.lines().find_map(|l| l.strip_prefix("MemTotal:")).ok_or(Missing::Invalid)?;
    let kib: u64 = line.trim().trim_end_matches("kB").trim().parse().map_err(|_| Missing::Invalid)?;
    Ok(kib.saturating_mul(1024))
}

/// `model name` of the first processor in cpuinfo that has one.
pub(crate) fn model_name(cpuinfo: &str) -> Option<String> {
    let model = cpuinfo.lines().find_map(|l| {
        let (key, value) = l.split_once(':')?;
        (key.trim() == "model name").then(|| value.trim().to_owned())
    });
    model.filter(|m| !m.is_empty())
}

fn not_captured(missing: Missing) -> Missing {
    if missing == Missing::Absent { Missing::NotCaptured } else { missing }
}
