//! What a probe looked at, path by path, and how a tree is made of it that gives the same answers.
//!
//! May touch: links of the tree that is recorded. Must never: have a list of files of its own: what the probe opens is what is recorded.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Mutex, PoisonError};

use rustix::fs::FileType;

use crate::capture::Node;
use crate::finding::Missing;
use crate::roots::Roots;

/// Paths that could not be read when the tree was recorded, each with the reason.
pub(crate) const UNREADABLE: &str = "capture/unreadable.json";
/// Links that are followed on one way, as in the kernel.
const MAX_LINKS: u32 = 40;

/// What a directory entry is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Kind {
    Dir,
    Link,
    /// A regular file.
    File,
    /// Anything else, or what the file system does not say.
    Other,
}

/// One look.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Entry {
    File(Vec<u8>),
    Link(String),
    Dir(Vec<(String, Kind)>),
    /// Something that is no directory; its contents were not asked for.
    Exists,
}

/// A way to look at a path: one can fail where another does not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    Read,
    List,
    Link,
    Stat,
}

/// All looks of a probe. The last one at a path counts, and contents count more than existence.
#[derive(Debug, Default)]
pub(crate) struct Recording(Mutex<Seen>);

#[derive(Debug, Default)]
struct Seen {
    entries: BTreeMap<String, Entry>,
    failures: BTreeMap<String, Missing>,
}

// === impl Kind ===

impl Kind {
    pub(crate) fn of(kind: FileType) -> Self {
        match kind {
            FileType::Directory => Self::Dir,
            FileType::Symlink => Self::Link,
            FileType::RegularFile => Self::File,
            _ => Self::Other,
        }
    }
}

// === impl Way ===

impl Way {
    /// The name of a look that failed, in [`UNREADABLE`]: the path, with a mark for all ways but reading.
    pub(crate) fn key(self, path: &str) -> String {
        let mark = match self {
            Self::Read => "",
            Self::List => "/",
            Self::Link => "@",
            Self::Stat => "?",
        };
        format!("{path}{mark}")
    }

    fn path(key: &str) -> &str {
        key.trim_end_matches(['/', '@', '?'])
    }
}

// === impl Entry ===

impl Entry {
    fn rank(&self) -> u8 {
        match self {
            Self::Exists => 0,
            Self::Dir(names) if names.is_empty() => 1,
            _ => 2,
        }
    }
}

// === impl Recording ===

impl Recording {
    pub(crate) fn note(&self, path: &str, entry: Entry) {
        let mut seen = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if seen.entries.get(path).is_none_or(|old| old.rank() <= entry.rank()) {
            seen.entries.insert(path.to_owned(), entry);
        }
    }

    pub(crate) fn failed(&self, path: &str, way: Way, why: Missing) {
        let mut seen = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        seen.failures.insert(way.key(path), why);
    }

    /// The tree, and what could not be read. `roots` is what was recorded: its links are looked at once more, so that a file lies where it
    /// lies there.
    pub(crate) fn tree(&self, roots: &Roots) -> (BTreeMap<String, Node>, BTreeMap<String, Missing>) {
        let seen = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut walk = Walk { roots, links: HashMap::new() };
        let mut nodes = BTreeMap::new();
        for (path, entry) in &seen.entries {
            let place = walk.canonical(path, !matches!(entry, Entry::Link(_)));
            let Some(place) = place.filter(|p| !p.is_empty()) else { continue };
            match entry {
                Entry::File(bytes) => drop(nodes.insert(place, Node::File(bytes.clone()))),
                Entry::Link(target) => drop(nodes.insert(place, Node::Link(target.clone()))),
                Entry::Dir(names) => {
                    // The attributes of a device are files that count when they are read; elsewhere a name alone can say something.
                    let device = names.iter().any(|(name, _)| name == "uevent");
                    for (name, kind) in names {
                        let path = format!("{place}/{name}");
                        match kind {
                            Kind::Dir => drop(nodes.entry(path).or_insert(Node::Dir)),
                            Kind::Link => drop(walk.link(&path)),
                            Kind::File | Kind::Other if device => {}
                            Kind::File | Kind::Other => {
                                nodes.entry(path).or_insert(Node::File(Vec::new()));
                            }
                        }
                    }
                    nodes.entry(place).or_insert(Node::Dir);
                }
                Entry::Exists => drop(nodes.entry(place).or_insert(Node::File(Vec::new()))),
            }
        }
        for key in seen.failures.keys() {
            let place = walk.canonical(Way::path(key), true).filter(|p| !p.is_empty());
            place.map(|place| nodes.entry(place).or_insert(Node::File(Vec::new())));
        }
        for (path, target) in walk.links {
            if let Some(target) = target {
                nodes.insert(path, Node::Link(target));
            }
        }
        (nodes, seen.failures.clone())
    }
}

/// Follows paths through the links of the recorded tree.
struct Walk<'a> {
    roots: &'a Roots,
    links: HashMap<String, Option<String>>,
}

// === impl Walk ===

impl Walk<'_> {
    fn link(&mut self, path: &str) -> Option<String> {
        let roots = self.roots;
        self.links.entry(path.to_owned()).or_insert_with(|| roots.read_link(path).ok()).clone()
    }

    /// Where `path` really is. `None`: too many links.
    fn canonical(&mut self, path: &str, follow_last: bool) -> Option<String> {
        let mut todo: Vec<String> = path.split('/').rev().map(str::to_owned).collect();
        let mut place: Vec<String> = Vec::new();
        let mut followed = 0;
        while let Some(part) = todo.pop() {
            match part.as_str() {
                "" | "." => continue,
                ".." => {
                    place.pop();
                    continue;
                }
                _ => place.push(part),
            }
            if todo.is_empty() && !follow_last {
                break;
            }
            let Some(target) = self.link(&place.join("/")) else { continue };
            followed += 1;
            if followed > MAX_LINKS {
                return None;
            }
            place.pop();
            if target.starts_with('/') {
                place.clear();
            }
            todo.extend(target.split('/').rev().map(str::to_owned));
        }
        Some(place.join("/"))
    }
}
