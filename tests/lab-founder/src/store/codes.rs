//! Join codes and the counters of their tries.

use rusqlite::{OptionalExtension, Row, params};

use super::{StoreError, Tx};
use crate::model::Code;

const COLUMNS: &str =
    "id, selector, w, note, created_ms, expires_ms, revoked_ms, burned_ms, bad_tries, open_tries";

// === impl Tx ===

impl Tx<'_> {
    pub(crate) fn codes(&self) -> Result<Vec<Code>, StoreError> {
        let mut query =
            self.0.prepare_cached(&format!("SELECT {COLUMNS} FROM codes ORDER BY created_ms, id"))?;
        let rows = query.query_map([], code)?;
        Ok(rows.collect::<Result<_, _>>()?)
    }

    pub(crate) fn code(&self, id: &str) -> Result<Option<Code>, StoreError> {
        let sql = format!("SELECT {COLUMNS} FROM codes WHERE id = ?1");
        Ok(self.0.query_row(&sql, [id], code).optional()?)
    }

    pub(crate) fn code_by_selector(&self, selector: &str) -> Result<Option<Code>, StoreError> {
        let sql = format!("SELECT {COLUMNS} FROM codes WHERE selector = ?1");
        Ok(self.0.query_row(&sql, [selector], code).optional()?)
    }

    pub(crate) fn put_code(&self, code: &Code) -> Result<(), StoreError> {
        self.0.execute(
            &format!(
                "INSERT OR REPLACE INTO codes ({COLUMNS}) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)"
            ),
            params![
                code.id,
                code.selector,
                code.w,
                code.note,
                code.created_ms,
                code.expires_ms,
                code.revoked_ms,
                code.burned_ms,
                code.bad_tries,
                code.open_tries
            ],
        )?;
        Ok(())
    }

    pub(crate) fn delete_code(&self, id: &str) -> Result<(), StoreError> {
        self.0.execute("DELETE FROM codes WHERE id = ?1", [id])?;
        Ok(())
    }

    /// Counts a try of `fp` at `selector`. An unknown selector is counted too, so that it costs the same time.
    pub(crate) fn count_try(&self, selector: &str, fp: &[u8; 32]) -> Result<(), StoreError> {
        self.0.execute(
            "INSERT INTO tries (selector, fp, n) VALUES (?1, ?2, 1) ON CONFLICT DO UPDATE SET n = n + 1",
            params![selector, fp],
        )?;
        self.0.execute("UPDATE codes SET open_tries = open_tries + 1 WHERE selector = ?1", [selector])?;
        Ok(())
    }

    /// Gives back every open try of `fp` at `selector`.
    pub(crate) fn refund_tries(&self, selector: &str, fp: &[u8; 32]) -> Result<(), StoreError> {
        let n: Option<u32> = self
            .0
            .query_row("SELECT n FROM tries WHERE selector = ?1 AND fp = ?2", params![selector, fp], |row| {
                row.get(0)
            })
            .optional()?;
        if let Some(n) = n {
            self.0.execute("DELETE FROM tries WHERE selector = ?1 AND fp = ?2", params![selector, fp])?;
            self.0.execute(
                "UPDATE codes SET open_tries = max(0, open_tries - ?2) WHERE selector = ?1",
                params![selector, n],
            )?;
        }
        Ok(())
    }

    /// Forgets who tried at selectors that no code has, among them the one that is about to get a code.
    pub(crate) fn forget_strangers(&self) -> Result<(), StoreError> {
        self.0.execute("DELETE FROM tries WHERE selector NOT IN (SELECT selector FROM codes)", [])?;
        Ok(())
    }
}

fn code(row: &Row<'_>) -> rusqlite::Result<Code> {
    Ok(Code {
        id: row.get(0)?,
        selector: row.get(1)?,
        w: row.get(2)?,
        note: row.get(3)?,
        created_ms: row.get(4)?,
        expires_ms: row.get(5)?,
        revoked_ms: row.get(6)?,
        burned_ms: row.get(7)?,
        bad_tries: row.get(8)?,
        open_tries: row.get(9)?,
    })
}
