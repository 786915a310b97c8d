//! What the kernel counts about one process. Reads `/proc/<pid>`; touches nothing.

use anyhow::{Context, Result};

/// Peak and present resident memory, KiB.
pub(crate) struct Memory {
    pub(crate) peak_kib: u64,
    pub(crate) now_kib: u64,
}

/// Resident memory of a process, as the kernel counts it (`VmHWM`, `VmRSS`: proc(5)).
pub(crate) fn memory(pid: u32) -> Result<Memory> {
    let path = format!("/proc/{pid}/status");
    let status = std::fs::read_to_string(&path).context(path)?;
    let value = |name| field(&status, name).with_context(|| format!("/proc/{pid}/status has no {name}"));
    Ok(Memory { peak_kib: value("VmHWM")?, now_kib: value("VmRSS")? })
}

/// How often all threads of a process went to sleep by themselves so far: one for each time they were woken.
pub(crate) fn voluntary_switches(pid: u32) -> Result<u64> {
    let mut sum = 0;
    let tasks = format!("/proc/{pid}/task");
    for task in std::fs::read_dir(&tasks).context(tasks)? {
        // A thread that ends meanwhile is not asleep.
        let status = std::fs::read_to_string(task?.path().join("status")).unwrap_or_default();
        sum += field(&status, "voluntary_ctxt_switches").unwrap_or(0);
    }
    Ok(sum)
}

/// The number of one line of a `status` file.
fn field(status: &str, name: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
    line.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_field_is_found_by_its_whole_name() {
        let status = "VmHWM:\t    5120 kB\nnonvoluntary_ctxt_switches:\t7\nvoluntary_ctxt_switches:\t150\n";
        assert_eq!(field(status, "VmHWM"), Some(5120));
        assert_eq!(field(status, "voluntary_ctxt_switches"), Some(150));
        assert_eq!(field(status, "VmRSS"), None);
    }

    #[test]
    fn this_process_has_memory_and_has_slept() {
        let memory = memory(std::process::id()).unwrap();
        assert!(memory.peak_kib >= memory.now_kib && memory.now_kib > 0);
        assert!(voluntary_switches(std::process::id()).is_ok());
    }
}
