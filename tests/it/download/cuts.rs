//! Random cuts of a download by `stratum-join release fetch`: the connections are reset, the downloading process is killed, the mirror is killed. Each
//! time the bytes are right in the end, and what is fetched twice is bounded.
//!
//! Everything goes through a relay that counts: what passed it towards the joiner is at least what the joiner got.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use lab_founder::release::{AbInput, SecretKey, Spec, SysextInput, make, sign};
use rustix::net::sockopt;

use super::*;
use crate::support::bin;

/// Cuts in the gate; `cargo xtask test --long` asks for a hundred.
const CUTS: u32 = 16;
/// 64 MiB in nine files.
const SIZES: [u64; 9] = [30, 12, 8, 6, 4, 2, 1, 1, 0];
/// TLS: 22 bytes for each record of 16 KiB, and handshakes.
const TLS: u64 = 200;

/// A mirror as a process.
struct Served {
    child: Child,
    addr: SocketAddr,
}

impl Served {
    /// Always with the same certificate.
    fn start(dir: &Path, certs: &Path) -> Self {
        let mut command = Command::new(bin("lab-founder"));
        command.arg("mirror").arg("--dir").arg(dir).arg("--certs").arg(certs);
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let ready: serde_json::Value = serde_json::from_str(&line).unwrap();
        let addr = ready["url"].as_str().unwrap().strip_prefix("https://").unwrap().parse().unwrap();
        Self { child, addr }
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Passes bytes on, counts them, and resets every connection when told.
struct Counting {
    addr: SocketAddr,
    to: Mutex<SocketAddr>,
    passed: AtomicU64,
    open: Mutex<Vec<TcpStream>>,
    over: AtomicBool,
}

impl Counting {
    fn start(to: SocketAddr) -> Arc<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let relay = Arc::new(Self {
            addr: listener.local_addr().unwrap(),
            to: Mutex::new(to),
            passed: AtomicU64::new(0),
            open: Mutex::default(),
            over: AtomicBool::new(false),
        });
        let shared = Arc::clone(&relay);
        std::thread::spawn(move || {
            for client in listener.incoming().flatten() {
                if shared.over.load(Ordering::Relaxed) {
                    return;
                }
                let to = *shared.to.lock().unwrap();
                let Ok(server) = TcpStream::connect(to) else { continue };
                // Little on its way: what passed was nearly all received.
                sockopt::set_socket_send_buffer_size(&client, 64 * 1024).unwrap();
                shared.open.lock().unwrap().push(client.try_clone().unwrap());
                let (up, down) = (client.try_clone().unwrap(), server.try_clone().unwrap());
                std::thread::spawn(move || pass(&up, &down, |_| {}));
                let counted = Arc::clone(&shared);
                std::thread::spawn(move || {
                    pass(&server, &client, |n| {
                        counted.passed.fetch_add(n, Ordering::Relaxed);
                    });
                });
            }
        });
        relay
    }

    fn passed(&self) -> u64 {
        self.passed.load(Ordering::Relaxed)
    }

    fn reset(&self) {
        for stream in self.open.lock().unwrap().drain(..) {
            let _ = sockopt::set_socket_linger(&stream, Some(Duration::ZERO));
            let _ = stream.shutdown(Shutdown::Both);
        }
    }
}

impl Drop for Counting {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
        self.reset();
    }
}

fn pass(mut from: &TcpStream, mut to: &TcpStream, count: impl Fn(u64)) {
    let mut buffer = vec![0; 32 * 1024];
    while let Ok(n) = from.read(&mut buffer) {
        if n == 0 || to.write_all(&buffer[..n]).is_err() {
            break;
        }
        count(n as u64);
    }
    let _ = (from.shutdown(Shutdown::Both), to.shutdown(Shutdown::Both));
}

/// A release of 64 MiB in nine files, signed; and the directory with the key.
fn release(dir: &Path) -> (PathBuf, PathBuf) {
    let input = |n: usize| {
        let path = dir.join(format!("input-{n}"));
        fs::write(&path, noise(&format!("cut {n}"), SIZES[n] * 1024 * 1024 + n as u64)).unwrap();
        path
    };
    let ext = |n: usize| SysextInput { name: format!("ext-{n}"), file: input(n), required: true };
    let spec = Spec {
        ab: Some(AbInput {
            root: input(0),
            fstype: "erofs".to_owned(),
            linux: input(1),
            initrds: vec![input(2), input(3)],
            cmdline: Vec::new(),
        }),
        sysexts: (4..9).map(ext).collect(),
        ..Spec::named("0.7.0", 70, "0.5.0")
    };
    let key = SecretKey::from_seed([1; 32], [1; 8]);
    let (release, keys) = (dir.join("release"), dir.join("keys"));
    make(&spec, &release).unwrap();
    sign(&release, std::slice::from_ref(&key)).unwrap();
    fs::create_dir(&keys).unwrap();
    fs::write(keys.join("k.pub"), key.public_text()).unwrap();
    (release, keys)
}

/// xorshift64: the same cuts each time.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % bound
    }
}

#[test]
fn random_cuts_lead_to_the_right_bytes_and_cost_at_most_a_chunk_of_each_stream() {
    let cuts = std::env::var("STRATUM_TEST_CUTS").ok().and_then(|n| n.parse().ok()).unwrap_or(CUTS);
    let dir = tempfile::tempdir().unwrap();
    let (release, keys) = release(dir.path());
    let certs = dir.path().join("certs");
    let mut served = Served::start(&release, &certs);
    let relay = Counting::start(served.addr);
    let mut random = Random(0x2545_f491_4f6c_dd1d);
    let total: u64 = SIZES.iter().enumerate().map(|(n, mib)| mib * 1024 * 1024 + n as u64).sum();
    let (mut kinds, mut downloads, mut twice) = ([0_u32; 3], 0_u64, 0);
    while kinds.iter().sum::<u32>() < cuts {
        downloads += 1;
        let to = dir.path().join(format!("to-{downloads}"));
        let (before, mut cuts_here) = (relay.passed(), 0);
        let start = || {
            let mut command = Command::new(bin("stratum-join"));
            command.args(["release", "fetch", "--output", "json", "--source"]);
            command.arg(format!("https://{}", relay.addr)).arg("--keys").arg(&keys);
            command.arg("--to").arg(&to).arg("--ca").arg(certs.join("ca.pem"));
            command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap()
        };
        let mut joiner = start();
        loop {
            let at = relay.passed() + random.below(16 * 1024 * 1024);
            let mut ended = false;
            soon("the next cut or the end", || {
                ended = joiner.try_wait().unwrap().is_some();
                ended || relay.passed() >= at
            });
            if ended {
                break;
            }
            let kind = usize::try_from(random.below(3)).unwrap();
            match kind {
                0 => relay.reset(),
                1 => {
                    joiner.kill().unwrap();
                    joiner.wait().unwrap();
                    joiner = start();
                }
                _ => {
                    // The dead one is gone before the next one is there, as after a restart.
                    drop(std::mem::replace(&mut served, Served::start(&release, &certs)));
                    *relay.to.lock().unwrap() = served.addr;
                }
            }
            kinds[kind] += 1;
            cuts_here += 1;
        }
        let out = joiner.wait_with_output().unwrap();
        let report: serde_json::Value = serde_json::from_slice(&out.stdout).unwrap();
        assert_eq!(report["good"], true, "{report}");
        right(&to, &release);
        fs::remove_dir_all(&to).unwrap();
        let passed = relay.passed() - before;
        let bound = total + cuts_here * 4 * CHUNK;
        assert!(passed <= bound + bound / TLS, "{passed} bytes for {total} with {cuts_here} cuts");
        twice += passed.saturating_sub(total);
    }
    let [reset, joiner, mirror] = kinds;
    let count = reset + joiner + mirror;
    println!(
        "{count} cuts ({reset} resets, {joiner} times the joiner killed, {mirror} times the mirror) in {downloads} downloads of {total} bytes: \
         every byte right; {} bytes a cut were fetched twice, TLS counted, where a chunk of each stream is {}",
        twice / u64::from(count),
        4 * CHUNK
    );
}

fn right(to: &Path, release: &Path) {
    let mut found = 0;
    for sub in ["os/blobs/sha256", "sysext"] {
        for entry in fs::read_dir(release.join(sub)).unwrap() {
            let bytes = fs::read(entry.unwrap().path()).unwrap();
            let here = fs::read(to.join("blobs").join(Digest::of(&bytes).to_string())).unwrap();
            assert!(bytes == here, "a wrong byte");
            found += 1;
        }
    }
    assert_eq!(found, SIZES.len());
    assert_eq!(fs::read_dir(to.join("parts")).unwrap().count(), 0);
}
