//! `impulse`: rows (counter, subtask_index) at a rate, in every subtask, as the engine's source of that name.

use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use arrow_array::{Int64Array, RecordBatch};
use arrow_schema::{DataType, Field, Schema, SchemaRef};
use async_trait::async_trait;
use bigquery_sink_state::envelope::{self, EnvelopeError, Kind};
use bincode::{Decode, Encode};
use tokio::time::Instant;

use super::{Opened, Opening, Source, SourceConfig, SourceError};
use crate::sql::OptionReader;
use crate::store::SourcePosition;

const OPTIONS: [&str; 3] = ["event_rate", "event_time_interval", "message_count"];
const POSITION_VERSION: u16 = 1;
/// A batch covers this much time, and at most this many rows (as in the engine).
const BATCH_TIME: Duration = Duration::from_millis(100);
const BATCH_ROWS: u64 = 8192;

static COLUMNS: LazyLock<SchemaRef> = LazyLock::new(|| {
    let column = |name| Field::new(name, DataType::Int64, false);
    Arc::new(Schema::new(vec![column("counter"), column("subtask_index")]))
});

/// Options of an `impulse` table.
#[derive(Clone, Debug, PartialEq)]
pub struct ImpulseConfig {
    /// Rows a second, over all subtasks.
    pub event_rate: f64,
    /// Rows of each subtask; without it there is no end.
    pub message_count: Option<u64>,
}

/// Where every subtask's counter stands. It is kept by the index that wrote the rows, so that a change of the parallelism neither repeats
/// nor leaves out a (subtask_index, counter).
#[derive(Clone, Debug, Default, PartialEq, Eq, Encode, Decode)]
struct Position {
    next: BTreeMap<u32, u64>,
}

#[derive(Debug)]
struct Impulse {
    position: Position,
    limit: Option<u64>,
    delay: Duration,
    batch_rows: u64,
    start: Instant,
    sent: u64,
}

pub(super) fn configure(
    columns: Option<SchemaRef>,
    mut options: OptionReader<'_>,
) -> Option<(SourceConfig, SchemaRef)> {
    if columns.is_some_and(|columns| !same_columns(&columns)) {
        options.table_mistake("has the columns counter BIGINT, subtask_index BIGINT; declare these or none");
    }
    let rate = options
        .required("event_rate")
        .map(|option| (option, option.value.parse::<f64>()));
    let event_rate = match rate {
        Some((_, Ok(rate))) if (0.001..=1e12).contains(&rate) => Some(rate),
        Some((option, _)) => {
            options.mistake(option, "a number of rows a second, 0.001 or more");
            None
        }
        None => None,
    };
    // There is no event time here; the option is checked so that the file stays right for the engine.
    options.parsed("event_time_interval", "a whole number", |text| {
        text.parse::<u64>().ok()
    });
    let message_count = options.parsed("message_count", "a whole number of rows", |text| {
        text.parse::<u64>().ok()
    });
    options.finish("impulse", &OPTIONS);
    Some((
        SourceConfig::Impulse(ImpulseConfig {
            event_rate: event_rate?,
            message_count,
        }),
        Arc::clone(&COLUMNS),
    ))
}

fn same_columns(columns: &SchemaRef) -> bool {
    let names = |schema: &SchemaRef| {
        schema
            .fields()
            .iter()
            .map(|field| (field.name().clone(), field.data_type().clone()))
            .collect::<Vec<_>>()
    };
    names(columns) == names(&COLUMNS)
}

impl ImpulseConfig {
    /// The rate is tuning; the count says what there is to read.
    pub(super) fn identity(&self) -> String {
        let count = self.message_count.map_or("without end".to_owned(), |count| {
            format!("message_count = {count}")
        });
        format!("impulse, {count}")
    }
}

/// One source a subtask. A counter goes on in the subtask of its index, or, where there are fewer now, in index modulo parallelism.
pub(super) fn open(
    table: &str,
    config: &ImpulseConfig,
    opening: &Opening,
    stored: &[SourcePosition],
) -> Result<Vec<Opened>, SourceError> {
    if opening.rate.is_some() {
        return Err(SourceError::OwnRate {
            name: table.to_owned(),
        });
    }
    let mut next: BTreeMap<u32, u64> = (0..opening.parallelism).map(|subtask| (subtask, 0)).collect();
    for position in stored.iter().filter(|position| belongs(table, &position.name)) {
        let decoded: Position = envelope::decode(Kind::SourcePosition, POSITION_VERSION, &position.bytes)
            .map_err(|error| SourceError::Position {
                name: position.name.clone(),
                reason: error.to_string(),
            })?;
        next.extend(decoded.next);
    }
    let delay = Duration::from_secs_f64(f64::from(opening.parallelism) / config.event_rate);
    let start = Instant::now();
    let opened = (0..opening.parallelism).map(|subtask| {
        let mine = next
            .iter()
            .filter(|(index, _)| *index % opening.parallelism == subtask);
        let source = Impulse {
            position: Position {
                next: mine.map(|(index, counter)| (*index, *counter)).collect(),
            },
            limit: config.message_count,
            delay,
            batch_rows: batch_rows(delay),
            start,
            sent: 0,
        };
        Opened {
            name: format!("{table}/{subtask}"),
            source: Box::new(source),
            subtasks: vec![subtask as usize],
        }
    });
    Ok(opened.collect())
}

/// A stored position for people.
pub(super) fn describe(bytes: &[u8]) -> Result<String, EnvelopeError> {
    let position: Position = envelope::decode(Kind::SourcePosition, POSITION_VERSION, bytes)?;
    let next = position.next.iter();
    let next: Vec<String> = next
        .map(|(subtask, next)| format!("subtask_index {subtask}: counter {next}"))
        .collect();
    Ok(next.join(", "))
}

fn belongs(table: &str, name: &str) -> bool {
    name.strip_prefix(table).is_some_and(|rest| rest.starts_with('/'))
}

fn batch_rows(delay: Duration) -> u64 {
    let rows = BATCH_TIME.as_nanos() / delay.as_nanos().max(1);
    u64::try_from(rows).unwrap_or(BATCH_ROWS).clamp(1, BATCH_ROWS)
}

impl Impulse {
    /// The counter that is furthest behind, of those not at the end.
    fn turn(&self) -> Option<(u32, u64)> {
        let open = self
            .position
            .next
            .iter()
            .filter(|(_, next)| self.limit.is_none_or(|limit| **next < limit));
        open.min_by_key(|(_, next)| **next)
            .map(|(index, next)| (*index, *next))
    }
}

#[async_trait]
impl Source for Impulse {
    fn due(&self) -> Option<Instant> {
        let (_, next) = self.turn()?;
        let rows = self
            .limit
            .map_or(self.batch_rows, |limit| self.batch_rows.min(limit - next));
        let offset = self.delay.as_secs_f64() * (self.sent + rows) as f64;
        Some(self.start + Duration::from_secs_f64(offset))
    }

    async fn next(&mut self) -> Result<Option<RecordBatch>, SourceError> {
        let Some((index, next)) = self.turn() else {
            return Ok(None);
        };
        let end = self
            .limit
            .map_or(next + self.batch_rows, |limit| limit.min(next + self.batch_rows));
        let counters = Int64Array::from_iter_values((next..end).map(|counter| counter.cast_signed()));
        let indexes = Int64Array::from_value(i64::from(index), (end - next) as usize);
        let batch = RecordBatch::try_new(Arc::clone(&COLUMNS), vec![Arc::new(counters), Arc::new(indexes)])
            .expect("both columns are built with the types and length of the schema");
        self.position.next.insert(index, end);
        self.sent += end - next;
        Ok(Some(batch))
    }

    fn position(&self) -> Vec<u8> {
        envelope::encode(Kind::SourcePosition, POSITION_VERSION, &self.position)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn opening(parallelism: u32) -> Opening {
        Opening {
            parallelism,
            folder: ".".into(),
            replaced: BTreeMap::new(),
            rate: None,
        }
    }

    async fn take(source: &mut dyn Source, batches: usize) -> Vec<(i64, i64)> {
        let mut rows = Vec::new();
        for _ in 0..batches {
            let Some(batch) = source.next().await.unwrap() else {
                break;
            };
            let column = |at: usize| {
                batch
                    .column(at)
                    .as_any()
                    .downcast_ref::<Int64Array>()
                    .unwrap()
                    .values()
                    .to_vec()
            };
            rows.extend(column(1).into_iter().zip(column(0)));
        }
        rows
    }

    #[test]
    fn positions_of_version_1_are_read() {
        let position = Position {
            next: [(0, 5), (3, 300)].into(),
        };
        let stored = "4142515301070100070000002d3f8e7902000503fb2c01";
        let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
        assert_eq!(
            hex(&envelope::encode(
                Kind::SourcePosition,
                POSITION_VERSION,
                &position
            )),
            stored
        );
    }

    #[tokio::test(start_paused = true)]
    async fn every_counter_comes_once_when_the_parallelism_goes_from_three_to_two_to_four() {
        let config = ImpulseConfig {
            event_rate: 30.0,
            message_count: Some(7),
        };
        let mut rows = Vec::new();
        let mut stored = Vec::new();
        for (parallelism, batches) in [(3, 2), (2, 3), (4, 100)] {
            let mut opened = open("t", &config, &opening(parallelism), &stored).unwrap();
            for opened in &mut opened {
                rows.extend(take(opened.source.as_mut(), batches).await);
            }
            let position = |o: &Opened| SourcePosition {
                name: o.name.clone(),
                bytes: o.source.position(),
            };
            stored = opened.iter().map(position).collect();
        }
        rows.sort_unstable();
        let all: Vec<_> = (0..4)
            .flat_map(|index| (0..7).map(move |counter| (index, counter)))
            .collect();
        assert_eq!(rows, all);
    }

    #[test]
    fn a_rate_from_outside_is_refused() {
        let config = ImpulseConfig {
            event_rate: 30.0,
            message_count: None,
        };
        let opening = Opening {
            rate: Some(5.0),
            ..opening(1)
        };
        let error = open("t", &config, &opening, &[]).err().unwrap();
        assert_eq!(
            error.to_string(),
            "a source rate has no use: source t is no file and has its own, option 'event_rate'; run without --source-rate"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn rows_come_at_the_rate_of_the_job_divided_by_the_subtasks() {
        let config = ImpulseConfig {
            event_rate: 1000.0,
            message_count: Some(120),
        };
        let mut opened = open("t", &config, &opening(2), &[]).unwrap();
        let source = &mut opened[0].source;
        let start = Instant::now();
        let mut times = Vec::new();
        while let Some(due) = source.due() {
            times.push((due - start).as_millis());
            source.next().await.unwrap();
        }
        assert_eq!(times, [100, 200, 240]);
    }
}
