//! The operator's join request, `request.json`: where to join, the join code while it is needed, pins.
//!
//! Touches that one file. The code leaves it as soon as the join is approved; nothing here prints a code.
//!
//! Every request has an id that tells a changed request from the same one. It is keyed with a random salt that stands in the file beside
//! the code and goes with it, so that what stays on the disk afterwards gives nobody a way to try codes.

use console::text::Safe;
use ring::rand::SecureRandom;
use serde::{Deserialize, Serialize};
use zeroize::{Zeroize, Zeroizing};

use crate::durable_file::{self, FileError};
use crate::faults::{When, point};
use crate::join::event::RequestView;
use crate::join::fault::{Code, Fault};
use crate::paths::Paths;
use crate::protocol::code::JoinCode;
use crate::protocol::encoding::{B64, Pin};
use crate::protocol::url::{Endpoint, MAX_PINS};

/// Largest `request.json` in bytes.
pub const MAX_REQUEST: u64 = 4 * 1024;

/// A saved request. `Debug` shows at most the code's hint.
#[derive(Debug, Clone)]
pub struct JoinRequest {
    /// Where the founder answers.
    pub endpoint: Endpoint,
    /// The join code, until it is erased.
    pub code: Option<JoinCode>,
    /// Keys of the join CA that came with the request, at most [`MAX_PINS`].
    pub pins: Vec<Pin>,
    mark: Mark,
}

/// Why the request cannot be read or written.
#[derive(Debug, thiserror::Error)]
pub enum RequestError {
    /// The file.
    #[error(transparent)]
    File(#[from] FileError),
    /// The file is ours and its text is not a request.
    #[error("{} is not a join request: {why}", path.display())]
    Corrupt {
        /// Which file.
        path: std::path::PathBuf,
        /// What is wrong; no text of the file.
        why: &'static str,
    },
    /// The system gave no random bytes.
    #[error("the system gives no random bytes")]
    Random,
}

// === impl JoinRequest ===

impl JoinRequest {
    /// A new request of the operator.
    pub fn new(endpoint: Endpoint, code: Option<JoinCode>, pins: Vec<Pin>) -> Result<Self, RequestError> {
        let mut salt = [0; 32];
        ring::rand::SystemRandom::new().fill(&mut salt).map_err(|_| RequestError::Random)?;
        Ok(Self { endpoint, code, pins, mark: Mark::Salt(salt) })
    }

    /// Reads the saved request; `None` when there is none. Corrupt and tampered are errors, never none.
    pub fn load(paths: &Paths) -> Result<Option<Self>, RequestError> {
        let path = paths.request();
        point("request-read", When::Before);
        let Some(bytes) = durable_file::read_private(&path, MAX_REQUEST)? else { return Ok(None) };
        let bytes = Zeroizing::new(bytes);
        point("request-read", When::During);
        let request = parse(&bytes).map_err(|why| RequestError::Corrupt { path, why })?;
        point("request-read", When::After);
        Ok(Some(request))
    }

    /// Saves the request, durably. The same request saved again keeps its id.
    pub fn store(mut self, paths: &Paths) -> Result<Self, RequestError> {
        if let Ok(Some(Self { mark: Mark::Salt(salt), .. })) = Self::load(paths) {
            self.mark = Mark::Salt(salt);
        }
        durable_file::write_secret(&paths.request(), &self.to_json(), 0o600, "request-store")?;
        Ok(self)
    }

    /// Takes the code out of the saved request, and off the disk. Without a request or a code nothing happens. With `ours` a request of another id
    /// is left alone: somebody saved it a moment ago, and its code is still needed.
    pub fn erase_code(paths: &Paths, ours: Option<[u8; 32]>) -> Result<(), RequestError> {
        let Some(mut request) = Self::load(paths)? else { return Ok(()) };
        if ours.is_some_and(|ours| ours != request.id()) {
            return Ok(());
        }
        durable_file::sweep_of(&paths.request())?;
        if request.code.is_none() {
            return Ok(());
        }
        request.forget_code();
        durable_file::write_secret(&paths.request(), &request.to_json(), 0o600, "code-erase")?;
        Ok(())
    }

    /// The same request without its code; the id stays.
    pub fn forget_code(&mut self) {
        self.mark = Mark::Id(self.id());
        self.code = None;
    }

    /// What the core needs of it.
    pub fn view(&self) -> RequestView {
        RequestView {
            endpoint: Safe::clean(self.endpoint.to_string()),
            has_code: self.code.is_some(),
            code_hint: self.code.as_ref().map(|code| Safe::clean(code.hint())),
            code_check_fits: self.code.as_ref().is_none_or(JoinCode::check_fits),
            pins: self.pins.clone(),
            id: self.id(),
        }
    }

    fn id(&self) -> [u8; 32] {
        let salt = match &self.mark {
            Mark::Id(id) => return *id,
            Mark::Salt(salt) => salt,
        };
        let key = ring::hmac::Key::new(ring::hmac::HMAC_SHA256, salt);
        let mut mac = ring::hmac::Context::with_key(&key);
        mac.update(b"stratum-join request\0");
        mac.update(self.endpoint.to_string().as_bytes());
        mac.update(b"\0");
        mac.update(self.code.as_ref().map_or("", |code| code.password()).as_bytes());
        mac.update(b"\0");
        for pin in &self.pins {
            mac.update(&pin.0);
        }
        let mut id = [0; 32];
        id.copy_from_slice(mac.sign().as_ref());
        id
    }

    fn to_json(&self) -> Zeroizing<Vec<u8>> {
        let written = self.code.as_ref().map(JoinCode::written);
        let (salt, id) = match &self.mark {
            Mark::Salt(salt) => (Some(B64(*salt)), None),
            Mark::Id(id) => (None, Some(B64(*id))),
        };
        let file = Written {
            v: 1,
            endpoint: &self.endpoint.to_string(),
            code: written.as_ref().map(|code| code.as_str()),
            pins: &self.pins,
            salt,
            id,
        };
        let mut json = serde_json::to_vec(&file).unwrap_or_default();
        json.push(b'\n');
        Zeroizing::new(json)
    }
}

// === impl RequestError ===

impl From<RequestError> for Fault {
    fn from(error: RequestError) -> Self {
        match &error {
            RequestError::File(file) => file.fault(),
            RequestError::Corrupt { .. } => Fault::from_error(Code::Tampered, &error),
            RequestError::Random => Fault::from_error(Code::Local, &error),
        }
    }
}

// === private ===

/// What the id comes from.
#[derive(Clone)]
enum Mark {
    /// Computed with this; it stands in the file as long as the code does.
    Salt([u8; 32]),
    /// As computed before the code was erased.
    Id([u8; 32]),
}

impl std::fmt::Debug for Mark {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Mark")
    }
}

#[derive(Serialize)]
struct Written<'a> {
    v: u32,
    endpoint: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    code: Option<&'a str>,
    pins: &'a [Pin],
    #[serde(skip_serializing_if = "Option::is_none")]
    salt: Option<B64<32>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<B64<32>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Read {
    v: u32,
    endpoint: String,
    code: Option<String>,
    #[serde(default)]
    pins: Vec<Pin>,
    salt: Option<B64<32>>,
    id: Option<B64<32>>,
}

#[derive(Deserialize)]
struct Version {
    v: u32,
}

fn parse(bytes: &[u8]) -> Result<JoinRequest, &'static str> {
    // Told apart first, so that a file of a newer version is not called broken.
    match serde_json::from_slice::<Version>(bytes) {
        Ok(Version { v: 1 }) => {}
        Ok(_) => return Err("it was written by another version"),
        Err(_) => return Err("its text is broken"),
    }
    let mut read: Read = serde_json::from_slice(bytes).map_err(|_| "its text is broken")?;
    debug_assert_eq!(read.v, 1);
    let code =
        read.code.as_deref().map(JoinCode::parse).transpose().map_err(|_| "its join code is malformed");
    if let Some(text) = &mut read.code {
        text.zeroize();
    }
    let endpoint = Endpoint::parse(&read.endpoint).map_err(|_| "its address is malformed")?;
    if read.pins.len() > MAX_PINS {
        return Err("it has too many pins");
    }
    let mark = match (read.salt, read.id) {
        (Some(salt), None) => Mark::Salt(salt.0),
        (None, Some(id)) => Mark::Id(id.0),
        _ => return Err("its mark is missing"),
    };
    Ok(JoinRequest { endpoint, code: code?, pins: read.pins, mark })
}

#[cfg(test)]
mod tests {
    use super::*;

    const CODE: &str = "7YQX-M2KP-40B";

    fn request(code: &str) -> JoinRequest {
        let endpoint = Endpoint::parse("192.0.2.240").unwrap();
        JoinRequest::new(endpoint, Some(JoinCode::parse(code).unwrap()), vec![Pin([7; 32])]).unwrap()
    }

    fn world() -> (tempfile::TempDir, Paths) {
        let dir = tempfile::tempdir().unwrap();
        let paths = Paths::under(dir.path());
        durable_file::make_dir(&paths.state_dir(), 0o700).unwrap();
        (dir, paths)
    }

    fn text(paths: &Paths) -> String {
        std::fs::read_to_string(paths.request()).unwrap()
    }

    #[test]
    fn a_stored_request_reads_back_and_keeps_its_id_when_stored_again() {
        let (_dir, paths) = world();
        assert!(JoinRequest::load(&paths).unwrap().is_none());
        let first = request(CODE).store(&paths).unwrap().view();
        assert_eq!(JoinRequest::load(&paths).unwrap().unwrap().view(), first);
        assert_eq!(request(CODE).store(&paths).unwrap().view().id, first.id);
        assert_ne!(request("7YQX-M2KP-41B").store(&paths).unwrap().view().id, first.id);
        assert_eq!(first.endpoint, "192.0.2.240:9444");
        assert_eq!(first.code_hint.unwrap(), "7Y**-****-***");
    }

    #[test]
    fn erasing_takes_code_and_salt_off_the_disk_and_keeps_the_id() {
        let (_dir, paths) = world();
        let before = request(CODE).store(&paths).unwrap().view();
        let torn = paths.state_dir().join(".request.json.77-0.tmp");
        durable_file::write_volatile(&torn, CODE.as_bytes(), 0o600, "test").unwrap();
        JoinRequest::erase_code(&paths, None).unwrap();
        JoinRequest::erase_code(&paths, None).unwrap();
        let after = JoinRequest::load(&paths).unwrap().unwrap().view();
        assert_eq!((after.id, after.has_code, after.pins), (before.id, false, before.pins));
        assert!(!text(&paths).contains("7YQX") && !text(&paths).contains("salt"), "{}", text(&paths));
        assert!(!torn.exists());
    }

    #[test]
    fn a_code_that_was_saved_a_moment_ago_is_not_erased_for_an_older_request() {
        let (_dir, paths) = world();
        let old = request(CODE).store(&paths).unwrap().view();
        request("7YQX-M2KP-41B").store(&paths).unwrap();
        JoinRequest::erase_code(&paths, Some(old.id)).unwrap();
        let saved = JoinRequest::load(&paths).unwrap().unwrap().view();
        assert!(saved.has_code);
        JoinRequest::erase_code(&paths, Some(saved.id)).unwrap();
        assert!(!JoinRequest::load(&paths).unwrap().unwrap().view().has_code);
    }

    #[test]
    fn nothing_prints_the_code() {
        let shown = format!("{:?}", request(CODE));
        assert!(!shown.contains("M2KP") && !shown.contains("M2kp"), "{shown}");
        let view = format!("{:?}", request(CODE).view());
        assert!(!view.contains("M2KP"), "{view}");
    }

    #[test]
    fn a_broken_request_is_an_error_without_its_text() {
        let (_dir, paths) = world();
        let good = String::from_utf8(request(CODE).to_json().to_vec()).unwrap();
        let cases = [
            ("", "its text is broken"),
            ("{", "its text is broken"),
            ("[]", "its text is broken"),
            (&good[..good.len() / 2], "its text is broken"),
            (&good.replace("\"v\":1", "\"v\":2,\"new\":1"), "it was written by another version"),
            (&good.replace("\"v\":1", "\"v\":1,\"new\":1"), "its text is broken"),
            (&good.replace("\"v\":1", "\"v\":1,\"v\":1"), "its text is broken"),
            (&good.replace(CODE, "7YQX-M2KP"), "its join code is malformed"),
            (&good.replace("192.0.2.240", "192.0.2.240.1%"), "its address is malformed"),
            (&good.replace("salt", "pepper"), "its text is broken"),
        ];
        for (text, why) in cases {
            durable_file::write_volatile(&paths.request(), text.as_bytes(), 0o600, "test").unwrap();
            let error = JoinRequest::load(&paths).unwrap_err();
            assert_eq!(
                error.to_string(),
                format!("{} is not a join request: {why}", paths.request().display())
            );
            assert_eq!(Fault::from(error).code, Code::Tampered);
        }
    }

    #[test]
    fn a_request_that_others_can_read_is_refused() {
        let (_dir, paths) = world();
        durable_file::write_volatile(&paths.request(), &request(CODE).to_json(), 0o644, "test").unwrap();
        assert_eq!(Fault::from(JoinRequest::load(&paths).unwrap_err()).code, Code::Tampered);
    }
}
