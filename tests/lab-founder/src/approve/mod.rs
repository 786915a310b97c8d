//! From an operator's yes to a node.yaml: the assignment, its check against the hardware, and the delivery.

pub(crate) mod addresses;
pub(crate) mod assignment;
pub(crate) mod bundle;
pub(crate) mod check;
pub(crate) mod decode;
pub(crate) mod deliver;
pub(crate) mod disks;
pub(crate) mod inventory;
pub(crate) mod links;
pub(crate) mod node_yaml;
pub(crate) mod rules;
