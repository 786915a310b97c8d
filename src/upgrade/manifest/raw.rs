//! The fields of `stratum.release/1` as they stand in the text: rules M6 and M7. Touches nothing.
//!
//! Only names, types and lengths are looked at here; what the values mean is `rules.rs`. Unknown fields are passed over, so that an older
//! agent reads a newer release that does not name them in `critical`.

use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;

use serde::Deserialize;
use serde::de::value::MapAccessDeserializer;
use serde::de::{Deserializer, Error, MapAccess, SeqAccess, Visitor};

use super::super::refusal::{Refusal, Rule};
use super::super::version::{MAX_SEQUENCE, Version};
use super::super::{CHUNK, Digest};
use super::{MAX_BLOBS, MAX_CMDLINE, MAX_FILES, MAX_INITRDS, MAX_SYSEXTS, SCHEMA};

/// Longest string that is not `chunks`, bytes.
const MAX_STRING: usize = 256;
/// Every top-level field that this reader understands.
const FIELDS: [&str; 13] = [
    "schema",
    "critical",
    "product",
    "arch",
    "release",
    "sequence",
    "minUpgradeFrom",
    "created",
    "notAfter",
    "chunkSize",
    "os",
    "sysexts",
    "files",
];
/// What comes before the number of the schema.
const SCHEMA_NAME: &str = "stratum.release/";

/// The whole statement.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Raw<'a> {
    #[serde(borrow)]
    schema: Short<'a>,
    /// Read for M6; here only that it is there.
    #[serde(rename = "critical")]
    _critical: Capped<Short<'a>, 64>,
    pub(super) product: Short<'a>,
    pub(super) arch: Short<'a>,
    release: Short<'a>,
    pub(super) sequence: u64,
    min_upgrade_from: Short<'a>,
    pub(super) created: Short<'a>,
    pub(super) not_after: Option<Short<'a>>,
    chunk_size: u64,
    pub(super) os: Object<RawOs<'a>>,
    pub(super) sysexts: Capped<Object<RawSysext<'a>>, MAX_SYSEXTS>,
    pub(super) files: Capped<Object<RawFile<'a>>, MAX_FILES>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct RawOs<'a> {
    #[serde(borrow)]
    pub(super) version_id: Short<'a>,
    pub(super) ab: Option<Object<RawAb<'a>>>,
    pub(super) oci: Option<Object<RawOci<'a>>>,
}

#[derive(Deserialize)]
pub(super) struct RawAb<'a> {
    #[serde(borrow)]
    pub(super) root: Object<RawRoot<'a>>,
    pub(super) linux: Short<'a>,
    pub(super) initrds: Capped<Short<'a>, MAX_INITRDS>,
    pub(super) cmdline: Capped<Short<'a>, MAX_CMDLINE>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct RawRoot<'a> {
    #[serde(borrow)]
    pub(super) path: Short<'a>,
    pub(super) format: Short<'a>,
    pub(super) fstype: Short<'a>,
    pub(super) raw_size: u64,
    pub(super) raw_sha256: Short<'a>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct RawOci<'a> {
    #[serde(borrow)]
    pub(super) layout: Short<'a>,
    pub(super) index: Short<'a>,
    pub(super) image_digest: Short<'a>,
    pub(super) blobs: Capped<Short<'a>, MAX_BLOBS>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct RawSysext<'a> {
    #[serde(borrow)]
    pub(super) name: Short<'a>,
    pub(super) path: Short<'a>,
    pub(super) version_id: Short<'a>,
    pub(super) required: bool,
}

#[derive(Deserialize)]
pub(super) struct RawFile<'a> {
    #[serde(borrow)]
    pub(super) path: Short<'a>,
    pub(super) size: u64,
    pub(super) sha256: Short<'a>,
    #[serde(borrow)]
    pub(super) chunks: Option<Cow<'a, str>>,
}

/// What decides whether this reader may read on.
#[derive(Deserialize)]
struct Head<'a> {
    #[serde(borrow)]
    schema: Option<Short<'a>>,
    #[serde(borrow)]
    critical: Option<Capped<Short<'a>, 64>>,
}

/// The fields that become types of their own.
pub(super) struct Typed {
    pub(super) release: Version,
    pub(super) min_upgrade_from: Version,
    pub(super) image_digest: Option<Digest>,
}

/// M6, then M7.
pub(super) fn read(text: &str) -> Result<(Raw<'_>, Typed), Refusal> {
    let wrong_type = |error: serde_json::Error| Refusal::invalid(Rule::M7, error);
    let head: Head<'_> = serde_json::from_str(text).map_err(wrong_type)?;
    understood(&head)?;
    let raw: Raw<'_> = serde_json::from_str(text).map_err(wrong_type)?;
    let typed = typed(&raw)?;
    Ok((raw, typed))
}

fn understood(head: &Head<'_>) -> Result<(), Refusal> {
    let newer = |what: String| Refusal::invalid(Rule::M6, format_args!("made for a newer installer: {what}"));
    if let Some(Short(schema)) = &head.schema {
        // Something that is no schema of releases at all is a wrong value and not a newer one.
        let major = schema.strip_prefix(SCHEMA_NAME).filter(|_| schema != SCHEMA);
        if major.is_some() {
            return Err(newer(format!("its schema is {schema}")));
        }
    }
    let named = head.critical.iter().flat_map(|critical| &critical.items);
    if let Some(Short(name)) = named.into_iter().find(|name| !FIELDS.contains(&&*name.0)) {
        return Err(newer(format!("`{name}` must be understood")));
    }
    Ok(())
}

fn typed(raw: &Raw<'_>) -> Result<Typed, Refusal> {
    let wrong = |field: &str, value: &str, what: &str| {
        Refusal::invalid(Rule::M7, format_args!("{field} is `{value}`, not {what}"))
    };
    if raw.schema.0 != SCHEMA {
        return Err(wrong("schema", &raw.schema.0, SCHEMA));
    }
    if raw.chunk_size != CHUNK {
        return Err(wrong("chunkSize", &raw.chunk_size.to_string(), &CHUNK.to_string()));
    }
    if !(1..=MAX_SEQUENCE).contains(&raw.sequence) {
        return Err(wrong("sequence", &raw.sequence.to_string(), "1 to 2^53-1"));
    }
    let version = |field, Short(text): &Short<'_>| {
        text.parse::<Version>().map_err(|_| wrong(field, text, "a release N.N.N[-pre]"))
    };
    let image_digest = match &raw.os.0.oci {
        None => None,
        Some(Object(oci)) => {
            let text = &oci.image_digest.0;
            let digest = text.strip_prefix("sha256:").and_then(|hex| hex.parse::<Digest>().ok());
            Some(digest.ok_or_else(|| wrong("os.oci.imageDigest", text, "sha256:<64 hex>"))?)
        }
    };
    Ok(Typed {
        release: version("release", &raw.release)?,
        min_upgrade_from: version("minUpgradeFrom", &raw.min_upgrade_from)?,
        image_digest,
    })
}

// === types that take less than serde would ===

/// A string of at most [`MAX_STRING`] bytes.
#[derive(Clone)]
pub(super) struct Short<'a>(pub(super) Cow<'a, str>);

/// A list. Every element is read and checked, and of more than `MAX` only the first are kept: the rule that counts them comes later.
pub(super) struct Capped<T, const MAX: usize> {
    pub(super) items: Vec<T>,
    pub(super) more: bool,
}

/// A JSON object. What serde derives would take an array of the values as well.
pub(super) struct Object<T>(pub(super) T);

impl<'de: 'a, 'a> Deserialize<'de> for Short<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        struct Borrowed<'b>(#[serde(borrow)] Cow<'b, str>);
        let Borrowed(text) = Borrowed::deserialize(deserializer)?;
        if text.len() > MAX_STRING {
            return Err(D::Error::custom(format_args!("a string of more than {MAX_STRING} bytes")));
        }
        Ok(Self(text))
    }
}

impl<'de, T: Deserialize<'de>, const MAX: usize> Deserialize<'de> for Capped<T, MAX> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct List<T, const MAX: usize>(PhantomData<T>);
        impl<'de, T: Deserialize<'de>, const MAX: usize> Visitor<'de> for List<T, MAX> {
            type Value = Capped<T, MAX>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a list")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Self::Value, A::Error> {
                let mut list = Capped { items: Vec::new(), more: false };
                while let Some(item) = seq.next_element()? {
                    if list.items.len() < MAX {
                        list.items.push(item);
                    } else {
                        list.more = true;
                    }
                }
                Ok(list)
            }
        }
        deserializer.deserialize_seq(List(PhantomData))
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Object<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Fields<T>(PhantomData<T>);
        impl<'de, T: Deserialize<'de>> Visitor<'de> for Fields<T> {
            type Value = Object<T>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Self::Value, A::Error> {
                T::deserialize(MapAccessDeserializer::new(map)).map(Object)
            }
        }
        deserializer.deserialize_map(Fields(PhantomData))
    }
}
