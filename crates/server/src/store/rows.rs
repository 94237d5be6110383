//! Owns turning columns into values. A column that does not parse is an error with its name, never a default.

use super::StoreError;
use cofferdam_core::Timestamp;
use rusqlite::Row;
use rusqlite::types::FromSql;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::str::FromStr;

/// A row of a table, for its columns by name.
pub(super) struct Columns<'a> {
    pub(super) table: &'static str,
    pub(super) row: &'a Row<'a>,
}

impl Columns<'_> {
    pub(super) fn get<T: FromSql>(&self, column: &'static str) -> Result<T, StoreError> {
        Ok(self.row.get(column)?)
    }

    pub(super) fn parse<T: FromStr>(&self, column: &'static str) -> Result<T, StoreError> {
        let text = self.row.get_ref(column)?.as_str().map_err(|_| self.wrong(column))?;
        text.parse().map_err(|_| self.wrong(column))
    }

    pub(super) fn json<T: DeserializeOwned>(&self, column: &'static str) -> Result<T, StoreError> {
        let text = self.row.get_ref(column)?.as_str().map_err(|_| self.wrong(column))?;
        serde_json::from_str(text).map_err(|_| self.wrong(column))
    }

    pub(super) fn time(&self, column: &'static str) -> Result<Timestamp, StoreError> {
        Ok(Timestamp::from_micros(self.get(column)?))
    }

    pub(super) fn number<T: TryFrom<i64>>(&self, column: &'static str) -> Result<T, StoreError> {
        T::try_from(self.get::<i64>(column)?).map_err(|_| self.wrong(column))
    }

    pub(super) fn wrong(&self, column: &'static str) -> StoreError {
        StoreError::Row { table: self.table, column }
    }
}

/// A value as a JSON column.
pub(super) fn to_json<T: Serialize>(value: &T) -> String {
    serde_json::to_string(value).expect("maps with text keys have a JSON form")
}

/// A number as SQLite holds it.
pub(super) fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}
