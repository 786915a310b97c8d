//! Where the hardware probe is measured, against whom, and what is wanted of it.

use std::fs::{self, File};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::children::Signals;
use crate::steps::words;
use crate::workspace::Workspace;

use super::contest::{Contender, Contest, Cost, median};
use super::rack;
use super::table::{self, Row, Table};

/// Names of the contenders.
const OURS: &str = "probe";
const NO_READ: &str = "probe --no-read";
/// With the wait for udev that `--once` leaves out: one more process, and no work when udev is idle.
const SETTLED: &str = "probe, after settle";
const PEERS: &str = "lsblk -O + ip + ip";
const COLUMNS: &str = "lsblk -o + ip + ip";
const LSHW: &str = "lshw";
const LSBLK: &str = "lsblk -O";
/// The columns of `lsblk` that the probe has too.
const LSBLK_COLUMNS: &str = "lsblk -J -b -o NAME,KNAME,PATH,MAJ:MIN,TYPE,SIZE,MODEL,VENDOR,SERIAL,WWN,TRAN,ROTA,RM,RO,LOG-SEC,PHY-SEC,\
                             PTTYPE,PARTTYPE,PARTLABEL,PARTUUID,FSTYPE,MOUNTPOINTS,PKNAME,STATE,ZONED";
/// Disks of the largest tree, with 9 partitions each.
const DISKS: u32 = 1000;
const PARTITIONS: u32 = 9;
const ROUTES: u32 = 100_000;

/// Where to measure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Place {
    /// The running machine
    Live,
    /// Trees of 100, 1,000 and 10,000 block devices
    Trees,
    /// 100,000 routes; needs root
    Routes,
    /// A machine in QEMU with 24 disks, a running udev and our package; needs root
    Guest,
}

// === impl Place ===

impl Place {
    pub(crate) const ALL: &[Self] = &[Self::Live, Self::Trees, Self::Routes, Self::Guest];
}

/// How to measure.
pub(crate) struct Setup<'a> {
    /// Our program.
    pub(crate) program: PathBuf,
    /// It has `probe --once`.
    pub(crate) once: bool,
    /// A directory for trees, in memory.
    pub(crate) dir: &'a Path,
    pub(crate) rounds: u32,
    pub(crate) slow_rounds: u32,
    pub(crate) signals: &'a Signals,
    /// Nobody is asked before packages are installed.
    pub(crate) yes: bool,
}

/// The machine that is measured on.
struct Machine {
    disks: usize,
    /// How many of them look blank and are read.
    read: usize,
    /// By QEMU without KVM: times mean nothing there, only what is twice as much as something else.
    emulated: bool,
}

// === impl Setup ===

impl Setup<'_> {
    /// Measures and prints; true when every target was reached.
    pub(crate) fn measure(&self, place: Place) -> Result<bool> {
        match place {
            Place::Live => self.live(),
            Place::Trees => self.trees(),
            Place::Routes => self.routes(),
            Place::Guest => self.guest(),
        }
    }

    fn probe(&self, more: &str) -> String {
        format!("{} probe --output json{more}", self.program.display())
    }

    /// [`Self::probe`] of this machine: one look, as all the others take.
    fn look(&self, more: &str) -> String {
        self.probe(&format!("{}{more}", if self.once { " --once" } else { "" }))
    }

    fn contest(&self, contenders: &[Contender], rounds: u32) -> Result<Contest> {
        let contest = Contest::run(contenders, rounds, self.dir, self.signals)?;
        print!("{contest}");
        Ok(contest)
    }

    fn live(&self) -> Result<bool> {
        let machine = self.machine()?;
        println!(
            "\nthis machine: {} disks, {} of them to be read because they look blank{}; {} rounds in turns",
            machine.disks,
            machine.read,
            if machine.emulated { ", emulated" } else { "" },
            self.rounds
        );
        let ips = ["ip -j -d addr", "ip -j route"];
        let mut contenders = vec![
            Contender::new(OURS, &[&self.look("")]),
            Contender::new(NO_READ, &[&self.look(" --no-read")]),
            Contender::new(PEERS, &["lsblk -J -b -O", ips[0], ips[1]]),
            Contender::new(COLUMNS, &[LSBLK_COLUMNS, ips[0], ips[1]]),
        ];
        if self.once {
            contenders.push(Contender::new(SETTLED, &[&self.probe("")]).every(5));
        }
        match Command::new("lshw").arg("-version").output() {
            Ok(_) => contenders.push(Contender::new(LSHW, &["lshw -json"]).every(5)),
            Err(_) => println!("  {LSHW:<24} not installed: not compared"),
        }
        let contest = self.contest(&contenders, self.rounds)?;
        let mut table = Table::default();
        for ours in [OURS, NO_READ] {
            let percent = percent(contest.cost(ours)?, contest.cost(PEERS)?);
            let row = Row::new(format!("{ours}: CPU of lsblk -O + ip + ip"), "%", percent);
            // The peers read no disk.
            table.add(if ours == OURS && machine.read > 0 { row } else { row.at_most(50) });
        }
        let wall = Row::new("probe --no-read: wall", "us", contest.cost(NO_READ)?.wall.clone());
        table.add(if machine.emulated { wall } else { wall.at_most(50_000) });
        let peak = contest.cost(OURS)?.peak_kib;
        table.add(Row::new("probe: peak memory", "KiB", vec![peak]).at_most(16 * 1024));
        print!("\n{table}");
        Ok(table.all_reached())
    }

    /// What our own program says of this machine.
    fn machine(&self) -> Result<Machine> {
        let look = self.look(" --no-read");
        let out = Command::new(&self.program).args(look.split(' ').skip(1)).output();
        let out = out.with_context(|| format!("cannot start {look}"))?;
        let said: Value = serde_json::from_slice(&out.stdout).with_context(|| look.clone())?;
        let disks = said["disks"].as_array().with_context(|| format!("{look} tells no disks"))?;
        let unread = |disk: &&Value| {
            disk["holds"].as_array().is_some_and(|holds| holds.iter().any(|token| token == "unreadable"))
        };
        Ok(Machine {
            disks: disks.len(),
            read: disks.iter().filter(unread).count(),
            emulated: said["hypervisor"] == "qemu",
        })
    }

    fn trees(&self) -> Result<bool> {
        println!("\ncaptured trees in memory; user and system time of the whole process");
        let mut small: Vec<Contender> = Vec::new();
        let mut sizes: Vec<(&str, u64)> = Vec::new();
        let names = [
            ("no device", 0),
            ("100 devices", DISKS / 100),
            ("1,000 devices", DISKS / 10),
            ("10,000 devices", DISKS),
        ];
        for (name, disks) in names {
            let tree = self.dir.join(format!("tree-{disks}"));
            rack::write(&tree, disks, PARTITIONS).with_context(|| format!("write {}", tree.display()))?;
            small.push(Contender::new(name, &[&self.probe(&format!(" --root {}", tree.display()))]));
            sizes.push((name, u64::from(disks) * u64::from(PARTITIONS + 1)));
        }
        println!("cost by size, {} rounds in turns:", self.rounds);
        let by_size = self.contest(&small, self.rounds)?;

        let tree = self.dir.join(format!("tree-{DISKS}"));
        println!(
            "\n10,000 devices against lsblk, which reads the same tree; {} rounds in turns:",
            self.slow_rounds
        );
        let contenders = [
            Contender::new(OURS, &[&self.probe(&format!(" --root {}", tree.display()))]),
            Contender::new(LSBLK, &[&format!("lsblk --sysroot {} -J -b -O", tree.display())]),
        ];
        let large = self.contest(&contenders, self.slow_rounds)?;

        let mut table = Table::default();
        let fixed = median(&by_size.cost("no device")?.cpu);
        // Nanoseconds of each device, without what a process costs that finds none.
        let each = |name: &str, devices: u64| -> Result<Vec<u64>> {
            let cpu = &by_size.cost(name)?.cpu;
            Ok(cpu.iter().map(|cpu| cpu.saturating_sub(fixed) * 1000 / devices).collect())
        };
        let mut costs: Vec<u64> = Vec::new();
        for (name, devices) in sizes.iter().filter(|(_, devices)| *devices > 0) {
            let values = each(name, *devices)?;
            costs.push(median(&values));
            table.add(Row::new(format!("CPU per device of {name}"), "ns", values));
        }
        if let (Some(least), Some(most)) = (costs.first(), costs.last()) {
            let percent = most * 100 / (*least).max(1);
            table.add(Row::new("the same at 10,000, in % of that at 100", "%", vec![percent]).at_most(130));
        }
        let ours = by_size.cost("10,000 devices")?;
        table.add(Row::new("10,000 devices: wall", "us", ours.wall.clone()).at_most(800_000));
        table.add(Row::new("10,000 devices: peak memory", "KiB", vec![ours.peak_kib]).at_most(48 * 1024));
        table.add(Row::new("10,000 devices: system calls", "", vec![ours.calls]).at_most(300_000));
        let percent = percent(large.cost(OURS)?, large.cost(LSBLK)?);
        table.add(Row::new("10,000 devices: CPU of lsblk -O", "%", percent).at_most(20));
        print!("\n{table}");
        Ok(table.all_reached())
    }

    fn routes(&self) -> Result<bool> {
        if !rustix::process::geteuid().is_root() {
            println!("\n100,000 routes: not measured, that needs root");
            return Ok(true);
        }
        println!("\n100,000 routes in a network namespace, {} rounds in turns:", self.rounds);
        let batch = self.dir.join("routes");
        File::create(&batch)
            .and_then(|mut file| file.write_all(routes().as_bytes()))
            .context("list of routes")?;
        // One namespace for all runs: the routes are made once.
        let space = Namespace::make(&batch)?;
        let inside = |line: &str| format!("ip netns exec {} {line}", space.name);
        let contenders = [
            Contender::new(OURS, &[&inside(&self.look(" --no-read"))]),
            Contender::new("ip -j route", &[&inside("ip -j route")]),
        ];
        let contest = self.contest(&contenders, self.rounds)?;
        let ours = contest.cost(OURS)?;
        let mut table = Table::default();
        table.add(Row::new("100,000 routes: wall", "us", ours.wall.clone()).at_most(1_000_000));
        table.add(Row::new("100,000 routes: peak memory", "KiB", vec![ours.peak_kib]).at_most(64 * 1024));
        print!("\n{table}");
        Ok(table.all_reached())
    }

    /// The same program measures in there: the table of that machine is printed from the inside.
    fn guest(&self) -> Result<bool> {
        if !rustix::process::geteuid().is_root() {
            println!("\na machine in QEMU: not measured, that needs root");
            return Ok(true);
        }
        println!("\na machine in QEMU:");
        let mut story = Command::new(std::env::current_exe().context("where this program is")?);
        story.args(["vm", "probe-cost"]).args(self.yes.then_some("--yes"));
        if !story.status().with_context(|| format!("cannot start {}", words(&story)))?.success() {
            bail!("{} failed", words(&story));
        }
        let measured = Workspace::find()?.target.join("vm/probe-cost/machine/measured.txt");
        let measured =
            fs::read_to_string(&measured).with_context(|| format!("read {}", measured.display()))?;
        Ok(!measured.contains(table::MISSED))
    }
}

/// A network namespace that goes away with this.
struct Namespace {
    name: String,
}

// === impl Namespace ===

impl Namespace {
    /// With the routes of an `ip -batch` file.
    fn make(batch: &Path) -> Result<Self> {
        let name = format!("stratum-bench-{}", std::process::id());
        ip(&["netns", "add", &name])?;
        let space = Self { name };
        ip(&["-n", &space.name, "link", "set", "lo", "up"])?;
        ip(&["-n", &space.name, "-batch", &batch.display().to_string()])?;
        Ok(space)
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        if let Err(error) = ip(&["netns", "delete", &self.name]) {
            println!("{error:#}: take it away with: ip netns delete {}", self.name);
        }
    }
}

fn ip(args: &[&str]) -> Result<()> {
    let out = Command::new("ip").args(args).output().context("cannot start ip")?;
    if !out.status.success() {
        bail!("ip {}: {}", args.join(" "), String::from_utf8_lossy(&out.stderr).trim());
    }
    Ok(())
}

/// Routes for `ip -batch`, each to another network of 16 addresses.
fn routes() -> String {
    let route = |n: u32| {
        let address = std::net::Ipv4Addr::from(0x0a00_0000 + n * 16);
        format!("route add {address}/28 dev lo\n")
    };
    (0..ROUTES).map(route).collect()
}

/// Processor time in percent of the peer's, round by round, rounded up.
fn percent(ours: &Cost, peer: &Cost) -> Vec<u64> {
    ours.cpu.iter().zip(&peer.cpu).map(|(ours, peer)| (ours * 100).div_ceil((*peer).max(1))).collect()
}
