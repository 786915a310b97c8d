//! Where a founder answers and the `stratum-join://` URL that carries address, code and pins. Touches nothing.
//!
//! A refused text is never echoed, because the code in it is a secret.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use zeroize::Zeroizing;

use super::code::{CodeError, JoinCode};
use super::encoding::Pin;

/// The join listener's port when none is given.
pub const DEFAULT_PORT: u16 = 9444;
/// Longest URL in bytes.
pub const MAX_URL: usize = 512;
/// Most pins in a URL: the present one and the next.
pub const MAX_PINS: usize = 2;
const SCHEME: &str = "stratum-join";

/// What answers: a name or an address.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Host {
    /// A DNS name, lower case.
    Name(String),
    /// An address.
    Ip(IpAddr),
}

/// A founder's join listener. Not secret.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Endpoint {
    /// Name or address.
    pub host: Host,
    /// TCP port, never 0.
    pub port: u16,
}

/// A whole join URL. `Debug` shows only the code's hint.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JoinUrl {
    /// Where the founder answers.
    pub endpoint: Endpoint,
    /// The join code. Secret.
    pub code: JoinCode,
    /// Keys of the join CA to accept at first contact, at most [`MAX_PINS`]; empty trusts the proof alone.
    pub pins: Vec<Pin>,
}

/// What a person may write as the cluster's address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Address {
    /// `host[:port]`.
    Endpoint(Endpoint),
    /// A whole URL.
    Url(Box<JoinUrl>),
}

/// Why a URL or an address is refused. Never holds the text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum UrlError {
    /// Over [`MAX_URL`] bytes.
    #[error("it is longer than {MAX_URL} bytes")]
    TooLong,
    /// A control character or one that is not ASCII.
    #[error("it contains a character that no address has")]
    Character,
    /// Another scheme.
    #[error("it does not begin with stratum-join://")]
    Scheme,
    /// `user@`.
    #[error("it names a user")]
    User,
    /// `#`.
    #[error("it has a fragment (#)")]
    Fragment,
    /// `%`.
    #[error("it has a percent sign")]
    Percent,
    /// Neither a DNS name nor an address, an address in octal, hex or short form, or one with a zone.
    #[error("the host is neither a DNS name nor a full IPv4 or IPv6 address")]
    Host,
    /// Not 1 to 65535.
    #[error("the port is not a number from 1 to 65535")]
    Port,
    /// Not exactly one path segment, the code.
    #[error("the path is not just the join code")]
    Path,
    /// Not `key=value` pairs.
    #[error("what follows the question mark is not key=value")]
    Query,
    /// A key twice.
    #[error("a parameter is given twice")]
    Repeated,
    /// Not `sha256.` and 32 bytes, or more than two of them.
    #[error("a pin is not sha256. and 43 characters, or there are more than {MAX_PINS}")]
    Pin,
    /// A key that begins with `x-must-`.
    #[error("it demands something this version does not know")]
    Unsupported,
    /// The code in it is malformed.
    #[error(transparent)]
    Code(#[from] CodeError),
}

// === impl UrlError ===

impl UrlError {
    /// The reason's name in docs/protocol.md.
    pub fn reason(self) -> &'static str {
        match self {
            UrlError::TooLong => "too long",
            UrlError::Character => "character",
            UrlError::Scheme => "scheme",
            UrlError::User => "user",
            UrlError::Fragment => "fragment",
            UrlError::Percent => "percent",
            UrlError::Host => "host",
            UrlError::Port => "port",
            UrlError::Path => "path",
            UrlError::Query => "query",
            UrlError::Repeated => "repeated",
            UrlError::Pin => "pin",
            UrlError::Unsupported => "unsupported",
            UrlError::Code(code) => code.reason(),
        }
    }
}

// === impl Endpoint ===

impl Endpoint {
    /// Parses `host`, `host:port`, `[v6]`, `[v6]:port` or a bare IPv6 address. White space around it is ignored.
    pub fn parse(text: &str) -> Result<Self, UrlError> {
        let text = plain(text)?;
        if text.contains("://") {
            return Err(UrlError::Scheme);
        }
        if text.contains('@') {
            return Err(UrlError::User);
        }
        if text.contains('#') {
            return Err(UrlError::Fragment);
        }
        if text.contains(['/', '?']) {
            return Err(UrlError::Path);
        }
        if let Ok(address) = text.parse::<Ipv6Addr>() {
            return Ok(Self { host: Host::Ip(address.into()), port: DEFAULT_PORT });
        }
        if text.contains('%') {
            // `fe80::1%eth0` is a zone, which names an interface of another machine.
            return Err(if text.starts_with('[') || text.matches(':').count() > 1 {
                UrlError::Host
            } else {
                UrlError::Percent
            });
        }
        Self::of_authority(text)
    }

    /// `host[:port]` of a URL, IPv6 in brackets.
    fn of_authority(text: &str) -> Result<Self, UrlError> {
        let (host, port) = match text.strip_prefix('[') {
            Some(rest) => {
                let (address, rest) = rest.split_once(']').ok_or(UrlError::Host)?;
                let address: Ipv6Addr = address.parse().map_err(|_| UrlError::Host)?;
                let port = match rest {
                    "" => None,
                    rest => Some(rest.strip_prefix(':').ok_or(UrlError::Host)?),
                };
                (Host::Ip(address.into()), port)
            }
            None => {
                let (host, port) = match text.split_once(':') {
                    Some((host, port)) => (host, Some(port)),
                    None => (text, None),
                };
                if port.is_some_and(|port| port.contains(':')) {
                    return Err(UrlError::Host);
                }
                (parse_host(host)?, port)
            }
        };
        let port = port.map_or(Ok(DEFAULT_PORT), parse_port)?;
        Ok(Self { host, port })
    }

    /// As it stands in a URL: without the port when it is the default.
    fn authority(&self) -> String {
        let host = match &self.host {
            Host::Ip(IpAddr::V6(address)) => format!("[{address}]"),
            Host::Ip(IpAddr::V4(address)) => address.to_string(),
            Host::Name(name) => name.clone(),
        };
        if self.port == DEFAULT_PORT { host } else { format!("{host}:{}", self.port) }
    }
}

impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Host::Name(name) => f.write_str(name),
            Host::Ip(address) => address.fmt(f),
        }
    }
}

/// Always with the port, IPv6 in brackets: what is shown and dialled.
impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.host {
            Host::Ip(IpAddr::V6(address)) => write!(f, "[{address}]:{}", self.port),
            host => write!(f, "{host}:{}", self.port),
        }
    }
}

impl std::str::FromStr for Endpoint {
    type Err = UrlError;

    fn from_str(text: &str) -> Result<Self, UrlError> {
        Self::parse(text)
    }
}

// === impl JoinUrl ===

impl JoinUrl {
    /// Parses a URL by the grammar of docs/protocol.md. White space around it is ignored, because it was pasted.
    pub fn parse(text: &str) -> Result<Self, UrlError> {
        let text = plain(text)?;
        let (scheme, rest) = text.split_once("://").ok_or(UrlError::Scheme)?;
        if !scheme.eq_ignore_ascii_case(SCHEME) {
            return Err(UrlError::Scheme);
        }
        let (authority, tail) = rest.split_at(rest.find(['/', '?', '#']).unwrap_or(rest.len()));
        if authority.contains('@') {
            return Err(UrlError::User);
        }
        if rest.contains('#') {
            return Err(UrlError::Fragment);
        }
        if authority.starts_with('[') && authority.contains('%') {
            return Err(UrlError::Host);
        }
        if rest.contains('%') {
            return Err(UrlError::Percent);
        }
        let endpoint = Endpoint::of_authority(authority)?;
        let (path, query) = match tail.split_once('?') {
            Some((path, query)) => (path, Some(query)),
            None => (tail, None),
        };
        let code = path.strip_prefix('/').ok_or(UrlError::Path)?;
        if code.contains('/') {
            return Err(UrlError::Path);
        }
        let pins = query.map_or(Ok(Vec::new()), parse_query)?;
        Ok(Self { endpoint, code: JoinCode::parse(code)?, pins })
    }

    /// The URL as text, with the whole code: for the founder, which shows it once, and for nothing else.
    pub fn written(&self) -> Zeroizing<String> {
        let mut text = Zeroizing::new(format!(
            "{SCHEME}://{}/{}",
            self.endpoint.authority(),
            self.code.written().as_str()
        ));
        for (n, pin) in self.pins.iter().enumerate() {
            text.push_str(if n == 0 { "?pin=" } else { "&pin=" });
            text.push_str(&pin.to_string());
        }
        text
    }
}

// === impl Address ===

impl Address {
    /// Parses either form: what has `://` in it is a URL.
    pub fn parse(text: &str) -> Result<Self, UrlError> {
        if text.contains("://") {
            return Ok(Address::Url(Box::new(JoinUrl::parse(text)?)));
        }
        Ok(Address::Endpoint(Endpoint::parse(text)?))
    }
}

/// Trims and refuses what is too long or not printable ASCII.
fn plain(text: &str) -> Result<&str, UrlError> {
    let text = text.trim_ascii();
    if text.len() > MAX_URL {
        return Err(UrlError::TooLong);
    }
    if !text.bytes().all(|b| matches!(b, b' '..=b'~')) {
        return Err(UrlError::Character);
    }
    Ok(text)
}

fn parse_host(text: &str) -> Result<Host, UrlError> {
    let label = |label: &str| {
        let edge = |b: Option<u8>| b.is_some_and(|b| b.is_ascii_alphanumeric());
        let bytes = label.as_bytes();
        bytes.len() <= 63
            && edge(bytes.first().copied())
            && edge(bytes.last().copied())
            && bytes.iter().all(|b| b.is_ascii_alphanumeric() || *b == b'-')
    };
    if text.len() > 253 || !text.split('.').all(label) {
        return Err(UrlError::Host);
    }
    let text = text.to_ascii_lowercase();
    // A last label that is a number makes it an address to every resolver, in whatever base and however short. Only the full
    // decimal form is accepted: `010.0.0.1` is two different machines to two different programs.
    let last = text.rsplit('.').next().unwrap_or_default();
    let hex = last.strip_prefix("0x").is_some_and(|digits| digits.bytes().all(|b| b.is_ascii_hexdigit()));
    if hex || last.bytes().all(|b| b.is_ascii_digit()) {
        let address: Ipv4Addr = text.parse().map_err(|_| UrlError::Host)?;
        return Ok(Host::Ip(address.into()));
    }
    Ok(Host::Name(text))
}

fn parse_port(text: &str) -> Result<u16, UrlError> {
    let digits = (1..=5).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_digit());
    match text.parse() {
        Ok(port) if digits && port > 0 => Ok(port),
        _ => Err(UrlError::Port),
    }
}

/// The pins; unknown keys are ignored unless they say that they must not be.
fn parse_query(query: &str) -> Result<Vec<Pin>, UrlError> {
    let mut pins = Vec::new();
    let mut seen: Vec<&str> = Vec::new();
    for pair in query.split('&') {
        let (key, value) = pair.split_once('=').ok_or(UrlError::Query)?;
        let key_fits = (1..=32).contains(&key.len())
            && key.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-');
        if !key_fits {
            return Err(UrlError::Query);
        }
        if key == "pin" {
            if pins.len() == MAX_PINS {
                return Err(UrlError::Pin);
            }
            pins.push(Pin::parse(value).map_err(|_| UrlError::Pin)?);
            continue;
        }
        if key.starts_with("x-must-") {
            return Err(UrlError::Unsupported);
        }
        if seen.contains(&key) {
            return Err(UrlError::Repeated);
        }
        seen.push(key);
        let value_fits = value.len() <= 128
            && value.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'~' | b'-'));
        if !value_fits {
            return Err(UrlError::Query);
        }
    }
    Ok(pins)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_support::config;
    use proptest::prelude::*;

    const CODE: &str = "4F7K-2Q9M-ABD";
    const PIN: &str = "sha256.nyTT3mT-01CdHCSx5kPazcQZorO7zq3qxpXl-sNF4wM";

    #[test]
    fn the_documented_example_is_read_and_written() {
        let text = format!("stratum-join://192.0.2.240/{CODE}?pin={PIN}");
        let url = JoinUrl::parse(&text).expect("the example");
        assert_eq!(url.endpoint.to_string(), "192.0.2.240:9444");
        assert_eq!(url.code, JoinCode::parse(CODE).expect("the example"));
        assert_eq!(url.pins, [Pin::parse(PIN).expect("the example")]);
        assert_eq!(url.written().as_str(), text);
        assert!(!format!("{url:?}").contains("2Q9M"));
    }

    #[test]
    fn good_urls_are_read_the_way_they_are_meant() {
        for (text, endpoint) in [
            (format!("STRATUM-Join://h/{CODE}"), "h:9444"),
            (format!(" stratum-join://Founder.Example:1/{CODE}\r\n"), "founder.example:1"),
            (format!("stratum-join://[2001:DB8:0::1]:65535/{CODE}"), "[2001:db8::1]:65535"),
            (format!("stratum-join://[::ffff:192.0.2.1]/{CODE}"), "[::ffff:192.0.2.1]:9444"),
            ("stratum-join://h/4f7k2q9mabd".to_owned(), "h:9444"),
            (format!("stratum-join://h/{CODE}?pin={PIN}&pin={PIN}&colour=red&empty="), "h:9444"),
            (format!("stratum-join://1.2.3.4.example/{CODE}"), "1.2.3.4.example:9444"),
        ] {
            let url = JoinUrl::parse(&text).unwrap_or_else(|e| panic!("{text}: {e}"));
            assert_eq!(url.endpoint.to_string(), endpoint);
            assert_eq!(JoinUrl::parse(&url.written()), Ok(url));
        }
    }

    #[test]
    fn every_bad_url_is_refused_for_its_reason() {
        let long_label = "a".repeat(64);
        let long_name = format!("{}b", "a.".repeat(127));
        let cases: &[(&str, &str)] = &[
            ("too long", &format!("stratum-join://h/{CODE}?a={}", "b".repeat(500))),
            ("character", "stratum-join://h\u{e4}/4F7K-2Q9M-ABD"),
            ("character", "stratum-join://h/4F7K\u{2013}2Q9M\u{2013}ABD"),
            ("character", "stratum-join://h/4F7K\t2Q9M-ABD"),
            ("character", "stratum-join://h\0/4F7K-2Q9M-ABD"),
            ("character", "stratum-join://h/4F7K-2Q9M-ABD\x7f"),
            ("character", "stratum-join://h/4F7K-2Q9M-\x1b[31mABD"),
            ("scheme", ""),
            ("scheme", CODE),
            ("scheme", "h/4F7K-2Q9M-ABD"),
            ("scheme", "https://h/4F7K-2Q9M-ABD"),
            ("scheme", "stratum-joins://h/4F7K-2Q9M-ABD"),
            ("scheme", "stratum-join:/h/4F7K-2Q9M-ABD"),
            ("scheme", "stratum-join:h/4F7K-2Q9M-ABD"),
            ("scheme", " x stratum-join://h/4F7K-2Q9M-ABD"),
            ("user", "stratum-join://root@h/4F7K-2Q9M-ABD"),
            ("user", "stratum-join://root:pw@h/4F7K-2Q9M-ABD"),
            ("user", "stratum-join://@h/4F7K-2Q9M-ABD"),
            ("fragment", "stratum-join://h/4F7K-2Q9M-ABD#"),
            ("fragment", "stratum-join://h/4F7K-2Q9M-ABD#x"),
            ("fragment", "stratum-join://h#/4F7K-2Q9M-ABD"),
            ("fragment", "stratum-join://h/4F7K-2Q9M-ABD?a=b#c"),
            ("percent", "stratum-join://h/4F7K%2D2Q9M-ABD"),
            ("percent", "stratum-join://%68/4F7K-2Q9M-ABD"),
            ("percent", "stratum-join://h/4F7K-2Q9M-ABD?a=%41"),
            ("percent", "stratum-join://h:%39/4F7K-2Q9M-ABD"),
            ("host", "stratum-join:///4F7K-2Q9M-ABD"),
            ("host", "stratum-join://"),
            ("host", "stratum-join://:9444/4F7K-2Q9M-ABD"),
            ("host", "stratum-join://h./4F7K-2Q9M-ABD"),
            ("host", "stratum-join://.h/4F7K-2Q9M-ABD"),
            ("host", "stratum-join://a..b/4F7K-2Q9M-ABD"),
            ("host", "stratum-join://-a/4F7K-2Q9M-ABD"),
            ("host", "stratum-join://a-/4F7K-2Q9M-ABD"),
            ("host", "stratum-join://a_b/4F7K-2Q9M-ABD"),
            ("host", "stratum-join://a b/4F7K-2Q9M-ABD"),
            ("host", "stratum-join://a\\b/4F7K-2Q9M-ABD"),
            ("host", "stratum-join://$(id)/4F7K-2Q9M-ABD"),
            ("host", "stratum-join://a,b/4F7K-2Q9M-ABD"),
            ("host", &format!("stratum-join://{long_label}/{CODE}")),
            ("host", &format!("stratum-join://{long_name}/{CODE}")),
            ("host", "stratum-join://2001:db8::1/4F7K-2Q9M-ABD"),
            ("host", "stratum-join://[2001:db8::1/4F7K-2Q9M-ABD"),
            ("host", "stratum-join://[2001:db8::g]/4F7K-2Q9M-ABD"),
            ("host", "stratum-join://[]/4F7K-2Q9M-ABD"),
            ("host", "stratum-join://[192.0.2.1]/4F7K-2Q9M-ABD"),
            ("host", "stratum-join://[v1.a]/4F7K-2Q9M-ABD"),
            ("host", "stratum-join://[fe80::1%25eth0]/4F7K-2Q9M-ABD"),
            ("host", "stratum-join://[fe80::1%eth0]/4F7K-2Q9M-ABD"),
            ("host", "stratum-join://[::1]x/4F7K-2Q9M-ABD"),
            ("host", "stratum-join://010.0.0.1/4F7K-2Q9M-ABD"),
            ("host", "stratum-join://0x7f.0.0.1/4F7K-2Q9M-ABD"),
            ("host", "stratum-join://0x7f000001/4F7K-2Q9M-ABD"),
            ("host", "stratum-join://2130706433/4F7K-2Q9M-ABD"),
            ("host", "stratum-join://127.1/4F7K-2Q9M-ABD"),
            ("host", "stratum-join://192.0.2.256/4F7K-2Q9M-ABD"),
            ("host", "stratum-join://192.0.2.1.5/4F7K-2Q9M-ABD"),
            ("host", "stratum-join://a.0x1/4F7K-2Q9M-ABD"),
            ("port", "stratum-join://h:/4F7K-2Q9M-ABD"),
            ("port", "stratum-join://h:0/4F7K-2Q9M-ABD"),
            ("port", "stratum-join://h:65536/4F7K-2Q9M-ABD"),
            ("port", "stratum-join://h:000001/4F7K-2Q9M-ABD"),
            ("port", "stratum-join://h:+1/4F7K-2Q9M-ABD"),
            ("port", "stratum-join://h:-1/4F7K-2Q9M-ABD"),
            ("port", "stratum-join://h:9444x/4F7K-2Q9M-ABD"),
            ("port", "stratum-join://[::1]:/4F7K-2Q9M-ABD"),
            ("port", "stratum-join://h:ssh/4F7K-2Q9M-ABD"),
            ("path", "stratum-join://h"),
            ("path", "stratum-join://h?pin=x"),
            ("path", "stratum-join://h/4F7K-2Q9M-ABD/"),
            ("path", "stratum-join://h//4F7K-2Q9M-ABD"),
            ("path", "stratum-join://h/a/4F7K-2Q9M-ABD"),
            ("query", "stratum-join://h/4F7K-2Q9M-ABD?"),
            ("query", "stratum-join://h/4F7K-2Q9M-ABD?a"),
            ("query", "stratum-join://h/4F7K-2Q9M-ABD?=b"),
            ("query", "stratum-join://h/4F7K-2Q9M-ABD?a=b&"),
            ("query", "stratum-join://h/4F7K-2Q9M-ABD?A=b"),
            ("query", "stratum-join://h/4F7K-2Q9M-ABD?a=b c"),
            ("query", "stratum-join://h/4F7K-2Q9M-ABD?a=b=c"),
            ("repeated", "stratum-join://h/4F7K-2Q9M-ABD?a=b&a=c"),
            ("pin", "stratum-join://h/4F7K-2Q9M-ABD?pin="),
            ("pin", "stratum-join://h/4F7K-2Q9M-ABD?pin=sha256.AAAA"),
            ("pin", "stratum-join://h/4F7K-2Q9M-ABD?pin=nyTT3mT-01CdHCSx5kPazcQZorO7zq3qxpXl-sNF4wM"),
            ("pin", "stratum-join://h/4F7K-2Q9M-ABD?pin=sha512.nyTT3mT-01CdHCSx5kPazcQZorO7zq3qxpXl-sNF4wM"),
            ("pin", "stratum-join://h/4F7K-2Q9M-ABD?pin=sha256.nyTT3mT-01CdHCSx5kPazcQZorO7zq3qxpXl-sNF4wM="),
            ("pin", "stratum-join://h/4F7K-2Q9M-ABD?pin=sha256.nyTT3mT-01CdHCSx5kPazcQZorO7zq3qxpXl-sNF4wN"),
            ("pin", &format!("stratum-join://h/{CODE}?pin={PIN}&pin={PIN}&pin={PIN}")),
            ("unsupported", "stratum-join://h/4F7K-2Q9M-ABD?x-must-fly=1"),
            ("empty", "stratum-join://h/"),
            ("empty", "stratum-join://h/-"),
            ("length", "stratum-join://h/4F7K-2Q9M-AB"),
            ("character", "stratum-join://h/4F7K_2Q9M_ABD"),
            ("character", "stratum-join://h/4F7K-2Q9M-ABU"),
        ];
        for (reason, text) in cases {
            let error = JoinUrl::parse(text).expect_err(text);
            assert_eq!(error.reason(), *reason, "{text}");
            assert!(!error.to_string().contains("2Q9M"), "{text}");
        }
    }

    #[test]
    fn an_address_may_be_a_bare_ipv6_or_a_whole_url() {
        for (text, shown) in [
            ("192.0.2.240", "192.0.2.240:9444"),
            (" founder.example:1234\n", "founder.example:1234"),
            ("2001:db8::1", "[2001:db8::1]:9444"),
            ("[2001:db8::1]:7", "[2001:db8::1]:7"),
            ("[2001:db8::1]", "[2001:db8::1]:9444"),
        ] {
            assert_eq!(Endpoint::parse(text).expect(text).to_string(), shown);
            assert!(matches!(Address::parse(text), Ok(Address::Endpoint(_))));
        }
        assert!(matches!(Address::parse(&format!("stratum-join://h/{CODE}")), Ok(Address::Url(_))));
        for (text, reason) in [
            ("", "host"),
            ("fe80::1%eth0", "host"),
            ("[fe80::1%eth0]:1", "host"),
            ("2001:db8::1:99999", "host"),
            ("h:", "port"),
            ("h/x", "path"),
            ("https://h", "scheme"),
            ("root@h", "user"),
            ("h%41", "percent"),
        ] {
            assert_eq!(Address::parse(text).expect_err(text).reason(), reason, "{text}");
        }
    }

    proptest! {
        #![proptest_config(config())]

        #[test]
        fn any_text_is_a_url_that_reads_back_or_is_refused(text in "(stratum-join://)?[ -~]{0,60}") {
            if let Ok(url) = JoinUrl::parse(&text) {
                prop_assert_eq!(JoinUrl::parse(&url.written()).unwrap(), url);
            }
            if let Ok(endpoint) = Endpoint::parse(&text) {
                prop_assert_eq!(Endpoint::parse(&endpoint.to_string()).unwrap(), endpoint);
            }
        }
    }
}
