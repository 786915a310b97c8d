//! The toy of a machine with two slots, for the simulated world: what runs, what is written beside it, the boot entry that counts down.
#![allow(clippy::unwrap_used)]

use console::text::Safe;

use super::upgrade::{Checked, Do, Done, Figures};
use crate::install::{Armed, Backend, Booted, LastTrial, OsState, Slot, Trial};
use crate::upgrade::Digest;
use crate::upgrade::fault::{Code, UpgradeFault};
use crate::upgrade::manifest::Form;

/// Starts that a new OS gets.
const TRIES: u8 = 3;

/// A boot entry of the new OS.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Entry {
    left: u8,
    done: u8,
    blessed: bool,
}

/// The OS side of a machine.
#[derive(Debug, Clone)]
pub(super) struct ToyOs {
    pub(super) running: String,
    /// What was confirmed last.
    confirmed: String,
    slot: Slot,
    /// What was written to the other slot.
    other: Option<String>,
    entry: Option<Entry>,
    /// In which boot the entry was written.
    armed_in: Option<u32>,
    /// So many starts of a new OS fail.
    pub(super) bad_starts: u8,
    /// The boot loader counts the starts.
    pub(super) counts: bool,
    pub(super) writes: u32,
    pub(super) starts: u32,
}

impl ToyOs {
    pub(super) fn new(running: &str) -> Self {
        Self {
            running: running.to_owned(),
            confirmed: running.to_owned(),
            slot: Slot::A,
            other: None,
            entry: None,
            armed_in: None,
            bad_starts: 0,
            counts: true,
            writes: 0,
            starts: 0,
        }
    }

    /// The manifest of a release.
    pub(super) fn manifest(release: &str) -> Digest {
        Digest::of(release.as_bytes())
    }

    fn release_of(manifest: &Digest) -> Option<String> {
        ["0.7.0", "0.7.1"].into_iter().find(|r| Self::manifest(r) == *manifest).map(str::to_owned)
    }

    pub(super) fn on_trial(&self) -> bool {
        self.entry.is_some_and(|e| !e.blessed) && self.other.as_deref().is_some_and(|o| o == self.running)
    }

    /// The next start may be of an OS that is not the running one and was not confirmed.
    pub(super) fn may_start_another(&self) -> bool {
        self.entry.is_some_and(|entry| entry.left > 0 && !entry.blessed) && !self.on_trial()
    }

    fn armed(&self) -> Option<Armed> {
        let (release, boot) = (self.other.as_ref().filter(|_| self.entry.is_some())?, self.armed_in?);
        Some(Armed {
            manifest: Self::manifest(release),
            release: Safe::clean(release),
            slot: self.slot.other(),
            boot_id: format!("boot-{boot}"),
        })
    }

    fn state(&self, boot: u32) -> OsState {
        let entry = self.entry;
        let here = self.other.as_deref() == Some(self.running.as_str());
        let earlier = self.armed_in.is_some_and(|armed| armed != boot);
        OsState {
            backend: Backend::Recorded,
            supported: None,
            booted: Booted {
                slot: Some(if here { self.slot.other() } else { self.slot }),
                release: Safe::clean(&self.running),
                trial: match entry {
                    Some(Entry { blessed: false, .. }) if here && !self.counts => Trial::NotCounted,
                    Some(Entry { left, done, blessed: false }) if here => Trial::Counting { left, done },
                    _ => Trial::No,
                },
                boot_id: format!("boot-{boot}"),
            },
            armed: self.armed(),
            installed: None,
            last_trial: match entry {
                _ if !earlier || here => LastTrial::None,
                None => LastTrial::Lost,
                Some(Entry { blessed: true, .. }) => LastTrial::Good,
                Some(Entry { done: 0, .. }) => LastTrial::NotTried,
                Some(Entry { left: 0, done, .. }) => LastTrial::Exhausted { tries: done },
                Some(Entry { left, done, .. }) => LastTrial::Interrupted { done, left },
            },
            last_error: None,
            form: Some(Form::Ab),
        }
    }

    /// The boot loader: the new OS while it has starts left, then the old one.
    pub(super) fn boot(&mut self) {
        let old = if self.other.as_deref() == Some(self.running.as_str()) {
            self.confirmed.clone()
        } else {
            self.running.clone()
        };
        let Some(new) = self.other.clone() else { return };
        let Some(entry) = &mut self.entry else {
            self.running = old;
            return;
        };
        if entry.blessed {
            self.running = new;
            return;
        }
        while entry.left > 0 {
            entry.left -= 1;
            entry.done += 1;
            self.starts += 1;
            if self.bad_starts == 0 {
                self.running = new;
                return;
            }
            self.bad_starts -= 1;
        }
        self.running = old;
    }

    /// The firmware starts the OS that was confirmed.
    pub(super) fn pass_over(&mut self) {
        if self.on_trial() {
            self.running.clone_from(&self.confirmed);
        }
    }

    /// What a verb or the source does; the answer is another matter.
    pub(super) fn carry_out(&mut self, what: &Do, boot: u32) -> Result<Done, String> {
        let newer_runs = self.other.as_deref() == Some(self.running.as_str());
        Ok(match what {
            Do::Os => Done::Os(Box::new(Ok(self.state(boot)))),
            Do::Check(offer) if offer.from.as_str() != self.running => Done::Check(Ok(Checked::Stale)),
            Do::Check(offer) => {
                let manifest = Self::manifest(offer.to.as_str());
                Done::Check(Ok(Checked::Release { manifest, host: Safe::clean("mirror.example") }))
            }
            Do::Fetch => Done::Fetch(Ok(())),
            Do::Verify => Done::Verify(Ok(())),
            Do::Write(_) if newer_runs => return Err("P6: the slot that runs is written".to_owned()),
            Do::Write(manifest) => {
                (self.entry, self.armed_in) = (None, None);
                self.other = Self::release_of(manifest);
                self.writes += 1;
                Done::Write(Ok(self.slot.other()))
            }
            Do::Arm(manifest) if Self::release_of(manifest) != self.other || newer_runs => {
                return Err(format!("P6: armed without a write: {:?}", self.other));
            }
            Do::Arm(_) => {
                self.entry = Some(Entry { left: TRIES, done: 0, blessed: false });
                self.armed_in = Some(boot);
                Done::Arm(Ok(()))
            }
            Do::Restart if !self.on_trial() && (self.entry.is_none() || self.armed_in != Some(boot)) => {
                return Err("P6: a restart without anything armed in this boot".to_owned());
            }
            Do::Restart => Done::Restart(Ok(())),
            Do::Disarm => {
                if self.on_trial() {
                    return Err("P6: the running OS is disarmed".to_owned());
                }
                (self.entry, self.armed_in) = (None, None);
                Done::Disarm(Ok(()))
            }
            // As the real ones: what is not on trial is not confirmed.
            Do::Bless if !newer_runs || self.entry.is_none() => {
                Done::Bless(Err(UpgradeFault::helper("the running OS is not on trial")))
            }
            Do::Bless => {
                // From now on this is the OS that runs here, and the other slot is free.
                self.slot = self.slot.other();
                self.confirmed.clone_from(&self.running);
                self.other = None;
                (self.entry, self.armed_in) = (None, None);
                Done::Bless(Ok(()))
            }
            Do::Clean => Done::Clean(Ok(())),
            Do::Cancel => Done::Figures(Figures::Plain(0, 0)),
        })
    }

    /// The answer of `what` when it failed.
    pub(super) fn failed(what: &Do, code: Code) -> Done {
        // Whoever is asked what can be installed here is not there, or is.
        let code = if *what == Do::Os { Code::Helper } else { code };
        let fault = UpgradeFault::new(code, "It failed.", "Do something.");
        match what {
            Do::Os => Done::Os(Box::new(Err(fault))),
            Do::Check(_) => Done::Check(Err(fault)),
            Do::Fetch => Done::Fetch(Err(fault)),
            Do::Verify => Done::Verify(Err(fault)),
            Do::Write(_) => Done::Write(Err(fault)),
            Do::Arm(_) => Done::Arm(Err(fault)),
            Do::Restart => Done::Restart(Err(fault)),
            Do::Disarm => Done::Disarm(Err(fault)),
            Do::Bless => Done::Bless(Err(fault)),
            Do::Clean | Do::Cancel => Done::Clean(Err(fault)),
        }
    }
}
