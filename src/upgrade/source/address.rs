//! Which addresses a download may go to. A hostile or confused founder must not aim this machine at services that trust it: itself, its link, its
//! cloud's metadata. Private networks are allowed: mirrors live there.
//!
//! Touches nothing but the question whether an address is this machine's own.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, UdpSocket};

use reqwest::Url;

/// Longest URL of a mirror, bytes.
const MAX_URL: usize = 512;
/// A redirect may be longer: it carries a signature.
const MAX_REDIRECT: usize = 4096;
const MAX_NAME: usize = 253;

/// What may be reached.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Rules {
    /// `http` too. For labs.
    pub(super) allow_http: bool,
    /// The host and port that may be on this machine itself: a person typed them.
    pub(super) local: Option<(String, u16)>,
}

/// An address that is not allowed, and by which rule.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub(super) struct NotAllowed(pub(super) String);

// === impl Rules ===

impl Rules {
    /// A mirror's URL or, with a query, where it redirects to.
    pub(super) fn url(&self, text: &str, redirect: bool) -> Result<Url, NotAllowed> {
        let url = parse(text, self.allow_http, redirect).map_err(NotAllowed)?;
        if let Some(address) = literal(&url) {
            self.address(address, &host_of(&url), port_of(&url))?;
        }
        Ok(url)
    }

    /// An address that `host` stands for.
    pub(super) fn address(&self, address: IpAddr, host: &str, port: Option<u16>) -> Result<(), NotAllowed> {
        let not = |what: &str| NotAllowed(format!("{host} is {what} ({address})"));
        if let Some(what) = never(address) {
            return Err(not(what));
        }
        // A name is resolved before its port is known.
        let typed = |(name, its): &(String, u16)| name == host && port.is_none_or(|port| port == *its);
        if self.local.as_ref().is_some_and(typed) {
            return Ok(());
        }
        match local(address) {
            Some(what) => Err(not(what)),
            None => Ok(()),
        }
    }
}

/// Checks the form of a mirror's URL, the address in it included where it is one. The reason is a fragment.
pub fn check_url(text: &str, allow_http: bool) -> Result<(), String> {
    let rules = Rules { allow_http, local: None };
    rules.url(text, false).map(drop).map_err(|refused| refused.0)
}

/// Lower case, an IPv6 address in brackets.
pub(super) fn host_of(url: &Url) -> String {
    url.host_str().unwrap_or_default().to_ascii_lowercase()
}

pub(super) fn port_of(url: &Url) -> Option<u16> {
    url.port_or_known_default()
}

fn parse(text: &str, allow_http: bool, redirect: bool) -> Result<Url, String> {
    let shown: String = text.chars().take(100).collect();
    let no = |why: &str| Err(format!("{shown} {why}"));
    let most = if redirect { MAX_REDIRECT } else { MAX_URL };
    if text.len() > most {
        return no(&format!("is longer than {most} bytes"));
    }
    if !text.bytes().all(|b| b.is_ascii_graphic()) {
        return no("has a character that no URL has");
    }
    let rest = match text.split_once("://") {
        Some((scheme, rest)) if scheme.eq_ignore_ascii_case("https") => rest,
        Some((scheme, rest)) if allow_http && scheme.eq_ignore_ascii_case("http") => rest,
        _ => return no("does not begin with https://"),
    };
    if rest.contains('#') {
        return no("has a fragment (#)");
    }
    let (rest, query) = rest.split_once('?').map_or((rest, false), |(rest, _)| (rest, true));
    if query && !redirect {
        return no("has a query (?)");
    }
    let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
    if authority.is_empty() {
        return no("names no host");
    }
    if authority.contains('@') {
        return no("names a user");
    }
    let climbs = path.split('/').any(|segment| matches!(segment, "." | ".."));
    if climbs || path.contains("//") || path.contains(['%', '\\']) || authority.contains(['%', '\\']) {
        return no("has %, \\, // or .. in it");
    }
    let Ok(url) = Url::parse(text) else { return no("is no URL") };
    if port_of(&url).is_none_or(|port| port == 0) {
        return no("has no port");
    }
    match url.host() {
        Some(url::Host::Domain(name)) if is_name(name) => Ok(url),
        Some(url::Host::Ipv4(_) | url::Host::Ipv6(_)) => Ok(url),
        _ => no("names no host"),
    }
}

fn is_name(name: &str) -> bool {
    let label = |label: &str| {
        !label.is_empty()
            && label.len() <= 63
            && label.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_')
    };
    name.len() <= MAX_NAME && name.strip_suffix('.').unwrap_or(name).split('.').all(label)
}

fn literal(url: &Url) -> Option<IpAddr> {
    match url.host()? {
        url::Host::Ipv4(address) => Some(address.into()),
        url::Host::Ipv6(address) => Some(address.into()),
        url::Host::Domain(_) => None,
    }
}

/// What is never allowed, whoever typed it.
fn never(address: IpAddr) -> Option<&'static str> {
    let address = inner(address);
    match address {
        IpAddr::V4(v4) if v4.octets()[0] == 0 => Some("no address"),
        IpAddr::V4(v4) if v4.is_link_local() => Some("a link-local address"),
        IpAddr::V4(v4) if v4.is_multicast() => Some("a multicast address"),
        IpAddr::V4(v4) if v4.is_broadcast() => Some("the broadcast address"),
        IpAddr::V6(v6) if v6.is_unspecified() => Some("no address"),
        IpAddr::V6(v6) if v6.segments()[0] & 0xffc0 == 0xfe80 => Some("a link-local address"),
        IpAddr::V6(v6) if v6.is_multicast() => Some("a multicast address"),
        // The metadata service of one cloud; those of the others are link-local.
        IpAddr::V6(v6) if v6 == Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254) => {
            Some("a metadata service")
        }
        _ => None,
    }
}

/// What is this machine.
fn local(address: IpAddr) -> Option<&'static str> {
    let address = inner(address);
    if address.is_loopback() {
        return Some("this machine's loopback address");
    }
    // Only an own address can be bound to; nothing is sent.
    UdpSocket::bind((address, 0)).is_ok().then_some("an address of this machine itself")
}

/// The IPv4 address that an IPv6 address only carries: mapped, compatible, 6to4, NAT64.
fn inner(address: IpAddr) -> IpAddr {
    let IpAddr::V6(v6) = address else { return address };
    let s = v6.segments();
    let v4 = |high: u16, low: u16| IpAddr::V4(Ipv4Addr::from_bits(u32::from(high) << 16 | u32::from(low)));
    match s {
        [0, 0, 0, 0, 0, 0xffff, high, low] | [0x64, 0xff9b, 0, 0, 0, 0, high, low] => v4(high, low),
        [0, 0, 0, 0, 0, 0, high, low] if high != 0 => v4(high, low),
        [0x2002, high, low, ..] => v4(high, low),
        _ => address,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mirrors_url_is_https_and_plain() {
        for good in [
            "https://mirror.example/releases/stratum/0.7.0/bundle",
            "https://mirror.example",
            "https://mirror.example:8443/a",
            "https://192.0.2.7/x",
            "https://10.1.2.3/x",
            "https://[2001:db8::7]:444/x",
            "HTTPS://Mirror.Example/x",
        ] {
            assert_eq!(check_url(good, false), Ok(()), "{good}");
        }
        let long = format!("https://mirror.example/{}", "a".repeat(500));
        for (bad, why) in [
            ("http://mirror.example/x", "https://"),
            ("ftp://mirror.example/x", "https://"),
            ("mirror.example/x", "https://"),
            ("", "https://"),
            ("https://user@mirror.example/x", "user"),
            ("https://user:pw@mirror.example/x", "user"),
            ("https://mirror.example/x?y", "query"),
            ("https://mirror.example/x#y", "fragment"),
            ("https://mirror.example:0/x", "port"),
            ("https://mirror.example:99999/x", "no URL"),
            ("https://mirror.example/a/../b", ".."),
            ("https://mirror.example/a//b", "//"),
            ("https://mirror.example/a%2fb", "%"),
            ("https://mirror.example/a\\b", "\\"),
            ("https://mirror.example/a b", "character"),
            ("https://mirror.example/\u{e4}", "character"),
            ("https:///x", "host"),
            ("https://[fe80::1%25eth0]/x", "%"),
            ("https://-..-/x", "host"),
            (long.as_str(), "longer"),
        ] {
            let found = check_url(bad, false);
            assert!(found.as_ref().is_err_and(|e| e.contains(why)), "{bad}: {found:?}");
        }
        assert_eq!(check_url("http://mirror.example/x", true), Ok(()));
    }

    #[test]
    fn addresses_that_trust_this_machine_are_refused_in_every_spelling() {
        for (bad, why) in [
            ("https://127.0.0.1/x", "loopback"),
            ("https://127.8.8.8/x", "loopback"),
            ("https://0x7f.1/x", "loopback"),
            ("https://2130706433/x", "loopback"),
            ("https://[::1]/x", "loopback"),
            ("https://[::ffff:127.0.0.1]/x", "loopback"),
            ("https://[2002:7f00:1::]/x", "loopback"),
            ("https://[64:ff9b::7f00:1]/x", "loopback"),
            ("https://[::127.0.0.1]/x", "loopback"),
            ("https://169.254.169.254/x", "link-local"),
            ("https://[::ffff:169.254.169.254]/x", "link-local"),
            ("https://[fe80::1]/x", "link-local"),
            ("https://224.0.0.1/x", "multicast"),
            ("https://[ff02::1]/x", "multicast"),
            ("https://255.255.255.255/x", "broadcast"),
            ("https://0.0.0.0/x", "no address"),
            ("https://[::]/x", "no address"),
            ("https://[fd00:ec2::254]/x", "metadata"),
        ] {
            let found = check_url(bad, false);
            assert!(found.as_ref().is_err_and(|e| e.contains(why)), "{bad}: {found:?}");
        }
    }

    #[test]
    fn what_a_person_typed_may_be_this_machine_and_nothing_beside_it() {
        let rules = Rules { allow_http: false, local: Some(("127.0.0.1".to_owned(), 8443)) };
        assert!(rules.url("https://127.0.0.1:8443/x", false).is_ok());
        assert!(rules.url("https://127.0.0.1:8443/x?sig=1", true).is_ok());
        assert!(rules.url("https://127.0.0.1:22/x", true).is_err());
        assert!(rules.url("https://127.0.0.2:8443/x", true).is_err());
        assert!(rules.url("https://169.254.169.254/x", true).is_err());
        let typed = Rules { allow_http: false, local: Some(("169.254.169.254".to_owned(), 443)) };
        assert!(typed.url("https://169.254.169.254/x", false).is_err());
    }
}
