//! A table's visible rows: those appended, and what changes by primary key have made of them.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, OnceLock};

use arrow::row::{RowConverter, SortField};
use arrow_array::{BooleanArray, RecordBatch};
use arrow_schema::{ArrowError, SchemaRef};
use arrow_select::filter::filter_record_batch;

use super::{Change, ChangeKind, Changes, Sequence};
use crate::catalog::Millis;

/// write-api.md 6: so long a delete is remembered, so that a late upsert of lower rank does not bring the row back.
const DELETES_REMEMBERED_MS: Millis = 2 * 86_400_000;

/// The rows of one table.
#[derive(Clone, Debug, Default)]
pub(crate) struct TableRows {
    batches: Vec<Batch>,
    count: u64,
    /// How many changes there have been.
    changed: u64,
    keyed: Option<Keyed>,
    shown: OnceLock<Vec<RecordBatch>>,
}

#[derive(Clone, Debug)]
struct Batch {
    rows: RecordBatch,
    /// Which of its rows are there; `None`: all.
    there: Option<Vec<bool>>,
    /// How many.
    live: usize,
    /// When their partition begins, of a table that is partitioned by the time of ingestion.
    partition: Option<Millis>,
}

/// What is known of each key, from the first change on.
#[derive(Clone, Debug)]
struct Keyed {
    /// Indices of the primary key's columns, in its order.
    columns: Vec<usize>,
    versions: HashMap<Key, Version>,
    /// Deletes in the order in which they came.
    deletes: VecDeque<(Millis, Key)>,
}

type Key = Box<[u8]>;

/// What is known of a key.
#[derive(Clone, Debug, Default)]
struct Version {
    sequence: Option<Sequence>,
    /// Rows with this key: batch and row. Appends check no key, so that there may be several.
    places: Vec<(usize, usize)>,
    deleted_ms: Option<Millis>,
}

/// A step by which an empty table gets rows.
#[derive(Debug)]
pub(crate) enum Made {
    /// Rows were added, to a partition that begins then.
    Added(RecordBatch, Option<Millis>),
    /// Rows were put there by upserts; or deletes came, at that time.
    Changed(Changes, Option<Millis>),
}

impl Made {
    /// The rows that it puts there.
    pub(crate) fn rows(&self) -> &RecordBatch {
        match self {
            Self::Added(rows, _) => rows,
            Self::Changed(changes, _) => &changes.upserts,
        }
    }

    /// Whether both can be one step.
    pub(crate) fn goes_with(&self, next: &Self) -> bool {
        match (self, next) {
            (Self::Added(_, partition), Self::Added(_, next)) => partition == next,
            (Self::Changed(_, None), Self::Changed(_, None)) => true,
            _ => false,
        }
    }
}

impl TableRows {
    /// The rows, in the order in which they became visible or were changed last.
    pub(crate) fn shown(&self) -> &[RecordBatch] {
        self.shown
            .get_or_init(|| self.batches.iter().filter_map(Batch::shown).collect())
    }

    /// Of each batch of [`TableRows::shown`], when its partition begins. Of rows that are changed by key that is not known.
    pub(crate) fn partitions(&self) -> Vec<Option<Millis>> {
        let shown = self.batches.iter().filter(|batch| batch.is_shown());
        shown.map(|batch| batch.partition).collect()
    }

    /// How many there are.
    pub(crate) fn count(&self) -> u64 {
        self.count
    }

    /// How many changes there have been.
    pub(crate) fn changed(&self) -> u64 {
        self.changed
    }

    /// Adds rows, to a partition that begins then.
    ///
    /// # Errors
    /// A key of a type that is none.
    pub(crate) fn push(&mut self, rows: RecordBatch, partition: Option<Millis>) -> Result<(), ArrowError> {
        if let Some(keyed) = &mut self.keyed {
            keyed.add(&rows, self.batches.len())?;
        }
        self.count += rows.num_rows() as u64;
        let live = rows.num_rows();
        self.batches.push(Batch {
            rows,
            there: None,
            live,
            partition: partition.filter(|_| self.keyed.is_none()),
        });
        self.shown = OnceLock::new();
        Ok(())
    }

    /// Counts rows that are not kept.
    pub(crate) fn pass(&mut self, rows: u64) {
        self.count += rows;
    }

    /// The same rows, each batch made another by `map`, which keeps rows and keys; `moved` says where a column is then.
    /// If one of the key's is gone, what is known of keys is forgotten.
    ///
    /// # Errors
    /// That of `map`.
    pub(crate) fn map<E>(
        &self,
        map: impl Fn(&RecordBatch) -> Result<RecordBatch, E>,
        moved: impl Fn(usize) -> Option<usize>,
    ) -> Result<Self, E> {
        let batches = self.batches.iter().map(|batch| {
            Ok(Batch {
                rows: map(&batch.rows)?,
                there: batch.there.clone(),
                live: batch.live,
                partition: batch.partition,
            })
        });
        let keyed = self.keyed.as_ref().and_then(|keyed| {
            let columns = keyed.columns.iter().map(|at| moved(*at));
            let columns = columns.collect::<Option<_>>()?;
            Some(Keyed {
                columns,
                ..keyed.clone()
            })
        });
        Ok(Self {
            batches: batches.collect::<Result<_, E>>()?,
            count: self.count,
            changed: self.changed,
            keyed,
            shown: OnceLock::new(),
        })
    }

    /// Applies changes under the primary key in these columns.
    ///
    /// # Errors
    /// A key of a type that is none.
    pub(crate) fn change(&mut self, key: &[usize], changes: &Changes, now: Millis) -> Result<(), ArrowError> {
        let mut keyed = match self.keyed.take() {
            Some(keyed) if keyed.columns == key => keyed,
            _ => self.index(key)?,
        };
        keyed.forget(now);
        let upserts = keys(&changes.upserts.project(key)?)?;
        let deletes = keys(&changes.deletes)?;
        self.batches.iter_mut().for_each(|batch| batch.partition = None);
        let at = self.batches.len();
        self.batches.push(Batch {
            rows: changes.upserts.clone(),
            there: Some(vec![false; changes.upserts.num_rows()]),
            live: 0,
            partition: None,
        });
        let mut touched = vec![at];
        for Change { kind, row, sequence } in &changes.order {
            let keys = match kind {
                ChangeKind::Upsert => &upserts,
                ChangeKind::Delete => &deletes,
            };
            let version = keyed.versions.entry(keys[*row].clone()).or_default();
            // The higher rank wins; between equals, and without ranks, the later arrival.
            if version.sequence > *sequence {
                continue;
            }
            let before = std::mem::take(&mut version.places);
            touched.extend(before.iter().map(|(batch, _)| *batch));
            version.sequence.clone_from(sequence);
            version.deleted_ms = None;
            match kind {
                ChangeKind::Upsert => version.places.push((at, *row)),
                ChangeKind::Delete => {
                    version.deleted_ms = Some(now);
                    keyed.deletes.push_back((now, keys[*row].clone()));
                }
            }
            self.place(before, *kind == ChangeKind::Upsert, (at, *row));
        }
        touched.into_iter().for_each(|at| self.batches[at].drop_dead());
        while self.batches.pop_if(|last| last.live == 0).is_some() {}
        self.changed += changes.order.len() as u64;
        self.keyed = Some(keyed);
        self.shown = OnceLock::new();
        Ok(())
    }

    /// Takes rows away, and puts one there.
    fn place(&mut self, before: Vec<(usize, usize)>, upsert: bool, (batch, row): (usize, usize)) {
        for (batch, row) in before {
            let batch = &mut self.batches[batch];
            let len = batch.rows.num_rows();
            batch.there.get_or_insert_with(|| vec![true; len])[row] = false;
            batch.live -= 1;
            self.count -= 1;
        }
        let batch = &mut self.batches[batch];
        if let Some(there) = batch.there.as_mut().filter(|_| upsert) {
            there[row] = true;
            batch.live += 1;
            self.count += 1;
        }
    }

    /// What gives an empty table with this schema and primary key these rows, in this order, and what is known of their
    /// keys.
    pub(crate) fn made_of(&self, key: &[usize], schema: &SchemaRef) -> Vec<Made> {
        // What is known under another key is forgotten at the next change.
        let keyed = self.keyed.as_ref().filter(|keyed| keyed.columns == key);
        let mut made = keyed.map_or_else(Vec::new, |keyed| keyed.deletes_made_of(schema));
        let ranks = keyed.map_or_else(HashMap::new, Keyed::ranks);
        for (at, batch) in self.batches.iter().enumerate() {
            let Some(rows) = batch.shown() else { continue };
            let ranks: Vec<_> = batch.places().map(|row| ranks.get(&(at, row))).collect();
            if ranks.iter().all(Option::is_none) {
                made.push(Made::Added(rows, batch.partition));
                continue;
            }
            let order = ranks.into_iter().enumerate().map(|(row, sequence)| Change {
                kind: ChangeKind::Upsert,
                row,
                sequence: sequence.map(|sequence| Sequence::clone(sequence)),
            });
            let order = order.collect();
            let deletes = project(schema, key);
            made.push(Made::Changed(
                Changes {
                    upserts: rows,
                    deletes,
                    order,
                },
                None,
            ));
        }
        made
    }

    fn index(&self, key: &[usize]) -> Result<Keyed, ArrowError> {
        let mut keyed = Keyed {
            columns: key.to_vec(),
            versions: HashMap::new(),
            deletes: VecDeque::new(),
        };
        for (at, batch) in self.batches.iter().enumerate() {
            keyed.add_those(&batch.rows, at, batch.there.as_deref())?;
        }
        Ok(keyed)
    }
}

/// Two tables are equal if a reader sees no difference.
impl PartialEq for TableRows {
    fn eq(&self, other: &Self) -> bool {
        self.shown() == other.shown()
    }
}

impl Batch {
    /// Lets its rows go when none of them is there any more. It stays itself, since places count batches.
    fn drop_dead(&mut self) {
        if self.live == 0 {
            self.rows = RecordBatch::new_empty(self.rows.schema());
            self.there = None;
        }
    }

    /// Which of its rows are there.
    fn places(&self) -> impl Iterator<Item = usize> {
        let there = |row: &usize| self.there.as_ref().is_none_or(|there| there[*row]);
        (0..self.rows.num_rows()).filter(there)
    }

    fn is_shown(&self) -> bool {
        self.there.as_ref().is_none_or(|there| there.contains(&true))
    }

    /// The rows that are there; `None` if there are none.
    fn shown(&self) -> Option<RecordBatch> {
        let Some(there) = &self.there else {
            return Some(self.rows.clone());
        };
        if !there.contains(&true) {
            return None;
        }
        // The mask has the batch's length, which is all that a filter can fail for.
        filter_record_batch(&self.rows, &BooleanArray::from(there.clone())).ok()
    }
}

impl Keyed {
    fn add(&mut self, rows: &RecordBatch, at: usize) -> Result<(), ArrowError> {
        self.add_those(rows, at, None)
    }

    fn add_those(&mut self, rows: &RecordBatch, at: usize, there: Option<&[bool]>) -> Result<(), ArrowError> {
        let keys = keys(&rows.project(&self.columns)?)?;
        for (row, key) in keys.into_iter().enumerate() {
            if there.is_none_or(|there| there[row]) {
                self.versions.entry(key).or_default().places.push((at, row));
            }
        }
        Ok(())
    }

    fn forget(&mut self, now: Millis) {
        let over = |at: Millis| now.saturating_sub(at) > DELETES_REMEMBERED_MS;
        while let Some((at, key)) = self.deletes.pop_front_if(|(at, _)| over(*at)) {
            let Some(version) = self.versions.get_mut(&key) else {
                continue;
            };
            if version.deleted_ms != Some(at) {
                continue;
            }
            // Rows that were appended since are there, whatever is known of their key.
            (version.sequence, version.deleted_ms) = (None, None);
            if version.places.is_empty() {
                self.versions.remove(&key);
            }
        }
    }

    /// The sequence numbers of the rows that upserts with one have put there. Such a row is the first of its key.
    fn ranks(&self) -> HashMap<(usize, usize), &Sequence> {
        let live = self
            .versions
            .values()
            .filter(|version| version.deleted_ms.is_none());
        live.filter_map(|version| Some((*version.places.first()?, version.sequence.as_ref()?)))
            .collect()
    }

    /// The deletes that are remembered, oldest first.
    fn deletes_made_of(&self, schema: &SchemaRef) -> Vec<Made> {
        let remembered = self.deletes.iter().filter_map(|(at, key)| {
            let version = self.versions.get(key)?;
            (version.deleted_ms == Some(*at)).then_some((*at, key, &version.sequence))
        });
        let remembered: Vec<_> = remembered.collect();
        let at_a_time = remembered.chunk_by(|(at, ..), (other, ..)| at == other);
        at_a_time
            .map(|deletes| {
                let order = deletes.iter().enumerate().map(|(row, (.., sequence))| Change {
                    kind: ChangeKind::Delete,
                    row,
                    sequence: Option::clone(sequence),
                });
                let keys = deletes.iter().map(|(_, key, _)| *key);
                let changes = Changes {
                    upserts: RecordBatch::new_empty(Arc::clone(schema)),
                    deletes: columns(keys, &project(schema, &self.columns).schema()),
                    order: order.collect(),
                };
                Made::Changed(changes, Some(deletes[0].0))
            })
            .collect()
    }
}

/// Keys in a form that can be compared and hashed.
fn keys(columns: &RecordBatch) -> Result<Vec<Key>, ArrowError> {
    let rows = converter(&columns.schema())?.convert_columns(columns.columns())?;
    Ok(rows.iter().map(|row| row.as_ref().into()).collect())
}

/// The columns that were made into these keys.
fn columns<'a>(keys: impl Iterator<Item = &'a Key>, schema: &SchemaRef) -> RecordBatch {
    let converted = || {
        let converter = converter(schema)?;
        let parser = converter.parser();
        let columns = converter.convert_rows(keys.map(|key| parser.parse(key)))?;
        RecordBatch::try_new(Arc::clone(schema), columns)
    };
    converted().expect("keys are made of columns of these types")
}

fn converter(schema: &SchemaRef) -> Result<RowConverter, ArrowError> {
    let fields = schema.fields().iter();
    let fields = fields.map(|field| SortField::new(field.data_type().clone()));
    RowConverter::new(fields.collect())
}

/// No rows of some columns.
fn project(schema: &SchemaRef, columns: &[usize]) -> RecordBatch {
    let projected = schema.project(columns).expect("a key is of the table's columns");
    RecordBatch::new_empty(Arc::new(projected))
}

#[cfg(test)]
mod tests {
    use arrow_array::cast::AsArray;
    use arrow_array::types::Int64Type;
    use arrow_array::{ArrayRef, Int64Array, StringArray};

    use super::*;

    const DAY_MS: Millis = 86_400_000;

    fn batch(rows: &[(i64, &str)]) -> RecordBatch {
        let keys: ArrayRef = Arc::new(Int64Array::from_iter_values(rows.iter().map(|row| row.0)));
        let texts: ArrayRef = Arc::new(StringArray::from_iter_values(rows.iter().map(|row| row.1)));
        RecordBatch::try_from_iter([("k", keys), ("v", texts)]).unwrap()
    }

    /// Upserts are `(key, text, sequence)`, deletes have no text.
    fn changes(list: &[(i64, Option<&str>, &str)]) -> Changes {
        let upserts: Vec<_> = list
            .iter()
            .filter_map(|(key, text, _)| Some((*key, (*text)?)))
            .collect();
        let deletes: Vec<_> = list
            .iter()
            .filter(|change| change.1.is_none())
            .map(|change| (change.0, ""))
            .collect();
        let (mut upsert, mut delete) = (0.., 0..);
        let order = list.iter().map(|(_, text, sequence)| Change {
            kind: if text.is_some() {
                ChangeKind::Upsert
            } else {
                ChangeKind::Delete
            },
            row: if text.is_some() {
                upsert.next()
            } else {
                delete.next()
            }
            .unwrap(),
            sequence: Sequence::parse(sequence),
        });
        Changes {
            order: order.collect(),
            upserts: batch(&upserts),
            deletes: batch(&deletes).project(&[0]).unwrap(),
        }
    }

    fn shown(rows: &TableRows) -> Vec<(i64, String)> {
        let all = rows.shown().iter().flat_map(|batch| {
            let (keys, texts) = (
                batch.column(0).as_primitive::<Int64Type>(),
                batch.column(1).as_string::<i32>(),
            );
            (0..batch.num_rows())
                .map(|row| (keys.value(row), texts.value(row).to_owned()))
                .collect::<Vec<_>>()
        });
        let all: Vec<_> = all.collect();
        assert_eq!(rows.count(), all.len() as u64);
        all
    }

    fn owned(rows: &[(i64, &str)]) -> Vec<(i64, String)> {
        rows.iter()
            .map(|(key, text)| (*key, (*text).to_owned()))
            .collect()
    }

    #[test]
    fn an_upsert_takes_the_place_of_every_row_with_its_key_and_a_delete_leaves_none() {
        let mut rows = TableRows::default();
        rows.push(batch(&[(1, "a"), (2, "b"), (1, "again")]), None)
            .unwrap();
        rows.change(
            &[0],
            &changes(&[
                (1, Some("c"), ""),
                (3, Some("d"), ""),
                (2, None, ""),
                (9, None, ""),
            ]),
            0,
        )
        .unwrap();
        assert_eq!(shown(&rows), owned(&[(1, "c"), (3, "d")]));
        rows.push(batch(&[(4, "e")]), None).unwrap();
        rows.change(
            &[0],
            &changes(&[(4, Some("f"), ""), (4, None, ""), (4, Some("g"), "")]),
            0,
        )
        .unwrap();
        assert_eq!(shown(&rows), owned(&[(1, "c"), (3, "d"), (4, "g")]));
    }

    #[test]
    fn rows_that_are_all_replaced_are_not_kept() {
        let mut rows = TableRows::default();
        rows.push(batch(&[(1, "a"), (2, "b")]), None).unwrap();
        rows.push(batch(&[(3, "c")]), None).unwrap();
        for _ in 0..3 {
            rows.change(&[0], &changes(&[(1, Some("d"), ""), (2, Some("e"), "")]), 0)
                .unwrap();
        }
        rows.change(&[0], &changes(&[(3, None, "")]), 0).unwrap();
        let kept = rows.batches.iter().map(|batch| batch.rows.num_rows());
        assert_eq!(kept.collect::<Vec<_>>(), [0, 0, 0, 0, 2]);
        assert_eq!(shown(&rows), owned(&[(1, "d"), (2, "e")]));
        assert_eq!(rows.changed(), 7);
    }

    #[test]
    fn a_key_is_known_where_its_column_has_gone() {
        let mut rows = TableRows::default();
        rows.change(&[0], &changes(&[(1, Some("a"), "5"), (2, None, "5")]), 0)
            .unwrap();
        let turn = |rows: &RecordBatch| rows.project(&[1, 0]);
        let mut turned = rows.map(turn, |at| Some(1 - at)).unwrap();
        let again = |mut changes: Changes| {
            changes.upserts = turn(&changes.upserts).unwrap();
            changes
        };
        let late = again(changes(&[(1, Some("late"), "4"), (2, Some("late"), "4")]));
        turned.push(turn(&batch(&[(3, "c")])).unwrap(), None).unwrap();
        turned.change(&[1], &late, 1).unwrap();
        let back = turned.map(turn, |at| Some(1 - at)).unwrap();
        assert_eq!(shown(&back), owned(&[(1, "a"), (3, "c")]));
        let gone = rows.map(turn, |_| None).unwrap();
        assert!(gone.keyed.is_none());
    }

    #[test]
    fn the_higher_rank_wins_and_between_equals_the_later() {
        let mut rows = TableRows::default();
        rows.change(
            &[0],
            &changes(&[(1, Some("high"), "FFF/ABC"), (1, Some("low"), "ABC")]),
            0,
        )
        .unwrap();
        assert_eq!(shown(&rows), owned(&[(1, "high")]));
        rows.change(&[0], &changes(&[(1, None, "FFF/AB")]), 0).unwrap();
        assert_eq!(shown(&rows), owned(&[(1, "high")]));
        rows.change(&[0], &changes(&[(1, Some("equal"), "FFF/ABC")]), 0)
            .unwrap();
        assert_eq!(shown(&rows), owned(&[(1, "equal")]));
    }

    #[test]
    fn a_delete_is_remembered_for_two_days() {
        let mut rows = TableRows::default();
        rows.change(&[0], &changes(&[(1, Some("a"), "2"), (2, Some("b"), "2")]), 0)
            .unwrap();
        rows.change(&[0], &changes(&[(1, None, "5"), (2, None, "5")]), DAY_MS)
            .unwrap();
        rows.change(&[0], &changes(&[(1, Some("late"), "4")]), 3 * DAY_MS)
            .unwrap();
        assert_eq!(shown(&rows), []);
        rows.change(&[0], &changes(&[(2, Some("very late"), "4")]), 3 * DAY_MS + 1)
            .unwrap();
        assert_eq!(shown(&rows), owned(&[(2, "very late")]));
    }

    #[test]
    fn rows_appended_after_a_delete_are_changed_when_the_delete_is_forgotten() {
        let mut rows = TableRows::default();
        rows.change(&[0], &changes(&[(1, None, "5")]), 0).unwrap();
        rows.push(batch(&[(1, "appended")]), None).unwrap();
        rows.change(&[0], &changes(&[(1, Some("changed"), "4")]), 2 * DAY_MS + 1)
            .unwrap();
        assert_eq!(shown(&rows), owned(&[(1, "changed")]));
    }

    #[test]
    fn rows_made_again_are_the_same_and_know_the_same() {
        let mut rows = TableRows::default();
        let schema = batch(&[]).schema();
        rows.push(batch(&[(1, "a"), (2, "b"), (3, "c"), (3, "twice")]), None)
            .unwrap();
        let first = [
            (1, Some("d"), "5"),
            (4, Some("e"), ""),
            (5, Some("f"), "7"),
            (6, Some("g"), "7"),
        ];
        rows.change(&[0], &changes(&first), 10).unwrap();
        rows.change(
            &[0],
            &changes(&[(2, None, "6"), (5, None, "8"), (9, None, "")]),
            20,
        )
        .unwrap();
        rows.change(&[0], &changes(&[(8, None, "9")]), 30).unwrap();
        rows.push(batch(&[(1, "behind"), (8, "after its delete")]), None)
            .unwrap();
        let before = [
            (3, "c"),
            (3, "twice"),
            (1, "d"),
            (4, "e"),
            (6, "g"),
            (1, "behind"),
            (8, "after its delete"),
        ];
        assert_eq!(shown(&rows), owned(&before));
        let mut again = TableRows::default();
        for made in rows.made_of(&[0], &schema) {
            match made {
                Made::Added(batch, partition) => again.push(batch, partition).unwrap(),
                Made::Changed(changes, at) => again.change(&[0], &changes, at.unwrap_or(40)).unwrap(),
            }
        }
        assert_eq!(shown(&again), owned(&before));
        // Each key stands against a change of a lower rank, and takes one of a higher: until deletes are forgotten.
        for (at, rank) in [
            (50, "5"),
            (50, "6"),
            (50, "9"),
            (2 * DAY_MS + 25, "4"),
            (2 * DAY_MS + 35, "4"),
        ] {
            let mut same = rows.clone();
            let mut again = again.clone();
            let texts = (1..=9).map(|key| (key, Some("new"), rank)).collect::<Vec<_>>();
            same.change(&[0], &changes(&texts), at).unwrap();
            again.change(&[0], &changes(&texts), at).unwrap();
            assert_eq!(shown(&again), shown(&same), "{at} {rank}");
            assert_ne!(shown(&again), owned(&before), "{at} {rank}");
        }
        // Under another key nothing of it is known.
        let others = rows.made_of(&[1], &schema);
        assert!(
            others.iter().all(|made| matches!(made, Made::Added(_, _))),
            "{others:?}"
        );
    }
}
