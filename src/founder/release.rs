//! `GET /v1/join/registrations/{joinId}/release/{path}`: the one call whose body is streamed. Touches the network.

use std::sync::{Arc, PoisonError};

use reqwest::Response;

use super::transport::{Call, Channel, Mismatch};
use super::{Client, of};
use crate::join::fault::{Code, Fault};
use crate::protocol::encoding::Pin;
use crate::protocol::url::Endpoint;
use crate::protocol::wire::JoinId;

// === impl Client ===

impl Client {
    /// A file of the release, or its bytes from the first to the last named. The answer is whatever the founder says, refusals too; its body is the
    /// caller's to bound and to time.
    pub async fn release_file(
        &self,
        endpoint: &Endpoint,
        pins: &[Pin],
        join_id: &JoinId,
        path: &str,
        range: Option<(u64, u64)>,
    ) -> Result<Response, Fault> {
        if pins.is_empty() {
            return Err(Fault::new(Code::Local, "no key is pinned for this call"));
        }
        let channel = {
            let mut channels = self.channels.lock().unwrap_or_else(PoisonError::into_inner);
            match channels.release.as_ref().filter(|channel| channel.fits(endpoint, pins)) {
                Some(channel) => Arc::clone(channel),
                None => {
                    let fresh = Arc::new(Channel::kept(&self.identity, endpoint, pins, self.limits)?);
                    channels.release = Some(Arc::clone(&fresh));
                    fresh
                }
            }
        };
        let call = Call::get(&of(join_id, &format!("/release/{path}")), Mismatch::Pinned, 0);
        channel.open(&call, range).await
    }
}
