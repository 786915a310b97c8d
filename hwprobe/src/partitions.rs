//! Partitions, and what is free behind the last one.
//!
//! May touch: sysfs. Must never: take a property of the disk for one of its partition (udev copies `ID_SERIAL`,
//! `ID_WWN` and `ID_PART_TABLE_TYPE` down).

use crate::blockdev::BlockDev;
use crate::facts::Facts;
use crate::holds::Token;
use crate::inventory::Partition;
use crate::roots::Roots;
use crate::text::Text;
use crate::udevdb::Properties;
use crate::warning::Code;

/// Partitions of one disk.
pub(crate) const MAX: usize = 256;
const MIB: u64 = 1024 * 1024;
/// Entries of a GPT: 128 of 128 bytes (UEFI 2.10, 5.3.2).
const GPT_ENTRIES: u64 = 16 * 1024;

/// One partition; `None` when its extents are not known.
pub(crate) fn one(
    roots: &Roots,
    dev: &BlockDev,
    udev: Option<&Properties>,
    holds: Vec<Token>,
    mounts: Vec<Text<1024>>,
    facts: &mut Facts<'_>,
) -> Option<Partition> {
    let sectors = |file: &str| roots.number(&format!("{}/{file}", dev.dir)).map(|n| n.saturating_mul(512));
    let (Ok(start_bytes), Ok(size_bytes)) = (sectors("start"), sectors("size")) else {
        let detail = format!("the extents of {} are not known", dev.name);
        facts.warnings.note(&facts.at, Code::Invalid, "partitions", &detail);
        return None;
    };
    let text = |key: &str| udev.and_then(|p| p.bytes(key)).map(<[u8]>::to_vec);
    Some(Partition {
        name: Text::of(&dev.name)?,
        number: dev.number,
        start_bytes,
        size_bytes,
        type_code: text("ID_PART_ENTRY_TYPE")
            .map(|t| t.to_ascii_lowercase())
            .and_then(|t| facts.text("partitions", &t)),
        label: udev.and_then(|p| p.decoded("ID_PART_ENTRY_NAME")).and_then(|l| facts.text("partitions", &l)),
        uuid: text("ID_PART_ENTRY_UUID").and_then(|u| facts.text("partitions", &u)),
        holds,
        mounts,
    })
}

/// Bytes free between the last partition and the end of the disk, both on MiB boundaries, without the backup GPT.
pub(crate) fn tail_free(table: &str, size: u64, block: Option<u32>, partitions: &[Partition]) -> u64 {
    let block = u64::from(block.unwrap_or(512)).max(1);
    let backup = if table == "gpt" { (GPT_ENTRIES.div_ceil(block) + 1) * block } else { 0 };
    let end = size.saturating_sub(backup) / MIB * MIB;
    // The table itself has the first MiB.
    let last = partitions.iter().map(|p| p.start_bytes.saturating_add(p.size_bytes)).max().unwrap_or(1);
    end.saturating_sub(last.div_ceil(MIB).saturating_mul(MIB))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn part(start: u64, size: u64) -> Partition {
        Partition {
            name: crate::holds::ours("sda1"),
            number: 1,
            start_bytes: start,
            size_bytes: size,
            type_code: None,
            label: None,
            uuid: None,
            holds: Vec::new(),
            mounts: Vec::new(),
        }
    }

    #[test]
    fn the_backup_table_and_the_boundaries_are_not_free() {
        let size = 100 * MIB;
        assert_eq!(tail_free("gpt", size, Some(512), &[part(MIB, 10 * MIB)]), 88 * MIB);
        assert_eq!(tail_free("dos", size, Some(512), &[part(MIB, 10 * MIB + 1)]), 88 * MIB);
        assert_eq!(tail_free("gpt", size, Some(4096), &[part(MIB, 99 * MIB)]), 0);
        assert_eq!(tail_free("dos", size, None, &[]), 99 * MIB);
    }

    #[test]
    fn the_example_of_the_documentation_comes_out() {
        let parts = [part(1_048_576, 536_870_912), part(537_919_488, 107_374_182_400)];
        assert_eq!(tail_free("gpt", 2_000_398_934_016, Some(512), &parts), 1_892_486_742_016);
    }
}
