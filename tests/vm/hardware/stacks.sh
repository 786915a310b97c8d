# What stands on the disks of the machine "stacks". Run once by root; every name and every UUID is fixed, so that two machines are the same.
udevadm settle
export IMSM_NO_PLATFORM=1
disk() { readlink -f "/dev/disk/by-id/scsi-0QEMU_QEMU_HARDDISK_$1"; }

# One disk behind two adapters, a partition on it, in use.
until dmsetup deps mpatha | grep -q '^2 dependencies'; do sleep 0.1; done
udevadm settle
printf 'label: gpt\nlabel-id: 11111111-0000-4000-8000-000000000001\nstart=2048, size=65536, uuid=11111111-0000-4000-8000-000000000002, name="data, two ways"\n' |
    sfdisk --quiet --no-reread --no-tell-kernel /dev/mapper/mpatha
# udev's rule does the same, but not while the map is just being changed.
until [ -e /dev/mapper/mpatha-part1 ]; do
    kpartx -a -p -part /dev/mapper/mpatha || true
    sleep 0.1
done
mkfs.ext4 -q -U 11111111-0000-4000-8000-000000000003 -L shared /dev/mapper/mpatha-part1
mkdir -p /srv/shared && mount /dev/mapper/mpatha-part1 /srv/shared

# A swap and a file system on logical volumes, on LUKS, on RAID 1, on two disks.
mdadm --quiet --create /dev/md/pair --run --metadata=1.2 --homehost=any --name=pair --assume-clean --level=1 --raid-devices=2 "$(disk MDA0001)" "$(disk MDB0001)"
printf '%064d' 7 > /run/key
cryptsetup luksFormat --batch-mode --type luks2 --pbkdf pbkdf2 --pbkdf-force-iterations 1000 --uuid 22222222-0000-4000-8000-000000000001 /dev/md/pair /run/key
cryptsetup open --key-file /run/key /dev/md/pair vault
vgcreate --quiet --yes vg_vault /dev/mapper/vault
lvcreate --quiet --yes --wipesignatures n --name swap --size 32M vg_vault
lvcreate --quiet --yes --wipesignatures n --name data --size 32M vg_vault
mkswap --quiet -U 22222222-0000-4000-8000-000000000002 /dev/vg_vault/swap && swapon /dev/vg_vault/swap
mkfs.ext4 -q -U 22222222-0000-4000-8000-000000000003 /dev/vg_vault/data
mkdir -p "/srv/a place" && mount /dev/vg_vault/data "/srv/a place"

# RAID 1 without its second disk, and a partition on it.
mdadm --quiet --create /dev/md/half --run --metadata=1.2 --homehost=any --name=half --level=1 --raid-devices=2 "$(disk DEGR0001)" missing
printf 'label: dos\nlabel-id: 0x33333333\nstart=2048, size=32768, type=83\n' | sfdisk --quiet /dev/md/half

# Intel's metadata: a container, and a volume in it.
mdadm --quiet --create /dev/md/intel --run --metadata=imsm --raid-devices=2 "$(disk IMSMA001)" "$(disk IMSMB001)"
mdadm --quiet --create /dev/md/volume --run --assume-clean --level=1 --raid-devices=2 /dev/md/intel

# A thin pool, and a volume in it.
vgcreate --quiet --yes vg_thin "$(disk THIN0001)"
lvcreate --quiet --yes --type thin-pool --poolmetadatasize 4M --size 64M --name pool --zero n vg_thin
lvcreate --quiet --yes --wipesignatures n --type thin --thinpool pool --virtualsize 256M --name volume vg_thin
mkfs.ext4 -q -U 44444444-0000-4000-8000-000000000001 /dev/vg_thin/volume

# Encrypted without a header: nothing on the disk says so.
cryptsetup open --type plain --cipher aes-xts-plain64 --key-size 256 --key-file /run/key "$(disk PLAIN001)" headless

# A cache in front of a disk.
modprobe bcache
make-bcache --bucket 128k -B "$(disk SLOW0001)" -C "$(disk FAST0001)" >/dev/null
udevadm settle
until [ -e /sys/block/bcache0/bcache ]; do sleep 0.1; done
mkfs.ext4 -q -U 55555555-0000-4000-8000-000000000004 /dev/bcache0
mkdir -p /srv/cached && mount /dev/bcache0 /srv/cached

# One file system on two disks.
mkfs.btrfs -q -U 66666666-0000-4000-8000-000000000001 -d single -m raid1 "$(disk BTRFSA01)" "$(disk BTRFSB01)"
mkdir -p /srv/both && mount "$(disk BTRFSA01)" /srv/both

# A volume group that nobody has switched on.
pvcreate --quiet --yes "$(disk FOREIGN1)"

# Only the second copy of a partition table is left.
printf 'label: gpt\nlabel-id: 77777777-0000-4000-8000-000000000001\nstart=2048, size=32768, uuid=77777777-0000-4000-8000-000000000002\n' | sfdisk --quiet --no-reread --no-tell-kernel "$(disk BACKUP01)"
dd if=/dev/zero of="$(disk BACKUP01)" bs=1M count=1 conv=notrunc status=none
blockdev --rereadpt "$(disk BACKUP01)"

# Data that no program has a name for.
printf 'backup of 1998, do not delete' > "$(disk TEXT0001)"

# udev may have looked at a device before all was written to it, and looks at a multipath map only when it is not just being changed: until it
# knows what is there.
known() {
    until udevadm info --query=property --name="$1" | grep -qx "$2"; do
        udevadm trigger --action=change "$1"
        udevadm settle
        sleep 0.1
    done
}
udevadm settle
udevadm trigger --action=change "$(disk BACKUP01)"
known "$(readlink -f /dev/mapper/mpatha)" ID_PART_TABLE_TYPE=gpt
known "$(readlink -f /dev/mapper/mpatha-part1)" ID_FS_TYPE=ext4
known "$(disk THIN0001)" ID_FS_TYPE=LVM2_member
known "$(disk FOREIGN1)" ID_FS_TYPE=LVM2_member
known "$(disk BTRFSA01)" ID_FS_TYPE=btrfs
known "$(disk BTRFSB01)" ID_FS_TYPE=btrfs
udevadm settle
/lib/systemd/systemd-networkd-wait-online --interface=enp0s6:routable
