//! `tabledata.insertAll`.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::{Mutex, PoisonError};

use arrow_array::BooleanArray;
use arrow_schema::ArrowError;
use arrow_select::filter::filter_record_batch;
use axum::Json;
use axum::extract::{Path, State};
use serde_json::{Map, Value, json};

use crate::catalog::{CatalogError, Millis, Table, TableRef};
use crate::description::check_day;
use crate::machine::Machine;
use crate::rest::Api;
use crate::rest::error::ApiError;
use crate::rest::request::Body;
use crate::values::json::{JsonRows, read_rows};

/// BigQuery's limit on rows of one request.
const MOST_ROWS: usize = 50_000;
/// How long an `insertId` is remembered; BigQuery says at least a minute.
const REMEMBERED_MS: Millis = 60_000;
/// How many are remembered.
const MOST_REMEMBERED: usize = 1_000_000;

pub(super) async fn insert_all(
    State(api): State<Api>,
    Path((project, dataset, table)): Path<(String, String, String)>,
    Body(body): Body,
) -> Result<Json<Value>, ApiError> {
    if body.get("templateSuffix").is_some_and(|suffix| !suffix.is_null()) {
        let text = "This emulator does not support templateSuffix: create the table before";
        return Err(ApiError::new(501, "notImplemented", text));
    }
    let rows = read(&body)?;
    let flag = |name: &str| body.get(name).and_then(Value::as_bool).unwrap_or(false);
    let (table, day) = match table.split_once('$') {
        Some((table, day)) => (table.to_owned(), Some(day.to_owned())),
        None => (table, None),
    };
    let name = TableRef::new(project, dataset, table);
    let now = api.shared.now();
    let errors = api.shared.with(|machine| {
        let table = machine.catalog().table(&name)?;
        check(table, day.as_deref(), now)?;
        let (id, schema) = (table.id, table.schema.clone());
        let new = api.inserted.new_rows(id, &rows, now);
        let json = new.iter().map(|i| rows[*i].json);
        let ignore_unknown = flag("ignoreUnknownValues");
        let read = machine.with_moment(now, |_, moment| read_rows(json, &schema, ignore_unknown, moment));
        let internal = |error: ArrowError| ApiError::new(500, "internalError", error.to_string());
        let read = once(read.map_err(internal)?, &rows, &new).map_err(internal)?;
        let (errors, accepted) = judge(&read, &new, rows.len(), flag("skipInvalidRows"));
        if accepted {
            let path = day.map_or_else(|| name.path(), |day| format!("{}${day}", name.path()));
            publish(machine, &path, &name, read, now)?;
            api.inserted.remember(id, &rows, &errors, now);
        }
        Ok::<_, ApiError>(errors)
    })?;
    let mut answer = json!({ "kind": "bigquery#tableDataInsertAllResponse" });
    if !errors.is_empty() {
        let entry = |(index, error): &(usize, Value)| json!({ "index": index, "errors": [error] });
        answer["insertErrors"] = errors.iter().map(entry).collect();
    }
    Ok(Json(answer))
}

/// One row as it came.
struct Row<'a> {
    insert_id: Option<&'a str>,
    json: &'a Value,
}

fn read(body: &Map<String, Value>) -> Result<Vec<Row<'_>>, ApiError> {
    let rows = body.get("rows").and_then(Value::as_array);
    let rows = rows.map(Vec::as_slice).unwrap_or_default();
    if rows.is_empty() {
        return Err(ApiError::invalid("No rows present in the request."));
    }
    if rows.len() > MOST_ROWS {
        let count = rows.len();
        return Err(ApiError::invalid(format!(
            "Too many rows present in the request, limit: {MOST_ROWS} row count: {count}."
        )));
    }
    let row = |row| Row {
        insert_id: id(row),
        json: Value::get(row, "json").unwrap_or(&Value::Null),
    };
    Ok(rows.iter().map(row).collect())
}

fn id(row: &Value) -> Option<&str> {
    row.get("insertId")
        .and_then(Value::as_str)
        .filter(|id| !id.is_empty())
}

fn check(table: &Table, day: Option<&str>, now: Millis) -> Result<(), ApiError> {
    if table.is_view() {
        return Err(ApiError::invalid("Cannot insert rows into a view."));
    }
    match day {
        Some(day) => Ok(check_day(&table.rest, day, now)?),
        None => Ok(()),
    }
}

/// Without the good rows whose `insertId` a good row before them has: a bad one uses up none.
fn once(mut read: JsonRows, rows: &[Row<'_>], new: &[usize]) -> Result<JsonRows, ArrowError> {
    let bad: HashSet<usize> = read.errors.iter().map(|(i, _)| *i).collect();
    let mut seen = HashSet::new();
    let good = new.iter().enumerate().filter(|(i, _)| !bad.contains(i));
    let mut is_first = |row: usize| rows[row].insert_id.is_none_or(|id| seen.insert(id));
    let keep: Vec<bool> = good.map(|(_, row)| is_first(*row)).collect();
    read.rows = filter_record_batch(&read.rows, &BooleanArray::from(keep))?;
    Ok(read)
}

/// What is wrong with which of so many rows, and whether the others are accepted: without `skip`, one bad row stops
/// all. `new` are the rows that were read.
fn judge(read: &JsonRows, new: &[usize], rows: usize, skip: bool) -> (Vec<(usize, Value)>, bool) {
    let bad: HashMap<usize, Value> = read
        .errors
        .iter()
        .filter_map(|(i, error)| Some((*new.get(*i)?, error.proto())))
        .collect();
    if skip || bad.is_empty() {
        let mut bad: Vec<_> = bad.into_iter().collect();
        bad.sort_by_key(|(index, _)| *index);
        return (bad, true);
    }
    let stopped = json!({ "reason": "stopped", "location": "", "debugInfo": "", "message": "" });
    let error = |index| (index, bad.get(&index).unwrap_or(&stopped).clone());
    ((0..rows).map(error).collect(), false)
}

/// `path` says which day of the table, if any.
fn publish(
    machine: &mut Machine,
    path: &str,
    name: &TableRef,
    read: JsonRows,
    now: Millis,
) -> Result<(), CatalogError> {
    if read.rows.num_rows() == 0 {
        return Ok(());
    }
    machine.publish_to(path, name, read.rows, now)
}

/// The `insertId`s of late: a row that comes again with its own is not inserted again.
#[derive(Debug, Default)]
pub(super) struct Inserted(Mutex<Ids>);

#[derive(Debug, Default)]
struct Ids {
    /// With the table's number.
    known: HashSet<(u64, String)>,
    /// Oldest first.
    since: VecDeque<(Millis, (u64, String))>,
}

impl Inserted {
    /// Which rows have not come of late.
    fn new_rows(&self, table: u64, rows: &[Row<'_>], now: Millis) -> Vec<usize> {
        let mut ids = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        ids.forget(now);
        let is_new = |row: &Row<'_>| match row.insert_id {
            None => true,
            Some(id) => !ids.known.contains(&(table, id.to_owned())),
        };
        (0..rows.len()).filter(|i| is_new(&rows[*i])).collect()
    }

    /// Rows were inserted, but for those with an error.
    fn remember(&self, table: u64, rows: &[Row<'_>], errors: &[(usize, Value)], now: Millis) {
        let mut ids = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let bad: HashSet<usize> = errors.iter().map(|(index, _)| *index).collect();
        let good = rows.iter().enumerate().filter(|(index, _)| !bad.contains(index));
        for id in good.filter_map(|(_, row)| row.insert_id) {
            let key = (table, id.to_owned());
            if ids.known.insert(key.clone()) {
                ids.since.push_back((now, key));
            }
        }
    }
}

impl Ids {
    fn forget(&mut self, now: Millis) {
        while let Some((at, _)) = self.since.front() {
            if now.saturating_sub(*at) <= REMEMBERED_MS && self.since.len() <= MOST_REMEMBERED {
                return;
            }
            if let Some((_, key)) = self.since.pop_front() {
                self.known.remove(&key);
            }
        }
    }
}
