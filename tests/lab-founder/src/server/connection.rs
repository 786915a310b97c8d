//! One connection: handshake, requests, answers, and the faults that are told to happen on it.

use std::future::Future;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::sync::oneshot;
use tokio::time::Instant;
use tokio_rustls::server::TlsStream;

use super::chain::Chains;
use super::http1::{Answer, read, write};
use super::listener::Place;
use super::polls::Polls;
use super::raw::{self, Act};
use crate::evil::{Evil, Layer, Step};
use crate::founder::{Founder, lock};
use crate::http::{Peer, Request, Response};
use crate::tls::spki_fingerprint;

/// The handshake must be done within this.
const HANDSHAKE: Duration = Duration::from_secs(10);
/// The first request must be there within this.
const FIRST_HEAD: Duration = Duration::from_secs(5);
/// A later one: longer than a client keeps a connection idle.
const LATER_HEAD: Duration = Duration::from_secs(100);
/// Largest request head in bytes.
const HEAD: usize = 16 * 1024;

/// One joiner's connection: who it is, and what its calls share.
struct Joiner {
    core: Arc<Founder>,
    polls: Arc<Polls>,
    peer: Peer,
    /// Takes the raw stream away from HTTP for a fault.
    act: Mutex<Option<oneshot::Sender<Act>>>,
    /// A first request came.
    began: Mutex<Option<oneshot::Sender<()>>>,
}

/// A connection of the join listener.
pub(super) async fn join(
    stream: TcpStream,
    addr: IpAddr,
    core: Arc<Founder>,
    chains: Arc<Chains>,
    polls: Arc<Polls>,
    place: Place,
) {
    let _place = place;
    let evil = core.evil.take(None, Layer::Connection);
    match evil {
        Some(Evil::RefuseConnect) => return raw::reset(&stream),
        Some(Evil::AcceptThenSilence) => return raw::silence(stream).await,
        Some(Evil::PlainHttp) => return raw::plain_http(stream).await,
        _ => {}
    }
    let Ok(acceptor) = chains.acceptor(evil.as_ref()) else { return };
    let Ok(Ok(stream)) = tokio::time::timeout(HANDSHAKE, acceptor.accept(stream)).await else { return };
    let Some(client_fp) = fingerprint(&stream) else { return };
    let (act, acted) = oneshot::channel();
    let (began, beginning) = oneshot::channel();
    let joiner = Arc::new(Joiner {
        core,
        polls,
        peer: Peer { client_fp, addr },
        act: Mutex::new(Some(act)),
        began: Mutex::new(Some(began)),
    });
    let service = service_fn(move |request| {
        let joiner = joiner.clone();
        let answer: Pin<Box<dyn Future<Output = Answer> + Send>> =
            Box::pin(async move { Ok(write(joiner.answer(request).await)) });
        answer
    });
    let mut connection = builder().serve_connection(TokioIo::new(stream), service);
    let act = tokio::select! {
        _ = std::future::poll_fn(|cx| connection.poll_without_shutdown(cx)) => None,
        act = acted => act.ok(),
        () = no_request(beginning) => None,
    };
    if let Some(act) = act {
        act.perform(connection.into_parts().io.into_inner()).await;
    }
    // Otherwise dropping it closes the socket.
}

/// A connection of the admin listener.
pub(super) async fn admin(stream: TcpStream, core: Arc<Founder>) {
    let service = service_fn(move |request: hyper::Request<Incoming>| {
        let core = core.clone();
        async move {
            let response = match read(&core, request, crate::admin::BODY_CAP).await {
                Ok(request) => core.dispatch_admin(core.config.clock.now_ms(), &request),
                Err(response) => response,
            };
            let answer: Answer = Ok(write(response));
            answer
        }
    });
    // A client that breaks off is its own affair.
    let _ = builder().serve_connection(TokioIo::new(stream), service).await;
}

fn builder() -> http1::Builder {
    let mut builder = http1::Builder::new();
    // No date: an answer must not differ by when it was asked for.
    builder
        .timer(TokioTimer::new())
        .header_read_timeout(LATER_HEAD)
        .max_buf_size(HEAD)
        .max_headers(64)
        .auto_date_header(false);
    builder
}

async fn no_request(beginning: oneshot::Receiver<()>) {
    if tokio::time::timeout(FIRST_HEAD, beginning).await.is_ok() {
        std::future::pending().await
    }
}

fn fingerprint(stream: &TlsStream<TcpStream>) -> Option<[u8; 32]> {
    let certs = stream.get_ref().1.peer_certificates()?;
    spki_fingerprint(certs.first()?).ok()
}

// === impl Joiner ===

impl Joiner {
    async fn answer(&self, request: hyper::Request<Incoming>) -> Response {
        let arrived = Instant::now();
        // A receiver that is gone has seen an earlier request.
        let _ = lock(&self.began).take().map(|began| began.send(()));
        let cap = crate::join_api::body_cap(request.uri().path());
        let request = match read(&self.core, request, cap).await {
            Ok(request) => request,
            Err(response) => return response,
        };
        let step = Step::of(&request.method, &request.path);
        match self.core.evil.take(step, Layer::Request) {
            Some(Evil::ResetBeforeAnswer) => return self.give(Act::Reset).await,
            Some(_) => return std::future::pending().await,
            None => {}
        }
        let response = self.handle(&request).await;
        if matches!(step, Some(Step::Proof | Step::Confirm)) {
            let floor = Duration::from_millis(self.core.config.limits.proof_floor_ms);
            tokio::time::sleep_until(arrived + floor).await;
        }
        match self.core.evil.take(step, Layer::Bytes).and_then(|evil| Act::of(&evil, &response)) {
            Some(act) => self.give(act).await,
            None => response,
        }
    }

    /// Hands the stream over to a fault; HTTP never answers.
    async fn give(&self, act: Act) -> Response {
        let sender = lock(&self.act).take();
        if let Some(sender) = sender {
            let _ = sender.send(act);
        }
        std::future::pending().await
    }

    async fn handle(&self, request: &Request) -> Response {
        let core = &self.core;
        // Before the first look, so that no change is missed.
        let mut changed = core.watch();
        let response = core.dispatch(core.config.clock.now_ms(), self.peer, request);
        let Some(hold) = response.hold.clone() else { return response };
        let deadline = Instant::now() + Duration::from_secs(hold.secs);
        let mut held = self.polls.hold(&hold.join_id);
        let mut again = request.clone();
        if again.query_value("state").is_none() {
            let query = again.query.take().unwrap_or_default();
            again.query = Some(format!("{query}&state={}", hold.state));
        }
        loop {
            let over = tokio::select! {
                woken = changed.changed() => woken.is_err(),
                () = tokio::time::sleep_until(deadline) => true,
                _ = &mut held.evicted => true,
            };
            let response = core.ask_again(core.config.clock.now_ms(), self.peer, &again, over);
            if response.hold.is_none() {
                return response;
            }
        }
    }
}

/// What a fault needs of a stream.
pub(super) trait Stream: AsyncRead + AsyncWrite + Unpin {}

impl<T: AsyncRead + AsyncWrite + Unpin> Stream for T {}
