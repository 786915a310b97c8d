//! `stratum-installer join --check`: the verdict that the agent would come to, in words and as JSON.

use std::process::ExitCode;
use std::sync::Arc;

use console::Snapshot;
use console::snapshot::{Liveness, pid_alive};
use hwprobe::Roots;
use serde::Serialize;

use super::Output;
use super::join::Target;
use crate::clock;
use crate::driver::SELF_UPGRADE;
use crate::founder::{CheckReport, Client, OurRelease};
use crate::identity::{self, Identity};
use crate::join::advice::{Advice, Context, JOIN_COMMAND, advice};
use crate::join::fault::{Code, Fault};
use crate::journal::{Found, Journal};
use crate::paths::Paths;
use crate::protocol::release::Verdict;
use crate::request::JoinRequest;

/// What is printed. Never a code.
#[derive(Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Report {
    /// Whether a join would go on.
    good: bool,
    /// One sentence.
    verdict: String,
    /// `host:port`.
    #[serde(skip_serializing_if = "String::is_empty")]
    address: String,
    /// What was found, a line each.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    facts: Vec<String>,
    /// The row of the refusal table.
    code: Option<&'static str>,
    /// The cause in our words or the founder's.
    detail: Option<String>,
    /// What the founder itself said.
    founder_says: bool,
    /// What you can do.
    advice: Vec<String>,
    /// Exit code.
    exit: u8,
}

// === impl Report ===

impl Report {
    /// Not good, with its advice.
    pub(super) fn refused(fault: &Fault, context: &Context<'_>) -> Self {
        let Advice { what, todo, .. } = advice(fault, context);
        Self {
            verdict: what,
            address: context.address.to_owned(),
            code: Some(fault.code.as_str()),
            detail: (!fault.detail.is_empty()).then(|| fault.detail.as_str().to_owned()),
            founder_says: fault.from_founder,
            advice: todo,
            exit: fault.code.exit(),
            ..Self::default()
        }
    }

    /// The request is saved.
    pub(super) fn saved(paths: &Paths, request: &JoinRequest) -> Self {
        let view = request.view();
        let hint = view.code_hint.as_ref().map_or("", |h| h.as_str());
        let running = Snapshot::read(&paths.snapshot())
            .is_ok_and(|s| s.liveness(clock::boot_ms(), pid_alive) != Liveness::Gone);
        let next = if running {
            "the agent takes it now: see stratum-join status"
        } else {
            "the agent is not running: systemctl start stratum-join"
        };
        let mut facts = vec![next.to_owned()];
        if !view.code_check_fits {
            facts.push("The code looks mistyped: its last character does not fit.".to_owned());
        }
        Self {
            good: true,
            verdict: format!("saved: this machine asks {} to join, with code {hint}", view.endpoint),
            address: view.endpoint.as_str().to_owned(),
            facts,
            ..Self::default()
        }
    }

    /// Prints it and gives the exit code.
    pub(super) fn print(&self, output: Output) -> ExitCode {
        match output {
            Output::Json => println!("{}", serde_json::to_string(self).unwrap_or_default()),
            Output::Text if self.good => {
                for fact in &self.facts {
                    println!("  {fact}");
                }
                println!("{}", self.verdict);
            }
            Output::Text => {
                for fact in &self.facts {
                    println!("  {fact}");
                }
                eprintln!("error: {}", self.verdict);
                if let Some(detail) = self.detail.as_ref().filter(|_| self.founder_says) {
                    eprintln!("The founder says: > {detail}");
                }
                for line in &self.advice {
                    eprintln!("help: {line}");
                }
            }
        }
        ExitCode::from(self.exit)
    }
}

/// Checks address and code that were given. Saves nothing, sends no hardware.
pub(super) fn given(paths: &Paths, target: &Target) -> Report {
    let Some(code) = &target.code else {
        return Report::refused(
            &Fault::new(Code::CodeMalformed, "the join code is empty"),
            &Context::default(),
        );
    };
    let address = target.endpoint.to_string();
    let release = our_release(paths);
    let context = Context {
        address: &address,
        retry_secs: None,
        release: &release,
        has_code: true,
        code_looks_mistyped: !code.check_fits(),
    };
    // A key of its own: a check leaves nothing behind, here or there.
    let identity = match Identity::ephemeral() {
        Ok(identity) => Arc::new(identity),
        Err(error) => return Report::refused(&error.fault(), &context),
    };
    let ours = OurRelease { name: &release, self_upgrade: SELF_UPGRADE };
    let client = Client::new(identity);
    let found = match run(client.check(&target.endpoint, &target.pins, code, ours)) {
        Ok(found) => found,
        Err(fault) => return Report::refused(&fault, &context),
    };
    let mut report = match &found.fault {
        Some(fault) => Report::refused(fault, &context),
        None => Report {
            good: true,
            verdict: "good: a join with this code would be taken".to_owned(),
            ..Report::default()
        },
    };
    report.address.clone_from(&address);
    report.facts = facts(&found, &address, &release);
    report
}

fn facts(found: &CheckReport, address: &str, release: &str) -> Vec<String> {
    let mut facts = Vec::new();
    match &found.ca {
        Some(ca) => facts.push(format!("[ok] {address} answers; key {}...", ca.short_hex(16))),
        None => facts.push(format!("[XX] {address} does not answer as a join listener")),
    }
    match (found.proven, &found.ca) {
        (true, _) => facts.push("[ok] the cluster proves the join code".to_owned()),
        (false, Some(_)) => facts.push("[XX] the join code is not proven".to_owned()),
        (false, None) => facts.push("[--] the join code was not tried".to_owned()),
    }
    match (&found.release, &found.cluster) {
        (Some(verdict), Some(cluster)) => {
            let good = matches!(verdict, Verdict::Same | Verdict::Upgrade);
            let tag = if good { "[ok]" } else { "[XX]" };
            facts.push(format!("{tag} this machine runs {release}, the cluster {}", cluster.cluster_release));
        }
        _ => facts.push("[--] the release was not compared".to_owned()),
    }
    facts
}

/// Checks the saved request. When its code is gone (it is removed at the approval) the registration itself is asked, once.
pub(super) fn saved(paths: &Paths) -> Report {
    let context = Context::default();
    match JoinRequest::load(paths) {
        Err(error) => Report::refused(&Fault::from(error), &context),
        Ok(None) => {
            let mut report = Report::refused(
                &Fault::new(Code::CodeMalformed, "no join request is saved on this machine"),
                &context,
            );
            report.advice = vec![JOIN_COMMAND.to_owned()];
            report
        }
        Ok(Some(request)) if request.code.is_some() => {
            given(paths, &Target { endpoint: request.endpoint, code: request.code, pins: request.pins })
        }
        Ok(Some(request)) => registration(paths, &request),
    }
}

/// The state of the registration, over the pinned channel.
fn registration(paths: &Paths, request: &JoinRequest) -> Report {
    let address = request.endpoint.to_string();
    let context = Context { address: &address, ..Context::default() };
    let durable = match Journal::at(paths.journal()).peek() {
        Ok(Found::Good(durable)) => durable,
        Ok(_) => {
            let fault = Fault::new(Code::JoinNotFound, "no registration is saved on this machine");
            return Report::refused(&fault, &context);
        }
        Err(error) => return Report::refused(&Fault::from_error(Code::Local, &error), &context),
    };
    let Some(record) = &durable.registration else {
        let fault = Fault::new(Code::JoinNotFound, "no registration is saved on this machine");
        return Report::refused(&fault, &context);
    };
    if durable.joined.is_some() {
        return Report { good: true, verdict: "joined".to_owned(), address, ..Report::default() };
    }
    let identity = match identity::load(&paths.identity_dir()) {
        Ok(Some(identity)) => Arc::new(identity),
        Ok(None) => {
            return Report::refused(&Fault::new(Code::Local, "the client key is missing"), &context);
        }
        Err(error) => return Report::refused(&error.fault(), &context),
    };
    let client = Client::new(identity);
    let state = record.state.as_str().to_owned();
    let asked = run(client.poll(&request.endpoint, &durable.pins(), &record.join_id, 0, &state, true));
    match asked.and_then(|answer| answer) {
        Ok(answer) => {
            let state = answer.value.state.as_str().to_owned();
            let over = match state.as_str() {
                "rejected" => Some(Code::JoinRejected),
                "expired" => Some(Code::JoinExpired),
                _ => None,
            };
            let mut report = match over {
                Some(code) => Report::refused(&Fault::new(code, ""), &context),
                None => Report { good: true, ..Report::default() },
            };
            report.verdict = format!("the registration {} lives: {state}", record.join_id);
            report.facts = vec![format!("[ok] {address} answers with the pinned key")];
            report.address = address;
            report
        }
        Err(fault) => Report::refused(&fault, &context),
    }
}

fn run<T>(work: impl Future<Output = T>) -> Result<T, Fault> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    Ok(runtime.map_err(|e| Fault::from_error(Code::Local, &e))?.block_on(work))
}

/// `VERSION_ID` of the running OS; empty when unknown.
fn our_release(paths: &Paths) -> String {
    let roots = if paths.is_system() { Roots::live() } else { Roots::under(paths.root()) };
    let local = roots.ok().and_then(|roots| hwprobe::release(&roots));
    let live = || Roots::live().ok().and_then(|roots| hwprobe::release(&roots));
    local.or_else(live).map_or(String::new(), |r| r.as_str().to_owned())
}
