//! From the errors of the libraries to a classified fault in a technician's words. Touches nothing.

use std::error::Error;
use std::io::{self, ErrorKind};
use std::time::Duration;

use console::text::Safe;
use rustls::{AlertDescription, InvalidMessage, PeerIncompatible};

use super::transport::{Mismatch, Unresolved};
use crate::identity::verifier::ChainError;
use crate::join::fault::{Code, Fault, chain_of};
use crate::protocol::encoding::Pin;
use crate::protocol::url::Endpoint;

/// What the HTTP library says when the peer closed the connection; it has no type for it that can be reached from here.
const HUNG_UP: &[&str] =
    &["connection closed before message completed", "connection was not ready", "operation was canceled"];

/// What lies at the bottom of an error of the HTTP library.
enum Cause<'a> {
    Unresolved(&'a Unresolved),
    Chain(&'a ChainError),
    Tls(&'a rustls::Error),
    Io(&'a io::Error),
    /// The innermost text.
    Other(String),
}

/// A call that got no whole answer. `resolving`: it had no address yet. `connect`: how long a connection may take.
pub(super) fn failed(
    error: &reqwest::Error,
    endpoint: &Endpoint,
    what: &str,
    mismatch: Mismatch,
    resolving: bool,
    connect: Duration,
) -> Fault {
    let connecting = error.is_connect();
    let mut fault = match cause(error) {
        Cause::Unresolved(unresolved) => Fault::new(Code::AddressUnreachable, unresolved.to_string()),
        Cause::Chain(ChainError::OtherCa { expected, seen }) => other_ca(mismatch, expected, seen),
        Cause::Chain(chain) => Fault::new(Code::TlsFailed, chain.to_string()),
        Cause::Tls(tls) => Fault::new(Code::TlsFailed, tls_words(tls)),
        _ if connecting && error.is_timeout() && resolving => {
            let detail =
                format!("{} does not resolve: no answer within {} s", endpoint.host, connect.as_secs());
            Fault::new(Code::AddressUnreachable, detail)
        }
        _ if connecting && error.is_timeout() => {
            Fault::new(Code::AddressUnreachable, format!("no answer within {} s", connect.as_secs()))
        }
        Cause::Io(io) if connecting => match io.kind() {
            ErrorKind::UnexpectedEof
            | ErrorKind::ConnectionReset
            | ErrorKind::BrokenPipe
            | ErrorKind::ConnectionAborted => {
                Fault::new(Code::TlsFailed, "it closes the connection during the TLS handshake")
            }
            _ => Fault::new(Code::AddressUnreachable, io_words(io)),
        },
        Cause::Io(io) if is_nonsense(io) => Fault::new(Code::ResponseInvalid, "its HTTP is broken"),
        Cause::Io(io) => Fault::new(Code::AddressUnreachable, broken_words(io)),
        Cause::Other(text) => match text.as_str() {
            "connection closed before message completed"
            | "connection was not ready"
            | "operation was canceled" => {
                Fault::new(Code::AddressUnreachable, "the connection closed before the answer was complete")
            }
            "message head is too large" => Fault::new(Code::ResponseInvalid, "too many headers"),
            text if text.starts_with("invalid HTTP") => {
                Fault::new(Code::ResponseInvalid, "it is not HTTP/1.1")
            }
            _ => Fault::new(Code::ResponseInvalid, "its HTTP is broken"),
        },
    };
    let inner = error.source().map_or_else(|| error.to_string(), chain_of);
    let doing = if connecting { format!("connect {endpoint}") } else { what.to_owned() };
    fault.chain = Safe::clean(format!("{doing}: {inner}"));
    fault
}

/// Whether a connection that stood broke before an answer began.
pub(super) fn is_broken(error: &reqwest::Error) -> bool {
    if error.is_connect() {
        return false;
    }
    match cause(error) {
        Cause::Io(io) => !is_nonsense(io),
        Cause::Other(text) => HUNG_UP.contains(&text.as_str()),
        _ => false,
    }
}

/// The head of the answer is overdue.
pub(super) fn no_answer(endpoint: &Endpoint, what: &str, after: Duration) -> Fault {
    let detail = format!("it takes the connection but gives no answer within {} s", after.as_secs());
    with_chain(Fault::new(Code::AddressUnreachable, &detail), &format!("{what} at {endpoint}: {detail}"))
}

/// The body stands still or drips.
pub(super) fn slow(endpoint: &Endpoint, what: &str, why: &str) -> Fault {
    with_chain(Fault::new(Code::AddressUnreachable, why), &format!("{what} at {endpoint}: {why}"))
}

/// Why a body is not what was asked for, without a word of the body: only names of our own fields and the place.
pub(super) fn json(error: &serde_json::Error) -> String {
    let text = error.to_string();
    let ours = ["missing field `", "duplicate field `"].iter().any(|start| text.starts_with(start))
        || ["pin ", "joinId ", "base64url value "].iter().any(|name| {
            text.strip_prefix(name)
                .is_some_and(|rest| rest.starts_with("is not of its documented form at line "))
        });
    let place = format!("at line {} column {}", error.line(), error.column());
    match error.classify() {
        _ if ours => text,
        serde_json::error::Category::Data => format!("a field of another type than documented {place}"),
        serde_json::error::Category::Eof => format!("JSON that ends early {place}"),
        _ => format!("no JSON {place}"),
    }
}

fn with_chain(mut fault: Fault, chain: &str) -> Fault {
    fault.chain = Safe::clean(chain);
    fault
}

/// Another join CA than the accepted ones. Both keys are shown short, so that a person can compare them.
fn other_ca(mismatch: Mismatch, expected: &Pin, seen: &Pin) -> Fault {
    let (code, detail) = match mismatch {
        Mismatch::UrlPin => (Code::PinMismatch, "the key is not the one in the join URL"),
        Mismatch::Observed => (Code::TlsFailed, "another key answers than a moment ago"),
        Mismatch::Pinned => (Code::FounderKeyChanged, "the key is not the one that proved the join code"),
    };
    let mut fault = Fault::new(code, detail);
    fault.details.expected_pin = Some(Safe::clean(expected.short_hex(16)));
    fault.details.seen_pin = Some(Safe::clean(seen.short_hex(16)));
    fault
}

/// Walks the sources. An `io::Error` hides what it wraps from `source`, so it is opened by hand.
fn cause<'a>(error: &'a (dyn Error + 'static)) -> Cause<'a> {
    let mut found = None;
    let mut next = Some(error);
    let mut last = error;
    while let Some(error) = next {
        last = error;
        if let Some(unresolved) = error.downcast_ref::<Unresolved>() {
            return Cause::Unresolved(unresolved);
        }
        if let Some(tls) = error.downcast_ref::<rustls::Error>() {
            return tls_cause(tls);
        }
        next = error.source();
        if let Some(io) = error.downcast_ref::<io::Error>() {
            match io.get_ref() {
                Some(inner) => next = Some(inner),
                None => found = Some(io),
            }
            if found.is_none() && io.kind() != ErrorKind::Other && io.kind() != ErrorKind::InvalidData {
                found = Some(io);
            }
        }
    }
    found.map_or_else(|| Cause::Other(last.to_string()), Cause::Io)
}

fn tls_cause(tls: &rustls::Error) -> Cause<'_> {
    if let rustls::Error::Other(other) = tls
        && let Some(chain) = other.0.downcast_ref::<ChainError>()
    {
        return Cause::Chain(chain);
    }
    Cause::Tls(tls)
}

fn tls_words(tls: &rustls::Error) -> String {
    let words = match tls {
        rustls::Error::InvalidMessage(
            InvalidMessage::InvalidContentType
            | InvalidMessage::UnknownProtocolVersion
            | InvalidMessage::MessageTooLarge
            | InvalidMessage::InvalidEmptyPayload,
        ) => "it does not speak TLS; it is plain HTTP or another service",
        rustls::Error::AlertReceived(AlertDescription::ProtocolVersion)
        | rustls::Error::PeerIncompatible(
            PeerIncompatible::ServerTlsVersionIsDisabledByOurConfig
            | PeerIncompatible::ServerDoesNotSupportTls12Or13
            | PeerIncompatible::SupportedVersionsExtensionRequired,
        ) => "it speaks only TLS 1.2 or older",
        rustls::Error::AlertReceived(AlertDescription::NoApplicationProtocol)
        | rustls::Error::NoApplicationProtocol => "it does not speak HTTP/1.1",
        rustls::Error::AlertReceived(
            AlertDescription::CertificateRequired
            | AlertDescription::BadCertificate
            | AlertDescription::UnsupportedCertificate
            | AlertDescription::CertificateUnknown
            | AlertDescription::UnknownCA
            | AlertDescription::AccessDenied,
        ) => "it does not accept this machine's certificate",
        rustls::Error::AlertReceived(
            AlertDescription::HandshakeFailure | AlertDescription::InsufficientSecurity,
        )
        | rustls::Error::PeerIncompatible(_) => "it has no TLS settings in common with a joiner",
        rustls::Error::NoCertificatesPresented => "it shows no certificate",
        other => return other.to_string(),
    };
    words.to_owned()
}

/// A connection that did not come about.
fn io_words(error: &io::Error) -> String {
    let words = match error.kind() {
        ErrorKind::ConnectionRefused => "connection refused",
        ErrorKind::HostUnreachable => "no route to host",
        ErrorKind::NetworkUnreachable => "network is unreachable",
        ErrorKind::NetworkDown => "the network is down",
        ErrorKind::TimedOut => "no answer in time",
        ErrorKind::PermissionDenied => "a firewall of this machine forbids it",
        ErrorKind::AddrNotAvailable => "this machine has no address of that kind",
        _ => return plain(error),
    };
    words.to_owned()
}

/// The HTTP library's own complaint about what it read, as an `io::Error`.
fn is_nonsense(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::InvalidInput | ErrorKind::InvalidData)
}

/// A connection that broke.
fn broken_words(error: &io::Error) -> String {
    match error.kind() {
        ErrorKind::ConnectionReset | ErrorKind::BrokenPipe | ErrorKind::ConnectionAborted => {
            "the connection was reset before the answer was complete".to_owned()
        }
        ErrorKind::UnexpectedEof => "the connection closed before the answer was complete".to_owned(),
        _ => io_words(error),
    }
}

/// Without the `(os error 111)`.
fn plain(error: &io::Error) -> String {
    let text = error.to_string();
    text.split(" (os error").next().unwrap_or(&text).to_lowercase()
}
