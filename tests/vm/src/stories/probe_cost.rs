//! What the hardware probe costs on a machine with 24 disks, a running udev, and our package as it ships; beside lsblk, ip and lshw.
//!
//! Told for `cargo xtask bench hwprobe`, whose own program measures in the machine. Nothing here depends on how long anything takes.

use std::time::Duration;

use anyhow::{Result, ensure};

use crate::board::{Board, Drive};
use crate::lab::Lab;

/// Longest measurement, in emulation.
const MEASURE: Duration = Duration::from_secs(20 * 60);

/// SCSI disks by the last digits of their names, serial numbers and WWNs.
macro_rules! scsi_disks {
    ($($n:literal)*) => {
        Board {
            ipv6: false,
            memory: 1024,
            drives: &[$(Drive::new(concat!("disk", $n), 64)),*],
            devices: &[
                "-device",
                "virtio-scsi-pci,id=scsi0",
                $("-device", concat!("scsi-hd,bus=scsi0.0,drive=disk", $n, ",serial=COST", $n, ",wwn=0x5000c500000000", $n)),*
            ],
        }
    };
}

const BOARD: Board = scsi_disks! {
    "01" "02" "03" "04" "05" "06" "07" "08" "09" "10" "11" "12" "13" "14" "15" "16" "17" "18" "19" "20" "21" "22" "23" "24"
};

/// Every other disk gets a partition table and a file system: what is not blank is not read.
const PREPARE: &str = "
n=0
for disk in /dev/disk/by-id/wwn-0x5000c500000000??; do
    n=$((n + 1))
    [ $((n % 2)) = 0 ] || continue
    printf 'label: gpt\\n,20M\\n,20M\\n' | sfdisk --quiet \"$disk\"
    udevadm settle
    mkfs.ext4 -q \"$disk-part1\"
done
udevadm settle
echo $n";

pub(super) fn tell(lab: &Lab) -> Result<()> {
    let tree = lab.node()?;
    tree.program(&lab.settings.programs.join("xtask"), "usr/local/bin/xtask")?;
    let machine = lab.case_with("machine", &tree, BOARD)?;
    drop(tree);
    machine.switch_on()?.tell_to_the_end(|vm| {
        vm.wait_until_up()?;
        // What waits for a join must not take part in the measurement.
        vm.guest.sh("systemctl stop 'stratum-*' && udevadm settle")?;
        let disks = vm.guest.sh(PREPARE)?;
        ensure!(disks.trim() == "24", "the machine should have 24 disks and has {disks}");
        let args = "bench hwprobe --program /usr/bin/stratum-join --place live --rounds 10";
        let args: Vec<&str> = args.split(' ').collect();
        let measured = vm.guest.run_within(MEASURE, "/usr/local/bin/xtask", &args)?;
        print!("{}", measured.stdout);
        vm.keep_text("measured.txt", &measured.stdout)?;
        // A target that was missed ends it with 1; then it has said so.
        ensure!(measured.stderr.is_empty(), "the measurement failed: {}", measured.stderr);
        Ok(())
    })
}
