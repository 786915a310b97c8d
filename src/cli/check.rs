//! `stratum-installer join --check`: the verdict that the agent would come to, in words and as JSON.
#![allow(clippy::result_large_err, reason = "run once by a person: a fault of some 250 bytes is nothing")]

use std::io::Write;
use std::process::ExitCode;
use std::sync::Arc;

use console::Snapshot;
use console::snapshot::{Liveness, pid_alive};
use hwprobe::Roots;
use serde::Serialize;

use super::Output;
use super::join::Target;
use crate::clock;
use crate::config::Settings;
use crate::driver;
use crate::founder::{CheckReport, Client, OurRelease};
use crate::identity::{self, Identity};
use crate::join::advice::{Advice, Context, JOIN_COMMAND, advice};
use crate::join::fault::{Code, Fault};
use crate::join::state::Durable;
use crate::journal::{Found, Journal};
use crate::paths::Paths;
use crate::privileged::{Privileged, ThroughHelper};
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
    /// Not good, in words of its own.
    pub(super) fn said(code: Code, verdict: impl Into<String>, advice: &[&str]) -> Self {
        let verdict = verdict.into();
        Self {
            code: Some(code.as_str()),
            detail: Some(verdict.clone()),
            verdict,
            advice: advice.iter().map(|line| (*line).to_owned()).collect(),
            exit: code.exit(),
            ..Self::default()
        }
    }

    /// Not good, with its advice.
    pub(super) fn refused(fault: &Fault, context: &Context<'_>) -> Self {
        let Advice { what, mut todo, .. } = advice(fault, context);
        if fault.code == Code::Local && fault.detail.as_str().ends_with("permission denied") && !is_root() {
            todo = vec!["Run it as root.".to_owned()];
        }
        for line in &mut todo {
            // What was typed a moment ago need not be typed from memory.
            if line == JOIN_COMMAND && !context.address.is_empty() {
                *line = line.replace("<address>", context.address);
            }
            if line == "Wait."
                && let Some(after) = fault.retry_after()
            {
                *line = format!("Try again in {} s.", after.as_secs());
            }
        }
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
        } else if !paths.is_system() {
            "the agent of that system takes it at its next start"
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
        let facts: String = self.facts.iter().map(|fact| format!("  {fact}\n")).collect();
        // A reader that went away changes nothing of the verdict.
        let print = |text: String| drop(std::io::stdout().write_all(text.as_bytes()));
        match output {
            Output::Json => print(serde_json::to_string(self).unwrap_or_default() + "\n"),
            Output::Text if self.good => print(format!("{facts}{}\n", self.verdict)),
            Output::Text => {
                print(facts);
                eprintln!("error: {}", self.verdict);
                let said_already = |detail: &str| {
                    self.verdict.trim_end_matches('.').eq_ignore_ascii_case(detail.trim_end_matches('.'))
                };
                if let Some(detail) = self.detail.as_ref().filter(|d| self.founder_says && !said_already(d)) {
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
    let ours = OurRelease { name: &release, self_upgrade: self_upgrade(paths) };
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

/// As the agent would tell the cluster. Where no helper is there to ask, this machine is none that upgrades itself.
fn self_upgrade(paths: &Paths) -> bool {
    let socket = paths.helper_socket();
    let allowed = Settings::load(paths).is_ok_and(|settings| driver::may_upgrade(paths, &settings.upgrade));
    if !allowed || !socket.exists() {
        return false;
    }
    let helper = ThroughHelper::at(socket);
    matches!(run(helper.probe_os()), Ok(Ok(os)) if os.supported.is_none())
}

/// The steps of a join up to the registration, in their order: which went well, which did not, and which were not reached.
fn facts(found: &CheckReport, address: &str, release: &str) -> Vec<String> {
    let code = found.fault.as_ref().map(|fault| fault.code);
    let reached = match (&found.ca, code) {
        (Some(ca), _) => format!("[ok] {address} answers; its key is {}...", ca.short_hex(16)),
        (None, Some(Code::AddressUnreachable)) => format!("[XX] nothing answers at {address}"),
        (None, Some(Code::PinMismatch)) => format!("[XX] {address} answers with another key than the URL's"),
        (None, Some(Code::ProtocolUnsupported)) => format!("[XX] {address} speaks another join protocol"),
        (None, _) => format!("[XX] {address} answers, but not as a join listener"),
    };
    let proven = match (found.proven, &found.ca, code) {
        (true, ..) => "[ok] the cluster proves that it knows the join code".to_owned(),
        (false, Some(_), Some(Code::CodeNotProven)) => {
            "[XX] the cluster does not prove that it knows the join code".to_owned()
        }
        (false, Some(_), Some(Code::JoinCodeBurned)) => "[XX] the join code was burned".to_owned(),
        (false, Some(_), _) => "[--] the join code could not be tried".to_owned(),
        (false, None, _) => "[--] the join code was not tried".to_owned(),
    };
    let mut facts = vec![reached, proven];
    let expires = found.cluster.as_ref().and_then(|cluster| cluster.code_expires_at.as_ref());
    match (found.proven, code) {
        (
            true,
            Some(
                code @ (Code::JoinCodeExpired
                | Code::JoinCodeRevoked
                | Code::JoinCodeBurned
                | Code::JoinCodeWrong),
            ),
        ) => {
            let what = match code {
                Code::JoinCodeExpired => "has expired",
                Code::JoinCodeRevoked => "was revoked",
                Code::JoinCodeBurned => "was burned",
                _ => "is wrong",
            };
            facts.push(format!("[XX] the join code {what}"));
        }
        (true, _) => facts.extend(expires.map(|time| format!("[ok] the join code is valid until {time}"))),
        _ => {}
    }
    let ours = if release.is_empty() { "an unknown release" } else { release };
    facts.push(match (&found.release, &found.cluster) {
        (Some(verdict), Some(cluster)) => {
            let good = matches!(verdict, Verdict::Same | Verdict::Upgrade);
            let tag = if good { "[ok]" } else { "[XX]" };
            format!("{tag} this machine runs {ours}, the cluster {}", cluster.cluster_release)
        }
        _ => "[--] the release was not compared".to_owned(),
    });
    if let Some(cluster) = &found.cluster {
        let tag = if cluster.accepting { "[ok]" } else { "[XX]" };
        let words = if cluster.accepting { "takes machines now" } else { "takes no machine now" };
        facts.push(format!("{tag} the cluster {words}"));
    }
    facts
}

/// Checks the saved request. Where it has led to a registration, that one is asked, once: it needs no proof, and a proof would say nothing of it.
pub(super) fn saved(paths: &Paths) -> Report {
    let context = Context::default();
    match JoinRequest::load(paths) {
        Err(error) => Report::refused(&Fault::from(error), &context),
        Ok(None) if paths.joined_marker().exists() => joined(String::new()),
        Ok(None) => {
            Report::said(Code::CodeMalformed, "no join request is saved on this machine", &[JOIN_COMMAND])
        }
        Ok(Some(request)) => {
            let durable = match Journal::at(paths.journal()).peek() {
                Ok(Found::Good(durable)) => Some(durable),
                Ok(_) => None,
                Err(error) => return Report::refused(&Fault::from_error(Code::Local, &error), &context),
            };
            let mine = durable.filter(|d| d.request.is_some_and(|id| id.0 == request.view().id));
            match mine {
                Some(durable) if durable.joined.is_some() => joined(request.endpoint.to_string()),
                Some(durable) if durable.registration.is_some() => registration(paths, &request, &durable),
                _ if request.code.is_some() => given(
                    paths,
                    &Target { endpoint: request.endpoint, code: request.code, pins: request.pins },
                ),
                _ => {
                    let address = request.endpoint.to_string();
                    let context = Context { address: &address, ..Context::default() };
                    let fault = Fault::new(Code::JoinNotFound, "no registration is saved on this machine");
                    Report::refused(&fault, &context)
                }
            }
        }
    }
}

fn joined(address: String) -> Report {
    Report {
        good: true,
        verdict: "joined: this machine is a member".to_owned(),
        address,
        ..Report::default()
    }
}

/// The state of the registration, over the pinned channel.
fn registration(paths: &Paths, request: &JoinRequest, durable: &Durable) -> Report {
    let address = request.endpoint.to_string();
    let context = Context { address: &address, has_code: request.code.is_some(), ..Context::default() };
    let Some(record) = &durable.registration else { return joined(address) };
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
            let reason = answer.value.reason.as_ref().map_or("", |reason| reason.as_str());
            let shown = answer.value.pairing_code.as_ref();
            let over = match state.as_str() {
                // As the agent does: a code that differs is never called good.
                _ if shown.is_some_and(|code| *code != record.pairing_code) => Some(Code::PairingMismatch),
                "rejected" => Some(Code::JoinRejected),
                "expired" => Some(Code::JoinExpired),
                _ => None,
            };
            let mut report = match over {
                Some(code) => {
                    // The reason is the founder's text: it stands in its own place, not in our sentence.
                    let mut report = Report::refused(&Fault::new(code, ""), &context);
                    report.detail =
                        Some(reason.to_owned()).filter(|r| !r.is_empty() && code != Code::PairingMismatch);
                    report.founder_says = report.detail.is_some();
                    report
                }
                None => {
                    let verdict = match state.as_str() {
                        "failed" => {
                            "the join failed: correct the cause and retry it on the cluster".to_owned()
                        }
                        _ => format!("good: the registration is {}", words(&state)),
                    };
                    Report { good: true, verdict, ..Report::default() }
                }
            };
            let tag = if report.good && state != "failed" { "ok" } else { "XX" };
            report.facts = vec![
                format!("[ok] {address} answers with the pinned key"),
                format!("[{tag}] the registration {}: {state}", record.join_id),
            ];
            if report.good && state == "pending" {
                report.facts.push(format!("[ok] its pairing code is {}", record.pairing_code));
            }
            report.address = address;
            report
        }
        Err(fault) => Report::refused(&fault, &context),
    }
}

/// A documented state as a person says it; another one as the founder spells it.
fn words(state: &str) -> String {
    match state {
        "pending" => "waiting for approval".to_owned(),
        "approved" => "approved and waits for its turn".to_owned(),
        other => format!("`{other}`"),
    }
}

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
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
