//! The founder's memory: one SQLite file, one writer, every change durable before its answer leaves.
//!
//! Touches its database file and nothing else. WAL with `synchronous=FULL`, so a kill at any moment loses nothing that was answered.
//! Holds secrets (the stretched codes, the keys of both CAs, deliveries): the file is made 0600.

mod codes;
mod joins;
mod members;

use std::fs::OpenOptions;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use rusqlite::{Connection, OptionalExtension, TransactionBehavior, params};
use serde::Serialize;
use serde::de::DeserializeOwned;

pub(crate) use joins::{Delivery, NewLines};

/// Where the founder keeps its state.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Place {
    /// In memory; gone with the founder. For simulations.
    Memory,
    /// `founder.sqlite` in this directory, which is made if missing.
    Dir(PathBuf),
}

/// The database.
pub(crate) struct Store {
    conn: Mutex<Connection>,
}

/// One transaction. Everything that one call changes is in one.
pub(crate) struct Tx<'a>(rusqlite::Transaction<'a>);

/// The database failed.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// SQLite said no.
    #[error("the founder's database failed")]
    Sqlite(#[from] rusqlite::Error),
    /// A row is not what this version writes.
    #[error("the founder's database holds a row that does not parse")]
    Row(#[from] serde_json::Error),
    /// The file or its directory.
    #[error("cannot use {0}")]
    Dir(PathBuf, #[source] std::io::Error),
    /// Written by another version.
    #[error("the founder's database has schema {0}, this version knows {SCHEMA}")]
    Schema(i64),
}

const SCHEMA: i64 = 1;
const TABLES: &str = "
    CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) STRICT;
    CREATE TABLE codes (
        id TEXT PRIMARY KEY, selector TEXT NOT NULL UNIQUE, w BLOB NOT NULL, note TEXT NOT NULL,
        created_ms INTEGER NOT NULL, expires_ms INTEGER NOT NULL, revoked_ms INTEGER, burned_ms INTEGER,
        bad_tries INTEGER NOT NULL, open_tries INTEGER NOT NULL) STRICT;
    CREATE TABLE tries (selector TEXT NOT NULL, fp BLOB NOT NULL, n INTEGER NOT NULL, PRIMARY KEY (selector, fp)) STRICT;
    CREATE TABLE joins (
        ord INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT NOT NULL UNIQUE, fp BLOB NOT NULL, live INTEGER NOT NULL,
        waits INTEGER NOT NULL, doc TEXT NOT NULL) STRICT;
    CREATE INDEX joins_by_key ON joins (fp, live);
    CREATE TABLE used_ids (id TEXT PRIMARY KEY) STRICT;
    CREATE TABLE inventories (join_id TEXT PRIMARY KEY, json TEXT NOT NULL) STRICT;
    CREATE TABLE deliveries (join_id TEXT PRIMARY KEY, attempt INTEGER NOT NULL, node_yaml TEXT NOT NULL, bundle TEXT NOT NULL) STRICT;
    CREATE TABLE log (n INTEGER PRIMARY KEY AUTOINCREMENT, join_id TEXT NOT NULL, line TEXT NOT NULL) STRICT;
    CREATE INDEX log_by_join ON log (join_id, n);
    CREATE TABLE members (node_id TEXT PRIMARY KEY, join_order INTEGER NOT NULL, doc TEXT NOT NULL) STRICT;
    PRAGMA user_version = 1;
";

// === impl Store ===

impl Store {
    pub(crate) fn open(place: &Place) -> Result<Self, StoreError> {
        let mut conn = match place {
            Place::Memory => Connection::open_in_memory()?,
            Place::Dir(dir) => Connection::open(database_file(dir)?)?,
        };
        conn.pragma_update(None, "journal_mode", "WAL")?;
        conn.pragma_update(None, "synchronous", "FULL")?;
        conn.busy_timeout(std::time::Duration::from_secs(5))?;
        let tx = conn.transaction_with_behavior(TransactionBehavior::Immediate)?;
        match tx.pragma_query_value(None, "user_version", |row| row.get(0))? {
            0 => tx.execute_batch(TABLES)?,
            SCHEMA => {}
            other => return Err(StoreError::Schema(other)),
        }
        tx.commit()?;
        Ok(Self { conn: Mutex::new(conn) })
    }

    /// Runs `work` in one transaction; committed and durable when this returns `Ok`, undone on an error.
    pub(crate) fn tx<T, E: From<StoreError>>(
        &self,
        work: impl FnOnce(&Tx<'_>) -> Result<T, E>,
    ) -> Result<T, E> {
        // A panic in an earlier call rolled its transaction back, so the data behind a poisoned lock is good.
        let mut conn = self.conn.lock().unwrap_or_else(PoisonError::into_inner);
        let tx = conn.transaction_with_behavior(TransactionBehavior::Immediate).map_err(StoreError::from)?;
        let tx = Tx(tx);
        let out = work(&tx)?;
        tx.0.commit().map_err(StoreError::from)?;
        Ok(out)
    }
}

// === impl Tx ===

impl Tx<'_> {
    /// A named value.
    pub(crate) fn meta<T: DeserializeOwned>(&self, key: &str) -> Result<Option<T>, StoreError> {
        let text: Option<String> =
            self.0.query_row("SELECT value FROM meta WHERE key = ?1", [key], |row| row.get(0)).optional()?;
        Ok(text.map(|t| serde_json::from_str(&t)).transpose()?)
    }

    pub(crate) fn set_meta<T: Serialize>(&self, key: &str, value: &T) -> Result<(), StoreError> {
        let text = serde_json::to_string(value)?;
        self.0.execute("INSERT OR REPLACE INTO meta (key, value) VALUES (?1, ?2)", params![key, text])?;
        Ok(())
    }

    /// Adds one to a named counter and gives the new value.
    pub(crate) fn next(&self, key: &str) -> Result<u64, StoreError> {
        let value = self.meta::<u64>(key)?.unwrap_or(0) + 1;
        self.set_meta(key, &value)?;
        Ok(value)
    }
}

fn database_file(dir: &Path) -> Result<PathBuf, StoreError> {
    let file = dir.join("founder.sqlite");
    std::fs::create_dir_all(dir).map_err(|e| StoreError::Dir(dir.to_owned(), e))?;
    // SQLite gives its journal files the mode of the database.
    OpenOptions::new()
        .create(true)
        .truncate(false)
        .write(true)
        .mode(0o600)
        .open(&file)
        .map_err(|e| StoreError::Dir(file.clone(), e))?;
    Ok(file)
}
