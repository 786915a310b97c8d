# What is on the disks of the machine "buses". Run once by root; every UUID is fixed, so that two machines are the same.
udevadm settle
by() { readlink -f "/dev/disk/by-id/$1"; }

# 4096 bytes a block, by SCSI and by NVMe: partition tables count in blocks.
printf 'label: gpt\nlabel-id: 11111111-0000-4000-8000-000000000001\nstart=256, size=4096, uuid=11111111-0000-4000-8000-000000000002, name="four"\nsize=1024, type=swap, uuid=11111111-0000-4000-8000-000000000003\n' |
    sfdisk --quiet "$(by wwn-0x5000c50000000401)"
printf 'label: dos\nlabel-id: 0x22222222\nstart=256, size=4096, type=5\nstart=512, size=1024, type=83\n' |
    sfdisk --quiet "$(by nvme-QEMU_NVMe_Ctrl_NVME0001_3)"
udevadm settle
mkfs.ext4 -q -U 11111111-0000-4000-8000-000000000004 "$(by wwn-0x5000c50000000401-part1)"
mkdir -p /srv/four && mount "$(by wwn-0x5000c50000000401-part1)" /srv/four
mkswap --quiet -U 11111111-0000-4000-8000-000000000005 "$(by wwn-0x5000c50000000401-part2)" && swapon "$(by wwn-0x5000c50000000401-part2)"

# Two disks that call themselves the same and are not: they hold different things.
for disk in /dev/disk/by-path/*-scsi-0:0:5:0; do
    echo "$disk" > "$disk"
done

# A file system on a stick, and one with a hostile label on the hostile disk.
mkfs.ext4 -q -U 33333333-0000-4000-8000-000000000001 "$(by usb-QEMU_QEMU_HARDDISK_USB0001-0:0)"
mkfs.ext4 -q -U 33333333-0000-4000-8000-000000000002 -L "$(printf '\033[2Jowned')" /dev/disk/by-path/*-scsi-0:0:2:0
# udev may have looked at a disk before all was written to it.
udevadm settle
udevadm trigger --action=change --subsystem-match=block --property-match=ID_BUS=scsi --property-match=ID_BUS=usb
udevadm settle

# The network is there when its NICs have their addresses, and the bond uses its first one.
/lib/systemd/systemd-networkd-wait-online --interface=enp0s16:routable --interface=enp0s17:routable --interface=bond0:routable --interface=vlan7:routable
until [ "$(cat /sys/class/net/bond0/bonding/active_slave)" = enp0s14 ]; do sleep 0.1; done
