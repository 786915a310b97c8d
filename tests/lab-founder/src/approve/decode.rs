//! Reads an approve request and names every field that does not decode, not only the first (documented). Pure.

use std::fmt;

use serde::de::{self, Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use stratum_join::protocol::wire::FieldError;

use super::assignment::{Asked, AskedMgmt, Bond, DiskChoice, Link, ProviderChoice};
use crate::http::field;

/// Longest text of any field, in bytes.
const MAX_TEXT: usize = 253;
/// Most entries of a list.
const MAX_LIST: usize = 128;

/// JSON in which no key may stand twice: of two `confirm` one would win by luck.
#[derive(Debug, Clone)]
enum Json {
    Null,
    Text(String),
    Number(u32),
    List(Vec<Json>),
    Map(Vec<(String, Json)>),
    Other,
}

/// One object of the request and where it stands.
struct Fields<'e> {
    path: String,
    left: Vec<(String, Json)>,
    errors: &'e mut Vec<FieldError>,
}

/// Decodes the body. An empty body is an empty request.
pub(crate) fn approve_request(body: &[u8]) -> Result<Asked, Vec<FieldError>> {
    let mut errors = Vec::new();
    let json = if body.iter().all(u8::is_ascii_whitespace) {
        Json::Map(Vec::new())
    } else {
        serde_json::from_slice(body).map_err(|e| vec![field("", e.to_string())])?
    };
    let mut asked = Asked::default();
    if let Some(mut top) = Fields::open(String::new(), json, &mut errors) {
        asked.copy_from = top.text("copyFrom");
        if let Some((_, json)) = top.take("assignment")
            && let Some(mut fields) = Fields::open(String::new(), json, top.errors)
        {
            assignment(&mut asked, &mut fields);
            fields.done();
        }
        top.done();
    }
    if errors.is_empty() { Ok(asked) } else { Err(errors) }
}

fn assignment(asked: &mut Asked, fields: &mut Fields<'_>) {
    asked.name = fields.text("name");
    asked.role = fields.text("role");
    asked.rack = fields.text("rack");
    asked.az = fields.text("az");
    asked.mgmt = fields
        .object("mgmt", |m| AskedMgmt {
            interface: m.text("interface"),
            address: m.text("address"),
            gateway: m.text("gateway"),
            dns: m.texts("dns"),
        })
        .unwrap_or_default();
    asked.links = fields.objects("links", link);
    asked.disks = fields.objects("disks", disk).unwrap_or_default();
    asked.ntp_servers = fields.texts("ntpServers");
    asked.provider = fields
        .object("provider", |p| ProviderChoice {
            topology: p.text("topology"),
            upstream_interface: p.text("upstreamInterface"),
            vlan: p.number("vlan"),
        })
        .unwrap_or_default();
}

fn link(l: &mut Fields<'_>) -> Link {
    // Given back to us from a record that was shown; the founder decides it anew.
    let _ = l.take("addressesAllocated");
    Link {
        name: l.text("name").unwrap_or_default(),
        kind: l.text("kind").unwrap_or_else(|| "ethernet".to_owned()),
        interface: l.text("interface").unwrap_or_default(),
        parent: l.text("parent"),
        vlan_id: l.number("vlanId"),
        controller: l.text("controller"),
        bond: l.object("bond", |b| Bond {
            mode: b.text("mode").unwrap_or_default(),
            xmit_hash_policy: b.text("xmitHashPolicy"),
            miimon_ms: b.number("miimonMs"),
            lacp_rate: b.text("lacpRate"),
        }),
        addresses: l.texts("addresses").unwrap_or_default(),
        addresses_allocated: false,
        mtu: l.number("mtu"),
        purposes: l.texts("purposes").unwrap_or_default(),
    }
}

fn disk(d: &mut Fields<'_>) -> DiskChoice {
    DiskChoice {
        key: d.text("key").unwrap_or_default(),
        role: d.text("role").unwrap_or_default(),
        pool: d.text("pool"),
        storage_class: d.text("storageClass"),
        confirm: d.text("confirm"),
    }
}

// === impl Fields ===

impl<'e> Fields<'e> {
    fn open(path: String, json: Json, errors: &'e mut Vec<FieldError>) -> Option<Self> {
        match json {
            Json::Map(left) => Some(Self { path, left, errors }),
            Json::Null => None,
            _ => {
                errors.push(field(path, "must be an object"));
                None
            }
        }
    }

    fn at(&self, name: &str) -> String {
        if self.path.is_empty() { name.to_owned() } else { format!("{}.{name}", self.path) }
    }

    fn take(&mut self, name: &str) -> Option<(String, Json)> {
        let at = self.left.iter().position(|(key, _)| key == name)?;
        let (_, json) = self.left.remove(at);
        let path = self.at(name);
        Some((path, json)).filter(|(_, json)| !matches!(json, Json::Null))
    }

    fn text(&mut self, name: &str) -> Option<String> {
        let (path, json) = self.take(name)?;
        self.as_text(path, json)
    }

    fn as_text(&mut self, path: String, json: Json) -> Option<String> {
        match json {
            Json::Text(text) if text.len() <= MAX_TEXT && !text.chars().any(char::is_control) => Some(text),
            _ => {
                self.errors
                    .push(field(path, format!("must be a text of at most {MAX_TEXT} bytes on one line")));
                None
            }
        }
    }

    fn number(&mut self, name: &str) -> Option<u32> {
        match self.take(name)? {
            (_, Json::Number(n)) => Some(n),
            (path, _) => {
                self.errors.push(field(path, "must be a whole number"));
                None
            }
        }
    }

    fn list(&mut self, name: &str) -> Option<Vec<(String, Json)>> {
        match self.take(name)? {
            (path, Json::List(list)) if list.len() <= MAX_LIST => {
                Some(list.into_iter().enumerate().map(|(n, json)| (format!("{path}[{n}]"), json)).collect())
            }
            (path, _) => {
                self.errors.push(field(path, format!("must be a list of at most {MAX_LIST} entries")));
                None
            }
        }
    }

    fn texts(&mut self, name: &str) -> Option<Vec<String>> {
        let list = self.list(name)?;
        Some(list.into_iter().filter_map(|(path, json)| self.as_text(path, json)).collect())
    }

    fn object<T>(&mut self, name: &str, read: impl FnOnce(&mut Fields<'_>) -> T) -> Option<T> {
        let (path, json) = self.take(name)?;
        let mut fields = Fields::open(path, json, self.errors)?;
        let out = read(&mut fields);
        fields.done();
        Some(out)
    }

    fn objects<T>(&mut self, name: &str, read: impl Fn(&mut Fields<'_>) -> T) -> Option<Vec<T>> {
        let list = self.list(name)?;
        let mut out = Vec::new();
        for (path, json) in list {
            if let Some(mut fields) = Fields::open(path, json, self.errors) {
                out.push(read(&mut fields));
                fields.done();
            }
        }
        Some(out)
    }

    /// What is left is unknown.
    fn done(self) {
        for (name, _) in &self.left {
            self.errors.push(field(self.at(name), "is not a field of an approval"));
        }
    }
}

// === impl Json ===

impl<'de> Deserialize<'de> for Json {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_any(JsonVisitor)
    }
}

struct JsonVisitor;

impl<'de> Visitor<'de> for JsonVisitor {
    type Value = Json;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_unit<E>(self) -> Result<Json, E> {
        Ok(Json::Null)
    }

    fn visit_bool<E>(self, _: bool) -> Result<Json, E> {
        Ok(Json::Other)
    }

    fn visit_u64<E>(self, n: u64) -> Result<Json, E> {
        Ok(u32::try_from(n).map_or(Json::Other, Json::Number))
    }

    fn visit_i64<E>(self, _: i64) -> Result<Json, E> {
        Ok(Json::Other)
    }

    fn visit_f64<E>(self, _: f64) -> Result<Json, E> {
        Ok(Json::Other)
    }

    fn visit_str<E>(self, text: &str) -> Result<Json, E> {
        Ok(Json::Text(text.to_owned()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Json, A::Error> {
        let mut list = Vec::new();
        while let Some(item) = seq.next_element()? {
            list.push(item);
        }
        Ok(Json::List(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Json, A::Error> {
        let mut fields: Vec<(String, Json)> = Vec::new();
        while let Some((key, value)) = map.next_entry::<String, Json>()? {
            if fields.iter().any(|(known, _)| *known == key) {
                return Err(de::Error::custom("a key stands twice"));
            }
            fields.push((key, value));
        }
        Ok(Json::Map(fields))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn paths(body: &str) -> Vec<String> {
        let errors = approve_request(body.as_bytes()).unwrap_err();
        errors.iter().map(|e| e.field.to_string()).collect()
    }

    #[test]
    fn every_field_that_does_not_decode_is_named() {
        let body = r#"{"assignment":{"name":1,"mgmt":{"dns":["a",2],"x":1},"links":[{"mtu":"9000"},7],
            "disks":[{"key":["a"]}],"provider":{"vlan":-1}},"copyfrom":"none"}"#;
        let expected = [
            "name",
            "mgmt.dns[1]",
            "mgmt.x",
            "links[0].mtu",
            "links[1]",
            "disks[0].key",
            "provider.vlan",
            "copyfrom",
        ];
        assert_eq!(paths(body), expected);
    }

    #[test]
    fn a_key_that_stands_twice_is_refused() {
        assert_eq!(paths(r#"{"assignment":{"disks":[{"key":"a","confirm":"b","confirm":"a"}]}}"#), [""]);
    }

    #[test]
    fn nothing_asked_is_a_request_too() {
        for body in ["", "{}", r#"{"assignment":null}"#, r#"{"assignment":{}}"#] {
            assert!(approve_request(body.as_bytes()).is_ok(), "{body}");
        }
        assert_eq!(paths("[]"), [""]);
        assert_eq!(paths("{\"assignment\":{\"name\":\"a\\nb\"}}"), ["name"]);
    }
}
