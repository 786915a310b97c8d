//! The part of a demo before the approval, when the joiner is of an older ISO: it upgrades itself. Only the slots and the restart are on paper.
//!
//! Starts and stops the agent of its own demo, and reads what it left below the demo's directory.

use anyhow::{Context, Result, bail};

use super::release::{MIB, Release, Sizes, same_bytes};
use super::*;
use crate::lab::{Mirror, OLDER, RELEASE};
use crate::snapshot::mib;

/// MiB per second that a person can follow.
pub(super) const TO_WATCH: u32 = 20;
/// Longest wait for an attempt's end.
const ATTEMPT_WITHIN: Duration = Duration::from_secs(300);
/// Steps of an upgrade (docs/upgrade.md).
const STEPS: usize = 6;
/// Longest wait for the last report of the new OS, and between two looks.
const HEARD_WITHIN: Duration = Duration::from_secs(20);
const ASK_EVERY: Duration = Duration::from_millis(100);
/// How long a person sees that the machine is about to restart.
const SHOW_RESTART: Duration = Duration::from_secs(2);
/// And that the agent is gone.
const SHOW_GONE: Duration = Duration::from_secs(4);
/// And why the new OS did not come up, before the next attempt is asked for.
const SHOW_FAILURE: Duration = Duration::from_secs(12);

/// Where the joiner gets the release.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum From {
    /// An https server, lab-founder mirror
    Mirror,
    /// The cluster itself
    Founder,
}

/// What a person wants to see.
pub(super) struct Wanted {
    pub(super) sizes: Sizes,
    pub(super) from: From,
    pub(super) break_new_os: bool,
    /// MiB per second; 0 is no limit.
    pub(super) rate: u32,
}

/// What an upgrade needs before anything of it starts.
pub(super) struct Plan {
    release: Release,
    mirror: Option<Mirror>,
    break_new_os: bool,
    rate: u64,
}

/// What there was before the restart and what was found after it.
pub(super) struct Upgraded {
    id: String,
    code: String,
    slot: String,
    root_bytes: u64,
    pub(super) registered_after_ms: Option<u64>,
}

// === impl From ===

impl From {
    /// Requests at once, each of which has its share of the rate (docs/upgrade.md).
    fn streams(self) -> u64 {
        match self {
            From::Mirror => 4,
            From::Founder => 2,
        }
    }
}

// === impl Plan ===

impl Plan {
    /// Makes the release, and starts the mirror when there is to be one.
    pub(super) fn make(programs: &Programs, dir: &Path, wanted: &Wanted, signals: &Signals) -> Result<Self> {
        let release = Release::make(programs, dir, &wanted.sizes)?;
        let rate = u64::from(wanted.rate) * MIB / wanted.from.streams();
        let mirror = match wanted.from {
            From::Founder => None,
            From::Mirror => Some(Mirror::start(programs, dir, &release.dir, rate, signals)?),
        };
        if let Some(mirror) = &mirror {
            if !mirror.url.strip_prefix("https://").is_some_and(lab::is_loopback) {
                bail!("the mirror listens on {}, not on loopback", mirror.url);
            }
            println!("mirror: serves it at {}", mirror.url);
        }
        Ok(Self { release, mirror, break_new_os: wanted.break_new_os, rate })
    }

    /// What the founder is told about it.
    pub(super) fn founder_args(&self) -> Vec<String> {
        let dir = || self.release.dir.display().to_string();
        match &self.mirror {
            Some(mirror) => vec!["--mirror".into(), mirror.url.clone()],
            None => vec!["--release-dir".into(), dir(), "--transfer-rate".into(), self.rate.to_string()],
        }
    }

    /// Makes the joiner one that needs it.
    pub(super) fn prepare(&self, joiner: &mut Joiner) -> Result<()> {
        joiner.make_older(&self.release.key, self.mirror.as_ref().map(|mirror| mirror.ca.as_path()))
    }
}

// === impl Upgraded ===

impl Upgraded {
    #[cfg(test)]
    pub(super) fn for_tests(id: &str, code: &str) -> Self {
        let (id, code, slot) = (id.to_owned(), code.to_owned(), "b".to_owned());
        Self { id, code, slot, root_bytes: 5, registered_after_ms: None }
    }

    /// The registration after the restart is the one before it, with the same pairing code.
    pub(super) fn check(&self, id: &str, code: &str) -> Result<()> {
        let Self { id: old_id, code: old_code, .. } = self;
        if old_code != code {
            bail!("the joiner showed {old_code} before the upgrade and shows {code} after it: not approved");
        }
        if old_id != id {
            bail!("the joiner was {old_id} before the upgrade and is {id} after it: not approved");
        }
        Ok(())
    }

    /// For the table at the end.
    pub(super) fn lines(&self) -> [String; 2] {
        [
            format!("pairing code before the upgrade {}  ({}, {OLDER})", self.code, self.id),
            format!(
                "slot {} holds                    the release's root image, {}, byte for byte",
                self.slot,
                mib(self.root_bytes)
            ),
        ]
    }
}

// === impl Demo ===

impl Demo {
    /// From the registration that may not be approved yet to the start of the new OS.
    pub(super) fn upgrade(&mut self) -> Result<Option<Upgraded>> {
        let Some(plan) = self.plan.take() else { return Ok(None) };
        let offered =
            |view: &View| view.pairing.is_some() && view.join_id.is_some() && view.state == "needs-upgrade";
        self.follow(offered, Some(REGISTER_WITHIN)).context("no upgrade")?;
        let id = self.seen.join_id.clone().unwrap_or_default();
        let code = self.seen.pairing.clone().unwrap_or_default();
        let registered_after_ms = self.seen.registered_after_ms();
        let listed = self.listed(&id, &code)?;
        if listed.state != "needs-upgrade" {
            bail!("the cluster has {id} as {}, not as needs-upgrade", listed.state);
        }
        self.until_restart()?;
        if plan.break_new_os {
            self.fail_once()?;
        }
        let slot = self.restart("comes", RELEASE)?;
        let root_bytes = same_bytes(&self.joiner.slot(&slot), &plan.release.root_image()?)?;
        self.mirror = plan.mirror;
        Ok(Some(Upgraded { id, code, slot, root_bytes, registered_after_ms }))
    }

    /// The new OS panics at each start, so that the old one runs again; and the next attempt, which is asked for as the key does.
    fn fail_once(&mut self) -> Result<()> {
        self.restart("panics", OLDER)?;
        let waits = |view: &View| view.waits_for_attempt && view.may_retry;
        self.follow(waits, Some(ATTEMPT_WITHIN)).context("no fall back to the old OS")?;
        self.say("joiner: the next attempt is in 10 minutes, or now with the key T".to_owned());
        if self.console.is_some() {
            self.show(SHOW_FAILURE)?;
        }
        // A person may have pressed the key meanwhile.
        if self.seen.waits_for_attempt {
            self.joiner.retry()?;
            self.say("joiner: was told to retry now, as the key T of the console does".to_owned());
        }
        self.follow(|view: &View| !view.waits_for_attempt, Some(ATTEMPT_WITHIN))?;
        self.until_restart()
    }

    /// Waits until the cluster has heard of each of the six steps, and keeps what a snapshot was too short for. A new OS is judged in no time.
    pub(super) fn hear_of_upgrade(&mut self, id: &str) -> Result<()> {
        let end = Instant::now() + HEARD_WITHIN;
        let heard = loop {
            let heard = self.founder.steps(id)?;
            if heard.len() == STEPS && heard.iter().all(|step| step.status == "done") {
                break heard;
            }
            if Instant::now() > end {
                let told: Vec<String> = heard.iter().map(Step::line).collect();
                bail!("the cluster has not heard of the end of each step: {}", told.join(", "));
            }
            self.signals.wait(ASK_EVERY)?;
        };
        for step in heard {
            match self.steps.iter_mut().find(|known| known.name == step.name) {
                Some(known) if known.status == "done" => {}
                Some(known) => *known = step.after(known),
                None => self.steps.push(step),
            }
        }
        self.say("founder: the joiner has reported each step of the upgrade as done".to_owned());
        Ok(())
    }

    fn until_restart(&mut self) -> Result<()> {
        let asked = self.joiner.restart_asked();
        self.attempting = true;
        self.follow(|_| asked.exists(), Some(ATTEMPT_WITHIN))?;
        self.attempting = false;
        if self.console.is_some() {
            self.show(SHOW_RESTART)?;
        }
        Ok(())
    }

    /// Ends the agent as a restart does, starts the machine, and the agent of the OS that came up, which must be `release`. Gives its slot.
    fn restart(&mut self, trial: &str, release: &str) -> Result<String> {
        self.say("restart: the joiner asked for it, so its agent is stopped".to_owned());
        self.agent.stop();
        if self.console.is_some() {
            self.show(SHOW_GONE)?;
        }
        let boots = self.joiner.restart(trial)?;
        for boot in &boots {
            self.say(format!("restart: {}", boot.line()));
        }
        let up = boots.last().filter(|boot| boot.came).context("no OS came up")?;
        if up.release != release {
            bail!("{} came up, not {release}", up.release);
        }
        self.agent = self.joiner.start_agent()?;
        self.say(format!("joiner: the agent of {release} runs (pid {})", self.agent.pid()));
        (self.seen, self.told_at) = (View::default(), Instant::now());
        Ok(up.slot.clone())
    }
}
