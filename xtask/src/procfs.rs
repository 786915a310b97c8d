//! What the kernel counts about one process. Reads `/proc/<pid>`; touches nothing.

use std::collections::BTreeMap;

use anyhow::{Context, Result, bail};

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

/// What the threads of one process have used of the processors, nanoseconds: the first number of each thread's `schedstat` (kernel:
/// Documentation/scheduler/sched-stats.rst). Of threads that have ended nothing is counted.
pub(crate) fn cpu_ns(pid: u32) -> Result<u64> {
    let tasks = format!("/proc/{pid}/task");
    let mut sum = 0;
    for task in std::fs::read_dir(&tasks).context(tasks)? {
        let path = task?.path().join("schedstat");
        let text = std::fs::read_to_string(&path).with_context(|| path.display().to_string())?;
        let first = text.split_whitespace().next().and_then(|number| number.parse::<u64>().ok());
        sum += first.with_context(|| format!("{} has no number", path.display()))?;
    }
    Ok(sum)
}

/// How often the threads of one process went to sleep by themselves: one for each time one of them was woken.
#[derive(Default)]
pub(crate) struct Sleeps {
    last: BTreeMap<String, u64>,
    total: u64,
}

// === impl Sleeps ===

impl Sleeps {
    /// What is counted from now on.
    pub(crate) fn since_now(pid: u32) -> Result<Self> {
        Ok(Self { last: by_thread(pid)?, total: 0 })
    }

    /// Adds what happened since the last look. Threads come and go, and a sum over those that are there would lose what
    /// the gone ones did; so look often.
    pub(crate) fn look(&mut self, pid: u32) -> Result<()> {
        self.add(by_thread(pid)?);
        Ok(())
    }

    fn add(&mut self, now: BTreeMap<String, u64>) {
        for (thread, count) in &now {
            self.total += count.saturating_sub(self.last.get(thread).copied().unwrap_or(0));
        }
        self.last = now;
    }

    /// All of them.
    pub(crate) fn total(&self) -> u64 {
        self.total
    }
}

/// `voluntary_ctxt_switches` of each thread (proc(5)).
fn by_thread(pid: u32) -> Result<BTreeMap<String, u64>> {
    let tasks = format!("/proc/{pid}/task");
    let mut threads = BTreeMap::new();
    for task in std::fs::read_dir(&tasks).context(tasks)? {
        let task = task?;
        // A thread may end between the two reads.
        let Ok(status) = std::fs::read_to_string(task.path().join("status")) else { continue };
        if let Some(count) = field(&status, "voluntary_ctxt_switches") {
            threads.insert(task.file_name().to_string_lossy().into_owned(), count);
        }
    }
    if threads.is_empty() {
        bail!("process {pid} has no thread that can be counted");
    }
    Ok(threads)
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
    fn this_process_has_memory_and_threads() {
        let memory = memory(std::process::id()).unwrap();
        assert!(memory.peak_kib >= memory.now_kib && memory.now_kib > 0);
        assert!(!by_thread(std::process::id()).unwrap().is_empty());
        assert!(cpu_ns(std::process::id()).unwrap() > 0);
    }

    #[test]
    fn a_thread_that_ends_takes_none_of_its_sleeps_along_and_a_new_one_brings_its_own() {
        let threads = |list: &[(&str, u64)]| list.iter().map(|(t, n)| ((*t).to_owned(), *n)).collect();
        let mut sleeps = Sleeps { last: threads(&[("1", 90), ("2", 10)]), total: 0 };
        sleeps.add(threads(&[("1", 92), ("2", 11)]));
        sleeps.add(threads(&[("1", 93), ("3", 2)]));
        assert_eq!(sleeps.total(), 6);
    }
}
