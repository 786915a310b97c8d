//! What a test, a demo or a lab may set. Plain data; touches nothing.

use std::net::SocketAddr;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::entropy::Seed;
use crate::evil::Scripted;
use crate::time::Clock;
use crate::tls::JoinCa;

/// Everything about a lab founder. `Config::default()` is a small healthy cluster.
#[derive(Clone)]
pub struct Config {
    /// Where the state lives. `None`: a temporary directory that goes away with the [`crate::LabFounder`].
    pub dir: Option<PathBuf>,
    /// Join listener; port 0 takes any.
    pub join_listen: SocketAddr,
    /// Admin listener, plain HTTP: loopback only.
    pub admin_listen: SocketAddr,
    /// Host and port in join URLs and in the bundle, when it is not the join listener's own address.
    pub advertise: Option<String>,
    /// The cluster that is joined.
    pub cluster: Cluster,
    /// Bounds, with the documented values as default.
    pub limits: Limits,
    /// How the founder gives releases.
    pub supply: Supply,
    /// The release directory that it gives with [`Supply::Founder`].
    pub release_dir: Option<PathBuf>,
    /// Whether members other than the joiner apply a new generation at once. Otherwise a test says so.
    pub members_apply_at_once: bool,
    /// Whether the joining node counts as applied when its firstboot reported its last step done.
    pub joiner_applies_when_done: bool,
    /// Admin tokens. Empty: one with every permission is made and kept.
    pub tokens: Vec<Token>,
    /// Another join CA than the kept one.
    pub ca: Option<JoinCa>,
    /// The wall clock.
    pub clock: Clock,
    /// Where ids and nonces come from.
    pub seed: Seed,
    /// Scripted faults from the start.
    pub evil: Vec<Scripted>,
    /// Keep every request for [`crate::Founder::received`].
    pub record: bool,
}

/// An admin token and what it may do.
#[derive(Clone)]
pub struct Token {
    /// The bearer token.
    pub secret: String,
    /// Its permissions.
    pub permissions: Vec<Permission>,
}

/// Permissions of the admin API (documented, or ours where the documentation names none).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Permission {
    /// `ha:ApproveNodeJoin` (documented).
    ApproveNodeJoin,
    /// `cluster:ReportJoinFailure` (documented).
    ReportJoinFailure,
    /// `cluster:Read`.
    ClusterRead,
    /// `ha:ReadNodeJoins`.
    ReadNodeJoins,
    /// `ha:ManageJoinCodes`.
    ManageJoinCodes,
    /// `lab:Control`: the lab's own switches; no real founder has it.
    LabControl,
}

// === impl Permission ===

impl Permission {
    /// All of them.
    pub const ALL: [Permission; 6] = [
        Permission::ApproveNodeJoin,
        Permission::ReportJoinFailure,
        Permission::ClusterRead,
        Permission::ReadNodeJoins,
        Permission::ManageJoinCodes,
        Permission::LabControl,
    ];

    /// The name in messages.
    pub fn name(self) -> &'static str {
        match self {
            Permission::ApproveNodeJoin => "ha:ApproveNodeJoin",
            Permission::ReportJoinFailure => "cluster:ReportJoinFailure",
            Permission::ClusterRead => "cluster:Read",
            Permission::ReadNodeJoins => "ha:ReadNodeJoins",
            Permission::ManageJoinCodes => "ha:ManageJoinCodes",
            Permission::LabControl => "lab:Control",
        }
    }
}

/// The cluster as joiners and operators see it.
#[derive(Clone)]
pub struct Cluster {
    /// The release it runs.
    pub release: String,
    /// Lowest release that may upgrade itself.
    pub min_upgrade_from: String,
    /// Name of its ISO.
    pub iso: String,
    /// Region; adopted by joiners.
    pub region: String,
    /// Parent domain; adopted by joiners.
    pub parent_domain: String,
    /// Upstream resolvers. Empty is a value.
    pub dns_upstream: Vec<String>,
    /// NTP servers a joiner gets unless the assignment names its own.
    pub ntp_servers: Vec<String>,
    /// Networks by purpose.
    pub networks: Vec<Network>,
    /// The provider network.
    pub provider: Provider,
    /// Members before any join; the first is the founder. Used at the very first start only.
    pub members: Vec<FirstMember>,
    /// Virtual addresses.
    pub vips: Vips,
}

/// One network of the cluster.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Network {
    /// storage or overlay.
    pub purpose: String,
    /// IPv4 CIDR.
    pub cidr: String,
    /// MTU in bytes.
    pub mtu: u32,
    /// Interface on the founder.
    pub interface: String,
}

/// The cluster's provider choice.
#[derive(Debug, Clone)]
pub struct Provider {
    /// bridged or routed-host.
    pub topology: String,
    /// The VLAN, if any.
    pub vlan: Option<u32>,
    /// The founder's uplink.
    pub upstream_interface: String,
    /// The purpose of the founder's uplink.
    pub upstream_purpose: String,
}

/// A member that was there before any join.
#[derive(Debug, Clone)]
pub struct FirstMember {
    /// `n-` and 8 characters.
    pub node_id: String,
    /// Display name.
    pub name: String,
    /// Management address.
    pub mgmt_ip: String,
}

/// Virtual addresses (documented list; the names are ours).
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Vips {
    /// Control-plane API.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub api: Option<String>,
    /// Postgres.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub postgres: Option<String>,
    /// OpenBao.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub open_bao: Option<String>,
    /// OVN northbound.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ovn_nb: Option<String>,
    /// OVN southbound.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ovn_sb: Option<String>,
    /// Vmselect read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub vmselect: Option<String>,
    /// Next hop of routed floating addresses; absent on a bridged cluster.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub floating_gateway: Option<String>,
}

/// How a release reaches a joiner of an older one.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Supply {
    /// Not at all: another release is refused.
    #[default]
    None,
    /// From a mirror, by the URL of the release directory.
    Mirror(String),
    /// The founder gives it itself.
    Founder,
}

/// Bounds of docs/protocol.md.
#[derive(Debug, Clone)]
pub struct Limits {
    /// Machines that may wait (documented: 16).
    pub waiting: u32,
    /// Wrong confirmations that burn a code.
    pub bad_tries: u32,
    /// Unproven tries that burn a code.
    pub open_tries: u32,
    /// Proofs per minute from one IPv4 address or IPv6 /64, and the burst.
    pub proofs_per_minute_per_address: u32,
    /// Proofs per minute in all, and the burst.
    pub proofs_per_minute: u32,
    /// Proofs that await their confirmation.
    pub open_proofs: usize,
    /// Answers to proof calls leave no earlier than this after the request arrived.
    pub proof_floor_ms: u64,
    /// Longest `wait` in seconds (documented: at most 60).
    pub wait_secs: u64,
    /// Least time between two log calls of one registration.
    pub log_interval_ms: i64,
    /// Control-plane nodes (documented: 5).
    pub control_planes: usize,
    /// Files of a release that are given at once to one registration, and in all.
    pub transfers_per_registration: usize,
    /// See there.
    pub transfers: usize,
    /// At most so many bytes per second of each of them; 0 is no limit.
    pub transfer_rate: u64,
    /// Connections in all.
    pub connections: usize,
    /// Connections from one address.
    pub connections_per_address: usize,
}

// === impl Limits ===

impl Default for Limits {
    fn default() -> Self {
        Self {
            waiting: 16,
            bad_tries: 20,
            open_tries: 200,
            proofs_per_minute_per_address: 6,
            proofs_per_minute: 60,
            open_proofs: 32,
            proof_floor_ms: 250,
            wait_secs: 60,
            log_interval_ms: 1000,
            control_planes: 5,
            transfers_per_registration: 2,
            transfers: 8,
            transfer_rate: 0,
            connections: 64,
            connections_per_address: 4,
        }
    }
}

impl Limits {
    /// For tests that make many joiners from one address: no proof floor, no rates, no connection count.
    pub fn wide() -> Self {
        Self {
            proofs_per_minute_per_address: 1_000_000,
            proofs_per_minute: 1_000_000,
            open_proofs: 1_000_000,
            proof_floor_ms: 0,
            log_interval_ms: 0,
            connections: 10_000,
            connections_per_address: 10_000,
            ..Self::default()
        }
    }
}

// === impl Cluster ===

impl Default for Cluster {
    fn default() -> Self {
        let some = |text: &str| Some(text.to_owned());
        Self {
            release: "0.7.0".to_owned(),
            min_upgrade_from: "0.5.0".to_owned(),
            iso: "stratum-0.7.0.iso".to_owned(),
            region: "lab-1".to_owned(),
            parent_domain: "stratum.example.com".to_owned(),
            dns_upstream: vec!["192.0.2.53".to_owned()],
            ntp_servers: vec!["192.0.2.123".to_owned()],
            networks: vec![
                Network {
                    purpose: "storage".to_owned(),
                    cidr: "198.51.100.0/24".to_owned(),
                    mtu: 9000,
                    interface: "vlan90".to_owned(),
                },
                Network {
                    purpose: "overlay".to_owned(),
                    cidr: "203.0.113.0/24".to_owned(),
                    mtu: 1500,
                    interface: "vlan91".to_owned(),
                },
            ],
            provider: Provider {
                topology: "bridged".to_owned(),
                vlan: Some(1),
                upstream_interface: "eno2".to_owned(),
                upstream_purpose: "mgmt".to_owned(),
            },
            members: vec![FirstMember {
                node_id: "n-0000f0nd".to_owned(),
                name: "node-1".to_owned(),
                mgmt_ip: "192.0.2.11".to_owned(),
            }],
            vips: Vips {
                api: some("192.0.2.240"),
                postgres: some("192.0.2.241"),
                open_bao: some("192.0.2.242"),
                ovn_nb: some("192.0.2.243"),
                ovn_sb: some("192.0.2.244"),
                vmselect: some("192.0.2.245"),
                floating_gateway: None,
            },
        }
    }
}

// === impl Config ===

impl Default for Config {
    fn default() -> Self {
        let loopback = |port| SocketAddr::from(([127, 0, 0, 1], port));
        Self {
            dir: None,
            join_listen: loopback(0),
            admin_listen: loopback(0),
            advertise: None,
            cluster: Cluster::default(),
            limits: Limits::default(),
            supply: Supply::default(),
            release_dir: None,
            members_apply_at_once: true,
            joiner_applies_when_done: true,
            tokens: Vec::new(),
            ca: None,
            clock: Clock::default(),
            seed: Seed::default(),
            evil: Vec::new(),
            record: true,
        }
    }
}

impl Config {
    /// The default with [`Limits::wide`]: what most tests want.
    pub fn for_tests() -> Self {
        Self { limits: Limits::wide(), ..Self::default() }
    }
}
