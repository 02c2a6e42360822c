//! What must hold: while a run goes on, and at its end (testing.md 7.4; the numbers P1 to P14 are from there).

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::ops::{Range, RangeInclusive};

use arrow_array::cast::AsArray as _;
use arrow_array::types::{Float64Type, Int64Type, TimestampMicrosecondType};
use arrow_array::{Array, RecordBatch};
use bigquery_sink_pipeline::store::{CheckpointInfo, Manifest};
use bigquery_sink_state::{CommitList, SubtaskState};

use crate::engine::Rows;
use crate::process::{BAD_PLACE, GOOD_PLACE, LONG_NOTE, REFUSED, TABLE, fault_of};
use crate::world::{BEGIN_MS, short};

/// What the store said is complete, ever.
#[derive(Clone, Debug, Default)]
pub(crate) struct Checkpoints {
    known: BTreeMap<(u64, u64), Held>,
    committed: BTreeSet<(u64, u64)>,
    /// What was seen before it was complete, by file: its bytes may go bad before it is.
    unclaimed: BTreeMap<String, Manifest>,
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
#[derive(Clone, Debug)]
struct Held {
    parallelism: u32,
    input_ended: bool,
    rows_committed: u64,
    listed: Listed,
}

/// What the commit lists of a checkpoint hold.
#[derive(Clone, Debug, Default)]
struct Listed {
    rows: u64,
    /// Streams, and the exclusive end of each.
    ends: Vec<(String, u64)>,
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
    pub(crate) fn update(
        &mut self,
        listed: Vec<CheckpointInfo>,
        published: &Published,
    ) -> Vec<(bool, String)> {
        let mut said = Vec::new();
        for info in listed.iter().filter(|info| !info.complete) {
            // What nobody claimed may be claimed later, or was written by a zombie.
            if let Ok(manifest) = &info.manifest
                && !self.unclaimed.contains_key(&info.file)
            {
                self.unclaimed.insert(info.file.clone(), manifest.clone());
                for part in &manifest.subtasks {
                    said.extend(unreadable(&info.file, &part.state, &part.commit));
                }
            }
        }
        for info in listed.iter().filter(|info| info.complete) {
            let id = (info.lineage, info.epoch.0);
            let manifest = match &info.manifest {
                Ok(manifest) => Some(manifest.clone()),
                // Torn, or gone bad: the host must refuse it. What it held is known from before.
                Err(error) => {
                    let error = error.to_string();
                    said.push((false, format!("checkpoint {id:?} cannot be read: {error}")));
                    let mut seen = self.unclaimed.iter();
                    let of = seen.find(|(file, _)| error.contains(&**file));
                    of.map(|(_, manifest)| manifest.clone())
                }
            };
            if let Some(manifest) = manifest
                && !self.known.contains_key(&id)
            {
                let parts = manifest.subtasks.iter();
                let parts = parts.map(|part| (&part.state[..], &part.commit[..]));
                let (listed, told) = self.complete(id, id.1, parts);
                said.extend(told);
                let held = Held {
                    parallelism: manifest.parallelism,
                    input_ended: manifest.input_ended,
                    // Of both tables, as they are counted here.
                    rows_committed: manifest.rows_committed + manifest.rows_rejected,
                    listed,
                };
                self.known.insert(id, held);
            }
            if let Some(held) = self.known.get(&id)
                && info.committed
                && self.committed.insert(id)
            {
                // A superseded host may say it of an older one later.
                self.confirmed_rows = self.confirmed_rows.max(held.rows_committed);
                said.push((false, format!("checkpoint {id:?} is confirmed")));
                said.extend(unpublished(id, &held.listed, published));
            }
        }
        self.newest = self.known.last_key_value().map(|(id, held)| Newest {
            parallelism: held.parallelism,
            committed: self.committed.contains(id),
            input_ended: held.input_ended,
            rows: held.listed.rows,
        });
        said
    }

    /// A checkpoint is complete with these parts: state and commit entry of each subtask. Gives what it lists, and what is to be said.
    fn complete<'a>(
        &mut self,
        id: impl fmt::Debug,
        epoch: u64,
        parts: impl Iterator<Item = (&'a [u8], &'a [u8])>,
    ) -> (Listed, Vec<(bool, String)>) {
        let mut said = Vec::new();
        let mut listed = Listed::default();
        for (state, commit) in parts {
            said.extend(unreadable(format_args!("checkpoint {id:?}"), state, commit));
            if let Ok(list) = CommitList::decode(commit) {
                listed.add(&list);
                self.cover(&list, epoch);
            }
        }
        said.push((
            false,
            format!("checkpoint {id:?} is complete with {} rows", listed.rows),
        ));
        (listed, said)
    }

    /// The engine's newest checkpoint is complete.
    pub(crate) fn declare<'a>(
        &mut self,
        epoch: u64,
        parts: impl Iterator<Item = (&'a [u8], &'a [u8])>,
    ) -> Vec<(bool, String)> {
        let mut parallelism = 0;
        let (listed, said) = self.complete(epoch, epoch, parts.inspect(|_| parallelism += 1));
        self.newest = Some(Newest {
            parallelism,
            committed: false,
            input_ended: false,
            rows: listed.rows,
        });
        said
    }

    /// The engine confirms the commit of these lists: of the newest checkpoint, or of one that it went back to.
    pub(crate) fn confirm<'a>(
        &mut self,
        lists: impl Iterator<Item = &'a [u8]>,
        published: &Published,
    ) -> Vec<(bool, String)> {
        if let Some(newest) = &mut self.newest {
            newest.committed = true;
        }
        let mut listed = Listed::default();
        for list in lists.filter_map(|list| CommitList::decode(list).ok()) {
            listed.add(&list);
        }
        unpublished("of the engine", &listed, published)
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

impl Listed {
    fn add(&mut self, list: &CommitList) {
        self.rows += list.rows().0;
        let ends = list.0.iter();
        let ends = ends.map(|info| (info.stream.0.clone(), info.flush_offset.next_offset().0));
        self.ends.extend(ends);
    }
}

/// P1: a commit is confirmed, and of these streams rows before the end are not visible; as lines that are violations.
fn unpublished(id: impl fmt::Debug, listed: &Listed, published: &Published) -> Vec<(bool, String)> {
    let is_hidden = |(stream, to): &&(String, u64)| published.end_of(stream) < *to;
    let hidden = listed.ends.iter().filter(is_hidden);
    hidden
        .map(|(stream, to)| {
            let (stream, end) = (short(stream), published.end_of(stream));
            (
                true,
                format!("P1: checkpoint {id:?} is confirmed up to {to} of {stream}, of which {end} rows are visible"),
            )
        })
        .collect()
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
    // On a default stream rows stand in no order, and are there as soon as they are stored.
    let (due, may_repeat, ordered) = match expected {
        Expected::AtLeastOnce { due, may_repeat } => (&**due, *may_repeat, false),
        Expected::Counted { .. } => (expected, true, true),
        once => (once, false, true),
    };
    let anew = matches!(
        due,
        Expected::NothingTwice | Expected::Counted { whole: false, .. }
    );
    let mut seen = Seen::default();
    let mut wrong = Vec::new();
    let subtasks = rows.column(0).as_primitive::<Int64Type>().values();
    let numbers = rows.column(1).as_primitive::<Int64Type>().values();
    for (at, (subtask, number)) in subtasks.iter().zip(numbers).enumerate() {
        let row = format!("row {number} of subtask {subtask}");
        if seen.again(*subtask, *number) && !may_repeat {
            wrong.push(format!("P2: {row} is visible twice"));
        }
        if let Some(problem) = value_problem(rows, at, *subtask, *number) {
            wrong.push(format!("P3: {row}: {problem}"));
        }
        if letters.is_some() && fault_of(*number).is_some() {
            wrong.push(format!("P3: {row} is bad, and no dead letter"));
        }
    }
    let (of_rows, of_letters) = published.parted();
    if let Some(letters) = letters {
        let mut places = of_letters.places();
        for letter in (0..letters.num_rows()).map(|at| Letter::read(letters, at)) {
            let row = format!("row {} of subtask {}", letter.number, letter.subtask);
            // A row is in one table, once: what is in both, or in one twice, is visible twice.
            if seen.again(letter.subtask, letter.number) && !may_repeat {
                wrong.push(format!("P2: {row} is visible twice, and a dead letter"));
            }
            // Of a table that was made anew the first ones are gone.
            let place = places.next().filter(|_| !anew);
            let misplaced = || place.and_then(|place| letter.misplaced(&place, checkpoints));
            let problem = letter.problem.clone().or_else(misplaced);
            wrong.extend(problem.map(|problem| format!("P3: the dead letter of {row}: {problem}")));
        }
    }
    if ordered && !anew {
        wrong.extend(order_problems(&of_rows, subtasks, numbers));
        wrong.extend(gaps(&of_letters));
    }
    wrong.extend(seen.problems(due, checkpoints));
    wrong
}

/// How often each row is there, by subtask and number.
#[derive(Default)]
struct Seen(BTreeMap<i64, BTreeMap<i64, u64>>);

impl Seen {
    /// One more; whether it was there before.
    fn again(&mut self, subtask: i64, number: i64) -> bool {
        let times = self.0.entry(subtask).or_default().entry(number).or_default();
        *times += 1;
        *times > 1
    }

    /// P1: what is not there and must be, or is there and cannot be.
    fn problems(self, due: &Expected, checkpoints: &Checkpoints) -> Vec<String> {
        match due {
            Expected::Everything { rows, parallelism } => self.missing(*rows, *parallelism),
            Expected::WhatWasConfirmed => {
                let found: usize = self.0.values().map(BTreeMap::len).sum();
                let confirmed = checkpoints.confirmed_rows;
                let short = (found as u64) < confirmed;
                let wrong =
                    short.then(|| format!("P1: {found} rows are visible, and {confirmed} are confirmed"));
                wrong.into_iter().collect()
            }
            Expected::NothingTwice | Expected::AtLeastOnce { .. } => Vec::new(),
            Expected::Counted { counts, whole } => count_problems(self.0, counts, *whole),
        }
    }

    fn missing(&self, rows: u64, parallelism: u32) -> Vec<String> {
        let subtasks = self.0.keys().copied().chain(0..i64::from(parallelism));
        let subtasks: BTreeSet<i64> = subtasks.collect();
        let problem = |subtask: i64| {
            let of = self.0.get(&subtask);
            let found = of.map_or(0, BTreeMap::len) as u64;
            let last = of.and_then(BTreeMap::last_key_value);
            let beyond = last.is_some_and(|(last, _)| *last as u64 >= rows);
            let wrong = found != rows || beyond;
            wrong.then(|| format!("P1: {found} of {rows} rows of subtask {subtask} are visible"))
        };
        subtasks.into_iter().filter_map(problem).collect()
    }
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
                let rejected_at = letters
                    .column(5)
                    .as_primitive::<TimestampMicrosecondType>()
                    .value(at);
                if rejected_at < BEGIN_MS * 1000 || letters.column(5).is_null(at) {
                    Some(format!("it says that it was refused at {rejected_at}"))
                } else {
                    (said != due).then(|| format!("{said:?} and not {due:?}"))
                }
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
    /// So many rows of the stream have become visible.
    fn end_of(&self, stream: &str) -> u64 {
        let of = self.changes.iter().filter(|change| change.stream == stream);
        of.map(|change| change.rows.end).max().unwrap_or_default()
    }

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

    /// Where each row became visible, in that order.
    fn places(&self) -> impl Iterator<Item = Place<'_>> {
        let changes = self.changes.iter();
        changes.flat_map(|change| change.rows.clone().map(move |offset| Place { change, offset }))
    }
}

/// P8: each offset of a stream once, from 0, without a gap. Of dead letters no more is asked: what the sink refuses itself overtakes what BigQuery refuses.
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
    // Where rows may be bad they have a place.
    let place = rows
        .columns()
        .get(5)
        .map(|column| column.as_string::<i32>().value(at));
    if place.is_some_and(|place| place != GOOD_PLACE) {
        return Some(format!("place is {place:?}"));
    }
    None
}

/// P4: a stream's rows are in the order of their source; P8.
fn order_problems(published: &Published, subtasks: &[i64], numbers: &[i64]) -> Vec<String> {
    let mut wrong = gaps(published);
    let mut last: BTreeMap<(&str, i64), i64> = BTreeMap::new();
    let mut at = 0;
    for Change {
        stream,
        rows,
        without_checkpoint,
        ..
    } in &published.changes
    {
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
