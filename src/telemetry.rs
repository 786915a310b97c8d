//! What a technician reads with `journalctl -u stratum-join`: one line per state change, one per new fault, nothing per poll.
//!
//! Touches journald's socket when the standard error is connected to it, and the standard error otherwise. Must never tell a secret: it is
//! given notices and names, never a code, a key or a delivery. Founder text is a value, never a field name, and has passed `Safe`.

mod damper;
mod message;

use std::fmt;
use std::os::unix::fs::MetadataExt;

use console::text::Safe;
use tracing::field::{Field, Visit};
use tracing::{Event, Level, Metadata, Subscriber};
use tracing_journald::{Priority as Wire, PriorityMappings};
use tracing_subscriber::filter::{Targets, filter_fn};
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::layer::{Layer, SubscriberExt};
use tracing_subscriber::registry::{LookupSpan, Registry};
use tracing_subscriber::reload;

use crate::config::LogLevel;
use crate::join::event::Now;
use crate::join::notice::Notice;

use damper::{Damper, Verdict};
pub use message::{Message, Priority, Start};

/// Targets that carry a priority which `tracing` has no level for.
const CRIT: &str = "stratum::crit";
const NOTICE: &str = "stratum::notice";
const INFO: &str = "stratum::info";

/// What stands beside every line, when it is known.
#[derive(Debug, Clone, Copy, Default)]
pub struct Context<'a> {
    /// `seq` of the snapshot that shows the same.
    pub seq: u64,
    /// The registration's id.
    pub join_id: Option<&'a str>,
    /// The pairing code.
    pub pairing: Option<&'a str>,
    /// `host:port` of the founder.
    pub endpoint: Option<&'a str>,
}

/// Tells notices. One per process.
pub struct Telemetry {
    damper: Damper,
    level: Option<reload::Handle<Targets, Registry>>,
}

// === impl Telemetry ===

impl Telemetry {
    /// Becomes the process's subscriber: journald's native protocol when the standard error is a journal stream, else one readable line
    /// each on the standard error. A second call changes nothing but tells through the first.
    pub fn init(level: LogLevel) -> Self {
        let (filter, handle) = reload::Layer::new(targets(level));
        let journald = if connected_to_journal() { journald().ok() } else { None };
        let stderr = journald.is_none().then(|| {
            tracing_subscriber::fmt::layer()
                .with_writer(std::io::stderr)
                .with_ansi(false)
                .event_format(OneLine)
        });
        let subscriber = tracing_subscriber::registry().with(filter).with(journald).with(stderr);
        let first = tracing::subscriber::set_global_default(subscriber).is_ok();
        Self { damper: Damper::default(), level: first.then_some(handle) }
    }

    /// Tells notices to whatever subscriber there is.
    pub fn without_subscriber() -> Self {
        Self { damper: Damper::default(), level: None }
    }

    /// `log` of join.yaml changed.
    pub fn set_level(&self, level: LogLevel) {
        if let Some(handle) = &self.level {
            // Fails only when the subscriber is gone, and then nothing is told anyway.
            let _ = handle.reload(targets(level));
        }
    }

    /// The first line of a process.
    pub fn started(&mut self, start: &Start<'_>, context: &Context<'_>, now: Now) -> Message {
        let message = message::of_start(start, context);
        self.tell(&message, context, now);
        message
    }

    /// Tells one notice. An identical fault is told at the attempts 1, 2, 3, 5 and 10, then once an hour; at most 20 lines a minute
    /// besides state changes and what concerns trust.
    ///
    /// Gives what was told, for the log screen.
    pub fn say(&mut self, notice: &Notice, context: &Context<'_>, now: Now) -> Option<Message> {
        let mut message = message::of(notice, context, now, self.damper.step_took(notice, now.boot_ms));
        match self.damper.judge(notice, now) {
            Verdict::Tell => {}
            Verdict::Repeated { times, since } => {
                message.text = format!("{} (repeated {times} times since {since})", message.text);
            }
            Verdict::Silent => return None,
        }
        self.tell(&message, context, now);
        Some(message)
    }

    fn tell(&mut self, message: &Message, context: &Context<'_>, now: Now) {
        let (fits, suppressed) = self.damper.room(message.room, now.boot_ms);
        if suppressed > 0 {
            emit(&message::of_suppressed(suppressed), context);
        }
        if fits {
            emit(message, context);
        }
    }
}

// === private ===

/// One event with every documented field; what is not known is left out.
fn emit(message: &Message, context: &Context<'_>) {
    let text = Safe::<1024>::clean(&message.text);
    let f = &message.fields;
    macro_rules! event {
        ($target:expr, $level:expr) => {
            tracing::event!(
                target: $target,
                $level,
                message_id = (!message.id.is_empty()).then_some(message.id),
                stratum_seq = context.seq,
                stratum_join_id = context.join_id,
                stratum_pairing = context.pairing,
                stratum_endpoint = context.endpoint,
                stratum_state = f.state.as_deref(),
                stratum_previous = f.previous.as_deref(),
                stratum_code = f.code,
                stratum_detail = f.detail.as_deref(),
                stratum_step = f.step.as_deref(),
                stratum_attempt = f.attempt,
                stratum_next = f.next.as_deref(),
                stratum_chain = f.chain.as_deref(),
                stratum_http = f.http,
                stratum_request_id = f.request_id.as_deref(),
                stratum_verb = f.verb,
                stratum_result = f.result.as_deref(),
                stratum_ms = f.ms,
                "{text}"
            )
        };
    }
    match message.priority {
        Priority::Crit => event!(CRIT, Level::ERROR),
        Priority::Err => event!(NOTICE, Level::ERROR),
        Priority::Warning => event!(NOTICE, Level::WARN),
        Priority::Notice => event!(NOTICE, Level::INFO),
        Priority::Info => event!(INFO, Level::INFO),
    }
}

/// Our own lines at the level asked for; of libraries only warnings.
fn targets(level: LogLevel) -> Targets {
    let own = match level {
        LogLevel::Info => Level::INFO,
        LogLevel::Debug => Level::DEBUG,
    };
    Targets::new()
        .with_default(Level::WARN)
        .with_target("stratum_join", own)
        .with_target("stratum", own)
        .with_target("hwprobe", own)
        .with_target("console", own)
}

/// sd-daemon(7) and systemd.exec(5): `JOURNAL_STREAM` is device and inode of the stream; it is ours only when they are still those of our
/// standard error, because children inherit the variable.
fn connected_to_journal() -> bool {
    #[expect(clippy::disallowed_methods, reason = "systemd's own channel for this; no setting of ours")]
    let said = std::env::var("JOURNAL_STREAM").ok();
    let Some(said) = said else { return false };
    let stderr = rustix::stdio::stderr();
    let found = stderr.try_clone_to_owned().map(std::fs::File::from).and_then(|file| file.metadata());
    found.is_ok_and(|meta| is_stream(&said, meta.dev(), meta.ino()))
}

fn is_stream(said: &str, dev: u64, ino: u64) -> bool {
    said.split_once(':').is_some_and(|(d, i)| d.parse() == Ok(dev) && i.parse() == Ok(ino))
}

type Boxed = Box<
    dyn Layer<tracing_subscriber::layer::Layered<reload::Layer<Targets, Registry>, Registry>> + Send + Sync,
>;

/// One layer per set of priorities, each for its own targets.
fn journald() -> std::io::Result<Vec<Boxed>> {
    let layer = |info: Wire, error: Wire| -> std::io::Result<tracing_journald::Layer> {
        let mappings = PriorityMappings { info, error, debug: Wire::Debug, ..PriorityMappings::new() };
        let layer = tracing_journald::layer()?.with_field_prefix(None).with_priority_mappings(mappings);
        Ok(layer.with_syslog_identifier("stratum-join".to_owned()))
    };
    let only = |target: &'static str| filter_fn(move |meta: &Metadata<'_>| meta.target() == target);
    let rest = filter_fn(|meta: &Metadata<'_>| ![CRIT, NOTICE].contains(&meta.target()));
    Ok(vec![
        layer(Wire::Notice, Wire::Critical)?.with_filter(only(CRIT)).boxed(),
        layer(Wire::Notice, Wire::Error)?.with_filter(only(NOTICE)).boxed(),
        layer(Wire::Informational, Wire::Error)?.with_filter(rest).boxed(),
    ])
}

/// `<time> <LEVEL> message`: the message alone, the fields are for journald.
struct OneLine;

// === impl OneLine ===

impl<S, N> FormatEvent<S, N> for OneLine
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(&self, _: &FmtContext<'_, S, N>, mut to: Writer<'_>, event: &Event<'_>) -> fmt::Result {
        let meta = event.metadata();
        let level = match (meta.target(), *meta.level()) {
            (CRIT, _) => "CRIT",
            (NOTICE, Level::INFO) => "NOTICE",
            (_, Level::ERROR) => "ERROR",
            (_, Level::WARN) => "WARN",
            (_, Level::INFO) => "INFO",
            _ => "DEBUG",
        };
        let mut message = MessageOnly::default();
        event.record(&mut message);
        let time = message::rfc3339(crate::clock::wall_ms());
        writeln!(to, "{time} {level} {}", Safe::<1024>::clean(message.0))
    }
}

#[derive(Default)]
struct MessageOnly(String);

impl Visit for MessageOnly {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        if field.name() == "message" {
            self.0 = format!("{value:?}");
        }
    }
}

#[cfg(test)]
mod tests;
