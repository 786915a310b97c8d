//! A mirror: HTTPS by the system's certificate authorities or the operator's own, redirects within rules, no client certificate.
//!
//! Touches the network and, once, the system's list of authorities. The environment names no proxy here; only the settings do.

use std::error::Error;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use reqwest::header::{ACCEPT_ENCODING, CACHE_CONTROL, LOCATION, RANGE};
use reqwest::{Response, Url, redirect};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::time_provider::TimeProvider;
use rustls::version::{TLS12, TLS13};
use rustls::{CertificateError, ClientConfig, RootCertStore};

use super::address::{NotAllowed, Rules, host_of, port_of};
use super::{CONNECT, End, Reason, UpgradeFault, Who, fault, range_header};
use crate::clock;
use crate::durable_file::plain_io;

/// Most hops of redirects.
const MAX_REDIRECTS: usize = 5;
/// Largest file with authorities, and most of them.
const MAX_CA_FILE: usize = 64 * 1024;
const MAX_CAS: usize = 16;
/// No release was made before this, seconds since 1970 (2026): a clock before it is wrong.
const BUILT: i64 = 1_767_225_600;

/// How a mirror is reached.
#[derive(Debug, Clone, Default)]
pub struct MirrorSettings {
    /// The release directory.
    pub url: String,
    /// PEM with the only authorities that are trusted; `None` trusts the system's.
    pub ca_pem: Option<Vec<u8>>,
    /// `http` is allowed, too. For labs: the bytes are signed, but everybody sees what is fetched.
    pub allow_http: bool,
    /// `http://host:port`; the environment is not asked.
    pub proxy: Option<String>,
    /// The mirror itself may be on this machine, because a person typed its address. Where it redirects to may not.
    pub allow_local: bool,
    /// The founder's clock, for the dates of certificates; `None` uses this machine's.
    pub time: Option<FounderTime>,
}

/// A time that came over the pinned channel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FounderTime {
    /// Seconds since 1970.
    pub unix_secs: u64,
    /// Boot time in milliseconds when it came.
    pub at_boot_ms: u64,
}

/// A mirror. Connects nothing by itself.
#[derive(Debug)]
pub struct Mirror {
    base: String,
    host: String,
    http: reqwest::Client,
    rules: Rules,
    trusts_own_clock: bool,
}

// === impl Mirror ===

impl Mirror {
    /// Checks the address and prepares the client. `Err`: the address is not allowed, or the authorities cannot be used.
    pub fn new(settings: &MirrorSettings) -> Result<Self, UpgradeFault> {
        Self::build(settings).map_err(|end| {
            let reason = match end {
                End::Refused(rule) => Reason::Refused(rule),
                End::Tls(why) | End::Certificate(why) | End::Clock(why) | End::Connect(why) => {
                    Reason::Tls(why)
                }
                End::Eof | End::Cut => Reason::Stalled(None),
            };
            let host = Url::parse(&settings.url).map_or_else(|_| settings.url.clone(), |url| host_of(&url));
            let who = Who { host, founder: false, manifest: settings.url.clone() };
            fault(&who, &reason, |_| String::new(), 0, 0)
        })
    }

    fn build(settings: &MirrorSettings) -> Result<Self, End> {
        let mut rules = Rules { allow_http: settings.allow_http, local: None };
        let refused = |refused: NotAllowed| End::Refused(refused.0);
        if settings.allow_local {
            // Only to learn its name; the checks follow.
            let url = Url::parse(&settings.url).ok();
            rules.local = url.and_then(|url| Some((host_of(&url), port_of(&url)?)));
        }
        let url = rules.url(&settings.url, false).map_err(refused)?;
        let host = match url.port() {
            Some(port) => format!("{}:{port}", host_of(&url)),
            None => host_of(&url),
        };
        let mut builder = reqwest::Client::builder()
            .tls_backend_preconfigured(tls(settings)?)
            .https_only(!settings.allow_http)
            .http1_only()
            .redirect(redirect::Policy::none())
            .referer(false)
            .no_proxy()
            .connect_timeout(CONNECT)
            .pool_max_idle_per_host(4)
            .pool_idle_timeout(Duration::from_secs(90));
        builder = match &settings.proxy {
            // The names are the proxy's to resolve; its own address is the operator's choice.
            Some(proxy) => {
                let proxy = reqwest::Proxy::all(proxy);
                builder.proxy(proxy.map_err(|_| End::Refused("the proxy's address is no URL".to_owned()))?)
            }
            None => builder.dns_resolver(Guard(rules.clone())),
        };
        let http = builder.build().map_err(|error| End::Tls(error.to_string()))?;
        let base = url.as_str().trim_end_matches('/').to_owned();
        Ok(Self { base, host, http, rules, trusts_own_clock: settings.time.is_none() })
    }

    /// `host` or `host:port`.
    pub fn host(&self) -> &str {
        &self.host
    }

    /// The URL of a file.
    pub fn url(&self, path: &str) -> String {
        format!("{}/{path}", self.base)
    }

    /// Asks, and follows redirects. Every hop is checked as the first one was.
    pub(super) async fn get(
        &self,
        path: &str,
        range: Option<(u64, u64)>,
        fresh: bool,
    ) -> Result<Response, End> {
        let mut at = self.url(path);
        for hop in 0..=MAX_REDIRECTS {
            let url = self.rules.url(&at, hop > 0);
            let url = url.map_err(|refused| End::Refused(self.redirected(hop, &refused.0)))?;
            let mut request = self.http.get(url.clone()).header(ACCEPT_ENCODING, "identity");
            if let Some(range) = range {
                request = request.header(RANGE, range_header(range));
            }
            if fresh {
                request = request.header(CACHE_CONTROL, "no-cache");
            }
            let response = request.send().await.map_err(|error| self.end(&error, hop))?;
            let target = match response.status().as_u16() {
                301 | 302 | 303 | 307 | 308 => response.headers().get(LOCATION),
                _ => return Ok(response),
            };
            let target = target.and_then(|target| target.to_str().ok());
            let target = target.and_then(|target| {
                if target.contains("://") {
                    Some(target.to_owned())
                } else {
                    url.join(target).ok().map(String::from)
                }
            });
            at = target.ok_or_else(|| End::Refused(self.redirected(1, "nowhere")))?;
        }
        Err(End::Refused(format!("{} redirects more than {MAX_REDIRECTS} times", self.host)))
    }

    fn redirected(&self, hop: usize, rule: &str) -> String {
        if hop == 0 { rule.to_owned() } else { format!("{} redirects to {rule}", self.host) }
    }

    fn end(&self, error: &reqwest::Error, hop: usize) -> End {
        let connecting = error.is_connect();
        let mut next: Option<&(dyn Error + 'static)> = Some(error);
        let mut words = None;
        while let Some(error) = next {
            if let Some(refused) = error.downcast_ref::<NotAllowed>() {
                return End::Refused(self.redirected(hop, &refused.0));
            }
            if let Some(unresolved) = error.downcast_ref::<Unresolved>() {
                return End::Connect(unresolved.to_string());
            }
            if let Some(tls) = error.downcast_ref::<rustls::Error>() {
                return self.tls_end(tls, connecting, clock::wall_ms() / 1000);
            }
            next = match error.downcast_ref::<io::Error>() {
                Some(io) => {
                    words = Some(io_words(io));
                    // It hides what it wraps from `source`.
                    io.get_ref().map(|inner| inner as &(dyn Error + 'static))
                }
                None => error.source(),
            };
        }
        match words {
            _ if connecting && error.is_timeout() => {
                End::Connect(format!("no answer within {} s", CONNECT.as_secs()))
            }
            Some(words) if connecting => End::Connect(words),
            None if connecting => End::Connect("no connection".to_owned()),
            _ => End::Cut,
        }
    }

    /// `now`: what this machine's clock says, seconds since 1970. It only makes the words.
    fn tls_end(&self, error: &rustls::Error, connecting: bool, now: i64) -> End {
        let rustls::Error::InvalidCertificate(certificate) = error else {
            return if connecting {
                End::Connect("it does not speak TLS as a mirror must".to_owned())
            } else {
                End::Cut
            };
        };
        let dates = matches!(
            certificate,
            CertificateError::Expired
                | CertificateError::ExpiredContext { .. }
                | CertificateError::NotValidYet
                | CertificateError::NotValidYetContext { .. }
        );
        let words = certificate_words(certificate);
        if dates && self.trusts_own_clock {
            let date =
                jiff::Timestamp::from_second(now).map_or_else(|_| now.to_string(), |at| at.to_string());
            let date: String = date.chars().take(10).collect();
            return if now < BUILT {
                End::Clock(date)
            } else {
                End::Certificate(format!("{words} by this machine's clock, which says {date}"))
            };
        }
        match certificate {
            // A bad signature is that of another authority with the same name.
            CertificateError::UnknownIssuer | CertificateError::BadSignature => End::Tls(words),
            _ if dates => End::Certificate(format!("{words} by the founder's clock")),
            _ => End::Certificate(words),
        }
    }
}

/// Resolves names, and gives out only addresses that are allowed: what is checked here is what is connected to.
#[derive(Debug)]
struct Guard(Rules);

/// A name that gives no address.
#[derive(Debug, thiserror::Error)]
#[error("{host} does not resolve: {why}")]
struct Unresolved {
    host: String,
    why: String,
}

// === impl Guard ===

impl Resolve for Guard {
    fn resolve(&self, name: Name) -> Resolving {
        let (rules, host) = (self.0.clone(), name.as_str().to_ascii_lowercase());
        Box::pin(async move {
            let unresolved = |why: String| Unresolved { host: host.clone(), why };
            let found = tokio::net::lookup_host((host.as_str(), 0)).await;
            let found: Vec<SocketAddr> = found.map_err(|error| unresolved(io_words(&error)))?.collect();
            let mut refused = None;
            let mut allowed = Vec::new();
            for address in found {
                match rules.address(address.ip(), &host, None) {
                    Ok(()) => allowed.push(address),
                    Err(rule) => refused = Some(rule),
                }
            }
            match (allowed.is_empty(), refused) {
                (false, _) => Ok(Box::new(allowed.into_iter()) as Addrs),
                (true, Some(rule)) => Err(rule.into()),
                (true, None) => Err(unresolved("it has no address".to_owned()).into()),
            }
        })
    }
}

/// The founder's clock, as it goes on.
#[derive(Debug)]
struct FoundersClock(FounderTime);

// === impl FoundersClock ===

impl TimeProvider for FoundersClock {
    fn current_time(&self) -> Option<UnixTime> {
        let since = clock::boot_ms().saturating_sub(self.0.at_boot_ms) / 1000;
        Some(UnixTime::since_unix_epoch(Duration::from_secs(self.0.unix_secs.saturating_add(since))))
    }
}

fn tls(settings: &MirrorSettings) -> Result<ClientConfig, End> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let time: Arc<dyn TimeProvider> = match settings.time {
        Some(time) => Arc::new(FoundersClock(time)),
        None => Arc::new(rustls::time_provider::DefaultTimeProvider),
    };
    let mut config = ClientConfig::builder_with_details(provider, time)
        .with_protocol_versions(&[&TLS13, &TLS12])
        .map_err(|error| End::Tls(error.to_string()))?
        .with_root_certificates(roots(settings.ca_pem.as_deref())?)
        .with_no_client_auth();
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(config)
}

fn roots(ca_pem: Option<&[u8]>) -> Result<RootCertStore, End> {
    let mut roots = RootCertStore::empty();
    let Some(pem) = ca_pem else {
        // A single unreadable file in the system's list is no reason to trust nobody.
        roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        return Ok(roots);
    };
    let bad = |why: &str| Err(End::Tls(format!("the file with the mirror's authorities {why}")));
    if pem.len() > MAX_CA_FILE {
        return bad("is larger than 64 KiB");
    }
    for certificate in CertificateDer::pem_slice_iter(pem) {
        if certificate.is_err() || !certificate.is_ok_and(|certificate| roots.add(certificate).is_ok()) {
            return bad("has a certificate that cannot be read");
        }
        if roots.len() > MAX_CAS {
            return bad("holds more than 16 certificates");
        }
    }
    if roots.is_empty() { bad("holds no certificate (PEM)") } else { Ok(roots) }
}

fn certificate_words(error: &CertificateError) -> String {
    match error {
        CertificateError::UnknownIssuer | CertificateError::BadSignature => {
            "no authority that this machine trusts signed it".to_owned()
        }
        CertificateError::Expired | CertificateError::ExpiredContext { .. } => "it has expired".to_owned(),
        CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
            "it is not valid yet".to_owned()
        }
        CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
            "it is for another name".to_owned()
        }
        CertificateError::Revoked => "it is revoked".to_owned(),
        other => format!("it is not valid ({other:?})").chars().take(120).collect(),
    }
}

/// An error of a connection or of the resolver in a technician's words.
fn io_words(error: &io::Error) -> String {
    let text = plain_io(error);
    let text = text.strip_prefix("failed to lookup address information: ").unwrap_or(&text);
    match text {
        "Name or service not known" => "no such name".to_owned(),
        "Temporary failure in name resolution" => "no name server answers".to_owned(),
        _ if error.kind() == io::ErrorKind::UnexpectedEof => "the connection was closed".to_owned(),
        other => other.to_lowercase(),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn settings(url: &str) -> MirrorSettings {
        MirrorSettings { url: url.to_owned(), ..MirrorSettings::default() }
    }

    #[test]
    fn the_client_builds_with_the_systems_roots_and_with_a_file() {
        let mirror = Mirror::new(&settings("https://mirror.example:8443/a/bundle/")).unwrap();
        assert_eq!(mirror.host(), "mirror.example:8443");
        assert_eq!(
            mirror.url("payload/manifest.json"),
            "https://mirror.example:8443/a/bundle/payload/manifest.json"
        );
        for (pem, why) in [
            (&b""[..], "no certificate"),
            (b"hello", "no certificate"),
            (b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n", "cannot be read"),
            (&[b'x'; 70_000], "64 KiB"),
        ] {
            let with = MirrorSettings { ca_pem: Some(pem.to_vec()), ..settings("https://mirror.example/a") };
            let Err(End::Tls(found)) = Mirror::build(&with) else { panic!("{why}") };
            assert!(found.contains(why), "{found}");
        }
    }

    #[test]
    fn a_clock_that_cannot_be_right_is_named_instead_of_the_certificate() {
        let own = Mirror::new(&settings("https://mirror.example/a")).unwrap();
        let time = Some(FounderTime { unix_secs: 1_800_000_000, at_boot_ms: 0 });
        let founders = Mirror::new(&MirrorSettings { time, ..settings("https://mirror.example/a") }).unwrap();
        let early = rustls::Error::InvalidCertificate(CertificateError::NotValidYet);
        let by = |clock: &str| End::Certificate(format!("it is not valid yet by {clock}"));
        for (mirror, now, expected) in [
            (&own, 0, End::Clock("1970-01-01".to_owned())),
            (&own, -5_000_000_000, End::Clock("1811-07-23".to_owned())),
            (&own, i64::MIN, End::Clock("-922337203".to_owned())),
            (&own, BUILT, by("this machine's clock, which says 2026-01-01")),
            (&own, 4_102_444_800, by("this machine's clock, which says 2100-01-01")),
            (&founders, 0, by("the founder's clock")),
        ] {
            assert_eq!(mirror.tls_end(&early, true, now), expected);
        }
        let stranger = rustls::Error::InvalidCertificate(CertificateError::UnknownIssuer);
        assert!(matches!(own.tls_end(&stranger, true, 0), End::Tls(_)));
    }

    #[test]
    fn the_founders_clock_goes_on() {
        let at_boot_ms = clock::boot_ms().saturating_sub(5_000);
        let time = FoundersClock(FounderTime { unix_secs: 4_000_000_000, at_boot_ms });
        let now = time.current_time().unwrap().as_secs();
        assert!((4_000_000_004..4_000_000_100).contains(&now), "{now}");
    }
}
