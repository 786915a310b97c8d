//! Registrations, and what is kept beside each: inventory, delivery, log.

use rusqlite::{OptionalExtension, params};

use super::{StoreError, Tx};
use crate::model::Join;

/// Log lines that are kept of one join (documented).
const KEPT_LINES: u32 = 2000;

/// What was (or will be) delivered. Both texts are kept as sent.
pub(crate) struct Delivery {
    pub(crate) attempt: u64,
    pub(crate) node_yaml: String,
    pub(crate) bundle: String,
}

/// Lines to append.
pub(crate) struct NewLines<'a>(pub(crate) &'a [String]);

// === impl Tx ===

impl Tx<'_> {
    /// Every registration, in order of registration.
    pub(crate) fn joins(&self) -> Result<Vec<Join>, StoreError> {
        let mut query = self.0.prepare_cached("SELECT doc FROM joins ORDER BY ord")?;
        let rows = query.query_map([], |row| row.get::<_, String>(0))?;
        let mut joins = Vec::new();
        for row in rows {
            joins.push(serde_json::from_str::<Join>(&row?)?);
        }
        joins.sort_by_key(|j| j.registered_ms.unwrap_or(i64::MAX));
        Ok(joins)
    }

    pub(crate) fn join(&self, id: &str) -> Result<Option<Join>, StoreError> {
        let doc: Option<String> =
            self.0.query_row("SELECT doc FROM joins WHERE id = ?1", [id], |row| row.get(0)).optional()?;
        Ok(doc.map(|d| serde_json::from_str(&d)).transpose()?)
    }

    /// The live registration of a key.
    pub(crate) fn live_join(&self, fp: &[u8; 32]) -> Result<Option<Join>, StoreError> {
        let sql = "SELECT doc FROM joins WHERE fp = ?1 AND live = 1 ORDER BY ord DESC LIMIT 1";
        let doc: Option<String> = self.0.query_row(sql, params![fp], |row| row.get(0)).optional()?;
        Ok(doc.map(|d| serde_json::from_str(&d)).transpose()?)
    }

    pub(crate) fn waiting(&self) -> Result<u32, StoreError> {
        Ok(self.0.query_row("SELECT count(*) FROM joins WHERE waits = 1", [], |row| row.get(0))?)
    }

    pub(crate) fn put_join(&self, join: &Join) -> Result<(), StoreError> {
        self.0.execute(
            "INSERT INTO joins (id, fp, live, waits, doc) VALUES (?1, ?2, ?3, ?4, ?5)
             ON CONFLICT (id) DO UPDATE SET live = ?3, waits = ?4, doc = ?5",
            params![
                join.id,
                join.client_fp.0,
                join.state.lives(),
                join.state.waits(),
                serde_json::to_string(join)?
            ],
        )?;
        Ok(())
    }

    pub(crate) fn delete_join(&self, id: &str) -> Result<(), StoreError> {
        for table in ["inventories", "deliveries", "log"] {
            self.0.execute(&format!("DELETE FROM {table} WHERE join_id = ?1"), [id])?;
        }
        self.0.execute("DELETE FROM joins WHERE id = ?1", [id])?;
        Ok(())
    }

    /// Takes an id for ever; false when it was ever used.
    pub(crate) fn use_id(&self, id: &str) -> Result<bool, StoreError> {
        Ok(self.0.execute("INSERT OR IGNORE INTO used_ids (id) VALUES (?1)", [id])? == 1)
    }

    pub(crate) fn inventory(&self, join_id: &str) -> Result<Option<String>, StoreError> {
        let sql = "SELECT json FROM inventories WHERE join_id = ?1";
        Ok(self.0.query_row(sql, [join_id], |row| row.get(0)).optional()?)
    }

    pub(crate) fn put_inventory(&self, join_id: &str, json: &str) -> Result<(), StoreError> {
        self.0.execute(
            "INSERT OR REPLACE INTO inventories (join_id, json) VALUES (?1, ?2)",
            params![join_id, json],
        )?;
        Ok(())
    }

    pub(crate) fn delivery(&self, join_id: &str) -> Result<Option<Delivery>, StoreError> {
        let sql = "SELECT attempt, node_yaml, bundle FROM deliveries WHERE join_id = ?1";
        let read = |row: &rusqlite::Row<'_>| {
            Ok(Delivery { attempt: row.get(0)?, node_yaml: row.get(1)?, bundle: row.get(2)? })
        };
        Ok(self.0.query_row(sql, [join_id], read).optional()?)
    }

    pub(crate) fn put_delivery(&self, join_id: &str, delivery: &Delivery) -> Result<(), StoreError> {
        self.0.execute(
            "INSERT OR REPLACE INTO deliveries (join_id, attempt, node_yaml, bundle) VALUES (?1, ?2, ?3, ?4)",
            params![join_id, delivery.attempt, delivery.node_yaml, delivery.bundle],
        )?;
        Ok(())
    }

    /// Forgets the secrets of a finished or rejected join.
    pub(crate) fn delete_delivery(&self, join_id: &str) -> Result<(), StoreError> {
        self.0.execute("DELETE FROM deliveries WHERE join_id = ?1", [join_id])?;
        Ok(())
    }

    /// Appends and keeps the last 2,000.
    pub(crate) fn append_log(&self, join_id: &str, lines: NewLines<'_>) -> Result<(), StoreError> {
        let mut insert = self.0.prepare_cached("INSERT INTO log (join_id, line) VALUES (?1, ?2)")?;
        for line in lines.0 {
            insert.execute(params![join_id, line])?;
        }
        self.0.execute(
            "DELETE FROM log WHERE join_id = ?1 AND n <= coalesce(
                (SELECT n FROM log WHERE join_id = ?1 ORDER BY n DESC LIMIT 1 OFFSET ?2), 0)",
            params![join_id, KEPT_LINES],
        )?;
        Ok(())
    }

    pub(crate) fn log(&self, join_id: &str) -> Result<Vec<String>, StoreError> {
        let mut query = self.0.prepare_cached("SELECT line FROM log WHERE join_id = ?1 ORDER BY n")?;
        let rows = query.query_map([join_id], |row| row.get(0))?;
        Ok(rows.collect::<Result<_, _>>()?)
    }
}
