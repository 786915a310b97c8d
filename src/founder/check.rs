//! The dry run behind `stratum-installer join --check`: everything up to the registration, which it leaves out.

use console::text::Safe;

use super::Client;
use crate::join::fault::{Code, Fault};
use crate::protocol::code::JoinCode;
use crate::protocol::encoding::Pin;
use crate::protocol::release::Verdict;
use crate::protocol::url::Endpoint;
use crate::protocol::wire::{ConfirmAnswer, Intent};

/// What this machine runs.
#[derive(Debug, Clone, Copy)]
pub struct OurRelease<'a> {
    /// `VERSION_ID` of the running OS; empty when it has none.
    pub name: &'a str,
    /// Whether this agent can upgrade itself.
    pub self_upgrade: bool,
}

/// How far a check came. A machine with this code and address would be taken now when `fault` is `None`.
#[derive(Debug, Clone)]
pub struct CheckReport {
    /// The join CA that answered; `None` when nothing did.
    pub ca: Option<Pin>,
    /// The cluster proved the code.
    pub proven: bool,
    /// The check character of the code fits; a hint only.
    pub code_check_fits: bool,
    /// What the cluster says about itself, once both sides are proven.
    pub cluster: Option<ConfirmAnswer>,
    /// What it would make of our release.
    pub release: Option<Verdict>,
    /// The first thing that stands in the way.
    pub fault: Option<Fault>,
}

impl Client {
    /// Observes, proves with intent `check`, confirms, and derives what a registration would get. It creates nothing on either side, but
    /// counts as a try until the code is proven.
    pub async fn check(
        &self,
        endpoint: &Endpoint,
        pins: &[Pin],
        code: &JoinCode,
        ours: OurRelease<'_>,
    ) -> CheckReport {
        self.warm(code);
        let mut report = CheckReport {
            ca: None,
            proven: false,
            code_check_fits: code.check_fits(),
            cluster: None,
            release: None,
            fault: None,
        };
        report.fault = self.run_check(endpoint, pins, code, ours, &mut report).await.err();
        report
    }

    async fn run_check(
        &self,
        endpoint: &Endpoint,
        pins: &[Pin],
        code: &JoinCode,
        ours: OurRelease<'_>,
        report: &mut CheckReport,
    ) -> Result<(), Fault> {
        let ca = self.observe(endpoint, pins).await?.ca;
        report.ca = Some(ca);
        let proven = self.prove(endpoint, ca, code, Intent::Check).await?;
        report.proven = true;
        let cluster = self.confirm(endpoint, ca, proven.proof_id, None).await?;
        let (cluster_release, lowest) = (cluster.cluster_release.as_str(), cluster.min_upgrade_from.as_str());
        let verdict = Verdict::of(ours.name, cluster_release, lowest, ours.self_upgrade);
        report.release = Some(verdict);
        let outcome = match verdict {
            Verdict::Same | Verdict::Upgrade => would_be_refused(&cluster),
            Verdict::TooOld | Verdict::TooNew | Verdict::Unreadable => Some(mismatch(&cluster, ours.name)),
        };
        report.cluster = Some(cluster);
        outcome.map_or(Ok(()), Err)
    }
}

fn mismatch(cluster: &ConfirmAnswer, ours: &str) -> Fault {
    let ours = if ours.is_empty() { "an unknown release" } else { ours };
    let detail = format!("this machine runs {ours}, the cluster {}", cluster.cluster_release);
    let mut fault = Fault::new(Code::ReleaseMismatch, detail).verified();
    fault.details.cluster_release = Some(cluster.cluster_release.clone());
    fault.details.min_upgrade_from = Some(cluster.min_upgrade_from.clone()).filter(|text| !text.is_empty());
    fault.details.iso = cluster.iso.clone();
    fault
}

/// The refusal that the founder announces for a registration now.
fn would_be_refused(cluster: &ConfirmAnswer) -> Option<Fault> {
    if cluster.accepting {
        return None;
    }
    let refusal = cluster.refusal.as_ref().map_or("", Safe::as_str);
    let code = match Code::from_wire(refusal) {
        Some(code @ (Code::JoinQueueFull | Code::UpgradeRunning | Code::ReleaseMismatch)) => code,
        _ => Code::Unavailable,
    };
    Some(Fault::new(code, "a registration would be refused now").verified())
}
