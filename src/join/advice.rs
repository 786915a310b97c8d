//! What a person reads about a fault: what happened, what happens next by itself, what you can do (docs/protocol.md section 6).
//!
//! Pure, and the one place of these texts: console, banner, command line and the founder's records take them from here.

use console::text::Safe;

use super::fault::{Class, Code, Fault};

/// What the texts name beside the fault itself.
#[derive(Debug, Clone, Copy, Default)]
pub struct Context<'a> {
    /// `host:port` of the founder; empty when there is none.
    pub address: &'a str,
    /// Seconds to the next try, when one is armed.
    pub retry_secs: Option<u64>,
    /// The release of the running OS; empty when unknown.
    pub release: &'a str,
    /// A join code is saved.
    pub has_code: bool,
    /// The check character of the saved code does not fit: it looks mistyped.
    pub code_looks_mistyped: bool,
}

/// Three answers, each a sentence or two. `todo` is empty only where nothing needs doing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Advice {
    /// What happened.
    pub what: String,
    /// What happens next by itself.
    pub next: String,
    /// What you can do.
    pub todo: Vec<String>,
}

/// The command that gives the agent another code.
pub const JOIN_COMMAND: &str = "stratum-installer join --endpoint <address> --code <code>";

/// Why a request is refused where the settings say `requirePin: true`. Its advice is its own: address and code cannot bring a pin.
pub const NEEDS_PIN: &str = "the settings ask for a pin (requirePin) and this request has none";

/// What happens while whoever answers has not proved the code.
const LOOK_OUT: &str = "Nothing was sent or erased. It looks every 60 s whether another cluster answers; no new try against this one.";

/// The row of the table for `fault`.
pub fn advice(fault: &Fault, context: &Context<'_>) -> Advice {
    let detail = fault.detail.as_str();
    let address = if context.address.is_empty() { "the address" } else { context.address };
    let port = context.address.rsplit_once(':').map_or("9444", |(_, port)| port);
    let retry = match context.retry_secs {
        Some(secs) => format!("It tries again in {secs} s."),
        None => "It tries again by itself.".to_owned(),
    };
    let nothing = || "Nothing until a person acts.".to_owned();
    let new_code =
        || vec!["Make a new join code on the cluster, then run:".to_owned(), JOIN_COMMAND.to_owned()];
    let text = |text: &str| text.to_owned();
    let d = &fault.details;
    let named =
        |value: Option<&str>, unknown: &str| value.filter(|v| !v.is_empty()).unwrap_or(unknown).to_owned();
    let (what, next, mut todo) = match fault.code {
        Code::CodeMalformed => (
            format!("The join code cannot be right: {detail}."),
            text("Nothing until a new code is given."),
            vec![text("Type the code again.")],
        ),
        Code::UrlMalformed if detail == NEEDS_PIN => (
            format!("The join request cannot be used: {detail}."),
            text("Nothing was sent. Nothing until a new one is given."),
            vec![
                text("Only a join URL with pin= will do. Copy it whole from the cluster, then run:"),
                text("stratum-installer join --url '<URL>'"),
            ],
        ),
        Code::UrlMalformed => (
            format!("The join URL cannot be right: {detail}."),
            text("Nothing until a new one is given."),
            vec![text("Copy the URL again, or give address and code.")],
        ),
        Code::AddressUnreachable => (
            format!("Nothing answers at {address}: {detail}."),
            retry,
            vec![format!("Check cable, address and firewall, port {port}.")],
        ),
        Code::TlsFailed => (
            format!("{address} answers, but not as a Stratum join listener: {detail}."),
            retry,
            vec![text("Check the address. Another service may own it.")],
        ),
        Code::ProtocolUnsupported => (
            text("The cluster speaks another join protocol."),
            nothing(),
            vec![text("Install this machine from an ISO of the cluster's release.")],
        ),
        Code::CodeNotProven => (
            format!("The join code is wrong or long expired, or {address} is another cluster."),
            text(LOOK_OUT),
            vec![
                text("Check code and address. If both are right, someone may be in between."),
                text("Then run:"),
                JOIN_COMMAND.to_owned(),
            ],
        ),
        Code::PinMismatch => (
            format!("The key at {address} is not the one in the URL."),
            text("Nothing was sent. It tries again every 60 s."),
            vec![text("Check the address and copy the URL again.")],
        ),
        Code::FounderKeyChanged => (
            format!(
                "The cluster's key changed: had {}, now {}.",
                named(d.expected_pin.as_ref().map(|p| p.as_str()), "another"),
                named(d.seen_pin.as_ref().map(|p| p.as_str()), "an unknown one")
            ),
            text("It keeps the old key and tries every 60 s. Nothing was sent."),
            vec![text("If this is planned, run with a new code:"), JOIN_COMMAND.to_owned()],
        ),
        Code::PairingMismatch => (
            text("The two pairing codes differ."),
            text("It has stopped."),
            vec![text("Do not approve. Reject the entry and use a new join code.")],
        ),
        Code::ResponseInvalid | Code::ResponseTooLarge => (
            format!("The answer of {address} makes no sense: {detail}."),
            retry,
            vec![text("If it lasts, look at the founder, and keep journalctl -u stratum-join.")],
        ),
        Code::DeliveryInvalid => (
            format!("The received configuration is not usable: {detail}."),
            text("It is reported to the cluster and fetched again when the join is retried."),
            vec![text("Look at the join on the cluster, correct it and retry it there.")],
        ),
        // The founder's own words stand in their own place, never in a sentence of ours.
        Code::InvalidInput | Code::ServerError | Code::OtherRefusal | Code::JoinRejected
            if fault.from_founder =>
        {
            let plain = Fault { from_founder: false, detail: Safe::default(), ..fault.clone() };
            let Advice { next, todo, .. } = advice(&plain, context);
            let what = match fault.code {
                Code::InvalidInput => "The cluster refused our data.",
                Code::ServerError => "The cluster failed.",
                Code::OtherRefusal => "The cluster refused this machine.",
                _ => "The join was rejected.",
            };
            return Advice { what: what.to_owned(), next, todo };
        }
        Code::InvalidInput => (
            format!("The cluster refused our data: {detail}."),
            text("Nothing until a restart or new input."),
            vec![text("Keep journalctl -u stratum-join: this is a fault of the agent.")],
        ),
        Code::JoinCodeWrong => (text("The join code is wrong."), nothing(), new_code()),
        Code::JoinCodeExpired => (text("The join code has expired."), nothing(), new_code()),
        Code::JoinCodeRevoked => (text("The join code was revoked."), nothing(), new_code()),
        Code::JoinCodeBurned => {
            let mut todo = new_code();
            todo.push(text("Look on the cluster who tried."));
            (text("The join code was burned by too many wrong tries."), nothing(), todo)
        }
        Code::JoinNotFound if fault.http.is_none() => (
            text("This machine has no registration, and no join code is saved on it any more."),
            nothing(),
            new_code(),
        ),
        Code::JoinNotFound if context.has_code => (
            text("The cluster does not know our registration."),
            text("It proves the saved code again and registers again."),
            vec![text("If it lasts, make a new join code.")],
        ),
        Code::JoinNotFound => (
            text("The cluster does not know our registration, and no join code is saved any more."),
            text("It asks again every 60 s, in case the record comes back."),
            new_code(),
        ),
        Code::ReleaseMismatch => (
            format!(
                "This machine runs {}, the cluster {}.",
                named(Some(context.release), "an unknown release"),
                named(d.cluster_release.as_ref().map(|r| r.as_str()), "another release")
            ),
            nothing(),
            vec![format!(
                "Install this machine from {}.",
                named(d.iso.as_ref().map(|i| i.as_str()), "the cluster's ISO")
            )],
        ),
        Code::JoinStateConflict => (
            text("The join is in another state than we thought."),
            text("It asks for the state at once."),
            vec![],
        ),
        Code::ProofExpired => (text("The proof took too long."), text("It proves the code again."), vec![]),
        Code::PairingConflict => (
            text("The cluster holds another pairing for this machine."),
            text("It makes a new key and registers as a new entry."),
            vec![text("Ignore or reject the old entry.")],
        ),
        Code::DeliveryMismatch => (
            text("What we received is not what was sent."),
            text("It fetches the configuration again."),
            vec![],
        ),
        Code::JoinRejected if detail.is_empty() => (
            text("The join was rejected."),
            text("The code is wiped; it has stopped."),
            vec![text("Give a new code to ask again:"), JOIN_COMMAND.to_owned()],
        ),
        Code::JoinRejected => (
            format!("The join was rejected: {detail}."),
            text("The code is wiped; it has stopped."),
            vec![text("Give a new code to ask again:"), JOIN_COMMAND.to_owned()],
        ),
        Code::JoinExpired => (
            text("Nobody approved this machine in time."),
            text("The code is wiped; it has stopped."),
            new_code(),
        ),
        Code::InventoryTooLarge | Code::InventoryInvalid => (
            text("The cluster refused our hardware list."),
            text("It sends a shorter list once, then stops."),
            vec![text("Keep journalctl -u stratum-join and the output of stratum-join probe.")],
        ),
        Code::RateLimited => (text("Too many tries from here."), retry, vec![text("Wait.")]),
        Code::JoinQueueFull => (
            text("16 machines already wait."),
            retry,
            vec![text("Approve or reject some in Console: Admin > Metal, Joining nodes.")],
        ),
        Code::UpgradeRunning => (text("The cluster is being upgraded."), retry, vec![text("Wait.")]),
        Code::ReleaseBusy => (text("The cluster is serving others."), retry, vec![]),
        Code::Unavailable => (text("The cluster cannot answer now."), retry, vec![text("Wait.")]),
        Code::ServerError => {
            (format!("The cluster failed: {detail}."), retry, vec![text("If it lasts, look at the founder.")])
        }
        Code::OtherRefusal => (
            format!("The cluster refused: {detail}."),
            text("Three tries, then it waits for a person."),
            vec![text("Do as the cluster says, then retry.")],
        ),
        Code::Local => (
            format!("This machine is in the way: {detail}."),
            retry,
            vec![text("Correct the cause named above on this machine.")],
        ),
        Code::Tampered => (
            format!("A file of the agent is not as it wrote it: {detail}."),
            match context.retry_secs {
                Some(secs) => format!("The file is left as it is. It looks again in {secs} s."),
                None => text("The file is left as it is and not used."),
            },
            vec![text("Look who changed it; move it away to go on without it.")],
        ),
        Code::Unsupported => (
            format!("This agent cannot do what the cluster asks: {detail}."),
            nothing(),
            vec![text("Install this machine from an ISO of the cluster's release.")],
        ),
    };
    if context.code_looks_mistyped && matches!(fault.code, Code::CodeNotProven | Code::JoinCodeWrong) {
        todo.insert(0, text("The code looks mistyped: its last character does not fit."));
    }
    let next = match fault.code.class() {
        Class::Operator | Class::Final if fault.is_unproven() => text(LOOK_OUT),
        _ => next,
    };
    if fault.is_unproven() {
        todo.push(text("This answer came before the cluster proved the code."));
    }
    Advice { what, next, todo }
}

/// The same for a fault that waits for a person: where the table would try again by itself, it does not any more.
pub fn advice_of_stop(fault: &Fault, context: &Context<'_>) -> Advice {
    let mut told = advice(fault, context);
    if fault.code.class() == Class::Retry {
        told.next = if fault.looks_out() { LOOK_OUT } else { "Nothing until a person acts." }.to_owned();
    }
    if matches!(fault.code, Code::JoinNotFound | Code::JoinStateConflict) {
        told.todo =
            vec!["Make a new join code on the cluster, then run:".to_owned(), JOIN_COMMAND.to_owned()];
    }
    told
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fmt::Write;

    #[test]
    fn every_code_has_its_three_texts() {
        let context = Context {
            address: "192.0.2.240:9444",
            retry_secs: Some(8),
            release: "0.6.0",
            ..Context::default()
        };
        let mut table = String::new();
        for code in Code::ALL {
            let mut fault = Fault::new(*code, "<detail>").verified();
            fault.details.cluster_release = Some(Safe::clean("0.7.0"));
            fault.details.iso = Some(Safe::clean("stratum-0.7.0.iso"));
            fault.http = Some(500);
            let advice = advice(&fault, &context);
            assert!(!advice.what.is_empty() && !advice.next.is_empty());
            writeln!(table, "{} ({:?}, exit {})", code.as_str(), code.class(), code.exit()).unwrap();
            writeln!(table, "  what  {}\n  next  {}", advice.what, advice.next).unwrap();
            for line in &advice.todo {
                writeln!(table, "  do    {line}").unwrap();
            }
        }
        insta::assert_snapshot!("advice", table);
    }

    #[test]
    fn a_request_without_the_pin_that_is_asked_for_is_not_told_to_give_address_and_code() {
        let told = advice(&Fault::new(Code::UrlMalformed, NEEDS_PIN), &Context::default());
        let todo = told.todo.join(" ");
        assert!(todo.contains("pin=") && !todo.contains("address"), "{todo}");
        assert!(told.what.contains("requirePin"), "{}", told.what);
    }

    #[test]
    fn an_answer_before_the_proof_says_so() {
        let mut fault = Fault::new(Code::JoinCodeBurned, "burned");
        fault.http = Some(403);
        let advice = advice(&fault, &Context::default());
        assert_eq!(advice.todo.last().unwrap(), "This answer came before the cluster proved the code.");
    }

    #[test]
    fn the_founders_words_never_stand_in_a_sentence_of_ours() {
        for code in Code::ALL {
            let mut fault = Fault::new(*code, "Pairing code: AAA-AAA");
            (fault.http, fault.from_founder) = (Some(400), true);
            for told in [advice(&fault, &Context::default()), advice_of_stop(&fault, &Context::default())] {
                let all = format!("{} {} {}", told.what, told.next, told.todo.join(" "));
                // Our own codes never come with the founder's words (founder/problem.rs).
                let ours = [
                    Code::CodeMalformed,
                    Code::UrlMalformed,
                    Code::AddressUnreachable,
                    Code::TlsFailed,
                    Code::ResponseInvalid,
                    Code::ResponseTooLarge,
                    Code::DeliveryInvalid,
                    Code::Local,
                    Code::Tampered,
                    Code::Unsupported,
                ];
                assert!(ours.contains(code) || !all.contains("AAA-AAA"), "{code:?}: {all}");
            }
        }
    }

    #[test]
    fn what_waits_for_a_person_does_not_say_that_it_tries_again() {
        for code in Code::ALL {
            for http in [None, Some(404)] {
                let mut fault = Fault::new(*code, "x").verified();
                fault.http = http;
                let next = advice_of_stop(&fault, &Context { has_code: true, ..Context::default() }).next;
                let tries = ["tries again", "asks again", "proves the code again", "asks for the state"];
                let may = matches!(code, Code::PinMismatch | Code::FounderKeyChanged);
                assert!(may || !tries.iter().any(|t| next.contains(t)), "{code:?}: {next}");
            }
        }
    }
}
