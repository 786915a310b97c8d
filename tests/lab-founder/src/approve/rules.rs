//! The grammars that several checks share. Pure.

/// RFC 1123 host name: labels of letters, digits and `-`, at most 63 each, at most 253 in all.
pub(crate) fn host_name(text: &str) -> bool {
    let label = |l: &str| {
        (1..=63).contains(&l.len())
            && l.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-')
            && !l.starts_with('-')
            && !l.ends_with('-')
    };
    text.len() <= 253 && text.split('.').all(label)
}

/// A step: 1 to 128 of `[a-z0-9/_-]`.
pub(crate) fn step_name(text: &str) -> bool {
    (1..=128).contains(&text.len())
        && text.bytes().all(|b| matches!(b, b'a'..=b'z' | b'0'..=b'9' | b'/' | b'_' | b'-'))
}

/// A network interface: 1 to 15 bytes as the kernel takes them.
pub(crate) fn interface_name(text: &str) -> bool {
    (1..=15).contains(&text.len())
        && text.bytes().all(|b| b.is_ascii_graphic() && b != b'/' && b != b':')
        && text != "."
        && text != ".."
}

/// A name of a rack, zone, pool or class: 1 to 63 of `[A-Za-z0-9._-]`.
pub(crate) fn plain_name(text: &str) -> bool {
    (1..=63).contains(&text.len())
        && text.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'-'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn host_names_follow_rfc_1123() {
        for good in ["a", "node-2.example.com", "0"] {
            assert!(host_name(good), "{good}");
        }
        for bad in ["", "-a", "a-", "a..b", "a b", "ä", &"a".repeat(64), &["a"; 130].join(".")] {
            assert!(!host_name(bad), "{bad}");
        }
    }
}
