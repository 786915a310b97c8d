//! `stratum-join console`: the status screen on one terminal, and what its units ask for around it.
//!
//! The screen itself runs without any privilege, and so does `--render` (console/render.rs), which prints one of it. The three hidden
//! modes are root's (console/vt.rs, console/login.rs).

mod login;
mod programs;
mod render;
mod vt;

use std::process::ExitCode;

use console::{ExitReason, Options, RunError};
use sd_notify::NotifyState;

use super::RootArg;
use crate::join::fault::chain_of;
use crate::paths::Paths;
use programs::Programs;

/// Wrong usage (sysexits EX_USAGE).
const USAGE: u8 = 64;

/// Arguments of `console`.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    root: RootArg,
    /// The terminal, e.g. tty1 or ttyS0; without it, the one this runs on
    #[arg(long, value_name = "NAME")]
    tty: Option<String>,
    /// Leave as soon as the machine has joined
    #[arg(long)]
    exit_when_joined: bool,
    #[command(flatten)]
    render: render::Args,
    #[command(flatten)]
    duty: Duties,
}

/// What the units do around the screen, as root.
#[derive(Debug, clap::Args)]
#[group(multiple = false, requires = "tty")]
struct Duties {
    /// Keep messages of the kernel and of systemd off the terminal (ExecStartPre= of its unit)
    #[arg(long, hide = true)]
    prepare: bool,
    /// Undo that (ExecStopPost= of its unit)
    #[arg(long, hide = true)]
    restore: bool,
    /// Start the login on the terminal (stratum-join-console-login@.service)
    #[arg(long, hide = true)]
    give_back: bool,
}

/// Runs it. Exit codes: docs/protocol.md 6.1.
pub fn run(args: Args) -> ExitCode {
    if let Some(end) = args.render.run() {
        return end;
    }
    let paths = args.root.paths();
    if args.duty.prepare || args.duty.restore || args.duty.give_back {
        return duty(&args.duty, &paths, args.tty.as_deref().unwrap_or_default());
    }
    let mut options = Options::new(paths.snapshot());
    options.control_path = Some(paths.control_socket());
    // On a terminal of its own the console is left by the keys of its screens only; started by hand, Ctrl-C leaves it.
    options.allow_quit = args.tty.is_none();
    options.tty = args.tty;
    options.exit_when_joined = args.exit_when_joined;
    let mut ready = false;
    options.on_alive = Some(Box::new(move || {
        let first = !std::mem::replace(&mut ready, true);
        tell_systemd(first);
    }));
    let end = console::run(options);
    if end.is_ok() {
        // A console that ended well before its first frame (a port without hardware) must not count as one that never came up.
        tell_systemd(true);
    }
    match end {
        Ok(ExitReason::Joined | ExitReason::HandedBack | ExitReason::NoHardware) => ExitCode::SUCCESS,
        Ok(ExitReason::Quit) => ExitCode::from(130),
        Ok(ExitReason::Stopped) => ExitCode::from(143),
        Err(error) => {
            eprintln!("stratum-join console: {}", chain_of(&error));
            ExitCode::from(match error {
                RunError::BadName(_) => USAGE,
                RunError::Terminal { .. } | RunError::Lost => 75,
            })
        }
    }
}

// === private ===

/// Feeds the watchdog, and says that the console is up once its first frame is out. Without systemd it does nothing.
fn tell_systemd(up: bool) {
    let states: &[NotifyState<'_>] =
        if up { &[NotifyState::Ready, NotifyState::Watchdog] } else { &[NotifyState::Watchdog] };
    let _ = sd_notify::notify(states);
}

fn duty(duty: &Duties, paths: &Paths, tty: &str) -> ExitCode {
    if let Err(error) = console::check_name(tty) {
        eprintln!("stratum-join console: {error}");
        return ExitCode::from(USAGE);
    }
    if paths.is_system() && !rustix::process::geteuid().is_root() {
        eprintln!("stratum-join console: only root may do this; the units of the console do");
        return ExitCode::from(USAGE);
    }
    let mut programs = Programs::of(paths);
    let mut lines = Vec::new();
    if duty.prepare {
        lines = vt::prepare(paths, tty, &mut programs);
    }
    if duty.restore {
        lines = vt::restore(paths, tty, &mut programs);
    }
    // What did not work is said and goes on: the screen is written anew every 10 s in any case.
    lines.iter().for_each(|line| eprintln!("{line}"));
    if duty.give_back || (duty.restore && crashed() && login::is_due(paths)) {
        return match login::give_back(paths, tty, &mut programs) {
            Ok(said) => {
                eprintln!("{said}");
                ExitCode::SUCCESS
            }
            Err(error) => {
                eprintln!("stratum-join console: {error}");
                ExitCode::FAILURE
            }
        };
    }
    ExitCode::SUCCESS
}

/// How the console ended, as systemd tells ExecStopPost= (systemd.exec(5)).
#[expect(clippy::disallowed_methods, reason = "systemd's own way to say what happened; no setting of ours")]
fn crashed() -> bool {
    std::env::var("SERVICE_RESULT").is_ok_and(|result| result != "success")
}
