//! Disk contents: the public images of what can hold a disk, and machines whose disks are files with such contents.

use std::fs::File;
use std::io::Read as _;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Arc, OnceLock};

use hwprobe::{Disk, ImageEnds, Inventory, Namer, Options, Roots, Sources, Warning, Wipefs, holds::Token};

use super::{END, Tree, hwdata};

/// Contents are kept in pieces of so many bytes, those of zeros left out.
const PIECE: usize = 4096;
static ZERO: [u8; PIECE] = [0; PIECE];

/// The contents of a disk: everything that no piece has is zero.
#[derive(Clone, Debug, Default)]
pub struct Contents {
    pub size: u64,
    pieces: Vec<(u64, Vec<u8>)>,
}

impl Contents {
    pub fn zeros(size: u64) -> Self {
        Self { size, pieces: Vec::new() }
    }

    /// Writes bytes at a place; what is behind the end of the disk is lost.
    pub fn write(mut self, at: u64, bytes: &[u8]) -> Self {
        let room = usize::try_from(self.size.saturating_sub(at)).unwrap_or(usize::MAX);
        let bytes = &bytes[..bytes.len().min(room)];
        if !bytes.is_empty() {
            self.pieces.push((at, bytes.to_vec()));
        }
        self
    }

    /// Lays another disk's contents over these, zeros too.
    pub fn lay(mut self, at: u64, other: &Contents) -> Self {
        let end = (at + other.size).min(self.size);
        if at < end {
            let mut kept = Vec::new();
            for (from, piece) in self.pieces {
                let to = from + piece.len() as u64;
                if from < at {
                    let n = usize::try_from(to.min(at) - from).unwrap();
                    kept.push((from, piece[..n].to_vec()));
                }
                if to > end {
                    let n = usize::try_from(end.saturating_sub(from)).unwrap();
                    kept.push((from.max(end), piece[n..].to_vec()));
                }
            }
            self.pieces = kept;
        }
        for (from, piece) in &other.pieces {
            self = self.write(at + from, piece);
        }
        self
    }

    /// Cuts, or adds zeros.
    pub fn resize(mut self, size: u64) -> Self {
        self.size = size;
        let pieces = std::mem::take(&mut self.pieces);
        pieces.into_iter().fold(self, |all, (at, piece)| all.write(at, &piece))
    }

    /// Without its first `n` bytes.
    pub fn shift(mut self, n: u64) -> Self {
        self.size -= n;
        let cut = |(at, piece): (u64, Vec<u8>)| {
            let lost = usize::try_from(n.saturating_sub(at)).unwrap_or(usize::MAX).min(piece.len());
            (at.max(n) - n, piece[lost..].to_vec())
        };
        self.pieces = self.pieces.into_iter().map(cut).filter(|(_, piece)| !piece.is_empty()).collect();
        self
    }

    /// Whether a byte of either end is not zero, found the slow way.
    pub fn shows(&self) -> bool {
        // A piece that was overwritten stays in the list: what was written last counts.
        let n = self.size.min(END as u64);
        let mut ends = [(0, vec![0; END]), (self.size - n, vec![0; END])];
        for (at, piece) in &self.pieces {
            for (start, end) in &mut ends {
                for (at, byte) in (*at..).zip(piece).filter(|(at, _)| (*start..*start + n).contains(at)) {
                    end[usize::try_from(at - *start).unwrap()] = *byte;
                }
            }
        }
        ends.iter().any(|(_, end)| end.iter().any(|byte| *byte != 0))
    }

    pub fn put(&self, path: &Path) {
        let file = File::create(path).unwrap();
        file.set_len(self.size).unwrap();
        self.pieces.iter().for_each(|(at, piece)| file.write_all_at(piece, *at).unwrap());
    }
}

/// An image that lies beside the repository.
#[derive(Debug)]
pub struct Image {
    pub name: String,
    pub contents: Contents,
}

/// Where they are; none, after a word of why, where they are not.
fn paths() -> Vec<PathBuf> {
    let Some(data) = hwdata() else { return Vec::new() };
    let dirs = ["util-linux/blkid/images", "derived"];
    let all = dirs.iter().flat_map(|dir| super::files(&data.join(dir)));
    all.filter(|path| path.extension().is_some_and(|e| e == "xz")).collect()
}

/// One of them.
pub fn image(name: &str) -> Option<Image> {
    unpack(&paths().into_iter().find(|path| path.ends_with(format!("{name}.img.xz")))?)
}

/// All of them, read once. Empty, after a word of why, where they are not.
pub fn images() -> &'static [Image] {
    static IMAGES: OnceLock<Vec<Image>> = OnceLock::new();
    IMAGES.get_or_init(|| {
        let mut paths = paths();
        paths.sort();
        let halves: Vec<_> = paths.chunks(paths.len().div_ceil(2).max(1)).collect();
        let read = |paths: &[PathBuf]| paths.iter().map(|path| unpack(path)).collect::<Option<Vec<_>>>();
        let read = std::thread::scope(|scope| {
            let work: Vec<_> = halves.iter().map(|half| scope.spawn(|| read(half))).collect();
            work.into_iter().map(|w| w.join().unwrap()).collect::<Option<Vec<_>>>()
        });
        read.map(|halves| halves.into_iter().flatten().collect()).unwrap_or_else(|| {
            println!("skipped: no xz here");
            Vec::new()
        })
    })
}

fn unpack(path: &Path) -> Option<Image> {
    let mut child = Command::new("xz").args(["-dc", "--"]).arg(path).stdout(Stdio::piped()).spawn().ok()?;
    let mut pipe = child.stdout.take().unwrap();
    let mut contents = Contents::default();
    let mut buffer = vec![0; 256 * PIECE];
    loop {
        let mut n = 0;
        while n < buffer.len() {
            match pipe.read(&mut buffer[n..]).unwrap() {
                0 => break,
                more => n += more,
            }
        }
        if n == 0 {
            break;
        }
        for (k, piece) in buffer[..n].chunks(PIECE).enumerate() {
            // Comparing whole pieces: two gigabytes go through here, mostly zeros.
            if ZERO[..piece.len()] != *piece {
                contents.pieces.push((contents.size + (k * PIECE) as u64, piece.to_vec()));
            }
        }
        contents.size += n as u64;
    }
    assert!(child.wait().unwrap().success(), "{}", path.display());
    contents.size = contents.size.next_multiple_of(512).max(512);
    let name = path.file_name().unwrap().to_string_lossy().replace(".img.xz", "");
    Some(Image { name, contents })
}

/// Whether what was found gets a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Names {
    Wipefs,
    None,
}

struct Nobody;

impl Namer for Nobody {
    fn names(&self, _node: &str) -> Vec<Token> {
        Vec::new()
    }
}

/// A machine with a disk of each contents, read by the code that reads the nodes of a running machine; `udev` gives the lines of its record.
pub struct Disks {
    tree: Tree,
    room: tempfile::TempDir,
    count: usize,
}

impl Disks {
    pub fn new(contents: &[&Contents]) -> Self {
        let (tree, room) = (Tree::bare(), Tree::room());
        for (n, contents) in contents.iter().enumerate() {
            let (name, dev) = Self::place(n);
            tree.disk(&name, &dev, contents.size / 512).udev(&dev, &["ID_MODEL=x"]);
            contents.put(&room.path().join(&name));
        }
        Self { tree, room, count: contents.len() }
    }

    fn place(n: usize) -> (String, String) {
        (format!("vd{n}"), format!("254:{n}"))
    }

    pub fn file(&self, n: usize) -> PathBuf {
        self.room.path().join(Self::place(n).0)
    }

    /// The record of the `n`-th disk.
    pub fn udev(&self, n: usize, lines: &[&str]) -> &Self {
        self.tree.udev(&Self::place(n).1, lines);
        self
    }

    /// The disks in the order of their contents, each with its warnings.
    pub fn probe(&self, names: Names) -> Vec<(Disk, Vec<Warning>)> {
        let roots = Roots::under(self.tree.path()).unwrap();
        let mut sources = Sources::of(&roots);
        sources.ends = Arc::new(ImageEnds(Roots::under(self.room.path()).unwrap()));
        sources.namer = match names {
            Names::Wipefs => Box::new(Wipefs { dir: self.room.path().to_owned() }),
            Names::None => Box::new(Nobody),
        };
        let options = Options::default();
        let machine = hwprobe::probe_machine_with(&roots, &sources, &options);
        let inventory = Inventory::assemble(machine, hwprobe::probe_network(&roots, &options));
        let one = |n: usize| {
            let name = Self::place(n).0;
            let at = format!("disks/{name}");
            let warnings = inventory.warnings.iter().filter(|w| w.at == at).cloned().collect();
            (super::disk(&inventory, &name).clone(), warnings)
        };
        (0..self.count).map(one).collect()
    }
}
