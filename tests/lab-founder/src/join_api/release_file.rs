//! `GET /v1/join/registrations/{joinId}/release/{path}`: the founder gives its release to a machine that upgrades itself (docs/protocol.md 3.10).
//!
//! Touches the release directory, reading; follows no link in it. A directory without a signature gives nothing: what cannot be verified is of no use.

use std::collections::HashMap;
use std::path::Path;
use std::sync::{Arc, Mutex};

use stratum_join::upgrade::Digest;
use stratum_join::upgrade::manifest::{MANIFEST, MAX_MANIFEST, Manifest};

use crate::founder::{Founder, lock};
use crate::http::{FileBody, Handled, Peer, Request, Response, refuse};
use crate::mirror::{open, parse_range};
use crate::model::JoinState;

/// Suffix of the primary signature.
const SIGNATURE: &str = "payload/manifest.json.minisig";

/// Transfers in progress, by registration.
#[derive(Debug, Default)]
pub(crate) struct Transfers(Mutex<HashMap<String, usize>>);

/// One of them; it ends when this is dropped.
#[derive(Debug)]
pub(crate) struct Transfer {
    all: Arc<Transfers>,
    join_id: String,
}

// === impl Transfers ===

impl Transfers {
    fn begin(self: &Arc<Self>, join_id: &str, per_join: usize, in_all: usize) -> Option<Transfer> {
        let mut running = lock(&self.0);
        let all: usize = running.values().sum();
        let mine = running.entry(join_id.to_owned()).or_insert(0);
        if *mine >= per_join || all >= in_all {
            return None;
        }
        *mine += 1;
        Some(Transfer { all: Arc::clone(self), join_id: join_id.to_owned() })
    }
}

impl Drop for Transfer {
    fn drop(&mut self) {
        let mut running = lock(&self.all.0);
        if let Some(mine) = running.get_mut(&self.join_id) {
            *mine -= 1;
            if *mine == 0 {
                running.remove(&self.join_id);
            }
        }
    }
}

pub(crate) fn get(founder: &Founder, peer: Peer, id: &str, path: &str, request: &Request) -> Handled {
    founder.store.tx(|tx| -> Handled<()> {
        let join = super::own_join(tx, &peer, id)?;
        match join.state {
            JoinState::NeedsUpgrade => Ok(()),
            state => Err(refuse::conflict(state).into()),
        }
    })?;
    let dir = founder.config.release_dir.as_deref().ok_or_else(refuse::not_found)?;
    open(dir, SIGNATURE).ok_or_else(refuse::not_found)?;
    let (file, size) = open(dir, path).ok_or_else(refuse::not_found)?;
    let limits = &founder.config.limits;
    let transfer = founder.transfers.begin(id, limits.transfers_per_registration, limits.transfers);
    let transfer = transfer.ok_or_else(refuse::release_busy)?;
    let tag = etag(dir, path);
    // A range of another file than the one that was meant is of no use.
    let same = request.if_range.is_none() || request.if_range == tag;
    let range = request.range.as_deref().and_then(parse_range).filter(|_| same);
    let mut response = Response { status: 200, ..Response::default() };
    response.headers.push(("content-type", "application/octet-stream".to_owned()));
    response.headers.push(("accept-ranges", "bytes".to_owned()));
    response.headers.extend(tag.map(|tag| ("etag", tag)));
    let (first, len) = match range {
        None => (0, size),
        Some((first, _)) if first >= size => {
            response.status = 416;
            response.headers.push(("content-range", format!("bytes */{size}")));
            return Ok(response);
        }
        Some((first, last)) => {
            let last = last.unwrap_or(u64::MAX).min(size - 1);
            response.status = 206;
            response.headers.push(("content-range", format!("bytes {first}-{last}/{size}")));
            (first, last + 1 - first)
        }
    };
    response.file = Some(FileBody::new(file, first, len, limits.transfer_rate, transfer));
    Ok(response)
}

/// `"sha256-<hex>"`, from the manifest; of the manifest itself, of its bytes. Other files have none.
fn etag(dir: &Path, path: &str) -> Option<String> {
    let (manifest, size) = open(dir, MANIFEST)?;
    if size > MAX_MANIFEST as u64 {
        return None;
    }
    let mut bytes = Vec::new();
    std::io::Read::read_to_end(&mut &manifest, &mut bytes).ok()?;
    let digest = if path == MANIFEST {
        Digest::of(&bytes)
    } else {
        Manifest::read(&bytes).ok()?.file(&path.parse().ok()?)?.sha256
    };
    Some(format!("\"sha256-{digest}\""))
}
