//! A table's visible rows: those appended, and what changes by primary key have made of them.

use std::collections::{HashMap, VecDeque};
use std::sync::OnceLock;

use arrow::row::{RowConverter, SortField};
use arrow_array::{BooleanArray, RecordBatch};
use arrow_schema::ArrowError;
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
    keyed: Option<Keyed>,
    shown: OnceLock<Vec<RecordBatch>>,
}

#[derive(Clone, Debug)]
struct Batch {
    rows: RecordBatch,
    /// Which of its rows are there; `None`: all.
    there: Option<Vec<bool>>,
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

impl TableRows {
    /// The rows, in the order in which they became visible or were changed last.
    pub(crate) fn shown(&self) -> &[RecordBatch] {
        self.shown
            .get_or_init(|| self.batches.iter().filter_map(Batch::shown).collect())
    }

    /// How many there are.
    pub(crate) fn count(&self) -> u64 {
        self.count
    }

    /// Adds rows.
    ///
    /// # Errors
    /// A key of a type that is none.
    pub(crate) fn push(&mut self, rows: RecordBatch) -> Result<(), ArrowError> {
        if let Some(keyed) = &mut self.keyed {
            keyed.add(&rows, self.batches.len())?;
        }
        self.count += rows.num_rows() as u64;
        self.batches.push(Batch { rows, there: None });
        self.shown = OnceLock::new();
        Ok(())
    }

    /// The same rows, each batch made another by `map`, which keeps rows and keys.
    ///
    /// # Errors
    /// That of `map`.
    pub(crate) fn map<E>(&self, map: impl Fn(&RecordBatch) -> Result<RecordBatch, E>) -> Result<Self, E> {
        let batches = self.batches.iter().map(|batch| {
            Ok(Batch {
                rows: map(&batch.rows)?,
                there: batch.there.clone(),
            })
        });
        Ok(Self {
            batches: batches.collect::<Result<_, E>>()?,
            count: self.count,
            keyed: self.keyed.clone(),
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
        let at = self.batches.len();
        self.batches.push(Batch {
            rows: changes.upserts.clone(),
            there: Some(vec![false; changes.upserts.num_rows()]),
        });
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
            self.count -= 1;
        }
        if let Some(there) = self.batches[batch].there.as_mut().filter(|_| upsert) {
            there[row] = true;
            self.count += 1;
        }
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
            if self
                .versions
                .get(&key)
                .is_some_and(|version| version.deleted_ms == Some(at))
            {
                self.versions.remove(&key);
            }
        }
    }
}

/// Keys in a form that can be compared and hashed.
fn keys(columns: &RecordBatch) -> Result<Vec<Key>, ArrowError> {
    let fields = columns
        .schema()
        .fields()
        .iter()
        .map(|field| SortField::new(field.data_type().clone()))
        .collect();
    let rows = RowConverter::new(fields)?.convert_columns(columns.columns())?;
    Ok(rows.iter().map(|row| row.as_ref().into()).collect())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

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
        rows.push(batch(&[(1, "a"), (2, "b"), (1, "again")])).unwrap();
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
        rows.push(batch(&[(4, "e")])).unwrap();
        rows.change(
            &[0],
            &changes(&[(4, Some("f"), ""), (4, None, ""), (4, Some("g"), "")]),
            0,
        )
        .unwrap();
        assert_eq!(shown(&rows), owned(&[(1, "c"), (3, "d"), (4, "g")]));
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
}
