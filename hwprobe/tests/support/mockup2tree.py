#!/usr/bin/env python3
"""Makes a captured tree of each machine that libstorage-ng recorded, and says what its devicegraph expects of it.

    mockup2tree.py PROBE_DIR OUT_DIR

OUT_DIR/<machine>/ is the tree, OUT_DIR/<machine>.json the expected answer. What was not recorded is not made up.
"""
import glob
import json
import os
import re
import sys
import xml.etree.ElementTree as ET

# One process for all machines, and a child of it for each: a start of Python takes longer than the work.
for record in sorted(glob.glob(os.path.join(sys.argv[1], "*-mockup*.xml"))):
    if os.fork() == 0:
        break
    if os.wait()[1] != 0:
        sys.exit(f"{record}: no tree")
else:
    sys.exit(0)
# Several records of one machine have one graph.
machine, which = re.match(r"(.+)-mockup(\d*)\.xml$", os.path.basename(record)).groups()
graph = os.path.join(sys.argv[1], f"{machine}-devicegraph{'1' if which else ''}.xml")
mockup, graph = ET.parse(record).getroot(), ET.parse(graph).getroot()
root = os.path.join(sys.argv[2], machine + which)


def put(path, text):
    path = os.path.normpath(os.path.join(root, path.lstrip("/")))
    assert path.startswith(os.path.normpath(root) + os.sep), path
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w") as out:
        out.write(text)


def link(path, target):
    path = os.path.join(root, path)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    if not os.path.lexists(path):
        os.symlink(target, path)


def lines(node, tag):
    return [line.text or "" for line in node.findall(tag)]


commands = {c.find("name").text: lines(c, "stdout") for c in mockup.iter("Command")}
files = {f.find("name").text: lines(f, "content") for f in mockup.iter("File")}


def output(part):
    return next((text for name, text in commands.items() if part in name), [])


def report(program, kind):
    try:
        return json.loads("\n".join(output(f"/sbin/{program} --reportformat json")))["report"][0][kind]
    except ValueError:
        # Not recorded, or (lvm-unsupported1) no JSON.
        return []


def mangled(name):
    """A name of device-mapper as udev writes it."""
    return "".join(c if c.isalnum() or c in "#+-.:=@_" else f"\\x{ord(c):02x}" for c in name)


# Devices, as udev knows them.
numbers, paths, names = {}, {}, {}
for name, text in commands.items():
    if not name.startswith("/usr/bin/udevadm info /dev/"):
        continue
    path = next((line[3:] for line in text if line.startswith("P: ")), None)
    env = dict(line[3:].split("=", 1) for line in text if line.startswith("E: ") and "=" in line)
    if not path or "MAJOR" not in env:
        continue
    dev, kname = f"{env['MAJOR']}:{env['MINOR']}", os.path.basename(path)
    paths[kname], names[dev] = path, kname
    for alias in [env.get("DEVNAME", ""), *env.get("DEVLINKS", "").split()]:
        numbers[alias] = dev
    kind = env.get("DEVTYPE", "disk")
    put(f"sys{path}/dev", dev + "\n")
    number = f"PARTN={env['ID_PART_ENTRY_NUMBER']}\n" if "ID_PART_ENTRY_NUMBER" in env else ""
    put(f"sys{path}/uevent", f"MAJOR={env['MAJOR']}\nMINOR={env['MINOR']}\nDEVNAME={kname}\nDEVTYPE={kind}\n{number}")
    os.makedirs(os.path.join(root, f"sys{path}/holders"), exist_ok=True)
    if kind == "partition":
        number = re.search(r"\d+$", kname)[0]
        put(f"sys{path}/partition", number + "\n")
        # Where udev did not look, parted did: number:start:end:size, each in sectors.
        disk = os.path.basename(os.path.dirname(path))
        rows = [row.split(":") for row in output(f"--machine /dev/{disk} unit s print")]
        cut = next(({"start": r[1][:-1], "size": r[3][:-1]} for r in rows if r[0] == number), {})
        for field, key in [("start", "ID_PART_ENTRY_OFFSET"), ("size", "ID_PART_ENTRY_SIZE")]:
            put(f"sys{path}/{field}", env.get(key, cut.get(field, "")) + "\n")
    else:
        link(f"sys/block/{kname}", f"..{path}")
        if kname.startswith(("sd", "sr")):
            put(f"sys{path}/device/type", ("0" if kname[1] == "d" else "5") + "\n")
    if "DM_UUID" in env:
        put(f"sys{path}/dm/uuid", env["DM_UUID"] + "\n")
        put(f"sys{path}/dm/name", bytes(env.get("DM_NAME", ""), "utf-8").decode("unicode_escape") + "\n")
        numbers["/dev/mapper/" + env.get("DM_NAME", "")] = dev
    kept = [line.replace(": ", ":", 1) for line in text if line.startswith(("S: ", "E: "))]
    put(f"run/udev/data/b{dev}", "\n".join([f"I:{env.get('USEC_INITIALIZED', '1')}", *kept]) + "\n")
for path, text in files.items():
    if path.startswith("/sys/devices/") and ".." not in path:
        put(path, "\n".join(text) + "\n")
majors = {(dev.split(":")[0], "device-mapper" if k.startswith("dm-") else re.match("[a-z]+", k)[0]) for dev, k in names.items()}
put("proc/devices", "Block devices:\n" + "".join(f"{n} {driver}\n" for n, driver in sorted(majors)))


# What stands on what.
def edge(below, above):
    if below in paths and above in paths:
        link(f"sys{paths[below]}/holders/{above}", f"/sys{paths[above]}")
        link(f"sys{paths[above]}/slaves/{below}", f"/sys{paths[below]}")


by_label = {alias[12:]: names[dev] for alias, dev in numbers.items() if alias.startswith("/dev/mapper/")}
for row in output("dmsetup table"):
    label, _, table = row.partition(": ")
    for dev in re.findall(r"(?<= )\d+:\d+(?= |$)", table):
        edge(names.get(dev), by_label.get(mangled(label)))
# Volumes by their group: not every record has the tables of device-mapper, and hidden volumes are in none.
groups = {}
for pv in report("pvs", "pv"):
    groups.setdefault(pv["vg_name"], []).append(names.get(numbers.get(pv["pv_name"])))
for lv in report("lvs", "lv"):
    label = "-".join(part.replace("-", "--") for part in (lv["vg_name"], lv["lv_name"]))
    for pv in groups.get(lv["vg_name"], []):
        edge(pv, by_label.get(label))
for row in output("dmraid --sets"):
    match = re.match(r"/dev/(\w+):\w+:([^:]+):", row)
    if match:
        edge(match[1], by_label.get(match[2]))
current = None
for row in output("multipath -d"):
    match = re.match(r"\S+ (?:\(\S+\) )?(dm-\d+) ", row)
    current = match[1] if match else current
    match = re.search(r"\d+:\d+:\d+:\d+ (\w+) ", row)
    if match:
        edge(match[1], current)
for label, kname in list(by_label.items()):
    match = re.match(r"(.+)[-_]part\d+$", label)
    if match and match[1] in by_label:
        edge(by_label[match[1]], kname)
mdstat = files.get("/proc/mdstat", [])
for row, after in zip(mdstat, mdstat[1:] + [""]):
    match = re.match(r"(md\w+) : (\w+)(?: \([\w-]+\))?(.*)", row)
    if not match or match[1] not in paths:
        continue
    words = match[3].split()
    for member in re.findall(r"(\w+)\[\d+\]", match[3]):
        edge(member, match[1])
    level = words[0] if words and "[" not in words[0] else ""
    version = re.search(r"super (\S+)", after)
    put(f"sys{paths[match[1]]}/md/level", (level or "container") + "\n")
    put(f"sys{paths[match[1]]}/md/metadata_version", (version[1] if version else "0.90") + "\n")
for path, text in files.items():
    match = re.match(r"/sys/devices/virtual/block/(bcache\d+)/bcache/\.\./dev$", path)
    if match:
        os.makedirs(os.path.join(root, f"sys/devices/virtual/block/{match[1]}/bcache"), exist_ok=True)
        edge(names.get(text[0]), match[1])
    if re.match(r"/sys/fs/bcache/[^/]+/cache\d+/\.\./dev$", path):
        for kname in [k for k in paths if re.match(r"bcache\d+$", k)]:
            edge(names.get(text[0]), kname)

# Mounts.
def device(source):
    return numbers.get(re.sub(r"\\([0-7]{3})", lambda m: chr(int(m[1], 8)), source))


mountinfo = ["1 0 0:1 / / rw - rootfs rootfs rw"]
mounted = set()
for row in files.get("/proc/mounts", []):
    source, point, fstype, options = row.split()[:4]
    dev = device(source)
    if dev and not names[dev].startswith(("sr", "loop", "zram")):
        mounted.add(re.sub(r"\\([0-7]{3})", lambda m: chr(int(m[1], 8)), point))
    mountinfo.append(f"2 1 {'0:99' if fstype == 'btrfs' or not dev else dev} / {point} rw - {fstype} {source} {options}")
for row in files.get("/proc/swaps", [])[1:]:
    dev = device(row.split()[0])
    mounted |= {"[SWAP]"} if dev and not names[dev].startswith("zram") else set()
put("proc/1/mountinfo", "\n".join(mountinfo) + "\n")
put("proc/swaps", "\n".join(files.get("/proc/swaps", ["Filename Type Size Used Priority"])) + "\n")
os.makedirs(os.path.join(root, "sys/class/net"), exist_ok=True)

# What the devicegraph says.
devices = {d.find("sid").text: d for d in graph.find("Devices")}
above = {}
for holder in graph.find("Holders") if graph.find("Holders") is not None else []:
    above.setdefault(holder.find("source-sid").text, []).append(holder.find("target-sid").text)


def text(device, tag, default=""):
    node = device.find(tag)
    return node.text if node is not None and node.text else default


def extent(device):
    region = device.find("region")
    block = int(text(region, "block-size"))
    return [int(text(region, "start", "0")) * block, int(text(region, "length")) * block]


def reach(sid):
    seen, work = [], [sid]
    while work:
        for up in above.get(work.pop(), []):
            if up not in seen:
                seen.append(up)
                work.append(up)
    return seen


def sysfs(sid):
    return text(devices[sid], "sysfs-name")


# What the probe lists as standing on a disk: no partition of an array.
layer = re.compile(r"dm-\d+$|md(\d+|_\w*?)$(?<!p\d)")
disks = []
for sid, device in devices.items():
    if device.tag not in ("Disk", "Dasd"):
        continue
    seen = reach(sid)
    tables = [s for s in above.get(sid, []) if devices[s].tag in ("Gpt", "Msdos", "DasdPt", "ImplicitPt")]
    maps = [s for s in above.get(sid, []) if devices[s].tag == "Multipath"]
    for up in maps:
        tables += [s for s in above.get(up, []) if devices[s].tag in ("Gpt", "Msdos", "DasdPt")]
    parts = [p for table in tables for p in above.get(table, []) if devices[p].tag == "Partition"]
    parts += [q for p in parts for q in above.get(p, []) if devices[q].tag == "Partition"]
    disks.append({
        "name": sysfs(sid),
        "map": sysfs(maps[0]) if maps else None,
        "sizeBytes": extent(device)[1],
        "holds": bool(above.get(sid)),
        "partitions": sorted(extent(devices[p]) for p in parts),
        "stack": sorted({sysfs(s) for s in seen if layer.match(sysfs(s))}),
    })
with open(root + ".json", "w") as out:
    json.dump({
        "disks": disks,
        "known": sorted(sysfs(s) for s in devices if layer.match(sysfs(s))),
        "mounts": sorted(mounted),
    }, out)
