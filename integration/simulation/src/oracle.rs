//! What must hold: while a run goes on, and at its end (testing.md 7.4; the numbers P1 to P14 are from there).

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::ops::{Range, RangeInclusive};

use arrow_array::cast::AsArray as _;
use arrow_array::types::{Float64Type, Int64Type};
use arrow_array::{Array, RecordBatch};
use bigquery_sink_pipeline::store::CheckpointInfo;
use bigquery_sink_state::{CommitList, SubtaskState};

use crate::engine::Rows;
use crate::process::{BAD_PLACE, GOOD_PLACE, LONG_NOTE, REFUSED, TABLE, fault_of};
use crate::world::short;

/// What the store said is complete, ever.
#[derive(Clone, Debug, Default)]
pub(crate) struct Checkpoints {
    known: BTreeMap<(u64, u64), Held>,
    committed: BTreeSet<(u64, u64)>,
    /// Files of those that were seen and not complete.
    unclaimed: BTreeSet<String>,
    /// Exclusive end of what complete checkpoints cover, by stream.
    covered: BTreeMap<String, u64>,
    /// The epoch whose checkpoint lists them, by stream and exclusive end.
    epochs: BTreeMap<(String, u64), u64>,
    /// Rows that a confirmed commit says are visible.
    confirmed_rows: u64,
    /// The newest complete one: parallelism, and whether it is confirmed.
    pub(crate) newest: Option<Newest>,
}

/// What a complete checkpoint held when it was seen first.
#[derive(Clone, Copy, Debug)]
struct Held {
    parallelism: u32,
    input_ended: bool,
    rows_committed: u64,
    /// Rows of its commit lists.
    rows: u64,
}

/// The newest complete checkpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Newest {
    pub(crate) parallelism: u32,
    pub(crate) committed: bool,
    /// Nothing is left to read.
    pub(crate) input_ended: bool,
    /// Rows of its commit lists.
    pub(crate) rows: u64,
}

/// What became visible, by stream, in order.
#[derive(Clone, Debug, Default)]
pub(crate) struct Published {
    pub(crate) changes: Vec<Change>,
}

/// Rows that became visible at once.
#[derive(Clone, Debug)]
pub(crate) struct Change {
    pub(crate) stream: String,
    /// Their offsets in it.
    pub(crate) rows: Range<u64>,
    /// No complete checkpoint covers them; these are the rows that the end of data may publish all the same.
    pub(crate) without_checkpoint: Option<Vec<Rows>>,
    /// Subtasks of the process that wrote the stream.
    pub(crate) parallelism: u32,
}

impl Checkpoints {
    /// Takes over what is new; says so, and whether a line is a violation.
    pub(crate) fn update(&mut self, listed: Vec<CheckpointInfo>) -> Vec<(bool, String)> {
        let mut said = Vec::new();
        for info in listed.iter().filter(|info| !info.complete) {
            // What nobody claimed may be claimed later, or was written by a zombie.
            if let Ok(manifest) = &info.manifest
                && self.unclaimed.insert(info.file.clone())
            {
                for part in &manifest.subtasks {
                    said.extend(unreadable(&info.file, &part.state, &part.commit));
                }
            }
        }
        for info in listed.iter().filter(|info| info.complete) {
            let id = (info.lineage, info.epoch.0);
            match &info.manifest {
                // Torn, or gone bad: the host must refuse it. What it held is known from before.
                Err(error) => said.push((false, format!("checkpoint {id:?} cannot be read: {error}"))),
                Ok(manifest) if !self.known.contains_key(&id) => {
                    let parts = manifest.subtasks.iter();
                    let parts = parts.map(|part| (&part.state[..], &part.commit[..]));
                    let (rows, told) = self.complete(id, id.1, parts);
                    said.extend(told);
                    let held = Held {
                        parallelism: manifest.parallelism,
                        input_ended: manifest.input_ended,
                        // Of both tables, as they are counted here.
                        rows_committed: manifest.rows_committed + manifest.rows_rejected,
                        rows,
                    };
                    self.known.insert(id, held);
                }
                Ok(_) => {}
            }
            if let Some(held) = self.known.get(&id)
                && info.committed
                && self.committed.insert(id)
            {
                self.confirmed_rows = held.rows_committed;
                said.push((false, format!("checkpoint {id:?} is confirmed")));
            }
        }
        self.newest = self.known.last_key_value().map(|(id, held)| Newest {
            parallelism: held.parallelism,
            committed: self.committed.contains(id),
            input_ended: held.input_ended,
            rows: held.rows,
        });
        said
    }

    /// A checkpoint is complete with these parts: state and commit entry of each subtask. Gives its rows, and what is to be said.
    fn complete<'a>(
        &mut self,
        id: impl fmt::Debug,
        epoch: u64,
        parts: impl Iterator<Item = (&'a [u8], &'a [u8])>,
    ) -> (u64, Vec<(bool, String)>) {
        let mut said = Vec::new();
        let mut rows = 0;
        for (state, commit) in parts {
            said.extend(unreadable(format_args!("checkpoint {id:?}"), state, commit));
            if let Ok(list) = CommitList::decode(commit) {
                rows += list.rows().0;
                self.cover(&list, epoch);
            }
        }
        said.push((false, format!("checkpoint {id:?} is complete with {rows} rows")));
        (rows, said)
    }

    /// The engine's newest checkpoint is complete.
    pub(crate) fn declare<'a>(
        &mut self,
        epoch: u64,
        parts: impl Iterator<Item = (&'a [u8], &'a [u8])>,
    ) -> Vec<(bool, String)> {
        let mut parallelism = 0;
        let (rows, said) = self.complete(epoch, epoch, parts.inspect(|_| parallelism += 1));
        self.newest = Some(Newest {
            parallelism,
            committed: false,
            input_ended: false,
            rows,
        });
        said
    }

    /// Its commit is confirmed.
    pub(crate) fn confirm(&mut self) {
        if let Some(newest) = &mut self.newest {
            newest.committed = true;
        }
    }

    fn cover(&mut self, list: &CommitList, epoch: u64) {
        for info in &list.0 {
            let to = info.flush_offset.next_offset().0;
            self.epochs.insert((info.stream.0.clone(), to), epoch);
            let end = self.covered.entry(info.stream.0.clone()).or_default();
            *end = (*end).max(to);
        }
    }

    /// The epoch that lists this row of a stream.
    fn epoch_of(&self, stream: &str, row: u64) -> Option<u64> {
        let mut behind = self.epochs.range((stream.to_owned(), row + 1)..);
        let ((of, _), epoch) = behind.next()?;
        (of == stream).then_some(*epoch)
    }

    pub(crate) fn covers(&self, stream: &str, to: u64) -> bool {
        self.covered.get(stream).is_some_and(|end| to <= *end)
    }
}

/// P14: a part of a checkpoint that cannot be read; as lines that are violations.
pub(crate) fn unreadable(of: impl fmt::Display, state: &[u8], commit: &[u8]) -> Vec<(bool, String)> {
    let state = SubtaskState::decode(state).err();
    let commit = CommitList::decode(commit).err();
    let state = state.map(|error| format!("P14: a state of {of} cannot be read: {error}"));
    let commit = commit.map(|error| format!("P14: a commit list of {of} cannot be read: {error}"));
    state.into_iter().chain(commit).map(|line| (true, line)).collect()
}

/// How much there must be at the end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Expected {
    /// Every row of every subtask that was ever read.
    Everything {
        /// Rows of each.
        rows: u64,
        /// Subtasks of the process that read to the end.
        parallelism: u32,
    },
    /// The run ended with an error that was to be expected: nothing doubled or wrong, and every confirmed row there.
    WhatWasConfirmed,
    /// The table was made anew in between: nothing doubled or wrong.
    NothingTwice,
    /// Rows went to the default stream.
    AtLeastOnce {
        /// What must be there, as often as it is.
        due: Box<Self>,
        /// Something that went wrong explains rows that are there more than once.
        may_repeat: bool,
    },
    /// Each row so often, by key and number.
    Counted {
        /// The least and the most.
        counts: Vec<Vec<RangeInclusive<u64>>>,
        /// The table was not made anew in between.
        whole: bool,
    },
}

/// Looks at the rows of the table and of that of dead letters, each in the order in which they became visible; gives what is wrong.
pub(crate) fn judge(
    (rows, letters): (&RecordBatch, Option<&RecordBatch>),
    published: &Published,
    checkpoints: &Checkpoints,
    expected: &Expected,
) -> Vec<String> {
    let mut wrong = Vec::new();
    let mut seen: BTreeMap<i64, BTreeMap<i64, u64>> = BTreeMap::new();
    // On a default stream rows stand in no order, and are there as soon as they are stored.
    let (due, may_repeat, ordered) = match expected {
        Expected::AtLeastOnce { due, may_repeat } => (&**due, *may_repeat, false),
        Expected::Counted { .. } => (expected, true, true),
        once => (once, false, true),
    };
    let subtasks = rows.column(0).as_primitive::<Int64Type>();
    let numbers = rows.column(1).as_primitive::<Int64Type>();
    for at in 0..rows.num_rows() {
        let (subtask, number) = (subtasks.value(at), numbers.value(at));
        let times = seen.entry(subtask).or_default().entry(number).or_default();
        *times += 1;
        if *times > 1 && !may_repeat {
            wrong.push(format!("P2: row {number} of subtask {subtask} is visible twice"));
        }
        if let Some(problem) = value_problem(rows, at, subtask, number) {
            wrong.push(format!("P3: row {number} of subtask {subtask}: {problem}"));
        }
        if letters.is_some() && fault_of(number).is_some() {
            wrong.push(format!(
                "P3: row {number} of subtask {subtask} is bad, and no dead letter"
            ));
        }
    }
    let anew = matches!(
        due,
        Expected::NothingTwice | Expected::Counted { whole: false, .. }
    );
    let (of_rows, of_letters) = published.parted();
    if let Some(letters) = letters {
        // A row is in one table, once: what is in both, or in one twice, is visible twice.
        let mut places = of_letters.places();
        for letter in (0..letters.num_rows()).map(|at| Letter::read(letters, at)) {
            let (subtask, number) = (letter.subtask, letter.number);
            let times = seen.entry(subtask).or_default().entry(number).or_default();
            *times += 1;
            if *times > 1 && !may_repeat {
                wrong.push(format!(
                    "P2: row {number} of subtask {subtask} is visible twice, and a dead letter"
                ));
            }
            // Of a table that was made anew the first ones are gone.
            let place = places.next().filter(|_| !anew);
            let misplaced = || place.and_then(|place| letter.misplaced(&place, checkpoints));
            let problem = letter.problem.clone().or_else(misplaced);
            wrong.extend(problem.map(|problem| {
                format!("P3: the dead letter of row {number} of subtask {subtask}: {problem}")
            }));
        }
    }
    if ordered && !anew {
        wrong.extend(order_problems(&of_rows, subtasks.values(), numbers.values()));
        wrong.extend(gaps(&of_letters));
    }
    match due {
        Expected::Everything { rows, parallelism } => {
            let width = i64::from(*parallelism);
            let all: BTreeSet<i64> = seen.keys().copied().chain(0..width).collect();
            for subtask in all {
                let found = seen.get(&subtask).map_or(0, BTreeMap::len) as u64;
                let beyond = seen
                    .get(&subtask)
                    .and_then(BTreeMap::last_key_value)
                    .is_some_and(|(last, _)| *last as u64 >= *rows);
                if found != *rows || beyond {
                    wrong.push(format!(
                        "P1: {found} of {rows} rows of subtask {subtask} are visible"
                    ));
                }
            }
        }
        Expected::WhatWasConfirmed => {
            let found: usize = seen.values().map(BTreeMap::len).sum();
            if (found as u64) < checkpoints.confirmed_rows {
                wrong.push(format!(
                    "P1: {found} rows are visible, and {} are confirmed",
                    checkpoints.confirmed_rows
                ));
            }
        }
        Expected::NothingTwice | Expected::AtLeastOnce { .. } => {}
        Expected::Counted { counts, whole } => wrong.extend(count_problems(seen, counts, *whole)),
    }
    wrong
}

/// P1 and P2 where rows may rightly be there more than once.
fn count_problems(
    mut seen: BTreeMap<i64, BTreeMap<i64, u64>>,
    counts: &[Vec<RangeInclusive<u64>>],
    whole: bool,
) -> Vec<String> {
    let mut wrong = Vec::new();
    for (key, counts) in (0..).zip(counts) {
        let mut seen = seen.remove(&key).unwrap_or_default();
        for (number, due) in (0..).zip(counts) {
            let found = seen.remove(&number).unwrap_or_default();
            if found > *due.end() {
                wrong.push(format!(
                    "P2: row {number} of key {key} is visible {found} times, at most {} are due",
                    due.end()
                ));
            }
            if whole && found < *due.start() {
                wrong.push(format!(
                    "P1: row {number} of key {key} is visible {found} times, at least {} are due",
                    due.start()
                ));
            }
        }
        let unknown = seen.into_keys();
        wrong.extend(unknown.map(|number| format!("P3: row {number} of key {key} was never read")));
    }
    wrong.extend(seen.keys().map(|key| format!("P3: key {key} was never read")));
    wrong
}

/// A dead letter.
struct Letter {
    subtask: i64,
    number: i64,
    /// What wrote it, and in which checkpoint, as it says.
    said: (i64, i64),
    /// What it says wrongly.
    problem: Option<String>,
}

/// Where a row became visible.
struct Place<'a> {
    change: &'a Change,
    offset: u64,
}

impl Letter {
    fn read(letters: &RecordBatch, at: usize) -> Self {
        let text = |column: usize| letters.column(column).as_string::<i32>().value(at);
        let integer = |column: usize| letters.column(column).as_primitive::<Int64Type>().value(at);
        let row: serde_json::Value = serde_json::from_str(text(0)).unwrap_or_default();
        let number_of = |name: &str| row.get(name).and_then(serde_json::Value::as_i64).unwrap_or(-1);
        let (subtask, number) = (number_of("subtask"), number_of("number"));
        let problem = match fault_of(number) {
            None => Some("the row is good".to_owned()),
            Some(column) => {
                let expected = bad_row(subtask, number, column);
                let (project, dataset, table) = TABLE;
                let table = format!("projects/{project}/datasets/{dataset}/tables/{table}");
                let said = (row, text(1), text(2), text(6));
                let due = (expected, reason_of(column), column, &*table);
                (said != due).then(|| format!("{said:?} and not {due:?}"))
            }
        };
        Self {
            subtask,
            number,
            said: (integer(4), integer(3)),
            problem,
        }
    }

    /// Its subtask is the one that the row belonged to, its epoch that of the checkpoint that lists it.
    fn misplaced(&self, place: &Place<'_>, checkpoints: &Checkpoints) -> Option<String> {
        let (subtask, epoch) = self.said;
        let due = self.subtask % i64::from(place.change.parallelism.max(1));
        if subtask != due {
            return Some(format!("subtask {subtask} says that it wrote it, and {due} did"));
        }
        let listed = checkpoints.epoch_of(&place.change.stream, place.offset)?;
        (epoch != listed as i64).then(|| format!("it says epoch {epoch}, and checkpoint {listed} lists it"))
    }
}

/// A row with this column bad, as the query makes it.
fn bad_row(subtask: i64, number: i64, column: &str) -> serde_json::Value {
    let is_note = column == "note";
    let good = (number % 3 != 0).then(|| format!("row {number}"));
    serde_json::json!({
        "subtask": subtask, "number": number, "half": number as f64 / 2.0, "pair": [subtask, number],
        "note": if is_note { Some(LONG_NOTE.to_owned()) } else { good },
        "place": if is_note { GOOD_PLACE } else { BAD_PLACE },
    })
}

fn reason_of(column: &str) -> &'static str {
    match column {
        "note" => "longer than 12 characters",
        _ => "Invalid geography on field place.",
    }
}

impl Published {
    /// What became visible of the table, and of that of dead letters.
    fn parted(&self) -> (Self, Self) {
        let of = |letters: bool| {
            let changes = self.changes.iter();
            let changes =
                changes.filter(|change| change.stream.contains(&format!("/tables/{REFUSED}/")) == letters);
            Self {
                changes: changes.cloned().collect(),
            }
        };
        (of(false), of(true))
    }
}

impl Published {
    /// Where each row became visible, in that order.
    fn places(&self) -> impl Iterator<Item = Place<'_>> {
        let changes = self.changes.iter();
        changes.flat_map(|change| change.rows.clone().map(move |offset| Place { change, offset }))
    }
}

/// P8 alone: what the sink refuses itself overtakes what BigQuery refuses.
fn gaps(published: &Published) -> Vec<String> {
    let mut ends: BTreeMap<&str, u64> = BTreeMap::new();
    let mut wrong = Vec::new();
    for Change { stream, rows, .. } in &published.changes {
        let end = ends.entry(stream).or_default();
        if rows.start != *end {
            wrong.push(format!("P8: {} goes from {end} to {}", short(stream), rows.start));
        }
        *end = rows.end;
    }
    wrong
}

/// P3: columns 2 and on are made from the first two by the query.
fn value_problem(rows: &RecordBatch, at: usize, subtask: i64, number: i64) -> Option<String> {
    let note = rows.column(2).as_string::<i32>();
    let note = note.is_valid(at).then(|| note.value(at));
    let expected = (number % 3 != 0).then(|| format!("row {number}"));
    if note != expected.as_deref() {
        return Some(format!("note is {note:?} and not {expected:?}"));
    }
    let half = rows.column(3).as_primitive::<Float64Type>().value(at);
    if half != number as f64 / 2.0 {
        return Some(format!("half is {half}"));
    }
    let pair = rows.column(4).as_list::<i32>().value(at);
    let pair = pair.as_primitive::<Int64Type>();
    if pair.values() != &[subtask, number] || pair.null_count() > 0 {
        return Some(format!("pair is {pair:?}"));
    }
    None
}

/// P4: a stream's rows are in the order of their source; P8: each of its offsets once, from 0, without a gap.
fn order_problems(published: &Published, subtasks: &[i64], numbers: &[i64]) -> Vec<String> {
    let mut wrong = Vec::new();
    let mut ends: BTreeMap<&str, u64> = BTreeMap::new();
    let mut last: BTreeMap<(&str, i64), i64> = BTreeMap::new();
    let mut at = 0;
    for Change {
        stream,
        rows,
        without_checkpoint,
        ..
    } in &published.changes
    {
        let end = ends.entry(stream).or_default();
        if rows.start != *end {
            wrong.push(format!("P8: {} goes from {end} to {}", short(stream), rows.start));
        }
        *end = rows.end;
        for _ in rows.clone() {
            let (Some(subtask), Some(number)) = (subtasks.get(at), numbers.get(at)) else {
                wrong.push("P1: fewer rows are there than became visible".to_owned());
                return wrong;
            };
            at += 1;
            // P5: at the end of data what was pending may become visible without a checkpoint, and nothing else.
            if let Some(allowed) = without_checkpoint
                && !allowed.iter().any(|rows| holds(rows, *subtask, *number))
            {
                wrong.push(format!(
                    "P5: row {number} of subtask {subtask} became visible at the end of data, and was not pending"
                ));
            }
            if let Some(before) = last.insert((stream, *subtask), *number)
                && before >= *number
            {
                wrong.push(format!(
                    "P4: {} has row {before} of subtask {subtask} before row {number}",
                    short(stream)
                ));
            }
        }
    }
    if at != subtasks.len() {
        wrong.push("P2: more rows are there than became visible".to_owned());
    }
    wrong
}

fn holds(rows: &Rows, key: i64, number: i64) -> bool {
    let (Ok(key), Ok(number)) = (u32::try_from(key), u64::try_from(number)) else {
        return false;
    };
    rows.get(&key).is_some_and(|rows| rows.contains(&number))
}
