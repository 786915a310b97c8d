//! The harness itself: a Debian without our package starts, and its serial line, screen, disks and inside can be reached.

use std::time::Duration;

use anyhow::{Result, ensure};

use crate::lab::Lab;
use crate::tree::HOST_NAME;

pub(super) fn tell(lab: &Lab) -> Result<()> {
    let machine = lab.machine(&lab.debian()?)?;
    let mut vm = machine.switch_on()?;
    vm.wait_until_up()?;
    println!("  the machine answers after {:.1} s", vm.age().as_secs_f64());

    let start = vm.serial.mark();
    vm.serial.type_line("")?;
    vm.serial.wait_for(start, &format!("{HOST_NAME} login:"), Duration::from_secs(60))?;
    vm.wait_for_screen(1, "login:", Duration::from_secs(60))?;
    vm.keep_screen("tty1")?;

    let disks = vm.guest.sh("udevadm settle; lsblk --nodeps --noheadings --output NAME,SERIAL,SIZE")?;
    for serial in ["ROOT0001", "NVME0001", "SCSI0001", "VIRT0001"] {
        ensure!(disks.contains(serial), "no disk with serial {serial}:\n{disks}");
    }
    vm.keep_journal()
}
