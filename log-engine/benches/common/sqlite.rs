//! The usual alternative, measured beside the engine: SQLite with a write-ahead log, synced at every
//! commit, one transaction a commit, the same payloads.

use std::path::Path;
use std::time::{Duration, Instant};

use rusqlite::Connection;

use super::{Shape, TIMESTAMP};

pub struct Sqlite(Connection);

impl Sqlite {
    pub fn create(path: &Path) -> Sqlite {
        let db = Connection::open(path).unwrap();
        let mode: String = db
            .query_row("PRAGMA journal_mode = WAL", [], |row| row.get(0))
            .unwrap();
        assert_eq!(mode, "wal");
        db.execute_batch(
            "PRAGMA synchronous = FULL;
             CREATE TABLE record (
                 offset INTEGER PRIMARY KEY, timestamp INTEGER, size INTEGER, body BLOB);",
        )
        .unwrap();
        Sqlite(db)
    }

    /// One transaction. The table's own key is the offset, which is as cheap as it gets.
    pub fn commit(&mut self, shape: Shape, body: &[u8]) -> Duration {
        let began = Instant::now();
        let transaction = self.0.transaction().unwrap();
        {
            let mut insert = transaction
                .prepare_cached("INSERT INTO record (timestamp, size, body) VALUES (?1, ?2, ?3)")
                .unwrap();
            for _ in 0..shape.records {
                insert
                    .execute((TIMESTAMP as i64, body.len() as i64, body))
                    .unwrap();
            }
        }
        transaction.commit().unwrap();
        began.elapsed()
    }

    /// Bytes of the database once its write-ahead log is folded in.
    pub fn bytes(&self) -> u64 {
        self.0
            .query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()))
            .unwrap();
        let pages: i64 = self
            .0
            .query_row("PRAGMA page_count", [], |row| row.get(0))
            .unwrap();
        let size: i64 = self
            .0
            .query_row("PRAGMA page_size", [], |row| row.get(0))
            .unwrap();
        (pages * size) as u64
    }
}
