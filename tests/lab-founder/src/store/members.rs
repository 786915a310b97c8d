//! Members and the membership generation.

use rusqlite::{OptionalExtension, params};

use super::{StoreError, Tx};
use crate::model::Member;

// === impl Tx ===

impl Tx<'_> {
    /// In join order.
    pub(crate) fn members(&self) -> Result<Vec<Member>, StoreError> {
        let mut query = self.0.prepare_cached("SELECT doc FROM members ORDER BY join_order")?;
        let rows = query.query_map([], |row| row.get::<_, String>(0))?;
        let mut members = Vec::new();
        for row in rows {
            members.push(serde_json::from_str(&row?)?);
        }
        Ok(members)
    }

    pub(crate) fn member(&self, node_id: &str) -> Result<Option<Member>, StoreError> {
        let sql = "SELECT doc FROM members WHERE node_id = ?1";
        let doc: Option<String> = self.0.query_row(sql, [node_id], |row| row.get(0)).optional()?;
        Ok(doc.map(|d| serde_json::from_str(&d)).transpose()?)
    }

    pub(crate) fn put_member(&self, member: &Member) -> Result<(), StoreError> {
        self.0.execute(
            "INSERT INTO members (node_id, join_order, doc) VALUES (?1, ?2, ?3)
             ON CONFLICT (node_id) DO UPDATE SET join_order = ?2, doc = ?3",
            params![member.node_id, member.join_order, serde_json::to_string(member)?],
        )?;
        Ok(())
    }

    /// The membership generation.
    pub(crate) fn generation(&self) -> Result<u64, StoreError> {
        Ok(self.meta("generation")?.unwrap_or(0))
    }
}
