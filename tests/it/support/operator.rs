//! An operator who wants every machine in: approves what waits, queues again what failed, asks again where the joiner was refused.

use std::process::ExitStatus;
use std::time::Instant;

use console::snapshot::State;
use serde_json::json;

use super::{Machine, PATIENCE, World, wait};

impl Machine {
    /// The agent's end, if it has ended by itself.
    pub fn ended(&mut self) -> Option<ExitStatus> {
        let ended = self.agent.as_mut().expect("the agent was started").try_wait().unwrap();
        if ended.is_some() {
            self.agent = None;
        }
        ended
    }

    /// Starts the agent so that it dies at this crash point.
    pub fn start_to_crash(&mut self, point: &str, when: &str) {
        self.set_env("STRATUM_FAULT", format!("crash:{point}:{when}"));
        self.start();
        self.unset_env("STRATUM_FAULT");
    }
}

impl World {
    /// Does an operator's work until the agent ends by itself.
    pub fn operate(&mut self) -> ExitStatus {
        self.operate_with(|_| {})
    }

    /// The same; `before_retry` is done before a failed join is queued again.
    pub fn operate_with(&mut self, before_retry: impl Fn(&Self)) -> ExitStatus {
        let mut asked_again = false;
        let ended = wait::until(PATIENCE, || {
            let ended = self.machine.ended();
            if ended.is_none() {
                self.work(&before_retry, &mut asked_again);
            }
            ended
        });
        ended.unwrap_or_else(|| {
            let (log, joins) = (self.machine.log(), self.joins());
            panic!("the agent did not end; the founder's records: {joins:?}; its log:\n{log}")
        })
    }

    /// Does an operator's work until then, or until the agent ends.
    pub fn operate_until(&mut self, then: Instant) {
        let mut asked_again = false;
        wait::until(then.saturating_duration_since(Instant::now()), || {
            if self.machine.running() {
                self.work(&|_: &Self| {}, &mut asked_again);
            }
            (!self.machine.running()).then_some(())
        });
    }

    /// One look at the founder's list and at the machine's screen. A call that comes too late is refused, and that is fine.
    fn work(&mut self, before_retry: &impl Fn(&Self), asked_again: &mut bool) {
        for join in self.joins() {
            let (id, code) = (join["id"].as_str().unwrap(), join["pairingCode"].as_str().unwrap_or_default());
            let path = format!("/v1/admin/cluster/joins/{id}");
            match join["state"].as_str().unwrap() {
                "pending" => {
                    drop(self.try_admin("POST", &format!("{path}/approve?pairing={code}"), Some(json!({}))))
                }
                "failed" => {
                    before_retry(self);
                    drop(self.try_admin("POST", &format!("{path}/retry"), None));
                }
                _ => {}
            }
        }
        let refused = self.machine.snapshot().is_some_and(|s| s.state == State::Refused);
        if refused && !*asked_again {
            *asked_again = true;
            self.ask_again();
        }
    }

    /// Gives the saved request once more.
    pub fn ask_again(&self) {
        let saved = std::fs::read(self.machine.path("var/lib/stratum/join/request.json")).unwrap();
        let saved: serde_json::Value = serde_json::from_slice(&saved).unwrap();
        self.machine.ask_to_join(saved["endpoint"].as_str().unwrap(), saved["code"].as_str().unwrap());
    }
}
