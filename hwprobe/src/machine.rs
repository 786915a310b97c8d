//! Host name, serial, release, processor and memory.
//!
//! May touch: DMI, device tree, `proc`, `etc`. Must never: report a placeholder: two machines with one serial are worse
//! than two without.

use crate::facts::{Facts, collapse};
use crate::finding::{Finding, Missing};
use crate::hypervisor::DMI_DIRS;
use crate::identity::one_character;
use crate::inventory::{CpuVirtualization, Host, Hypervisor, SerialSource};
use crate::roots::Roots;
use crate::text::Text;
use crate::warning::Warnings;
use crate::{System, hypervisor};

const TREE: &str = "sys/firmware/devicetree/base";

/// Placeholders, without case, spaces, dots, dashes and underscores.
const JUNK: [&str; 18] = [
    "tobefilledbyoem",
    "defaultstring",
    "systemserialnumber",
    "chassisserialnumber",
    "baseboardserialnumber",
    "notspecified",
    "notapplicable",
    "none",
    "na",
    "n/a",
    "unknown",
    "oem",
    "invalid",
    "empty",
    "0123456789",
    "123456789",
    "1234567890",
    "systemproductname",
];
/// More of them, that only names of makers and products have.
const JUNK_NAMES: [&str; 4] = ["systemmanufacturer", "productname", "oemmanufacturer", "tobefilledbyoemoem"];
/// UUIDs that firmware gives to everybody.
const JUNK_UUID: &str = "03000200-0400-0500-0006-000700080009";

/// Whether a serial number, maker or product name is a placeholder.
pub(crate) fn is_junk(text: &str) -> bool {
    let kept = |c: &char| !c.is_whitespace() && !matches!(c, '.' | '-' | '_');
    let plain: String = text.to_lowercase().chars().filter(kept).collect();
    one_character(&plain) || JUNK.contains(&plain.as_str()) || JUNK_NAMES.contains(&plain.as_str())
}

/// Facts of the machine that are no disks.
pub(crate) struct Machine {
    pub(crate) product_uuid: Option<String>,
    pub(crate) host: Host,
    pub(crate) cpu_virtualization: CpuVirtualization,
    pub(crate) kvm: Option<bool>,
    pub(crate) hypervisor: Option<Hypervisor>,
    pub(crate) memory_bytes: Option<u64>,
}

/// Reads them all.
pub(crate) fn probe(roots: &Roots, system: &dyn System, warnings: &mut Warnings) -> Machine {
    let cpuinfo = roots.read_long("proc/cpuinfo").map(|b| String::from_utf8_lossy(&b).into_owned());
    let cpu_model = system.cpu_model(cpuinfo.as_deref().map_err(|missing| *missing));
    let cpuinfo = cpuinfo.as_deref().ok();
    let product_uuid = product_uuid(roots, warnings);
    let host = host(roots, cpu_model, cpuinfo, warnings);
    let mut top = Facts::new(roots, String::new(), warnings);
    let hypervisor = hypervisor::decide(&hypervisor::signs(roots, cpuinfo, system.cpuid()));
    let hypervisor = top.keep("hypervisor", hypervisor.ok_or(Missing::Absent));
    let memory = system.memory_bytes().and_then(|n| if n == 0 { Err(Missing::Junk) } else { Ok(n) });
    let memory_bytes = top.keep("memoryBytes", memory);
    let kvm = top.keep("kvm", kvm(roots));
    if cpuinfo.is_none() {
        top.warnings.note("", Missing::Absent, "cpuVirtualization", "");
    }
    Machine {
        product_uuid,
        host,
        cpu_virtualization: cpuinfo.map(virtualization).unwrap_or_default(),
        kvm,
        hypervisor,
        memory_bytes,
    }
}

fn kvm(roots: &Roots) -> Finding<bool> {
    match roots.stat("dev/kvm") {
        Ok(stat) => {
            let device =
                rustix::fs::FileType::from_raw_mode(stat.st_mode) == rustix::fs::FileType::CharacterDevice;
            Ok(device || !roots.is_live())
        }
        Err(Missing::Absent) if roots.stat("dev").is_ok() => Ok(false),
        Err(Missing::Absent) => Err(Missing::NotCaptured),
        Err(missing) => Err(missing),
    }
}

/// The flag of the first processor that has a line of flags; ARM calls them features and has no such flag.
pub(crate) fn virtualization(cpuinfo: &str) -> CpuVirtualization {
    let flags = cpuinfo.lines().find_map(|l| {
        let (key, value) = l.split_once(':')?;
        (key.trim() == "flags").then_some(value)
    });
    let has = |flag: &str| flags.is_some_and(|f| f.split_whitespace().any(|f| f == flag));
    if has("vmx") {
        CpuVirtualization::Vmx
    } else if has("svm") {
        CpuVirtualization::Svm
    } else {
        CpuVirtualization::Absent
    }
}

fn product_uuid(roots: &Roots, warnings: &mut Warnings) -> Option<String> {
    let [class, device] = DMI_DIRS.map(|dir| roots.line(&format!("{dir}/product_uuid")));
    let found = if class == Err(Missing::Absent) { device } else { class };
    let found = found.and_then(|uuid| {
        let uuid = uuid.to_ascii_lowercase();
        let form = |(n, b): (usize, u8)| {
            if matches!(n, 8 | 13 | 18 | 23) { b == b'-' } else { b.is_ascii_hexdigit() }
        };
        if uuid.len() != 36 || !uuid.bytes().enumerate().all(form) {
            return Err(Missing::Invalid);
        }
        let digits: String = uuid.chars().filter(|c| *c != '-').collect();
        if one_character(&digits) || uuid == JUNK_UUID { Err(Missing::Junk) } else { Ok(uuid) }
    });
    match found {
        Ok(uuid) => Some(uuid),
        // A machine without DMI is nothing to warn of; a machine that hides it is.
        Err(Missing::Absent) => None,
        Err(missing) => {
            warnings.note("host", missing, "productUuid", "");
            None
        }
    }
}

fn host(roots: &Roots, cpu_model: Finding<String>, cpuinfo: Option<&str>, warnings: &mut Warnings) -> Host {
    let mut facts = Facts::new(roots, "host".to_owned(), warnings);
    let name = |s: &str| {
        !matches!(s.to_ascii_lowercase().as_str(), "localhost" | "(none)" | "localhost.localdomain")
    };
    let hostname = match facts.first::<253>("hostname", &["proc/sys/kernel/hostname".to_owned()], name) {
        Ok((text, _)) => Ok(text),
        Err(missing) => hostname_file(&mut facts).filter(|t| name(t)).ok_or(missing),
    };
    let hostname = facts.keep("hostname", hostname);
    let dmi = |file: &str| DMI_DIRS.map(|dir| format!("{dir}/{file}"));
    let mut sources: Vec<(String, SerialSource)> = Vec::new();
    for (file, source) in [
        ("product_serial", SerialSource::Product),
        ("board_serial", SerialSource::Board),
        ("chassis_serial", SerialSource::Chassis),
    ] {
        sources.extend(dmi(file).map(|path| (path, source)));
    }
    sources.push((format!("{TREE}/serial-number"), SerialSource::Devicetree));
    let files: Vec<String> = sources.iter().map(|(file, _)| file.clone()).collect();
    let real = |s: &str| !is_junk(s);
    let serial = facts.first::<64>("serial", &files, real);
    let serial = facts.keep("serial", serial);
    let serial_source = serial.as_ref().and_then(|(_, n)| sources.get(*n)).map(|(_, source)| *source);
    let manufacturer = facts.first::<128>("manufacturer", &dmi("sys_vendor"), real);
    let manufacturer = facts.keep("manufacturer", manufacturer);
    let names: Vec<String> = dmi("product_name").into_iter().chain([format!("{TREE}/model")]).collect();
    let product = facts.first::<128>("product", &names, real);
    let product = facts.keep("product", product);
    let release = release(roots);
    let release = facts.keep("release", release).and_then(|r| Text::of(&r));
    let architecture = facts.keep("architecture", architecture(roots));
    let kernel = facts.first::<128>("kernel", &["proc/sys/kernel/osrelease".to_owned()], |_| true);
    let kernel = facts.keep("kernel", kernel);
    let model = cpu_model.map(|m| collapse(m.as_bytes()));
    let cpu_model = facts.keep("cpuModel", model).and_then(|m| facts.text("cpuModel", &m));
    let cpu_count = facts.keep("cpuCount", cpu_count(roots, cpuinfo));
    Host {
        hostname,
        serial: serial.map(|(text, _)| text),
        serial_source,
        manufacturer: manufacturer.map(|(text, _)| text),
        product: product.map(|(text, _)| text),
        release,
        architecture: architecture.and_then(|a| Text::of(&a)),
        kernel: kernel.map(|(text, _)| text),
        cpu_model,
        cpu_count,
    }
}

fn hostname_file(facts: &mut Facts<'_>) -> Option<Text<253>> {
    let bytes = facts.roots.read("etc/hostname").ok()?;
    let line = bytes.split(|b| *b == b'\n').find(|l| !l.trim_ascii().is_empty() && !l.starts_with(b"#"))?;
    facts.text("hostname", line)
}

/// `VERSION_ID` of os-release(5). The quoting of the shell is taken off; anything that is no release is `Invalid`.
pub(crate) fn release(roots: &Roots) -> Finding<String> {
    let text = roots.read("etc/os-release").or_else(|_| roots.read("usr/lib/os-release"))?;
    let text = String::from_utf8_lossy(&text).into_owned();
    let raw = text
        .lines()
        .filter_map(|l| l.trim().strip_prefix("VERSION_ID="))
        .next_back()
        .ok_or(Missing::Absent)?;
    let raw = raw.trim();
    let quoted = |q: char| raw.strip_prefix(q).and_then(|r| r.strip_suffix(q));
    let value = quoted('"').or_else(|| quoted('\'')).unwrap_or(raw);
    let first = value.chars().next().ok_or(Missing::Absent)?;
    let good = first.is_ascii_alphanumeric()
        && value.len() <= 64
        && value.bytes().all(|b| b.is_ascii_alphanumeric() || b".+~_-".contains(&b));
    if good { Ok(value.to_owned()) } else { Err(Missing::Invalid) }
}

fn architecture(roots: &Roots) -> Finding<String> {
    if roots.is_live() {
        let machine = rustix::system::uname().machine().to_string_lossy().into_owned();
        return Ok(machine);
    }
    let json = roots.read("capture/meta.json").map_err(|_| Missing::NotCaptured)?;
    let json: serde_json::Value = serde_json::from_slice(&json).map_err(|_| Missing::Invalid)?;
    json.get("architecture").and_then(|a| a.as_str()).map(str::to_owned).ok_or(Missing::NotCaptured)
}

fn cpu_count(roots: &Roots, cpuinfo: Option<&str>) -> Finding<u32> {
    if let Some(count) = roots.line("sys/devices/system/cpu/online").ok().as_deref().and_then(count_ranges) {
        return Ok(count);
    }
    count_processors(cpuinfo.ok_or(Missing::Absent)?).ok_or(Missing::Absent)
}

/// Processors that cpuinfo lists.
pub(crate) fn count_processors(cpuinfo: &str) -> Option<u32> {
    let processor = |line: &&str| line.split(':').next().map(str::trim) == Some("processor");
    u32::try_from(cpuinfo.lines().filter(processor).count()).ok().filter(|n| *n > 0)
}

/// `0-3,8` has five.
pub(crate) fn count_ranges(list: &str) -> Option<u32> {
    let mut count: u32 = 0;
    for part in list.split(',') {
        let (from, to) = part.split_once('-').unwrap_or((part, part));
        let (from, to): (u32, u32) = (from.trim().parse().ok()?, to.trim().parse().ok()?);
        count = count.checked_add(to.checked_sub(from)?.checked_add(1)?)?;
    }
    (count > 0).then_some(count)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::disallowed_methods)]
mod tests {
    use super::*;

    #[test]
    fn placeholders_are_junk_in_every_spelling() {
        for text in JUNK {
            assert!(is_junk(text) && is_junk(&text.to_uppercase()), "{text}");
        }
        for text in
            ["To Be Filled By O.E.M.", "Default string", "System Serial Number", "0000000", "-", " ", "N/A"]
        {
            assert!(is_junk(text), "{text}");
        }
        for text in ["SN0002", "7N62AI2", "PowerEdge R6515", "none-such"] {
            assert!(!is_junk(text), "{text}");
        }
    }

    fn tree(files: &[(&str, &str)]) -> (tempfile::TempDir, Roots) {
        let dir = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = dir.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        let roots = Roots::under(dir.path()).unwrap();
        (dir, roots)
    }

    fn host_of(files: &[(&str, &str)]) -> Host {
        let (_dir, roots) = tree(files);
        host(&roots, Err(Missing::NotCaptured), None, &mut Warnings::default())
    }

    #[test]
    fn a_junk_serial_gives_way_to_the_next_source() {
        let h = host_of(&[
            ("sys/class/dmi/id/product_serial", "To be filled by O.E.M.\n"),
            ("sys/class/dmi/id/board_serial", " BS 1 \n"),
        ]);
        assert_eq!(h.serial.as_deref(), Some("BS 1"));
        assert_eq!(h.serial_source, Some(SerialSource::Board));
        let h = host_of(&[("sys/firmware/devicetree/base/serial-number", "abc123\0")]);
        assert_eq!((h.serial.as_deref(), h.serial_source), (Some("abc123"), Some(SerialSource::Devicetree)));
    }

    #[test]
    fn a_placeholder_host_name_gives_way_to_the_file() {
        let files = [("proc/sys/kernel/hostname", "localhost\n"), ("etc/hostname", "# c\n\nnode-2\n")];
        assert_eq!(host_of(&files).hostname.as_deref(), Some("node-2"));
        assert_eq!(host_of(&[("proc/sys/kernel/hostname", "(none)\n")]).hostname, None);
    }

    #[test]
    fn the_release_is_unquoted_and_checked() {
        for (text, want) in [
            ("NAME=x\nVERSION_ID=\"0.6.0\"\n", Ok("0.6.0")),
            ("VERSION_ID='12'\n", Ok("12")),
            ("VERSION_ID=1.2~rc1\n", Ok("1.2~rc1")),
            ("VERSION_ID=\"$(x)\"\n", Err(Missing::Invalid)),
            ("VERSION_ID=\n", Err(Missing::Absent)),
            ("NAME=x\n", Err(Missing::Absent)),
        ] {
            let (_dir, roots) = tree(&[("etc/os-release", text)]);
            assert_eq!(release(&roots).as_deref(), want.as_ref().copied(), "{text}");
        }
    }

    #[test]
    fn product_uuids_that_everybody_has_are_none() {
        for (text, want) in [
            ("4C4C4544-0042-3010-8056-B7C04F503232\n", Some("4c4c4544-0042-3010-8056-b7c04f503232")),
            ("00000000-0000-0000-0000-000000000000\n", None),
            ("FFFFFFFF-FFFF-FFFF-FFFF-FFFFFFFFFFFF\n", None),
            ("03000200-0400-0500-0006-000700080009\n", None),
            ("Not Settable\n", None),
        ] {
            let (_dir, roots) = tree(&[("sys/class/dmi/id/product_uuid", text)]);
            assert_eq!(product_uuid(&roots, &mut Warnings::default()).as_deref(), want, "{text}");
        }
    }

    #[test]
    fn online_processors_are_counted() {
        assert_eq!(count_ranges("0-3,8"), Some(5));
        assert_eq!(count_ranges("0"), Some(1));
        for bad in ["", "3-0", "x", "0-4294967295"] {
            assert_eq!(count_ranges(bad), None, "{bad}");
        }
    }

    #[test]
    fn flags_are_matched_whole() {
        assert_eq!(virtualization("flags\t\t: fpu vmx\n"), CpuVirtualization::Vmx);
        assert_eq!(virtualization("flags\t\t: svm_lock svm\n"), CpuVirtualization::Svm);
        assert_eq!(virtualization("flags\t\t: svm_lock\nvmx flags: vnmi\n"), CpuVirtualization::Absent);
        assert_eq!(virtualization("Features : fp asimd\n"), CpuVirtualization::Absent);
    }
}
