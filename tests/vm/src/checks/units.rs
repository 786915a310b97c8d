//! systemd's own judgement of the units, as they are installed.

use anyhow::{Context, Result, ensure};

use crate::vm::Vm;

/// Every unit of the package, and firstboot's; a template by one instance.
const UNITS: [&str; 7] = [
    "stratum-join.service",
    "stratum-join-control.socket",
    "stratum-join-helper.socket",
    "stratum-join-helper@0.service",
    "stratum-join-console@tty1.service",
    "stratum-join-console-login@tty1.service",
    "getty@tty1.service",
];
/// How much `systemd-analyze security` may find exposed, in tenths.
const EXPOSURE: [(&str, f64); 3] = [
    ("stratum-join.service", 1.5),
    ("stratum-join-helper@0.service", 3.0),
    ("stratum-join-console@tty1.service", 4.0),
];

pub(super) fn systemd_has_nothing_to_say_about_our_units(vm: &mut Vm) -> Result<()> {
    for unit in UNITS {
        // The manual is checked where the package is made: this machine has no man.
        let out = vm.guest.run("systemd-analyze", &["verify", "--man=no", unit])?;
        let said = format!("{}{}", out.stdout, out.stderr);
        ensure!(out.is_ok() && said.is_empty(), "systemd-analyze verify {unit}: {}:\n{said}", out.ending());
    }
    let installed =
        vm.guest.sh("dpkg -L stratum-join | grep '/lib/systemd/system/.*\\.\\(service\\|socket\\)$'")?;
    for path in installed.lines() {
        let name = path.rsplit('/').next().unwrap_or_default();
        let stem = name.split('@').next().unwrap_or_default();
        ensure!(UNITS.iter().any(|unit| unit.starts_with(stem)), "nobody has verified {path}");
    }
    Ok(())
}

pub(super) fn exposure_stays_low(vm: &mut Vm) -> Result<()> {
    let mut figures = Vec::new();
    for (unit, most) in EXPOSURE {
        let said = vm.guest.sh(&format!("systemd-analyze security --no-pager {unit} | tail -n 1"))?;
        let found = said.split("level for").nth(1).and_then(|rest| rest.split(": ").nth(1));
        let level: f64 = found
            .and_then(|text| text.split_whitespace().next())
            .and_then(|number| number.parse().ok())
            .with_context(|| format!("systemd-analyze security {unit} says {said:?}"))?;
        ensure!(level <= most, "{unit} is exposed {level}, more than {most}");
        figures.push(format!("{unit} {level}"));
    }
    println!("  exposure: {}", figures.join(", "));
    Ok(())
}
