//! The steps, as the console shows them. Touches nothing.

/// One step.
pub(crate) struct Step {
    /// Name on the wire.
    pub(crate) name: &'static str,
    /// What a person is told.
    pub(crate) title: &'static str,
    /// From 1.
    pub(crate) index: u32,
    /// What it logs.
    pub(crate) lines: &'static [&'static str],
}

/// Documented names where the documentation gives them: `storage`, `join/patroni`, `join/raft-openbao`.
pub(crate) const STEPS: [Step; 9] = [
    Step {
        name: "network",
        title: "Applying the network",
        index: 1,
        lines: &["links are as configured", "mgmt answers"],
    },
    Step {
        name: "storage",
        title: "Preparing the disks",
        index: 2,
        lines: &["checking the chosen disks", "creating pool"],
    },
    Step {
        name: "images",
        title: "Loading the service images",
        index: 3,
        lines: &["loading images from the release", "images are loaded"],
    },
    Step {
        name: "join/patroni",
        title: "Joining Patroni",
        index: 4,
        lines: &["starting a replica", "replica is streaming, lag 412 MiB", "replica is in sync"],
    },
    Step {
        name: "join/raft-openbao",
        title: "Joining the OpenBao raft",
        index: 5,
        lines: &["joining the raft as a voter", "unsealed"],
    },
    Step {
        name: "join/raft-ovn",
        title: "Joining the OVN databases",
        index: 6,
        lines: &["northbound joined", "southbound joined"],
    },
    Step {
        name: "join/vmstorage",
        title: "Joining the metrics store",
        index: 7,
        lines: &["vmstorage is up"],
    },
    Step {
        name: "controlplane",
        title: "Starting the control plane",
        index: 8,
        lines: &["migrations are applied", "serving"],
    },
    Step {
        name: "join/membership",
        title: "Applying the membership",
        index: 9,
        lines: &["peer lists are rendered", "the generation is applied"],
    },
];
