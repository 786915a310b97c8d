//! What a mirror may do wrong, as data: on the command line `NAME[:ARG][@PART][*TIMES]`. Touches nothing.

use std::str::FromStr;

/// One fault, on which files, how often.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    /// What.
    pub what: MirrorFault,
    /// Only for paths that contain this; empty is all.
    pub at: String,
    /// How often it is still done; `None` is always.
    pub times: Option<u32>,
}

/// What is done instead of an honest answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MirrorFault {
    /// The byte at this offset of the file is another one.
    WrongByte(u64),
    /// Every byte is another one: a file of another release under this name.
    OtherContent,
    /// The body ends this many bytes before its promised end; the connection is closed in order.
    Truncate(u64),
    /// The file is this many bytes shorter than it should be, and the answer says so.
    ShortFile(u64),
    /// The file is this many bytes longer, and the answer says so.
    LongFile(u64),
    /// The body goes on behind its promised end.
    Longer(u64),
    /// No length, and a body without end.
    Endless,
    /// 200 and nothing.
    Empty,
    /// 200 and a web page.
    Html,
    /// `Range` is ignored: 200 and the whole file.
    NoRange,
    /// As [`MirrorFault::NoRange`], with a `Content-Range` all the same.
    NoRangeButHeader,
    /// 206 from this many bytes before what was asked.
    Early(u64),
    /// 206 from this many bytes behind what was asked.
    Late(u64),
    /// 206 that claims the right range, and the bytes are from this much further.
    Shifted(u64),
    /// 206 for a file that is this much longer.
    WrongTotal(u64),
    /// 206 without `Content-Range`.
    NoContentRange,
    /// 206 as `multipart/byteranges`.
    Multipart,
    /// 206 for at most this many of the bytes asked for.
    Less(u64),
    /// 416, for any range, with a web page as its body.
    NotSatisfiable,
    /// The body is said to be compressed.
    Gzip,
    /// From this offset on it is another file: it was replaced under the mirror.
    Changed(u64),
    /// This many bytes of the body, then silence.
    Stall(u64),
    /// The request is read, and nothing is said.
    Silent,
    /// One byte per second.
    Drip,
    /// The connection is reset after this many bytes of the body.
    Reset(u64),
    /// The connection is closed without a TLS end after this many bytes of the body.
    Cut(u64),
    /// 302 to this address (`{path}` in it is the path).
    Redirect(String),
    /// 302 to the same address.
    RedirectLoop,
    /// This status, with a problem as its body.
    Status(u16),
    /// 503 `RELEASE_BUSY`, with `Retry-After` if any.
    Busy(Option<u64>),
    /// 503 with `Retry-After`.
    Later(u64),
}

/// A text that is no fault.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0} is no fault: NAME[:ARG][@PART-OF-THE-PATH][*TIMES], with NAME one of {names}", names = NAMES.join(" "))]
pub struct BadFault(String);

const NAMES: &[&str] = &[
    "wrong-byte:OFFSET",
    "other-content",
    "truncate:N",
    "short-file:N",
    "long-file:N",
    "longer:N",
    "endless",
    "empty",
    "html",
    "no-range",
    "no-range-but-header",
    "early:N",
    "late:N",
    "shifted:N",
    "wrong-total:N",
    "no-content-range",
    "multipart",
    "less:N",
    "416",
    "gzip",
    "changed:OFFSET",
    "stall:N",
    "silent",
    "drip",
    "reset:N",
    "cut:N",
    "redirect:URL",
    "redirect-http",
    "redirect-loop",
    "missing",
    "status:N",
    "busy[:SECONDS]",
    "later:SECONDS",
];

/// The names of all faults, without their arguments.
pub fn fault_names() -> impl Iterator<Item = &'static str> {
    NAMES.iter().filter_map(|name| name.split([':', '[']).next())
}

// === impl Fault ===

impl Fault {
    /// For every file, always.
    pub fn always(what: MirrorFault) -> Self {
        Self { what, at: String::new(), times: None }
    }

    /// For every file, so many times.
    pub fn times(what: MirrorFault, times: u32) -> Self {
        Self { what, at: String::new(), times: Some(times) }
    }

    /// Only for paths that contain this.
    pub fn at(mut self, part: &str) -> Self {
        self.at = part.to_owned();
        self
    }
}

impl FromStr for Fault {
    type Err = BadFault;

    fn from_str(text: &str) -> Result<Self, BadFault> {
        let bad = || BadFault(text.to_owned());
        let (rest, times) = match text.rsplit_once('*') {
            Some((rest, times)) => (rest, Some(times.parse().map_err(|_| bad())?)),
            None => (text, None),
        };
        let (rest, at) = rest.rsplit_once('@').unwrap_or((rest, ""));
        let (name, arg) = match rest.split_once(':') {
            Some((name, arg)) => (name, Some(arg)),
            None => (rest, None),
        };
        let number = || arg.and_then(|arg| arg.parse::<u64>().ok()).ok_or_else(bad);
        let what = match name {
            "wrong-byte" => MirrorFault::WrongByte(number()?),
            "other-content" => MirrorFault::OtherContent,
            "truncate" => MirrorFault::Truncate(number()?),
            "short-file" => MirrorFault::ShortFile(number()?),
            "long-file" => MirrorFault::LongFile(number()?),
            "longer" => MirrorFault::Longer(number()?),
            "endless" => MirrorFault::Endless,
            "empty" => MirrorFault::Empty,
            "html" => MirrorFault::Html,
            "no-range" => MirrorFault::NoRange,
            "no-range-but-header" => MirrorFault::NoRangeButHeader,
            "early" => MirrorFault::Early(number()?),
            "late" => MirrorFault::Late(number()?),
            "shifted" => MirrorFault::Shifted(number()?),
            "wrong-total" => MirrorFault::WrongTotal(number()?),
            "no-content-range" => MirrorFault::NoContentRange,
            "multipart" => MirrorFault::Multipart,
            "less" => MirrorFault::Less(number()?),
            "416" => MirrorFault::NotSatisfiable,
            "gzip" => MirrorFault::Gzip,
            "changed" => MirrorFault::Changed(number()?),
            "stall" => MirrorFault::Stall(number()?),
            "silent" => MirrorFault::Silent,
            "drip" => MirrorFault::Drip,
            "reset" => MirrorFault::Reset(number()?),
            "cut" => MirrorFault::Cut(number()?),
            "redirect" => MirrorFault::Redirect(arg.ok_or_else(bad)?.to_owned()),
            "redirect-http" => MirrorFault::Redirect("http://mirror.example/{path}".to_owned()),
            "redirect-loop" => MirrorFault::RedirectLoop,
            "missing" => MirrorFault::Status(404),
            "status" => MirrorFault::Status(u16::try_from(number()?).map_err(|_| bad())?),
            "busy" => MirrorFault::Busy(arg.map(|_| number()).transpose()?),
            "later" => MirrorFault::Later(number()?),
            _ => return Err(bad()),
        };
        Ok(Self { what, at: at.to_owned(), times })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fault_is_a_name_an_argument_a_part_of_the_path_and_a_number() {
        let fault: Fault = "reset:1048576@sysext*3".parse().unwrap();
        assert_eq!(fault, Fault::times(MirrorFault::Reset(1_048_576), 3).at("sysext"));
        assert_eq!("gzip".parse(), Ok(Fault::always(MirrorFault::Gzip)));
        let to = "https://192.0.2.7:8443/x".to_owned();
        assert_eq!("redirect:https://192.0.2.7:8443/x".parse(), Ok(Fault::always(MirrorFault::Redirect(to))));
        for name in NAMES {
            let text = name.replace(":SECONDS", ":5").replace(['[', ']'], "");
            let text = text.replace("OFFSET", "7").replace(":N", ":404").replace("URL", "https://x/y");
            assert!(text.parse::<Fault>().is_ok(), "{text}");
        }
        for bad in ["", "reset", "reset:x", "unheard-of", "reset:1*x", "status:70000"] {
            assert!(bad.parse::<Fault>().is_err(), "{bad}");
        }
    }
}
