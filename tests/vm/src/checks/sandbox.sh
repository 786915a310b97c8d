# Run in place of the agent, with its user and its sandbox. Each line: what was tried, and whether it was possible.
try() {
    what=$1
    shift
    if "$@" >/dev/null 2>&1; then echo "possible: $what"; else echo "refused: $what"; fi
}
try 'read the passwords' cat /etc/shadow
try 'read the delivered configuration' cat /etc/stratum/node.yaml
try 'write settings' touch /etc/stratum/planted
try 'write below /usr' touch /usr/bin/planted
try 'write beside its state' touch /var/lib/stratum/planted
try 'write into the directory of the helper' touch /run/stratum/planted
try 'replace the banner' mv -f /run/stratum-join/snapshot.json /run/stratum-join/issue
try 'write into a home' touch ~root/planted
try 'write a unit' touch /run/systemd/system/planted.service
try 'open the root disk' dd if=/dev/vda of=/dev/null count=1
try 'open the NVMe disk' dd if=/dev/nvme0n1 of=/dev/null count=1
try 'make a device node' mknod "$STATE_DIRECTORY/disk" b 254 0
try 'mount' mount -t tmpfs none /mnt
try 'become root' setpriv --reuid 0 true
try 'change an owner' chown root "$STATE_DIRECTORY/lock"
try 'enter a namespace' unshare --net true
try 'set the clock' date --set=2001-01-01
try 'load a module' modprobe dummy
try 'see the processes of others' test -e /proc/1/status
try 'read the log of the kernel' dmesg
try 'reboot' systemctl reboot
try 'write its state' sh -c 'echo x > "$STATE_DIRECTORY/sandbox-was-here" && rm "$STATE_DIRECTORY/sandbox-was-here"'
try 'write where the snapshot is' sh -c 'echo x > /run/stratum-join/sandbox-was-here && rm /run/stratum-join/sandbox-was-here'
