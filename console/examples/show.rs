//! Shows a snapshot file on this terminal, as the console of a joiner would: `cargo run -p console --example show -- FILE`.
//!
//! With `--age-now` the file's boot times are moved so that it was written just now, by this process: for pictures of a machine that
//! is not this one. `--own` refuses to be left, like a machine's own console. For the tests of the terminal: `--panic`,
//! `--repaint-ms N`, and `--alive OUT`, which adds a byte to a file with each sign of life. One picture as text: `stratum-join console --render`.

use std::process::ExitCode;
use std::time::Duration;

use console::{ExitReason, Now, Options, RunError, Snapshot};

fn main() -> ExitCode {
    let mut args: Vec<String> = std::env::args().skip(1).collect();
    let mut flag = |name: &str| args.iter().position(|arg| arg == name).map(|at| args.remove(at)).is_some();
    let (age_now, own, joined, panic) =
        (flag("--age-now"), flag("--own"), flag("--exit-when-joined"), flag("--panic"));
    let mut value = |name: &str| {
        let at = args.iter().position(|arg| arg == name)?;
        args.remove(at);
        (at < args.len()).then(|| args.remove(at))
    };
    let (repaint, alive) = (value("--repaint-ms"), value("--alive"));
    let Some(path) = args.pop() else {
        eprintln!("usage: show [--age-now] [--own] [--exit-when-joined] SNAPSHOT");
        return ExitCode::from(64);
    };
    let dir = std::env::temp_dir().join(format!("console-show-{}", std::process::id()));
    let mut shown = std::path::PathBuf::from(&path);
    if age_now && let Ok(mut snapshot) = Snapshot::read(&shown) {
        let now = Now::read();
        move_to(&mut snapshot, now);
        shown = dir.join("snapshot.json");
        let made = std::fs::create_dir_all(&dir)
            .and_then(|()| std::fs::File::create(&shown))
            .and_then(|mut file| std::io::Write::write_all(&mut file, &snapshot.encode()));
        if let Err(error) = made {
            eprintln!("{}: {error}", shown.display());
            return ExitCode::FAILURE;
        }
    }
    let mut options = Options::new(shown);
    options.allow_quit = !own;
    options.exit_when_joined = joined;
    if let Some(ms) = repaint.and_then(|ms| ms.parse().ok()) {
        options.repaint = Duration::from_millis(ms);
    }
    if panic {
        options.on_alive = Some(Box::new(|| panic!("asked for by --panic")));
    } else if let Some(out) = alive {
        options.on_alive = Some(Box::new(move || {
            let file = std::fs::File::options().create(true).append(true).open(&out);
            let _ = file.and_then(|mut file| std::io::Write::write_all(&mut file, b"."));
        }));
    }
    let end = console::run(options);
    let _ = std::fs::remove_dir_all(&dir);
    match end {
        Ok(reason) => {
            eprintln!("left: {reason:?}");
            ExitCode::from(u8::from(reason == ExitReason::NoHardware))
        }
        Err(RunError::Lost) => ExitCode::from(75),
        Err(error) => {
            eprintln!("{error}");
            ExitCode::from(64)
        }
    }
}

/// Moves every boot time so that the snapshot was written now.
fn move_to(s: &mut Snapshot, now: Now) {
    // This boot may be younger than the picture's machine: spans are kept, as far as there is room for them.
    let by = |mono: u64, written: u64| (now.boot_ms + mono).saturating_sub(written);
    let written = s.written_mono;
    s.state_since_mono = by(s.state_since_mono, written);
    for mono in [
        &mut s.network.failing_since_mono,
        &mut s.network.next_try_mono,
        &mut s.cluster.last_contact_mono,
        &mut s.registration.registered_mono,
        &mut s.registration.approved_mono,
    ]
    .into_iter()
    .flatten()
    {
        *mono = by(*mono, written);
    }
    if let Some(retry) = s.fault.as_mut().and_then(|fault| fault.retry_at_mono.as_mut()) {
        *retry = by(*retry, written);
    }
    s.written_mono = now.boot_ms;
    s.heartbeat_ms = 300_000;
    s.agent.pid = std::process::id();
}
