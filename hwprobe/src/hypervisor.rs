//! What the machine runs on, in the order of `systemd-detect-virt --vm`.
//!
//! May touch: DMI, `proc`, device tree; CPUID only for the running machine. Must never: ask the host's processor about
//! a captured machine, or call a Surface laptop a guest.

use serde::{Deserialize, Serialize};

use crate::inventory::Hypervisor;
use crate::roots::Roots;

/// What CPUID says (leaf 1 and leaf 0x40000000).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Cpuid {
    /// No hypervisor bit.
    Bare,
    /// A known signature.
    Known(Hypervisor),
    /// Hyper-V's signature, which KVM and Xen imitate: a hint only.
    MicrosoftHint,
    /// The bit, and a signature that we do not know.
    Other,
}

/// Everything that the decision is made from.
#[derive(Clone, Debug, Default)]
pub(crate) struct Signs {
    /// DMI strings in the order in which they are asked: product, vendor, board, BIOS, version.
    pub(crate) dmi: Vec<String>,
    /// DMI product name.
    pub(crate) product: Option<String>,
    /// Bit "virtual machine" of the SMBIOS BIOS record; `None`: not readable.
    pub(crate) smbios_vm: Option<bool>,
    /// `vendor_id` of cpuinfo.
    pub(crate) vendor_id: Option<String>,
    /// `proc/xen` exists.
    pub(crate) proc_xen: bool,
    /// `proc/xen/capabilities`.
    pub(crate) xen_capabilities: Option<String>,
    /// CPUID; `None` when it cannot be asked.
    pub(crate) cpuid: Option<Cpuid>,
    /// The processor flags contain `hypervisor`.
    pub(crate) hypervisor_flag: bool,
    /// cpuinfo has flags, so that the one for hypervisors could be among them.
    pub(crate) cpu_flags: bool,
    /// `sys/hypervisor/type`.
    pub(crate) sys_type: Option<String>,
    /// Device tree `hypervisor/compatible`.
    pub(crate) tree_compatible: Option<String>,
    /// Device tree has a `fw-cfg` node.
    pub(crate) tree_fw_cfg: bool,
    /// There is a device tree.
    pub(crate) tree: bool,
    /// s390 `proc/sysinfo` control program.
    pub(crate) control_program: Option<String>,
}

/// The two names of the directory; captures do not always have the link.
pub(crate) const DMI_DIRS: [&str; 2] = ["sys/class/dmi/id", "sys/devices/virtual/dmi/id"];

/// DMI prefixes; "Microsoft Corporation" alone is no hit.
const DMI: [(&str, Hypervisor); 18] = [
    ("KVM", Hypervisor::Kvm),
    ("OpenStack", Hypervisor::Kvm),
    ("KubeVirt", Hypervisor::Kvm),
    ("Amazon EC2", Hypervisor::Amazon),
    ("QEMU", Hypervisor::Qemu),
    ("VMware", Hypervisor::Vmware),
    ("VMW", Hypervisor::Vmware),
    ("innotek GmbH", Hypervisor::Oracle),
    ("VirtualBox", Hypervisor::Oracle),
    ("Oracle Corporation VirtualBox", Hypervisor::Oracle),
    ("Xen", Hypervisor::Xen),
    ("Bochs", Hypervisor::Bochs),
    ("Parallels", Hypervisor::Parallels),
    ("BHYVE", Hypervisor::Bhyve),
    ("Hyper-V", Hypervisor::Microsoft),
    ("Apple Virtualization", Hypervisor::Apple),
    ("Google Compute Engine", Hypervisor::Google),
    ("Google Compute", Hypervisor::Google),
];

/// The answer; `None` when nothing is there to decide from.
#[must_use]
pub(crate) fn decide(signs: &Signs) -> Option<Hypervisor> {
    use Hypervisor as H;
    let dmi = dmi(signs);
    if let Some(found @ (H::Oracle | H::Xen | H::Amazon | H::Parallels | H::Google)) = dmi {
        return Some(found);
    }
    if signs.vendor_id.as_deref() == Some("User Mode Linux") {
        return Some(H::Uml);
    }
    if signs.proc_xen {
        let dom0 = signs.xen_capabilities.as_deref().is_some_and(|c| c.contains("control_d"));
        return Some(if dom0 { H::None } else { H::Xen });
    }
    if let Some(Cpuid::Known(found)) = signs.cpuid {
        return Some(found);
    }
    if dmi.is_some() {
        return dmi;
    }
    if signs.sys_type.as_deref() == Some("xen") {
        return Some(H::Xen);
    }
    match signs.tree_compatible.as_deref() {
        Some("linux,kvm") => return Some(H::Kvm),
        Some(c) if c.contains("xen") => return Some(H::Xen),
        Some(c) if c.contains("vmware") => return Some(H::Vmware),
        Some(_) => return Some(H::Other),
        None if signs.tree_fw_cfg => return Some(H::Qemu),
        None => {}
    }
    if let Some(program) = &signs.control_program {
        return Some(if program.contains("z/VM") {
            H::Zvm
        } else if program.contains("KVM") {
            H::Kvm
        } else {
            H::Other
        });
    }
    match signs.cpuid {
        Some(Cpuid::MicrosoftHint) => return Some(H::Microsoft),
        Some(Cpuid::Other) => return Some(H::Other),
        _ => {}
    }
    if signs.cpuid.is_none() && signs.hypervisor_flag {
        return Some(H::Other);
    }
    let anything = signs.cpuid.is_some() || signs.cpu_flags || !signs.dmi.is_empty() || signs.tree;
    anything.then_some(H::None)
}

/// The answer of DMI, after the two vendors that also sell bare metal were checked.
fn dmi(signs: &Signs) -> Option<Hypervisor> {
    let found =
        signs.dmi.iter().find_map(|text| DMI.iter().find(|(p, _)| text.starts_with(p)).map(|(_, h)| *h))?;
    let bare = signs.smbios_vm == Some(false);
    let metal = signs.product.as_deref().is_some_and(|p| p.ends_with(".metal"));
    match found {
        Hypervisor::Amazon if bare || metal => None,
        Hypervisor::Google if bare => None,
        found => Some(found),
    }
}

/// Reads the signs of a machine. `cpuinfo` is its text; `cpuid` is `None` for a captured tree.
pub(crate) fn signs(roots: &Roots, cpuinfo: Option<&str>, cpuid: Option<Cpuid>) -> Signs {
    let id = |file: &str| DMI_DIRS.iter().find_map(|dir| roots.line(&format!("{dir}/{file}")).ok());
    let tree = "sys/firmware/devicetree/base";
    let entry = roots.read("sys/firmware/dmi/entries/0-0/raw").ok();
    let field = |key: &str| field(cpuinfo?, key);
    let product = id("product_name");
    let order = ["sys_vendor", "board_vendor", "bios_vendor", "product_version"];
    let sysinfo = roots.read("proc/sysinfo").ok().map(|b| String::from_utf8_lossy(&b).into_owned());
    Signs {
        dmi: product.clone().into_iter().chain(order.iter().filter_map(|f| id(f))).collect(),
        product,
        // Byte 0x13, bit 4 of the BIOS characteristics extension (SMBIOS 3.7, 7.1.2.2).
        smbios_vm: entry.and_then(|raw| raw.get(0x13).map(|byte| byte & 0x10 != 0)),
        vendor_id: field("vendor_id"),
        proc_xen: roots.stat("proc/xen").is_ok(),
        xen_capabilities: roots.line("proc/xen/capabilities").ok(),
        cpuid,
        hypervisor_flag: field("flags").is_some_and(|f| f.split_whitespace().any(|f| f == "hypervisor")),
        cpu_flags: field("flags").is_some(),
        sys_type: roots.line("sys/hypervisor/type").ok(),
        tree_compatible: roots.line(&format!("{tree}/hypervisor/compatible")).ok(),
        tree_fw_cfg: roots.list(tree).is_ok_and(|names| names.iter().any(|n| n.contains("fw-cfg"))),
        tree: roots.stat(tree).is_ok(),
        control_program: sysinfo.and_then(|text| {
            let line = text.lines().find(|l| l.starts_with("VM00 Control Program"))?;
            Some(line.split_once(':')?.1.trim().to_owned())
        }),
    }
}

/// The first value of a key in cpuinfo.
pub(crate) fn field(cpuinfo: &str, key: &str) -> Option<String> {
    let line = cpuinfo.lines().find(|l| l.split(':').next().map(str::trim) == Some(key))?;
    Some(line.split_once(':')?.1.trim().to_owned())
}

/// CPUID of the processor that runs us.
#[cfg(target_arch = "x86_64")]
pub(crate) fn cpuid() -> Option<Cpuid> {
    use raw_cpuid::{CpuId, Hypervisor as Raw};
    let cpuid = CpuId::new();
    if !cpuid.get_feature_info()?.has_hypervisor() {
        return Some(Cpuid::Bare);
    }
    let Some(info) = cpuid.get_hypervisor_info() else { return Some(Cpuid::Other) };
    Some(match info.identify() {
        Raw::Xen => Cpuid::Known(Hypervisor::Xen),
        Raw::KVM => Cpuid::Known(Hypervisor::Kvm),
        Raw::QEMU => Cpuid::Known(Hypervisor::Qemu),
        Raw::VMware => Cpuid::Known(Hypervisor::Vmware),
        Raw::Bhyve => Cpuid::Known(Hypervisor::Bhyve),
        Raw::QNX => Cpuid::Known(Hypervisor::Qnx),
        Raw::ACRN => Cpuid::Known(Hypervisor::Acrn),
        Raw::HyperV => Cpuid::MicrosoftHint,
        Raw::Unknown(a, b, c) => signature(&[a, b, c].map(u32::to_le_bytes).concat()),
    })
}

/// Other processors have no such leaf; the device tree tells there.
#[cfg(not(target_arch = "x86_64"))]
pub(crate) fn cpuid() -> Option<Cpuid> {
    None
}

/// Signatures that the crate does not know.
#[cfg(target_arch = "x86_64")]
fn signature(text: &[u8]) -> Cpuid {
    match text {
        b"Linux KVM Hv" => Cpuid::Known(Hypervisor::Kvm),
        b"SRESRESRESRE" => Cpuid::Known(Hypervisor::Sre),
        _ => Cpuid::Other,
    }
}

#[cfg(test)]
mod tests {
    use Hypervisor as H;

    use super::*;

    fn pc(dmi: &[&str], cpuid: Cpuid) -> Signs {
        Signs {
            dmi: dmi.iter().map(|s| (*s).to_owned()).collect(),
            product: dmi.first().map(|s| (*s).to_owned()),
            cpuid: Some(cpuid),
            cpu_flags: true,
            ..Signs::default()
        }
    }

    #[test]
    fn each_row_of_the_table_comes_out() {
        let kvm = Cpuid::Known(H::Kvm);
        let rows = [
            (pc(&["PowerEdge R6515", "Dell Inc."], Cpuid::Bare), H::None),
            (pc(&["Surface Laptop 4", "Microsoft Corporation"], Cpuid::Bare), H::None),
            (
                pc(&["Virtual Machine", "Microsoft Corporation", "Hyper-V UEFI"], Cpuid::MicrosoftHint),
                H::Microsoft,
            ),
            (pc(&["Virtual Machine", "Microsoft Corporation"], Cpuid::MicrosoftHint), H::Microsoft),
            (pc(&[], kvm), H::Kvm),
            (pc(&["Standard PC (Q35 + ICH9, 2009)", "QEMU"], kvm), H::Kvm),
            (pc(&["Standard PC (Q35 + ICH9, 2009)", "QEMU"], Cpuid::Known(H::Qemu)), H::Qemu),
            (pc(&["Standard PC (Q35 + ICH9, 2009)", "QEMU"], Cpuid::MicrosoftHint), H::Qemu),
            (pc(&["KVM", "Red Hat"], Cpuid::Other), H::Kvm),
            (pc(&["OpenStack Compute"], Cpuid::Other), H::Kvm),
            (pc(&["VirtualBox", "innotek GmbH"], kvm), H::Oracle),
            (pc(&["VMware7,1", "VMware, Inc."], Cpuid::Known(H::Vmware)), H::Vmware),
            (pc(&["HVM domU", "Xen"], Cpuid::MicrosoftHint), H::Xen),
            (pc(&["m5.large", "Amazon EC2"], kvm), H::Amazon),
            (pc(&["m5.metal", "Amazon EC2"], Cpuid::Bare), H::None),
            (Signs { smbios_vm: Some(false), ..pc(&["i3", "Amazon EC2"], Cpuid::Bare) }, H::None),
            (pc(&["Google Compute Engine", "Google"], kvm), H::Google),
            (Signs { smbios_vm: Some(false), ..pc(&["Google Compute Engine"], Cpuid::Bare) }, H::None),
            (pc(&["Parallels Virtual Platform"], Cpuid::Other), H::Parallels),
            (pc(&["Apple Virtualization Generic Platform"], Cpuid::Other), H::Apple),
            (pc(&["BHYVE"], Cpuid::Known(H::Bhyve)), H::Bhyve),
            (pc(&["Bochs"], Cpuid::Bare), H::Bochs),
            (pc(&["unknown"], Cpuid::Other), H::Other),
            (Signs { vendor_id: Some("User Mode Linux".into()), ..pc(&[], Cpuid::Bare) }, H::Uml),
            (Signs { proc_xen: true, ..pc(&[], Cpuid::Known(H::Kvm)) }, H::Xen),
            (
                Signs {
                    proc_xen: true,
                    xen_capabilities: Some("control_d".into()),
                    ..pc(&[], Cpuid::Known(H::Xen))
                },
                H::None,
            ),
            (Signs { sys_type: Some("xen".into()), ..pc(&[], Cpuid::Other) }, H::Xen),
            (Signs { tree: true, tree_compatible: Some("linux,kvm".into()), ..Signs::default() }, H::Kvm),
            (Signs { tree: true, tree_fw_cfg: true, ..Signs::default() }, H::Qemu),
            (Signs { tree: true, ..Signs::default() }, H::None),
            (
                Signs { control_program: Some("z/VM 7.2.0".into()), cpu_flags: true, ..Signs::default() },
                H::Zvm,
            ),
            (
                Signs { control_program: Some("KVM/Linux".into()), cpu_flags: true, ..Signs::default() },
                H::Kvm,
            ),
            (Signs { cpu_flags: true, hypervisor_flag: true, ..Signs::default() }, H::Other),
            (Signs { cpu_flags: true, ..Signs::default() }, H::None),
            (pc(&["KubeVirt", "None"], Cpuid::Other), H::Kvm),
            (pc(&["VMW71.00V", "Phoenix"], Cpuid::Other), H::Vmware),
            (pc(&["Standard PC", "SomeCloud", "Amazon EC2"], kvm), H::Amazon),
            (Signs { smbios_vm: Some(true), ..pc(&["c6g.large", "Amazon EC2"], kvm) }, H::Amazon),
            (Signs { smbios_vm: Some(true), ..pc(&["n2", "Google Compute Engine"], kvm) }, H::Google),
            (pc(&["x"], Cpuid::Known(H::Acrn)), H::Acrn),
            (pc(&["x"], Cpuid::Known(H::Qnx)), H::Qnx),
            (pc(&["x"], Cpuid::Known(H::Sre)), H::Sre),
            // A board of QEMU's maker under a hypervisor that hides itself.
            (pc(&["Standard PC", "QEMU"], Cpuid::Bare), H::Qemu),
            (Signs { proc_xen: true, xen_capabilities: Some(String::new()), ..pc(&[], Cpuid::Bare) }, H::Xen),
            (Signs { tree: true, tree_compatible: Some("xen,xen-4.17".into()), ..Signs::default() }, H::Xen),
            (Signs { tree: true, tree_compatible: Some("vmware".into()), ..Signs::default() }, H::Vmware),
            (Signs { tree: true, tree_compatible: Some("acme".into()), ..Signs::default() }, H::Other),
            (Signs { control_program: Some("other".into()), cpu_flags: true, ..Signs::default() }, H::Other),
        ];
        for (n, (signs, want)) in rows.iter().enumerate() {
            assert_eq!(decide(signs), Some(*want), "row {n}: {signs:?}");
        }
    }

    #[test]
    fn with_nothing_to_decide_from_it_is_unknown() {
        assert_eq!(decide(&Signs::default()), None);
    }
}
