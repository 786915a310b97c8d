//! `cargo xtask bench download`: a release of a gibibyte over TLS on loopback, beside `curl` and `aria2c`, in turns; and what a kill in the middle costs.
//!
//! Server and clients have a processor each (`taskset`). Every contender ends with bytes that are verified and on the disk. Touches a temporary
//! directory that goes away, and loopback.

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use rustix::process::{Pid, Signal, kill_process};

use super::contest::{Contender, Contest, median};
use super::table::{Row, Table};
use crate::children::Signals;
use crate::packages;
use crate::workspace::{Profile, Workspace};

const OURS: &str = "stratum-join release fetch";
const CURL: &str = "curl, openssl dgst";
const ARIA: &str = "aria2c with checksum";
/// Where the server runs and where the clients run.
const SERVER_CPU: &str = "1";
const CLIENT_CPU: &str = "0";
const MIB: u64 = 1024 * 1024;
/// Four streams, a chunk each.
const REFETCHED: u64 = 16 * MIB;
const CPU_PER_GB_MS: u64 = 1800;
const PEAK_KIB: u64 = 24 * 1024;

/// Measure the download of a release.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Rounds of each contender.
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// Size of the release.
    #[arg(long, value_name = "MIB", default_value_t = 1024, value_parser = clap::value_parser!(u64).range(64..))]
    size: u64,
    /// Where the files go: a directory on the disk that is meant. A temporary one without it.
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
    /// Use the programs of this folder and build none.
    #[arg(long, value_name = "DIR")]
    programs: Option<PathBuf>,
    /// Install missing Debian packages without asking.
    #[arg(long)]
    yes: bool,
}

/// What all of them share.
struct Setup {
    programs: PathBuf,
    dir: PathBuf,
    bytes: u64,
    /// Of the one large file.
    sha256: String,
}

/// The mirror.
struct Server {
    child: Child,
    url: String,
}

/// Builds, measures, prints.
pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    packages::ensure(&[packages::BENCH_DOWNLOAD], args.yes)?;
    let programs = match &args.programs {
        Some(programs) => programs.clone(),
        None => {
            let workspace = Workspace::find()?;
            packages::ensure(&[packages::BUILD], args.yes)?;
            super::build(&workspace)?;
            workspace.bin_dir(Profile::Release)
        }
    };
    if std::thread::available_parallelism().map_or(1, usize::from) < 2 {
        bail!("server and client need a processor each, and there is one");
    }
    let signals = Signals::register()?;
    let mut builder = tempfile::Builder::new();
    let builder = builder.prefix("stratum-bench-");
    let dir = match &args.dir {
        Some(dir) => builder.tempdir_in(dir),
        None => builder.tempdir(),
    };
    let dir = dir.context("temporary directory")?;
    let setup = Setup::make(programs, dir.path(), args.size * MIB)?;
    for version in [&["curl", "--version"][..], &["openssl", "version"], &["aria2c", "--version"]] {
        let out = Command::new(version[0]).args(&version[1..]).output().context(version[0])?;
        println!("{}", String::from_utf8_lossy(&out.stdout).lines().next().unwrap_or_default());
    }
    let server = Server::start(&setup)?;
    println!(
        "{} MiB over TLS on loopback; server on processor {SERVER_CPU}, clients on {CLIENT_CPU}:",
        args.size
    );
    let contest = Contest::run(&setup.contenders(&server), args.rounds, dir.path(), &signals)?;
    println!("{contest}");
    let table = setup.table(&contest, &server, &signals)?;
    println!("{table}");
    Ok(if table.all_reached() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

// === impl Setup ===

impl Setup {
    /// A signed release with one large file.
    fn make(programs: PathBuf, dir: &Path, bytes: u64) -> Result<Self> {
        let root = dir.join("root");
        let mut noise = File::open("/dev/urandom").context("/dev/urandom")?.take(bytes);
        let mut file = File::create(&root).context("the image")?;
        std::io::copy(&mut noise, &mut file).context("the image")?;
        let kernel = dir.join("kernel");
        fs::copy("/proc/version", &kernel).context("the kernel")?;
        let setup = Self { programs, dir: dir.to_owned(), bytes, sha256: String::new() };
        let (keys, release) = (dir.join("keys"), dir.join("release"));
        let call = |command: &mut Command| -> Result<()> {
            let out = command.output().context("lab-founder")?;
            if !out.status.success() {
                bail!("{}", String::from_utf8_lossy(&out.stderr));
            }
            Ok(())
        };
        call(setup.lab("release").args(["keygen", "--name", "a", "--out"]).arg(&keys))?;
        let mut make = setup.lab("release");
        make.args(["make", "--release", "0.7.0", "--sequence", "70", "--min-upgrade-from", "0.5.0"]);
        make.args(["--created", "2026-01-01T00:00:00Z", "--fstype", "erofs", "--out"]).arg(&release);
        call(make.arg("--root").arg(&root).arg("--linux").arg(&kernel))?;
        call(setup.lab("release").arg("sign").arg(&release).arg("--key").arg(keys.join("a.key")))?;
        fs::remove_file(&root).context("the image")?;
        fs::remove_file(keys.join("a.key")).context("the key")?;
        let blobs = fs::read_dir(release.join("os/blobs/sha256")).context("the blobs")?;
        let large = blobs.flatten().find(|blob| blob.metadata().is_ok_and(|meta| meta.len() == bytes));
        let sha256 = large.context("no large blob")?.file_name().to_string_lossy().into_owned();
        Ok(Self { sha256, ..setup })
    }

    fn lab(&self, verb: &str) -> Command {
        let mut command = Command::new(self.programs.join("lab-founder"));
        command.arg(verb);
        command
    }

    fn path(&self, name: &str) -> String {
        self.dir.join(name).display().to_string()
    }

    fn blob(&self, server: &Server) -> String {
        format!("{}/os/blobs/sha256/{}", server.url, self.sha256)
    }

    fn ours(&self, server: &Server) -> String {
        format!(
            "{} release fetch --source {} --keys {} --to {} --ca {} --form ab --output json",
            self.programs.join("stratum-join").display(),
            server.url,
            self.path("keys"),
            self.path("ours"),
            self.path("certs/ca.pem")
        )
    }

    fn curl(&self, server: &Server) -> String {
        let (ca, to) = (self.path("certs/ca.pem"), self.path("curl"));
        format!("curl -s -f -C - --cacert {ca} -o {to} {}", self.blob(server))
    }

    fn aria(&self, server: &Server) -> String {
        format!(
            "aria2c -q -c -x4 -s4 --file-allocation=falloc --ca-certificate={} --checksum=sha-256={} -d {} -o aria {}",
            self.path("certs/ca.pem"),
            self.sha256,
            self.dir.display(),
            self.blob(server)
        )
    }

    /// Each begins without what the last one left, on the clients' processor, and ends with a sync.
    fn contenders(&self, server: &Server) -> [Contender; 3] {
        let on = |line: &str| format!("taskset -c {CLIENT_CPU} {line}");
        let new = |name, left: &str, lines: &[String]| {
            let mut all = vec![format!("rm -rf {left}")];
            all.extend(lines.iter().map(|line| on(line)));
            Contender::new(name, &all.iter().map(String::as_str).collect::<Vec<_>>())
        };
        let (curl, aria) = (self.path("curl"), self.path("aria"));
        [
            new(OURS, &self.path("ours"), &[self.ours(server)]),
            new(
                CURL,
                &curl,
                &[self.curl(server), format!("openssl dgst -sha256 {curl}"), format!("sync {curl}")],
            ),
            new(ARIA, &aria, &[self.aria(server), format!("sync {aria}")]),
        ]
    }

    fn table(&self, contest: &Contest, server: &Server, signals: &Signals) -> Result<Table> {
        let mut table = Table::default();
        let (ours, curl, aria) = (contest.cost(OURS)?, contest.cost(CURL)?, contest.cost(ARIA)?);
        let millis = |values: &[u64]| values.iter().map(|micros| micros / 1000).collect();
        let best = median(&curl.wall).min(median(&aria.wall)) / 1000;
        table.add(Row::new("wall, beside the better peer", "ms", millis(&ours.wall)).at_most(best));
        let per_gb = |values: &[u64]| -> Vec<u64> {
            values.iter().map(|micros| micros * 1_000_000 / self.bytes).collect()
        };
        table.add(Row::new("processor time for each GB", "ms", per_gb(&ours.cpu)).at_most(CPU_PER_GB_MS));
        for peer in [curl, aria] {
            table.add(Row::new(format!("  {}", peer.name), "ms", per_gb(&peer.cpu)));
        }
        table.add(Row::new("peak memory", "KiB", vec![ours.peak_kib]).at_most(PEAK_KIB));
        for peer in [curl, aria] {
            table.add(Row::new(format!("  {}", peer.name), "KiB", vec![peer.peak_kib]));
        }
        signals.wait(Duration::ZERO)?;
        let kib = |bytes: u64| vec![bytes / 1024];
        let again = self.killed(server, &self.ours(server), &["ours"])?;
        table.add(
            Row::new("fetched again after a kill in the middle", "KiB", kib(again)).at_most(REFETCHED / 1024),
        );
        let again = self.killed(server, &self.aria(server), &["aria", "aria.aria2"])?;
        table.add(Row::new(format!("  {ARIA}"), "KiB", kib(again)));
        let again = self.killed(server, &self.curl(server), &["curl"])?;
        table.add(Row::new("  curl -C -, which does not look at what is there", "KiB", kib(again)));
        Ok(table)
    }

    /// Starts it, kills it when half has come, starts it again, and counts.
    fn killed(&self, server: &Server, line: &str, left: &[&str]) -> Result<u64> {
        for name in left {
            let path = self.dir.join(name);
            if path.is_dir() { fs::remove_dir_all(&path) } else { fs::remove_file(&path) }
                .or_else(|e| if e.kind() == std::io::ErrorKind::NotFound { Ok(()) } else { Err(e) })?;
        }
        let before = server.read()?;
        let start = || {
            let mut command = Command::new("taskset");
            command.args(["-c", CLIENT_CPU]).args(line.split(' '));
            command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
            command.spawn().context("taskset")
        };
        let mut first = start()?;
        while server.read()? - before < self.bytes / 2 {
            if first.try_wait()?.is_some() {
                bail!("{line} ended before it was killed");
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        // It stands still while it is looked at: what is on its way to it was not received.
        let pid = i32::try_from(first.id()).ok().and_then(Pid::from_raw).context("no process")?;
        kill_process(pid, Signal::STOP)?;
        std::thread::sleep(Duration::from_millis(100));
        let received = (server.read()? - before).saturating_sub(server.on_its_way()?);
        first.kill()?;
        first.wait()?;
        // What the server was still sending has gone nowhere.
        std::thread::sleep(Duration::from_millis(200));
        let again = server.read()?;
        if !start()?.wait()?.success() {
            bail!("{line} failed after the kill");
        }
        Ok((received + (server.read()? - again)).saturating_sub(self.bytes))
    }
}

// === impl Server ===

impl Server {
    fn start(setup: &Setup) -> Result<Self> {
        let mut command = Command::new("taskset");
        command.args(["-c", SERVER_CPU]).arg(setup.programs.join("lab-founder"));
        command.args(["mirror", "--dir", &setup.path("release"), "--certs", &setup.path("certs")]);
        let mut child = command.stdout(Stdio::piped()).spawn().context("the mirror")?;
        let mut line = String::new();
        BufReader::new(child.stdout.take().context("the mirror")?).read_line(&mut line)?;
        let ready: serde_json::Value = serde_json::from_str(&line).context("the mirror")?;
        let url = ready["url"].as_str().context("the mirror")?.to_owned();
        Ok(Self { child, url })
    }

    /// Bytes of files that it has read, which are those that it sent (proc(5); what comes by a socket is not counted there).
    fn read(&self) -> Result<u64> {
        let text = fs::read_to_string(format!("/proc/{}/io", self.child.id())).context("/proc/<pid>/io")?;
        let line = text.lines().find_map(|line| line.strip_prefix("rchar: ")).context("no rchar")?;
        line.parse().context("rchar")
    }

    /// Bytes in the sockets between it and its clients: sent and not yet received (proc(5), /proc/net/tcp).
    fn on_its_way(&self) -> Result<u64> {
        let port: u16 = self.url.rsplit(':').next().and_then(|port| port.parse().ok()).context("no port")?;
        let ours = format!(":{port:04X}");
        let mut sum = 0;
        for line in fs::read_to_string("/proc/net/tcp").context("/proc/net/tcp")?.lines().skip(1) {
            let words: Vec<&str> = line.split_whitespace().collect();
            let (Some(from), Some(to), Some(queues)) = (words.get(1), words.get(2), words.get(4)) else {
                continue;
            };
            let (sending, receiving) = queues.split_once(':').context("no queues")?;
            if from.ends_with(&ours) {
                sum += u64::from_str_radix(sending, 16)?;
            } else if to.ends_with(&ours) {
                sum += u64::from_str_radix(receiving, 16)?;
            }
        }
        Ok(sum)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
